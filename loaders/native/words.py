"""What numba has no words for: bytes, words and C functions at an address, and bits of a word."""

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic


def _load(bits: int):
    @intrinsic
    def load(typing_context, address):
        def generate(context, builder, signature, values):
            loaded = builder.load(builder.inttoptr(values[0], ir.IntType(bits).as_pointer()), align=1)
            return loaded if bits == 64 else builder.zext(loaded, ir.IntType(64))

        return types.int64(types.int64), generate

    return load


def _store(bits: int):
    @intrinsic
    def store(typing_context, address, value):
        def generate(context, builder, signature, values):
            pointer = builder.inttoptr(values[0], ir.IntType(bits).as_pointer())
            value = values[1] if bits == 64 else builder.trunc(values[1], ir.IntType(bits))
            builder.store(value, pointer, align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    return store


@intrinsic
def shifted(typing_context, bits, n):
    """A word's bits moved down by n, less than 64, with zeros behind them."""

    def generate(context, builder, signature, values):
        return builder.lshr(*values)

    return types.int64(types.int64, types.int64), generate


@intrinsic
def borrowed(typing_context, array):
    """The array without its count of references: to count waits for all stores before it."""

    def generate(context, builder, signature, values):
        made = context.make_array(array)(context, builder, values[0])
        made.meminfo = cgutils.get_null_value(made.meminfo.type)
        made.parent = cgutils.get_null_value(made.parent.type)
        return made._getvalue()

    return array(array), generate


@intrinsic
def reversed_bits(typing_context, bits):
    """A word's bits in the opposite order."""

    def generate(context, builder, signature, values):
        return builder.bitreverse(*values)

    return types.int64(types.int64), generate


@intrinsic
def unlikely(typing_context, condition):
    """The condition, of which the compiler is told that it is hardly ever true."""

    def generate(context, builder, signature, values):
        bit = ir.IntType(1)
        expect = cgutils.get_or_insert_function(builder.module, ir.FunctionType(bit, [bit, bit]), "llvm.expect.i1")
        return builder.call(expect, [values[0], bit(0)])

    return types.boolean(types.boolean), generate


load8, load32, load64 = _load(8), _load(32), _load(64)
store8, store32, store64 = _store(8), _store(32), _store(64)


@numba.njit(nogil=True, cache=True, forceinline=True)
def bits_at(position):
    """What comes from a bit of memory on, the lowest first, of which 57 are sure."""
    return shifted(load64(position >> 3), position & 7)


@intrinsic
def call(typing_context, address, arguments):
    """Calls the C function at an address, all of whose arguments are words or fit in one."""

    def generate(context, builder, signature, values):
        word = ir.IntType(64)
        count = signature.args[1].count
        function = builder.inttoptr(values[0], ir.FunctionType(word, [word] * count).as_pointer())
        return builder.call(function, [builder.extract_value(values[1], i) for i in range(count)])

    return types.int64(types.int64, arguments), generate
