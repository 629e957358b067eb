"""Entropy of the labels in a minibatch against block size: measured, expected, bounded, and published."""

from collections.abc import Sequence
from itertools import cycle

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis import published
from analysis.diversity import entropy, expected
from analysis.figures.style import RISING, STYLE, Drawn
from harness.data.dataset import Dataset


@matplotlib.rc_context(STYLE)
def draw(frame: pd.DataFrame, dataset: Dataset) -> Drawn | None:
    """For each fetch factor: the exact expectation as a line, the measurements as dots, the published values hollow.

    frame: a table returned by `summary.table`. None for fewer than two block sizes or fetch factors, or for several
    minibatch sizes. The published values are of plates in minibatches of 64; the generated data set has plates of the
    same shares.
    """
    rows = frame[frame["block_size"].notna() & frame["entropy_bits"].notna() & (frame["order"] == "random")]
    if rows["block_size"].nunique() < 2 or rows["fetch_factor"].nunique() < 2 or rows["batch_size"].nunique() > 1:
        return None
    m = int(rows["batch_size"].iloc[0])
    shares = entropy.shares(dataset.labels(frame.attrs["label"]))
    factors = sorted(rows["fetch_factor"].unique())
    blocks = 2 ** np.arange(int(np.log2(rows["block_size"].max())) + 1)  # sizes that divide a buffer
    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    ax = figure.subplots()
    theirs = published.block_shuffling()
    numbers = []

    def record(line: str, sizes: Sequence[float], bits: Sequence[float], f: int | None = None) -> None:
        numbers.extend(
            {"line": line, "fetch_factor": f, "block_size": b, "bits": y} for b, y in zip(sizes, bits, strict=True)
        )

    for colour, factor in zip(cycle(RISING), factors, strict=False):
        f = int(factor)
        exact = [expected.exact(shares, m, int(b), f) for b in blocks]
        first = [expected.first_order(shares, m, int(b), f) for b in blocks if b <= m * f]
        measured = rows[rows["fetch_factor"] == factor].sort_values("block_size")
        ax.plot(blocks, exact, color=colour, lw=1.2, label=f"f = {f}")
        ax.plot(blocks[: len(first)], first, ":", color=colour, lw=0.8)
        error = measured["entropy_error_bits"].fillna(0)
        ax.errorbar(measured["block_size"], measured["entropy_bits"], error, fmt="o", color=colour, ms=4, lw=0.8)
        record("exact", blocks, exact, f)
        record("first order", blocks[: len(first)], first, f)
        record("measured", measured["block_size"], measured["entropy_bits"], f)
        if frame.attrs["label"] == "plate" and m == 64:
            of_factor = theirs[theirs["fetch_factor"] == factor]
            ax.plot(of_factor["block_size"], of_factor["entropy_bits"], "s", mfc="none", color=colour, ms=6, mew=0.8)
            record("published", of_factor["block_size"], of_factor["entropy_bits"], f)
    lower, upper = zip(*(expected.poster_bounds(shares, m, int(b)) for b in blocks), strict=True)
    random = expected.exact(shares, m, 1, 1024)
    ax.plot(blocks, lower, "--", color="0.3", lw=1, label="the poster's lower bound")
    ax.plot(blocks, upper, "-.", color="0.3", lw=1, label="the poster's upper bound, above H(p)")
    ax.axhline(random, color="0.6", lw=0.8, label="random sampling")
    record("poster, lower", blocks, lower)
    record("poster, upper", blocks, upper)
    record("random", blocks[:1], [random])
    ax.set(xlabel="block size, cells", ylabel=f"entropy of {frame.attrs['label']} in a minibatch, bits")
    ax.set_xscale("log", base=2)
    ax.set_ylim(-0.1, expected.label_entropy(shares) + 0.35)
    ax.legend(fontsize=7, frameon=False, loc="lower left")
    title = f"{dataset.name}; lines: expected (dotted: to first order), dots: measured, squares: published"
    ax.set_title(title, fontsize=9)
    return Drawn(figure, pd.DataFrame(numbers))
