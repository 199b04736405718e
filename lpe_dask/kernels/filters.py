"""Compare a few queries with 64 reference rows at a time.

Several queries share each load of reference rows, as in a matrix product, so that the
multipliers and not the memory set the pace. How many, and with how many of the 64 rows at a
time, is the form (see `simd_profiles`).

Offsets from the center of a cell are multiplied as whole numbers of 16 bits, in twos, and
added up in 32 bits: twice as many at a time as of float32. The codes of categories that
follow them are compared, and each that differs adds a weight.

What is computed here is a filter with a proven error (see `basis` and `rounding`); products
may be contracted. No distance that is kept comes from this file.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from lpe_dask.kernels.arrays import LANES
from lpe_dask.kernels.compiled import borrowing, inlined
from lpe_dask.kernels.numba_internals import shape_of
from lpe_dask.kernels.simd import (
    FLOAT,
    SHORT,
    SUM,
    WORD,
    bits_within,
    constant,
    fetch,
    is_contiguous,
    load_number,
    load_vector,
    loop,
    pointer_to,
    repeat,
    store_vector,
)
from lpe_dask.kernels.simd_profiles import SIMD_PROFILES, SimdProfile, chosen_profile

#: Of products and sums in float32, which may be made at one go.
CONTRACT = {"flags": ("contract",)}


def build_filter(form: SimdProfile) -> Any:
    """Return a filter in one form: an intrinsic that sums features of some pairs.

    It is called as ``intrinsic(queries, first, listed, list_start, groups, group_start,
    n_pairs, codes, code_groups, code_start, weights, norms, norm_start, scales, step,
    limits, spans, rounding, roundings, span, sums, sums_start, masks, is_first, is_last)``
    and takes the form's number of queries Q, those that are listed from ``list_start`` on,
    and a group of reference rows. For listed query q and lane l, with ``a`` the whole
    numbers of its row in ``queries`` from ``2 first`` on, and ``y`` those of the group from
    ``2 group_start`` on::

        sum = initial + scales[q] * step * sum_k a[k] * y[128 (k // 2) + 2 l + k % 2]

    for k below ``2 n_pairs``, and, with the last part, plus ``weights[j]`` for each j with
    ``codes[q, j] != code_groups[code_start + 64 j + l]``.

    ``initial`` is ``norms[norm_start + l]`` for the first part, and otherwise
    ``sums[sums_start + 64 q + l]``, where the sum is put if it is to be continued. With the
    last part, bit l of ``masks[q]`` says whether the sum is at most ``limits[q] +
    spans[q] * rounding + roundings[q] * span`` (never for NaN), and the returned word has
    bit q if that is any; sums are put there as well. Where no pair is near, nothing else
    need be written; before the last part, masks and the returned word have no meaning.
    Parts of all features at once are first and last.
    """

    @intrinsic
    def sum_products(  # type: ignore[no-untyped-def]
        typing_context, queries, first, listed, list_start, groups, group_start, n_pairs,
        codes, code_groups, code_start, weights, norms, norm_start, scales, step, limits,
        spans, rounding, roundings, span, sums, sums_start, masks, is_first, is_last,
    ):  # fmt: skip
        single = (codes, code_groups, weights, norms, scales, limits, spans, roundings)
        if not all(is_contiguous(array, types.float32) for array in (*single, sums)):
            return None
        if not all(is_contiguous(array, types.int16) for array in (queries, groups)):
            return None
        if not is_contiguous(masks, types.uint64) or not is_contiguous(listed, types.int64):
            return None
        place, flag, number = types.intp, types.boolean, types.float32
        signature = types.uint64(
            queries, place, listed, place, groups, place, place, codes, code_groups, place,
            weights, norms, place, scales, number, limits, spans, number, roundings, number,
            sums, place, masks, flag, flag,
        )  # fmt: skip
        return signature, partial(_generate, form)

    return sum_products


def _generate(
    form: SimdProfile, context: Any, builder: Any, signature: Any, arguments: Any
) -> Any:
    def start(array: int, offset: Any) -> Any:
        return pointer_to(context, builder, signature.args[array], arguments[array], offset)

    def length(array: int, axis: int = 0) -> Any:
        shape = shape_of(context, builder, signature.args[array], arguments[array])
        return builder.extract_value(shape, axis)

    def rows(array: int, numbers: list[Any], offset: Any) -> list[Any]:
        size = length(array, 1)
        firsts = [builder.mul(number, size) for number in numbers]
        return [start(array, builder.add(first, offset)) for first in firsts]

    listed, queries = start(2, arguments[3]), range(form.queries)
    numbers = [
        builder.load(builder.gep(listed, [constant(q)], source_etype=WORD), typ=WORD)
        for q in queries
    ]
    two = constant(2)
    points = rows(0, numbers, builder.mul(arguments[1], two))
    codes = rows(7, numbers, constant(0))
    group = start(4, builder.mul(arguments[5], two))
    code_group, weights = start(8, arguments[9]), start(10, constant(0))
    norm, sums = start(11, arguments[12]), start(20, arguments[21])
    masks = start(22, constant(0))
    is_first, is_last = arguments[23:]
    n_codes = builder.select(is_last, length(10), constant(0))

    def of_query(array: int, number: Any) -> Any:
        return load_number(builder, start(array, constant(0)), number)

    scales, limits = _scales_and_limits(builder, of_query, numbers, arguments)
    # From the norms on, which are those of all queries, or from sums of parts before.
    begin = builder.select(is_first, norm, sums)
    begin_step = builder.select(is_first, constant(0), constant(LANES))
    words = [constant(0)] * form.queries
    for lane in range(0, LANES, form.width):
        totals = sum_pairs(builder, form, points, group, arguments[6], lane)
        registers = len(totals) // form.queries

        singles = []
        for i, total in enumerate(totals):
            q, place = i // registers, lane + i % registers * form.lanes
            at = builder.add(builder.mul(begin_step, constant(q)), constant(place))
            initial = load_vector(builder, begin, at, FLOAT, form.lanes)
            singles.append(add_scaled(builder, initial, total, scales[q]))
        compare = partial(_add_codes, builder, form, codes, code_group, weights, lane)
        singles = loop(builder, constant(0), n_codes, 1, singles, compare)
        bits = [constant(0)] * form.queries
        for i, total in enumerate(singles):
            q, place = i // registers, lane + i % registers * form.lanes
            word = bits_within(builder, total, limits[q])
            bits[q] = builder.or_(bits[q], builder.shl(word, constant(place)))
        words = list(map(builder.or_, words, bits))
        is_near = builder.icmp_unsigned("!=", _joined(builder, bits), constant(0))
        with builder.if_then(builder.or_(is_near, builder.not_(is_last)), likely=False):
            for i, total in enumerate(singles):
                q, place = i // registers, lane + i % registers * form.lanes
                store_vector(builder, total, sums, constant(LANES * q + place))
    return _write_masks(builder, words, masks)


def _scales_and_limits(
    builder: Any, of_query: Any, numbers: list[Any], arguments: Any
) -> tuple[list[Any], list[Any]]:
    """Return what sums of products are multiplied by, and up to where rows are near."""
    scales, limits = [], []
    for number in numbers:
        scales.append(builder.fmul(of_query(13, number), arguments[14]))
        spans = of_query(16, number), arguments[17], of_query(18, number), arguments[19]
        limits.append(builder.fadd(of_query(15, number), rounding_bound(builder, *spans)))
    return scales, limits


def rounding_bound(
    builder: Any, span: Any, rounding: Any, own_rounding: Any, rows_span: Any
) -> Any:
    """Return what sums of a query and a group may be off as their offsets are rounded."""
    of_rows = builder.fmul(span, rounding, **CONTRACT)
    of_own = builder.fmul(own_rounding, rows_span, **CONTRACT)
    return builder.fadd(of_rows, of_own, **CONTRACT)


def _add_codes(
    builder: Any,
    form: SimdProfile,
    codes: list[Any],
    code_group: Any,
    weights: Any,
    lane: int,
    j: Any,
    totals: list[Any],
) -> list[Any]:
    """Return totals with the weight of column ``j`` where codes of it differ."""
    weight = repeat(builder, load_number(builder, weights, j), form.lanes)
    of_rows = [
        load_vector(
            builder, code_group,
            builder.add(builder.mul(j, constant(LANES)), constant(place)),
            FLOAT, form.lanes,
        )
        for place in range(lane, lane + form.width, form.lanes)
    ]  # fmt: skip
    added = []
    for i, total in enumerate(totals):
        code = load_number(builder, codes[i // len(of_rows)], j)
        differs = builder.fcmp_unordered(
            "!=", repeat(builder, code, form.lanes), of_rows[i % len(of_rows)]
        )
        more = builder.fadd(total, weight)
        added.append(builder.select(differs, more, total))
    return added


def sum_pairs(
    builder: Any, form: SimdProfile, points: list[Any], group: Any, n_pairs: Any, lane: int
) -> list[Any]:
    """Return sums of products of whole numbers, in 32 bits.

    A register of each query and ``form.lanes`` rows, from row ``lane`` of the group on, for
    ``form.width`` rows; those of a query one after another.
    """
    registers = form.width // form.lanes
    zero = ir.Constant(ir.VectorType(SUM, form.lanes), [0] * form.lanes)
    in_twos = ir.VectorType(SHORT, 2 * form.lanes)

    def add(k: Any, totals: list[Any]) -> list[Any]:
        first = builder.add(builder.mul(k, constant(LANES)), constant(lane))
        rows = [
            builder.bitcast(
                load_vector(
                    builder, builder.bitcast(group, SUM.as_pointer()),
                    builder.add(first, constant(r * form.lanes)), SUM, form.lanes,
                ),
                in_twos,
            )
            for r in range(registers)
        ]  # fmt: skip
        added = []
        for q, point in enumerate(points):
            both = builder.gep(
                builder.bitcast(point, SUM.as_pointer()), [k], source_etype=SUM
            )
            both = builder.load(both, align=4, typ=SUM)
            both = builder.bitcast(repeat(builder, both, form.lanes), in_twos)
            for r, row in enumerate(rows):
                product = _add_twos(builder, form, row, both)
                added.append(builder.add(totals[q * registers + r], product))
        return added

    initial = [zero] * (registers * len(points))
    return loop(builder, constant(0), n_pairs, 1, initial, add)


def _add_twos(builder: Any, form: SimdProfile, one: Any, other: Any) -> Any:
    """Return the products of whole numbers of 16 bits, added in twos."""
    sums = ir.VectorType(SUM, form.lanes)
    if form.product is not None:
        multiply = builder.module.globals.get(form.product)
        if multiply is None:
            kind = ir.FunctionType(sums, [one.type, one.type])
            multiply = ir.Function(builder.module, kind, form.product)
        return builder.call(multiply, [one, other])
    parts = []
    for first in (0, 1):
        index = ir.Constant(
            ir.VectorType(ir.IntType(32), form.lanes),
            list(range(first, 2 * form.lanes, 2)),
        )
        wide = [
            builder.sext(builder.shuffle_vector(of, of, index), sums) for of in (one, other)
        ]
        parts.append(builder.mul(*wide))
    return builder.add(*parts)


def add_scaled(builder: Any, initial: Any, total: Any, scale: Any) -> Any:
    """Return ``initial + scale * total``, of whole numbers, in float32."""
    single = builder.sitofp(total, initial.type)
    scale = repeat(builder, scale, initial.type.count)
    return builder.fadd(initial, builder.fmul(single, scale, **CONTRACT), **CONTRACT)


def _joined(builder: Any, words: list[Any]) -> Any:
    """Return a word with all bits that any of the words has."""
    joined = words[0]
    for word in words[1:]:
        joined = builder.or_(joined, word)
    return joined


def _write_masks(builder: Any, words: list[Any], masks: Any) -> Any:
    """Write the words if any has a bit; return which of them have one, as bits."""
    none = constant(0)
    before = builder.basic_block
    is_any = builder.icmp_unsigned("!=", _joined(builder, words), none)
    with builder.if_then(is_any, likely=False):
        bits = []
        for q, word in enumerate(words):
            builder.store(word, builder.gep(masks, [constant(q)], source_etype=WORD))
            has_bit = builder.zext(builder.icmp_unsigned("!=", word, none), WORD)
            bits.append(builder.shl(has_bit, constant(q)))
        which, within = _joined(builder, bits), builder.basic_block
    nonzero = builder.phi(WORD)
    nonzero.add_incoming(none, before)
    nonzero.add_incoming(which, within)
    return nonzero


#: Queries that share each load of a group.
QUERIES = SIMD_PROFILES[chosen_profile()].queries

#: Pairs of features that are summed at a time: so much of a group, 32 KiB, stays in the
#: nearest cache of a core while all queries of a tile pass.
PAIRS_AT_ONCE = 128

#: Pairs of a line of a cache, which is what comes from memory at a time.
LINE_PAIRS = 16

_filter = build_filter(SIMD_PROFILES[chosen_profile()])


@inlined
def pairs_of(n_numbers):  # type: ignore[no-untyped-def]
    """Return in how many twos so many numbers are."""
    return (n_numbers + 1) // 2


@inlined
def fetch_next(pack, n_packs, start, n_pairs, block):  # type: ignore[no-untyped-def]
    """Ask for a share of what follows the features at hand in memory, and is summed next.

    Otherwise all packs would wait for the first one to load it.
    """
    n_lines = n_pairs * (LANES // LINE_PAIRS)
    following = (start + n_pairs * LANES) * 2
    line = pack
    while line < n_lines:  # a range with such a step would divide first
        fetch(block.groups, following + line * 2 * LINE_PAIRS)
        line += n_packs


@inlined
def parts_of(n_numbers):  # type: ignore[no-untyped-def]
    """Return in how many parts so many numbers are summed."""
    return -(-((n_numbers + 1) // 2) // PAIRS_AT_ONCE)


@inlined
def _filter_part(part, n_parts, pack, n_packs, g, n_features, block, tile):  # type: ignore[no-untyped-def]
    """Sum a part of the features, and with the last one compare: see `filter_pack`."""
    n_codes = len(tile.lowered)
    n_pairs = pairs_of(n_features - n_codes)
    first = part * n_pairs // n_parts
    n_summed = (part + 1) * n_pairs // n_parts - first
    start = (g * n_pairs + first) * LANES
    fetch_next(pack, n_packs, start, n_summed, block)
    return _filter(
        tile.offsets, first, tile.listed, pack * QUERIES, block.groups, start, n_summed,
        tile.codes, block.code_groups, g * n_codes * LANES, tile.lowered, block.norms,
        g * LANES, tile.scales, block.steps[g], tile.thresholds, tile.spans,
        block.roundings[g], tile.roundings, block.spans[g], tile.sums,
        pack * QUERIES * LANES, tile.masks, part == 0, part == n_parts - 1,
    )  # fmt: skip


@borrowing
def sum_parts(g, n_packs, n_summed_parts, n_features, block, tile):  # type: ignore[no-untyped-def]
    """Fill the sums of all packs with the first parts of group ``g``."""
    n_parts = parts_of(n_features - len(tile.lowered))
    for part in range(n_summed_parts):
        for pack in range(n_packs):
            _filter_part(part, n_parts, pack, n_packs, g, n_features, block, tile)


@inlined
def prepare_group(g, n_packs, n_features, block, tile):  # type: ignore[no-untyped-def]
    """Prepare the comparison of the listed queries with group ``g``, pack by pack."""
    n_parts = parts_of(n_features - len(tile.lowered))
    if n_parts > 1:
        sum_parts(g, n_packs, n_parts - 1, n_features, block, tile)


@borrowing  # by itself: within the loops of a search it would slow what has one part
def _filter_last_part(pack, n_packs, g, n_features, block, tile):  # type: ignore[no-untyped-def]
    n_parts = parts_of(n_features - len(tile.lowered))
    return _filter_part(n_parts - 1, n_parts, pack, n_packs, g, n_features, block, tile)


@inlined
def filter_pack(pack, n_packs, g, n_features, block, tile):  # type: ignore[no-untyped-def]
    """Fill the masks of a pack of the listed queries and group ``g``.

    Returns which queries of the pack have any bit set, as bits (if none has, masks are what
    they were), and where the sums of the pack start in ``tile.sums``.
    """
    n_codes = len(tile.lowered)
    n_pairs = pairs_of(n_features - n_codes)
    if n_pairs > PAIRS_AT_ONCE:
        near = _filter_last_part(pack, n_packs, g, n_features, block, tile)
        return near, pack * QUERIES * LANES
    start = g * n_pairs * LANES
    fetch_next(pack, n_packs, start, n_pairs, block)
    near = _filter(
        tile.offsets, 0, tile.listed, pack * QUERIES, block.groups, start, n_pairs,
        tile.codes, block.code_groups, g * n_codes * LANES, tile.lowered, block.norms,
        g * LANES, tile.scales, block.steps[g], tile.thresholds, tile.spans,
        block.roundings[g], tile.roundings, block.spans[g], tile.sums, 0, tile.masks, True,
        True,
    )  # fmt: skip
    return near, 0
