"""The command line of what prints a table: `python -m analysis.tables.ratios`, `.demand` and `.roofline`."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from harness.errors import UserError


def run(doc: str, table: Callable[..., str], *, of_a_dataset: bool = True) -> None:
    """Prints the table of the records, and of the data set, that are named; a mistake is a sentence and exit code 2."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {sys.modules['__main__'].__spec__.name}",
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "records", type=_existing, help="what was measured: a file of a machine's folder in results/, or the folder"
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
