"""Intrinsics that numba lacks: loads and stores at an address, calls of C functions, and operations on bits.

Addresses, words and numbers are int64. A word has 64 bits.
"""

import platform

from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba.core import cgutils, types
from numba.extending import intrinsic

from loadstone.codecs.compiled import inlined

LINE = 64  # bytes of a cache line


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
def copied(typing_context, source, target, n):
    """Copies n bytes from the address `source` to the address `target`. The two ranges must not overlap."""

    def generate(context, builder, signature, values):
        source, target = (builder.inttoptr(value, ir.IntType(8).as_pointer()) for value in values[:2])
        cgutils.raw_memcpy(builder, target, source, values[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def streamed(typing_context, source, target):
    """Copies LINE bytes with a non-temporal store. `target` must be a multiple of LINE; `source` can be any address."""

    def generate(context, builder, signature, values):
        line = ir.VectorType(ir.IntType(8), LINE).as_pointer()
        source, target = (builder.inttoptr(value, line) for value in values)
        stored = builder.store(builder.load(source, align=1), target, align=LINE)
        stored.set_metadata("nontemporal", builder.module.add_metadata([ir.IntType(32)(1)]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


SHUFFLES = {
    "x86_64": ("ssse3", "llvm.x86.ssse3.pshuf.b.128"),
    "AMD64": ("ssse3", "llvm.x86.ssse3.pshuf.b.128"),
    "aarch64": (None, "llvm.aarch64.neon.tbl1.v16i8"),
    "arm64": (None, "llvm.aarch64.neon.tbl1.v16i8"),
}
"""For each processor architecture: (required CPU feature, LLVM intrinsic of the byte shuffle).

None: every processor of the architecture has the instruction.
"""


def _shuffle() -> str | None:
    feature, name = SHUFFLES.get(platform.machine(), (None, None))
    return name if feature is None or get_host_cpu_features().get(feature) else None


SHUFFLE = _shuffle()
"""The LLVM intrinsic that permutes 16 bytes. None: this processor lacks it, and `repeated` copies byte by byte."""

VECTOR = 16  # bytes
REPEATS = [[place % max(1, distance) for place in range(VECTOR)] for distance in range(VECTOR + 1)]


@intrinsic
def repeated(typing_context, target, distance):
    """Writes 16 bytes at the address `target`: copies of the bytes from target - distance on.

    If distance is below 16, these `distance` bytes are repeated, as in a match of DEFLATE or LZ4.
    """

    def generate(context, builder, signature, values):
        word, byte = ir.IntType(64), ir.IntType(8)
        target, distance = values
        if SHUFFLE is None:
            for place in range(VECTOR):
                to = builder.add(target, word(place))
                before = builder.load(builder.inttoptr(builder.sub(to, distance), byte.as_pointer()))
                builder.store(before, builder.inttoptr(to, byte.as_pointer()))
            return context.get_dummy_value()
        vector = ir.VectorType(byte, VECTOR)
        rows = [ir.Constant(vector, [byte(place) for place in row]) for row in REPEATS]
        orders = cgutils.global_constant(builder, "repeats", ir.Constant(ir.ArrayType(vector, len(rows)), rows))
        near = builder.select(builder.icmp_unsigned("<", distance, word(VECTOR)), distance, word(VECTOR))
        order = builder.load(builder.gep(orders, [word(0), near]))
        before = builder.load(builder.inttoptr(builder.sub(target, distance), vector.as_pointer()), align=1)
        kind = ir.FunctionType(vector, [vector, vector])
        shuffle = cgutils.get_or_insert_function(builder.module, kind, SHUFFLE)
        builder.store(builder.call(shuffle, [before, order]), builder.inttoptr(target, vector.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def filled(typing_context, target, n, byte):
    """Sets the n bytes from the address `target` on to the value `byte`."""

    def generate(context, builder, signature, values):
        target = builder.inttoptr(values[0], ir.IntType(8).as_pointer())
        cgutils.memset(builder, target, values[1], builder.trunc(values[2], ir.IntType(8)))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def shifted(typing_context, bits, n):
    """The word `bits` shifted right by n, 0 to 63, with zeros shifted in (a logical shift)."""

    def generate(context, builder, signature, values):
        return builder.lshr(*values)

    return types.int64(types.int64, types.int64), generate


@intrinsic
def borrowed(typing_context, array):
    """The same array, without reference counting. Atomic updates of a count would wait for all earlier stores."""

    def generate(context, builder, signature, values):
        made = context.make_array(array)(context, builder, values[0])
        made.meminfo = cgutils.get_null_value(made.meminfo.type)
        made.parent = cgutils.get_null_value(made.parent.type)
        return made._getvalue()

    return array(array), generate


@intrinsic
def reversed_bits(typing_context, bits):
    """The bits of a word in reversed order."""

    def generate(context, builder, signature, values):
        return builder.bitreverse(*values)

    return types.int64(types.int64), generate


@intrinsic
def unlikely(typing_context, condition):
    """Returns `condition`, and tells the compiler that it is rarely true."""

    def generate(context, builder, signature, values):
        bit = ir.IntType(1)
        expect = cgutils.get_or_insert_function(builder.module, ir.FunctionType(bit, [bit, bit]), "llvm.expect.i1")
        return builder.call(expect, [values[0], bit(0)])

    return types.boolean(types.boolean), generate


load8, load16, load32, load64 = _load(8), _load(16), _load(32), _load(64)
store8, store32, store64 = _store(8), _store(32), _store(64)


@inlined
def bits_at(position):
    """The bits of memory from the bit address `position` (8 * address + bit) on, lowest bit first.

    Returns a word of which at least the lowest 57 bits are valid.
    """
    return shifted(load64(position >> 3), position & 7)


@intrinsic
def call(typing_context, address, arguments):
    """Calls the C function at an address with a tuple of int64 arguments, which may be pointers. Returns int64."""

    def generate(context, builder, signature, values):
        word = ir.IntType(64)
        count = signature.args[1].count
        function = builder.inttoptr(values[0], ir.FunctionType(word, [word] * count).as_pointer())
        return builder.call(function, [builder.extract_value(values[1], i) for i in range(count)])

    return types.int64(types.int64, arguments), generate
