"""Count the nominal rows, and refuse or drop those with NaN or inf, or keep gaps."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpe_dask import dask_array as da
from lpe_dask.tables.row_checks import checksum, validated_rows
from lpe_dask.tables.row_status import status_codes
from lpe_dask.tables.table import Table
from lpe_dask.tables.value_ranges import BlockRanges, ValueRanges, ranges_of
from lpe_dask.tasks import (
    LocalValue,
    compute,
    freeze,
    meta_of,
    new_array,
    new_tasks,
)

logger = logging.getLogger(__name__)

#: Rows that are sampled in all, and at least from each chunk: they show the distribution of
#: the rows, on which no exact result depends.
SAMPLE_ROWS, MIN_SAMPLED_ROWS = 16_384, 16


@dataclass(frozen=True, slots=True)
class NominalRows:
    """The nominal rows that neighbors are searched among.

    Attributes
    ----------
    rows : dask array of shape (n_rows, n_features)
        Finite, but for gaps that are measured, with known chunks.
    input_chunks : tuple of int
        Sizes of the row chunks of the input, before rows were dropped.
    statuses : ndarray of shape (sum of input_chunks,), optional
        The number of the status of each row of the input: these are those that are "ok".
        None: all are.
    sample : ndarray of shape (n_sampled, n_features)
        Some of the rows, about evenly from all chunks.
    checksums : list of int
        Of the chunks of the input, to compare later readings with.
    ranges : ValueRanges
        Of the values.
    is_frame : bool
        Whether the input is a dask DataFrame.
    reread : callable, optional
        Returns ``rows`` in a new graph, if they are in this process.
    groups : ndarray of shape (n_rows,), optional
        The number of the group of each row, where they are divided into groups.
    """

    rows: da.Array
    input_chunks: tuple[int, ...]
    statuses: NDArray[np.int8] | None
    sample: NDArray[np.generic]
    checksums: list[int]
    ranges: ValueRanges
    is_frame: bool = False
    reread: Callable[[], da.Array] | None = None
    groups: NDArray[np.int32] | None = None

    @classmethod
    def of(
        cls,
        table: Table,
        missing: str,
        categorical: Sequence[int] = (),
        *,
        has_groups: bool = False,
    ) -> NominalRows:
        """Return the rows of ``table`` to measure; reads it once, to count them.

        All later readings are compared with this one. If an array did not know the lengths
        of its chunks, a log line says that they were computed.

        Parameters
        ----------
        table : Table
        missing : {"error", "drop", "measure"}
            What to do about a row with NaN or inf; "measure": keep it, but for inf.
        categorical : sequence of int
            The columns that have codes.
        has_groups : bool, default=False
            Whether the last column has the numbers of groups; rows without one are left
            out.

        Raises
        ------
        PrecisionError
            If float64 cannot hold some numbers, and there are no minima.
        ValueError
            Naming the columns with NaN or inf, and how many, if ``missing="error"``; those
            with inf, or without a value, if ``missing="measure"``; or if no row is left.
        """
        keeps_gaps = missing == "measure"
        name = "lpe-read" if table.is_lazy else "lpe-rows"
        source = freeze(table.rows, name, is_foreign=table.is_lazy)
        is_frame = table.frame is not None
        of_blocks, counts, gaps, samples, checksums, values, groups = _survey_blocks(
            source, tuple(categorical), keeps_gaps=keeps_gaps, has_groups=has_groups
        )
        sizes = tuple(map(len, of_blocks))
        statuses = np.concatenate(of_blocks)
        is_kept = statuses == 0
        bad, n_missing = np.sum(counts, axis=0), np.sum(gaps, axis=0)
        if keeps_gaps:
            _refuse_infinite(bad, table.labels)
            _refuse_empty(n_missing, table.labels, sum(sizes))
        if bad.any() and missing == "error":
            _refuse(bad, table.labels, sum(sizes))
        if not is_kept.any():
            _refuse_all(bad, table.labels, sum(sizes))
        if not is_frame and np.isnan(table.rows.shape[0]):
            logger.info(
                "the %d chunks of the nominal rows had unknown lengths, which were "
                "computed: %d rows", len(sizes), sum(sizes),
            )  # fmt: skip
        is_whole = is_kept.all() and min(sizes) > 0
        numbers = None if is_whole else np.flatnonzero(is_kept)
        finite = partial(_finite_rows, sizes=sizes, checksums=checksums, numbers=numbers)
        reread = None if table.reread is None else partial(finite, table.reread, name)
        return cls(
            finite(lambda: source, name), sizes, None if is_kept.all() else statuses,
            np.concatenate(samples), checksums, ranges_of(values), is_frame, reread,
            np.concatenate(groups) if has_groups else None,
        )  # fmt: skip

    @property
    def is_kept(self) -> NDArray[np.bool_] | None:
        """Which rows of the input these are, of shape (sum of input_chunks,); None: all."""
        return None if self.statuses is None else self.statuses == 0

    def again(self) -> da.Array:
        """Return the rows, in a new graph if they are in this process.

        They are then sent as the cluster of the moment needs them.
        """
        return self.rows if self.reread is None else self.reread()

    @staticmethod
    def systematic_sample(rows: da.Array) -> NDArray[np.generic]:
        """Return up to `SAMPLE_ROWS` rows, the same however all are divided; computes.

        Parameters
        ----------
        rows : dask array of shape (n_rows, n_features)
            With known chunks.
        """
        (sample,) = compute(select_rows(rows, _spread(rows.shape[0], SAMPLE_ROWS)))
        return np.asarray(sample)

    @property
    def n_dropped(self) -> int:
        """Rows of the input that had NaN or inf."""
        return sum(self.input_chunks) - self.rows.shape[0]


def _finite_rows(
    read: Callable[[], da.Array],
    name: str,
    *,
    sizes: tuple[int, ...],
    checksums: list[int],
    numbers: NDArray[np.int64] | None,
) -> da.Array:
    frozen = freeze(validated_rows(read(), sizes, checksums), name)
    return frozen if numbers is None else freeze(select_rows(frozen, numbers), "lpe-part")


def _refuse(bad: NDArray[np.int64], labels: list[str], n_rows: int) -> None:
    listed = ", ".join(
        f"{label} ({f'all {n_rows} values are missing' if count == n_rows else count})"
        for label, count in zip(labels, bad, strict=True)
        if count
    )
    raise ValueError(
        f"nominal rows contain NaN or inf in these columns (how many): {listed}. Every "
        f"nominal row counts in a p-value, so none is dropped silently: fill them, leave "
        f"the columns out (columns=, --columns), or drop the rows with missing='drop' "
        f"(--missing drop)."
    )


def _refuse_infinite(bad: NDArray[np.int64], labels: list[str]) -> None:
    if bad.any():
        listed = ", ".join(f"{labels[i]} ({bad[i]})" for i in np.flatnonzero(bad))
        raise ValueError(
            f"nominal rows contain inf in these columns (how many): {listed}. Only what is "
            f"missing is measured (missing='measure', --missing measure): replace inf by a "
            f"number, or by NaN where it says that there is none, or leave the columns out "
            f"(columns=, --columns)."
        )


def _refuse_empty(n_missing: NDArray[np.int64], labels: list[str], n_rows: int) -> None:
    if n_rows and (n_missing == n_rows).any():
        listed = ", ".join(labels[i] for i in np.flatnonzero(n_missing == n_rows))
        raise ValueError(
            f"all {n_rows} values are missing in these columns of nominal rows: {listed}. "
            f"Leave them out (columns=, --columns)."
        )


def _refuse_all(bad: NDArray[np.int64], labels: list[str], n_rows: int) -> None:
    empty = [labels[i] for i in np.flatnonzero(bad == n_rows) if n_rows]
    said = (
        f" All values are missing in these columns: {', '.join(empty)}. Leave them out "
        f"(columns=, --columns)."
    )
    raise ValueError(
        f"there are no nominal rows to learn from: Found array with 0 sample(s) "
        f"without NaN or inf among {n_rows} rows, while a minimum of 1 is required."
        f"{said if empty else ''}"
    )


def _survey_blocks(
    rows: da.Array, categorical: tuple[int, ...], *, keeps_gaps: bool, has_groups: bool
) -> tuple[list[Any], ...]:
    """Return the results of `_survey`, each as a list of all chunks; computes."""
    n_chunks = rows.numblocks[0]
    n_sampled = max(MIN_SAMPLED_ROWS, -(-SAMPLE_ROWS // n_chunks))
    given = n_sampled, categorical, keeps_gaps, has_groups
    tasks = ((_survey, (rows.name, i, 0), *given) for i in range(n_chunks))
    surveys = compute(*new_tasks("survey", tasks, [rows]))
    return tuple(map(list, zip(*surveys, strict=True)))


def select_rows(rows: da.Array, numbers: NDArray[np.int64]) -> da.Array:
    """Return some rows, lazily, in their order, in known chunks that are not empty.

    Parameters
    ----------
    rows : dask array of shape (n_rows, n_features) or (n_rows,)
        With known chunks.
    numbers : ndarray of int
        Of the rows to take, ascending; at least one.
    """
    edges = np.cumsum([0, *rows.chunks[0]])
    starts = np.searchsorted(numbers, edges)
    used = np.flatnonzero(np.diff(starts)).tolist()
    parts, entered = LocalValue(numbers, "lpe-chosen").slices(starts.tolist())
    chosen = new_tasks("chosen", (parts[i] for i in used), entered)
    column = (0,) * (rows.ndim - 1)
    tasks = (
        (_take, (rows.name, i, *column), of_chunk.key, int(edges[i]))
        for i, of_chunk in zip(used, chosen, strict=True)
    )
    sizes = tuple(int(starts[i + 1] - starts[i]) for i in used)
    chunks = (sizes, *rows.chunks[1:])
    return new_array("take", tasks, [rows, *chosen[:1]], chunks, meta_of(rows))


# The functions below run inside tasks: NumPy in, NumPy out.


def _survey(
    rows: NDArray[np.generic],
    n_sampled: int,
    categorical: tuple[int, ...],
    keeps_gaps: bool,
    has_groups: bool,
) -> tuple[Any, ...]:
    """Return the statuses of rows, and how many numbers of each column are not usable.

    And how many are missing, a sample, the checksum of the chunk, its values, and the
    groups of the rows that are kept.
    """
    if has_groups:
        return _survey_groups(rows, n_sampled, categorical, keeps_gaps)
    n_features = rows.shape[1]
    which = _spread(len(rows), n_sampled)
    is_finite = np.isfinite(rows)
    if is_finite.all():  # by row and by column it takes several times as long
        none = np.zeros(n_features, np.int64)
        values = BlockRanges.of(rows, categorical)
        ok = np.zeros(len(rows), np.int8)
        return ok, none, none, rows[which], checksum(rows), values, None
    is_gap = np.isnan(rows)
    is_usable = is_finite | is_gap if keeps_gaps else is_finite
    codes = status_codes(rows, measures_gaps=keeps_gaps)
    is_kept = codes == 0
    bad, n_missing = (~is_usable).sum(axis=0), is_gap.sum(axis=0)
    values, sample = BlockRanges.of(rows[is_kept], categorical), rows[which[is_kept[which]]]
    return codes, bad, n_missing, sample, checksum(rows), values, None


def _survey_groups(
    rows: NDArray[np.generic],
    n_sampled: int,
    categorical: tuple[int, ...],
    keeps_gaps: bool,
) -> tuple[Any, ...]:
    """Return what `_survey` does of rows whose last column has the numbers of groups."""
    codes, bad, n_missing, *_ = _survey(
        rows[:, :-1], n_sampled, categorical, keeps_gaps, has_groups=False
    )
    codes = np.where(
        codes == 0, status_codes(rows, measures_gaps=True, has_groups=True), codes
    )
    kept = rows[codes == 0]
    sample = kept[_spread(len(kept), n_sampled)]
    values = BlockRanges.of(kept[:, :-1], categorical)
    groups = kept[:, -1].astype(np.int32)
    return codes, bad, n_missing, sample, checksum(rows), values, groups


def _spread(n_rows: int, most: int) -> NDArray[np.int64]:
    """Return the numbers of some of so many rows, evenly spread."""
    n = min(n_rows, most)
    return np.arange(n) * n_rows // max(1, n)


def _take(
    rows: NDArray[np.generic], numbers: NDArray[np.int64], first: int
) -> NDArray[np.generic]:
    taken: NDArray[np.generic] = rows[numbers - first]
    return taken
