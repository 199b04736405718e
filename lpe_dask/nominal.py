"""Count the nominal rows and settle what happens to those with NaN or inf."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import uuid4

import dask
import dask.array as da
import numpy as np
from dask.highlevelgraph import HighLevelGraph
from numpy.typing import NDArray

from lpe_dask.graphs import delayed_tasks
from lpe_dask.inputs import Table, with_known_rows
from lpe_dask.literals import enter

#: Rows that are sampled altogether, and from each chunk at least: they tell how the rows
#: lie, on which no result depends.
SAMPLE_ROWS, MIN_SAMPLED_ROWS = 16_384, 16


@dataclass(frozen=True, slots=True)
class Nominal:
    """The nominal rows that neighbors are searched among.

    Attributes
    ----------
    rows : dask array of shape (n_rows, n_features)
        Finite, with known chunks.
    input_chunks : tuple of int
        Sizes of the row chunks as they came, before rows were dropped.
    is_kept : ndarray of shape (sum of input_chunks,), optional
        Which rows of the input these are; None: all.
    sample : ndarray of shape (n_sampled, n_features)
        Some of the rows, about evenly from all chunks.
    """

    rows: da.Array
    input_chunks: tuple[int, ...]
    is_kept: NDArray[np.bool_] | None
    sample: NDArray[np.generic]

    @property
    def n_dropped(self) -> int:
        """Rows of the input that had NaN or inf."""
        return sum(self.input_chunks) - self.rows.shape[0]


def read_nominal(table: Table, missing: str) -> Nominal:
    """Return the finite rows of ``table``; reads it once, to count them.

    Parameters
    ----------
    table : Table
    missing : {"error", "drop"}
        What to do about a row with NaN or inf.

    Raises
    ------
    ValueError
        Naming the columns with NaN or inf, and how many, if ``missing="error"``; or if no
        row is left.
    """
    surveys = _survey_blocks(table.rows)
    sizes = tuple(len(survey.is_finite) for survey in surveys)
    is_kept = np.concatenate([survey.is_finite for survey in surveys])
    bad = np.sum([survey.bad for survey in surveys], axis=0)
    if bad.any() and missing == "error":
        _refuse(bad, table.labels)
    if not is_kept.any():
        raise ValueError(
            f"there are no nominal rows to learn from: Found array with 0 sample(s) "
            f"without NaN or inf among {sum(sizes)} rows, while a minimum of 1 is required."
        )
    rows = with_known_rows(table.rows, sizes)
    sample = np.concatenate([survey.sample for survey in surveys])
    if is_kept.all() and min(sizes) > 0:
        return Nominal(rows, sizes, None, sample)
    kept = take_rows(rows, np.flatnonzero(is_kept))
    return Nominal(kept, sizes, None if is_kept.all() else is_kept, sample)


def _refuse(bad: NDArray[np.int64], labels: list[str]) -> None:
    listed = ", ".join(
        f"{label} ({count})" for label, count in zip(labels, bad, strict=True) if count
    )
    raise ValueError(
        f"nominal rows hold NaN or inf, here with how many in each column: {listed}. Every "
        f"nominal row counts in a p-value, so none is left out silently: fill them, leave "
        f"the columns out (columns=, --columns), or drop the rows with missing='drop' "
        f"(--missing drop)."
    )


@dataclass(frozen=True, slots=True)
class _Survey:
    """What one chunk holds: which rows are finite, how many numbers are not, a sample."""

    is_finite: NDArray[np.bool_]
    bad: NDArray[np.int64]
    sample: NDArray[np.generic]


def _survey_blocks(rows: da.Array) -> list[_Survey]:
    name = f"lpe-survey-{uuid4().hex}"
    n_chunks = rows.numblocks[0]
    n_sampled = max(MIN_SAMPLED_ROWS, -(-SAMPLE_ROWS // n_chunks))
    tasks = {
        f"{name}-{i}": (_survey, (rows.name, i, 0), n_sampled) for i in range(n_chunks)
    }
    return list(dask.compute(*delayed_tasks(name, tasks, [rows])))


def take_rows(rows: da.Array, numbers: NDArray[np.int64]) -> da.Array:
    """Return some rows, lazily, in the order they have, in known chunks that are not empty.

    Parameters
    ----------
    rows : dask array of shape (n_rows, n_features)
        With known chunks.
    numbers : ndarray of int
        Of the rows to take, ascending; at least one.
    """
    edges = np.cumsum([0, *rows.chunks[0]])
    starts = np.searchsorted(numbers, edges)
    name = f"lpe-take-{uuid4().hex}"
    used = np.flatnonzero(np.diff(starts)).tolist()
    places = [
        enter(numbers[starts[i] : starts[i + 1]] - edges[i], "lpe-chosen") for i in used
    ]
    tasks = {
        (name, k, 0): (_take, (rows.name, i, 0), of_chunk.key)
        for k, (i, of_chunk) in enumerate(zip(used, places, strict=True))
    }
    graph = HighLevelGraph.from_collections(name, tasks, dependencies=[rows, *places])
    sizes = tuple(int(starts[i + 1] - starts[i]) for i in used)
    return da.Array(graph, name, (sizes, rows.chunks[1]), meta=rows._meta)


# The functions below run inside tasks: NumPy in, NumPy out.


def _survey(rows: NDArray[np.generic], n_sampled: int) -> _Survey:
    n_rows, n_features = rows.shape
    n_sampled = min(n_rows, n_sampled)
    which = np.arange(n_sampled) * n_rows // max(1, n_sampled)
    is_finite = np.isfinite(rows)
    if is_finite.all():  # by row and by column it takes several times as long
        bad = np.zeros(n_features, np.int64)
        return _Survey(np.ones(n_rows, bool), bad, rows[which])
    is_whole = is_finite.all(axis=1)
    return _Survey(is_whole, (~is_finite).sum(axis=0), rows[which[is_whole[which]]])


def _take(rows: NDArray[np.generic], places: NDArray[np.int64]) -> NDArray[np.generic]:
    taken: NDArray[np.generic] = rows[places]
    return taken
