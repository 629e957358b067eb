"""Runs cases in child processes, forked from a process that has imported everything.

Each case has three stages: its store is damaged, read by our reader, and read by the reference. A child does one stage
of several cases, so that a library which is broken by a damaged file never shares a process with our reader. A case
that fails is run again in children that run no other case.
"""

import contextlib
import faulthandler
import gc
import importlib
import json
import os
import resource
import select
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.fuzz import case, verdict
from tests.fuzz.case import Plan
from tests.fuzz.stores import Store, forms

ADDRESS_SPACE = 6 * 2**30  # bytes of address space that a child may reserve beyond what it inherits
TOGETHER = 16  # cases per child: with one, half of the time would be spent on forks
REFERENCE_SECONDS = 5.0  # the shortest time limit of a case in the reference
STACK_CHARACTERS = 6_000  # kept of the standard error of a child


@dataclass
class StageResult:
    """The result of one stage of a case.

    told: the messages of the stage, merged into one dict. ended: how the child died, or None if it finished the stage.
    stack: the standard error of a child that died.
    """

    told: dict[str, Any] = field(default_factory=dict)
    ended: str | None = None
    stack: str = ""


class Zygote:
    """Runs cases, each stage in forked children.

    seeds: the content of the files of each storage form. reader: "module:function", with the signature of
    `readers.open_ours`. limit: the time limit of a case in seconds. The limit of the reference is a quarter of it, and
    at least REFERENCE_SECONDS: the reference may hang, which is not our failure. keep: the folder for failures (None:
    they are not kept).
    """

    def __init__(self, seeds: dict[str, dict[str, bytes]], reader: str, limit: float, keep: Path | None) -> None:
        self.seeds, self.limit, self.keep, self.reader = seeds, limit, keep, reader
        module, _, function = reader.partition(":")
        self.open_source: Callable = getattr(importlib.import_module(module), function)

    def warm_up(self) -> None:
        """Reads each undamaged store once, to load compiled code before the forks. Leaves no Python threads."""
        from tests.fuzz.readers import open_ours

        warnings.simplefilter("ignore")
        for number, name in enumerate(self.seeds):
            plan = Plan(0, number, name, ("csr", "dense")[number % 2], 2, [])
            with TemporaryDirectory() as folder:
                store = Store(Path(folder) / "store", forms()[name])
                store.fill(self.seeds[name])
                case.read(plan, store, open_ours, lambda **_: None)
                case.compare(plan, store, lambda **_: None)
        with contextlib.suppress(ImportError):
            from zarr.core.sync import cleanup_resources

            cleanup_resources()
        gc.collect()
        gc.freeze()

    def run_all(self, plans: list[Plan]) -> list[dict[str, Any]]:
        """Runs the cases of the plans and returns their results. A case that fails is run again alone."""
        with TemporaryDirectory(prefix="fuzz-") as folder:
            stores = {
                plan.number: Store(Path(folder) / str(plan.number) / "store", forms()[plan.form]) for plan in plans
            }
            damaged = self.stage(plans, lambda plan, report: self.damage(plan, stores[plan.number], report))
            results = self.read_all(plans, stores, damaged)
            if len(plans) == 1:
                self.keep_case(plans[0], stores[plans[0].number], results[0])
                return results
            for plan, result in zip(plans, results, strict=True):
                if not result["failure"]:
                    self.keep_case(plan, stores[plan.number], result)
        for i, (plan, result) in enumerate(zip(plans, results, strict=True)):
            if result["failure"]:
                results[i] = self.again(plan, result)
        return results

    def again(self, plan: Plan, first: dict[str, Any]) -> dict[str, Any]:
        """Runs a failed case alone. The verdict is "unsteady" if it does not fail again."""
        (result,) = self.run_all([plan])
        if first["failure"] and not result["failure"]:
            why = f"{first['verdict']} among others: {first['why']}; then {result['verdict']}"
            result = first | {"verdict": "unsteady", "why": why}
            self.keep_case(plan, None, result)
        return result

    def damage(self, plan: Plan, store: Store, report: Callable) -> None:
        store.fill(self.seeds[plan.form])
        did = case.damage(plan, store)
        report(did=did, damaged=plan.change is not None or store.differs(self.seeds[plan.form]))
        if plan.change:
            shutil.copytree(store.folder, store.folder.parent / "kept")  # a failure keeps the store as it was opened

    def read_all(
        self, plans: list[Plan], stores: dict[int, Store], damaged: dict[int, StageResult]
    ) -> list[dict[str, Any]]:
        """Reads the damaged stores with both readers. Returns the results with their verdicts."""
        readable = [plan for plan in plans if not damaged[plan.number].ended]
        read = self.stage(readable, lambda plan, report: case.read(plan, stores[plan.number], self.open_source, report))
        compare = self.stage(
            readable,
            lambda plan, report: case.compare(plan, stores[plan.number], report),
            max(self.limit / 4, REFERENCE_SECONDS),
        )
        results = []
        for plan in plans:
            three = [stage.get(plan.number, StageResult()) for stage in (damaged, read, compare)]
            name, why = verdict.of(*three, damaged=bool(three[0].told.get("damaged", True)), blind=plan.blind)
            failure, messages = name in verdict.FAILURES, three[0].told | three[1].told | three[2].told
            result = {"verdict": name, "failure": failure, "why": why, "plan": json.loads(plan.json())}
            result |= {"did": [*messages.get("did", []), *([messages["change"]] if "change" in messages else [])]}
            results.append(
                result
                | ({"told": messages, "stack": "".join(each.stack for each in three)} if name in verdict.KEPT else {})
            )
        return results

    def stage(
        self, plans: list[Plan], work: Callable[[Plan, Callable], None], limit: float = 0
    ) -> dict[int, StageResult]:
        """Does `work` for all plans in one child. If it dies, another child continues with the remaining plans.

        limit: the time limit of a case in seconds (0: that of this object). Returns the results by case number.
        """
        finished: dict[int, StageResult] = {}
        while plans:

            def run(report: Callable, plans: list[Plan] = plans) -> None:
                for plan in plans:
                    report(case=plan.number)
                    try:
                        work(plan, report)
                    except BaseException as error:
                        import traceback

                        report(broken="".join(traceback.format_exception(error))[-1500:])
                    report(done=True)

            messages, ended, stack = self.in_child(run, limit or self.limit)
            reached = None
            for message in messages:
                if "case" in message:
                    reached = finished[message["case"]] = StageResult()
                reached.told |= message
            if reached is None:
                raise RuntimeError(f"a child sent no message, and ended with {ended}: {stack}")
            if "done" not in reached.told:
                reached.ended, reached.stack = ended or "exit", stack
            plans = [plan for plan in plans if plan.number not in finished]
        return finished

    def in_child(self, work: Callable, limit: float) -> tuple[list[dict], str | None, str]:
        """Calls `work` in a forked child. Returns (its messages, how it died or None, its standard error, cut)."""
        receive, send = os.pipe()
        errors = os.memfd_create("errors")
        pid = os.fork()
        if pid == 0:
            os.close(receive)
            _child(work, send, errors)
        os.close(send)
        content, hung = _read_all(receive, limit)
        os.close(receive)
        if hung:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGABRT)  # faulthandler writes the stack
            time.sleep(0.2)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        stack = os.pread(errors, STACK_CHARACTERS, 0).decode(errors="replace")
        os.close(errors)
        messages = [json.loads(line) for line in content.split(b"\n") if line.endswith(b"}")]
        code = os.waitstatus_to_exitcode(status)
        ended = "hang" if hung else signal.Signals(-code).name if code < 0 else f"exit code {code}" if code else None
        return messages, ended, stack

    def keep_case(self, plan: Plan, store: Store | None, result: dict[str, Any]) -> None:
        """Writes the folder of a failure; does nothing if the verdict is not in KEPT. store: None if it is gone."""
        if self.keep is None or result["verdict"] not in verdict.KEPT:
            return
        folder = self.keep / f"{plan.seed}-{plan.number}-{result['verdict'].replace(' ', '-')}"
        result["folder"] = str(folder)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if store is not None:
            around = store.folder.parent
            shutil.copytree(
                around / "kept" if (around / "kept").exists() else store.folder,
                folder / "store",
                symlinks=True,
                ignore=_pipes,
            )
            if (around / "outside.arrow").exists():
                shutil.copy(around / "outside.arrow", folder)
        described = {key: value for key, value in result.items() if key != "stack"}
        described |= {"reader": self.reader, "reproduce": f"python -m tests.fuzz reproduce {folder}"}
        (folder / "case.json").write_text(json.dumps(described, indent=2))
        (folder / "stack.txt").write_text(result.get("stack", ""))

    def reproduce(self, plan: Plan, folder: Path) -> dict[str, Any]:
        """Reads the store in the folder of a failure again. Runs the whole case if no store was kept."""
        if not (folder / "store").exists():
            return self.run_all([plan])[0]
        with TemporaryDirectory(prefix="fuzz-") as around:
            store = Store(
                Path(shutil.copytree(folder, Path(around) / "case", symlinks=True)) / "store", forms()[plan.form]
            )
            store.age()
            return self.read_all([plan], {plan.number: store}, {plan.number: StageResult()})[0]


