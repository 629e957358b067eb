"""Files of records: a line of JSON each, appended and never rewritten."""

import os
from pathlib import Path

from harness.errors import UserError
from harness.records.base import Record, decode, encode
from harness.records.measurement import Measurement


def existing(folder: Path) -> Path:
    """The folder itself; UserError if it does not exist."""
    if not folder.is_dir():
        raise UserError(f"There is no results folder {folder}.")
    return folder


def read[T: Record](path: Path, kind: type[T] = Measurement) -> list[T]:
    """All records of a file, in the order in which they were appended; [] if there is no file."""
    if not path.exists():
        return []
    records = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            records.append(decode(kind, line.decode()))
        except (ValueError, KeyError) as error:
            raise UserError(
                f"{path}, line {number} is not a {kind.__name__.lower()} ({error}). Nothing was changed; "
                "mend the line or move the file away."
            ) from error
    return records


def append(path: Path, record: Record) -> None:
    """Appends a line; once this returns, it survives a power cut. UserError on a full disk, with the file unchanged."""
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
