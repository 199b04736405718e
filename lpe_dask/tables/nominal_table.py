"""Read the nominal rows of a fit: learn categories and minima, count the finite rows.

nominal rows --learn_categories--> Categories
rows, Categories --read_with_offsets--> Table, NominalRows
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from lpe_dask.tables.categories import Categories
from lpe_dask.tables.exact_numbers import ColumnOffsets
from lpe_dask.tables.fit_input import FitInput
from lpe_dask.tables.group_levels import learn_groups, with_columns_last, without_last
from lpe_dask.tables.interop import as_table
from lpe_dask.tables.levels import learn_categories
from lpe_dask.tables.nominal_rows import NominalRows
from lpe_dask.tables.numeric import check_numeric
from lpe_dask.tables.output_series import InputKind
from lpe_dask.tables.sources import open_source
from lpe_dask.tables.table import Table, read_with_offsets
from lpe_dask.tables.table_files import is_path_like, read_frame
from lpe_dask.tasks import meta_of


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

        Raises
        ------
        ValueError, TypeError
            As `Table.of`, `levels.learn_categories` and `NominalRows.of`.
        """
        X = given = as_table(X)  # once: a stream cannot be read again
        is_in_files = is_path_like(X)
        if is_in_files:
            X = read_frame(X, categorical=categorical, by=by)
        groups, named = None, list(by)
        if by:
            X = with_columns_last(X, by)
            source = open_source(X)
            last = range(source.meta.shape[1] - len(by), source.meta.shape[1])
            groups = learn_groups(source, last)
            if not isinstance(source.names, int):
                named = list(source.names[-len(by) :])
        categories = None
        if places is None:
            categories = learn_categories(X, categorical, n_by=len(by))
        if groups is not None:
            categories = replace(categories or Categories(), groups=groups)
        learned = () if categories is None else categories.places
        has_groups = groups is not None
        places = learned if places is None else places
        if is_in_files:  # objects there, such as lists or dates, are not numbers
            meta = meta_of(X)
            check_numeric(meta.iloc[:, : meta.shape[1] - len(by)], but=places)
        # Codes that came may be -1, of values that were unknown to another model.
        count = partial(
            NominalRows.of, missing=missing, categorical=learned, has_groups=has_groups
        )
        table, rows = read_with_offsets(X, categories, count, is_nominal=True)
        kind = InputKind(
            table.restore, table.frame, table.source, table.is_lazy, FitInput(given)
        )
        reread = partial(_reread, X, categories, table.minima)
        without = partial(without_last, X, len(by))
        return cls(table.without_input(), rows, places, kind, reread, without, named)


def _reread(X: Any, categories: Categories | None, minima: ColumnOffsets) -> Table:
    """Return the table once more; models are pickled with this, by its name."""
    table = Table.of(X, categories=categories, minima=minima, is_nominal=True)
    return table.without_input()
