"""What this machine can do at best with a store, with no loader at all: reading, decoding, copying into batches."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import loaders
from harness import host, pagecache, results
from harness.dataset import Dataset
from harness.errors import UserError
from harness.prepare import store_files, store_path
from harness.provenance import of_store, provenance
from harness.results import Measurement
from harness.spawn import new_job, spawn

FILE = "ceilings.jsonl"  # in a machine's folder
SCHEMA = 1
PASSES = 5  # of which the best counts: the others met somebody else on this machine
SECONDS = 2.0  # for which each of decoding and copying is measured


@dataclass(frozen=True, kw_only=True)
class Ceiling:
    """Of one store, on so many cores; null is "not measured", or nothing to measure.

    storage: bytes/s by reader ("own", "own, huge pages", "fio") and mode, at `piece_bytes` a read where the order is
    random, on all cores; decode_cells_per_s: chunks inflated from memory (null: the store is not compressed);
    copy_cells_per_s: by output, rows in memory copied into batches.
    """

    dataset: str
    store: str
    cores: int
    storage: dict[str, dict[str, float | None]]
    piece_bytes: int
    decode_cells_per_s: float | None
    copy_cells_per_s: dict[str, float]
    provenance: dict[str, Any] = field(default_factory=dict)
    schema: int = SCHEMA

    @property
    def storage_bytes_per_s(self) -> float:
        """The best that the disk gave, by any reader in any mode."""
        return max(rate for modes in self.storage.values() for rate in modes.values() if rate)

    def to_json(self) -> str:
        return json.dumps(asdict(self), allow_nan=False)

    @classmethod
    def from_json(cls, line: str) -> "Ceiling":
        """Raises ValueError saying what is wrong with the line."""
        return results.of_fields(cls, line)


def have_ceilings(names: Sequence[str]) -> list[str]:
    """Of the loaders, one for each store that can be decoded and copied with nothing else done to it."""
    stores = {}
    for name in names:
        adapter = loaders.get(name)
        if hasattr(adapter, "ceiling") and not loaders.unavailable(name):
            stores.setdefault(adapter.store, name)
    return list(stores.values())


def measure(dataset: Dataset, loader: str, told: Callable[[str], None]) -> list[Ceiling]:
    """The ceilings of a loader's store on one core and on all. UserError where it cannot be read so."""
    files = store_files(dataset, loader)
    facts = provenance(loader, dataset) | of_store(files)
    alone = {cores: _without_disk(dataset, loader, cores, told) for cores in sorted({1, host.available_cores()})}
    piece, rates = _disk(files, alone[1]["piece_bytes"], facts, told)
    return [
        Ceiling(
            dataset=dataset.name,
            store=loaders.get(loader).store,
            cores=cores,
            storage=rates,
            piece_bytes=piece,
            decode_cells_per_s=outcome["decode_cells_per_s"],
            copy_cells_per_s=outcome["copy_cells_per_s"],
            provenance=facts,
        )
        for cores, outcome in alone.items()
    ]


def _without_disk(dataset: Dataset, loader: str, cores: int, told: Callable[[str], None]) -> dict[str, Any]:
    """What the loader's `ceiling` gives in a worker of its own."""
    told(f"decoding and copying, cores {cores}")
    job = new_job("ceiling", loader, dataset, store_path(dataset, loader), cores=cores, seconds=SECONDS)
    outcome = spawn(job, cores, None, lambda *_: None)
    if outcome["status"] != "ok":
        raise UserError(f"The ceilings of {loader}'s store cannot be measured: {outcome['reason']}")
    return outcome


