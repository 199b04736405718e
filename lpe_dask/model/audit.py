r"""Build the Dask graph that judges a guide on samples of rows before it leads any search.

    partitions --pick--> candidates --merge--> samples, one a round
    sample --with guide, exactly--> p-values --judge--> verdict --> next round, or the guide

The verdict comes before the rows are searched for: where a search would miss too many
neighbors, what it lacks is compared as a whole at once. Rows of a sample are told by their
number in the table, so it does not matter how that is partitioned.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
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
    Certificate,
    Quality,
    certificate_of,
    draws,
    exact_certificate,
)
from lpe_dask.pvalues import Calibration
from lpe_dask.search import WIDEST_BEAM, Approximation, Guide, Reference
from lpe_dask.tasks import enter, merge_tasks, new_array, new_tasks, settle

logger = logging.getLogger(__name__)

#: The part of a sample that may be off for a wider search to be tried first.
FEW_BEYOND = 0.02

#: Samples that one task merges.
MERGED_SAMPLES = 8


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
        Samples that it was judged by, or those before it.
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
        To begin with.
    certificate : Certificate
        For the nominal rows.
    quality : Quality
    pynndescent : str
        The version that built the indexes.
    """

    guide: Guide
    certificate: Certificate
    quality: Quality
    pynndescent: str


