"""The kinds of figure: how each is drawn, and its caption."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pandas as pd

from analysis.figures import (
    bars,
    bounds,
    bucket,
    epoch,
    frontier,
    heatmaps,
    mixing,
    roofline,
    speedups,
    stores,
    surroundings,
    tokens,
)
from analysis.figures.style import Drawn
from harness.data.dataset import Dataset
from harness.records.ceiling import Ceiling
from harness.records.conversion import Conversion


class Numbers(NamedTuple):
    """The input of the figures of a grid on one data set.

    whole: as `summary.table` returns it. table: its rows under its first regime and disk. mixed: as `mixing.table`
    returns it, of `table`. conversions, ceilings: all records of the results folder.
    """

    whole: pd.DataFrame
    table: pd.DataFrame
    mixed: pd.DataFrame
    dataset: Dataset
    conversions: Sequence[Conversion]
    ceilings: Sequence[Ceiling]


class Kind(NamedTuple):
    """A kind of figure. draw: returns None if the numbers do not suit this kind, for example if loaders are too few."""

    draw: Callable[[Numbers], Drawn | None]
    caption: str


OF_A_GRID = {
    "throughput": Kind(
        lambda n: heatmaps.throughput(n.table, n.dataset.name),
        "Throughput over block size and fetch factor; one logarithmic colour scale for all panels.",
    ),
    "lines": Kind(
        lambda n: heatmaps.lines(n.table, n.dataset.name),
        "The same as lines over block size, one for each fetch factor; hollow: as published.",
    ),
    "entropy": Kind(
        lambda n: heatmaps.entropy(n.table, n.dataset.name),
        "Entropy of the first label in a minibatch, from the recorded orders of the same conditions.",
    ),
    "bounds": Kind(
        lambda n: bounds.draw(n.table, n.dataset),
        "Entropy against block size. Lines: expected, exactly and (dotted) to first order. Dots: measured. Squares: "
        "published. Grey: the poster's bounds, and cells drawn at random.",
    ),
    "loaders": Kind(
        lambda n: bars.bars(n.table, n.dataset.name), "Throughput of every condition, on a logarithmic scale."
    ),
    "roofline": Kind(
        lambda n: roofline.draw(n.table, n.ceilings, n.dataset),
        "Throughput against the bytes taken from the disk for each cell, under the rates of the disk, our "
        "decoder and copying.",
    ),
    "speedups": Kind(
        lambda n: speedups.draw(n.table, n.dataset.name),
        "Throughput over that of the library's own random access; hollow: as published.",
    ),
    "mixing": Kind(
        lambda n: mixing.draw(n.mixed, n.dataset.name),
        "Entropy of each label in a minibatch against throughput: up and to the right is better.",
    ),
    "frontier": Kind(
        lambda n: frontier.draw(n.table, n.mixed, n.dataset.name),
        "Throughput against the bits by which a minibatch is short of random: lines join the settings of a loader that "
        "no other of its settings surpasses. Right of 0.01 all are as good as random, and side by side. Large circles: "
        "ours.",
    ),
    "surroundings": Kind(
        lambda n: surroundings.draw(n.whole, n.dataset.name),
        "The same settings on every disk, or under every regime: how much of a rate is the loader's.",
    ),
    "bucket": Kind(
        lambda n: bucket.draw(n.whole, n.dataset.name),
        "Throughput from a bucket over the time to the first byte and over the link, and of every loader behind one "
        "link. Dashed, up to the bar: the rate of the link over the bytes that the loader received for a cell. "
        "*: fewer than 5 fetches in the window.",
    ),
    "tokens": Kind(
        lambda n: tokens.draw(n.whole, n.dataset.name),
        "Tokens a second without padding, on a logarithmic scale; those of slaf are by its own tokenizers.",
    ),
    "epoch": Kind(
        lambda n: epoch.epoch(n.table, n.dataset.name),
        "The time of an epoch of Tahoe-100M at the throughput measured; hollow: as published.",
    ),
    "stores": Kind(
        lambda n: stores.stores(n.conversions, n.table, n.dataset),
        "The cost of making and of keeping each store, and the throughput of its fastest loader.",
    ),
}
"""The figures of one grid on one data set, by the suffix of their file name, in the order of a report."""

OTHER_CAPTIONS = {
    "accelerators": "The most emulated accelerators that one loader feeds at a utilisation of 90 % or more: medians "
    "and ranges. Hollow: while they compute, one core is busy.",
    "laws": "Microseconds a cell by how many are handled at once: medians and ranges; squares: published by SLAF's "
    "authors.",
    "scaling": "Throughput with its interval over repeats, processor time a cell, and time to the first minibatch.",
    "f1": "Macro-F1 after one epoch: median and range over seeds, on both test sets; hollow: as published.",
    "kills": "Cells/s of a consumer over time, the mean of the last ten seconds; dashed: a producer is killed.",
    "loss": "Loss of the first seed, a running median; dashed: where the stream goes from one plate to the next.",
}
CAPTIONS = {name: kind.caption for name, kind in OF_A_GRID.items()} | OTHER_CAPTIONS
