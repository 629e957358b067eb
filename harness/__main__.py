"""The command line: python -m harness VERB."""

import argparse
import errno
import sys
from pathlib import Path

import loaders
from harness.commands.advise import advise
from harness.commands.bench import bench
from harness.commands.ceiling import measure_ceilings
from harness.commands.common import DEFAULT_DATASET, RESULTS
from harness.commands.cost import add_options
from harness.commands.cost_curves import cost_curves
from harness.commands.doctor import doctor
from harness.commands.figures import figures
from harness.commands.prepare import prepare
from harness.commands.report import report
from harness.commands.status import status
from harness.commands.steps import steps
from harness.commands.train import train
from harness.commands.validate import validate
from harness.data import catalogue
from harness.errors import UserError
from harness.machine import host

EXAMPLES = """
examples:
  python -m harness bench --dataset tahoe-mini --grid quick
  python -m harness bench --dataset /data/atlas.h5ad --labels donor,cell_type
  python -m harness bench --dataset '/data/plates/*.h5ad' --loaders native,scdataset --repeat 3
  python -m harness prepare tahoe --project my-google-cloud-project
  python -m harness ceiling --loaders native
  python -m harness train --arms block,random --seeds 1
  python -m harness steps tahoe-mini --loaders native,scdataset --size small
  python -m harness cost --example seed-004
  python -m harness status
"""


