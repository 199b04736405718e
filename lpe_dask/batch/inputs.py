"""Open what a job reads: the tables of its files, and which of their columns it takes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from lpe_dask.batch.errors import JobKeyError
from lpe_dask.batch.job import Source
from lpe_dask.tables import (
    CsvOptions,
    FileTable,
    resolve_names,
    with_csv,
)

logger = logging.getLogger(__name__)


def paths_of(sources: Sequence[Source], csv: CsvOptions | None) -> Sequence[str]:
    """Return the paths of a job's table; days of a range may have no files."""
    absent = [s.path for s in sources if s.is_optional and not FileTable.exists_at(s.path)]
    if absent:
        logger.warning("there are no files at %s: left out", ", ".join(absent))
    there = [s.path for s in sources if s.path not in absent]
    if absent and not there:
        raise FileNotFoundError(
            f"there are no files at {', '.join(absent)}. At least one day of the range "
            f"must have files."
        )
    paths: Sequence[str] = with_csv(there, None if csv is None else csv.given())
    return paths


def select_carried_columns(
    table: FileTable,
    keep: Sequence[Any] | None,
    results: Sequence[str],
) -> FileTable:
    """Return the columns to carry over, none of which has the name of a result."""
    table.check_same(keep)
    existing = table.columns
    names = existing if keep is None else list(dict.fromkeys(resolve_names(keep, existing)))
    missing = [name for name in names if name not in existing]
    if missing:
        raise JobKeyError(
            f"{table.place} has no columns {missing} to keep, but "
            f"{existing}. Name some of these (keep=, --keep).",
            "score",
            "keep",
        )
    kept = table.select(names)
    hidden = [name for name in results if name in kept.schema.names]
    if hidden:
        raise JobKeyError(
            f"{table.place} has {hidden} already, but these are names of results in "
            f"the output ({', '.join(results)}). Name the columns to carry over "
            f"without them (keep=, --keep), or rename them in the input.",
            "score",
            "keep",
        )
    return kept


def check_private(private: Sequence[Any], columns: Sequence[Any]) -> None:
    """Raise ValueError for a column that does not exist: a slip would show another one."""
    missing = sorted({*match_names(private, columns)} - {*map(str, columns)})
    if missing:
        raise JobKeyError(
            f"there are no columns {missing} to keep private, but "
            f"{list(dict.fromkeys(columns))}. Name some of these (private=, --private).",
            "score",
            "private",
        )


def match_names(given: Sequence[Any], columns: Sequence[Any]) -> list[str]:
    """Return the names that a user gave as those of columns have them, as text."""
    return resolve_names(map(str, given), dict.fromkeys(map(str, columns)))
