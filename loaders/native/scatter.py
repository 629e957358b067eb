"""Rows to their places in a buffer: past the processor's caches where the buffer is larger than they are.

A plain store reads its line of memory first, and puts out of the cache what decoding still wants there.
"""

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic
from numba.np.arrayobj import load_item

LARGE = 16 << 20  # bytes of an array that no cache would hold until it is read
LANES = 8  # elements that are written past the caches at once


def is_large(out: np.ndarray) -> bool:
    """Whether rows should go past the caches to it."""
    return out.nbytes >= LARGE


@numba.njit(nogil=True, cache=True)
def scatter(values, start, begin, end, target, out, past_caches):
    """Copies what rows of the elements begin..end have of `values`, the first of which is `start`, to their place."""
    stop = start + len(values)
    # Unsigned, so that no index is looked at for being negative and the loops become vector code.
    lanes, address = np.uint64(LANES), np.uint64(out.ctypes.data) // np.uint64(out.itemsize)
    for row in range(len(begin)):
        a, b = max(begin[row], start), min(end[row], stop)
        if a < b:
            place, first, n = np.uint64(a + target[row] - begin[row]), np.uint64(a - start), np.uint64(b - a)
            k = min(n, (lanes - (address + place) % lanes) % lanes) if past_caches else n
            for i in range(k):
                out[place + i] = values[first + i]
            while k + lanes <= n:
                _store_lanes(out, place + k, values, first + k)
                k += lanes
            for i in range(k, n):
                out[place + i] = values[first + i]
    if past_caches:
        _fence()


@intrinsic
def _store_lanes(typing_context, out, place, values, first):
    """out[place : place + LANES] = values[first : first + LANES], past the caches; aligned to what it writes."""

    def generate(context, builder, signature, arguments):
        arrays = (context.make_array(signature.args[i])(context, builder, arguments[i]) for i in (0, 2))
        into, taken = (builder.gep(array.data, [arguments[i]]) for array, i in zip(arrays, (1, 3), strict=True))
        lanes = _load_lanes(context, builder, values, taken, out.dtype)
        stored = builder.store(lanes, builder.bitcast(into, lanes.type.as_pointer()), LANES * out.dtype.bitwidth // 8)
        stored.set_metadata("nontemporal", builder.module.add_metadata([ir.IntType(32)(1)]))
        return context.get_dummy_value()

    return types.void(out, types.uint64, values, types.uint64), generate


def _load_lanes(context, builder, array, at, dtype):
    """The LANES elements at this place of an array, as a vector of another dtype."""
    vector = ir.VectorType(context.get_data_type(dtype), LANES)
    if array.dtype == dtype or (isinstance(array.dtype, types.Integer) and isinstance(dtype, types.Integer)):
        loaded = ir.VectorType(context.get_data_type(array.dtype), LANES)
        lanes = builder.load(builder.bitcast(at, loaded.as_pointer()), align=array.dtype.bitwidth // 8)
        if array.dtype.bitwidth == dtype.bitwidth:
            return lanes
        widened = builder.sext if array.dtype.signed else builder.zext
        return (builder.trunc if array.dtype.bitwidth > dtype.bitwidth else widened)(lanes, vector)
    lanes = ir.Constant(vector, ir.Undefined)  # one by one: LLVM has no such conversion of vectors for every dtype
    for i in range(LANES):
        element = load_item(context, builder, array, builder.gep(at, [ir.IntType(32)(i)]))
        lanes = builder.insert_element(lanes, context.cast(builder, element, array.dtype, dtype), ir.IntType(32)(i))
    return lanes


@intrinsic
def _fence(typing_context):
    """Waits until what was written past the caches can be seen by other threads."""

    def generate(context, builder, signature, arguments):
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate
