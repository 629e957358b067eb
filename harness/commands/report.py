"""`report`: writes an HTML page with the content of a results folder."""

import argparse

from harness.commands.common import print_written, to_read
from harness.commands.display import console


def report(options: argparse.Namespace) -> None:
    """Writes report.html into the results folder, or into each committed one if this machine has none."""
    from analysis.report import undrawn, write

    out = console()
    for folder in to_read(options.results):
        print_written([write(folder)], out)
        if missing := undrawn(folder):
            hint = f"{missing} figures are not drawn here, and not on the page: make figures RESULTS={folder}"
            out.print(hint, highlight=False, soft_wrap=True)
