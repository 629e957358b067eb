"""Producers on other cores or machines read and decode; consumers train, and have little to do.

    python -m loadstone.fleet up --producers 4

`FleetDataset` is what a rank trains from; docs/scale-out.md has complete programs. A producer has no state: which cells
a fetch has is a function of the seed, the epoch and its place, so any producer can make any fetch, and one that is
lost takes nothing with it. produce.py makes a fetch, wire.py narrows it, and both know no Ray; actors.py has the
producers on Ray, cluster.py starts and finds them, asking.py asks them, and dataset.py is the consumer.
"""

from typing import TYPE_CHECKING, Any

from loadstone.fleet.cluster import start

if TYPE_CHECKING:
    from loadstone.fleet.dataset import FleetDataset

__all__ = ["FleetDataset", "start"]


def __getattr__(name: str) -> Any:
    # A producer imports this package too, and has no use for torch.
    if name == "FleetDataset":
        from loadstone.fleet.dataset import FleetDataset

        return FleetDataset
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
