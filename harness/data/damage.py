"""Finds a damaged chunk, so that the record of a failed measurement can name it."""

import time
import zlib

import h5py

from harness.data.dataset import Dataset


def first_damage(dataset: Dataset, limit_s: float = 30.0) -> str | None:
    """A message that names the first gzip chunk that cannot be inflated, or the first file that cannot be read.

    Returns None if all chunks that could be checked in `limit_s` seconds are sound. Only arrays that are compressed by
    gzip without a shuffle filter are checked.
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
                            location = f"chunk {number} of {array.name} (from element {offset[0]})"
                            return f"{path.name}: {location} is damaged and cannot be inflated: {error}"
        except OSError as error:
            return f"{path.name} cannot be read: {error}"
    return None
