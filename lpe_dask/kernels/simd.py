"""Vectors and bits in compiled code: what numba itself has no words for.

The compiler does not vectorise comparisons by itself. Vectors are written in LLVM's terms,
of any width: it splits them into whatever registers the machine has.
"""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from lpe_dask.kernels.arrays import LANES
from lpe_dask.kernels.numba_internals import data_of, shape_of

WORD = ir.IntType(64)
FLOAT, DOUBLE = ir.FloatType(), ir.DoubleType()
SHORT, SUM = ir.IntType(16), ir.IntType(32)
_BYTES = {FLOAT: 4, DOUBLE: 8, SHORT: 2, SUM: 4}
_FLOAT_BYTES = 4

#: Numbers that are moved at a time for another one.
_INSERTED = 16

#: LLVM's numbers of the caches that memory can be brought into ahead of time.
NEAREST_CACHE, SECOND_CACHE = 3, 2


def constant(number: int) -> Any:
    """Return a whole number as a word."""
    return ir.Constant(WORD, number)


def is_contiguous(array: Any, dtype: Any) -> bool:
    """Return whether an array's type is one that vectors can be loaded from."""
    return isinstance(array, types.Array) and array.dtype == dtype and array.layout == "C"


def pointer_to(context: Any, builder: Any, array: Any, value: Any, offset: Any) -> Any:
    """Return the pointer to the element at ``offset`` of an array of numbers."""
    element = context.get_data_type(array.dtype)
    data = data_of(context, builder, array, value)
    return builder.gep(data, [offset], source_etype=element)


def load_number(builder: Any, pointer: Any, offset: Any) -> Any:
    """Load one float32."""
    place = builder.gep(pointer, [offset], source_etype=FLOAT)
    return builder.load(place, align=_FLOAT_BYTES, typ=FLOAT)


def load(builder: Any, pointer: Any, offset: int, width: int) -> Any:
    """Load a vector."""
    place = builder.gep(pointer, [constant(offset)], source_etype=FLOAT)
    vector = ir.VectorType(FLOAT, width)
    place = builder.bitcast(place, vector.as_pointer())
    return builder.load(place, align=_FLOAT_BYTES, typ=vector)


def load_vector(builder: Any, pointer: Any, offset: Any, kind: Any, width: int) -> Any:
    """Load a vector of numbers of a kind from any place."""
    place = builder.gep(pointer, [offset], source_etype=kind)
    vector = ir.VectorType(kind, width)
    place = builder.bitcast(place, vector.as_pointer())
    return builder.load(place, align=_BYTES[kind], typ=vector)


def store_vector(builder: Any, vector: Any, pointer: Any, offset: Any) -> None:
    """Store a vector at any place."""
    kind = vector.type.element
    place = builder.gep(pointer, [offset], source_etype=kind)
    place = builder.bitcast(place, vector.type.as_pointer())
    builder.store(vector, place, align=_BYTES[kind])


def larger(builder: Any, one: Any, other: Any, *, sign: str = ">") -> Any:
    """Return the larger (``sign="<"``: smaller) of two vectors, the other's for NaN."""
    return builder.select(builder.fcmp_ordered(sign, one, other), one, other)


def total_of(builder: Any, vector: Any) -> Any:
    """Return the sum of a vector, in halves."""
    width = vector.type.count
    while width > 1:
        width //= 2
        index = ir.VectorType(ir.IntType(32), width)
        first, second = (
            builder.shuffle_vector(
                vector, vector, ir.Constant(index, list(range(start, start + width)))
            )
            for start in (0, width)
        )
        vector = builder.fadd(first, second)
    return builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))


def store(builder: Any, vector: Any, pointer: Any, offset: int) -> None:
    """Store a vector."""
    place = builder.gep(pointer, [constant(offset)], source_etype=FLOAT)
    place = builder.bitcast(place, vector.type.as_pointer())
    builder.store(vector, place, align=_FLOAT_BYTES)


def repeat(builder: Any, number: Any, width: int) -> Any:
    """Return a vector that has the same number everywhere."""
    undefined = ir.Constant(ir.VectorType(number.type, width), ir.Undefined)
    first = builder.insert_element(undefined, number, ir.Constant(ir.IntType(32), 0))
    every = ir.Constant(ir.VectorType(ir.IntType(32), width), [0] * width)
    return builder.shuffle_vector(first, undefined, every)


