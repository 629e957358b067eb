"""Reads damaged stores with our reader and with the format's own library, and compares the rows.

Each case is a small store with one to three damages, or one change while it is open. It is read in a child process.
Our reader must return the rows that the format's own library reads, or the rows as written if the damage does not
touch them, or raise one OSError or ValueError that names the file.

    python -m tests.fuzz --minutes 10 --seed 3
    python -m tests.fuzz --forms "h5ad gzip,zarr v2" --cases 2000
    python -m tests.fuzz reproduce .fuzz/3-1207-crash

A case is a function of (seed, number). Each failure is kept in a folder: the damaged store, case.json, stack.txt.
"""

import argparse
import json
import multiprocessing as mp
import os
import random
import signal
import sys
import time
import warnings
from collections import Counter, defaultdict
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

LIMITS = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
"""The environment of the processes: no library may have threads when children are forked."""
LISTED = 30  # the maximum number of failures that are listed at the end


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reproduce", nargs="*", help="'reproduce FOLDER': read the store of a failure again")
    parser.add_argument("--minutes", type=float, default=1.0, help="duration (1)")
    parser.add_argument("--cases", type=int, default=2**62, help="maximum number of cases, over all forms")
    parser.add_argument("--seed", type=int, help="seed of the cases; printed at the start (random)")
    parser.add_argument("--forms", help="storage forms or prefixes of their names, by commas (all); ? lists them")
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1), help="parallel processes")
    parser.add_argument("--keep", type=Path, default=Path(".fuzz"), help="folder for the failures (.fuzz)")
    parser.add_argument("--limit", type=float, default=20.0, help="seconds after which a case counts as hanging (20)")
    parser.add_argument("--reader", default="tests.fuzz.readers:open_ours", help="MODULE:FUNCTION that opens a store")
    parser.add_argument("--undamaged", action="store_true", help="do not damage the stores: all must be read")
    parser.add_argument("--json", type=Path, help="file for the counts of verdicts, as JSON")
    return parser.parse_args(argv)


def main() -> int:
    options = arguments(sys.argv[1:])
    warnings.simplefilter("ignore")  # about storage forms of the seeds, which are intended
    for name, value in LIMITS.items():
        os.environ[name] = value
    if options.reproduce:
        if len(options.reproduce) != 2 or options.reproduce[0] != "reproduce":
            print("error: the only command is: python -m tests.fuzz reproduce FOLDER", file=sys.stderr)
            return 2
        return reproduce(Path(options.reproduce[1]), options)
    return search(options)


def reproduce(folder: Path, options: argparse.Namespace) -> int:
    """Reads the store of a failure again, and prints both verdicts. Returns 1 if it fails again, else 0."""
    from tests.fuzz.case import Plan
    from tests.fuzz.stores import forms, write_seed
    from tests.fuzz.zygote import Zygote

    described = json.loads((folder / "case.json").read_text())
    plan = Plan(**described["plan"])
    zygote = Zygote({plan.form: write_seed(forms()[plan.form])}, described["reader"], options.limit, None)
    zygote.warm_up()
    result = zygote.reproduce(plan, folder)
    print(f"{plan.form}, {plan.output}: {'; '.join(described['did']) or 'not damaged'}")
    print(f"then {described['verdict']}: {described['why']}")
    print(f"now  {result['verdict']}: {result['why']}")
    print(result.get("stack", ""), end="")
    return int(result["failure"])


def chosen_forms(names: str | None) -> list[str]:
    """The storage forms that the option --forms names; exits with a list of all forms if a name is unknown."""
    from tests.fuzz.stores import forms

    if names is None:
        return list(forms())
    wanted = [name.strip() for name in names.split(",")] if "?" not in names else [names]
    chosen = [form for form in forms() if form in wanted] + [
        form for form in forms() for name in wanted if name not in forms() and form.startswith(name)
    ]
    if not chosen or any(not any(form.startswith(name) for form in forms()) for name in wanted):
        sys.exit("The forms are: " + ", ".join(forms()))
    return list(dict.fromkeys(chosen))


