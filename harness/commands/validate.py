"""`validate`: finds records that cannot be true."""

import argparse

from harness.records import jsonl
from harness.records.validate import problems


def validate(options: argparse.Namespace) -> int:
    """Prints every record that cannot be true, with its file and line. Returns 1 if there is one."""
    jsonl.existing(options.folder)
    faults = list(problems(options.folder))
    for path, line, what in faults:
        print(f"{path}, line {line}: {what}")
    lines = sum(len(path.read_bytes().splitlines()) for path in options.folder.rglob("*.jsonl"))
    print(f"{lines} records: {len(faults) or 'no'} problem{'s' if len(faults) != 1 else ''}")
    return 1 if faults else 0
