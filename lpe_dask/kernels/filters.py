"""Compare a few queries with 64 reference rows at a time.

Several queries share each load of reference rows, as in a matrix product, so that the
multipliers and not the memory set the pace. How many, and with how many of the 64 rows at a
time, is the form (see `simd_profiles`).

Numbers are multiplied; the codes of categories that follow them are compared, and each that
differs adds a weight.

What is computed here is a filter in float32 with a proven error (see `basis`); products
may be contracted. No distance that is kept comes from this file.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from numba import types
from numba.extending import intrinsic

from lpe_dask.kernels.arrays import LANES
from lpe_dask.kernels.compiled import borrowing, inlined
from lpe_dask.kernels.numba_internals import shape_of
from lpe_dask.kernels.simd import (
    FLOAT,
    WORD,
    bits_within,
    constant,
    fetch,
    is_contiguous,
    load,
    load_number,
    loop,
    pointer_to,
    repeat,
    store,
)
from lpe_dask.kernels.simd_profiles import SIMD_PROFILES, SimdProfile, chosen_profile


def build_filter(form: SimdProfile) -> Any:
    """Return a filter in one form: an intrinsic that sums features of some pairs.

    It is called as ``intrinsic(queries, first, listed, list_start, groups, group_start,
    n_features, weights, norms, norm_start, limits, sums, sums_start, masks, is_first,
    is_last)`` and takes the form's number of queries Q, those that are listed from
    ``list_start`` on, and a group of reference rows. For listed query q and lane l, with
    ``a`` the numbers of its row in ``queries`` from ``first`` on, and ``y`` those from
    ``group_start`` on::

        sum = initial + sum_k a[k] * y[64 k + l]

    for k below ``n_features``, and, with the last part, plus ``weights[j]`` for each j with
    ``a[k] != y[64 k + l]`` for ``k = n_features + j``.

    ``initial`` is ``norms[norm_start + l]`` for the first part, and otherwise
    ``sums[sums_start + 64 q + l]``, where the sum is put if it is to be continued. With the
    last part, bit l of ``masks[q]`` says whether the sum is at most the limit of the query
    (never for NaN), and the returned word has bit q if that is any; sums are put there as
    well.
    Where no pair is near, nothing else need be written; before the last part, masks and the
    returned word have no meaning. Parts of all features at once are first and last.
    """

    @intrinsic
    def sum_products(  # type: ignore[no-untyped-def]
        typing_context, queries, first, listed, list_start, groups, group_start,
        n_features, weights, norms, norm_start, limits, sums, sums_start, masks, is_first,
        is_last,
    ):  # fmt: skip
        single = (queries, groups, weights, norms, limits, sums)
        if not all(is_contiguous(array, types.float32) for array in single):
            return None
        if not is_contiguous(masks, types.uint64) or not is_contiguous(listed, types.int64):
            return None
        place, flag = types.intp, types.boolean
        signature = types.uint64(
            queries, place, listed, place, groups, place, place, weights, norms, place,
            limits, sums, place, masks, flag, flag,
        )  # fmt: skip
        return signature, partial(_generate, form)

    return sum_products


def _generate(
    form: SimdProfile, context: Any, builder: Any, signature: Any, arguments: Any
) -> Any:
    def start(array: int, offset: Any) -> Any:
        return pointer_to(context, builder, signature.args[array], arguments[array], offset)

    group, n_features = start(4, arguments[5]), arguments[6]
    norm, sums = start(8, arguments[9]), start(11, arguments[12])
    limits, masks = start(10, constant(0)), start(13, constant(0))
    weights = start(7, constant(0))
    is_first, is_last = arguments[14:]
    shape = shape_of(context, builder, signature.args[7], arguments[7])
    n_codes = builder.select(is_last, builder.extract_value(shape, 0), constant(0))
    # From the norms on, which are those of all queries, or from sums of parts before.
    begin = builder.select(is_first, norm, sums)
    step = builder.select(is_first, constant(0), constant(LANES))
    queries, words = range(form.queries), [constant(0)] * form.queries
    listed = start(2, arguments[3])
    numbers = [
        builder.load(builder.gep(listed, [constant(q)], source_etype=WORD), typ=WORD)
        for q in queries
    ]
    shape = shape_of(context, builder, signature.args[0], arguments[0])
    stored = builder.extract_value(shape, 1)
    points = [
        start(0, builder.add(builder.mul(number, stored), arguments[1]))
        for number in numbers
    ]
    for lane in range(0, LANES, form.width):

        def multiply(k: Any, totals: list[Any], lane: int = lane) -> list[Any]:
            pairs = column_of(builder, form, points, group, k, lane)
            contract = {"flags": ("contract",)}
            return [
                builder.fadd(total, builder.fmul(*pair, **contract), **contract)
                for total, pair in zip(totals, pairs, strict=True)
            ]

        def compare(j: Any, totals: list[Any], lane: int = lane) -> list[Any]:
            weight = repeat(builder, load_number(builder, weights, j), form.width)
            k = builder.add(n_features, j)
            pairs = column_of(builder, form, points, group, k, lane)
            differ = [builder.fcmp_unordered("!=", *pair) for pair in pairs]
            return [
                builder.select(differs, builder.fadd(total, weight), total)
                for differs, total in zip(differ, totals, strict=True)
            ]

        totals = []
        for q in queries:
            place = builder.gep(begin, [builder.mul(step, constant(q))], source_etype=FLOAT)
            totals.append(load(builder, place, lane, form.width))
        totals = loop(builder, constant(0), n_features, 1, totals, multiply)
        totals = loop(builder, constant(0), n_codes, 1, totals, compare)
        bits = [
            bits_within(builder, total, load_number(builder, limits, number))
            for number, total in zip(numbers, totals, strict=True)
        ]
        bits = [builder.shl(word, constant(lane)) for word in bits]
        words = list(map(builder.or_, words, bits))
        is_near = builder.icmp_unsigned("!=", _joined(builder, bits), constant(0))
        with builder.if_then(builder.or_(is_near, builder.not_(is_last)), likely=False):
            for q, total in enumerate(totals):
                store(builder, total, sums, LANES * q + lane)
    return _write_masks(builder, words, masks)


def column_of(
    builder: Any, form: SimdProfile, points: list[Any], group: Any, k: Any, lane: int
) -> Iterator[tuple[Any, Any]]:
    """Give for each query what it has in column ``k``, repeated, and what rows have."""
    row = builder.gep(group, [builder.mul(k, constant(LANES))], source_etype=FLOAT)
    references = load(builder, row, lane, form.width)
    for point in points:
        yield repeat(builder, load_number(builder, point, k), form.width), references


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

#: Features that are summed at a time: so much of a group, 32 KiB, stays in a core's nearest
#: cache while all queries of a tile pass.
FEATURES_AT_ONCE = 128

#: Numbers of a line of a cache, which is what comes from memory at a time.
LINE_NUMBERS = 16

_filter = build_filter(SIMD_PROFILES[chosen_profile()])


@inlined
def fetch_next(pack, n_packs, start, n_summed, block):  # type: ignore[no-untyped-def]
    """Ask for a share of what follows the features at hand in memory, and is summed next.

    Otherwise all packs would wait for the first one to load it.
    """
    n_lines = n_summed * (LANES // LINE_NUMBERS)
    following = start + n_summed * LANES
    line = pack
    while line < n_lines:  # a range with such a step would divide first
        fetch(block.groups, following + line * LINE_NUMBERS)
        line += n_packs


@inlined
def parts_of(n_numbers):  # type: ignore[no-untyped-def]
    """Return in how many parts so many numbers are summed."""
    return -(-n_numbers // FEATURES_AT_ONCE)


@inlined
def _filter_part(part, n_parts, pack, n_packs, g, n_features, block, tile):  # type: ignore[no-untyped-def]
    """Sum a part of the features, and with the last one compare: see `filter_pack`."""
    n_codes = len(tile.lowered)
    n_numbers = n_features - n_codes
    first = part * n_numbers // n_parts
    n_summed = (part + 1) * n_numbers // n_parts - first
    start, is_last = (g * n_features + first) * LANES, part == n_parts - 1
    fetch_next(pack, n_packs, start, n_summed + (n_codes if is_last else 0), block)
    return _filter(
        tile.offsets, first, tile.listed, pack * QUERIES, block.groups, start, n_summed,
        tile.lowered, block.norms, g * LANES, tile.thresholds, tile.sums,
        pack * QUERIES * LANES, tile.masks, part == 0, is_last,
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
    n_numbers = n_features - len(tile.lowered)
    if n_numbers > FEATURES_AT_ONCE:
        near = _filter_last_part(pack, n_packs, g, n_features, block, tile)
        return near, pack * QUERIES * LANES
    start = g * n_features * LANES
    fetch_next(pack, n_packs, start, n_features, block)
    near = _filter(
        tile.offsets, 0, tile.listed, pack * QUERIES, block.groups, start, n_numbers,
        tile.lowered, block.norms, g * LANES, tile.thresholds, tile.sums, 0, tile.masks,
        True, True,
    )  # fmt: skip
    return near, 0
