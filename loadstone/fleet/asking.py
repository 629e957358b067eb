"""Asks producers for fetches, in order, a few ahead; and again, if a producer is lost or slow."""

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from statistics import median
from typing import Any, NamedTuple

from loadstone.fleet import cluster
from loadstone.fleet.produce import Plan, Recipe
from loadstone.fleet.wire import Slab, TokenSlab
from loadstone.sampling.resuming import Span

FIRST_PATIENCE_S = 30.0  # after which another producer is asked too, while none has answered: they open files
LEAST_PATIENCE_S, PATIENCE = 2.0, 4  # later: PATIENCE times the usual time of an answer, and no less than the former
RECENT = 15  # answers, whose median time is the usual one
MOST_ASKED = 2  # producers at a time for the same fetch
LOOK_S = 1.0  # between two looks at which producers there are
AVOID_S = 1.0  # how long others are preferred to a producer that was lost
SLOW_S = 30.0  # how long a producer that was late counts as busier than it is, by SLOW_FETCHES
SLOW_FETCHES = 2 * cluster.FETCHES_AT_ONCE


class Asked(NamedTuple):
    """A fetch that was asked for.

    method, arguments: of the actors. answers: the producers that are asked, by the references of their answers, in the
    order of time. tried: the producers that were asked so far. since: when the first was asked.
    """

    method: str
    arguments: tuple[Any, ...]
    answers: dict[Any, str]
    tried: set[str]
    since: float


