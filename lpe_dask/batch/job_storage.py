"""Read the section [storage] of a job file: the options that all URLs of the job open with.

    [storage], [storage.s3]     key = "${NAME}" --> options, as of `storage_options`

No message repeats a value, and no part of one: they are keys and passwords. So a value is
searched for ``${NAME}`` alone, and other braces are a part of it.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from lpe_dask.batch.placeholders import Placeholders
from lpe_dask.storage import problems_of, secret_values

if TYPE_CHECKING:
    from lpe_dask.batch.job_file import Problems

logger = logging.getLogger(__name__)

#: Name of the section.
STORAGE = "storage"

#: Who besides the owner of a file may read it.
_OTHERS = stat.S_IRGRP | stat.S_IROTH


def read_storage(
    table: Any, placeholders: Placeholders, problems: Problems
) -> dict[str, Any]:
    """Return the options in a section, filled; a warning if others can read secrets there.

    Parameters
    ----------
    table : object
        The section, as TOML has it.
    placeholders : Placeholders
    problems : Problems
        Of the file, to which what is wrong is added.
    """
    if not isinstance(table, dict):
        problem = f"it must be a table of keys. Begin it with the line [{STORAGE}]."
        problems.add(STORAGE, "", problem)
        return {}
    wrong = dict(problems_of(table))
    for name, problem in wrong.items():
        problems.add(STORAGE, name, problem)
    if wrong:
        return {}
    _warn_of_readers(table, problems.path)
    filled = _filled(table, "", placeholders, problems)
    for name, problem in problems_of(filled):  # of a variable's value
        problems.add(STORAGE, name, problem)
    return filled


def _filled(
    table: Mapping[str, Any], above: str, placeholders: Placeholders, problems: Problems
) -> dict[str, Any]:
    filled = dict(table)
    for name, value in table.items():
        if isinstance(value, dict):
            filled[name] = _filled(value, f"{above}{name}.", placeholders, problems)
        elif isinstance(value, str):
            try:
                filled[name] = placeholders.with_variables(value)
            except ValueError as error:
                problems.add(STORAGE, f"{above}{name}", str(error))
    return filled


def _warn_of_readers(table: Mapping[str, Any], path: str) -> None:
    """Warn of secrets that others who can read the job file can see."""
    if not all("${" in value for value in secret_values(table)):
        _warn_once(path)


@cache
def _warn_once(path: str) -> None:
    """Warn of a file once: two days of a job may be read."""
    with suppress(OSError):
        if os.name == "posix" and os.stat(path).st_mode & _OTHERS:
            logger.warning(
                "%s has keys in [%s] and can be read by other users. Write the name of an "
                'environment variable instead, as in secret = "${MY_SECRET}", or let only '
                "its owner read it (chmod 600).", path, STORAGE,
            )  # fmt: skip
