"""The ceilings of a store, and the throughput that they allow. ceilings.jsonl has a line for each number of cores."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import loaders
from harness.records import jsonl
from harness.records.measurement import Measurement

FILE = "ceilings.jsonl"


@dataclass(frozen=True, kw_only=True)
class Ceiling:
    """The rates of the machine with one store on `cores` cores, without a loader.

    storage: bytes/s from the disk, by reader ("own", "own, huge pages", "fio") and mode ("random, O_DIRECT"); measured
    on all cores, whatever `cores` is; None: not measured.
    piece_bytes: bytes per read in the modes of random order.
    decode_cells_per_s: our decoder's rate with chunks that are in memory; None: the store is not compressed.
    copy_cells_per_s: the rate of copying rows that are in memory into minibatches, by output ("csr", "dense").
    """

    dataset: str
    store: str
    cores: int
    storage: dict[str, dict[str, float | None]]
    piece_bytes: int
    decode_cells_per_s: float | None
    copy_cells_per_s: dict[str, float]
    provenance: dict[str, Any] = field(default_factory=dict)
    schema: int = 1

    @property
    def storage_bytes_per_s(self) -> float:
        """The highest rate of reading from the disk, of all readers and modes, in bytes/s."""
        return max(rate for modes in self.storage.values() for rate in modes.values() if rate)


class Roof(NamedTuple):
    """The lowest of the ceilings that apply to a measurement. binds: which one it is, "disk", "decode" or "copy"."""

    cells_per_s: float
    binds: str


def read(folder: Path) -> list[Ceiling]:
    """The ceilings in a machine's folder, in the order in which they were measured."""
    return jsonl.read(folder / FILE, Ceiling)


def ceiling_of(m: Measurement, ceilings: Sequence[Ceiling]) -> Ceiling | None:
    """The latest ceiling with the machine, data set, store and cores of the measurement.

    If there is none, the latest one of another store of the same data set, without its decoding rate; None if there is
    none of those either, and for tokens: what limits them may be neither reading nor copying.
    """
    if m.condition.output == "tokens":
        return None
    cores = m.condition.cores or m.provenance.get("cores")
    wanted = (m.provenance.get("machine"), m.provenance.get("dataset_fingerprint"), cores)
    of_cells = [
        c for c in ceilings if (c.provenance.get("machine"), c.provenance.get("dataset_fingerprint"), c.cores) == wanted
    ]
    store = loaders.get(m.condition.loader).store
    of_store = [c for c in of_cells if c.store == store]
    if of_store or not of_cells:
        return of_store[-1] if of_store else None
    return replace(of_cells[-1], store=store, decode_cells_per_s=None)


def roof(m: Measurement, ceiling: Ceiling) -> Roof:
    """The highest throughput that the machine allows, given the bytes per cell that the loader read from disk for `m`.

    A loader that holds all cells in memory is limited by copying only: it reads and decodes the cells when it opens.
    """
    limits = {"copy": ceiling.copy_cells_per_s[m.condition.output]}
    if not loaders.holds_all(m.condition.loader):
        if m.disk_read_bytes:
            limits["disk"] = ceiling.storage_bytes_per_s * m.rows / m.disk_read_bytes
        if ceiling.decode_cells_per_s:
            limits["decode"] = ceiling.decode_cells_per_s
    binds = min(limits, key=limits.get)
    return Roof(limits[binds], binds)
