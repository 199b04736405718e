"""Hold queries against a box, and move them to the center of a cell, in vectors.

    64 queries x box --gaps of each column, squared and added--> bits of those near it
    query --minus the center--> offset, its squared length, the squared gap to the box
    offset --/ step--> whole numbers

Both add in float32 or float64 in whatever order; `bounds` allows for what rounding does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from lpe_dask.kernels.arrays import LANES, TILE_ROWS
from lpe_dask.kernels.numba_internals import shape_of
from lpe_dask.kernels.rounding import LARGEST
from lpe_dask.kernels.simd import (
    DOUBLE,
    FLOAT,
    SHORT,
    WORD,
    constant,
    is_contiguous,
    larger,
    load,
    load_number,
    load_vector,
    loop,
    pointer_to,
    repeat,
    store_vector,
    total_of,
)
from lpe_dask.kernels.simd_profiles import SIMD_PROFILES, chosen_profile

#: Queries that are held against a box at a time.
_WIDTH = SIMD_PROFILES[chosen_profile()].width

#: Numbers of a query that are moved at a time.
_MOVED = 8

#: Added to a float32 below 2**22 and taken away, it leaves the nearest whole number.
_ROUNDS_OFF = 1.5 * 2.0**23


@intrinsic
def queries_near_box(typing_context, singles, start, low, high, bars, lowered):  # type: ignore[no-untyped-def]
    """Return the word whose bit i says whether query ``start + i`` is near a box.

    Column k of the queries is ``singles[k]``; near are those of which the squared distance
    to the box is not above ``bars[start + i]``. Of the last columns, codes, each adds
    ``lowered`` where the code is not between ``low`` and ``high``.
    """
    if not all(
        is_contiguous(a, types.float32) for a in (singles, low, high, bars, lowered)
    ):
        return None
    signature = types.uint64(singles, types.intp, low, high, bars, lowered)
    return signature, _generate_near


def _generate_near(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    bars = pointer_to(context, builder, signature.args[4], arguments[4], arguments[1])
    word = constant(0)
    for lane in range(0, LANES, _WIDTH):
        gaps = _gaps(context, builder, signature, arguments, lane)
        within = builder.fcmp_ordered("<=", gaps, load(builder, bars, lane, _WIDTH))
        bits = builder.bitcast(within, ir.IntType(_WIDTH))
        bits = bits if _WIDTH == LANES else builder.zext(bits, WORD)
        word = builder.or_(word, builder.shl(bits, constant(lane)))
    return word


@intrinsic
def take_nearer_box(  # type: ignore[no-untyped-def]
    typing_context, singles, start, low, high, gaps, lowered, places, place
):
    """Take a box for those of queries ``start`` to ``start + 63`` that it is nearer to.

    Their ``gaps`` become the squared distances to the box, and their ``places`` the place;
    all else is as in `queries_near_box`.
    """
    single = singles, low, high, gaps, lowered
    if not all(is_contiguous(array, types.float32) for array in single):
        return None
    if not is_contiguous(places, types.int32):
        return None
    signature = types.void(
        singles, types.intp, low, high, gaps, lowered, places, types.int32
    )
    return signature, _generate_nearer


def _generate_nearer(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    known, places = (
        pointer_to(context, builder, signature.args[i], arguments[i], arguments[1])
        for i in (4, 6)
    )
    place = repeat(builder, arguments[7], _WIDTH)
    for lane in range(0, LANES, _WIDTH):
        gaps = _gaps(context, builder, signature, arguments, lane)
        before = load(builder, known, lane, _WIDTH)
        is_nearer = builder.fcmp_ordered("<", gaps, before)
        store_vector(
            builder, builder.select(is_nearer, gaps, before), known, constant(lane)
        )
        old = load_vector(builder, places, constant(lane), arguments[7].type, _WIDTH)
        new = builder.select(is_nearer, place, old)
        store_vector(builder, new, places, constant(lane))
    return context.get_dummy_value()


def _gaps(context: Any, builder: Any, signature: Any, arguments: Any, lane: int) -> Any:
    """Return the squared distances of some queries to a box.

    The arguments begin with queries, the first one, lows and highs; the sixth are weights.
    """

    def start(array: int, offset: Any) -> Any:
        return pointer_to(context, builder, signature.args[array], arguments[array], offset)

    def length(array: int) -> Any:
        shape = shape_of(context, builder, signature.args[array], arguments[array])
        return builder.extract_value(shape, 0)

    columns = start(0, arguments[1])
    lows, highs, weights = (start(array, constant(0)) for array in (2, 3, 5))
    n_codes = length(5)
    n_numbers = builder.sub(length(2), n_codes)
    zero = ir.Constant(ir.VectorType(FLOAT, _WIDTH), [0.0] * _WIDTH)

    def column(k: Any) -> tuple[Any, Any, Any]:
        """Return what queries have in a column, and the interval of the box."""
        place = builder.add(builder.mul(k, constant(TILE_ROWS)), constant(lane))
        low = repeat(builder, load_number(builder, lows, k), _WIDTH)
        high = repeat(builder, load_number(builder, highs, k), _WIDTH)
        return load_vector(builder, columns, place, FLOAT, _WIDTH), low, high

    def add_gap(k: Any, totals: list[Any]) -> list[Any]:
        number, low, high = column(k)
        gap = larger(builder, builder.fsub(low, number), builder.fsub(number, high))
        return [_add_square(builder, totals[0], larger(builder, gap, zero))]

    def add_code(j: Any, totals: list[Any]) -> list[Any]:
        code, low, high = column(builder.add(n_numbers, j))
        weight = repeat(builder, load_number(builder, weights, j), _WIDTH)
        is_out = builder.or_(
            builder.fcmp_ordered("<", code, low), builder.fcmp_ordered(">", code, high)
        )
        return [builder.select(is_out, builder.fadd(totals[0], weight), totals[0])]

    totals = loop(builder, constant(0), n_numbers, 1, [zero], add_gap)
    (total,) = loop(builder, constant(0), n_codes, 1, totals, add_code)
    return total


def _add_square(builder: Any, total: Any, number: Any) -> Any:
    contract = {"flags": ("contract",)}
    return builder.fadd(total, builder.fmul(number, number, **contract), **contract)


@intrinsic
def move_to_center(  # type: ignore[no-untyped-def]
    typing_context, points, i, centers, lows, highs, cell, n_numbers, moved
):
    """Fill ``moved`` with the offset of a point from the center of a cell.

    The offset of ``points[i]`` is rounded to float32; lows and highs are those of boxes of
    cells from their centers. Returns its squared length, and that of its gap to the box.
    """
    of_doubles, of_singles = (points, centers), (lows, highs, moved)
    if not all(is_contiguous(array, types.float64) for array in of_doubles):
        return None
    if not all(is_contiguous(array, types.float32) for array in of_singles):
        return None
    found = types.UniTuple(types.float64, 2)
    place = types.intp
    signature = found(points, place, centers, lows, highs, place, place, moved)
    return signature, _generate_move


def _generate_move(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    def row(array: int, number: int) -> Any:
        given = signature.args[array], arguments[array]
        shape = shape_of(context, builder, *given)
        first = builder.mul(arguments[number], builder.extract_value(shape, 1))
        return pointer_to(context, builder, *given, first)

    point, center = row(0, 1), row(2, 5)
    low, high = row(3, 5), row(4, 5)
    offset = pointer_to(context, builder, signature.args[7], arguments[7], constant(0))

    def move(width: int) -> Callable[[Any, list[Any]], list[Any]]:
        none = ir.Constant(ir.VectorType(FLOAT, width), [0.0] * width)

        def add(k: Any, totals: list[Any]) -> list[Any]:
            difference = builder.fsub(
                load_vector(builder, point, k, DOUBLE, width),
                load_vector(builder, center, k, DOUBLE, width),
            )
            moved = builder.fptrunc(difference, ir.VectorType(FLOAT, width))
            store_vector(builder, moved, offset, k)
            below = builder.fsub(load_vector(builder, low, k, FLOAT, width), moved)
            above = builder.fsub(moved, load_vector(builder, high, k, FLOAT, width))
            gap = larger(builder, larger(builder, below, above), none)
            wide = builder.fpext(moved, difference.type)
            return [
                _add_square(builder, totals[0], wide),
                _add_square(builder, totals[1], gap),
            ]

        return add

    def zeros(width: int) -> list[Any]:
        return [
            ir.Constant(ir.VectorType(kind, width), [0.0] * width)
            for kind in (DOUBLE, FLOAT)
        ]

    n_numbers = arguments[6]
    n_whole = builder.and_(n_numbers, constant(-_MOVED))
    whole = loop(builder, constant(0), n_whole, _MOVED, zeros(_MOVED), move(_MOVED))
    rest = loop(builder, n_whole, n_numbers, 1, zeros(1), move(1))
    square, gap = (
        builder.fadd(total_of(builder, of_whole), total_of(builder, of_rest))
        for of_whole, of_rest in zip(whole, rest, strict=True)
    )
    return context.make_tuple(
        builder, signature.return_type, [square, builder.fpext(gap, DOUBLE)]
    )


@intrinsic
def round_offset(typing_context, moved, n_numbers, per_step, offsets, r):  # type: ignore[no-untyped-def]
    """Fill ``offsets[r]`` with an offset as whole numbers, of ``per_step`` times it.

    See `rounding`; what is beyond 16 bits becomes the largest number.
    """
    if not is_contiguous(moved, types.float32) or not is_contiguous(offsets, types.int16):
        return None
    place = types.intp
    return types.void(moved, place, types.float32, offsets, place), _generate_rounded


def _generate_rounded(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    shape = shape_of(context, builder, signature.args[3], arguments[3])
    first = builder.mul(arguments[4], builder.extract_value(shape, 1))
    offset = pointer_to(context, builder, signature.args[3], arguments[3], first)
    moved = pointer_to(context, builder, signature.args[0], arguments[0], constant(0))

    def round_some(width: int) -> Callable[[Any, list[Any]], list[Any]]:
        def every(number: float) -> Any:
            return ir.Constant(ir.VectorType(FLOAT, width), [number] * width)

        def add(k: Any, none: list[Any]) -> list[Any]:
            number = load_vector(builder, moved, k, FLOAT, width)
            number = builder.fmul(number, repeat(builder, arguments[2], width))
            # Numbers of that size are whole: what is added is rounded off.
            number = builder.fadd(number, every(_ROUNDS_OFF))
            number = builder.fsub(number, every(_ROUNDS_OFF))
            number = larger(builder, number, every(float(LARGEST)), sign="<")
            number = larger(builder, number, every(-float(LARGEST)))
            whole = builder.fptosi(number, ir.VectorType(ir.IntType(32), width))
            short = builder.trunc(whole, ir.VectorType(SHORT, width))
            store_vector(builder, short, offset, k)
            return none

        return add

    n_whole = builder.and_(arguments[1], constant(-_MOVED))
    loop(builder, constant(0), n_whole, _MOVED, [], round_some(_MOVED))
    loop(builder, n_whole, arguments[1], 1, [], round_some(1))
    return context.get_dummy_value()
