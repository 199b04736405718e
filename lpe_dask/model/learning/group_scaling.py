"""Learn scale and metric of each group from its own rows alone.

    rows --buckets--> all rows of a group --learn_preparation--> Preparation --> stacked

A group of more rows than a bucket is learned from like all rows are, a task a chunk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpe_dask import dask_array as da
from lpe_dask.model.learning.scaling import learn_map, learn_metric, learn_preparation
from lpe_dask.search import (
    GroupPreparations,
    Preparation,
    Scaling,
    bucket_edges,
    bucket_tasks,
)
from lpe_dask.tables import select_rows
from lpe_dask.tasks import compute

#: Rows of a bucket.
BUCKET_ROWS = 131_072


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

    def learn(self, rows: Any, sample: NDArray[np.generic]) -> Preparation | str:
        """Return the preparation of the rows of a group, or why there is none."""
        learned: dict[str, Any] = {
            "categorical": self.categorical, "random_state": self.random_state,
            "sample": sample if self.fills else None,
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

    def of_bucket(
        self, rows: NDArray[np.floating], first: int, stop: int
    ) -> list[tuple[Preparation | str | None, NDArray[np.float64]]]:
        """Return what is learned of each group of a bucket, and its first row.

        Parameters
        ----------
        rows : ndarray of shape (n_rows, n_columns)
            Sorted by group.
        first, stop : int
            The groups of the bucket.
        """
        numbers = np.delete(rows, self.categorical, axis=1).astype(np.float64)
        edges = np.searchsorted(rows[:, -1], np.arange(first, stop + 1))
        found: list[tuple[Preparation | str | None, NDArray[np.float64]]] = []
        for group in range(first, stop):
            part = slice(*edges[group - first : group - first + 2].tolist())
            if not self.is_known[group] or part.start == part.stop:
                found.append((None, np.zeros(numbers.shape[1])))
                continue
            found.append((self.learn(rows[part], rows[part]), numbers[part.start]))
        return found


def learn_group_preparations(
    rows: da.Array, codes: NDArray[np.int32], learns: LearnsGroups
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

    Raises
    ------
    ValueError
        If nothing can be learned of any group, saying why.
    """
    sizes = np.bincount(codes, minlength=len(learns.is_known))
    is_large = (sizes > BUCKET_ROWS) & learns.is_known
    in_buckets = np.where(is_large, 0, sizes)
    small = select_rows(rows, np.flatnonzero(~is_large[codes])) if is_large.any() else rows
    edges = bucket_edges(in_buckets, BUCKET_ROWS)
    found: list[Any] = []
    for of_bucket in compute(*bucket_tasks(small, edges, learns.of_bucket)):
        found += of_bucket
    for group in np.flatnonzero(is_large).tolist():
        own = select_rows(rows, np.flatnonzero(codes == group))
        (first,) = compute(select_rows(own, np.array([0])))
        sample = _sample_of(own)
        number = np.delete(first[0], learns.categorical).astype(np.float64)
        found[group] = learns.learn(own, sample), number
    learned, firsts = zip(*found, strict=True)
    why = {i: of for i, of in enumerate(learned) if isinstance(of, str)}
    usable = [None if isinstance(of, str) else of for of in learned]
    if all(of is None for of in usable):
        reason = next(iter(why.values()), "no group has enough rows.")
        raise ValueError(f"nothing can be learned of any group: {reason}")
    plain = [None if of is None else _numbers_only(of) for of in usable]
    first = next(of for of in usable if of is not None)
    groups = GroupPreparations.stack(plain, firsts)
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


def _sample_of(rows: da.Array) -> NDArray[np.generic]:
    """Return some rows, evenly; computes."""
    n_rows, n_sampled = rows.shape[0], min(rows.shape[0], 4096)
    (sample,) = compute(select_rows(rows, np.arange(n_sampled) * n_rows // n_sampled))
    return np.asarray(sample)


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
