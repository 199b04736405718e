"""Open what a job reads, or has read: tables in files, and which columns it takes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from lpe_dask.batch.errors import JobKeyError
from lpe_dask.batch.fingerprint import changed_files, read_fingerprint
from lpe_dask.batch.job import Source
from lpe_dask.storage import MASK, redact, sibling_url
from lpe_dask.tables import (
    CsvOptions,
    FileTable,
    open_features,
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


def input_of(output: str, summary: dict[str, Any]) -> tuple[FileTable, list[Any]]:
    """Return the table that an output was made from, and its columns that were measured.

    Raises
    ------
    FileNotFoundError
        If its files are not there any more.
    ValueError
        If they have changed, or are at URLs with passwords.
    """
    made_from = read_fingerprint(output)
    assert made_from is not None  # it is in the summary
    names = [sibling_url(output, name) for name, *_ in made_from.data]
    settings = made_from.settings
    if any(MASK in name for name in names):
        raise ValueError(
            f"{redact(output)} was made from URLs with passwords, which it does not keep, "
            f"so its rows cannot be read again. Score the rows at a URL without one."
        )
    categorical, by = (summary["parameters"][name] for name in ("categorical", "by"))
    table, frame = open_features(
        with_csv(names, settings.get("csv")), settings["columns"],
        categorical=categorical, by=by or (),
    )  # fmt: skip
    if changed := changed_files(made_from.data, table.files.stamps):
        raise ValueError(
            f"{redact(output)} was made from other rows: {changed[0]}. Score the rows "
            f"again."
        )
    return table, list(frame.columns)[: len(frame.columns) - len(by or ())]
