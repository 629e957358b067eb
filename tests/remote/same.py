"""Whether objects in object storage give the minibatches of the files on a disk."""

from contextlib import closing
from pathlib import Path

from loadstone import BlockLoader, BlockShuffling, open_h5ad
from tests import tiny

PLAN = {"fetch_factor": 4, "batch_size": 16, "sampler": BlockShuffling(8), "seed": 3}


def assert_same_minibatches(paths: list[Path], urls: list[str], output: str = "csr", **options: object) -> None:
    """Two epochs of the tiny data set are the same from the files and from the objects, bit for bit.

    options: of `open_h5ad` for the objects.
    """
    with (
        closing(BlockLoader(open_h5ad(paths, output=output), **PLAN)) as local,
        closing(BlockLoader(open_h5ad(urls, output=output, **options), **PLAN)) as remote,
    ):
        rows = 0
        for _ in range(2):
            for a, b in zip(local, remote, strict=True):
                assert a.rows.tobytes() == b.rows.tobytes()
                for x, y in zip(parts(a.x), parts(b.x), strict=True):
                    assert x.tobytes() == y.tobytes()
                rows += len(a.rows)
        assert rows == 2 * tiny.N


def parts(x: object) -> tuple:
    """The arrays of a minibatch, CSR or dense."""
    return (x.data, x.indices, x.indptr) if hasattr(x, "indptr") else (x,)
