"""Measures the rates of reading, of our decoder and of copying a store into minibatches, without a loader."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import loaders
from harness.data.dataset import Dataset
from harness.errors import UserError
from harness.machine import host, pagecache
from harness.records.ceiling import Ceiling
from harness.run.job import Job, Rates
from harness.run.process import spawn
from harness.run.provenance import of_store, provenance
from harness.run.stores import store_files, store_path

PASSES = 5  # over the disk; the fastest counts, because other work on the machine slows the others
SECONDS = 2.0  # for each measurement of decoding or copying


def with_ceilings(names: Sequence[str]) -> list[str]:
    """For each store, the first of the named loaders that is installed and whose adapter has a function `ceiling`."""
    stores = {}
    for name in names:
        adapter = loaders.get(name)
        if hasattr(adapter, "ceiling") and not loaders.unavailable(name):
            stores.setdefault(adapter.store, name)
    return list(stores.values())


def measure(dataset: Dataset, loader: str, say: Callable[[str], None]) -> list[Ceiling]:
    """The ceilings of a loader's store: one record for one core, and one for all cores, if there are more.

    `say` is called with the name of each step. Raises UserError if the ceilings cannot be measured.
    """
    files = store_files(dataset, loader)
    facts = provenance(loader, dataset) | of_store(files)
    rates_by_cores = {cores: _in_memory(dataset, loader, cores, say) for cores in sorted({1, host.available_cores()})}
    piece, storage = _disk(files, rates_by_cores[1].piece_bytes, facts, say)
    return [
        Ceiling(
            dataset=dataset.name,
            store=loaders.get(loader).store,
            cores=cores,
            storage=storage,
            piece_bytes=piece,
            decode_cells_per_s=rates.decode_cells_per_s,
            copy_cells_per_s=rates.copy_cells_per_s,
            provenance=facts,
        )
        for cores, rates in rates_by_cores.items()
    ]


def _in_memory(dataset: Dataset, loader: str, cores: int, say: Callable[[str], None]) -> Rates:
    """Our decoder's rate and that of copying, as the adapter's `ceiling` measures them in a fresh worker."""
    say(f"decoding and copying, cores {cores}")
    job = Job(
        task="ceiling", loader=loader, adapter=loaders.NAMES[loader], dataset=dataset,
        store=store_path(dataset, loader).resolve(), cores=cores, seconds=SECONDS,
    )  # fmt: skip
    outcome = spawn(job, cores, None, lambda *_: None)
    if outcome.status != "ok":
        raise UserError(f"The ceilings of {loader}'s store cannot be measured: {outcome.reason}")
    return outcome.answer


def _disk(
    files: Sequence[Path], piece_bytes: int, facts: dict[str, Any], say: Callable[[str], None]
) -> tuple[int, dict[str, dict[str, float | None]]]:
    """Measures the disk: (bytes per random read, bytes/s by reader and mode).

    A random read has `piece_bytes`, rounded up to whole pages, but no more than the largest file. A rate is that of the
    fastest pass; None if it cannot be measured. Adds fio's version and the method of emptying the page cache to
    `facts`.
    """
    from harness.machine import disk  # imports numba

    most = max(file.stat().st_size for file in files) // disk.PAGE * disk.PAGE
    if not most:
        raise UserError("The store's files are too small to measure the disk with.")
    piece = min(most, -(-piece_bytes // disk.PAGE) * disk.PAGE)
    readers = disk.readers()
    if "fio" in readers:
        facts["packages"]["fio"] = disk.fio_version()
    rates: dict[str, dict[str, float | None]] = {name: {} for name in readers}
    for mode in disk.MODES:
        size = piece if mode.order == "random" else min(most, disk.SEQUENTIAL_BYTES)
        parts = disk.stretches(files, size)
        passes: dict[str, list[float | None]] = {name: [] for name in readers}
        for _ in range(PASSES):
            for name, read in readers.items():
                say(f"{mode}, {name}")
                facts["evict_method"] = pagecache.evict(files)
                passes[name].append(read(parts, size, mode))
        for name, values in passes.items():
            rates[name][str(mode)] = None if None in values else max(values)
    return piece, rates


def describe(ceilings: Sequence[Ceiling]) -> list[str]:
    """The ceilings of one store as text: a line for each reader of the disk, and one for each number of cores."""
    lines = [f"{ceilings[0].store}, {ceilings[0].piece_bytes:,} bytes per random read:"]
    for name, modes in ceilings[0].storage.items():
        rates = (f"{mode} {rate / 1e6:,.0f} MB/s" for mode, rate in modes.items() if rate)
        lines.append(f"  {name}: {'; '.join(rates)}")
    if fio := ceilings[0].storage.get("fio"):
        ours = ceilings[0].storage["own"]
        lines.append("  own / fio: " + ", ".join(f"{ours[m] / fio[m]:.2f}" for m in ours if ours[m] and fio[m]))
    for c in ceilings:
        decode = f"decoding {c.decode_cells_per_s:,.0f} cells/s" if c.decode_cells_per_s else "nothing to decode"
        copies = (f"copying as {output} {rate:,.0f} cells/s" for output, rate in c.copy_cells_per_s.items())
        lines.append(f"  cores {c.cores}: {', '.join([decode, *copies])}")
    return lines
