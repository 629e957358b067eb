"""A program for test_nodes.py: a cluster with two nodes of producers, of which one is removed while cells are read."""

import sys
from functools import partial
from pathlib import Path

import ray
from ray.cluster_utils import Cluster

from loadstone import open_h5ad
from loadstone.fleet import FleetDataset, cluster
from tests.fleet.conftest import SETTINGS

paths = sorted(Path(sys.argv[1]).glob("*.h5ad"))
nodes = Cluster(
    initialize_head=True,
    head_node_args={"num_cpus": 0, "object_store_memory": 100 << 20, "include_dashboard": False},
)
removed, _ = (nodes.add_node(num_cpus=1, object_store_memory=100 << 20) for _ in range(2))
cluster.connect(nodes.address)
try:
    actors = cluster.start(2)
    print("producers", cluster.running(actors, 120), flush=True)
    dataset = FleetDataset(partial(open_h5ad, paths, threads=1), **SETTINGS, ahead=4)
    expected = [row for batch in dataset for row in batch["rows"].tolist()]
    dataset.set_epoch(0)
    rows = []
    for i, batch in enumerate(dataset):
        rows += batch["rows"].tolist()
        if i == 10:
            nodes.remove_node(removed, allow_graceful=False)
    print("the same cells", rows == expected and sorted(rows) == list(range(int(sys.argv[2]))), flush=True)
finally:
    ray.shutdown()
    nodes.shutdown()
