"""Producers as Ray actors."""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from loadstone.fleet.produce import Plan, Producer
from loadstone.fleet.wire import Slab, TokenSlab
from loadstone.sampling.resuming import Span

RECIPES_OPEN = 4  # at the same time in an actor, unless more are in use


@dataclass(kw_only=True)
class Opened:
    """A producer, and the number of calls that use it."""

    producer: Producer
    users: int = 0


class Actor:
    """A producer for every recipe that it is asked for. It opens the files of a recipe when it first needs them.

    key: of a recipe; ranks of the same program have the same. recipe: a list of one reference to the pickled recipe,
    which Ray therefore does not fetch with every call.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.opened: dict[str, Opened] = {}  # the one used last is the last

    def plan(self, key: str, recipe: Sequence[Any], epoch: int) -> Plan:
        with self._using(key, recipe) as producer:
            return producer.plan(epoch)

    def produce(self, key: str, recipe: Sequence[Any], epoch: int, spans: Sequence[Span]) -> Slab | TokenSlab:
        with self._using(key, recipe) as producer:
            return producer.produce(epoch, spans)

    def pid(self) -> int:
        return os.getpid()

    @contextmanager
    def _using(self, key: str, recipe: Sequence[Any]) -> Iterator[Producer]:
        """The producer of a recipe, which stays open until the end of the `with` block."""
        with self.lock:
            opened = self.opened.pop(key, None) or Opened(producer=_open(recipe))
            self.opened[key] = opened
            opened.users += 1
            idle = [key for key, each in self.opened.items() if not each.users]
            for old in idle[: max(0, len(self.opened) - RECIPES_OPEN)]:
                self.opened.pop(old).producer.close()
        try:
            yield opened.producer
        finally:
            with self.lock:
                opened.users -= 1


def _open(recipe: Sequence[Any]) -> Producer:
    import ray
    from ray import cloudpickle

    # The bytes are copied when they are got. Arrays would be views, and keep the recipe in the object store.
    return Producer(cloudpickle.loads(ray.get(recipe[0])))
