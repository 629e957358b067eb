"""`prepare`: makes the data set, and the stores of all installed loaders, without measuring."""

import argparse

import loaders
from harness.commands.common import RESULTS, load, prepare_stores
from harness.commands.display import bar, console
from harness.machine import host
from harness.machine.lock import lock


def prepare(options: argparse.Namespace) -> None:
    """Generates the data set, or downloads its missing files; then converts it for every installed loader."""
    out = console()
    if options.project:
        from harness.data import download

        with bar(f"downloading {options.dataset}", "MB", out) as progress:
            download.fetch_named(options.dataset, options.project, progress)
    dataset, folder = load(options.dataset, None, out), RESULTS / host.machine()
    with lock(folder):
        prepare_stores(dataset, set(loaders.NAMES), folder, out)
