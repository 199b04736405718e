r"""Build the Dask graph that judges an approximate search by a random sample of rows.

    partitions --pick--> candidates --merge--> sample
    sample --approximately, exactly--> p-values --judge--> Certificate, or RuntimeError

The rows are searched for afterwards: where too many are off, the error comes first.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from numpy.typing import NDArray

from lpe_dask import dask_array as da
from lpe_dask.model.certificate import (
    TABLE_DRAW,
    ApproximationSettings,
    Certificate,
    certificate_of,
    draws,
)
from lpe_dask.model.labels import threshold
from lpe_dask.pvalues import Calibration
from lpe_dask.search import Approximation, Reference
from lpe_dask.tasks import merge_tasks, new_array, new_tasks, reread_once

logger = logging.getLogger(__name__)

#: More than any partition has rows.
PARTITION_NUMBERS = 2**32


@dataclass(frozen=True, slots=True)
class Sample:
    """Some rows, by what was drawn for them, ascending; one more than is to be audited.

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

    def audited(self) -> slice:
        """Return which rows to audit: none where a sample would be all rows.

        These are all measured exactly.
        """
        n_audited = Approximation.AUDITED_ROWS
        return slice(0, n_audited if len(self.drawn) > n_audited else 0)


@dataclass(frozen=True, slots=True)
class Audit:
    """What judges an approximate search.

    Attributes
    ----------
    reference : Reference
    calibration : Calibration
    quality : ApproximationSettings
    """

    reference: Reference
    calibration: Calibration
    quality: ApproximationSettings

    def approximation(self, is_exact: Delayed | None = None) -> Approximation:
        """Return the approximate search; ``is_exact`` as in `Approximation`."""
        calibration = self.calibration
        beyond = calibration.bound(threshold(self.quality.recheck))
        return Approximation(beyond, calibration.weight, is_exact)

    def of_table(self, rows: da.Array, *, is_lazy: bool) -> Delayed:
        """Return the task of the `Certificate` for new rows; it raises RuntimeError.

        Parameters
        ----------
        rows : dask array of shape (n_rows, n_features)
            As they came; chunks may be unknown.
        is_lazy : bool
            Whether they are read when they are needed. Then they are read once more for
            this: what waits for the certificate must not wait in memory.
        """
        if is_lazy:
            rows = reread_once(rows)
        tasks = (
            (_pick, (rows.name, i, 0), i, self.quality.seed)
            for i in range(rows.numblocks[0])
        )
        picked = new_tasks("pick", tasks, [rows])
        return self.of_sample(_merged(picked), rows.shape[1])

    def of_sample(self, sample: Delayed, n_features: int) -> Delayed:
        """Return the task of the `Certificate` by the task of a `Sample`."""
        unknown = (np.nan,)
        rows = new_array(
            "audited", [(_rows, sample.key)], [sample], (unknown, (n_features,)),
            np.empty((0, 0)),
        )  # fmt: skip
        numbers = new_array(
            "audited", [(_numbers, sample.key)], [sample], (unknown,),
            np.empty(0, np.int64),
        )  # fmt: skip
        found, exact = (
            self._p_values(rows, numbers, approximation)
            for approximation in (self.approximation(), None)
        )
        judged = (_judge, (found.name, 0), (exact.name, 0), self.quality.max_p_error)
        return new_tasks("judge", [judged], [found, exact])[0]

    def _p_values(
        self, rows: da.Array, numbers: da.Array, approximation: Approximation | None
    ) -> Any:
        statistic = self.reference.measure_rows(
            rows,
            numbers=numbers,
            approximation=approximation,
            max_rows=Approximation.AUDITED_ROWS,
        )
        return self.calibration.p_values(self.calibration.compared(rows, statistic))


def _merged(picked: list[Delayed]) -> Delayed:
    name = f"lpe-sample-{uuid4().hex}"
    keys = [pick.key for pick in picked]
    tasks, keys = merge_tasks(name, keys, merged_samples, Approximation.MERGED_SAMPLES)
    graph = HighLevelGraph.from_collections(
        name, tasks | {name: (merged_samples, keys)}, dependencies=picked
    )
    return Delayed(name, graph, layer=name)


def sample_of(
    rows: NDArray[np.generic], drawn: NDArray[np.uint64], numbers: NDArray[np.int64]
) -> Sample:
    """Return the rows for which the smallest numbers were drawn; parameters as `Sample`.

    A row with NaN or inf is none.
    """
    measured = np.flatnonzero(np.isfinite(rows).all(axis=1))
    order = np.argsort(drawn[measured], kind="stable")[: Approximation.AUDITED_ROWS + 1]
    which = measured[order]
    return Sample(drawn[which], rows[which], numbers[which])


def merged_samples(samples: list[Sample]) -> Sample:
    """Return the rows of all samples for which the smallest numbers were drawn."""
    fields = (
        np.concatenate([getattr(sample, name) for sample in samples])
        for name in ("rows", "drawn", "numbers")
    )
    return sample_of(*fields)


# The functions below run inside tasks.


def _pick(rows: NDArray[np.generic], partition: int, seed: int) -> Sample:
    numbers = partition * PARTITION_NUMBERS + np.arange(len(rows))
    return sample_of(rows, draws(numbers, seed, TABLE_DRAW), np.full(len(rows), -1))


def _rows(sample: Sample) -> NDArray[np.generic]:
    return sample.rows[sample.audited()]


def _numbers(sample: Sample) -> NDArray[np.int64]:
    return sample.numbers[sample.audited()]


def _judge(
    found: NDArray[np.float64], exact: NDArray[np.float64], max_p_error: float
) -> Certificate:
    certificate = certificate_of(np.abs(found - exact), max_p_error)
    logger.info("%s", certificate)
    certificate.check()
    return certificate


def is_exact(certificate: Certificate) -> bool:
    """Return whether all rows are measured exactly."""
    return certificate.is_exact
