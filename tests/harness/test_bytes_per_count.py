"""The bytes of a count are those of the files, and all rows describe the cells that they name."""

from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.sparse as sp

from harness.data import catalogue
from harness.data.dataset import Dataset
from harness.errors import UserError
from harness.experiments import bytes_per_count
from tests import tiny


@pytest.fixture(autouse=True)
def little_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bytes_per_count, "TIMED_COUNTS", 1_000)


def test_the_first_row_is_of_all_files_and_the_others_of_the_first(tiny_set: Dataset) -> None:
    as_stored, long_chunks, wide, dealt = bytes_per_count.rows_of(tiny_set)
    x = tiny.truth()
    assert (as_stored.cells, as_stored.counts) == (tiny.N, np.count_nonzero(x))
    assert as_stored.whole == sum(path.stat().st_size for path in tiny_set.paths) / as_stored.counts
    stored = 0
    for path in tiny_set.paths:
        with h5py.File(path) as file:
            stored += file["X/indices"].id.get_storage_size()
    assert as_stored.indices_bytes == stored / as_stored.counts
    first = sp.csr_matrix(x[: tiny.LENGTHS[0]])
    for row in (long_chunks, wide, dealt):
        assert (row.cells, row.counts, row.whole) == (*first.shape[:1], first.nnz, None)
        assert row.distinct == as_stored.distinct == len(np.unique(first.data))
    assert wide.arrays[0].dtype == np.int64
    assert wide.bits == long_chunks.bits == as_stored.bits


def test_the_bits_are_the_entropy_of_gaps_and_counts() -> None:
    matrix = sp.csr_matrix(np.array([[0, 1, 0, 1], [0, 2, 0, 2], [0, 0, 0, 0], [0, 3, 3, 0]], np.float32))
    ones, distinct, (gap, count) = bytes_per_count._statistics(matrix)
    assert (ones, distinct) == (1 / 3, 3)
    assert gap == pytest.approx(-(4 * np.log2(4 / 6) + 2 * np.log2(2 / 6)) / 6)  # 1, 2; 1, 2; 1, 1
    assert count == pytest.approx(np.log2(3))


def test_shuffling_keeps_the_counts_of_each_gene() -> None:
    matrix = sp.random(60, 20, 0.3, "csr", dtype=np.float32, rng=np.random.default_rng(0))
    dealt = bytes_per_count.shuffled(matrix)
    assert dealt.has_canonical_format
    assert (dealt != matrix).nnz > 0
    for one, other in zip(matrix.toarray().T, dealt.toarray().T, strict=True):
        assert np.array_equal(np.sort(one), np.sort(other))


def test_fewer_genes_have_the_counts_asked_for() -> None:
    rng = np.random.default_rng(0)
    matrix = sp.csr_matrix((rng.random((200, 400)) < np.linspace(0, 0.6, 400)).astype(np.float32))
    narrow = bytes_per_count.narrowed(matrix, 50, 20)
    assert narrow.shape == (200, 50)
    assert narrow.nnz / 200 == pytest.approx(20, rel=0.2)
    assert bytes_per_count.narrowed(matrix, 50, 1_000).nnz > narrow.nnz  # as many as there are


def test_the_table_has_a_row_for_each_way_to_store_each_data_set(tiny_set: Dataset) -> None:
    lines = bytes_per_count.table(bytes_per_count.rows_of(tiny_set, [tiny_set])).splitlines()
    assert len(lines) == 2 + 4  # the other data set does not have fewer genes
    assert len({line.count("|") for line in lines}) == 1


def test_files_that_are_not_compressed_with_gzip_are_refused(tmp_path: Path) -> None:
    import anndata as ad

    ad.AnnData(sp.csr_matrix(tiny.truth())).write_h5ad(tmp_path / "plain.h5ad")
    with pytest.raises(UserError, match="is not an array compressed with gzip"):
        bytes_per_count.rows_of(catalogue.load(str(tmp_path / "plain.h5ad")))
