"""Read the nominal rows of a fit: learn categories and minima, survey the rows.

lazy rows with categories --survey_levels--> Categories, survey --> Table, NominalRows
others --learn_categories--> Categories --read_with_offsets--> Table, NominalRows
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from lpe_dask.tables.categorical_columns import possible_places
from lpe_dask.tables.categories import Categories
from lpe_dask.tables.column_offsets import learn_offsets
from lpe_dask.tables.errors import PrecisionError
from lpe_dask.tables.exact_numbers import NO_OFFSETS, ColumnOffsets
from lpe_dask.tables.fit_input import FitInput
from lpe_dask.tables.group_levels import (
    GroupLevels,
    learn_groups,
    with_columns_last,
    without_last,
)
from lpe_dask.tables.interop import as_table
from lpe_dask.tables.levels import learn_categories
from lpe_dask.tables.nominal_rows import Draw, NominalRows
from lpe_dask.tables.nominal_survey import NominalSurvey, n_sampled, survey_levels
from lpe_dask.tables.numeric import check_numeric, number_type
from lpe_dask.tables.output_series import InputKind
from lpe_dask.tables.partitions import RowEncoder
from lpe_dask.tables.row_survey import RowSurveyor, Sums
from lpe_dask.tables.sources import Source, open_source
from lpe_dask.tables.table import Table, read_with_offsets
from lpe_dask.tables.table_files import is_path_like, read_sized_frame


@dataclass(frozen=True, slots=True)
class NominalTable:
    """The nominal rows of a fit.

    Attributes
    ----------
    table : Table
        All of them, as numbers and codes.
    rows : NominalRows
        Those to search.
    places : tuple of int
        The columns that have codes of categories.
    kind : InputKind
        Of the input.
    reread : callable
        Returns the table, read again.
    without_groups : callable
        Returns the input without the columns that divide rows into groups.
    by : list
        These columns: names as the input has them, or the positions of an array.
    """

    table: Table
    rows: NominalRows
    places: tuple[int, ...]
    kind: InputKind
    reread: Callable[[], Table]
    without_groups: Callable[[], Any]
    by: list[Any]

    @classmethod
    def read(
        cls,
        X: Any,
        categorical: str | Sequence[Any] | None,
        missing: str,
        places: tuple[int, ...] | None = None,
        by: Sequence[Any] = (),
        sums: Sums | None = None,
        draw: Draw | None = None,
        sizes: Sequence[int] | None = None,
    ) -> NominalTable:
        """Return the nominal rows in any kind of table; computes.

        Parameters
        ----------
        X : as for `Table.of`
        categorical : as for `levels.learn_categories`
        missing : as for `NominalRows.of`
        places : tuple of int, optional
            The columns that have codes already; None: categories are learned.
        by : sequence
            The columns that divide rows into groups.
        sums, draw : optional
            As for `NominalRows.of`; the latter matters for rows without codes that have to
            be read to be known.
        sizes : sequence of int, optional
            Rows of the partitions, where these are known.

        Raises
        ------
        ValueError, TypeError
            As `Table.of`, `levels.learn_categories` and `NominalRows.of`.
        """
        X = given = as_table(X)  # once: a stream cannot be read again
        is_in_files = is_path_like(X)
        if is_in_files:
            X, sizes = read_sized_frame(X, categorical=categorical, by=by)
        named = list(by)
        if by:
            X = with_columns_last(X, by)
        source = open_source(X)
        if by and not isinstance(source.names, int):
            named = list(source.names[-len(by) :])
        if places is not None:
            # Codes that came may be -1, of values that were unknown to another model; they
            # are no numbers to add up.
            categorical = draw = sums = None
        count = _Count(X, missing, len(by), sums, None if by else draw, sizes)
        if source.is_lazy and (by or categorical is not None):
            table, rows = count.with_levels(source, categorical, is_in_files)
        else:
            table, rows = count.after_levels(source, categorical, is_in_files, places)
        coded = table.categories or Categories()
        places = coded.places if places is None else places
        kind = InputKind(
            table.restore, table.frame, table.source, table.is_lazy, FitInput(given)
        )
        reread = partial(_reread, X, table.categories, table.minima)
        without = partial(without_last, X, len(by))
        return cls(table.without_input(), rows, places, kind, reread, without, named)


@dataclass(frozen=True, slots=True)
class _Count:
    """Reads a table and its rows; arguments as of `NominalTable.read`.

    Attributes
    ----------
    X : as for `Table.of`
        With the columns that divide rows into groups as the last ones.
    missing : {"error", "drop", "measure"}
    n_by : int
    sums, draw, sizes : optional
    """

    X: Any
    missing: str
    n_by: int
    sums: Sums | None
    draw: Draw | None
    sizes: Sequence[int] | None

    def after_levels(
        self,
        source: Source,
        categorical: str | Sequence[Any] | None,
        is_in_files: bool,
        places: tuple[int, ...] | None,
    ) -> tuple[Table, NominalRows]:
        """Return them once levels are known, by one more reading if these are lazy."""
        categories, n_columns = None, source.meta.shape[1]
        groups = None
        if self.n_by:
            groups = learn_groups(source, range(n_columns - self.n_by, n_columns))
        categories = learn_categories(self.X, categorical, n_by=self.n_by)
        if groups is not None:
            categories = replace(categories or Categories(), groups=groups)
        coded = categories or Categories()
        self._check(source, is_in_files, coded.places if places is None else places)
        count = partial(self._rows, categorical=coded.places)
        return read_with_offsets(self.X, categories, count, is_nominal=True)

    def with_levels(
        self, source: Source, categorical: str | Sequence[Any] | None, is_in_files: bool
    ) -> tuple[Table, NominalRows]:
        """Return them by the reading that learns levels, of lazy rows.

        By one more, if columns of objects turn out to have numbers.
        """
        measured = source.without_last(self.n_by).meta
        places: list[int] = []
        if categorical is not None:
            places = possible_places(measured, categorical)
        self._check(source, is_in_files, places)
        expected = _without_levels(places, self.n_by)
        Table.of(self.X, categories=expected)  # checks types
        are_found, minima = isinstance(categorical, str), NO_OFFSETS
        dtype = None
        if not isinstance(source.names, int):
            dtype = number_type(measured, places)
        survey = partial(
            survey_levels, source, places, self.n_by, are_found=are_found,
            surveyor=self._surveyor(source, places),
        )  # fmt: skip
        try:
            found = survey(RowEncoder(source.names, minima, True, dtype))
        except PrecisionError:
            minima = learn_offsets(self.X, expected)
            found = survey(RowEncoder(source.names, minima, True, dtype))
        learned, surveyed = found
        is_coded = learned.places or self.n_by
        categories = learned if is_coded else None
        count = partial(self._rows, categorical=learned.places)
        self._check(source, is_in_files, learned.places)
        if surveyed is None:
            return read_with_offsets(self.X, categories, count, is_nominal=True)
        table = Table.of(self.X, categories=categories, minima=minima, is_nominal=True)
        return table, count(table, survey=surveyed)

    def _check(self, source: Source, is_in_files: bool, places: Sequence[int]) -> None:
        """Refuse columns of files that are not numbers."""
        if is_in_files:  # objects there, such as lists or dates, are not numbers
            meta = source.meta.iloc[:, : source.meta.shape[1] - self.n_by]
            check_numeric(meta, but=places)

    def _surveyor(self, source: Source, places: Sequence[int]) -> RowSurveyor:
        n_chunks = len(source.parts()[0])
        return RowSurveyor(
            n_sampled(n_chunks), tuple(places), self.missing == "measure",
            self.n_by > 0, self.sums,
        )  # fmt: skip

    def _rows(
        self,
        table: Table,
        categorical: tuple[int, ...],
        survey: NominalSurvey | None = None,
    ) -> NominalRows:
        return NominalRows.of(
            table, self.missing, categorical, has_groups=self.n_by > 0, sums=self.sums,
            survey=survey, draw=self.draw, sizes=self.sizes,
        )  # fmt: skip


def _without_levels(places: Sequence[int], n_by: int) -> Categories:
    """Return categories and groups whose values are not known."""
    groups = None
    if n_by:
        groups = GroupLevels(
            ("",) * n_by, pd.DataFrame(columns=range(n_by)), np.empty(0, np.int64)
        )
    return Categories(tuple(places), ((),) * len(places), groups)


def _reread(X: Any, categories: Categories | None, minima: ColumnOffsets) -> Table:
    """Return the table once more; models are pickled with this, by its name."""
    table = Table.of(X, categories=categories, minima=minima, is_nominal=True)
    return table.without_input()
