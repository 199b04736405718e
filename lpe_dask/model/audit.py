r"""Build the Dask graph that judges a guide on samples of rows before it leads any search.

    partitions --pick--> candidates --merge--> samples, one a round
    sample --with guide, exactly--> p-values --judge--> verdict --> next round, or the guide

The verdict comes before the rows are searched for: where a search would miss too many
neighbors, what it lacks is compared as a whole at once. Rows of a sample are told by their
number in the table, so it does not matter how that is partitioned.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any
from uuid import uuid4

import dask.array as da
import numpy as np
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from numpy.typing import NDArray

from lpe_dask.model.certificate import (
    ROUNDS,
    TABLE_DRAWS,
    Certificate,
    Quality,
    certificate_of,
    draws,
    exact_certificate,
)
from lpe_dask.pvalues import Calibration
from lpe_dask.search import WIDEST_BEAM, Approximation, Guide, Reference, SearchShape
from lpe_dask.tasks import enter, merge_tasks, new_array, new_tasks, read_again

logger = logging.getLogger(__name__)

#: The part of a sample that may be off for a wider search to be tried first.
FEW_BEYOND = 0.02

#: The part of ``max_error_share`` that may be off in the first sample for the second, which
#: is larger, to judge the same guide.
UNDECIDED = 1 / 4

#: Partitions whose samples one task merges.
MERGED_SAMPLES = 4


@dataclass(frozen=True, slots=True)
class Sample:
    """Some rows, by what was drawn for them, ascending.

    Attributes
    ----------
    drawn : ndarray of shape (n_sampled,)
    rows : ndarray of shape (n_sampled, n_features)
        As they came, without NaN and inf.
    numbers : ndarray of shape (n_sampled,)
        Of the rows of the reference that they are; -1 for new rows.
    """

    drawn: NDArray[np.uint64]
    rows: NDArray[np.generic]
    numbers: NDArray[np.int64]

    def __sizeof__(self) -> int:
        """Return the bytes of the numbers."""
        return self.drawn.nbytes + self.rows.nbytes + self.numbers.nbytes

    def part(self, which: Any) -> Sample:
        """Return some of them."""
        return Sample(self.drawn[which], self.rows[which], self.numbers[which])


@dataclass(frozen=True, slots=True)
class Verdict:
    """A guide, and what is known of the p-values that it leads to.

    Attributes
    ----------
    guide : Guide
    certificate : Certificate, optional
        None: nothing yet.
    rounds : int
        Samples so far.
    """

    guide: Guide
    certificate: Certificate | None = None
    rounds: int = 0


@dataclass(frozen=True, slots=True)
class Approximate:
    """How a model searches approximately, and what is known of it.

    Attributes
    ----------
    guide : Guide
        For new rows, to begin with.
    certificate : Certificate
        For the nominal rows that are no calibration rows.
    quality : Quality
    pynndescent : str
        The version that built the indexes.
    """

    guide: Guide
    certificate: Certificate
    quality: Quality
    pynndescent: str

    @property
    def own_verdict(self) -> Verdict:
        """What leads the search for nominal rows: all are compared where these are few."""
        guide, is_exact = self.guide, self.certificate.audited == 0
        guide = guide.repaired(guide.n_blocks) if is_exact else guide
        return Verdict(guide, self.certificate)


@dataclass(frozen=True, slots=True)
class Audit:
    """What judges a guide.

    Attributes
    ----------
    reference : Reference
    calibration : Calibration
    quality : Quality
    """

    reference: Reference
    calibration: Calibration
    quality: Quality

    def approximation(self, guide: Any) -> Approximation:
        """Return the approximate search that the task of a guide leads."""
        calibration = self.calibration
        beyond = calibration.bound_of_level(self.quality.recheck)
        return Approximation(guide, beyond, calibration.weight)

    def of_table(self, rows: da.Array, guide: Guide, *, is_lazy: bool) -> Delayed:
        """Return the task of the `Verdict` for new rows.

        Parameters
        ----------
        rows : dask array of shape (n_rows, n_features)
            As they came; chunks may be unknown.
        guide : Guide
        is_lazy : bool
            Whether they are read when they are needed. Then they are read once more for
            this, and to count them where chunks are unknown: what waits for the verdict
            must not wait in memory.
        """
        firsts = _first_numbers(rows, is_lazy=is_lazy)
        if is_lazy:
            rows = read_again(rows, firsts.after)
        tasks = (
            (_pick, (rows.name, i, 0), first, self.quality)
            for i, first in enumerate(firsts.keys)
        )
        picked = new_tasks("pick", tasks, [rows, *firsts.tasks])
        return self.of_samples(_merged(picked, self.quality), guide, rows.shape[1])

    def of_samples(self, samples: Delayed, guide: Guide, n_features: int) -> Delayed:
        """Return the task of the `Verdict` by the task of a `Sample` for each round."""
        verdict = enter(Verdict(guide), "lpe-verdict")
        for _ in range(ROUNDS):
            verdict = self._round(samples, verdict, n_features)
        return new_tasks("verdict", [(_settled, verdict.key, self.quality)], [verdict])[0]

    def _round(self, samples: Delayed, verdict: Delayed, n_features: int) -> Delayed:
        given = samples.key, verdict.key, self.quality
        unknown = (np.nan,)
        rows = new_array(
            "audited", [(_rows, *given)], [samples, verdict], (unknown, (n_features,)),
            np.empty((0, 0)),
        )  # fmt: skip
        numbers = new_array(
            "audited", [(_numbers, *given)], [samples, verdict], (unknown,),
            np.empty(0, np.int64),
        )  # fmt: skip
        (guide,) = new_tasks("guide", [(guide_of, verdict.key)], [verdict])
        led, exactly = (
            self._p_values(rows, numbers, approximation)
            for approximation in (self.approximation(guide), None)
        )
        k = self.reference.shape.statistic.n_neighbors
        assert k is not None
        judged = (
            _judge,
            verdict.key,
            (led.name, 0),
            (exactly.name, 0),
            samples.key,
            self.quality,
            k + WIDEST_BEAM,
        )
        return new_tasks("judge", [judged], [verdict, led, exactly, samples])[0]

    def _p_values(
        self, rows: da.Array, numbers: da.Array, approximation: Approximation | None
    ) -> Any:
        statistic = self.reference.measure_rows(
            rows, numbers=numbers, approximation=approximation,
            most_rows=max(self.quality.sample_rows),
        )  # fmt: skip
        return self.calibration.p_values(self.calibration.compared(rows, statistic))


@dataclass(frozen=True, slots=True)
class _FirstNumbers:
    """The numbers of the first rows of partitions.

    Attributes
    ----------
    keys : list
        Of each, as tasks name it: a number, or the key of a task.
    tasks : list of Delayed
        With these keys.
    after : Delayed, optional
        The task that all partitions are counted by.
    """

    keys: list[Any]
    tasks: list[Delayed]
    after: Delayed | None = None


def _first_numbers(rows: da.Array, *, is_lazy: bool) -> _FirstNumbers:
    sizes = rows.chunks[0]
    if not np.isnan(sizes).any():
        return _FirstNumbers(list(accumulate(sizes[:-1], initial=0)), [])
    counted = read_again(rows) if is_lazy else rows
    counts = new_tasks(
        "count", [(len, (counted.name, i, 0)) for i in range(len(sizes))], [counted]
    )
    keys = [count.key for count in counts]
    (edges,) = new_tasks("edges", [(_edges, keys)], counts)
    firsts = new_tasks("first", [(_item, edges.key, i) for i in range(len(sizes))], [edges])
    return _FirstNumbers([first.key for first in firsts], firsts, edges)


def _merged(picked: list[Delayed], quality: Quality) -> Delayed:
    merge = partial(merged_samples, quality=quality)
    name = f"lpe-samples-{uuid4().hex}"
    tasks, keys = merge_tasks(name, [pick.key for pick in picked], merge, MERGED_SAMPLES)
    graph = HighLevelGraph.from_collections(
        name, tasks | {name: (merge, keys)}, dependencies=picked
    )
    return Delayed(name, graph, layer=name)


def picked_rows(quality: Quality) -> tuple[int, ...]:
    """Return the rows that are drawn for each round, and one that tells of more."""
    return tuple(n_rows + 1 for n_rows in quality.sample_rows)


def indexed(shape: SearchShape, quality: Quality) -> SearchShape:
    """Return the shape of a search that is judged, and may miss neighbors."""
    merged_rows = (MERGED_SAMPLES + 1) * sum(picked_rows(quality))
    return replace(shape, is_indexed=True, merged_rows=merged_rows)


def samples_of(
    rows: NDArray[np.generic],
    numbers: NDArray[np.int64],
    quality: Quality,
    of_rounds: Sequence[int],
    own: NDArray[np.int64] | None = None,
) -> list[Sample]:
    """Return of some rows for each round those for which the smallest was drawn.

    Rounds are drawn independently: what follows from one sample is judged by the next.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features)
    numbers : ndarray of shape (n_rows,)
        In the table, by which is drawn.
    quality : Quality
    of_rounds : sequence of int
        The draw of each round; see `certificate.draws`.
    own : ndarray of shape (n_rows,), optional
        In the reference; None: all are new.
    """
    measured = np.flatnonzero(np.isfinite(rows).all(axis=1))
    own = np.full(len(rows), -1) if own is None else own
    samples = []
    for draw, n_picked in zip(of_rounds, picked_rows(quality), strict=True):
        drawn = draws(numbers[measured], quality.seed, draw)
        order = np.argsort(drawn, kind="stable")[:n_picked]
        which = measured[order]
        samples.append(Sample(drawn[order], rows[which], own[which]))
    return samples


def merged_samples(of_parts: list[list[Sample]], quality: Quality) -> list[Sample]:
    """Return for each round the rows of all parts for which the smallest was drawn."""
    rounds = zip(zip(*of_parts, strict=True), picked_rows(quality), strict=True)
    return [_merged_round(parts, n_picked) for parts, n_picked in rounds]


def _merged_round(samples: Sequence[Sample], n_picked: int) -> Sample:
    whole = Sample(
        *(
            np.concatenate([getattr(sample, name) for sample in samples])
            for name in ("drawn", "rows", "numbers")
        )
    )
    return whole.part(np.argsort(whole.drawn, kind="stable")[:n_picked])


def low_quality(found: str) -> RuntimeError:
    """Return the error where p-values are not as good as asked, and not to be repaired."""
    return RuntimeError(
        f"p-values are not as good as asked: {found}. Give on_low_quality='repair' "
        f"(--on-low-quality repair), another max_p_error or max_error_share, or an exact "
        f"algorithm ('auto', 'brute' or 'pruned')."
    )


# The functions below run inside tasks.


def _pick(rows: NDArray[np.generic], first: int, quality: Quality) -> list[Sample]:
    return samples_of(rows, np.arange(first, first + len(rows)), quality, TABLE_DRAWS)


def _edges(counts: list[int]) -> list[int]:
    return list(accumulate(counts, initial=0))


def _item(edges: list[int], i: int) -> int:
    return edges[i]


def _part(samples: list[Sample], verdict: Verdict, quality: Quality) -> Sample:
    """Return the sample of a round; an empty one where nothing is left to be judged."""
    if is_settled(verdict) or has_few_rows(samples, quality):
        return samples[0].part(slice(0, 0))
    return samples[verdict.rounds].part(slice(0, quality.sample_rows[verdict.rounds]))


def is_settled(verdict: Verdict) -> bool:
    """Return whether a guide needs no sample any more."""
    return verdict.certificate is not None or verdict.guide.is_exact


def has_few_rows(samples: list[Sample], quality: Quality, draw: int = 0) -> bool:
    """Return whether there are no more rows than a sample is to have.

    If there are no more than the first has, all are measured exactly.
    """
    return len(samples[draw].drawn) <= quality.sample_rows[draw]


def _rows(samples: list[Sample], verdict: Verdict, quality: Quality) -> NDArray[np.generic]:
    return _part(samples, verdict, quality).rows


def _numbers(
    samples: list[Sample], verdict: Verdict, quality: Quality
) -> NDArray[np.int64]:
    return _part(samples, verdict, quality).numbers


def guide_of(verdict: Verdict) -> Guide:
    """Return the guide of a verdict."""
    return verdict.guide


def _judge(
    verdict: Verdict,
    led: NDArray[np.float64],
    exactly: NDArray[np.float64],
    samples: list[Sample],
    quality: Quality,
    widest: int,
) -> Verdict:
    """Return what follows from one more sample."""
    guide, blocks = verdict.guide, verdict.guide.n_blocks
    if is_settled(verdict):
        return verdict
    if has_few_rows(samples, quality):
        return Verdict(guide.repaired(blocks), None, verdict.rounds)
    rounds = verdict.rounds + 1
    errors = np.abs(led - exactly)
    found = certificate_of(errors, quality, rounds, blocks, len(guide.exact_blocks))
    if found.is_met:
        return Verdict(guide, found, rounds)
    is_last, is_good = rounds == ROUNDS, found.beyond <= FEW_BEYOND * found.audited
    allowed = quality.max_error_share * found.audited
    is_undecided = (
        rounds == 1
        and found.beyond <= UNDECIDED * allowed
        and not has_few_rows(samples, quality, rounds)
    )
    n_worse = max(1, blocks // 4)
    is_too_much = is_last or 2 * (len(guide.exact_blocks) + n_worse) > blocks
    repairs = quality.on_low_quality == "repair"
    further = guide.widened(min(2 * guide.width, widest))
    goes_further = is_good and further != guide and not is_last
    if is_undecided:
        logger.info("%s; a larger sample decides", found)
        return Verdict(guide, None, rounds)
    if goes_further and (rounds == 1 or is_too_much or not repairs):
        guide, what = further, "the search goes further"
    elif not repairs:
        raise low_quality(str(found))
    elif is_too_much:
        guide, what = guide.repaired(blocks), "all rows are compared"
    else:
        guide = guide.widened(widest).repaired(n_worse)
        what = f"{n_worse} blocks are compared as a whole"
    logger.warning("%s; %s", found, what)
    return Verdict(guide, None, rounds)


def _settled(verdict: Verdict, quality: Quality) -> Verdict:
    """Return a verdict with its certificate."""
    if verdict.certificate is None:
        blocks = verdict.guide.n_blocks
        guide = verdict.guide.repaired(blocks)
        certificate = exact_certificate(quality, verdict.rounds, blocks)
        verdict = Verdict(guide, certificate, verdict.rounds)
    logger.info("%s", verdict.certificate)
    return verdict
