"""`report`: writes an HTML page with the content of a results folder."""

import argparse

from harness.commands.common import print_written, to_read
from harness.commands.display import console


def report(options: argparse.Namespace) -> None:
    """Writes report.html into the folder, or into each committed folder if this machine has none."""
    from analysis.report import write

    print_written([write(folder) for folder in to_read(options.results)], console())
