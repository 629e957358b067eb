"""The ceilings of a store, a line of ceilings.jsonl for each number of cores, and the throughput that they allow."""

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
    """The rates of the machine with one store and a number of cores, without a loader; null is "not measured".

    storage: bytes/s by reader ("own", "own, huge pages", "fio") and mode, on all cores, with `piece_bytes` a read in
    random order; decode_cells_per_s: chunks decompressed from memory (null: the store is not compressed);
    copy_cells_per_s: by output, rows in memory copied into minibatches.
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
        """The highest rate from the disk, by any reader in any mode."""
        return max(rate for modes in self.storage.values() for rate in modes.values() if rate)


class Roof(NamedTuple):
    """cells_per_s: the lowest of the ceilings that apply to a row; binds: its name, "disk", "decode" or "copy"."""

    cells_per_s: float
    binds: str


def read(folder: Path) -> list[Ceiling]:
    """The ceilings in a machine's folder, in the order in which they were measured."""
    return jsonl.read(folder / FILE, Ceiling)


def ceiling_of(m: Measurement, ceilings: Sequence[Ceiling]) -> Ceiling | None:
    """The latest ceiling with the machine, data set, store and cores of the measurement; None if there is none.

    If only another store of the same cells was measured, its disk and copying rates are used, and the decoding rate is
    unknown.
    """
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
    """The highest throughput that the machine allows, given the bytes per cell that this row's loader read from disk.

    A loader that holds all cells in memory is limited by copying only: it reads and decodes them when it opens.
    """
    limits = {"copy": ceiling.copy_cells_per_s[m.condition.output]}
    if not loaders.holds_all(m.condition.loader):
        if m.disk_read_bytes:
            limits["disk"] = ceiling.storage_bytes_per_s * m.rows / m.disk_read_bytes
        if ceiling.decode_cells_per_s:
            limits["decode"] = ceiling.decode_cells_per_s
    binds = min(limits, key=limits.get)
    return Roof(limits[binds], binds)
