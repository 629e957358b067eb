"""One case: its plan, and what the child process does with the store."""

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

MESSAGE_CHARACTERS = 500  # of an error, at most
BATCH, FETCH, BLOCK, IDS = 16, 3, 4, 40
ALONE = "indptr: all zero"  # after it no row needs the chunks that others damage, and the library still refuses them
Tell = Callable[..., None]


@dataclass
class Plan:
    """All that a case is: a function of (seed, number).

    change: the kind of a change that is made while the store is open, after `change_after` minibatches.
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
        """Whether all that is done is to strike bytes."""
        return self.change is None and set(self.kinds) <= mutate.BLIND

    def rng(self, purpose: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, self.number, purpose])

    def json(self) -> str:
        return json.dumps(asdict(self), indent=2)


def damage(plan: Plan, store: Store) -> list[str]:
    """Applies the kinds of the plan; what each did. One that does not apply after those before it does nothing."""
    did, rng = [], plan.rng(1)
    for kind in plan.kinds:
        try:
            did.append(f"{kind}: {mutate.KINDS[kind].apply(store, rng)}")
        except Exception as error:  # the store is damaged: the libraries that mutate it may fail in any way
            did.append(f"{kind}: not applied, {type(error).__name__}: {error}")
    store.age()
    return did


def read(plan: Plan, store: Store, open_source: Callable, tell: Tell) -> None:
    """The stage of our reader: tells each phase before it and what came of it; puts the rows beside the store."""
    warnings.simplefilter("ignore")
    tell(phase="open")
    reading = Reading(plan, store, open_source, tell)
    rows = reading.run()
    tell(phase="after")
    _tell_what_is_left(store, tell)
    if rows is not None:
        differ = [compared.differing(each, compared.of_matrix(truth())) for each in rows]
        tell(equal_truth=all(each == set() for each in differ), differing=_summary(differ))
        (store.folder.parent / "rows").write_bytes(pickle.dumps(rows))


def compare(plan: Plan, store: Store, tell: Tell) -> None:
    """The stage of the reference, and its comparison with the rows of our reader."""
    warnings.simplefilter("ignore")
    try:
        found = compared.of_matrix(reference(forms()[plan.form], store.folder))
    except BaseException as error:
        tell(reference="refuses", why=f"{type(error).__name__}: {error}"[:300])
        return
    tell(reference="reads")
    path = store.folder.parent / "rows"
    if path.exists():
        rows = pickle.loads(path.read_bytes())
        differ = [compared.differing(each, found) for each in rows]
        before = [compared.differing(each, compared.of_matrix(truth())) for each in rows]
        pairs = list(zip(before, differ, strict=True))
        if plan.change:  # each epoch wholly as before the change, or wholly as after it
            tell(equal_either=all(set() in pair for pair in pairs))
        # Of two bytes that were struck, one may matter to the library alone, and the other to both.
        tell(each_row_of_either=all(None not in pair and not pair[0] & pair[1] for pair in pairs))
        tell(equal_reference=all(each == set() for each in differ), differing_reference=_summary(differ))


def _summary(differ: list[set[int] | None]) -> list[str]:
    return ["another shape" if each is None else f"{len(each)} rows {sorted(each)[:5]}" for each in differ]


class Reading:
    """Two epochs and some rows by their ids, through our reader."""

    def __init__(self, plan: Plan, store: Store, open_source: Callable, tell: Tell) -> None:
        self.plan, self.store, self.open_source, self.tell = plan, store, open_source, tell
        self.batches = 0
        self.changed = plan.change is None

    def run(self) -> list[Counts] | None:
        """The counts of each epoch; None after an error, of which is told."""
        source = None
        try:
            try:
                source = self.open_source(
                    forms()[self.plan.form], self.store.folder, self.plan.output, self.plan.threads
                )
                self.change_if_due()
                self.tell(phase="read")
                return self.read(source)
            finally:
                if source is not None:
                    source.close()
        except WrongRowsError as error:
            self.tell(ours="invalid", message=str(error))
        except BaseException as error:
            self.tell(ours="error", **_described(error, self.store))
        return None

    def read(self, source: Any) -> list[Counts]:
        from loadstone import BlockLoader, BlockShuffling

        n, found = len(source), []
        loader = BlockLoader(source, sampler=BlockShuffling(BLOCK), batch_size=BATCH, fetch_factor=FETCH)
        for _ in range(2):
            found.append(self.gathered(((batch.rows, batch.x) for batch in loader), n, np.arange(n)))
        self.tell(n_rows=n, n_genes=found[0].n_genes)
        if hasattr(type(source), "__getitem__") and n:
            ids = self.plan.rng(2).integers(0, n, IDS)
            picked = self.gathered(iter([(ids, source[ids])]), n, ids, each_once=False)
            whole = found[0]
            mask = np.isin(whole.row, ids)
            part = whole._replace(row=whole.row[mask], gene=whole.gene[mask], value=whole.value[mask])
            if not self.plan.change and compared.differing(part, picked) != set():
                raise WrongRowsError("source[ids] differs from the minibatches")
        self.tell(ours="rows")
        return found

    def gathered(self, batches: Iterator, n: int, expected: np.ndarray, each_once: bool = True) -> Counts:
        """All counts of some minibatches; WrongRowsError unless they are of the rows expected."""
        seen, found, n_genes = [], [], 0
        for ids, x in batches:
            n_genes = x.shape[1]
            try:
                row, gene, value = compared.entries(x, n_genes)
            except ValueError as error:
                raise WrongRowsError(str(error)) from error
            if x.shape[0] != len(ids):
                raise WrongRowsError(f"a minibatch of {len(ids)} ids has {x.shape[0]} rows")
            if not each_once:  # a row that was asked for twice counts once
                first = np.zeros(len(ids), bool)
                first[np.unique(ids, return_index=True)[1]] = True
                row, gene, value = row[first[row]], gene[first[row]], value[first[row]]
            seen.append(ids)
            found.append((ids[row], gene, value))
            self.batches += 1
            self.change_if_due()
        seen = np.concatenate([np.empty(0, np.int64), *seen])
        if not np.array_equal(np.sort(seen), np.sort(expected)):
            raise WrongRowsError(f"{len(seen)} rows came, of {len(expected)}")
        columns = [np.concatenate([np.empty(0, t), *each]) for t, each in _columns(found)]
        return compared.counts(n, n_genes, *columns)

    def change_if_due(self) -> None:
        if not self.changed and self.batches >= self.plan.change_after:
            self.changed = True
            self.tell(change=mutate.CHANGES[self.plan.change](self.store, self.plan.rng(3)))


class WrongRowsError(Exception):
    """What was delivered is wrong by itself."""


def _columns(found: list[tuple]) -> list[tuple]:
    columns = list(zip(*found, strict=True)) or [(), (), ()]
    return list(zip((np.int64, np.int64, np.float32), columns, strict=True))


def _described(error: BaseException, store: Store) -> dict[str, object]:
    """An error as the user meets it, and why it would be no clear sentence to one."""
    text = str(error)
    paths = {str(store.folder / path) for path in store.form.paths}
    faults = []
    if not isinstance(error, OSError | ValueError):
        faults.append(f"it is a {type(error).__name__}")
    if not any(path in text for path in paths):
        faults.append("it names no file")
    if "\n" in text.strip() or len(text) > MESSAGE_CHARACTERS:
        faults.append(f"it has {len(text)} characters in {len(text.splitlines())} lines")
    trace, at = error.__traceback__, []
    while trace:
        at.append(f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno} {trace.tb_frame.f_code.co_name}")
        trace = trace.tb_next
    return {"error": type(error).__name__, "message": text[:1000], "faults": faults, "trace": at[-6:]}


def _tell_what_is_left(store: Store, tell: Tell) -> None:
    """Threads and open files of the store that outlive the reading."""
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
    tell(left=[*threads, *sorted(set(files))])
