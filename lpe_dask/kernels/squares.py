"""Eight squared distances side by side, each summed in the order of its coordinates.

    8 rows x 8 features --turned in registers--> 8 features x 8 rows --> 8 sums, float64

A sum that must keep its order waits for each of its additions; eight of them wait together.
Rows are loaded as they lie, along their features, and turned, because to gather one feature
of eight rows takes eight loads. Each square is multiplied by the weight of its column;
where the last columns are codes of categories, each that differs adds its weight: see
`definition`. There is no other place where compiled kernels make a distance; filters only
choose the pairs.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from lpe_dask.kernels.compiled import borrowing
from lpe_dask.kernels.numba_internals import data_of, shape_of
from lpe_dask.kernels.simd import (
    FLOAT,
    NEAREST_CACHE,
    WORD,
    ask_for,
    constant,
    is_contiguous,
    loop,
    repeat,
)

#: Rows that are measured at a time, and features that are loaded at a time.
SIDE_BY_SIDE = 8

_DOUBLE = ir.DoubleType()
_SUMS = ir.VectorType(_DOUBLE, SIDE_BY_SIDE)
_INDEX = ir.IntType(32)

#: What rows may consist of.
_ELEMENTS = {types.float32: FLOAT, types.float64: _DOUBLE}

#: Rows after those at hand of which the first numbers are asked for.
_FETCHED = 16


@intrinsic
def fill_eight_squares(  # type: ignore[no-untyped-def]
    typing_context, query, rows, places, start, last, squares, weights, n_codes
):
    """Fill ``squares[start : start + 8]`` with squared distances of a query.

    Number ``m`` is that to the row ``places[min(m, last)]`` of ``rows``. Differences,
    products and sums are float64 whatever the rows are, and nothing is contracted or
    reordered. The last ``n_codes`` columns are codes.
    """
    if rows.dtype not in _ELEMENTS:
        return None
    given = (
        (query, types.float64), (rows, rows.dtype), (places, types.int64),
        (squares, types.float64), (weights, types.float64),
    )  # fmt: skip
    if not all(is_contiguous(*each) for each in given):
        return None
    signature = types.void(
        query, rows, places, types.intp, types.intp, squares, weights, types.intp
    )
    return signature, _generate


def _generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    query, rows, places, squares, weights = (
        data_of(context, builder, signature.args[i], arguments[i]) for i in (0, 1, 2, 5, 6)
    )
    start, last = arguments[3], arguments[4]
    element = _ELEMENTS[signature.args[1].dtype]
    shape = shape_of(context, builder, signature.args[1], arguments[1])
    n_features = builder.extract_value(shape, 1)
    n_numbers = builder.sub(n_features, arguments[7])

    def row(m: int) -> Any:
        """Return the pointer to a row, counted from the start; to the last one at most."""
        number = builder.add(start, constant(m))
        number = builder.select(builder.icmp_signed("<", number, last), number, last)
        place = builder.load(builder.gep(places, [number], source_etype=WORD), typ=WORD)
        first = builder.mul(place, n_features)
        return builder.gep(rows, [first], source_etype=element)

    pointers = [row(m) for m in range(SIDE_BY_SIDE)]
    for m in range(_FETCHED, _FETCHED + SIDE_BY_SIDE):  # they lie anywhere in memory
        ask_for(builder, row(m), NEAREST_CACHE)

    def repeated(numbers: Any, k: Any) -> Any:
        """Return number ``k`` of the query or of the weights, once for each row."""
        place = builder.gep(numbers, [k], source_etype=_DOUBLE)
        return repeat(builder, builder.load(place, typ=_DOUBLE), SIDE_BY_SIDE)

    def in_rows(k: Any) -> Any:
        """Return the values of the rows in column ``k``."""
        column = ir.Constant(ir.VectorType(element, SIDE_BY_SIDE), ir.Undefined)
        for m, pointer in enumerate(pointers):
            place = builder.gep(pointer, [k], source_etype=element)
            number = builder.load(place, typ=element)
            column = builder.insert_element(column, number, ir.Constant(_INDEX, m))
        return column

    def widened(column: Any) -> Any:
        return column if element is _DOUBLE else builder.fpext(column, _SUMS)

    def add_feature(k: Any, column: Any, total: Any) -> Any:
        """Add the squares of a feature, of which the query has one and each row another."""
        difference = builder.fsub(repeated(query, k), widened(column))
        square = builder.fmul(difference, difference)
        return builder.fadd(total, builder.fmul(square, repeated(weights, k)))

    def add_eight(k: Any, totals: list[Any]) -> list[Any]:
        (total,) = totals
        loaded = [_load(builder, pointer, k, element) for pointer in pointers]
        for j, column in enumerate(_turned(builder, loaded)):
            total = add_feature(builder.add(k, constant(j)), column, total)
        return [total]

    def add_one(k: Any, totals: list[Any]) -> list[Any]:
        return [add_feature(k, in_rows(k), *totals)]

    def add_code(k: Any, totals: list[Any]) -> list[Any]:
        (total,) = totals
        differs = builder.fcmp_unordered("!=", repeated(query, k), widened(in_rows(k)))
        return [builder.select(differs, builder.fadd(total, repeated(weights, k)), total)]

    n_whole = builder.and_(n_numbers, constant(-SIDE_BY_SIDE))
    totals = [ir.Constant(_SUMS, [0.0] * SIDE_BY_SIDE)]
    totals = loop(builder, constant(0), n_whole, SIDE_BY_SIDE, totals, add_eight)
    totals = loop(builder, n_whole, n_numbers, 1, totals, add_one)
    (total,) = loop(builder, n_numbers, n_features, 1, totals, add_code)
    place = builder.gep(squares, [start], source_etype=_DOUBLE)
    builder.store(total, builder.bitcast(place, _SUMS.as_pointer()), align=8)
    return context.get_dummy_value()


def _load(builder: Any, pointer: Any, k: Any, element: Any) -> Any:
    vector = ir.VectorType(element, SIDE_BY_SIDE)
    place = builder.gep(pointer, [k], source_etype=element)
    place = builder.bitcast(place, vector.as_pointer())
    return builder.load(place, align=8 if element is _DOUBLE else 4, typ=vector)


def _turned(builder: Any, rows: list[Any]) -> list[Any]:
    """Return the columns of eight rows.

    To interleave the first half of the rows with the second moves the highest bit of a
    number's place behind its lowest; after three times, row and column have changed places.
    """
    half = SIDE_BY_SIDE // 2
    index = ir.VectorType(_INDEX, SIDE_BY_SIDE)
    masks = [
        ir.Constant(index, [i // 2 + i % 2 * SIDE_BY_SIDE + first for i in range(8)])
        for first in (0, half)
    ]
    for _ in range(half - 1):
        rows = [
            builder.shuffle_vector(rows[i], rows[i + half], mask)
            for i in range(half)
            for mask in masks
        ]
    return rows


@borrowing
def fill_squares(row, block, places, n_places, squares, weights, n_codes):  # type: ignore[no-untyped-def]
    """Fill the squared distances of one query to some rows of a block.

    Parameters
    ----------
    row : ndarray of shape (n_features,)
    block : Block
    places : ndarray of shape (at least n_places,)
        Of the rows in the block.
    n_places : int
    squares : ndarray of shape (at least n_places, rounded up to a multiple of 8)
        Filled; what is beyond ``n_places`` has no meaning.
    weights : ndarray of shape (n_features,)
    n_codes : int
        How many of the last columns are codes.
    """
    last = n_places - 1
    for start in range(0, n_places, SIDE_BY_SIDE):
        if len(block.single_rows) > 0:
            rows = block.single_rows
            fill_eight_squares(row, rows, places, start, last, squares, weights, n_codes)
        else:
            wide = block.double_rows
            fill_eight_squares(row, wide, places, start, last, squares, weights, n_codes)
