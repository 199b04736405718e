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
from lpe_dask.kernels.filters import add_scaled, rounding_bound, sum_pairs
from lpe_dask.kernels.numba_internals import shape_of
from lpe_dask.kernels.simd import (
    FLOAT,
    WORD,
    constant,
    is_contiguous,
    larger,
    load_number,
    load_vector,
    pointer_to,
    repeat,
    store_vector,
)
from lpe_dask.kernels.simd_profiles import SIMD_PROFILES, SimdProfile, chosen_profile


def build_pair_filter(form: SimdProfile) -> Any:
    """Return a filter in one form: an intrinsic that sums the last features of some pairs.

    It is called as ``intrinsic(queries, first, groups, group_start, n_pairs, norms,
    norm_start, row_limits, scales, step, lifts, spans, rounding, roundings, span, limits,
    pack_start, sums, masks, is_first)``, sums like `filters.build_filter` without codes,
    for queries from ``pack_start`` on, and adds ``lifts[q] - spans[q] * rounding -
    roundings[q] * span`` in the end. That is put into ``sums[64 q + l]``, and bit l of
    ``masks[q]`` says whether it is at most ``limits[q]`` or ``row_limits[norm_start + l]``,
    never for NaN.

    Nothing depends on whether there is any such pair: a processor that guesses that wrong
    stops multiplying, for longer than it takes to write all sums.
    """

    @intrinsic
    def bound_pairs(  # type: ignore[no-untyped-def]
        typing_context, queries, first, groups, group_start, n_pairs, norms, norm_start,
        row_limits, scales, step, lifts, spans, rounding, roundings, span, limits,
        pack_start, sums, masks, is_first,
    ):  # fmt: skip
        single = (norms, row_limits, scales, lifts, spans, roundings, limits, sums)
        if not all(is_contiguous(array, types.float32) for array in single):
            return None
        if not all(is_contiguous(array, types.int16) for array in (queries, groups)):
            return None
        if not is_contiguous(masks, types.uint64):
            return None
        place, number = types.intp, types.float32
        signature = types.void(
            queries, place, groups, place, place, norms, place, row_limits, scales, number,
            lifts, spans, number, roundings, number, limits, place, sums, masks,
            types.boolean,
        )  # fmt: skip
        return signature, partial(_generate, form)

    return bound_pairs


def _generate(
    form: SimdProfile, context: Any, builder: Any, signature: Any, arguments: Any
) -> Any:
    def start(array: int, offset: Any) -> Any:
        return pointer_to(context, builder, signature.args[array], arguments[array], offset)

    two, pack = constant(2), arguments[16]
    group, n_pairs = start(2, builder.mul(arguments[3], two)), arguments[4]
    shape = shape_of(context, builder, signature.args[0], arguments[0])
    stored = builder.extract_value(shape, 1)
    points, scales, lifts, limits = [], [], [], []
    scale, lift, of_rows, of_own, limit = (start(i, pack) for i in (8, 10, 11, 13, 15))
    for q in range(form.queries):
        row = builder.mul(builder.add(pack, constant(q)), stored)
        points.append(start(0, builder.add(row, builder.mul(arguments[1], two))))

        def of_query(numbers: Any, q: int = q) -> Any:
            return load_number(builder, numbers, constant(q))

        scales.append(builder.fmul(of_query(scale), arguments[9]))
        off = rounding_bound(
            builder, of_query(of_rows), arguments[12], of_query(of_own), arguments[14]
        )
        lifts.append(builder.fsub(of_query(lift), off))
        limits.append(of_query(limit))
    norm, row_limit = start(5, arguments[6]), start(7, arguments[6])
    mask, sums = start(18, pack), start(17, builder.mul(pack, constant(LANES)))
    begin = builder.select(arguments[19], norm, sums)
    step = builder.select(arguments[19], constant(0), constant(LANES))
    words = [constant(0)] * form.queries
    for lane in range(0, LANES, form.width):
        totals = sum_pairs(builder, form, points, group, n_pairs, lane)
        registers = len(totals) // form.queries
        for i, total in enumerate(totals):
            q, place = i // registers, lane + i % registers * form.lanes
            at = builder.add(builder.mul(step, constant(q)), constant(place))
            initial = load_vector(builder, begin, at, FLOAT, form.lanes)
            single = add_scaled(builder, initial, total, scales[q])
            lifted = builder.fadd(single, repeat(builder, lifts[q], form.lanes))
            own = repeat(builder, limits[q], form.lanes)
            of_row = load_vector(builder, row_limit, constant(place), FLOAT, form.lanes)
            within = builder.fcmp_ordered("<=", lifted, larger(builder, of_row, own))
            bits = builder.bitcast(within, ir.IntType(form.lanes))
            bits = builder.shl(builder.zext(bits, WORD), constant(place))
            words[q] = builder.or_(words[q], bits)
            store_vector(builder, lifted, sums, constant(LANES * q + place))
    for q, word in enumerate(words):
        builder.store(word, builder.gep(mask, [constant(q)], source_etype=WORD))
    return context.get_dummy_value()


bound_pairs = build_pair_filter(SIMD_PROFILES[chosen_profile()])
