"""Files of records: lines are appended whole and are never dropped silently."""

from contextlib import suppress
from pathlib import Path

import pytest

from harness.condition import Condition, Timing
from harness.errors import UserError
from harness.machine.lock import lock
from harness.records.base import encode
from harness.records.jsonl import append, read
from harness.records.measurement import Measurement

CONDITION = Condition(dataset="d", loader="native", knobs=(("block_size", 4),))


def measurement(**fields: object) -> Measurement:
    values = {
        "condition": CONDITION,
        "timing": Timing(),
        "repeat": 0,
        "status": "ok",
        "rows": 640,
        "seconds": 2.0,
        "fetches": 10.0,
    }
    return Measurement(**values | fields)


def test_appended_records_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "g.jsonl"
    assert read(path) == []
    written = [measurement(repeat=i, provenance={"utc": "now"}) for i in range(3)]
    for m in written:
        append(path, m)
    assert read(path) == written
    assert read(path)[0].cells_per_s == 320


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "[]",
        '{"schema": 99}',
        encode(measurement()).replace('"rows": 640', '"rows": 640, "speed": 3'),
        encode(measurement()).replace('"rows": 640, ', ""),
        encode(measurement()).replace('"rows": 640', '"rows": null'),
        encode(measurement()).replace('"status": "ok"', '"status": "fine"'),
        encode(measurement()).replace('"fetches": 10.0', '"fetches": null'),
        encode(measurement()).replace('"provenance": {}', '"provenance": null'),
        encode(measurement()).replace('"knobs": {"block_size": 4}', '"knobs": []'),
        encode(measurement()).replace('"knobs": {"block_size": 4}', '"knobs": null'),
        encode(measurement()).replace('"batch_size": 64', '"batch_size": 32'),
    ],
)
def test_a_line_that_is_not_a_measurement_is_reported_by_its_number(tmp_path: Path, line: str) -> None:
    path = tmp_path / "g.jsonl"
    text = f"{encode(measurement())}\n{line}\n"
    path.write_text(text)
    with pytest.raises(UserError, match=r"g.jsonl, line 2 is not a measurement"):
        read(path)
    assert path.read_text() == text


def test_a_write_that_is_cut_short_leaves_the_earlier_lines_whole(tmp_path: Path) -> None:
    """A limit on the size of files stands in for a full disk: the write stops in the middle of a line."""
    import resource
    import signal

    path = tmp_path / "g.jsonl"
    append(path, measurement())
    before = path.read_bytes()
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, limit[1]))
    try:
        with pytest.raises(UserError, match="Every earlier line of it is whole"):
            append(path, measurement(repeat=1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before


def test_only_one_run_at_a_time_locks_a_folder(tmp_path: Path) -> None:
    with lock(tmp_path), pytest.raises(UserError, match="Another run"), lock(tmp_path):
        pass
    with lock(tmp_path):
        pass


def test_a_full_disk_loses_no_record(small_disk: Path) -> None:
    path = small_disk / "g.jsonl"
    written = [measurement(repeat=i) for i in range(3)]
    for m in written:
        append(path, m)
    before = path.read_bytes()
    with (small_disk / "filler").open("wb", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(bytes(4096))
    with pytest.raises(UserError, match=r"could not be written: .*Every earlier line of it is whole"):
        append(path, measurement(status="failed", reason="x" * 8192))
    assert path.read_bytes() == before
    assert read(path) == written
    (small_disk / "filler").unlink()
    append(path, measurement(repeat=3))
    assert len(read(path)) == 4