class LowQualityError(RuntimeError):
    """P-values that are not as good as asked, where they are not to be repaired."""


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
            this: what waits for the verdict must not wait in memory.
        """
        if is_lazy:
            rows = settle(rows, "lpe-read")
        n_picked = picked_rows(self.quality)
        firsts = _first_numbers(rows, is_lazy=is_lazy)
        tasks = (
            (_pick, (rows.name, i, 0), first, self.quality.seed, n_picked)
            for i, first in enumerate(firsts.keys)
        )
        picked = new_tasks("pick", tasks, [rows, *firsts.tasks])
        merged = _merged(picked, n_picked)
        return self.of_sample(merged, guide, rows.shape[1])

    def of_sample(self, sample: Delayed, guide: Guide, n_features: int) -> Delayed:
        """Return the task of the `Verdict` by the task of a `Sample`."""
        verdict = enter(Verdict(guide), "lpe-verdict")
        for _ in range(ROUNDS):
            verdict = self._round(sample, verdict, n_features)
        return new_tasks("verdict", [(_settled, verdict.key, self.quality)], [verdict])[0]

    def _round(self, sample: Delayed, verdict: Delayed, n_features: int) -> Delayed:
        given = sample.key, verdict.key, self.quality
        unknown = (np.nan,)
        rows = new_array(
            "audited", [(_rows, *given)], [sample, verdict], (unknown, (n_features,)),
            np.empty((0, 0)),
        )  # fmt: skip
        numbers = new_array(
            "audited", [(_numbers, *given)], [sample, verdict], (unknown,),
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
            sample.key,
            self.quality,
            k + WIDEST_BEAM,
        )
        return new_tasks("judge", [judged], [verdict, led, exactly, sample])[0]

    def _p_values(
        self, rows: da.Array, numbers: da.Array, approximation: Approximation | None
    ) -> Any:
        statistic = self.reference.measure_rows(
            rows, numbers=numbers, approximation=approximation
        )
        return self.calibration.p_values(self.calibration.compared(rows, statistic))


@dataclass(frozen=True, slots=True)
class _FirstNumbers:
    """The number of the first row of each partition: as tasks name it."""

    keys: list[Any]
    tasks: list[Delayed]


def _first_numbers(rows: da.Array, *, is_lazy: bool) -> _FirstNumbers:
    sizes = rows.chunks[0]
    if not np.isnan(sizes).any():
        return _FirstNumbers(list(accumulate(sizes[:-1], initial=0)), [])
    counted = settle(rows, "lpe-read") if is_lazy else rows
    counts = new_tasks(
        "count", [(len, (counted.name, i, 0)) for i in range(len(sizes))], [counted]
    )
    keys = [count.key for count in counts]
    (edges,) = new_tasks("edges", [(_edges, keys)], counts)
    firsts = new_tasks("first", [(_item, edges.key, i) for i in range(len(sizes))], [edges])
    return _FirstNumbers([first.key for first in firsts], firsts)


def _merged(picked: list[Delayed], n_picked: int) -> Delayed:
    merge = partial(merged_samples, n_picked=n_picked)
    name = f"lpe-sample-{uuid4().hex}"
    tasks, keys = merge_tasks(name, [pick.key for pick in picked], merge, MERGED_SAMPLES)
    graph = HighLevelGraph.from_collections(
        name, tasks | {name: (merge, keys)}, dependencies=picked
    )
    return Delayed(name, graph, layer=name)


def picked_rows(quality: Quality) -> int:
    """Return the rows that are drawn for all rounds, and one that tells of more."""
    return ROUNDS * quality.sample_rows + 1


def sample_of(
    rows: NDArray[np.generic],
    numbers: NDArray[np.int64],
    seed: int,
    n_picked: int,
    own: NDArray[np.int64] | None = None,
) -> Sample:
    """Return those of some rows for which the smallest was drawn.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features)
    numbers : ndarray of shape (n_rows,)
        In the table, by which is drawn.
    seed, n_picked : int
    own : ndarray of shape (n_rows,), optional
        In the reference; None: all are new.
    """
    measured = np.flatnonzero(np.isfinite(rows).all(axis=1))
    drawn = draws(numbers[measured], seed)
    order = np.argsort(drawn, kind="stable")[:n_picked]
    which = measured[order]
    own = np.full(len(rows), -1) if own is None else own
    return Sample(drawn[order], rows[which], own[which])


def merged_samples(samples: list[Sample], n_picked: int) -> Sample:
    """Return the rows of all samples for which the smallest was drawn."""
    whole = Sample(
        *(
            np.concatenate([getattr(sample, name) for sample in samples])
            for name in ("drawn", "rows", "numbers")
        )
    )
    return whole.part(np.argsort(whole.drawn, kind="stable")[:n_picked])


# The functions below run inside tasks.


def _pick(rows: NDArray[np.generic], first: int, seed: int, n_picked: int) -> Sample:
    return sample_of(rows, np.arange(first, first + len(rows)), seed, n_picked)


def _edges(counts: list[int]) -> list[int]:
    return list(accumulate(counts, initial=0))


def _item(edges: list[int], i: int) -> int:
    return edges[i]


def _part(sample: Sample, verdict: Verdict, quality: Quality) -> Sample:
    """Return the sample of a round; none where nothing is left to be judged."""
    start = verdict.rounds * quality.sample_rows
    if is_decided(verdict, sample, quality):
        return sample.part(slice(0, 0))
    return sample.part(slice(start, start + quality.sample_rows))


def is_decided(verdict: Verdict, sample: Sample, quality: Quality) -> bool:
    """Return whether no sample is needed, or too few rows are left for one."""
    start = verdict.rounds * quality.sample_rows
    is_left = len(sample.drawn) > start + quality.sample_rows
    return verdict.certificate is not None or verdict.guide.is_exact or not is_left


def _rows(sample: Sample, verdict: Verdict, quality: Quality) -> NDArray[np.generic]:
    return _part(sample, verdict, quality).rows


def _numbers(sample: Sample, verdict: Verdict, quality: Quality) -> NDArray[np.int64]:
    return _part(sample, verdict, quality).numbers


def guide_of(verdict: Verdict) -> Guide:
    """Return the guide of a verdict."""
    return verdict.guide


def _judge(
    verdict: Verdict,
    led: NDArray[np.float64],
    exactly: NDArray[np.float64],
    sample: Sample,
    quality: Quality,
    widest: int,
) -> Verdict:
    """Return what follows from one more sample."""
    guide, blocks = verdict.guide, verdict.guide.n_blocks
    if verdict.certificate is not None or guide.is_exact:
        return verdict
    if is_decided(verdict, sample, quality):  # as many rows as would be sampled, or fewer
        return Verdict(guide.repaired(blocks), None, verdict.rounds)
    rounds = verdict.rounds + 1
    errors = np.abs(led - exactly)
    found = certificate_of(errors, quality, rounds, blocks, len(guide.exact_blocks))
    if found.is_met:
        return Verdict(guide, found, rounds)
    if quality.on_low_quality == "error":
        raise LowQualityError(
            f"p-values are not as good as asked: {found}. Give on_low_quality='repair' "
            f"(--on-low-quality repair), another max_p_error or max_error_share, or an "
            f"exact algorithm ('auto', 'brute' or 'pruned')."
        )
    wider, n_worse = guide.widened(widest), max(1, blocks // 4)
    if rounds == ROUNDS:
        guide, what = guide.repaired(blocks), "all rows are compared"
    elif found.beyond <= FEW_BEYOND * found.audited and wider != guide:
        guide, what = wider, "the search goes further"
    elif 2 * (len(guide.exact_blocks) + n_worse) > blocks:
        guide, what = guide.repaired(blocks), "all rows are compared"
    else:
        guide, what = wider.repaired(n_worse), f"{n_worse} blocks are compared as a whole"
    logger.warning("%s; %s", found, what)
    return Verdict(guide, None, rounds)


def _settled(verdict: Verdict, quality: Quality) -> Verdict:
    """Return a verdict with its certificate."""
    if verdict.certificate is None:
        blocks = verdict.guide.n_blocks
        guide = verdict.guide.repaired(blocks)
        certificate = exact_certificate(quality, verdict.rounds, blocks)
        return Verdict(guide, certificate, verdict.rounds)
    return verdict
