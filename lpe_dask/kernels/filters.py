"""Compare a few queries with 64 reference rows at a time.

Several queries share each load of reference rows, as in a matrix product, so that the
multipliers and not the memory set the pace. How many, and with how many of the 64 rows at a
time, is the form (see `forms`).

Numbers are multiplied; the codes of categories that follow them are compared, and each that
differs adds a weight.

What is computed here is a filter in float32 with a proven error (see `basis`); products
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
from lpe_dask.kernels.forms import FORMS, Form, chosen_form
from lpe_dask.kernels.private_uses import shape_of
from lpe_dask.kernels.simd import (
    FLOAT,
    WORD,
    bits_within,
    constant,
    fetch,
    is_contiguous,
    load,
    load_number,
    pointer_to,
    repeat,
    store,
)


class Filter:
    """A filter in one form, as intrinsics that sum all features of some pairs, or a part.

    Each is called as ``intrinsic(queries, query_start, groups, group_start, n_features,
    weights, norms, norm_start, limits, limit_start, sums, sums_start, masks)`` and takes
    the form's number of queries Q and a group of reference rows. For query q and lane l,
    with ``a`` and ``y`` the numbers from ``query_start`` and ``group_start`` on::

        sum = initial + sum_k a[Q k + q] * y[64 k + l]

    for k below ``n_features``, and, where it compares, plus ``weights[j]`` for each j with
    ``a[Q k + q] != y[64 k + l]`` for ``k = n_features + j``.

    ``initial`` is ``norms[norm_start + l]`` or ``sums[sums_start + 64 q + l]``, where the
    sum is put if it is to be continued. If not, bit l of ``masks[q]`` says whether ``sum <=
    limits[limit_start + q]`` (never for NaN), and the returned word has bit q if that is
    any; sums are put there as well. Where no pair is near, nothing else need be written.
    ``n_features`` is at least 1.

    Parameters
    ----------
    form : Form

    Attributes
    ----------
    whole : intrinsic
        From the norms on, to the comparison.
    first, next, last : intrinsic
        From the norms on; in the middle; to the comparison.
    """

    def __init__(self, form: Form) -> None:
        self._width, self._queries = form.width, form.queries
        self.whole = self._intrinsic(starts=True, ends=True)
        self.first = self._intrinsic(starts=True, ends=False)
        self.next = self._intrinsic(starts=False, ends=False)
        self.last = self._intrinsic(starts=False, ends=True)

    def _intrinsic(self, *, starts: bool, ends: bool) -> Any:
        @intrinsic
        def sum_products(  # type: ignore[no-untyped-def]
            typing_context, queries, query_start, groups, group_start, n_features, weights,
            norms, norm_start, limits, limit_start, sums, sums_start, masks,
        ):  # fmt: skip
            single = (queries, groups, weights, norms, limits, sums)
            if not all(is_contiguous(array, types.float32) for array in single):
                return None
            if not is_contiguous(masks, types.uint64):
                return None
            place = types.intp
            signature = types.uint64(
                queries, place, groups, place, place, weights, norms, place, limits, place,
                sums, place, masks,
            )  # fmt: skip
            return signature, partial(self._generate, starts, ends)

        return sum_products

    def _generate(
        self,
        starts: bool,
        ends: bool,
        context: Any,
        builder: Any,
        signature: Any,
        arguments: Any,
    ) -> Any:
        def start(array: int, offset: Any) -> Any:
            return pointer_to(
                context, builder, signature.args[array], arguments[array], offset
            )

        query, group = start(0, arguments[1]), start(2, arguments[3])
        norm, limit = start(6, arguments[7]), start(8, arguments[9])
        sums, masks = start(10, arguments[11]), start(12, constant(0))
        shape = shape_of(context, builder, signature.args[5], arguments[5])
        weights = start(5, constant(0)), builder.extract_value(shape, 0)
        words = [constant(0)] * self._queries
        for lane in range(0, LANES, self._width):
            places = [LANES * q + lane for q in range(self._queries)]
            if starts:
                initial = [load(builder, norm, lane, self._width)] * self._queries
            else:
                initial = [load(builder, sums, place, self._width) for place in places]
            totals = self._sum_loop(builder, query, group, lane, arguments[4], initial)
            if ends:
                totals = self._code_loop(
                    builder, query, group, lane, arguments[4], weights, totals
                )
                bits = self._compare(builder, totals, limit, lane)
                is_near = builder.icmp_unsigned("!=", _joined(builder, bits), constant(0))
                words = list(map(builder.or_, words, bits))
            else:
                is_near = ir.Constant(ir.IntType(1), 1)
            with builder.if_then(is_near, likely=not ends):
                for place, total in zip(places, totals, strict=True):
                    store(builder, total, sums, place)
        return _write_masks(builder, words, masks) if ends else constant(0)

    def _sum_loop(
        self,
        builder: Any,
        query: Any,
        group: Any,
        lane: int,
        n_features: Any,
        initial: list[Any],
    ) -> list[Any]:
        """Emit the loop over features; return one vector of sums for each query."""
        before = builder.basic_block
        loop = builder.append_basic_block("features")
        after = builder.append_basic_block("compare")
        builder.branch(loop)

        builder.position_at_end(loop)
        k = builder.phi(WORD)
        so_far = [builder.phi(ir.VectorType(FLOAT, self._width)) for _ in initial]
        row = builder.gep(group, [builder.mul(k, constant(LANES))], source_etype=FLOAT)
        references = load(builder, row, lane, self._width)
        first = builder.mul(k, constant(self._queries))
        totals = []
        for q, total in enumerate(so_far):
            coordinate = load_number(builder, query, builder.add(first, constant(q)))
            product = builder.fmul(
                repeat(builder, coordinate, self._width), references, flags=("contract",)
            )
            totals.append(builder.fadd(total, product, flags=("contract",)))
        following = builder.add(k, constant(1))
        builder.cbranch(builder.icmp_signed("<", following, n_features), loop, after)

        k.add_incoming(constant(0), before)
        k.add_incoming(following, loop)
        for phi, start, total in zip(so_far, initial, totals, strict=True):
            phi.add_incoming(start, before)
            phi.add_incoming(total, loop)
        builder.position_at_end(after)
        return totals

    def _code_loop(
        self,
        builder: Any,
        query: Any,
        group: Any,
        lane: int,
        n_features: Any,
        weights: tuple[Any, Any],
        initial: list[Any],
    ) -> list[Any]:
        """Emit the loop over codes, of which there may be none; return the sums."""
        weight_of, n_codes = weights
        before = builder.basic_block
        loop = builder.append_basic_block("codes")
        after = builder.append_basic_block("summed")
        builder.cbranch(builder.icmp_signed("<", constant(0), n_codes), loop, after)

        builder.position_at_end(loop)
        j = builder.phi(WORD)
        so_far = [builder.phi(ir.VectorType(FLOAT, self._width)) for _ in initial]
        k = builder.add(n_features, j)
        row = builder.gep(group, [builder.mul(k, constant(LANES))], source_etype=FLOAT)
        references = load(builder, row, lane, self._width)
        first = builder.mul(k, constant(self._queries))
        weight = repeat(builder, load_number(builder, weight_of, j), self._width)
        totals = []
        for q, total in enumerate(so_far):
            code = load_number(builder, query, builder.add(first, constant(q)))
            code = repeat(builder, code, self._width)
            differs = builder.fcmp_unordered("!=", references, code)
            totals.append(builder.select(differs, builder.fadd(total, weight), total))
        following = builder.add(j, constant(1))
        builder.cbranch(builder.icmp_signed("<", following, n_codes), loop, after)

        j.add_incoming(constant(0), before)
        j.add_incoming(following, loop)
        for phi, start, total in zip(so_far, initial, totals, strict=True):
            phi.add_incoming(start, before)
            phi.add_incoming(total, loop)
        builder.position_at_end(after)
        summed = []
        for start, total in zip(initial, totals, strict=True):
            phi = builder.phi(ir.VectorType(FLOAT, self._width))
            phi.add_incoming(start, before)
            phi.add_incoming(total, loop)
            summed.append(phi)
        return summed

    def _compare(self, builder: Any, totals: list[Any], limit: Any, lane: int) -> list[Any]:
        """Return a word for each query, with the bits of some lanes where they belong."""
        limits = [load_number(builder, limit, constant(q)) for q in range(self._queries)]
        pairs = zip(totals, limits, strict=True)
        bits = [bits_within(builder, total, limit) for total, limit in pairs]
        return [builder.shl(word, constant(lane)) for word in bits]


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
    told = builder.phi(WORD)
    told.add_incoming(none, before)
    told.add_incoming(which, within)
    return told


#: Queries that share each load of a group.
QUERIES = FORMS[chosen_form()].queries

#: Features that are summed at a time: so much of a group, 32 KiB, stays in a core's nearest
#: cache while all queries of a tile pass.
FEATURES_AT_ONCE = 128

#: Numbers of a line of a cache, which is what comes from memory at a time.
LINE_NUMBERS = 16

_chosen = Filter(FORMS[chosen_form()])
_whole, _first, _next, _last = _chosen.whole, _chosen.first, _chosen.next, _chosen.last


@inlined
def _fetch_next(pack, n_packs, start, n_summed, block):  # type: ignore[no-untyped-def]
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
def _part(part, n_parts, n_features):  # type: ignore[no-untyped-def]
    """Return the first feature of a part, and of how many it is."""
    first = part * n_features // n_parts
    return first, (part + 1) * n_features // n_parts - first


@inlined
def parts_of(n_numbers):  # type: ignore[no-untyped-def]
    """Return in how many parts so many numbers are summed."""
    return -(-n_numbers // FEATURES_AT_ONCE)


@borrowing
def sum_parts(g, n_packs, n_summed_parts, n_features, block, tile):  # type: ignore[no-untyped-def]
    """Fill the sums of all packs with the first parts of group ``g``.

    Codes are not compared.
    """
    n_numbers = n_features - len(tile.lowered)
    n_parts = parts_of(n_numbers)
    for part in range(n_summed_parts):
        first, n_summed = _part(part, n_parts, n_numbers)
        start = (g * n_features + first) * LANES
        for pack in range(n_packs):
            _fetch_next(pack, n_packs, start, n_summed, block)
            if part == 0:
                _first(
                    tile.offsets, pack * n_features * QUERIES,
                    block.groups, start, n_summed, tile.lowered,
                    block.norms, g * LANES, tile.thresholds, pack * QUERIES,
                    tile.sums, pack * QUERIES * LANES, tile.masks,
                )  # fmt: skip
            else:
                _next(
                    tile.offsets, (pack * n_features + first) * QUERIES,
                    block.groups, start, n_summed, tile.lowered,
                    block.norms, g * LANES, tile.thresholds, pack * QUERIES,
                    tile.sums, pack * QUERIES * LANES, tile.masks,
                )  # fmt: skip


@borrowing
def add_mismatches(g, n_packs, n_features, block, tile):  # type: ignore[no-untyped-def]
    """Add the weights of codes that differ to the sums of all packs and group ``g``."""
    n_codes = len(tile.lowered)
    for j in range(n_codes):
        k, weight = n_features - n_codes + j, tile.lowered[j]
        start = (g * n_features + k) * LANES
        for pack in range(n_packs):
            for q in range(QUERIES):
                code = tile.offsets[(pack * n_features + k) * QUERIES + q]
                first = (pack * QUERIES + q) * LANES
                for lane in range(LANES):
                    if block.groups[start + lane] != code:
                        tile.sums[first + lane] += weight


@inlined
def meet_group(g, n_packs, n_features, block, tile):  # type: ignore[no-untyped-def]
    """Prepare the comparison of the active queries with group ``g``, pack by pack."""
    n_parts = parts_of(n_features - len(tile.lowered))
    if n_parts > 1:
        sum_parts(g, n_packs, n_parts - 1, n_features, block, tile)


@borrowing
def _sum_last_part(pack, n_packs, g, n_features, block, tile):  # type: ignore[no-untyped-def]
    n_codes = len(tile.lowered)
    n_parts = parts_of(n_features - n_codes)
    first, n_summed = _part(n_parts - 1, n_parts, n_features - n_codes)
    start = (g * n_features + first) * LANES
    _fetch_next(pack, n_packs, start, n_summed + n_codes, block)
    return _last(
        tile.offsets, (pack * n_features + first) * QUERIES,
        block.groups, start, n_summed, tile.lowered,
        block.norms, g * LANES, tile.thresholds, pack * QUERIES,
        tile.sums, pack * QUERIES * LANES, tile.masks,
    )  # fmt: skip


@inlined
def compare_pack(pack, n_packs, g, n_features, block, tile):  # type: ignore[no-untyped-def]
    """Fill the masks of a pack of active queries and group ``g``.

    Returns which queries of the pack have any bit set, as bits (if none has, masks are what
    they were), and where the sums of the pack start in ``tile.sums``.
    """
    n_numbers = n_features - len(tile.lowered)
    if n_numbers > FEATURES_AT_ONCE:
        near = _sum_last_part(pack, n_packs, g, n_features, block, tile)
        return near, pack * QUERIES * LANES
    start = g * n_features * LANES
    _fetch_next(pack, n_packs, start, n_features, block)
    near = _whole(
        tile.offsets, pack * n_features * QUERIES,
        block.groups, start, n_numbers, tile.lowered,
        block.norms, g * LANES, tile.thresholds, pack * QUERIES,
        tile.sums, 0, tile.masks,
    )  # fmt: skip
    return near, 0
