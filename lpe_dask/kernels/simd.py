"""Compare a few queries with 64 reference rows at a time.

The compiler does not vectorise a filter by itself. These intrinsics write vectors of 64
numbers, which it splits into whatever registers the machine has, and return the 64
comparisons as the bits of one word. Several queries share each load of reference rows, as
in a matrix product, so that the multipliers and not the memory set the pace.

What is computed here is a filter in float32 with a proven error (see `basis`); products
may be contracted. No distance that is kept comes from this file.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from lpe_dask.kernels.private_uses import data_of

#: Reference rows in a group, which is also the number of bits in a mask.
LANES = 64

#: Queries that share each load of a group: with 64 lanes in registers of 16 numbers, 24
#: registers of sums leave room for the group and one coordinate.
QUERIES = 6

_WORD = ir.IntType(64)
_FLOAT = ir.FloatType()
_VECTOR = ir.VectorType(_FLOAT, LANES)
_FLOAT_BYTES = 4


def _word(number: int) -> Any:
    return ir.Constant(_WORD, number)


def _is_contiguous(array: Any, dtype: Any) -> bool:
    return isinstance(array, types.Array) and array.dtype == dtype and array.layout == "C"


def _pointer(context: Any, builder: Any, array: Any, value: Any, offset: Any) -> Any:
    element = _WORD if array.dtype == types.uint64 else _FLOAT
    data = data_of(context, builder, array, value)
    return builder.gep(data, [offset], source_etype=element)


def _load(builder: Any, pointer: Any) -> Any:
    vector = builder.bitcast(pointer, _VECTOR.as_pointer())
    return builder.load(vector, align=_FLOAT_BYTES, typ=_VECTOR)


def _load_number(builder: Any, pointer: Any, offset: Any) -> Any:
    place = builder.gep(pointer, [offset], source_etype=_FLOAT)
    return builder.load(place, align=_FLOAT_BYTES, typ=_FLOAT)


def _repeat(builder: Any, number: Any) -> Any:
    undefined = ir.Constant(_VECTOR, ir.Undefined)
    first = builder.insert_element(undefined, number, ir.Constant(ir.IntType(32), 0))
    every = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(first, undefined, every)


@intrinsic
def products_within(  # type: ignore[no-untyped-def]
    typing_context,
    queries,
    query_start,
    groups,
    group_start,
    n_features,
    norms,
    norm_start,
    limits,
    limit_start,
    sums,
    masks,
):
    """Compare `QUERIES` queries with a group of reference rows; return if any is near.

    For query q and lane l, with ``a`` and ``y`` the numbers from ``query_start`` and
    ``group_start`` on::

        sum = norms[norm_start + l] + sum_k a[QUERIES k + q] * y[64 k + l]

    Bit l of ``masks[q]`` says whether ``sum <= limits[limit_start + q]`` (never for NaN),
    and ``sums[64 q + l]`` holds the sum. Both are written only if any bit is set, which is
    what the returned word being other than 0 says. ``n_features`` is at least 1.
    """
    single = (queries, groups, norms, limits, sums)
    if not all(_is_contiguous(array, types.float32) for array in single):
        return None
    if not _is_contiguous(masks, types.uint64):
        return None
    place = types.intp
    signature = types.uint64(
        queries, place, groups, place, place, norms, place, limits, place, sums, masks
    )
    return signature, _generate_products


def _generate_products(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    def start(array: int, offset: Any) -> Any:
        return _pointer(context, builder, signature.args[array], arguments[array], offset)

    query, group = start(0, arguments[1]), start(2, arguments[3])
    norm, limit = start(5, arguments[6]), start(7, arguments[8])
    sums, masks = start(9, _word(0)), start(10, _word(0))
    totals = _sum_loop(builder, query, group, arguments[4], _load(builder, norm))

    words = []
    for q, total in enumerate(totals):
        bound = _repeat(builder, _load_number(builder, limit, _word(q)))
        words.append(builder.bitcast(builder.fcmp_ordered("<=", total, bound), _WORD))
    any_near = words[0]
    for word in words[1:]:
        any_near = builder.or_(any_near, word)
    with builder.if_then(builder.icmp_unsigned("!=", any_near, _word(0)), likely=False):
        for q, (total, word) in enumerate(zip(totals, words, strict=True)):
            place = builder.gep(sums, [_word(LANES * q)], source_etype=_FLOAT)
            vector = builder.bitcast(place, _VECTOR.as_pointer())
            builder.store(total, vector, align=_FLOAT_BYTES)
            builder.store(word, builder.gep(masks, [_word(q)], source_etype=_WORD))
    return any_near


def _sum_loop(builder: Any, query: Any, group: Any, n_features: Any, initial: Any) -> Any:
    """Emit the loop over features; return one vector of sums for each query."""
    before = builder.basic_block
    loop = builder.append_basic_block("features")
    after = builder.append_basic_block("compare")
    builder.branch(loop)

    builder.position_at_end(loop)
    k = builder.phi(_WORD)
    so_far = [builder.phi(_VECTOR) for _ in range(QUERIES)]
    row = builder.gep(group, [builder.mul(k, _word(LANES))], source_etype=_FLOAT)
    references = _load(builder, row)
    first = builder.mul(k, _word(QUERIES))
    totals = []
    for q, total in enumerate(so_far):
        coordinate = _load_number(builder, query, builder.add(first, _word(q)))
        product = builder.fmul(
            _repeat(builder, coordinate), references, flags=("contract",)
        )
        totals.append(builder.fadd(total, product, flags=("contract",)))
    following = builder.add(k, _word(1))
    builder.cbranch(builder.icmp_signed("<", following, n_features), loop, after)

    k.add_incoming(_word(0), before)
    k.add_incoming(following, loop)
    for phi, total in zip(so_far, totals, strict=True):
        phi.add_incoming(initial, before)
        phi.add_incoming(total, loop)
    builder.position_at_end(after)
    return totals


@intrinsic
def lanes_within(typing_context, sums, start, limit):  # type: ignore[no-untyped-def]
    """Return the word whose bit l is ``sums[start + l] <= limit``, for 64 float32."""
    if not _is_contiguous(sums, types.float32):
        return None
    signature = types.uint64(sums, types.intp, types.float32)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values, offset, limit = arguments
        vector = _load(
            builder, _pointer(context, builder, signature.args[0], values, offset)
        )
        within = builder.fcmp_ordered("<=", vector, _repeat(builder, limit))
        return builder.bitcast(within, _WORD)

    return signature, generate


@intrinsic
def float_bits(typing_context, number):  # type: ignore[no-untyped-def]
    """Return the bits of a float32 as a word; for numbers from 0 on they sort alike."""
    signature = types.uint64(types.float32)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.zext(builder.bitcast(arguments[0], ir.IntType(32)), _WORD)

    return signature, generate


@intrinsic
def bits_float(typing_context, word):  # type: ignore[no-untyped-def]
    """Return the float32 whose bits are the lower half of ``word``."""
    signature = types.float32(types.uint64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(builder.trunc(arguments[0], ir.IntType(32)), _FLOAT)

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