def bits_within(builder: Any, vector: Any, limit: Any) -> Any:
    """Return a word whose bit i is ``vector[i] <= limit``."""
    width = vector.type.count
    within = builder.fcmp_ordered("<=", vector, repeat(builder, limit, width))
    bits = builder.bitcast(within, ir.IntType(width))
    return bits if width == LANES else builder.zext(bits, WORD)


def loop(
    builder: Any, first: Any, stop: Any, step: int, initial: list[Any], add: Any
) -> list[Any]:
    """Emit ``for k in range(first, stop, step): totals = add(k, totals)``; return them."""
    before = builder.basic_block
    head, body, after = map(builder.append_basic_block, ("head", "body", "after"))
    builder.branch(head)

    builder.position_at_end(head)
    k, totals = builder.phi(WORD), [builder.phi(total.type) for total in initial]
    builder.cbranch(builder.icmp_signed("<", k, stop), body, after)

    builder.position_at_end(body)
    added = add(k, totals)
    following = builder.add(k, constant(step))
    end = builder.basic_block
    builder.branch(head)

    for phi, start, last in zip(
        [k, *totals], [first, *initial], [following, *added], strict=True
    ):
        phi.add_incoming(start, before)
        phi.add_incoming(last, end)
    builder.position_at_end(after)
    return totals


def ask_for(builder: Any, pointer: Any, cache: int) -> None:
    """Ask for the line of memory around a pointer to be brought into a cache."""
    number = ir.IntType(32)
    pointer = builder.bitcast(pointer, ir.IntType(8).as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [pointer.type, number, number, number])
    prefetch = builder.module.declare_intrinsic("llvm.prefetch.p0", fnty=kind)
    to_read, data = ir.Constant(number, 0), ir.Constant(number, 1)
    builder.call(prefetch, [pointer, to_read, ir.Constant(number, cache), data])


@intrinsic
def lanes_within(typing_context, sums, start, limit):  # type: ignore[no-untyped-def]
    """Return the word whose bit l is ``sums[start + l] <= limit``, for 64 float32."""
    if not is_contiguous(sums, types.float32):
        return None
    signature = types.uint64(sums, types.intp, types.float32)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values, offset, limit = arguments
        place = pointer_to(context, builder, signature.args[0], values, offset)
        return bits_within(builder, load(builder, place, 0, LANES), limit)

    return signature, generate


@intrinsic
def insert_sorted(typing_context, numbers, i, number):  # type: ignore[no-untyped-def]
    """Put a number into row ``i``, which is ascending, and drop the last one of the row.

    Rows have a multiple of 16 numbers.
    """
    if not is_contiguous(numbers, types.float32):
        return None
    signature = types.void(numbers, types.intp, types.float32)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        shape = shape_of(context, builder, signature.args[0], arguments[0])
        size = builder.extract_value(shape, 1)
        start = builder.mul(arguments[1], size)
        row = pointer_to(context, builder, signature.args[0], arguments[0], start)
        inserted = repeat(builder, arguments[2], _INSERTED)
        # In registers: what was stored a moment ago is slow to load from another place.
        index = ir.VectorType(ir.IntType(32), _INSERTED)
        by_one = ir.Constant(index, [i + _INSERTED - 1 for i in range(_INSERTED)])

        def insert(k: Any, carried: list[Any]) -> list[Any]:
            """Move what is larger one place on; ``carried`` is what was before."""
            old = load_vector(builder, row, k, FLOAT, _INSERTED)
            previous = builder.shuffle_vector(carried[0], old, by_one)
            smaller = larger(builder, inserted, old, sign="<")
            store_vector(builder, larger(builder, previous, smaller), row, k)
            return [old]

        least = ir.Constant(ir.VectorType(FLOAT, _INSERTED), [-math.inf] * _INSERTED)
        loop(builder, constant(0), size, _INSERTED, [least], insert)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def fetch(typing_context, numbers, place):  # type: ignore[no-untyped-def]
    """Ask for a line of 64 bytes to be brought near; there need be nothing at ``place``."""
    if not is_contiguous(numbers, numbers.dtype):
        return None
    signature = types.void(numbers, types.intp)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = pointer_to(context, builder, signature.args[0], *arguments)
        ask_for(builder, pointer, SECOND_CACHE)
        return context.get_dummy_value()

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
