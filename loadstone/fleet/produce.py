"""Makes fetches: what a producer does, in whatever process it runs."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from loadstone.fleet.wire import Slab, TokenSlab, slab
from loadstone.loader import BlockLoader, Source
from loadstone.reading.buffers import Memory
from loadstone.reading.csr_source import CsrSource
from loadstone.sampling.orders import Order, rows_at
from loadstone.sampling.resuming import Length, Span
from loadstone.tokens import Frame
from loadstone.tokens.packing import packed, token_bytes

TOKENIZED_AT_ONCE = 64  # cells, whose tokens with padding stay in the processor's cache
EPOCHS_KEPT = 2  # orders in memory; at the turn of an epoch, ranks ask for both


@dataclass(frozen=True, eq=False, kw_only=True)
class Recipe:
    """What a producer needs to make fetches. It must be picklable.

    open_source: opens the source, for example `partial(open_h5ad, urls)`. arguments: of `BlockLoader`, without rank,
    ranks, worker and workers. tokens: how cells are encoded before they are sent; None: they are sent as they are.
    """

    open_source: Callable[[], Source]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    tokens: Frame | None = None


class Plan(NamedTuple):
    """What a consumer needs to know: the length of every epoch in rows, and the sizes that the loader chose.

    n_cells, n_genes: of the source. block_size: 0 if the sampler has no blocks. row_bytes: the mean size of a row on
    the wire, if its values are no whole numbers; counts take less. Of tokens, it is the size of the longest row.
    """

    length: Length
    n_cells: int
    batch_size: int
    block_size: int
    n_genes: int
    row_bytes: float


class Producer:
    """Makes the fetches of one recipe. All methods but `close` may be called by several threads at the same time.

    Raises OSError or ValueError that opening raises, and ValueError for invalid arguments of the recipe, or if the
    source is none of CSR.
    """

    def __init__(self, recipe: Recipe) -> None:
        source = recipe.open_source()
        try:
            if not isinstance(source, CsrSource):
                raise ValueError(
                    f"a fleet sends the rows of files that store CSR, and this source is {type(source).__name__}"
                )
            self.loader = BlockLoader(source, **recipe.arguments)
        except BaseException:
            source.close()
            raise
        self.source, self.tokens = source, recipe.tokens
        self.lock = threading.Lock()
        self.orders: dict[int, Order] = {}
        self.memory = Memory()  # of slabs, which are sent as copies

    def plan(self, epoch: int) -> Plan:
        """What a consumer needs to know. The order of `epoch` is kept, since its fetches come next."""
        order, source = self._order(epoch), self.source
        value = 2 + 4 if source.n_genes <= 2**16 else 4 + 4  # if the values are not whole numbers
        row_bytes = value * source.n_values / max(1, len(source)) + 16
        if self.tokens:
            row_bytes = token_bytes(self.tokens) * self.tokens.length + 16
        return Plan(
            Length(order.n_rows, order.fetch_rows),
            len(source),
            self.loader.batch_size,
            getattr(self.loader.sampler, "block_size", 0),
            source.n_genes,
            row_bytes,
        )

    def produce(self, epoch: int, spans: Sequence[Span]) -> Slab | TokenSlab:
        """The rows at these positions of the order of an epoch. OSError or ValueError for damaged files.

        ValueError also for cells that cannot be encoded as tokens.
        """
        order, source = self._order(epoch), self.source
        ids = np.concatenate([rows_at(order, start, stop) for start, stop in spans])
        with self.lock:
            gathering = source.gather(ids)
        if self.tokens is None:
            return slab(ids, gathering.result(), source.n_genes, self._empty)
        cuts = [*range(0, len(ids), TOKENIZED_AT_ONCE), len(ids)]
        return TokenSlab(ids, packed(map(self.tokens, source.batches(gathering.result(), cuts)), self.tokens))

    def close(self) -> None:
        self.loader.close()

    def _empty(self, n: int, dtype: type) -> np.ndarray:
        with self.lock:
            return self.memory.empty(n, dtype)

    def _order(self, epoch: int) -> Order:
        with self.lock:
            order = self.orders.pop(epoch, None) or self.loader.order(epoch)
            self.orders = {**dict(list(self.orders.items())[1 - EPOCHS_KEPT :]), epoch: order}
            return order
