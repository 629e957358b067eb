"""Eviction removes every page of a file from the page cache, for root and for other users."""

import os
import tempfile
from pathlib import Path

import pytest

from harness.machine import pagecache
from tests.conftest import program


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    path.write_bytes(os.urandom(5_000_001))
    return path


def test_a_warm_file_is_resident_until_it_is_evicted(file: Path) -> None:
    pagecache.warm([file])
    assert pagecache.resident([file]) == 1
    assert pagecache.evict([file]) in ("drop_caches", "fadvise")
    assert pagecache.resident([file]) == 0


def test_what_is_dropped_while_it_is_read_is_read_again(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = pagecache.resident
    shares = [0.97]

    def dropped_once(paths: list[Path]) -> float | None:
        if shares:
            pagecache.drop(paths)
            return shares.pop()
        return whole(paths)

    monkeypatch.setattr(pagecache, "resident", dropped_once)
    assert pagecache.warm([file]) == 1


def test_a_user_without_root_rights_evicts_with_fadvise(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pagecache, "DROP_CACHES", Path("/nonexistent/drop_caches"))
    pagecache.warm([file])
    assert pagecache.evict([file]) == "fadvise"
    assert pagecache.resident([file]) == 0


def test_a_file_that_is_read_in_part_is_resident_in_part(file: Path) -> None:
    pagecache.evict([file])
    with file.open("rb") as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        opened.read(4096)
    assert 0 < pagecache.resident([file]) < 0.2


def test_large_files_are_examined_in_windows(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pagecache, "WINDOW_BYTES", 1 << 20)
    pagecache.warm([file])
    assert pagecache.resident([file, file]) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_residency_is_unknown_for_files_that_the_user_may_not_write() -> None:
    """For such files Linux reports every page as resident, which is not a measurement."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "store"
        path.write_bytes(bytes(100_000))
        pagecache.evict([path])
        code = (
            "import os, sys; from pathlib import Path; from harness.machine import pagecache; os.setuid(65534);"
            "print(pagecache.resident([Path(sys.argv[1])]))"
        )
        assert program(code, path).communicate(timeout=60)[0] == "None\n"
