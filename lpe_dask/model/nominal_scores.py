"""What is known of the nominal rows themselves, in the order in which they came.

    calibration rows   measured by fit, stored
    the others         measured when they are asked for, each without itself; lazy

With ``calibration="loo"`` every row is a calibration row, unless ``calibration_size`` says
otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpe_dask import dask_array as da
from lpe_dask.model.calibration_split import CalibrationSplit, GroupedSplit
from lpe_dask.model.measured_vectors import range_edges, spread
from lpe_dask.pvalues import Calibration
from lpe_dask.search import Approximation, Reference
from lpe_dask.storage import StoredFile, StoredVector
from lpe_dask.tables import (
    Checksums,
    InputKind,
    NominalRows,
    RowStatus,
    Table,
    map_blocks,
)
from lpe_dask.tasks import LocalValue, compute, new_array

#: Columns of a file of them; the second only where p-values compare something else.
_COLUMNS = ("statistic", "compared")

#: Start of the keys of tasks that give them.
_NAME = "lpe-nominal-statistic"


@dataclass(frozen=True, slots=True)
class NominalScores:
    """The statistics of the nominal rows.

    Attributes
    ----------
    statistic : LocalValue
        An array of shape (n_input,): of the calibration rows; NaN for all others, also for
        rows that were dropped.
    compared : LocalValue
        Likewise what p-values compare: the statistic, or the weighed one.
    chunks : tuple of int
        Rows of the partitions as they came.
    others : callable, optional
        Reads the input of `LPE.fit` again, where not all rows in it were measured; it is
        not to be changed.
    numbers : LocalValue, optional
        There, too: of an array of int32 of shape (n_input,), the numbers of the rows among
        those that new rows are measured among; -1 for the rows that are none of these.
    checksums : Checksums, optional
        Of its partitions.
    statuses : LocalValue, optional
        Of an array of shape (n_input,): why rows were dropped, or have no p-value. None:
        all have one.
    """

    statistic: LocalValue
    compared: LocalValue
    chunks: tuple[int, ...]
    others: Callable[[], Table] | None = None
    numbers: LocalValue | None = None
    checksums: Checksums | None = None
    statuses: LocalValue | None = None

    def known(self) -> NominalScores:
        """Return these, which are at hand."""
        return self

    def columns(self) -> dict[str, NDArray[np.float64]] | None:
        """Return the arrays to store; None if some rows are yet to be measured."""
        if self.others is not None:
            return None
        values = (self.statistic.value, self.compared.value)
        n_stored = 1 if self.compared is self.statistic else 2
        return dict(zip(_COLUMNS[:n_stored], values, strict=False))

    def vector(self) -> StoredVector | None:
        """Return the statistics to store that are on storage; None if there are none."""
        values = self.statistic.value
        is_known = self.others is None and self.compared is self.statistic
        return values if is_known and isinstance(values, StoredVector) else None

    def columns_of_all(
        self, reference: Reference, calibration: Calibration
    ) -> dict[str, NDArray[np.float64]]:
        """Return the arrays to store once the others are measured, too; computes."""
        n_stored = 1 if calibration.weigher is None else 2
        values = compute(*self.blocks(reference, calibration)[:n_stored])
        return dict(zip(_COLUMNS[:n_stored], values, strict=True))

    @classmethod
    def of(
        cls,
        reread: Callable[[], Table],
        nominal: NominalRows,
        division: CalibrationSplit | GroupedSplit,
        statistic: NDArray[np.float64] | StoredVector,
        compared: NDArray[np.float64] | StoredVector,
        is_small: NDArray[np.bool_] | None = None,
        *,
        is_whole: bool,
    ) -> NominalScores:
        """Return the scores that fit has given its rows.

        Parameters
        ----------
        reread : callable
            Reads the input of fit again.
        nominal : NominalRows
            Its finite rows.
        division : CalibrationSplit
        statistic, compared : ndarray of shape (m,), or StoredVector
            Of the calibration rows; as a vector of all rows that they were measured
            among, or that there are, as `_Search.measure` in fitting.py gives it.
        is_small : ndarray of shape (n_rows,), optional
            Which finite rows belong to small groups.
        is_whole : bool
            Whether no other rows can be measured.
        """
        n_input = sum(nominal.input_chunks)
        is_every = division.reference is None and is_whole
        is_on_storage = isinstance(statistic, StoredVector)
        numbers = division.calibration_pool if is_on_storage else division.calibration
        is_there = _places(n_input, nominal.is_kept, numbers)
        whole = weighed = _scatter(statistic, is_there, n_input)
        if compared is not statistic:
            weighed = _scatter(compared, is_there, n_input)
        return cls(
            whole, weighed, nominal.input_chunks,
            None if is_whole else reread,
            None if is_every else _numbered(nominal.is_kept, division.reference, n_input),
            nominal.checksums,
            _statuses(nominal, is_small, n_input),
        )  # fmt: skip

    def series(self, kind: InputKind, name: str, calibration: Calibration) -> Any:
        """Return a column of results of a dask frame that was fitted, lazily.

        ``name`` is "statistic", "p_value" or that of the statuses.
        """
        assert self.checksums is not None
        given: tuple[Any, ...] = ([self.statistic], None)
        if name == "p_value":
            function = partial(_p_values_of_own, function=calibration.function())
            given = ([self.compared, self.statistic], function, calibration.shared)
            if calibration.groups is not None:
                given = ([self.compared], None)
        if name == RowStatus.COLUMN:
            is_known = self.statuses is not None
            given = (
                ([self.statuses], None) if is_known else ([self.statistic], np.zeros_like)
            )
        return kind.lookup(self.chunks, self.checksums, *given, name=name)

    def blocks(
        self,
        reference: Reference,
        calibration: Calibration,
        approximation: Approximation | None = None,
    ) -> tuple[da.Array, da.Array]:
        """Return the statistic of all rows, and what p-values compare, lazily.

        Both are dask arrays of shape (n_input,); the other rows are searched for once, with
        an approximation where there is one.
        """
        statistic = self._stored(self.statistic, np.float64)
        is_weighed = calibration.weigher is not None
        compared = self._stored(self.compared, np.float64) if is_weighed else statistic
        if self.others is None:
            return statistic, compared
        assert self.numbers is not None
        unknown = _unknown_rows(self.rows(), self.is_own_blocks())
        stored = self._stored(self.numbers, np.int32)
        numbers = map_blocks([stored], _as_int64, name="number", dtype=np.int64)
        measured = reference.measure_rows(
            unknown, numbers=numbers, approximation=approximation
        )
        filled = _filled(statistic, measured)
        if not is_weighed:
            return filled, filled
        return filled, _filled(compared, calibration.compared(unknown, measured))

    def rows(self) -> da.Array:
        """Return the rows themselves, read again, where some are yet to be measured."""
        assert self.others is not None
        assert self.checksums is not None
        return self.others().validated_rows(self.chunks, self.checksums)

    def status_blocks(self) -> da.Array:
        """Return the numbers of statuses of all rows, of shape (n_input,), lazily."""
        if self.statuses is not None:
            return self._stored(self.statuses, np.int8)
        statistic = self._stored(self.statistic, np.float64)
        return map_blocks([statistic], np.zeros_like, name="status", dtype=np.float64)

    def is_own_blocks(self) -> da.Array:
        """Return which rows are calibration rows, as a dask array of shape (n_input,)."""
        statistic = self._stored(self.statistic, np.float64)
        return map_blocks([statistic], _is_known, name="is-own", dtype=np.bool_)

    def _stored(self, values: LocalValue, dtype: type[np.generic]) -> da.Array:
        """Return numbers on the client as a dask array in the chunks of the input."""
        edges = np.cumsum([0, *self.chunks]).tolist()
        parts, entered = values.slices(edges)
        return new_array("stored", parts, entered, (self.chunks,), np.empty(0, dtype))


@dataclass(frozen=True, slots=True)
class StoredNominalScores:
    """The statistics of the nominal rows in files of a model, read when asked for.

    Attributes
    ----------
    file : StoredFile or StoredVector, optional
        None where not all of them were measured before the model was saved.
    n_input : int
        How many rows came, with those that were dropped.
    is_weighed : bool
        Whether p-values compare something else.
    has_pool : bool
        Whether rows of small groups were compared with all others; which is not known.
    """

    file: StoredFile | StoredVector | None
    n_input: int
    is_weighed: bool
    has_pool: bool

    def columns(self) -> dict[str, NDArray[np.float64]] | None:
        """Return the stored arrays; None without a file."""
        if self.file is None:
            return None
        if isinstance(self.file, StoredVector):
            return {_COLUMNS[0]: np.asarray(self.file)}
        names = _COLUMNS if self.is_weighed else _COLUMNS[:1]
        return self.file.columns(dict.fromkeys(names, np.float64), self.n_input)

    def vector(self) -> StoredVector | None:
        """Return the statistics that are in several files; None if there are none."""
        return self.file if isinstance(self.file, StoredVector) else None

    def known(self) -> NominalScores:
        """Return the statistics, read now, or by the tasks that need them."""
        if (vector := self.vector()) is not None:
            statistic = LocalValue(vector, _NAME)
            chunks = tuple(np.diff(range_edges(len(vector))).tolist())
            return NominalScores(statistic, statistic, chunks)
        values = self.columns()
        if values is None:
            condition = "all of them were calibration rows (calibration='loo' without "
            condition += "calibration_size)"
            if self.has_pool:
                condition = "no rows of small groups were compared with all of them "
                condition += "(small_groups='pool')"
            raise AttributeError(
                f"a model that was loaded knows the nominal rows themselves only if "
                f"{condition}. Give the rows to score_samples or statistic instead."
            )
        statistic = compared = LocalValue(values[_COLUMNS[0]], _NAME)
        if self.is_weighed:
            compared = LocalValue(values[_COLUMNS[1]], _NAME)
        return NominalScores(statistic, compared, (len(statistic.value),))


def _places(
    n_input: int,
    is_kept: NDArray[np.bool_] | None,
    numbers: NDArray[np.int64] | None,
) -> NDArray[np.bool_] | None:
    """Return which rows of the input are these of those that are kept; None: all rows."""
    if numbers is None:
        return is_kept
    if is_kept is None:
        chosen = np.zeros(n_input, bool)
        chosen[numbers] = True
        return chosen
    chosen = np.zeros(np.count_nonzero(is_kept), bool)
    chosen[numbers] = True
    is_there = is_kept.copy()
    is_there[is_kept] = chosen
    return is_there


def _scatter(
    values: NDArray[np.float64] | StoredVector,
    is_there: NDArray[np.bool_] | None,
    n_input: int,
) -> LocalValue:
    """Return values in their places among all rows; computes, if they are on storage."""
    if is_there is None:
        return LocalValue(values, _NAME)
    if isinstance(values, StoredVector):
        return LocalValue(spread(values, is_there), _NAME)
    whole = np.full(n_input, np.nan)
    whole[is_there] = values
    return LocalValue(whole, _NAME)


def _statuses(
    nominal: NominalRows, is_small: NDArray[np.bool_] | None, n_input: int
) -> LocalValue | None:
    statuses = nominal.statuses
    if is_small is not None and is_small.any():
        places = _places(n_input, nominal.is_kept, np.flatnonzero(is_small))
        statuses = np.zeros(n_input, np.int8) if statuses is None else statuses.copy()
        statuses[places] = RowStatus.NAMES.index("small group")
    return None if statuses is None else LocalValue(statuses, _NAME)


def _numbered(
    is_kept: NDArray[np.bool_] | None, reference: NDArray[np.int64] | None, n_input: int
) -> LocalValue:
    is_searched = _places(n_input, is_kept, reference)
    if is_searched is None:
        return LocalValue(np.arange(n_input, dtype=np.int32), "lpe-nominal-number")
    whole = np.full(n_input, -1, np.int32)
    whole[is_searched] = np.arange(np.count_nonzero(is_searched), dtype=np.int32)
    return LocalValue(whole, "lpe-nominal-number")


def _filled(known: da.Array, measured: da.Array) -> da.Array:
    return map_blocks([known, measured], _fill_missing, name="statistic", dtype=np.float64)


def _unknown_rows(rows: da.Array, is_known: da.Array) -> da.Array:
    blocks = (
        (_mask_known, (rows.name, i, 0), (is_known.name, i))
        for i in range(rows.numblocks[0])
    )
    return new_array("unknown", blocks, [rows, is_known], rows.chunks, np.empty((0, 0)))


# The functions below run inside tasks: NumPy in, NumPy out.


def _is_known(statistic: NDArray[np.float64]) -> NDArray[np.bool_]:
    return ~np.isnan(statistic)


def _as_int64(numbers: NDArray[np.int32]) -> NDArray[np.int64]:
    return numbers.astype(np.int64)


def _p_values_of_own(
    compared: NDArray[np.float64],
    statistic: NDArray[np.float64],
    calibration: NDArray[np.float64],
    *,
    function: Any,
) -> NDArray[np.float64]:
    p_values: NDArray[np.float64] = function(compared, calibration, _is_known(statistic))
    return p_values


def _mask_known(
    rows: NDArray[np.generic], is_known: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return rows with inf in those that are known, so that they are not measured again."""
    unknown = rows.astype(np.float64)
    unknown[is_known] = np.inf
    return unknown


def _fill_missing(
    known: NDArray[np.float64], measured: NDArray[np.float64]
) -> NDArray[np.float64]:
    return np.where(np.isnan(known), measured, known)