def search(options: argparse.Namespace) -> int:
    """Runs cases. Returns 0 without failures, 1 with failures, 2 if a process of the fuzzer ended."""
    from tests.fuzz.stores import forms, write_seed
    from tests.fuzz.zygote import serve

    seed = random.randrange(10**6) if options.seed is None else options.seed
    names = chosen_forms(options.forms)
    print(f"seed {seed}: {len(names)} forms, {options.minutes:g} minutes, {options.processes} processes", flush=True)
    common = {"seeds": {name: write_seed(forms()[name]) for name in names}, "forms": set(names), "seed": seed}
    common |= {key: getattr(options, key) for key in ("reader", "limit", "keep", "cases", "undamaged")}
    context, pipes, processes = mp.get_context("spawn"), [], []
    for first in range(options.processes):
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(theirs, common | {"first": first, "step": options.processes}))
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    counts, lost = Counts(), False
    try:
        for pipe in pipes:
            pipe.recv()  # ready
        counts.began = time.monotonic()
        for pipe in pipes:
            pipe.send("go")
        lost = gather(pipes, counts, counts.began + 60 * options.minutes)
    except EOFError:
        lost = True
    for process in processes:
        process.join(options.limit)
        if process.is_alive():
            process.kill()
    if options.json:
        options.json.write_text(json.dumps(counts.by_form, indent=2))
    counts.print_tables()
    if lost:
        print("error: a process of the fuzzer itself ended", file=sys.stderr)
        return 2
    return int(bool(counts.failures))


def gather(pipes: list, counts: "Counts", until: float) -> bool:
    """Collects results until the time is up or Ctrl-C is pressed. Returns whether a process was lost."""
    open_pipes, last_print, stopping, lost = set(pipes), time.monotonic(), False, False
    interrupts: list[int] = []  # only recorded: an exception could interrupt a message
    signal.signal(signal.SIGINT, lambda number, frame: interrupts.append(number))
    while open_pipes:
        for pipe in wait(list(open_pipes), timeout=1):
            try:
                result = pipe.recv()
            except (EOFError, OSError):
                result, lost = "done", True
            if result == "done":
                open_pipes.discard(pipe)
            else:
                counts.add(result)
        now = time.monotonic()
        if (now > until or interrupts) and not stopping:
            stopping = True
            for pipe in open_pipes:
                pipe.send("stop")
        if now - last_print > 5:
            last_print = now
            print(counts.line(), flush=True)
    return lost


class Counts:
    """The number of cases with each verdict, by form and by mutation."""

    def __init__(self) -> None:
        self.by_form: dict[str, Counter] = defaultdict(Counter)
        self.by_kind: dict[str, Counter] = defaultdict(Counter)
        self.failures: list[dict[str, Any]] = []
        self.total, self.began = Counter(), time.monotonic()

    def add(self, result: dict[str, Any]) -> None:
        verdict, plan = result["verdict"], result["plan"]
        self.total[verdict] += 1
        self.by_form[plan["form"]][verdict] += 1
        for kind in set(plan["kinds"]) or {plan["change"] or "nothing"}:
            self.by_kind[kind][verdict] += 1
        if result["failure"]:
            self.failures.append(result)

    def line(self) -> str:
        n, seconds = self.total.total(), time.monotonic() - self.began
        verdicts = ", ".join(f"{verdict} {count}" for verdict, count in self.total.most_common())
        return f"{seconds:.0f} s, {n} cases, {n / max(seconds, 1e-9):.0f} a second: {verdicts}"

    def print_tables(self) -> None:
        from tests.fuzz.verdict import FAILURES, GOOD

        columns = [verdict for verdict in (*GOOD, *FAILURES) if self.total[verdict]]
        for title, table in (("form", self.by_form), ("mutation", self.by_kind)):
            width = max([len(title), *map(len, table)])
            print("\n" + "  ".join([title.ljust(width), *columns]))
            for name, row in table.items():
                print("  ".join([name.ljust(width), *(str(row[c] or "").rjust(len(c)) for c in columns)]).rstrip())
            if table is self.by_form:
                print("  ".join(["all".ljust(width), *(str(self.total[c]).rjust(len(c)) for c in columns)]))
        print("\n" + self.line())
        weight = {verdict: i for i, verdict in enumerate(FAILURES)}
        for result in sorted(self.failures, key=lambda each: weight[each["verdict"]])[:LISTED]:
            plan = result["plan"]
            print(f"\n{result['verdict']}: {result.get('folder', '')}  ({plan['form']}, {plan['output']})")
            print(f"  {'; '.join(result['did']) or plan['change']}\n  {result['why'].strip()[:400]}")
        if len(self.failures) > LISTED:
            print(f"\nand {len(self.failures) - LISTED} more")


if __name__ == "__main__":
    sys.exit(main())
