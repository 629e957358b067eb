"""Integers packed with a fixed number of bits each, in the layout for vector instructions that FastPFor writes.

128 integers lie in four lanes: integer i is in lane i % 4. The integers of a lane follow one another without gaps,
lowest bit first, in every fourth word of 32 bits.
"""

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

PACKED = 128  # integers
LANES = 4
WORD = 32  # bits


@intrinsic
def unpacked(typing_context, source, bits, target):
    """Writes the 128 integers that lie at the address `source`, 4 * bits words, to the address `target`, uint32.

    bits: 0 to 32 for each integer. For each number of bits there is a sequence of instructions without branches.
    """

    def generate(context, builder, signature, values):
        source, bits, target = values
        vector = ir.VectorType(ir.IntType(WORD), LANES)
        source, target = (builder.inttoptr(value, vector.as_pointer()) for value in (source, target))
        after = builder.append_basic_block("unpacked")
        choice = builder.switch(bits, after)
        for width in range(WORD + 1):
            block = builder.append_basic_block(f"bits{width}")
            choice.add_case(ir.IntType(64)(width), block)
            with builder.goto_block(block):
                _unpack(builder, vector, source, width, target)
                builder.branch(after)
        builder.position_at_end(after)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


def _unpack(builder, vector, source, width, target):
    """Emits the instructions for integers of `width` bits."""

    def constant(number):
        return ir.Constant(vector, [ir.IntType(WORD)(number)] * LANES)

    words = [
        builder.load(builder.gep(source, [ir.IntType(64)(k)]), align=1) for k in range(width)
    ]  # LLVM moves each load to its first use
    for i in range(PACKED // LANES):
        k, shift = divmod(i * width, WORD)
        value = constant(0)
        if width:
            value = builder.lshr(words[k], constant(shift)) if shift else words[k]
            if shift + width > WORD:
                value = builder.or_(value, builder.shl(words[k + 1], constant(WORD - shift)))
            if shift + width != WORD:
                value = builder.and_(value, constant(2**width - 1))
        builder.store(value, builder.gep(target, [ir.IntType(64)(i)]), align=1)
