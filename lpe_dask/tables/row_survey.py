"""Say what the rows of one partition have: everything that a fit asks of its first reading.

rows --RowSurveyor.of--> RowSurvey: statuses, gaps, sample, checksum, ranges, exact sums
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels import Moments
from lpe_dask.tables.group_facts import GroupFacts
from lpe_dask.tables.row_checks import RowChecksum, row_checksum
from lpe_dask.tables.row_status import status_codes
from lpe_dask.tables.value_ranges import BlockRanges


class Sums(NamedTuple):
    """Which exact sums of columns are gathered.

    Attributes
    ----------
    has_products : bool
        Of all products, and not only of squares.
    by_group : bool
        Of each group by itself.
    """

    has_products: bool = False
    by_group: bool = False


@dataclass(frozen=True, slots=True)
class RowSurvey:
    """What the rows of a partition have.

    Attributes
    ----------
    n_rows : int
    statuses : ndarray of shape (n_rows,), optional
        The number of the status of each row; 0 of those that are kept. None: all are.
    bad, n_missing : ndarray of shape (n_features,)
        How many numbers of each column are not usable, and how many are missing.
    sample : ndarray
        Some of the rows that are kept.
    checksum : RowChecksum
    ranges : BlockRanges
        Of the rows that are kept.
    groups : ndarray of shape (n_kept,), optional
        The number of the group of each row that is kept.
    moments : Moments, optional
        Of their columns of numbers.
    group_facts : GroupFacts, optional
    learned : BlockRanges, optional
        Of the rows that moments are those of, where these are only some.
    """

    n_rows: int
    statuses: NDArray[np.int8] | None
    bad: NDArray[np.int64]
    n_missing: NDArray[np.int64]
    sample: NDArray[np.generic]
    checksum: RowChecksum
    ranges: BlockRanges
    groups: NDArray[np.int32] | None = None
    moments: Moments | None = None
    group_facts: GroupFacts | None = None
    learned: BlockRanges | None = None


@dataclass(frozen=True, slots=True)
class RowSurveyor:
    """Surveys rows.

    Attributes
    ----------
    n_sampled : int
        Rows of the sample, at most.
    categorical : tuple of int
        The columns that have codes.
    keeps_gaps : bool
        Whether rows with missing values are kept.
    has_groups : bool
        Whether the last column has the numbers of groups.
    sums : Sums, optional
    """

    n_sampled: int
    categorical: tuple[int, ...] = ()
    keeps_gaps: bool = False
    has_groups: bool = False
    sums: Sums | None = None

    def of(self, rows: NDArray[np.generic]) -> RowSurvey:
        """Return the survey of rows, which may have NaN and inf."""
        coded = coded_places(self.categorical, rows.shape[1], has_groups=self.has_groups)
        measured = rows[:, :-1] if self.has_groups else rows
        which = spread(len(rows), self.n_sampled)
        if (
            not self.has_groups and np.isfinite(rows).all()
        ):  # by row and by column it takes several times as long
            bad = n_missing = np.zeros(measured.shape[1], np.int64)
            statuses, kept, sample = None, rows, rows[which]
        else:
            is_gap, is_usable = np.isnan(measured), np.isfinite(measured)
            n_missing = is_gap.sum(axis=0)
            bad = (~(is_usable | is_gap if self.keeps_gaps else is_usable)).sum(axis=0)
            statuses = status_codes(
                rows, measures_gaps=self.keeps_gaps, has_groups=self.has_groups
            )
            is_kept = statuses == 0
            kept, sample = rows[is_kept], rows[which[is_kept[which]]]
            statuses = None if is_kept.all() else statuses
        groups: NDArray[np.int32] | None = None
        if self.has_groups:
            sample = kept[spread(len(kept), self.n_sampled)]
            kept, groups = kept[:, :-1], kept[:, -1].astype(np.int32)
        moments = facts = None
        if self.sums is not None:
            numbers, by_group, has_products = (
                np.delete(kept, self.categorical, axis=1), *self.sums[::-1],
            )  # fmt: skip
            if by_group and groups is not None:
                facts = GroupFacts.of(numbers, groups, has_products=has_products)
            else:
                moments = Moments.of(numbers, has_products=has_products)
        return RowSurvey(
            len(rows), statuses, bad, n_missing, sample, row_checksum(rows, coded),
            BlockRanges.of(kept, self.categorical), groups, moments, facts,
        )  # fmt: skip

    def of_some(
        self, rows: NDArray[np.generic], numbers: NDArray[np.int64], first: int
    ) -> RowSurvey:
        """Return the survey of rows, but sums of those of some numbers only.

        ``first`` is the number of the first row. Rows that are not finite are left out.
        """
        survey, which = replace(self, sums=None).of(rows), numbers - first
        which = which[which < len(rows)]  # there may be fewer than was said
        some = np.delete(rows[which], self.categorical, axis=1)
        some = some[np.isfinite(some).all(axis=1)]
        assert self.sums is not None
        moments = Moments.of(some, has_products=self.sums.has_products)
        return replace(survey, moments=moments, learned=BlockRanges.of(some, ()))


def coded_places(
    categorical: tuple[int, ...], n_columns: int, *, has_groups: bool
) -> tuple[int, ...]:
    """Return the columns of rows that have codes, of categories or groups."""
    return (*categorical, n_columns - 1) if has_groups else categorical


def recoded(
    survey: RowSurvey, categorical: tuple[int, ...], codes: Sequence[NDArray[np.int64]]
) -> RowSurvey:
    """Return a survey of rows by other codes in the same order.

    Parameters
    ----------
    survey : RowSurvey
    categorical : tuple of int
    codes : list of ndarray
        Of each column with codes, the new code of each.
    """
    coded = coded_places(
        categorical, survey.sample.shape[1], has_groups=survey.groups is not None
    )
    sample, ranges, groups = survey.sample.copy(), survey.ranges, survey.groups
    for place, new in zip(coded, codes, strict=True):
        sample[:, place] = _replaced(sample[:, place], new)
    low, high = ranges.low.copy(), ranges.high.copy()
    counts = []
    for place, new, n_rows in zip(categorical, codes, ranges.counts, strict=False):
        for ends in (low, high):
            ends[place : place + 1] = _replaced(ends[place : place + 1], new)
        spread_out = np.zeros(int(new[: len(n_rows)].max(initial=-1)) + 1, np.int64)
        spread_out[new[: len(n_rows)]] = n_rows
        counts.append(spread_out)
    facts = survey.group_facts
    if groups is not None:
        groups = codes[-1][groups].astype(np.int32)
    if facts is not None:
        facts = facts.recoded(codes[-1])
    present = tuple(
        _replaced(of, new) for of, new in zip(survey.checksum.present, codes, strict=True)
    )
    return replace(
        survey, sample=sample, ranges=BlockRanges(low, high, counts), groups=groups,
        group_facts=facts,
        checksum=RowChecksum(survey.checksum.crc, present),
    )  # fmt: skip


def _replaced(values: NDArray[np.generic], codes: NDArray[np.int64]) -> NDArray[np.generic]:
    """Return other codes, NaN and inf as they are."""
    replaced = values.copy()
    is_code = np.isfinite(values)
    replaced[is_code] = codes[values[is_code].astype(np.int64)]
    return replaced


def spread(n_rows: int, most: int) -> NDArray[np.int64]:
    """Return the numbers of some of so many rows, evenly spread."""
    n = min(n_rows, most)
    return np.arange(n) * n_rows // max(1, n)
