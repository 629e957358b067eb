"""`ceiling`: measures the rates of the disk, of our decoder and of copying without a loader."""

import argparse

import loaders
from harness.commands.common import load, prepare_stores, print_written
from harness.commands.display import console
from harness.errors import UserError, unknown
from harness.machine.lock import lock
from harness.records import ceiling, jsonl
from harness.run.ceiling import describe, measure, with_ceilings


def measure_ceilings(options: argparse.Namespace) -> None:
    """Measures, records and prints the ceilings of stores."""
    known = with_ceilings(loaders.NAMES)
    chosen = options.loaders or known
    for name in chosen:
        if name not in known:
            raise unknown("loader with a store whose ceilings can be measured", name, known)
    out = console()
    dataset = load(options.dataset, options.labels, out)
    path = options.results / ceiling.FILE
    with lock(options.results):
        for name, reason in prepare_stores(dataset, set(chosen), options.results, out).items():
            raise UserError(f"The store of {name} could not be made: {reason}")
        for name in chosen:
            with out.status("") as status:
                records = measure(dataset, name, lambda phase, name=name: status.update(f"{name}: {phase}"))
            for record in records:
                jsonl.append(path, record)
            out.print(*describe(records), sep="\n", highlight=False)
    print_written([path], out)
