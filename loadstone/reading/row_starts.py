"""Where the rows of a CSR matrix begin, in 4 bytes a row. An atlas has 100 million, and indptr 8 bytes for each."""

import numpy as np

from loadstone.codecs.compiled import compiled

GROUP = 1_024  # rows for which one start of 8 bytes is kept
MOST = 2**32 - 1  # values in a group


class RowStarts:
    """The first element of each row. Row i has the elements from its start up to the start of row i + 1.

    base: the start of every GROUP-th row, int64 (groups,). beyond: what the start of each row, and the end of the last
    one, has beyond the base of its group, uint32 (rows + 1,). `of` makes them, and `check` validates them.
    """

    def __init__(self, base: np.ndarray, beyond: np.ndarray) -> None:
        self.base, self.beyond = base, beyond

    @classmethod
    def of(cls, name: str, indptr: np.ndarray) -> "RowStarts":
        """The row starts of a valid indptr, int64 (rows + 1,). ValueError, with `name`, for a group of too many values.

        name: the file and the array, for the message.
        """
        base = indptr[::GROUP].copy()
        most = int(np.max(np.append(base[1:], indptr[-1]) - base))
        if most > MOST:
            raise ValueError(f"{name}: {GROUP:,} rows have {most:,} values, and can have {MOST:,}")
        beyond = np.empty(len(indptr), np.uint32)
        _write_beyond(indptr, beyond)
        return cls(base, beyond)

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.beyond) - 1

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """The starts of these rows, int64 (n,). rows: int64 (n,); not checked."""
        return self.base[rows // GROUP] + self.beyond[rows]

    @property
    def total(self) -> int:
        """The number of elements of all rows."""
        return int(self.base[-1]) + int(self.beyond[-1])

    def whole(self) -> np.ndarray:
        """The starts of all rows, int64 (rows,)."""
        starts = np.empty(len(self), np.int64)
        _write_whole(self.base, self.beyond, starts)
        return starts

    def row_of(self, element: int) -> int:
        """The last row that begins at or before this element, which is the row that has it."""
        group = max(0, int(np.searchsorted(self.base, element, "right")) - 1)
        within = self.beyond[group * GROUP : (group + 1) * GROUP]
        return group * GROUP + int(np.searchsorted(within, element - self.base[group], "right")) - 1

    def check(self, n_elements: int) -> bool:
        """Whether the starts begin with 0, never decrease, and end with n_elements."""
        fit = len(self.base) == -(-len(self.beyond) // GROUP) > 0
        return bool(fit and self.base[0] == 0 and self.total == n_elements and _ascends(self.base, self.beyond))


@compiled
def _write_beyond(indptr, beyond):
    for i in range(len(indptr)):
        beyond[i] = indptr[i] - indptr[i // GROUP * GROUP]


@compiled
def _write_whole(base, beyond, starts):
    for group in range(len(base)):
        for i in range(group * GROUP, min((group + 1) * GROUP, len(starts))):
            starts[i] = base[group] + np.int64(beyond[i])


@compiled
def _ascends(base, beyond):
    last = np.int64(0)
    for i in range(len(beyond)):
        start = base[i // GROUP] + np.int64(beyond[i])
        if start < last:
            return False
        last = start
    return True
