"""Speed-up of blocks over random access to single cells, as on the scDataset poster."""

import matplotlib
import pandas as pd
from matplotlib.figure import Figure

from analysis import published
from analysis.figures.style import COLOURS, STYLE, Drawn, uncommitted


@matplotlib.rc_context(STYLE)
def draw(frame: pd.DataFrame, dataset: str) -> Drawn | None:
    """One bar for each output of each loader that reads blocks, at its fastest setting.

    The length of a bar is the loader's cells/s divided by the cells/s of random access to the same store by that
    store's usual library, with the same output. Hollow: published speed-ups, at the published settings.
    frame: a table returned by `summary.table`. None for fewer than two bars.
    """
    rows = frame[(frame["order"] == "random") & frame["cells_per_s"].notna() & (frame["batch_size"] == 64)]
    rows = rows[rows["workers"] == 0]
    base = rows.groupby(["loader", "output"])["cells_per_s"].max()
    bars = []
    for loader, over in {"native": "annloader", **published.baselines()}.items():
        blocks = rows[(rows["loader"] == loader) & rows["block_size"].notna()]
        for output, of_output in blocks.groupby("output"):
            if (over, output) in base.index:
                best = of_output.loc[of_output["cells_per_s"].idxmax()]
                bars.append(
                    {
                        "loader": loader,
                        "output": output,
                        "over": over,
                        "block_size": best["block_size"],
                        "fetch_factor": best["fetch_factor"],
                        "times": best["cells_per_s"] / base[over, output],
                    }
                )
    if len(bars) < 2:
        return None
    numbers = pd.DataFrame(bars).sort_values("times", ascending=False, ignore_index=True)
    theirs = published.speedups()
    figure = Figure(figsize=(6.4, 0.34 * len(numbers) + 1.5), layout="constrained")
    ax = figure.subplots()
    outputs = sorted(numbers["output"].unique())
    ax.barh(
        range(len(numbers)), numbers["times"], color=[COLOURS[outputs.index(output)] for output in numbers["output"]]
    )
    for i, row in enumerate(numbers.itertuples()):
        for other in theirs[theirs["loader"] == row.loader].itertuples():
            ax.plot(other.times, i, "s", mfc="none", color="k", ms=6)
    names = [
        f"{row.loader} {row.output}, b={row.block_size:.0f} f={row.fetch_factor:.0f}, over {row.over}: {row.times:.0f}"
        for row in numbers.itertuples()
    ]
    ax.set_yticks(range(len(numbers)), names)
    ax.invert_yaxis()
    ax.set(xscale="log", xlabel="speed-up over random access", xlim=(0.8, max(500, 2 * numbers["times"].max())))
    dirty = uncommitted(frame["dirty"].any())
    figure.suptitle(f"Blocks over random access on {dataset}; squares: published{dirty}", fontsize=10)
    return Drawn(figure, numbers)
