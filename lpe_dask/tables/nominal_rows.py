"""Count the nominal rows, and refuse or drop those with NaN or inf, or keep gaps."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from lpe_dask import dask_array as da
from lpe_dask.kernels import Moments
from lpe_dask.tables.group_facts import GroupFacts
from lpe_dask.tables.nominal_survey import (
    SAMPLE_ROWS,
    NominalSurvey,
    n_sampled,
    survey_rows,
)
from lpe_dask.tables.row_checks import Checksums, validated_rows
from lpe_dask.tables.row_survey import RowSurvey, RowSurveyor, Sums, coded_places, spread
from lpe_dask.tables.table import Table
from lpe_dask.tables.value_ranges import ValueRanges, ranges_of
from lpe_dask.tasks import (
    LocalValue,
    compute,
    freeze,
    meta_of,
    new_array,
    new_tasks,
)

logger = logging.getLogger(__name__)


#: From how many rows, columns of numbers and of categories there are to the numbers of the
#: rows that sums are gathered of, and which sums; None if that is not to be settled yet.
Draw = Callable[[int, int, int], tuple[NDArray[np.int64], Sums] | None]


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
    checksums : Checksums
        Of the chunks of the input, to compare later readings with.
    ranges : ValueRanges
        Of the values.
    moments : Moments, optional
        Of the columns of numbers.
    group_facts : GroupFacts, optional
        Of these in each group.
    learned : ValueRanges, optional
        Of the rows that moments are those of, where these are only some.
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
    checksums: Checksums
    ranges: ValueRanges
    moments: Moments | None = None
    group_facts: GroupFacts | None = None
    learned: ValueRanges | None = None
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
        sums: Sums | None = None,
        survey: NominalSurvey | None = None,
        draw: Draw | None = None,
        sizes: Sequence[int] | None = None,
    ) -> NominalRows:
        """Return the rows of ``table`` to measure; reads it once, to survey them.

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
        sums : Sums, optional
            Which exact sums are gathered.
        survey : NominalSurvey, optional
            Of the rows, where they have been read.
        draw : callable, optional
            Says which rows sums are gathered of, where it is known how many there are.
        sizes : sequence of int, optional
            Rows of the chunks, where these are known but to ``table``.

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
        if survey is None:
            learned = None
            if sizes is None and not np.isnan(source.shape[0]):
                sizes = source.chunks[0]
            is_known = sizes is not None and len(sizes) == source.numblocks[0]
            if draw is not None and sizes is not None and is_known:
                n_numbers = source.shape[1] - len(categorical)
                if drawn := draw(sum(sizes), n_numbers, len(categorical)):
                    learned, sums = drawn
            surveyor = RowSurveyor(
                n_sampled(source.numblocks[0]), tuple(categorical), keeps_gaps, has_groups,
                sums,
            )  # fmt: skip
            survey = survey_rows(source, surveyor, learned, sizes or ())
            found = [part.n_rows for part in survey.parts]
            if learned is not None and found != list(sizes or ()):  # others are drawn then
                parts = [replace(part, learned=None) for part in survey.parts]
                survey = replace(survey, parts=parts, moments=None)
        parts = survey.parts
        sizes = tuple(part.n_rows for part in parts)
        statuses = _statuses_of(parts)
        is_kept = None if statuses is None else statuses == 0
        bad = np.sum([part.bad for part in parts], axis=0)
        n_missing = np.sum([part.n_missing for part in parts], axis=0)
        if keeps_gaps:
            _refuse_infinite(bad, table.labels)
            _refuse_empty(n_missing, table.labels, sum(sizes))
        if bad.any() and missing == "error":
            _refuse(bad, table.labels, sum(sizes))
        if sum(sizes) == 0 or (is_kept is not None and not is_kept.any()):
            _refuse_all(bad, table.labels, sum(sizes))
        if not is_frame and np.isnan(table.rows.shape[0]):
            logger.info(
                "the %d chunks of the nominal rows had unknown lengths, which were "
                "computed: %d rows", len(sizes), sum(sizes),
            )  # fmt: skip
        numbers = None
        if is_kept is not None:
            numbers = np.flatnonzero(is_kept)
        elif min(sizes) == 0:
            numbers = np.arange(sum(sizes))
        places = coded_places(tuple(categorical), source.shape[1], has_groups=has_groups)
        checksums = Checksums([part.checksum.total for part in parts], places)
        finite = partial(_finite_rows, sizes=sizes, checksums=checksums, numbers=numbers)
        reread = None if table.reread is None else partial(finite, table.reread, name)
        return cls(
            finite(lambda: source, name), sizes, statuses,
            np.concatenate([part.sample for part in parts]), checksums,
            ranges_of([part.ranges for part in parts]), survey.moments,
            survey.group_facts, _ranges_of_learned(parts), is_frame, reread,
            np.concatenate([part.groups for part in parts]) if has_groups else None,
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
        (sample,) = compute(select_rows(rows, spread(rows.shape[0], SAMPLE_ROWS)))
        return np.asarray(sample)

    @property
    def n_dropped(self) -> int:
        """Rows of the input that had NaN or inf."""
        return sum(self.input_chunks) - self.rows.shape[0]


def _ranges_of_learned(parts: Sequence[RowSurvey]) -> ValueRanges | None:
    found = [part.learned for part in parts if part.learned is not None]
    return ranges_of(found) if found else None


def _finite_rows(
    read: Callable[[], da.Array],
    name: str,
    *,
    sizes: tuple[int, ...],
    checksums: Checksums,
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


def _statuses_of(parts: list[RowSurvey]) -> NDArray[np.int8] | None:
    """Return the statuses of the rows of all chunks; None if all are "ok"."""
    if all(part.statuses is None for part in parts):
        return None
    return np.concatenate(
        [
            np.zeros(part.n_rows, np.int8) if part.statuses is None else part.statuses
            for part in parts
        ]
    )


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


def _take(
    rows: NDArray[np.generic], numbers: NDArray[np.int64], first: int
) -> NDArray[np.generic]:
    taken: NDArray[np.generic] = rows[numbers - first]
    return taken
