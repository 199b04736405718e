"""Read the nominal rows of a fit, and all that is learned of their columns.

nominal rows --learn_categories--> Categories
rows, Categories --read_with_offsets--> Table, NominalRows
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from lpe_dask.tables.fit_input import FitInput
from lpe_dask.tables.interop import as_table
from lpe_dask.tables.levels import learn_categories
from lpe_dask.tables.nominal_rows import NominalRows
from lpe_dask.tables.numeric import check_numeric
from lpe_dask.tables.output_series import InputKind
from lpe_dask.tables.table import Table, read_with_offsets
from lpe_dask.tables.table_files import is_path_like, read_frame
from lpe_dask.tasks import meta_of


@dataclass(frozen=True, slots=True)
class NominalTable:
    """The nominal rows of a fit.

    Attributes
    ----------
    table : Table
        As they came.
    rows : NominalRows
        Those to search.
    places : tuple of int
        The columns that have codes of categories.
    kind : InputKind
    reread : callable
        Returns the table, read again.
    """

    table: Table
    rows: NominalRows
    places: tuple[int, ...]
    kind: InputKind
    reread: Callable[[], Table]

    @classmethod
    def read(
        cls,
        X: Any,
        categorical: str | Sequence[Any] | None,
        missing: str,
        places: tuple[int, ...] | None = None,
    ) -> NominalTable:
        """Return the nominal rows in any kind of table; computes.

        Parameters
        ----------
        X : as for `Table.of`
        categorical : as for `levels.learn_categories`
        missing : as for `NominalRows.of`
        places : tuple of int, optional
            The columns that have codes already; None: categories are learned.

        Raises
        ------
        ValueError, TypeError
            As `Table.of`, `levels.learn_categories` and `NominalRows.of`.
        """
        given, categories = as_table(X), None  # once: a stream cannot be read again
        X = given
        if is_path_like(X):
            X = read_frame(X, categorical=categorical)
        if places is None:
            categories = learn_categories(X, categorical)
        learned = () if categories is None else categories.places
        places = learned if places is None else places
        if X is not given:  # objects in files, such as lists or dates, are not numbers
            check_numeric(meta_of(X), but=places)
        # Codes that came may be -1, of values that were unknown to another model.
        count = partial(NominalRows.of, missing=missing, categorical=learned)
        table, rows = read_with_offsets(X, categories, count)
        kind = InputKind(
            table.restore, table.frame, table.source, table.is_lazy, FitInput(given)
        )
        reread = partial(
            Table.of, X, categories=categories, minima=table.minima, is_nominal=True
        )
        return cls(table, rows, places, kind, reread)
