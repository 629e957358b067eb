"""What the experiments on SLAF's own format share: its stores, the opened table, and the command line."""

import argparse
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import loaders
from harness.data import catalogue
from harness.data.dataset import Dataset
from harness.errors import UserError
from harness.machine import host
from harness.machine.lock import lock
from harness.records import conversion, jsonl
from harness.run.stores import prepare, store_path
from loaders.protocol import Incompatible
from loaders.slaf import STORE, Slaf, fragment_cells


class Parser(argparse.ArgumentParser):
    """Reports a wrong argument in one sentence, without the usage."""

    def error(self, message: str) -> NoReturn:
        raise UserError(message)


def parser(module: str, doc: str) -> Parser:
    """With the data set and the folder of results, which both experiments take."""
    top = Parser(
        prog=f"python -m {module}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )  # fmt: skip
    top.add_argument("dataset", metavar="DATASET", help="as of `python -m harness bench --dataset`, such as tahoe-mini")
    top.add_argument(
        "results", nargs="?", type=Path, default=Path("results") / host.machine(), metavar="RESULTS",
        help="the folder to whose records is appended (default: results/ and this machine's name)",
    )  # fmt: skip
    return top


def positive(text: str) -> int:
    """A whole number from 1 on."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")
    return int(text)


def positives(text: str) -> list[int]:
    """Whole numbers from 1 on, apart by commas, without repetition."""
    return list(dict.fromkeys(positive(part.strip()) for part in text.split(",")))


def seconds(text: str) -> float:
    """A number above 0 and below a day."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return value


def run(top: Parser, arguments: Sequence[str] | None, measure: Callable[[Dataset, argparse.Namespace], None]) -> int:
    """Parses the arguments and measures, with the folder of results locked. Returns the exit code."""
    try:
        options = top.parse_args(arguments)
        if reason := loaders.unavailable("slaf"):
            raise UserError(reason)
        dataset = catalogue.load(options.dataset)
        if dataset.is_remote:
            raise UserError(f"{dataset.name} is in a bucket; these experiments need files.")
        if not dataset.nnz:
            raise UserError(f"{dataset.name} has no counts.")
        with lock(options.results):
            measure(dataset, options)
    except UserError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted: the records so far are kept.", file=sys.stderr)
        return 130
    print(f"Written to {options.results}: python -m analysis.tables.slaf {options.results} {dataset.name}")
    return 0


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def store_of(dataset: Dataset, cells: int, folder: Path) -> Path:
    """The folder with SLAF's store in fragments of `cells` cells, which is made if it is missing.

    That of the adapter's own size is the suite's, and its conversion is recorded in `folder`; others lie beside it.
    Raises UserError if it cannot be made.
    """
    path = store_path(dataset, "slaf")
    if cells == fragment_cells(dataset):
        if record := prepare(dataset, "slaf", lambda done: None):
            jsonl.append(folder / conversion.FILE, record)
            if record.status != "ok":
                raise UserError(f"SLAF's store could not be made: {record.reason}")
        return path
    path = path.with_name(f"{path.name}-fragments-of-{cells}")
    if not path.exists():
        note(f"making a store of fragments of {cells:,} cells")
        partial = path.with_name(f"{path.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            Slaf.prepare(dataset, partial, lambda done: None, cells)
        except Incompatible as error:
            shutil.rmtree(partial)
            raise UserError(f"SLAF's store could not be made: {error}") from error
        partial.rename(path)
    return path


def opened(store: Path) -> Any:
    """The SLAFArray of a store, with its obs, which the library otherwise loads in the background."""
    with Slaf.importing():
        from slaf import SLAFArray
    array = SLAFArray(str(store / STORE))
    _ = array.obs
    return array


def stop(loader: Any) -> None:
    """Ends the reading thread of a SLAFDataLoader, and waits until it has ended."""
    prefetcher = loader._dataset.prefetcher  # there is no public way
    prefetcher.stop()
    prefetcher.worker_thread.join()
