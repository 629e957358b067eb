"""Ceilings are measured on real files; the ceiling of a row depends on the bytes that the row read."""

import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.__main__ import main
from harness.condition import Condition, Timing
from harness.data.dataset import Dataset
from harness.machine import disk
from harness.records import jsonl
from harness.records.ceiling import FILE, Ceiling, ceiling_of, read, roof
from harness.records.measurement import Measurement
from harness.records.validate import of_ceiling, under
from harness.run import ceiling

FACTS = {"machine": "m", "dataset_fingerprint": "f", "cores": 2, "utc": "2026-01-02T03:04:05+00:00"}
CEILING = Ceiling(
    dataset="d",
    store="h5ad/1",
    cores=2,
    storage={"own": {"sequential, buffered": 1e9, "random, O_DIRECT": 2e9, "random, buffered": None}},
    piece_bytes=4096,
    decode_cells_per_s=100_000.0,
    copy_cells_per_s={"csr": 1e6, "dense": 50_000.0},
    provenance=FACTS,
)


def row(loader: str = "native", rows: int = 1000, disk_read_bytes: int | None = 0, **fields: object) -> Measurement:
    return Measurement(
        condition=Condition(dataset="d", loader=loader, **fields), timing=Timing(), repeat=0, status="ok", rows=rows,
        seconds=1.0, fetches=9.0, disk_read_bytes=disk_read_bytes, provenance=FACTS,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("m", "cells_per_s", "binds"),
    [
        (row(), 100_000, "decode"),
        (row(disk_read_bytes=None), 100_000, "decode"),
        (row(disk_read_bytes=1000 * 100_000), 20_000, "disk"),
        (row(output="dense"), 50_000, "copy"),
        (row("reference", disk_read_bytes=1000 * 100_000), 1e6, "copy"),
    ],
)
def test_the_lowest_ceiling_binds(m: Measurement, cells_per_s: float, binds: str) -> None:
    assert roof(m, CEILING) == (pytest.approx(cells_per_s), binds)


def test_the_latest_ceiling_of_the_same_machine_data_and_cores_applies() -> None:
    later = replace(CEILING, decode_cells_per_s=90_000.0)
    others = [
        replace(CEILING, cores=1),
        replace(CEILING, provenance=FACTS | {"machine": "n"}),
        replace(CEILING, provenance=FACTS | {"dataset_fingerprint": "g"}),
    ]
    assert ceiling_of(row(), others) is None
    assert ceiling_of(row(), [CEILING, later, *others]) is later
    assert ceiling_of(row(cores=1), [CEILING, *others]) is others[0]


def test_a_store_without_its_own_ceiling_is_bounded_by_disk_and_copy() -> None:
    nearest = ceiling_of(row("slaf", rows=200_000), [CEILING])
    assert roof(row("slaf", rows=200_000), nearest) == (1e6, "copy")
    assert roof(row("slaf", disk_read_bytes=1000 * 100_000), nearest) == (pytest.approx(20_000), "disk")


def test_a_row_above_its_ceiling_is_reported() -> None:
    assert under(row(rows=120_000), [CEILING]) == []
    assert under(row(rows=160_000), []) == []
    assert under(row(rows=160_000), [CEILING]) == [
        "160,000 cells/s are more than the 100,000 that the ceiling (decode) allows"
    ]
    assert of_ceiling(CEILING) == []
    assert of_ceiling(replace(CEILING, decode_cells_per_s=-1.0))


@given(st.lists(st.integers(0, 40_000), min_size=1, max_size=80), st.integers(1, 5_000))
def test_stretches_cover_whole_pieces_once(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], piece: int
) -> None:
    folder = tmp_path_factory.mktemp("files")
    for i, size in enumerate(sizes):
        (folder / str(i)).write_bytes(bytes(size))
    parts = disk.stretches([folder / str(i) for i in range(len(sizes))], piece)
    assert all(part.start < part.stop and part.start % piece == part.stop % piece == 0 for part in parts)
    chosen = sorted((size // piece * piece for size in sizes), reverse=True)[: 4 * disk.THREADS]
    assert sum(part.stop - part.start for part in parts) == sum(chosen)
    for path in {part.path for part in parts}:
        spans = sorted((part.start, part.stop) for part in parts if part.path == path)
        assert spans[0][0] == 0
        assert all(a[1] == b[0] for a, b in pairwise(spans))


@pytest.mark.parametrize("mode", disk.MODES, ids=str)
@pytest.mark.parametrize("reader", disk.readers())
def test_a_file_is_read_in_every_mode(tmp_path: Path, reader: str, mode: disk.Mode) -> None:
    path = tmp_path / "a file: with a colon"
    path.write_bytes(os.urandom(1 << 22))
    rate = disk.readers()[reader](disk.stretches([path], 4096), 4096, mode)
    assert (rate is None and mode.direct) or rate > 0


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    stretches = [disk.Stretch(tmp_path / "gone", 0, 4096)]
    with pytest.raises(OSError, match="gone"):
        disk.own(stretches, 4096, disk.MODES[0])


def test_the_ceiling_command_records_the_ceilings_of_a_store(
    tiny_set: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ceiling, "SECONDS", 0.1)
    folder = tmp_path / "results"
    arguments = ["ceiling", "--dataset", str(tiny_set.paths[0].parent), "--results", str(folder)]
    assert main([*arguments, "--loaders", "native"]) == 0
    ceilings = read(folder)
    assert [c.cores for c in ceilings] == sorted({1, os.cpu_count()})
    assert all(c.decode_cells_per_s > 0 and c.storage_bytes_per_s > 0 for c in ceilings)
    assert main(["validate", str(folder)]) == 0
    assert "decoding" in capsys.readouterr().out
    assert main([*arguments, "--loaders", "annloader"]) == 2
    assert "annloader" in capsys.readouterr().err
    assert jsonl.read(folder / FILE, Ceiling) == ceilings
