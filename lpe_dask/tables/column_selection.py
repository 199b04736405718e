"""Choose the columns to measure by naming those that are not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lpe_dask.tables.column_names import positions_by_name, resolve_names


class ExclusionError(ValueError):
    """A column to exclude is not there."""


@dataclass(frozen=True, slots=True)
class ExcludedColumns:
    """All columns of a table, but for some.

    Attributes
    ----------
    excluded : sequence
        Their names, as a user gives them: see `column_names.resolve_names`.
    """

    excluded: Sequence[Any]

    def of(self, names: Iterable[Any]) -> list[Any]:
        """Return the names of the columns of a table that remain.

        Raises
        ------
        ExclusionError
            If one that is excluded is not there: a slip would measure it.
        """
        names = list(names)
        excluded, places = resolve_names(self.excluded, names), positions_by_name(names)
        if missing := [name for name in excluded if name not in places]:
            raise ExclusionError(
                f"there are no columns {missing} to exclude, but {names}. Name some of "
                f"these (exclude=, --exclude), or none."
            )
        left_out = {*excluded}
        return [name for name in names if name not in left_out]


def feature_columns(
    columns: Sequence[Any] | None, exclude: Sequence[Any] | None
) -> Sequence[Any] | ExcludedColumns | None:
    """Return which columns are measured; None: all.

    Raises
    ------
    ValueError
        If both are given.
    TypeError
        If the columns to exclude are no list: a single name would be one of letters.
    """
    if exclude is None or len(exclude) == 0:
        return columns
    if columns is not None:
        raise ValueError(
            f"columns={list(columns)} and exclude={list(exclude)} are two ways to say what "
            f"is measured. Give one of them."
        )
    if isinstance(exclude, str):
        raise TypeError(
            f"exclude={exclude!r} must be a list of column names. Give [{exclude!r}]."
        )
    return ExcludedColumns(list(exclude))
