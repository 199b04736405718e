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
from lpe_dask.pvalues import Calibration
from lpe_dask.search import Approximation, Reference
from lpe_dask.storage import StoredFile
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
        There, too: of an array of shape (n_input,), the numbers of the rows among those
        that new rows are measured among; -1 for the rows that are none of these.
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
        statistic: NDArray[np.float64],
        compared: NDArray[np.float64],
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
        statistic, compared : ndarray of shape (m,)
            Of the calibration rows.
        is_small : ndarray of shape (n_rows,), optional
            Which finite rows belong to small groups.
        is_whole : bool
            Whether no other rows can be measured.
        """
        n_input = sum(nominal.input_chunks)
        kept = np.arange(n_input)
        if nominal.is_kept is not None:
            kept = kept[nominal.is_kept]
        is_all, is_every = division.calibration is None, division.reference is None
        is_every &= is_whole
        places = kept if is_all else kept[division.calibration]
        whole = weighed = _scatter(statistic, places, n_input)
        if compared is not statistic:
            weighed = _scatter(compared, places, n_input)
        return cls(
            whole, weighed, nominal.input_chunks,
            None if is_whole else reread,
            None if is_every else _numbered(kept, division.reference, n_input),
            nominal.checksums,
            _statuses(nominal.statuses, kept, is_small, n_input),
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
        assert self.checksums is not None
        rows = self.others().validated_rows(self.chunks, self.checksums)
        unknown = _unknown_rows(rows, self.is_own_blocks())
        numbers = self._stored(self.numbers, np.int64)
        measured = reference.measure_rows(
            unknown, numbers=numbers, approximation=approximation
        )
        filled = _filled(statistic, measured)
        if not is_weighed:
            return filled, filled
        return filled, _filled(compared, calibration.compared(unknown, measured))

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
    """The statistics of the nominal rows in a file of a model, read when asked for.

    Attributes
    ----------
    file : StoredFile, optional
        None where not all of them were measured before the model was saved.
    n_input : int
        How many rows came, with those that were dropped.
    is_weighed : bool
        Whether p-values compare something else.
    has_pool : bool
        Whether rows of small groups were compared with all others; which is not known.
    """

    file: StoredFile | None
    n_input: int
    is_weighed: bool
    has_pool: bool

    def columns(self) -> dict[str, NDArray[np.float64]] | None:
        """Return the stored arrays; None without a file."""
        if self.file is None:
            return None
        names = _COLUMNS if self.is_weighed else _COLUMNS[:1]
        return self.file.columns(dict.fromkeys(names, np.float64), self.n_input)

    def known(self) -> NominalScores:
        """Return the statistics, read now."""
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


def _scatter(
    values: NDArray[np.float64], places: NDArray[np.int64], n_input: int
) -> LocalValue:
    whole = np.full(n_input, np.nan)
    whole[places] = values
    return LocalValue(whole, _NAME)


def _statuses(
    statuses: NDArray[np.int8] | None,
    kept: NDArray[np.int64],
    is_small: NDArray[np.bool_] | None,
    n_input: int,
) -> LocalValue | None:
    if is_small is not None and is_small.any():
        statuses = np.zeros(n_input, np.int8) if statuses is None else statuses.copy()
        statuses[kept[is_small]] = RowStatus.NAMES.index("small group")
    return None if statuses is None else LocalValue(statuses, _NAME)


def _numbered(
    kept: NDArray[np.int64], reference: NDArray[np.int64] | None, n_input: int
) -> LocalValue:
    searched = kept if reference is None else kept[reference]
    whole = np.full(n_input, -1)
    whole[searched] = np.arange(len(searched))
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
