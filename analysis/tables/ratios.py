"""Table of the ratios of throughput that a grid is about, each within the repeats of that grid.

    python -m analysis.tables.ratios results/MACHINE/regimes.jsonl cells-2e6

The data set is tahoe-mini unless another is named. *Equal settings*: both loaders read the same store with the same
block size, fetch factor, minibatch, order, output, regime, disk and cores.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from analysis.tables import command, compare, text
from analysis.tables.summary import chance_of, measured_on
from harness.condition import FEWEST_FETCHES, Condition
from harness.errors import unknown
from harness.records import jsonl
from harness.records.measurement import Measurement

Setting = Mapping[str, Any]
"""Required fields and knobs of a condition. Those not listed can have any value."""
Comparison = tuple[str, Setting, Setting]
"""What is held equal, as text; the numerator; the denominator."""

SCDATASET = {"native": "scdataset", "native_arrow": "scdataset_huggingface", "native_bionemo": "scdataset_bionemo"}
"""By our loader, scDataset over the same store."""
OWN_ACCESS = {"native": "annloader", "native_arrow": "huggingface", "native_bionemo": "bionemo"}
"""By our loader, the random access of the library that the store is made for."""
OVER_STORES = ("native_arrow", "native_bionemo")


def blocks(loader: str, block: int, fetch: int, **fields: object) -> Setting:
    return {"loader": loader, "block_size": block, "fetch_factor": fetch, **fields}


def geometry() -> Iterator[Comparison]:
    """Ours against scDataset and AnnLoader, on files with small or with large chunks."""
    for output, settings in (("csr", [(16, 64), (64, 64), (256, 64), (64, 256)]), ("dense", [(16, 64)])):
        for setting in settings:
            yield output, blocks("native", *setting, output=output), blocks("scdataset", *setting, output=output)
    for setting in ((16, 64), (256, 64)):
        yield "csr", blocks("native", *setting, output="csr"), {"loader": "annloader", "output": "csr"}
    yield "csr", blocks("native", 64, 256, output="csr"), {"loader": "cellstream"}


def regimes() -> Iterator[Comparison]:
    """Each loader from an empty cache and with bounded memory against itself in memory; then ours against others."""
    loaders = [blocks(loader, block, 64) for loader in ("native", "scdataset") for block in (16, 256)]
    plain = ("annloader", "annbatch", "cellstream", "mapped")
    for setting in [*loaders, *({"loader": loader} for loader in plain)]:
        for cache in ("first", "bounded"):
            yield f"{cache} / warm", setting | {"cache": cache}, setting | {"cache": "warm"}
    for cache in ("warm", "first", "bounded"):
        sizes = {"native": (16, 256)} if cache == "warm" else {"native": (16, 256), "native_arrow": (16,)}
        for ours, blocks_of in sizes.items():
            for block in blocks_of:
                yield cache, blocks(ours, block, 64, cache=cache), blocks(SCDATASET[ours], block, 64, cache=cache)
            yield cache, blocks(ours, 16, 64, cache=cache), {"loader": OWN_ACCESS[ours], "cache": cache}
        for theirs in ("mapped", "annbatch", "cellstream"):
            yield cache, blocks("native", 16, 64, cache=cache), {"loader": theirs, "cache": cache}


def disks() -> Iterator[Comparison]:
    """Ours against scDataset over each store, and both against the random access of the library of that store.

    With bounded memory, and from an empty page cache where scDataset or the store does not allow that. The ratios of
    scDataset to the libraries are those that its papers print.
    """
    bounded = {
        "hdd": [(1, 1), (64, 1), (1024, 1), (64, 64)],
        "gp3": [(1, 1), (64, 1), (1024, 1), (1, 64), (64, 64), (16, 64)],
        "nvme": [(1, 1), (1, 64), (64, 64), (16, 64)],
    }
    first = {"hdd": [(16, 256), (1024, 1024)], "gp3": [(16, 256)], "nvme": [(16, 256)]}
    for disk, settings in bounded.items():
        where, under = f"{disk}, bounded", {"disk": disk, "cache": "bounded", "batch_size": 64}
        yield from _over(where, "native", settings, under)
        if disk != "nvme":
            yield from _over(where, "native_arrow", ((64, 64),), under)
        yield where, blocks("native", 64, 64, **under), {"loader": "annbatch", **under}
    for disk, settings in first.items():
        where, under = f"{disk}, first", {"disk": disk, "cache": "first", "batch_size": 64}
        yield from _over(where, "native", settings, under)
        if disk == "hdd":
            yield where, blocks("scdataset", 4, 16, workers=12, **under), {"loader": "annloader", **under}
            yield from _over(where, "native_arrow", ((1024, 1024),), under)
        yield where, blocks("native", 16, 256, **under), {"loader": "cellstream", **under}


def scdl() -> Iterator[Comparison]:
    """The same over BioNeMo's store; and BioNeMo in memory against itself from an empty page cache."""
    for disk in ("hdd", "gp3"):
        yield from _over(f"{disk}, bounded", "native_bionemo", ((64, 64),), {"disk": disk, "cache": "bounded"})
    yield from _over("hdd, first", "native_bionemo", ((1024, 1024),), {"disk": "hdd", "cache": "first"})
    for cache in ("warm", "first"):
        yield from _over(cache, "native_bionemo", ((16, 64),), {"cache": cache, "disk": None})
    bionemo = {"loader": "bionemo", "disk": None}
    yield "first / warm", {**bionemo, "cache": "first"}, {**bionemo, "cache": "warm"}


