"""Finds the chunk that no loader can read, so that a failed row can name it."""

import time
import zlib

import h5py

from harness.data.dataset import Dataset


def first_damage(dataset: Dataset, limit_s: float = 30.0) -> str | None:
    """A sentence with the file and chunk of the first gzip chunk that cannot be inflated.

    None where every chunk seen in `limit_s` seconds is sound, or the files are not gzip.
    """
    stop = time.monotonic() + limit_s
    for path in dataset.paths:
        try:
            with h5py.File(path) as file:
                x = file["X"]
                for array in (x["data"], x["indices"]) if isinstance(x, h5py.Group) else (x,):
                    if array.compression != "gzip" or array.shuffle:
                        continue
                    for number in range(array.id.get_num_chunks()):
                        if time.monotonic() > stop:
                            return None
                        offset = array.id.get_chunk_info(number).chunk_offset
                        try:
                            zlib.decompress(array.id.read_direct_chunk(offset)[1])
                        except zlib.error as error:
                            where = f"chunk {number} of {array.name} (from element {offset[0]})"
                            return f"{path.name}: {where} is damaged and cannot be inflated: {error}"
        except OSError as error:
            return f"{path.name} cannot be read: {error}"
    return None
