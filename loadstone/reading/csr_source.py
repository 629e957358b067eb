"""What all sources of CSR rows share: threads that decode a fetch into one buffer, and minibatches cut from it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.sparse import csr_matrix

from loadstone.reading.ahead import Ahead
from loadstone.reading.buffers import Memory
from loadstone.reading.disk import Disk, measured
from loadstone.reading.files import Files
from loadstone.reading.gathering import Gathering
from loadstone.reading.minibatches import Minibatches, Output, Rows
from loadstone.reading.threads import decoding
from loadstone.reading.validate import row_ids
from loadstone.remote.staging import Staging

TASKS_PER_THREAD = 4  # at least, if a fetch is large enough, so that all threads finish at about the same time


class CsrSource(ABC):
    """Rows of a CSR matrix on disk or in object storage. `close` ends the threads and closes `files`.

    output: the form of the minibatches, see `Minibatches`. threads: the number of decoding threads; None: the number of
    cores available to the process. disk: what reads from the files cost; None: it is measured. ValueError for an
    invalid `output` or `threads`.
    """

    def __init__(self, n_genes: int, *, output: Output, threads: int | None, disk: Disk | None, files: Files) -> None:
        self.minibatches = Minibatches(n_genes, output)
        self.n_genes, self.files = n_genes, files
        self.pool, self.threads = decoding(threads)
        self.ahead = Ahead(self.threads)
        self.staging = Staging(files.objects) if files.objects else None
        self.disk = disk or (self.staging.measured() if self.staging else measured(files.sizes()))
        self.memory = Memory()

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def n_values(self) -> int:
        """The number of values of all rows."""

    @abstractmethod
    def gather(self, rows: np.ndarray) -> Gathering:
        """Starts to read the rows with these ids, in this order. `Gathering.result` returns them as `Rows`.

        rows: int64 (n,); ids may repeat. The ids are not checked.
        """

    @property
    def row_bytes(self) -> float:
        """The mean size in bytes of a row as CSR, float32 and int32."""
        return 8 * self.n_values / max(1, len(self)) + 8

    def __getitem__(self, rows: np.ndarray) -> csr_matrix:
        """The rows with these ids, in this order, float32 (len(rows), n_genes); CSR for any `output`.

        IndexError for an id that is not a whole number from 0 to len - 1. Errors in the files: OSError or ValueError.
        """
        rows = row_ids(rows, len(self))
        return csr_matrix(tuple(self.gather(rows).result()), shape=(len(rows), self.n_genes))

    def batches(self, fetched: Rows, cuts: Sequence[int]) -> Iterator[csr_matrix | np.ndarray]:
        """Yields the minibatches of a fetch. Minibatch i has the rows cuts[i] to cuts[i + 1] of the fetch."""
        yield from self.minibatches.cut(fetched, cuts)

    def close(self) -> None:
        self.pool.shutdown(cancel_futures=True)
        if self.staging:
            self.staging.close()
        self.files.close()

    def _buffer(self, by_place: np.ndarray, lengths: np.ndarray) -> tuple[Rows, np.ndarray]:
        """(the rows of a fetch without their values, where the values of each row go).

        by_place: the positions in the fetch of the rows in the order of the files, int64 (rows,). lengths: the numbers
        of values of the rows in the order of the files, int64 (rows,), as is the second result.
        """
        indptr = np.zeros(len(by_place) + 1, np.int64)
        indptr[1:][by_place] = lengths
        np.cumsum(indptr, out=indptr)
        fetched = Rows(self.memory.empty(indptr[-1], np.float32), self.memory.empty(indptr[-1], np.int32), indptr)
        return fetched, indptr[by_place]
