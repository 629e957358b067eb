"""Starts producers, on this machine or on a cluster:

    python -m loadstone.fleet up --producers 4
    python -m loadstone.fleet up --producers 16 --address HOST:PORT

They run until Ctrl-C. Programs that train find them by themselves if a Ray node runs on their machine and there is no
other; otherwise by RAY_ADDRESS, or by FleetDataset(..., address=...).
"""

import argparse
import signal
import sys
import threading
from contextlib import ExitStack
from typing import NoReturn

from loadstone.fleet import cluster

WAIT_S = 60.0  # for the producers to start, before it is said how many have not


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}\n")


def main(arguments: list[str] | None = None) -> int:
    """Returns 0 when the producers were ended by a signal, 2 if they could not be started."""
    options = _parser().parse_args(arguments)
    ended = threading.Event()
    try:
        with ExitStack() as stack:
            if options.address:
                cluster.connect(options.address)
                address, actors = options.address, cluster.start(options.producers, cpus=options.cpus)
            else:
                address, actors = stack.enter_context(
                    cluster.one_machine(options.producers, cpus=options.cpus, memory=int(options.memory * 1e9))
                )
            for number in (signal.SIGINT, signal.SIGTERM):  # Ray, too, sets handlers when it starts
                signal.signal(number, lambda *_: ended.set())
            _report(cluster.running(actors, WAIT_S), options.producers, address)
            ended.wait()
            del actors  # with the last reference to them they end
    except (ImportError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _report(running: int, wanted: int, address: str) -> None:
    if running < wanted:
        print(
            f"warning: {wanted - running} of {wanted} producers wait for free cores; they start when nodes with cores "
            "join the cluster. To need fewer, take a smaller --producers or --cpus",
            file=sys.stderr,
        )
    print(f"{running} producers run: RAY_ADDRESS={address}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m loadstone.fleet", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    up = parser.add_subparsers(dest="verb", required=True).add_parser("up", help="start producers, and wait for Ctrl-C")
    up.add_argument("--producers", type=_positive(int), required=True, metavar="N", help="that read and decode")
    up.add_argument("--address", help="of a Ray cluster that runs, or auto (default: a new one on this machine)")
    up.add_argument("--cpus", type=_positive(float), default=1, help="cores for each producer (default: %(default)s)")
    up.add_argument(
        "--memory", type=_positive(float), default=2, metavar="GB",
        help="object store of a new cluster (default: %(default)s GB)",
    )  # fmt: skip
    return parser


def _positive(kind: type) -> type:
    def number(text: str) -> float:
        if not 0 < (value := kind(text)) < float("inf"):
            raise argparse.ArgumentTypeError(f"{text} is not above 0")
        return value

    number.__name__ = "number"  # argparse: invalid number value
    return number  # type: ignore[return-value]


if __name__ == "__main__":
    sys.exit(main())