def _over(where: str, ours: str, settings: Sequence[tuple[int, int]], under: Setting) -> Iterator[Comparison]:
    """Ours and scDataset over the same store: against each other, then each against the store's own random access.

    settings: (block size, fetch factor) of both. under: the disk and the regime, which are held equal.
    """
    theirs, own = SCDATASET[ours], {"loader": OWN_ACCESS[ours], **under}
    for setting in settings:
        yield where, blocks(ours, *setting, **under), blocks(theirs, *setting, **under)
    for loader in (theirs, ours):
        for setting in settings:
            yield where, blocks(loader, *setting, **under), own


def other_stores() -> Iterator[Comparison]:
    """Ours over Arrow and SCDL against scDataset over the same, and against the random access of their libraries."""
    for ours in OVER_STORES:
        for block in (1, 16, 256, 1024):
            for fetch in (1, 16, 256, 1024):
                yield "csr", blocks(ours, block, fetch), blocks(SCDATASET[ours], block, fetch)
                yield "csr", blocks(ours, block, fetch), {"loader": OWN_ACCESS[ours]}


def reads() -> Iterator[Comparison]:
    """Ours against scDataset on each disk."""
    yield from _on_disks(("hdd", "gp3", "nvme"), (16, 64), (64, 64))
    yield from _on_disks(("hdd", "gp3"), (16, 256), (64, 256), (256, 256))


def reads_bounded() -> Iterator[Comparison]:
    """The same in bounded memory."""
    yield from _on_disks(("hdd", "gp3", "nvme"), (16, 64), (64, 64), (16, 256), (64, 256), (256, 256))


def _on_disks(disks: Sequence[str], *settings: tuple[int, int]) -> Iterator[Comparison]:
    for disk, setting in product(disks, settings):
        yield disk, blocks("native", *setting, disk=disk), blocks("scdataset", *setting, disk=disk)


def auto() -> Iterator[Comparison]:
    """What ours chooses in 1 GB and in 256 MB against scDataset: with no smaller buffer, then with as much memory."""
    for block, fetch in ((32, 611), (48, 611), (64, 611), (64, 1024)):
        yield "warm", blocks("native", 64, 611), blocks("scdataset", block, fetch, processes=2)
    yield "warm", blocks("native", 8, 156), blocks("scdataset", 8, 156, processes=2)
    yield "warm", blocks("native", 64, 611), blocks("scdataset", 16, 256, processes=2)
    yield "warm", blocks("native", 64, 611), blocks("scdataset", 48, 611, processes=1)


def csad() -> Iterator[Comparison]:
    """Ours on cellstream's archive against the library, single cells at random and in blocks."""
    for setting in ((1, 16), (1, 256), (16, 256), (64, 256)):
        yield "warm", blocks("native_cellstream", *setting), {"loader": "cellstream", "fetch_factor": setting[1]}


def csad_bounded() -> Iterator[Comparison]:
    """The same on disks, in bounded memory."""
    for disk, block in product(("hdd", "gp3"), (1, 16, 64)):
        yield disk, blocks("native_cellstream", block, 64, disk=disk), {"loader": "cellstream", "disk": disk}


