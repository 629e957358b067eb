"""Compiled sampling of the transcripts of synthetic cells, counted by gene."""

import numba
import numpy as np


def alias_table(p: np.ndarray, threshold: np.ndarray, alias: np.ndarray) -> None:
    """Writes Walker's alias table (Vose 1991) of the probabilities `p` to `threshold` and `alias`.

    threshold: uint32, probabilities times 2**32. alias: int32, gene indices. All arrays have shape (genes,).
    """
    scaled = p * len(p)
    _fill_alias(scaled, alias)
    threshold[:] = np.minimum(scaled * 2.0**32, 2.0**32 - 1).astype(np.uint32)


@numba.njit(nogil=True, cache=True)
def _fill_alias(scaled, alias):
    n = len(scaled)
    small, large = np.empty(n, np.int64), np.empty(n, np.int64)
    n_small = n_large = 0
    for i in range(n):
        alias[i] = i
        if scaled[i] < 1.0:
            small[n_small] = i
            n_small += 1
        else:
            large[n_large] = i
            n_large += 1
    remaining = scaled.copy()
    while n_small and n_large:
        n_small -= 1
        s, g = small[n_small], large[n_large - 1]
        scaled[s], alias[s] = remaining[s], g
        remaining[g] -= 1.0 - remaining[s]
        if remaining[g] < 1.0:
            n_large -= 1
            small[n_small] = g
            n_small += 1
    for i in range(n_large):
        scaled[large[i]] = 1.0
    for i in range(n_small):
        scaled[small[i]] = 1.0


@numba.njit(nogil=True, cache=True)
def _mix(z):
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014), which turns a counter into a random number."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@numba.njit(nogil=True, cache=True)
def sample_cells(
    stream, start, transcripts, line, drug, moa, plate, cuts, threshold, alias, of_drug, of_moa, of_plate,
    genes, counts, lengths,
):  # fmt: skip
    """Draws the transcripts of each cell and counts them by gene.

    stream: the seed of the random numbers. start: the index of the first cell. transcripts, line, drug, moa: the number
    of transcripts, the cell line, the drug and the mechanism of each cell. plate: the plate of all cells. cuts:
    (3, cells), the cumulative shares of the transcripts that come from genes of the drug, the mechanism and the plate.
    threshold, alias: (lines, genes), the alias tables of the cell lines' profiles. of_drug, of_moa, of_plate: the genes
    that respond to each drug, mechanism or plate, one row for each of them.

    Writes the genes (ascending in each cell) and counts of all cells to `genes` and `counts`, and the number of genes
    of each cell to `lengths`. Returns the number of (gene, count) pairs.
    """
    low_bits = np.uint64(0xFFFFFFFF)
    n_genes = threshold.shape[1]
    tally = np.zeros(n_genes, np.int32)
    present = np.zeros((n_genes + 63) // 64, np.uint64)
    out = 0
    for i in range(len(transcripts)):
        state = _mix(stream + np.uint64(start + i)) | np.uint64(1)
        for _ in range(transcripts[i]):
            state += np.uint64(0x9E3779B97F4A7C15)
            r = _mix(state)
            uniform = np.float64(r >> np.uint64(11)) * (1.0 / 9007199254740992.0)
            r2 = _mix(r)
            if uniform < cuts[0, i]:
                g = of_drug[drug[i], (r2 & low_bits) % np.uint64(of_drug.shape[1])]
            elif uniform < cuts[1, i]:
                g = of_moa[moa[i], (r2 & low_bits) % np.uint64(of_moa.shape[1])]
            elif uniform < cuts[2, i]:
                g = of_plate[plate, (r2 & low_bits) % np.uint64(of_plate.shape[1])]
            else:
                g = np.int32(((r2 >> np.uint64(32)) * np.uint64(n_genes)) >> np.uint64(32))
                if (r2 & low_bits) >= np.uint64(threshold[line[i], g]):
                    g = alias[line[i], g]
            tally[g] += 1
            present[g >> 6] |= np.uint64(1) << np.uint64(g & 63)
        first = out
        for word in range(len(present)):
            bits = present[word]
            gene = word * 64
            while bits:
                if bits & np.uint64(1):
                    genes[out] = gene
                    counts[out] = tally[gene]
                    tally[gene] = 0
                    out += 1
                bits >>= np.uint64(1)
                gene += 1
            present[word] = 0
        lengths[i] = out - first
    return out
