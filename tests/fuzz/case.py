"""One case: its plan, and its stages in child processes: damaging, reading, and reading by the reference."""

import gc
import json
import os
import pickle
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz import counts as compared
from tests.fuzz import mutate
from tests.fuzz.counts import Counts
from tests.fuzz.readers import reference
from tests.fuzz.stores import Store, forms, truth

MESSAGE_CHARACTERS = 500  # the maximum of a clear error message
BATCH, FETCH, BLOCK, IDS = 16, 3, 4, 40
# Not combined with others: no row needs the chunks that they damage, but the library still refuses them.
ALONE = "indptr: all zero"
Report = Callable[..., None]
"""Sends a message of keyword arguments to the parent process."""


@dataclass
class Plan:
    """All parameters of a case, a function of (seed, number).

    form: the name of the storage form. output, threads: the arguments of our reader. kinds: the names of the mutations
    applied to the store. change: the name of a change made while the store is open, after `change_after` minibatches
    (None: no change).
    """

    seed: int
    number: int
    form: str
    output: str
    threads: int
    kinds: list[str]
    change: str | None = None
    change_after: int = 0

    @classmethod
    def of(cls, seed: int, number: int) -> "Plan":
        rng = np.random.default_rng([seed, number, 0])
        form = list(forms().values())[number % len(forms())]
        plan = cls(seed, number, form.name, str(rng.choice(["csr", "dense"])), int(rng.choice([1, 2, 4])), [])
        draw = rng.random()
        if draw < 0.01:
            return plan
        if draw < 0.08:
            plan.change = str(rng.choice(list(mutate.CHANGES)))
            plan.change_after = int(rng.choice([0, 0, 1, 4, 9, 20]))
            return plan
        kinds = mutate.kinds_of(form)
        plan.kinds = [str(kind) for kind in rng.choice(kinds, rng.choice([1, 2, 3], p=[0.7, 0.2, 0.1]))]
        if ALONE in plan.kinds:
            plan.kinds = [ALONE]
        return plan

    @property
    def blind(self) -> bool:
        """Whether all mutations of the plan change bytes without regard to their meaning (mutate.BLIND)."""
        return self.change is None and set(self.kinds) <= mutate.BLIND

    def rng(self, purpose: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, self.number, purpose])

    def json(self) -> str:
        return json.dumps(asdict(self), indent=2)


def damage(plan: Plan, store: Store) -> list[str]:
    """Applies the mutations of the plan. Returns a description of each, also of those that could not be applied."""
    effects, rng = [], plan.rng(1)
    for kind in plan.kinds:
        try:
            effects.append(f"{kind}: {mutate.KINDS[kind].apply(store, rng)}")
        except Exception as error:  # the store is damaged: the libraries that mutate it may fail in any way
            effects.append(f"{kind}: not applied, {type(error).__name__}: {error}")
    store.age()
    return effects


def read(plan: Plan, store: Store, open_source: Callable, report: Report) -> None:
    """The stage of our reader: reads the store, reports each phase before it begins and the outcome, saves the rows."""
    warnings.simplefilter("ignore")
    report(phase="open")
    reading = Reading(plan, store, open_source, report)
    rows = reading.run()
    report(phase="after")
    _report_leaks(store, report)
    if rows is not None:
        differ = [compared.differing(each, compared.of_matrix(truth())) for each in rows]
        report(equal_truth=all(each == set() for each in differ), differing=_summary(differ))
        (store.folder.parent / "rows").write_bytes(pickle.dumps(rows))


def compare(plan: Plan, store: Store, report: Report) -> None:
    """The stage of the reference: reads the store, and compares the rows with those of our reader."""
    warnings.simplefilter("ignore")
    try:
        expected = compared.of_matrix(reference(forms()[plan.form], store.folder))
    except BaseException as error:
        report(reference="refuses", why=f"{type(error).__name__}: {error}"[:300])
        return
    report(reference="reads")
    path = store.folder.parent / "rows"
    if path.exists():
        rows = pickle.loads(path.read_bytes())
        differ = [compared.differing(each, expected) for each in rows]
        before = [compared.differing(each, compared.of_matrix(truth())) for each in rows]
        pairs = list(zip(before, differ, strict=True))
        if plan.change:  # each epoch is entirely as before the change, or entirely as after it
            report(equal_either=all(set() in pair for pair in pairs))
        # Of two damaged bytes, one may affect only the library, and the other both readers.
        report(each_row_of_either=all(None not in pair and not pair[0] & pair[1] for pair in pairs))
        report(equal_reference=all(each == set() for each in differ), differing_reference=_summary(differ))


def _summary(differ: list[set[int] | None]) -> list[str]:
    return ["another shape" if each is None else f"{len(each)} rows {sorted(each)[:5]}" for each in differ]


