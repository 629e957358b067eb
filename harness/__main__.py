"""The command line: python -m harness VERB."""

import argparse
import errno
import json
import sys
from pathlib import Path

from rich.table import Table

import loaders
from harness import catalogue, host, results
from harness.bench import DEFAULT_DATASET, RESULTS, bench, load, prepare_only, prepare_stores
from harness.ceiling import FILE, described, have_ceilings, measure
from harness.display import console
from harness.errors import UserError, unknown
from harness.laws import laws
from harness.records import advise, figures, report
from harness.train import train

EXAMPLES = """
examples:
  python -m harness bench --dataset tahoe-mini --grid quick
  python -m harness bench --dataset /data/atlas.h5ad --labels donor,cell_type
  python -m harness bench --dataset '/data/plates/*.h5ad' --loaders native,scdataset --repeat 3
  python -m harness prepare tahoe --project my-google-cloud-project
  python -m harness ceiling --loaders native
  python -m harness train --arms block,random --seeds 1
  python -m harness status
"""


def main(arguments: list[str] | None = None) -> int:
    """Runs one verb; 0 when it did what was asked, 1 if it found what is broken, 2 for bad input, 130 if stopped."""
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
        print("interrupted: every finished line is kept; the same command goes on from there.", file=sys.stderr)
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
        "bench", parents=[data, into], help="prepare, measure what is missing, print the table, draw"
    )
    verb.add_argument("--grid", type=_names, metavar="G", help="grids of grids.toml (default: the data set's own)")
    verb.add_argument("--loaders", type=_names, metavar="L", help=f"only these, of {', '.join(loaders.NAMES)}")
    verb.add_argument("--repeat", type=int, default=1, metavar="N", help="processes per condition (default: 1)")
    verb.add_argument(
        "--consumer-ms", type=float, default=0.0, metavar="MS",
        help="emulate a consumer that takes so long over each batch, and see whether it would wait (default: 0)",
    )  # fmt: skip
    verb.add_argument("--retry", action="store_true", help="measure again what was skipped, failed or timed out")
    verb.set_defaults(run=bench)

    verb = verbs.add_parser(
        "advise", parents=[data, into], help="the fastest loader and settings whose minibatches are mixed well enough"
    )
    verb.add_argument(
        "--within", type=float, default=0.05, metavar="BITS",
        help="of the entropy that minibatches of cells drawn at random have, for every label (default: 0.05)",
    )  # fmt: skip
    verb.set_defaults(run=advise)

    verb = verbs.add_parser(
        "figures", parents=[into], help="draw tables and figures again from the records, and measure nothing"
    )
    verb.add_argument(
        "--datasets", type=_names, metavar="D", help="only grids over these (default: all, made if need be)"
    )
    verb.set_defaults(run=figures)

    verb = verbs.add_parser("report", parents=[into], help="write one HTML page of all that lies in a results folder")
    verb.set_defaults(run=report)

    verb = verbs.add_parser(
        "ceiling", parents=[data, into], help="measure what the disk, decoding and copying allow with no loader at all"
    )
    verb.add_argument("--loaders", type=_names, metavar="L", help="of whose stores (default: of each that can be)")
    verb.set_defaults(run=ceiling)

    verb = verbs.add_parser(
        "train", parents=[data, into], help="train the same models in every order of the cells, and compare"
    )
    verb.add_argument("--arms", type=_names, metavar="A", help="only these orders (default: all six)")
    verb.add_argument("--seeds", type=int, default=3, metavar="N", help="runs of each order (default: 3)")
    verb.add_argument(
        "--genes", default="8192", metavar="N", help="the most counted genes to learn from, or all (default: 8192)"
    )
    verb.set_defaults(run=train)

    verb = verbs.add_parser(
        "laws",
        parents=[data, into],
        help="measure what a cell costs to rank, shuffle, read and fit, by how many at once",
    )
    verb.set_defaults(run=laws)

    verb = verbs.add_parser("prepare", help="generate, download or convert a data set, and measure nothing")
    verb.add_argument("dataset", nargs="?", default=DEFAULT_DATASET, metavar="D", help="as for bench")
    verb.add_argument("--project", metavar="P", help="the Google Cloud project to bill for a download that is charged")
    verb.set_defaults(run=prepare_only, labels=None)

    verb = verbs.add_parser("status", help="what a results folder holds, and what is doubtful in it")
    verb.add_argument("folder", nargs="?", type=Path, default=RESULTS, help="(default: results)")
    verb.set_defaults(run=status)

    verb = verbs.add_parser("validate", help="look through results for what cannot be; exit 1 where there is any")
    verb.add_argument("folder", nargs="?", type=Path, default=RESULTS, help="(default: results)")
    verb.set_defaults(run=validate)

    verb = verbs.add_parser("doctor", help="which loaders import here, and what this machine allows")
    verb.add_argument("--json", action="store_true", help="the same for programs")
    verb.set_defaults(run=examine)
    return top


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def ceiling(options: argparse.Namespace) -> None:
    """Measures and records the ceilings of stores, and prints them."""
    known = have_ceilings(loaders.NAMES)
    chosen = options.loaders or known
    for name in chosen:
        if name not in known:
            raise unknown("loader with a store whose ceilings can be measured", name, known)
    out = console()
    dataset = load(options.dataset, options.labels, out)
    with results.lock(options.results):
        for name, reason in prepare_stores(dataset, set(chosen), options.results, out).items():
            raise UserError(f"The store of {name} could not be made: {reason}")
        for name in chosen:
            with out.status("") as shown:
                found = measure(dataset, name, lambda phase, name=name: shown.update(f"{name}: {phase}"))
            for record in found:
                results.append(options.results / FILE, record)
            out.print(*described(found), sep="\n", highlight=False)
    out.print(f"\nWritten:\n  {options.results / FILE}", highlight=False)


