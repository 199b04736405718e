"""Compare a few rows of a block with 64 rows of another, for either side at one go.

The sums are those of `filters`. To each the term of the query is added that it lacks of a
lower bound of the squared distance; that bound is one of both sides, so that a pair matters
if it is within the limit of the query or within that of the row.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from lpe_dask.kernels.arrays import LANES
from lpe_dask.kernels.filters import column_of
from lpe_dask.kernels.numba_internals import shape_of
from lpe_dask.kernels.simd import (
    FLOAT,
    WORD,
    constant,
    is_contiguous,
    load,
    load_number,
    loop,
    pointer_to,
    repeat,
    store,
)
from lpe_dask.kernels.simd_profiles import SIMD_PROFILES, SimdProfile, chosen_profile


def build_pair_filter(form: SimdProfile) -> Any:
    """Return a filter in one form: an intrinsic that sums the last features of some pairs.

    It is called as ``intrinsic(queries, first, groups, group_start, n_features, norms,
    norm_start, row_limits, lifts, limits, pack_start, sums, masks, is_first)``, sums like
    `filters.build_filter` without codes, for queries from ``pack_start`` on, and adds
    ``lifts[pack_start + q]`` in the end. That is put into ``sums[64 (pack_start + q) +
    l]``, and bit l of ``masks[pack_start + q]`` says whether it is at most
    ``limits[pack_start + q]`` or ``row_limits[norm_start + l]``, never for NaN.

    Nothing depends on whether there is any such pair: a processor that guesses that wrong
    stops multiplying, for longer than it takes to write all sums.
    """

    @intrinsic
    def bound_pairs(  # type: ignore[no-untyped-def]
        typing_context, queries, first, groups, group_start, n_features, norms,
        norm_start, row_limits, lifts, limits, pack_start, sums, masks, is_first,
    ):  # fmt: skip
        single = (queries, groups, norms, row_limits, lifts, limits, sums)
        if not all(is_contiguous(array, types.float32) for array in single):
            return None
        if not is_contiguous(masks, types.uint64):
            return None
        place = types.intp
        signature = types.void(
            queries, place, groups, place, place, norms, place, row_limits, lifts, limits,
            place, sums, masks, types.boolean,
        )  # fmt: skip
        return signature, partial(_generate, form)

    return bound_pairs


def _generate(
    form: SimdProfile, context: Any, builder: Any, signature: Any, arguments: Any
) -> Any:
    def start(array: int, offset: Any) -> Any:
        return pointer_to(context, builder, signature.args[array], arguments[array], offset)

    group, n_features = start(2, arguments[3]), arguments[4]
    shape = shape_of(context, builder, signature.args[0], arguments[0])
    stored = builder.extract_value(shape, 1)
    points = []
    for q in range(form.queries):
        row = builder.mul(builder.add(arguments[10], constant(q)), stored)
        points.append(start(0, builder.add(row, arguments[1])))
    norm, row_limit = start(5, arguments[6]), start(7, arguments[6])
    lift, limit, mask = (start(i, arguments[10]) for i in (8, 9, 12))
    sums = start(11, builder.mul(arguments[10], constant(LANES)))
    begin = builder.select(arguments[13], norm, sums)
    step = builder.select(arguments[13], constant(0), constant(LANES))
    queries, words = range(form.queries), [constant(0)] * form.queries
    for lane in range(0, LANES, form.width):

        def multiply(k: Any, totals: list[Any], lane: int = lane) -> list[Any]:
            pairs = column_of(builder, form, points, group, k, lane)
            contract = {"flags": ("contract",)}
            return [
                builder.fadd(total, builder.fmul(*pair, **contract), **contract)
                for total, pair in zip(totals, pairs, strict=True)
            ]

        totals = []
        for q in queries:
            place = builder.gep(begin, [builder.mul(step, constant(q))], source_etype=FLOAT)
            totals.append(load(builder, place, lane, form.width))
        totals = loop(builder, constant(0), n_features, 1, totals, multiply)
        of_rows = load(builder, row_limit, lane, form.width)
        for q, total in enumerate(totals):
            lifted = builder.fadd(total, _of_query(builder, lift, q, form.width))
            own = _of_query(builder, limit, q, form.width)
            is_larger = builder.fcmp_ordered(">", of_rows, own)
            larger = builder.select(is_larger, of_rows, own)
            within = builder.fcmp_ordered("<=", lifted, larger)
            bits = builder.bitcast(within, ir.IntType(form.width))
            bits = bits if form.width == LANES else builder.zext(bits, WORD)
            words[q] = builder.or_(words[q], builder.shl(bits, constant(lane)))
            store(builder, lifted, sums, LANES * q + lane)
    for q, word in enumerate(words):
        builder.store(word, builder.gep(mask, [constant(q)], source_etype=WORD))
    return context.get_dummy_value()


def _of_query(builder: Any, numbers: Any, q: int, width: int) -> Any:
    """Return what a query has of some numbers, repeated."""
    return repeat(builder, load_number(builder, numbers, constant(q)), width)


bound_pairs = build_pair_filter(SIMD_PROFILES[chosen_profile()])