class Asking:
    """A consumer's view of the fleet.

    first: how many of the producers to pass over before the first that is asked, so that ranks begin with different
    ones. wait_s: how long to wait for a producer if there is none, in seconds.
    """

    def __init__(self, recipe: Recipe, *, first: int, wait_s: float) -> None:
        ray = cluster.import_ray()
        pickled = ray.cloudpickle.dumps(recipe)
        self.key = blake2b(pickled, digest_size=16).hexdigest()  # ranks share what producers opened
        self.recipe, self.recipe_bytes = [ray.put(pickled)], len(pickled)
        self.first, self.wait_s = first, wait_s
        self.actors: dict[str, Any] = {}
        self.busy: dict[str, int] = {}
        self.avoided: dict[str, float] = {}  # until when, as in `late`
        self.late: dict[str, float] = {}
        self.looked = 0.0
        self.taken_s: deque[float] = deque(maxlen=RECENT)  # of the last answers; a producer's first opens the files

    def plan(self, epoch: int) -> Plan:
        """What a producer says of the epochs. Errors: `fetches`.

        All producers are asked, so that they open the files at the same time. Only one answer is waited for.
        """
        asked = self._ask("plan", epoch)
        for name in self.actors.keys() - asked.tried:
            self._call(name, asked)
        return self._answer(asked)

    def producers(self) -> int:
        """The number of producers when it was last looked."""
        return len(self.actors)

    def fetches(self, epoch: int, wanted: Iterable[Sequence[Span]], ahead: int) -> Iterator[Slab | TokenSlab]:
        """The rows at the given positions of an epoch's order, in the order in which they are wanted.

        ahead: the number of fetches that are asked for beyond the one that was yielded last. When the iterator is
        closed, they are let go: producers that have not begun with them will not.

        Raises the error that a producer raised, such as OSError or ValueError for a damaged file; ConnectionError if
        there has been no producer for `wait_s` seconds.
        """
        coming = iter(wanted)
        under_way: deque[Asked] = deque()

        def ask_ahead() -> None:
            while len(under_way) < ahead and (spans := next(coming, None)) is not None:
                under_way.append(self._ask("produce", epoch, spans))

        try:
            ask_ahead()
            while under_way:
                answer = [self._answer(under_way[0])]
                under_way.popleft()  # with its reference, so that the slab is let go when the consumer does so
                ask_ahead()
                yield answer.pop()
        finally:
            for asked in under_way:
                self._drop(asked, len(asked.answers))

    def _ask(self, method: str, *arguments: Any) -> Asked:
        asked = Asked(method, arguments, {}, set(), time.monotonic())
        self._ask_one(asked)
        return asked

    def _ask_one(self, asked: Asked) -> None:
        """Asks one more producer, which was not tried yet, if there is one."""
        while (name := self._least_busy(asked.tried)) is None:
            if asked.answers:
                return
            asked.tried.clear()
        asked.answers[self._call(name, asked)] = name
        asked.tried.add(name)
        self.busy[name] = self.busy.get(name, 0) + 1

    def _call(self, name: str, asked: Asked) -> Any:
        return getattr(self.actors[name], asked.method).remote(self.key, self.recipe, *asked.arguments)

    def _least_busy(self, without: set[str]) -> str | None:
        """The name of a producer; None if there is none besides `without`. ConnectionError if there is none at all."""
        start = time.monotonic()
        while True:
            now = time.monotonic()
            if now - self.looked > LOOK_S or not self.actors:
                self.actors, self.looked = cluster.find(), now
            names = list(self.actors)
            turned = names[(place := self.first % max(1, len(names))) :] + names[:place]
            free = [name for name in turned if name not in without]
            if free:
                return min(free, key=lambda name: self._burden(name, now))
            if names:
                return None
            if now - start > self.wait_s:
                raise ConnectionError(
                    f"the cluster has had no producers for {self.wait_s:.0f} s: start them with `python -m "
                    f"loadstone.fleet up --producers 4 --address {_address()}`"
                )
            time.sleep(min(LOOK_S, self.wait_s) / 4)

    def _burden(self, name: str, now: float) -> tuple[bool, int, bool]:
        """The larger, the less a producer should be asked.

        One that was late still gets fetches when all others have SLOW_FETCHES more: perhaps it opened files, and if all
        were late but one, that one must not do all the work.
        """
        is_late = self.late.get(name, 0) > now
        return self.avoided.get(name, 0) > now, self.busy.get(name, 0) + is_late * SLOW_FETCHES, is_late

    def _answer(self, asked: Asked) -> Any:
        """Waits for the first answer. What was lost is asked for again, and what is late also of another producer."""
        ray = cluster.import_ray()
        from ray.exceptions import RayError, RayTaskError

        patience = max(LEAST_PATIENCE_S, PATIENCE * median(self.taken_s)) if self.taken_s else FIRST_PATIENCE_S
        since, lost_since = asked.since, 0.0
        while True:
            left = max(0.0, since + patience - time.monotonic())
            ready, _ = ray.wait(list(asked.answers), num_returns=1, timeout=left)
            if not ready:
                # A reference more than MOST_ASKED is dropped. Since the patience grows, a producer that is merely slow
                # is in the end given the time that it needs.
                patience *= 2
                since = time.monotonic()
                self._ask_one(asked)
                self._drop(asked, len(asked.answers) - MOST_ASKED)
                continue
            name = asked.answers.pop(ready[0])
            self.busy[name] -= 1
            try:
                answer = ray.get(ready[0])
            except RayError as error:
                cause = error.cause if isinstance(error, RayTaskError) else None
                if isinstance(cause, Exception) and not isinstance(cause, RayError):
                    self._drop(asked, len(asked.answers))
                    raise cause from error
                # The producer, or the machine that held its answer, is lost.
                lost_since = lost_since or time.monotonic()
                self._avoid(name, error, lost_since)
                if not asked.answers:
                    self._ask_one(asked)
                    since = time.monotonic()
                continue
            if asked.method == "produce":  # before a plan, files are opened, which says nothing of what follows
                self.late |= {other: time.monotonic() + SLOW_S for other in asked.answers.values()}
                # From the question to when the answer was seen, which is later than it came if the consumer is slow.
                # Too much patience costs a wait if a producer hangs; with too little, slow ones are asked in vain.
                self.taken_s.append(time.monotonic() - asked.since)
            self._drop(asked, len(asked.answers))
            return answer

    def _avoid(self, name: str, error: Exception, since: float) -> None:
        """Prefers other producers for a while. ConnectionError if answers have been lost for `wait_s` seconds."""
        now = time.monotonic()
        if now - since > self.wait_s:
            raise ConnectionError(
                f"every producer that was asked for this fetch in {self.wait_s:.0f} s was lost; the last: {error}"
            ) from error
        if all(self.avoided.get(other, 0) > now for other in self.actors):
            time.sleep(AVOID_S / 4)  # none is left that was not lost just now
        self.avoided = {other: until for other, until in self.avoided.items() if until > now} | {name: now + AVOID_S}
        self.looked = 0.0

    def _drop(self, asked: Asked, n: int) -> None:
        """Lets go the first `n` answers that are under way."""
        ray = cluster.import_ray()
        for reference in list(asked.answers)[: max(0, n)]:
            self.busy[asked.answers.pop(reference)] -= 1
            if ray.is_initialized():
                ray.cancel(reference, force=False, recursive=False)


def _address() -> str:
    return cluster.import_ray().get_runtime_context().gcs_address