def main(arguments: list[str] | None = None) -> int:
    """Runs one command. Returns 0 for success, 1 if it found a fault, 2 for invalid input, 130 if interrupted."""
    options = parser().parse_args(arguments)
    try:
        return options.run(options) or 0
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):
            raise
        print(f"error: {error.filename or 'a file'} could not be written: {error.strerror}.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted: all finished records are kept; the same command goes on from there.", file=sys.stderr)
        return 130


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m harness",
        description="Measures single-cell data loaders under one contract.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = top.add_subparsers(required=True, metavar="VERB")
    data = argparse.ArgumentParser(add_help=False)
    data.add_argument(
        "--dataset", default=DEFAULT_DATASET, metavar="D",
        help=f"{', '.join(catalogue.entries())}, or an h5ad file, folder of them or quoted glob (default: %(default)s)",
    )  # fmt: skip
    data.add_argument(
        "--labels", type=_names, metavar="A,B",
        help="obs columns for the entropy, the first for the table (default: categoricals of 2 to 10,000 values)",
    )  # fmt: skip

    into = argparse.ArgumentParser(add_help=False)
    into.add_argument(
        "--results", type=Path, default=RESULTS / host.machine(), metavar="FOLDER",
        help="where the records are kept (default: results/ and this machine's name)",
    )  # fmt: skip

    verb = verbs.add_parser(
        "bench", parents=[data, into], help="make the missing measurements, print the table, draw the figures"
    )
    verb.add_argument("--grid", type=_names, metavar="G", help="grids of grids.toml (default: the data set's own)")
    verb.add_argument("--loaders", type=_names, metavar="L", help=f"only these, of {', '.join(loaders.NAMES)}")
    verb.add_argument("--repeat", type=int, default=1, metavar="N", help="processes per condition (default: 1)")
    verb.add_argument(
        "--consumer-ms", type=float, default=0.0, metavar="MS",
        help="emulate a consumer that holds each minibatch for MS, and measure how long it waits (default: 0)",
    )  # fmt: skip
    verb.add_argument("--retry", action="store_true", help="measure again what was skipped, failed or timed out")
    verb.set_defaults(run=bench)

    verb = verbs.add_parser(
        "advise", parents=[data, into],
        help="make the missing measurements; print the fastest settings with diverse minibatches, and their code",
    )  # fmt: skip
    verb.add_argument(
        "--within", type=float, default=0.05, metavar="BITS",
        help="how much less entropy than cells drawn at random a minibatch may have, for every label (default: 0.05)",
    )  # fmt: skip
    verb.add_argument("--grid", type=_names, metavar="G", help="grids to measure (default: the data set's own)")
    verb.add_argument("--loaders", type=_names, metavar="L", help="only these")
    verb.set_defaults(run=advise, repeat=1, retry=False)

    verb = verbs.add_parser(
        "figures", parents=[into], help="write tables and figures from the records, without measuring"
    )
    verb.add_argument(
        "--datasets", type=_names, metavar="D", help="only grids over these (default: all, generated if need be)"
    )
    verb.set_defaults(run=figures)

    verb = verbs.add_parser("report", parents=[into], help="write an HTML page with the content of a results folder")
    verb.set_defaults(run=report)

    verb = verbs.add_parser(
        "ceiling", parents=[data, into], help="measure the rates of the disk, our decoder and copying without a loader"
    )
    verb.add_argument("--loaders", type=_names, metavar="L", help="whose stores to measure (default: all that can be)")
    verb.set_defaults(run=measure_ceilings)

    verb = verbs.add_parser(
        "train", parents=[data, into], help="train the same models on different orders of the cells, and compare them"
    )
    verb.add_argument("--arms", type=_names, metavar="A", help="only these orders (default: all six)")
    verb.add_argument("--seeds", type=int, default=3, metavar="N", help="runs of each order (default: 3)")
    verb.add_argument(
        "--genes",
        default="8192",
        metavar="N",
        help="how many genes, those with the most counts, or all (default: 8192)",
    )
    verb.set_defaults(run=train)

    verb = verbs.add_parser(
        "steps", parents=[into],
        help="train a transformer on the minibatches of loaders: time of a step, wait for minibatches, and MFU",
    )  # fmt: skip
    verb.add_argument("dataset", nargs="?", default=DEFAULT_DATASET, metavar="D", help="as for bench")
    verb.add_argument("--loaders", type=_names, metavar="L", help="(default: native,annbatch,scdataset,slaf)")
    verb.add_argument(
        "--size", default="small", metavar="S", help="of the model: small, medium or 51m (default: small)"
    )
    verb.add_argument("--device", default="cpu", metavar="D", help="cpu or cuda (default: cpu)")
    verb.add_argument("--seconds", type=float, default=60.0, metavar="S", help="of each run (default: 60)")
    verb.add_argument("--length", type=int, metavar="N", help="tokens of a cell (default: that of the size)")
    verb.add_argument("--batch-size", type=int, metavar="N", help="cells of a minibatch (default: that of the size)")
    verb.add_argument("--workers", type=int, default=0, metavar="N", help="worker processes of a loader (default: 0)")
    verb.set_defaults(run=steps)

    verb = verbs.add_parser(
        "cost-curves", parents=[data, into], aliases=["laws"],
        help="measure the cost per cell of ranking, shuffling, reading and fitting, by the number of cells at once",
    )  # fmt: skip
    verb.set_defaults(run=cost_curves)

    verb = verbs.add_parser("cost", parents=[into], help="count the hours and dollars of training, and what binds")
    add_options(verb)

    verb = verbs.add_parser("prepare", help="generate, download or convert a data set, without measuring")
    verb.add_argument("dataset", nargs="?", default=DEFAULT_DATASET, metavar="D", help="as for bench")
    verb.add_argument("--project", metavar="P", help="the Google Cloud project that pays for the download")
    verb.set_defaults(run=prepare, labels=None)

    verb = verbs.add_parser("status", help="summarise a results folder, and list doubtful measurements")
    verb.add_argument("folder", nargs="?", type=Path, default=RESULTS, help="(default: results)")
    verb.set_defaults(run=status)

    verb = verbs.add_parser("validate", help="find records that cannot be true; exit code 1 if there is one")
    verb.add_argument("folder", nargs="?", type=Path, default=RESULTS, help="(default: results)")
    verb.set_defaults(run=validate)

    verb = verbs.add_parser("doctor", help="report which loaders can be imported, and what this machine supports")
    verb.add_argument("--json", action="store_true", help="print JSON")
    verb.set_defaults(run=doctor)
    return top


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


if __name__ == "__main__":
    sys.exit(main())