class Reading:
    """Reads two epochs, and some rows by their ids, with our reader.

    If the plan has a change, makes it after `change_after` minibatches.
    """

    def __init__(self, plan: Plan, store: Store, open_source: Callable, report: Report) -> None:
        self.plan, self.store, self.open_source, self.report = plan, store, open_source, report
        self.batches = 0
        self.changed = plan.change is None

    def run(self) -> list[Counts] | None:
        """Reads, and returns the counts of each epoch. None after an error, which is reported instead of raised."""
        source = None
        try:
            try:
                source = self.open_source(
                    forms()[self.plan.form], self.store.folder, self.plan.output, self.plan.threads
                )
                self.change_if_due()
                self.report(phase="read")
                return self.read(source)
            finally:
                if source is not None:
                    source.close()
        except WrongRowsError as error:
            self.report(ours="invalid", message=str(error))
        except BaseException as error:
            self.report(ours="error", **_described(error, self.store))
        return None

    def read(self, source: Any) -> list[Counts]:
        from loadstone import BlockLoader, BlockShuffling

        n, epochs = len(source), []
        loader = BlockLoader(source, sampler=BlockShuffling(BLOCK), batch_size=BATCH, fetch_factor=FETCH)
        for _ in range(2):
            epochs.append(self.gathered(((batch.rows, batch.x) for batch in loader), n, np.arange(n)))
        self.report(n_rows=n, n_genes=epochs[0].n_genes)
        if hasattr(type(source), "__getitem__") and n:
            ids = self.plan.rng(2).integers(0, n, IDS)
            picked = self.gathered(iter([(ids, source[ids])]), n, ids, each_once=False)
            whole = epochs[0]
            mask = np.isin(whole.row, ids)
            part = whole._replace(row=whole.row[mask], gene=whole.gene[mask], value=whole.value[mask])
            if not self.plan.change and compared.differing(part, picked) != set():
                raise WrongRowsError("source[ids] differs from the minibatches")
        self.report(ours="rows")
        return epochs

    def gathered(self, batches: Iterator, n: int, expected: np.ndarray, each_once: bool = True) -> Counts:
        """The counts of all minibatches, with each row once.

        batches: (row ids, x) of each minibatch. n: the number of rows in the store. expected: the row ids that must be
        delivered. each_once: False if `expected` may have repetitions. Raises WrongRowsError for an invalid minibatch
        or other row ids.
        """
        seen, entries, n_genes = [], [], 0
        for ids, x in batches:
            n_genes = x.shape[1]
            try:
                row, gene, value = compared.entries(x, n_genes)
            except ValueError as error:
                raise WrongRowsError(str(error)) from error
            if x.shape[0] != len(ids):
                raise WrongRowsError(f"a minibatch of {len(ids)} ids has {x.shape[0]} rows")
            if not each_once:  # a row that was requested twice counts once
                first = np.zeros(len(ids), bool)
                first[np.unique(ids, return_index=True)[1]] = True
                row, gene, value = row[first[row]], gene[first[row]], value[first[row]]
            seen.append(ids)
            entries.append((ids[row], gene, value))
            self.batches += 1
            self.change_if_due()
        seen = np.concatenate([np.empty(0, np.int64), *seen])
        if not np.array_equal(np.sort(seen), np.sort(expected)):
            raise WrongRowsError(f"{len(seen)} rows were delivered, of {len(expected)}")
        columns = [np.concatenate([np.empty(0, t), *each]) for t, each in _columns(entries)]
        return compared.counts(n, n_genes, *columns)

    def change_if_due(self) -> None:
        if not self.changed and self.batches >= self.plan.change_after:
            self.changed = True
            self.report(change=mutate.CHANGES[self.plan.change](self.store, self.plan.rng(3)))


class WrongRowsError(Exception):
    """The minibatches are invalid, lack or repeat rows, or differ from rows that were requested by their ids."""


def _columns(entries: list[tuple]) -> list[tuple]:
    columns = list(zip(*entries, strict=True)) or [(), (), ()]
    return list(zip((np.int64, np.int64, np.float32), columns, strict=True))


def _described(error: BaseException, store: Store) -> dict[str, object]:
    """The report of an error: its type, message, faults (why a user would not understand it) and stack trace."""
    text = str(error)
    paths = {str(store.folder / path) for path in store.form.paths}
    faults = []
    if not isinstance(error, OSError | ValueError):
        faults.append(f"it is a {type(error).__name__}")
    if not any(path in text for path in paths):
        faults.append("it names no file")
    if "\n" in text.strip() or len(text) > MESSAGE_CHARACTERS:
        faults.append(f"it has {len(text)} characters in {len(text.splitlines())} lines")
    trace, lines = error.__traceback__, []
    while trace:
        lines.append(
            f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno} {trace.tb_frame.f_code.co_name}"
        )
        trace = trace.tb_next
    return {"error": type(error).__name__, "message": text[:1000], "faults": faults, "trace": lines[-6:]}


def _report_leaks(store: Store, report: Report) -> None:
    """Reports the threads of the reader and the open files of the store that remain after the source was closed."""
    gc.collect()
    threads = [thread.name for thread in threading.enumerate() if thread.name.startswith(("decode", "fetch"))]
    files = []
    for fd in os.listdir("/proc/self/fd") if Path("/proc/self/fd").exists() else ():
        try:
            path = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
        if path.startswith(str(store.folder)):
            files.append(Path(path).name)
    report(left=[*threads, *sorted(set(files))])