def tokens() -> Iterator[Comparison]:
    """Ours against other loaders with the same encoding; then tokens against reading alone."""
    others = {"geneformer": ("slaf", "scdataset", "annbatch", "cellstream"), "scgpt": ("slaf", "scdataset", "annbatch")}
    for form, names in others.items():
        for loader in names:
            yield form, {"loader": "native", "tokens": form}, {"loader": loader, "tokens": form}
    for loader, form in product(("native", "slaf"), others):
        small = {"loader": loader, **({"prefetch_batch_size": 1_453_568} if loader == "slaf" else {})}
        yield f"{form} / csr", small | {"tokens": form}, small | {"output": "csr"}


COMPARED = {
    "geometry": geometry,
    "regimes": regimes,
    "disks": disks,
    "scdl": scdl,
    "figure34-short": other_stores,
    "reads": reads,
    "reads-bounded": reads_bounded,
    "auto": auto,
    "csad": csad,
    "csad-bounded": csad_bounded,
    "tokens": tokens,
}
"""The comparisons of each grid."""


def fits(condition: Condition, setting: Setting) -> bool:
    """Whether the condition has all values of the setting."""
    values = condition.to_dict() | dict(condition.knobs)
    return all(values.get(name) == value for name, value in setting.items())


def ratios(measurements: Sequence[Measurement], ours: Setting, theirs: Setting) -> list[tuple[float, float]]:
    """(ours, theirs) in cells/s, one pair for each repeat in which both were measured with enough fetches.

    If several conditions fit a setting, the fastest is used. measurements: of one data set.
    """
    measured = compare.without_few(compare.by_condition(measurements))
    sides = [[rows for condition, rows in measured.items() if fits(condition, side)] for side in (ours, theirs)]
    pairs = []
    for repeat in sorted({m.repeat for m in measurements}):
        rates = [[rows[repeat].cells_per_s for rows in side if repeat in rows] for side in sides]
        if all(rates):
            pairs.append((max(rates[0]), max(rates[1])))
    return pairs


def markdown(grid: str, measurements: Sequence[Measurement]) -> str:
    """One row for each comparison; a side with too few fetches has a mark.

    If several conditions fit a side, that with the highest median is shown. measurements: of one data set.
    """
    measurements = compare.of_one_table(measurements)
    measured = compare.by_condition(measurements)
    enough = compare.without_few(measured)
    chance = chance_of(measurements)
    rows = []
    for where, *sides in COMPARED[grid]():
        fitting = [[condition for condition in measured if fits(condition, side)] for side in sides]
        ours, theirs = (compare.fastest(enough, [c for c in conditions if c in enough]) for conditions in fitting)
        value = compare.ratio(enough, ours, theirs, compare.spread(chance)) if ours and theirs else None
        equal = ", equal settings" if value and compare.equal(ours, theirs) else ""
        names = [
            name(side) + ("\\*" if conditions and not condition else "")
            for side, conditions, condition in zip(sides, fitting, (ours, theirs), strict=True)
        ]
        rows.append((f"{where}: {' / '.join(names)}{equal}", value))
    notes = []
    if any("\\*" in compared for compared, _ in rows):
        notes.append(f"\\* fewer than {FEWEST_FETCHES} fetches in a window, so there is no ratio.")
    if chance:
        notes.append(text.chance(chance))
    return "\n".join([compare.markdown(rows, "–"), *(f"{note}\n" for note in notes)])


def name(setting: Setting) -> str:
    """The loader, its blocks and its processes as text."""
    settings = f" ({setting['block_size']}, {setting['fetch_factor']})" if "block_size" in setting else ""
    processes = setting.get("processes", 1)
    return f"`{setting['loader']}`{settings}{f' in {processes} processes' if processes > 1 else ''}"


def table(records: Path, dataset: str) -> str:
    """The table of a grid's file of records, as markdown. UserError if the grid has no comparisons."""
    if records.stem not in COMPARED:
        raise unknown("grid with ratios", records.stem, COMPARED)
    return markdown(records.stem, measured_on(dataset, jsonl.read(records), pairs=True))


if __name__ == "__main__":
    command.run(__doc__, table)