def _disk(
    files: Sequence[Path], piece_bytes: int, facts: dict[str, Any], told: Callable[[str], None]
) -> tuple[int, dict[str, dict[str, float | None]]]:
    """(bytes of a random read, bytes/s by reader and mode: the best of the passes); how it was made enters `facts`."""
    from harness import storage  # brings numba

    most = max(file.stat().st_size for file in files) // storage.PAGE * storage.PAGE
    if not most:
        raise UserError("The store's files are too small to measure the disk with.")
    piece = min(most, -(-piece_bytes // storage.PAGE) * storage.PAGE)
    readers = storage.readers()
    if "fio" in readers:
        facts["packages"]["fio"] = storage.fio_version()
    rates: dict[str, dict[str, float | None]] = {name: {} for name in readers}
    for mode in storage.MODES:
        size = piece if mode.order == "random" else min(most, storage.SEQUENTIAL_BYTES)
        parts = storage.stretches(files, size)
        passes: dict[str, list[float | None]] = {name: [] for name in readers}
        for _ in range(PASSES):
            for name, read in readers.items():
                told(f"{mode}, {name}")
                facts["evict_method"] = pagecache.evict(files)
                passes[name].append(read(parts, size, mode))
        for name, made in passes.items():
            rates[name][str(mode)] = None if None in made else max(made)
    return piece, rates


def described(found: Sequence[Ceiling]) -> list[str]:
    """A store's ceilings for a reader: a line a reader of the disk, and one a number of cores of what needs no disk."""
    lines = [f"{found[0].store}, {found[0].piece_bytes:,} bytes a random read:"]
    for name, modes in found[0].storage.items():
        rates = (f"{mode} {rate / 1e6:,.0f} MB/s" for mode, rate in modes.items() if rate)
        lines.append(f"  {name}: {'; '.join(rates)}")
    if fio := found[0].storage.get("fio"):
        mine = found[0].storage["own"]
        lines.append("  own / fio: " + ", ".join(f"{mine[m] / fio[m]:.2f}" for m in mine if mine[m] and fio[m]))
    for c in found:
        decode = f"decoding {c.decode_cells_per_s:,.0f} cells/s" if c.decode_cells_per_s else "nothing to decode"
        copies = (f"copying as {output} {rate:,.0f} cells/s" for output, rate in c.copy_cells_per_s.items())
        lines.append(f"  cores {c.cores}: {', '.join([decode, *copies])}")
    return lines


def read(folder: Path) -> list[Ceiling]:
    """Those of a machine's folder, in the order they were measured."""
    return results.read(folder / FILE, Ceiling)


class Roof(NamedTuple):
    """cells_per_s: the least of the ceilings over a row; binds: "disk", "decode" or "copy"."""

    cells_per_s: float
    binds: str


def ceiling_of(m: Measurement, ceilings: Sequence[Ceiling]) -> Ceiling | None:
    """The latest that was measured of the row's machine, data, store and cores; None where there is none.

    Where its store's were not, another's of the same cells: the disk and copying are the same, and what decoding
    takes is not known.
    """
    cores = m.condition.cores or m.provenance.get("cores")
    wanted = (m.provenance.get("machine"), m.provenance.get("dataset_fingerprint"), cores)
    found = [
        c for c in ceilings if (c.provenance.get("machine"), c.provenance.get("dataset_fingerprint"), c.cores) == wanted
    ]
    store = loaders.get(m.condition.loader).store
    own = [c for c in found if c.store == store]
    if own or not found:
        return own[-1] if own else None
    return replace(found[-1], store=store, decode_cells_per_s=None)


def roof(m: Measurement, ceiling: Ceiling) -> Roof:
    """What the machine allows at best, given the bytes that this row's loader took from the disk for each cell.

    A loader that holds all cells in memory is bound by copying alone: it has read and decoded them in opening.
    """
    limits = {"copy": ceiling.copy_cells_per_s[m.condition.output]}
    if not loaders.holds_all(m.condition.loader):
        if m.disk_read_bytes:
            limits["disk"] = ceiling.storage_bytes_per_s * m.rows / m.disk_read_bytes
        if ceiling.decode_cells_per_s:
            limits["decode"] = ceiling.decode_cells_per_s
    binds = min(limits, key=limits.get)
    return Roof(limits[binds], binds)