def _pipes(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if (Path(folder) / name).is_fifo()]


def _child(work: Callable, send: int, errors: int) -> None:
    """The main function of a forked child: calls `work` with limited memory, then ends the process.

    send: the file descriptor for messages, as JSON lines. errors: the one for standard error.
    """
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.dup2(errors, 2)
        faulthandler.enable(file=2, all_threads=True)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + ADDRESS_SPACE,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        work(lambda **message: os.write(send, json.dumps(message, default=str).encode() + b"\n"))
    finally:
        os._exit(0)


def _read_all(receive: int, limit: float) -> tuple[bytes, bool]:
    """(the bytes received until the pipe was closed; whether a case exceeded `limit` seconds, which ends reading)."""
    content, until = b"", time.monotonic() + limit
    while (seconds := until - time.monotonic()) > 0:
        if not select.select([receive], [], [], seconds)[0]:
            break
        piece = os.read(receive, 65536)
        if not piece:
            return content, False
        content += piece
        if b'{"case"' in piece:
            until = time.monotonic() + limit
    return content, True


def serve(pipe: Connection, options: dict[str, Any]) -> None:
    """The main function of a process of the fuzzer: runs cases and sends each result.

    The numbers of the cases are options["first"], first + step, first + 2 step and so on, below options["cases"]. Stops
    early when any message arrives.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with open(os.devnull, "w") as devnull:
        sys.stderr = devnull  # drops warnings of libraries; the standard error of a child is kept with its case
        zygote = Zygote(options["seeds"], options["reader"], options["limit"], options["keep"])
        zygote.warm_up()
        pipe.send("ready")
        pipe.recv()
        number, step = options["first"], options["step"]
        while not pipe.poll() and number < options["cases"]:
            plans = []
            while len(plans) < TOGETHER and number < options["cases"]:
                plan = Plan.of(options["seed"], number)
                if options["undamaged"]:
                    plan.kinds, plan.change = [], None
                plans += [plan] if plan.form in options["forms"] else []
                number += step
            for result in zygote.run_all(plans):
                pipe.send(result)
        pipe.send("done")
