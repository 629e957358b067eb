"""Files of records: each record is a line of JSON, which is appended and never rewritten."""

import os
from functools import lru_cache
from pathlib import Path

from harness.errors import UserError
from harness.records.base import Record, decode, encode
from harness.records.measurement import Measurement

_decoded = lru_cache(maxsize=None)(decode)
"""A table reads the same lines for each of its claims. A line that was appended never changes."""


def existing(folder: Path) -> Path:
    """The folder itself; UserError if it does not exist."""
    if not folder.is_dir():
        raise UserError(f"There is no results folder {folder}.")
    return folder


def read[T: Record](path: Path, kind: type[T] = Measurement) -> list[T]:
    """All records of a file, in the order in which they were appended; [] if there is no file.

    Raises UserError for a line that is not a record of this kind.
    """
    if not path.exists():
        return []
    records = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            records.append(_decoded(kind, line.decode()))
        except (ValueError, KeyError) as error:
            raise UserError(
                f"{path}, line {number} is not a {kind.__name__.lower()} ({error}). Nothing was changed; "
                "mend the line or move the file away."
            ) from error
    return records


def append(path: Path, record: Record) -> None:
    """Appends the record as a line and syncs it to the disk, so that it survives a power cut.

    Raises UserError if the line cannot be written, for example on a full disk; the file is then as before.
    """
    line = (encode(record) + "\n").encode()
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        size = os.fstat(file).st_size
        try:
            written = os.write(file, line)
            if written != len(line):
                raise OSError(f"only {written} of {len(line)} bytes fitted")
            os.fsync(file)
        except OSError as error:
            os.ftruncate(file, size)
            raise UserError(f"{path} could not be written: {error}. Every earlier line of it is whole.") from error
    finally:
        os.close(file)
