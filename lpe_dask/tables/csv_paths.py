"""Paths that know how the CSV files are to be read that are there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lpe_dask.tables.table_files import as_paths, is_path_like


class PathsWithCsvOptions(tuple[str, ...]):
    """Paths of a table, as any function takes them, with options.

    Attributes
    ----------
    csv : dict
        As `CsvOptions.given` returns them.
    """

    csv: dict[str, Any]


def with_csv(X: Any, csv: Mapping[str, Any] | None) -> Any:
    """Return the paths ``X`` with options for CSV files, or ``X`` itself without these.

    Raises
    ------
    TypeError, ValueError
        For options as `CsvOptions.of`, and for rows that are no paths.
    """
    if csv is None:
        return X
    from lpe_dask.tables.csv_options import CsvOptions  # not for workers

    if not is_path_like(X):
        raise TypeError(
            f"csv= says how CSV files are read, but X is a {type(X).__name__}. Give the "
            f"path of a file, or leave csv out."
        )
    paths = PathsWithCsvOptions(as_paths(X))
    paths.csv = CsvOptions.of(csv).given()
    return paths
