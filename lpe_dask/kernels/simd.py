"""Compare one query with 64 reference rows at a time.

The compiler does not vectorise a filter by itself. These intrinsics write vectors of 64
numbers, which it splits into whatever registers the machine has, and return the 64
comparisons as the bits of one word.

No operation here carries a fast-math flag: a lane is the scalar formula, bit for bit.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

#: Reference rows in a group, which is also the number of bits in a mask.
LANES = 64

_WORD = ir.IntType(64)
_FLOAT = ir.DoubleType()
_LANES_OF_FLOAT = ir.VectorType(_FLOAT, LANES)
_FLOAT_BYTES = 8


def _is_contiguous(array: Any, ndim: int) -> bool:
    return (
        isinstance(array, types.Array)
        and array.dtype == types.float64
        and array.ndim == ndim
        and array.layout == "C"
    )


def _pointer(context: Any, builder: Any, array: Any, value: Any, offset: Any) -> Any:
    data = context.make_array(array)(context, builder, value).data
    return builder.gep(data, [offset], source_etype=_FLOAT)


def _load(builder: Any, pointer: Any) -> Any:
    vector = builder.bitcast(pointer, _LANES_OF_FLOAT.as_pointer())
    return builder.load(vector, align=_FLOAT_BYTES, typ=_LANES_OF_FLOAT)


def _repeat(builder: Any, number: Any) -> Any:
    undefined = ir.Constant(_LANES_OF_FLOAT, ir.Undefined)
    first = builder.insert_element(undefined, number, ir.Constant(ir.IntType(32), 0))
    every = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(first, undefined, every)


@intrinsic
def add_squared_differences(  # type: ignore[no-untyped-def]
    typing_context, queries, query_start, packed, packed_start, n_terms, sums, limit
):
    """Add ``n_terms`` squared differences to each of 64 sums; return which stay low.

    ``sums[l] += (queries[query_start + k] - packed[packed_start + 64 k + l])**2`` for k =
    0, 1, ... in that order, each difference, square and sum rounded to float64 on its
    own. Both starts count numbers from the beginning of the array; ``n_terms`` is at
    least 1.

    Returns the word whose bit l is ``sums[l] < limit``.
    """
    if not (_is_contiguous(queries, 2) and _is_contiguous(packed, 3)):
        return None
    if not _is_contiguous(sums, 1):
        return None
    signature = types.uint64(
        queries, types.intp, packed, types.intp, types.intp, sums, types.float64
    )

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        query_array, start, packed_array, offset, n_terms, sum_array, limit = arguments
        query = _pointer(context, builder, signature.args[0], query_array, start)
        lanes = _pointer(context, builder, signature.args[2], packed_array, offset)
        zero = ir.Constant(_WORD, 0)
        kept = _pointer(context, builder, signature.args[5], sum_array, zero)
        initial = _load(builder, kept)

        before = builder.basic_block
        loop = builder.append_basic_block("features")
        after = builder.append_basic_block("compare")
        builder.branch(loop)

        builder.position_at_end(loop)
        k = builder.phi(_WORD)
        sums_so_far = builder.phi(_LANES_OF_FLOAT)
        coordinate = builder.load(
            builder.gep(query, [k], source_etype=_FLOAT), align=_FLOAT_BYTES, typ=_FLOAT
        )
        position = builder.mul(k, ir.Constant(_WORD, LANES))
        references = _load(builder, builder.gep(lanes, [position], source_etype=_FLOAT))
        difference = builder.fsub(_repeat(builder, coordinate), references)
        total = builder.fadd(sums_so_far, builder.fmul(difference, difference))
        following = builder.add(k, ir.Constant(_WORD, 1))
        builder.cbranch(builder.icmp_signed("<", following, n_terms), loop, after)
        k.add_incoming(zero, before)
        k.add_incoming(following, loop)
        sums_so_far.add_incoming(initial, before)
        sums_so_far.add_incoming(total, loop)

        builder.position_at_end(after)
        vector = builder.bitcast(kept, _LANES_OF_FLOAT.as_pointer())
        builder.store(total, vector, align=_FLOAT_BYTES)
        below = builder.fcmp_ordered("<", total, _repeat(builder, limit))
        return builder.bitcast(below, _WORD)

    return signature, generate


@intrinsic
def lowest_bit(typing_context, word):  # type: ignore[no-untyped-def]
    """Return the position of the lowest set bit of ``word``, which is not 0."""
    signature = types.intp(types.uint64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return signature, generate


@intrinsic
def count_bits(typing_context, word):  # type: ignore[no-untyped-def]
    """Return how many bits of ``word`` are set."""
    signature = types.intp(types.uint64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return signature, generate
