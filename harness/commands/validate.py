"""`validate`: the records that cannot be true."""

import argparse

from harness.records import jsonl
from harness.records.validate import problems


def validate(options: argparse.Namespace) -> int:
    """Prints every record that cannot be true, with its file and line; 1 where there is one."""
    jsonl.existing(options.folder)
    wrong = list(problems(options.folder))
    for path, line, what in wrong:
        print(f"{path}, line {line}: {what}")
    lines = sum(len(path.read_bytes().splitlines()) for path in options.folder.rglob("*.jsonl"))
    print(f"{lines} records: {len(wrong) or 'no'} problem{'s' if len(wrong) != 1 else ''}")
    return 1 if wrong else 0
