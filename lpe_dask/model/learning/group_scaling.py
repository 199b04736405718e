"""Learn scale and metric of each group from its own rows alone.

    rows --buckets--> all rows of a group --learn_preparation--> Preparation --> stacked

A group of more rows than a bucket is learned from like all rows are, by several passes that
read no rows but its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpe_dask import dask_array as da
from lpe_dask.model.learning.column_facts import ColumnFacts
from lpe_dask.model.learning.scaling import learn_map, learn_metric, learn_preparation
from lpe_dask.search import (
    Buckets,
    GroupPreparations,
    Preparation,
    ProblemSize,
    Scaling,
)
from lpe_dask.tables import GroupFact, GroupFacts, select_rows
from lpe_dask.tasks import compute

#: Rows of a large group that its medians are looked for from.
SAMPLED_ROWS = 4096


@dataclass(frozen=True, slots=True)
class LearnsGroups:
    """What is learned of a group: `learn_preparation` with these arguments.

    Attributes
    ----------
    scale, metric, metric_params, columns, random_state
        As for `learn_preparation`.
    categorical : tuple of int
        Columns that are codes of categories, the last that of groups.
    fills : bool
        Whether missing values are measured.
    is_known : ndarray of shape (n_groups,)
        Of which groups anything is learned.
    has_metric : bool, default=True
        Whether the metric is learned, too; False: that of all groups is.
    """

    scale: str | None
    metric: str
    metric_params: Any
    columns: tuple[str, ...]
    random_state: int | None
    categorical: tuple[int, ...]
    fills: bool
    is_known: NDArray[np.bool_]
    has_metric: bool = True

    def learn(
        self, rows: Any, sample: NDArray[np.generic], known: ColumnFacts | None = None
    ) -> Preparation | str:
        """Return the preparation of the rows of a group, or why there is none.

        ``known`` is what is known of them.
        """
        learned: dict[str, Any] = {
            "categorical": self.categorical, "random_state": self.random_state,
            "sample": sample if self.fills else None, "known": known,
        }  # fmt: skip
        try:
            if not self.has_metric:
                return learn_map(rows, self.scale, self.columns, **learned)
            return learn_preparation(
                rows, self.scale, self.metric, self.metric_params, self.columns,
                **learned, group_role="separates",
            )  # fmt: skip
        except ValueError as error:
            return str(error)

    def of_bucket(self, rows: NDArray[np.floating], first: int, stop: int) -> LearnedGroups:
        """Return what is learned of the groups of a bucket.

        Parameters
        ----------
        rows : ndarray of shape (n_rows, n_columns)
            Sorted by group.
        first, stop : int
            The groups of the bucket.
        """
        numbers = np.delete(rows, self.categorical, axis=1).astype(np.float64)
        edges = np.searchsorted(rows[:, -1], np.arange(first, stop + 1))
        found: list[Preparation | str | None] = []
        firsts = np.zeros((stop - first, numbers.shape[1]))
        for group in range(first, stop):
            part = slice(*edges[group - first : group - first + 2].tolist())
            if not self.is_known[group] or part.start == part.stop:
                found.append(None)
                continue
            firsts[group - first] = numbers[part.start]
            found.append(self.learn(rows[part], rows[part]))
        return LearnedGroups.of(found, firsts, first)

    def of_facts(self, facts: Mapping[int, GroupFact], n_columns: int) -> LearnedGroups:
        """Return what is learned of all groups from what is known of their rows."""
        n_groups, n_numbers = len(self.is_known), n_columns - len(self.categorical)
        found: list[Preparation | str | None] = [None] * n_groups
        firsts, none = np.zeros((n_groups, n_numbers)), np.empty((0, n_columns))
        for group, of in facts.items():
            if self.is_known[group]:
                firsts[group] = of.first
                known = ColumnFacts(of.low, of.high, of.moments)
                found[group] = self.learn(none, none, known)
        return LearnedGroups.of(found, firsts, 0)

    def of_large(self, rows: da.Array, group: int) -> LearnedGroups:
        """Return what is learned of a group of many rows; computes."""
        if not self.is_known[group]:
            return LearnedGroups.of([None], np.zeros((1, 1)), group)
        n_rows = rows.shape[0]
        which = np.arange(min(n_rows, SAMPLED_ROWS)) * n_rows // min(n_rows, SAMPLED_ROWS)
        (sample,) = compute(select_rows(rows, which))
        numbers = np.delete(sample[:1], self.categorical, axis=1).astype(np.float64)
        return LearnedGroups.of([self.learn(rows, np.asarray(sample))], numbers, group)


@dataclass(frozen=True, slots=True)
class LearnedGroups:
    """What was learned of some groups.

    Attributes
    ----------
    groups : GroupPreparations or int
        How many there are, if nothing was learned of any.
    first : Preparation, optional
        Of the first of which something was.
    why : dict of int to str
        Why of some nothing was.
    """

    groups: GroupPreparations | int
    first: Preparation | None
    why: dict[int, str]

    @classmethod
    def of(
        cls,
        found: Sequence[Preparation | str | None],
        rows: NDArray[np.float64],
        first_group: int,
    ) -> LearnedGroups:
        """Return what was found of groups, of each of which a row has the numbers."""
        why = {first_group + i: of for i, of in enumerate(found) if isinstance(of, str)}
        usable = [None if isinstance(of, str) else of for of in found]
        first = next((of for of in usable if of is not None), None)
        if first is None:
            return cls(len(found), None, why)
        plain = [None if of is None else _numbers_only(of) for of in usable]
        return cls(GroupPreparations.stack(plain, list(rows)), first, why)


def learn_group_preparations(
    rows: da.Array,
    codes: NDArray[np.int32],
    learns: LearnsGroups,
    shape: ProblemSize,
    facts: GroupFacts | None = None,
) -> tuple[Preparation, dict[int, str]]:
    """Return what is learned of groups, and why of some nothing is; computes.

    Parameters
    ----------
    rows : dask array of shape (n_rows, n_columns)
        Of which it is learned, with known chunks and the number of their group as the last
        column.
    codes : ndarray of shape (n_rows,)
        These numbers.
    learns : LearnsGroups
    shape : ProblemSize
        Of a search among the rows.
    facts : GroupFacts, optional
        What is known of the rows of each group.

    Raises
    ------
    ValueError
        If nothing can be learned of any group, saying why.
    """
    of_groups = None if facts is None else facts.of_groups
    if of_groups is None:
        parts = _learned_from_rows(rows, codes, learns, shape)
    else:
        parts = [learns.of_facts(of_groups, rows.shape[1])]
    why = {group: of for part in parts for group, of in part.why.items()}
    first = next((part.first for part in parts if part.first is not None), None)
    if first is None:
        reason = next(iter(why.values()), "no group has enough rows.")
        raise ValueError(f"nothing can be learned of any group: {reason}")
    groups = GroupPreparations.join([part.groups for part in parts])
    if learns.has_metric:
        return _with_groups(first, groups, rows.shape[1]), why
    mapped = Preparation(
        Scaling(has_both=first.scaling.has_both), categorical=first.categorical,
        fill=None if first.fill is None else np.zeros_like(first.fill), groups=groups,
    )  # fmt: skip
    is_scaled = groups.is_known[codes]
    scaled = rows if is_scaled.all() else select_rows(rows, np.flatnonzero(is_scaled))
    return learn_metric(
        scaled, mapped, learns.scale, learns.metric, learns.metric_params, learns.columns
    ), why


def _learned_from_rows(
    rows: da.Array, codes: NDArray[np.int32], learns: LearnsGroups, shape: ProblemSize
) -> list[LearnedGroups]:
    """Return what is learned of the groups of each bucket; computes."""
    sizes = np.bincount(codes, minlength=len(learns.is_known))
    buckets = Buckets(rows, sizes, shape)
    edges = buckets.groups_of()
    is_large = [buckets.is_large(i) for i in range(len(edges))]
    has_rows = [sizes[slice(*of)].any() for of in edges]
    some = [i for i, of in enumerate(edges) if has_rows[i] and not is_large[i]]
    found = dict(
        zip(some, compute(*buckets.tasks(some, learns.of_bucket)), strict=True)
        if some
        else []
    )
    for i in np.flatnonzero(is_large).tolist():
        found[i] = learns.of_large(buckets.rows(i), edges[i][0])
    return [found.get(i, LearnedGroups(b - a, None, {})) for i, (a, b) in enumerate(edges)]


def _numbers_only(learned: Preparation) -> Preparation:
    """Return what a preparation does to numbers."""
    n_codes = learned.n_codes
    weights = None if learned.weights is None else learned.weights[: -n_codes or None]
    return Preparation(
        learned.scaling, learned.matrix, learned.factor, weights=weights, fill=learned.fill
    )


def _with_groups(
    first: Preparation, groups: GroupPreparations, n_columns: int
) -> Preparation:
    """Return the preparation of rows by their groups; ``first`` is that of one of them."""
    n_left = first.n_numbers(n_columns)
    of_codes = first.weights_of(first.n_prepared(n_columns))[n_left:]
    weights = np.append(np.ones(n_left), of_codes)
    has_zeros = first.factor is not None and (first.factor == 0).any()
    return Preparation(
        Scaling(has_both=first.scaling.has_both),
        factor=np.where(first.factor == 0, 0.0, 1.0) if has_zeros else None,
        categorical=first.categorical,
        weights=None if (weights == 1).all() else weights,
        fill=None if first.fill is None else np.zeros_like(first.fill),
        separates=first.separates,
        groups=groups,
    )
