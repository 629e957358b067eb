"""Compiles the loops of loadstone. Run it once after installation:

    python -m loadstone.compile

Otherwise the loops are compiled while the first minibatch is read, which takes up to 15 seconds. The machine code is
cached for all later processes. It covers CSR matrices with gzip compression, float32 values and int32 indices. The
loops for other codecs and dtypes are compiled at their first use, which takes seconds.
"""

import logging
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

import h5py
import numpy as np

from loadstone import BlockLoader, open_h5ad
from loadstone.reading.minibatches import Output
from loadstone.tokens import BinnedTokens, RankTokens, vocabulary

CELLS, GENES = 64, 16


def main() -> None:
    """Writes a small h5ad file and reads it in every form of minibatches. This compiles the loops that are used."""
    logging.getLogger("loadstone").setLevel(logging.ERROR)  # no warning that loops are being compiled: the caller knows
    with TemporaryDirectory() as folder:
        path = Path(folder) / "few.h5ad"
        with h5py.File(path, "w") as file:
            file["var/_index"] = [str(gene) for gene in range(GENES)]
            x = file.create_group("X")
            x.attrs.update({"encoding-type": "csr_matrix", "shape": (CELLS, GENES)})
            x["indptr"] = np.arange(CELLS + 1) * GENES
            x.create_dataset("data", data=np.ones(CELLS * GENES, np.float32), compression="gzip")
            x.create_dataset("indices", data=np.tile(np.arange(GENES, dtype=np.int32), CELLS), compression="gzip")
        for output in get_args(Output):
            loader = BlockLoader(open_h5ad([path, path], output=output))
            for batch in loader:
                if output == "csr":
                    for encoding in (RankTokens, BinnedTokens):
                        encoding(vocabulary=vocabulary(GENES))(batch.x)
            loader.close()


if __name__ == "__main__":
    main()
