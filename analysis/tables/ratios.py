"""Table of throughput ratios of two loaders or two cache states, each ratio within one repeat of a grid.

python -m analysis.tables.ratios results/MACHINE/native.jsonl
python -m analysis.tables.ratios results/MACHINE/bounded.jsonl cells-1e6

The data set is tahoe-mini unless another is named.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from analysis.tables import command
from analysis.tables.summary import interval, measured_on
from harness.condition import Condition
from harness.errors import unknown
from harness.records import jsonl
from harness.records.measurement import Measurement

Setting = Mapping[str, Any]
"""Required fields and knobs of a condition. Those not listed can have any value."""


def against_others() -> Iterator[tuple[str, Setting, Setting]]:
    """Comparisons of the grid `native`: (name, ours, theirs)."""
    for cores in (2, 1):
        for block, fetch in ((16, 64), (16, 256), (512, 256)):
            setting = {"block_size": block, "fetch_factor": fetch, "cores": cores, "output": "csr"}
            name = f"h5ad, CSR, ({block}, {fetch}), cores {cores}: native / scDataset"
            yield name, setting | {"loader": "native"}, setting | {"loader": "scdataset"}
    setting = {"block_size": 16, "fetch_factor": 64, "output": "dense"}
    yield "h5ad, dense, (16, 64): native / scDataset", setting | {"loader": "native"}, setting | {"loader": "scdataset"}
    annloader = {"loader": "annloader", "output": "csr"}
    best = {"loader": "native", "output": "csr", "cores": 2}
    yield "h5ad, CSR: native (512, 256) / AnnLoader random", best | {"block_size": 512}, annloader
    yield "h5ad, CSR: native (1024, 1024) / AnnLoader random", best | {"block_size": 1024}, annloader
    yield from against_annbatch()
    yield "Arrow: native (1024, 1024) / huggingface random", {"loader": "native_arrow"}, {"loader": "huggingface"}
    yield "SCDL: native (1024, 1024) / bionemo random", {"loader": "native_bionemo"}, {"loader": "bionemo"}


def against_annbatch() -> Iterator[tuple[str, Setting, Setting]]:
    """Comparisons of the grid `steady`: (name, ours, theirs)."""
    native = {"loader": "native", "block_size": 512, "output": "csr", "cores": 2}
    annbatch = {"loader": "annbatch", "batch_size": 64}
    yield "CSR: native (512, 256) on gzip h5ad / annbatch on its zarr", native, annbatch
    for batch in (64, 4096):
        zarr = {"loader": "native_zarr_shuffled", "batch_size": batch}
        yield f"annbatch's zarr, batch {batch}: native / annbatch", zarr, annbatch | {"batch_size": batch}


def out_of_memory() -> Iterator[tuple[str, Setting, Setting]]:
    """Comparisons of the grid `bounded`: (name, numerator, denominator)."""
    for loader in ("memmap", "bionemo", "native"):
        one, other = ({"loader": loader, "cache": cache, "block_size": None} for cache in ("warm", "bounded"))
        yield f"{loader}, random: in memory / a quarter of the store in memory", one, other
    for cache in ("cold", "bounded"):
        for store, ours, theirs in (("Arrow", "native_arrow", "huggingface"), ("SCDL", "native_bionemo", "bionemo")):
            name = f"{store}, {cache}: native (1024, 1024) / {theirs} random"
            yield name, {"loader": ours, "cache": cache, "block_size": 1024}, {"loader": theirs, "cache": cache}


COMPARED = {"native": against_others, "steady": against_annbatch, "bounded": out_of_memory}
"""The comparisons of each grid."""


def fits(condition: Condition, setting: Setting) -> bool:
    """Whether the condition has all values of the setting."""
    values = condition.to_dict() | dict(condition.knobs)
    return all(values.get(name) == value for name, value in setting.items())


def ratios(measurements: Sequence[Measurement], ours: Setting, theirs: Setting) -> list[tuple[float, float]]:
    """(ours, theirs) in cells/s, one pair for each repeat in which both were measured.

    If several conditions fit a setting, the fastest is used. measurements: of one data set.
    """
    pairs = []
    for repeat in sorted({m.repeat for m in measurements}):
        of_repeat = [m for m in measurements if m.repeat == repeat and m.status == "ok"]
        sides = [[m.cells_per_s for m in of_repeat if fits(m.condition, side)] for side in (ours, theirs)]
        if all(sides):
            pairs.append((max(sides[0]), max(sides[1])))
    return pairs


def markdown(grid: str, measurements: Sequence[Measurement]) -> str:
    """One row for each comparison: the median ratio over repeats and its 95 % bootstrap interval."""
    lines = ["| compared | cells/s | against | times | repeats |", "| --- | ---: | ---: | ---: | ---: |"]
    for name, ours, theirs in COMPARED[grid]():
        pairs = ratios(measurements, ours, theirs)
        if not pairs:
            lines.append(f"| {name} | – | – | not measured | 0 |")
            continue
        ours_median, theirs_median = np.median(pairs, axis=0)
        times = np.array([a / b for a, b in pairs])
        low, high = interval(times)
        spread = f" ({low:.1f} to {high:.1f})" if len(times) > 1 else ""
        rates = f"{ours_median:,.0f} | {theirs_median:,.0f}"
        lines.append(f"| {name} | {rates} | {np.median(times):.1f}{spread} | {len(pairs)} |")
    return "\n".join(lines) + "\n"


def table(records: Path, dataset: str) -> str:
    """The table of a grid's file of records, as markdown. UserError if the grid has no comparisons."""
    if records.stem not in COMPARED:
        raise unknown("grid with ratios", records.stem, COMPARED)
    return markdown(records.stem, measured_on(dataset, jsonl.read(records)))


if __name__ == "__main__":
    command.run(__doc__, table)
