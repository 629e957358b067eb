"""Shared fixtures: producers on the Ray cluster of this machine, and a view of its object store."""

import gc
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
pytest.importorskip("ray")
pytest.importorskip("torch")

import ray
from ray._private.internal_api import node_stats

from loadstone import BlockShuffling, open_h5ad
from loadstone.fleet import FleetDataset, cluster
from loadstone.loader import Source
from tests.conftest import until

SETTINGS = {"sampler": BlockShuffling(4), "batch_size": 16, "fetch_factor": 2}  # 32 fetches of the tiny set


@pytest.fixture
def producers(ray_cluster: str) -> Iterator[Callable[[int], list]]:
    """A function that starts some producers and waits until they run. They end with the test."""
    actors: list = []

    def start(n: int) -> list:
        started = cluster.start(n, cpus=0.5)
        actors.extend(started)
        assert cluster.running(started, 120) == n
        return started

    gc.collect()  # Ray's error for a lost producer and what had asked it are in a cycle of references
    until(lambda: not cluster.find())
    yield start
    for actor in actors:
        ray.kill(actor)


@pytest.fixture
def opened(tiny_folder: Path) -> Callable[[], Source]:
    """What opens the tiny set."""
    return partial(open_h5ad, sorted(tiny_folder.glob("*.h5ad")), threads=1)


@pytest.fixture
def fleet(opened: Callable[[], Source]) -> Callable[..., FleetDataset]:
    """A function that returns a data set of the tiny set: SETTINGS, unless arguments say otherwise."""
    return lambda **arguments: FleetDataset(opened, **(SETTINGS | arguments))


def rows_of(batches: object) -> list[int]:
    """The ids of the rows of all minibatches."""
    return [row for batch in batches for row in batch["rows"].tolist()]


def in_store() -> tuple[int, int]:
    """(bytes that lie in the object store of the cluster of this machine, bytes that were spilled from it so far)."""
    (node,) = (node for node in ray.nodes() if node["Alive"])
    stats = node_stats(node["NodeManagerAddress"], node["NodeManagerPort"], include_memory_info=False).store_stats
    return stats.object_store_bytes_used, stats.spilled_bytes_total


CONSUMER = f"""
import json, os, sys, time
from functools import partial
from pathlib import Path
from loadstone import BlockShuffling, open_h5ad
from loadstone.fleet import FleetDataset
from torch.utils.data import DataLoader
paths = sorted(Path(sys.argv[1]).glob("*.h5ad"))
dataset = FleetDataset(partial(open_h5ad, paths), **{SETTINGS!r})
"""
"""A program that makes a data set of the folder in its first argument."""
PYTHON = sys.executable
