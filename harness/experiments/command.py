"""The command line of the experiments that take a data set and nothing else."""

import argparse
import sys

from harness.data import catalogue
from harness.data.dataset import Dataset
from harness.errors import UserError


def data_set(doc: str) -> Dataset:
    """The data set that the command line names; tahoe-mini if it names none.

    doc: what `--help` prints. A wrong argument ends the program with one sentence and exit code 2.
    """
    spec = sys.modules["__main__"].__spec__
    parser = argparse.ArgumentParser(
        prog=f"python -m {spec.name}" if spec else None,
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("dataset", nargs="?", default="tahoe-mini", metavar="DATASET", help="as of bench --dataset")
    try:
        return catalogue.load(parser.parse_args().dataset)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
