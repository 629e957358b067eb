"""Starts producers on a Ray cluster, and finds them by their names."""

import math
import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from loadstone.fleet.actors import Actor

NAMESPACE, PREFIX = "loadstone", "producer-"
FETCHES_AT_ONCE = 2  # of a producer: one is sent while the next is decoded
PROBE_S = 5.0  # to reach the cluster's address at all; Ray itself would try for minutes
NO_CLUSTER = (
    "no Ray cluster was found{where}: start producers with `python -m loadstone.fleet up --producers 4`, or name the "
    "cluster with address= or RAY_ADDRESS"
)


def import_ray() -> Any:
    """The module `ray`. ImportError if it is not installed."""
    try:
        import ray
    except ImportError as error:
        raise ImportError("a fleet runs on Ray: pip install 'loadstone[fleet]'") from error
    return ray


def connect(address: str | None) -> None:
    """Joins a cluster, unless this process is in one.

    address: HOST:PORT, or "auto" for the cluster of this machine; None: RAY_ADDRESS, or "auto". ConnectionError if
    there is none, ValueError for an address of another form, ImportError without Ray.
    """
    ray = import_ray()
    if ray.is_initialized():
        return
    address = address or os.environ.get("RAY_ADDRESS") or "auto"
    try:
        if address != "auto":
            _probe(address)
            _show_token()
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
    except ConnectionError as error:
        if address != "auto" and error.__cause__:  # something answers there, but refuses, for example for its token
            raise ConnectionError(f"the Ray cluster at {address} could not be joined: {_last_line(error)}") from error
        raise ConnectionError(NO_CLUSTER.format(where="" if address == "auto" else f" at {address}")) from error


def start(producers: int, *, cpus: float = 1) -> list[Any]:
    """Starts producers on the cluster of this process. They end when the actors that are returned are dropped.

    cpus: the cores that Ray reserves for each of them. How many threads decode in a producer is decided where the files
    are opened, for example by `open_h5ad(..., threads=1)`; the default is one for each core of the machine.
    """
    actor: Any = import_ray().remote(Actor)
    options = {"num_cpus": cpus, "max_restarts": -1, "max_concurrency": FETCHES_AT_ONCE, "namespace": NAMESPACE}
    return [actor.options(name=f"{PREFIX}{uuid.uuid4().hex[:12]}", **options).remote() for _ in range(producers)]


def running(actors: list[Any], wait_s: float) -> int:
    """The number of the producers that run, after at most `wait_s` seconds if not all of them do."""
    return len(import_ray().wait([actor.pid.remote() for actor in actors], num_returns=len(actors), timeout=wait_s)[0])


def find() -> dict[str, Any]:
    """The producers of the cluster by their names, in alphabetical order."""
    ray = import_ray()
    names = (each["name"] for each in ray.util.list_named_actors(all_namespaces=True) if each["namespace"] == NAMESPACE)
    actors = {}
    for name in sorted(name for name in names if name.startswith(PREFIX)):
        try:
            actors[name] = ray.get_actor(name, namespace=NAMESPACE)
        except ValueError:  # it ended since
            continue
    return actors


def store_bytes() -> int:
    """The size of the smallest object store in which fetches may lie: on nodes with cores, and on that of this process.

    Any of these may have to hold all fetches: those of consumers, because consumers read there, and those of producers,
    because one of them may be the last that is left.
    """
    ray = import_ray()
    own = ray.get_runtime_context().get_node_id()
    nodes = [
        node["Resources"]
        for node in ray.nodes()
        if node["Alive"] and (node["Resources"].get("CPU") or node["NodeID"] == own)
    ]
    return int(min((resources.get("object_store_memory", 0) for resources in nodes), default=0))


@contextmanager
def one_machine(producers: int, *, cpus: float, memory: int) -> Iterator[tuple[str, list[Any]]]:
    """A cluster of this machine alone with producers, until the end of the `with` block. Yields (address, producers).

    memory: of Ray's object store, in bytes. ValueError if Ray does not accept it, ImportError without Ray.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # without this, Ray would report to its authors
    ray = import_ray()
    cores = max(math.ceil(producers * cpus), len(os.sched_getaffinity(0)))
    context = ray.init(
        address="local",
        num_cpus=cores,
        object_store_memory=memory,
        include_dashboard=False,
        namespace=NAMESPACE,
        log_to_driver=False,
        configure_logging=False,
    )
    try:
        yield context.address_info["address"], start(producers, cpus=cpus)
    finally:
        ray.shutdown()


def _show_token() -> None:
    """Makes Ray send the token of this machine, if there is one. By itself it does so only to the address "auto"."""
    try:
        # Not public, but an environment variable would come too late: Ray has read them when it was imported.
        from ray._private.authentication.authentication_token_setup import maybe_enable_token_auth_if_token_available
    except ImportError:
        return  # a version whose clusters ask for no token unless they are told to
    maybe_enable_token_auth_if_token_available(warn_if_disabled=False)


def _probe(address: str) -> None:
    """Raises ConnectionError if nothing answers at HOST:PORT, and ValueError for an address of another form."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise ValueError(f"the address of a cluster is HOST:PORT or auto, not {address}")
    try:
        socket.create_connection((host, int(port)), PROBE_S).close()
    except OSError as error:
        raise ConnectionError(error) from None


def _last_line(error: BaseException) -> str:
    return (str(error.__cause__).strip() or "no reason given").splitlines()[-1]
