"""The command line of the modules that print a table: for example `python -m analysis.tables.ratios`."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from harness.errors import UserError


def run(doc: str, table: Callable[..., str], *, of_a_dataset: bool = True) -> None:
    """Parses the command line and prints a table. An error is printed as one sentence, with exit code 2.

    doc: the description in the help. table: called with the path of the records and, if `of_a_dataset`, the name of
    the data set; returns the text to print.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {sys.modules['__main__'].__spec__.name}",
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "records", type=_existing, help="a file of records in a machine's folder in results/, or that folder"
    )
    if of_a_dataset:
        parser.add_argument("dataset", nargs="?", default="tahoe-mini", help="(default: %(default)s)")
    try:
        print(table(*vars(parser.parse_args()).values()), end="")
    except UserError as error:
        parser.error(str(error))


def _existing(text: str) -> Path:
    path = Path(text)
    if not path.exists():
        raise argparse.ArgumentTypeError(f"{text} is not there")
    return path