def status(options: argparse.Namespace) -> None:
    """Prints, for each results file, its rows by outcome and every doubt about them."""
    from analysis import doubts
    from harness.validate import KINDS

    results.existing(options.folder)
    out = console()
    paths = sorted(path for path in options.folder.rglob("*.jsonl") if path.name not in KINDS)
    if not paths:
        raise UserError(f"{options.folder} holds no results (*.jsonl).")
    for path in paths:
        rows = results.read(path)
        counts = {s: sum(m.status == s for m in rows) for s in results.STATUSES}
        said = ", ".join(f"{n} {s}" for s, n in counts.items() if n)
        out.print(f"{path}: {len(rows)} measurements ({said})", style="bold", highlight=False)
        groups: dict[object, list[results.Measurement]] = {}
        for m in rows:
            groups.setdefault((m.condition, m.timing, m.provenance.get("dataset_fingerprint")), []).append(m)
        told: dict[str, list[str]] = {}
        for (condition, _, _), group in groups.items():
            reasons = [f"{m.status}: {m.reason}" for m in group if m.status != "ok"]
            for doubt in {*reasons, *(d for m in group for d in doubts.of_row(m)), *doubts.of_repeats(group)}:
                told.setdefault(doubt, []).append(f"{condition.dataset} {condition}")
        for doubt, conditions in sorted(told.items(), key=lambda item: -len(item[1])):
            some = "; ".join(conditions[:3]) + (f"; and {len(conditions) - 3} more" if len(conditions) > 3 else "")
            out.print(f"  {len(conditions)} x {doubt}\n      {some}", highlight=False, markup=False, soft_wrap=True)


def validate(options: argparse.Namespace) -> int:
    """Prints every record that cannot be; 1 when there is one."""
    from harness import validate

    results.existing(options.folder)
    found = list(validate.problems(options.folder))
    for path, line, what in found:
        print(f"{path}, line {line}: {what}")
    lines = sum(len(path.read_bytes().splitlines()) for path in options.folder.rglob("*.jsonl"))
    print(f"{lines} records: {len(found) or 'no'} problem{'s' if len(found) != 1 else ''}")
    return 1 if found else 0


def examine(options: argparse.Namespace) -> int:
    """Prints what `doctor` finds; 1 when a loader that is installed does not import."""
    from harness import doctor

    found = doctor.examine()
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        out = console()
        table = Table(box=None, header_style="bold", pad_edge=False)
        for name in ("loader", "version", "store", "", "environment", "reason"):
            table.add_column(name)
        for row in found["loaders"]:
            told = (row[key] or "" for key in ("name", "version", "store", "status", "environment", "reason"))
            table.add_row(*told)
        out.print(table)
        machine = found["machine"]
        out.print(
            f"\n{machine['cpu']}, {machine['cores']} cores, {machine['ram_bytes'] / 2**30:.0f} GB, Python "
            f"{machine['python']}\npage cache: {found['page_cache'] or 'cannot be emptied'}\n"
            f"bounded memory: {found['memory_bound'] or 'not to be had'}\n"
            + "\n".join(f"native, {codec}: {how}" for codec, how in found["decoders"].items()),
            highlight=False,
        )
    return 1 if any(row["status"] == "broken" for row in found["loaders"]) else 0


if __name__ == "__main__":
    sys.exit(main())
