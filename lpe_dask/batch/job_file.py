"""Read a job file: what to fit and to score, and on which workers, as a checked `Job`.

    text --parse--> tables --fill--> texts without placeholders --check--> Job

One file is read and nothing else: neither data nor a model. Errors in it are found here,
before hours of work begin, and are reported with their section and key; a problem with one
key does not hide those with others. The arguments of `LPE` are left to `Run.prepare`.
"""

from __future__ import annotations

import datetime
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from lpe_dask.batch.dated_output import DatedOutput
from lpe_dask.batch.errors import JobKeyError
from lpe_dask.batch.job import (
    KEYS,
    SECTIONS,
    Job,
    Source,
    conflicts,
    short_repr,
    value_problem,
)
from lpe_dask.batch.job_storage import STORAGE, read_storage
from lpe_dask.batch.placeholders import Placeholders, has_range, shorten
from lpe_dask.model import ParameterError
from lpe_dask.storage import short_message
from lpe_dask.tasks import call_options

#: Most problems in one message.
MAX_PROBLEMS = 5


def read_job(
    path: str | os.PathLike[str],
    date: datetime.date | None = None,
    environment: Mapping[str, str] | None = None,
) -> Job:
    """Return the job that a TOML file describes, checked as far as the file alone allows.

    Placeholders (see placeholders.py) are filled in the texts and lists of texts that are
    values of a key; no text in metric_params is a path or a day. The spool of this process
    opens with the options in [storage] from now on, as all URLs of the job do.

    Parameters
    ----------
    path : str or path
        A local file. Paths in it that are relative start from the current folder, as on the
        command line, and not from the folder of the file.
    date : datetime.date, optional
        The value of ``{date}``; None: today, by the clock of this machine.
    environment : mapping of str to str, optional
        The values of ``${NAME}``; None: those of this process.

    Raises
    ------
    ValueError
        For the content of the file, with a line for each of the first problems.
    OSError
        If the file cannot be read; FileNotFoundError if it is not there.
    """
    problems = Problems(os.fspath(path))
    tables = _read(problems.path)
    storage = tables.pop(STORAGE, {})
    # A datetime is a date to Python, but would be formatted with its time.
    day = datetime.date.fromordinal((date or datetime.date.today()).toordinal())
    placeholders = Placeholders(day, os.environ if environment is None else environment)
    options = read_storage(storage, placeholders, problems)
    job = _validate(tables, _fill(tables, placeholders, problems), problems)
    fitted = tables.get("model", {}).get("path", tables.get("nominal", {}).get("data", ""))
    known: dict[str, Any] = {
        "path": problems.path,
        "date": day,
        "has_dated_model": "{date" in f"{fitted}",
    }
    if job.score is not None:
        known["dated_output"] = DatedOutput.of(tables["score"]["output"], placeholders)
    job = job.model_copy(update=known)
    for conflict in conflicts(job):
        problems.add(*conflict)
    problems.raise_any()
    return job.with_storage_options(call_options(options))


@contextmanager
def errors_with_location(job: Job) -> Iterator[None]:
    """Name file and key where an error is about a value in a job file."""
    try:
        yield
    except (ParameterError, JobKeyError) as error:
        if not job.path:
            raise
        section, key = "model", getattr(error, "names", ("",))[0]
        if isinstance(error, JobKeyError):
            section, key = error.section, error.key
        Problems(job.path, {(section, key): str(error)}).raise_any()


def _read(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text("utf-8-sig"))
    except OSError as error:
        raise type(error)(
            f"the job file {path} cannot be read: {short_message(error)} Give the path of "
            f"a TOML file; relative paths start from the current folder."
        ) from error
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} is not TOML in UTF-8: {shorten(str(error), 150)}. A line contains "
            f'[section] or key = value, with texts in quotes, as in output = "out". '
            f"Correct it."
        ) from error


def _fill(
    tables: dict[str, Any], placeholders: Placeholders, problems: Problems
) -> dict[str, Any]:
    """Return the tables with placeholders filled, and with a `Source` for each path."""
    filled = dict(tables)
    for section, table in tables.items():
        if not isinstance(table, dict):
            continue
        filled[section] = dict(table)
        for key, value in table.items():
            try:
                filled[section][key] = _substitute(key, value, placeholders)
            except ValueError as error:
                problems.add(section, key, str(error))
    return filled


def _substitute(key: str, value: Any, placeholders: Placeholders) -> Any:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        return value  # if it must be text, `_validate` reports it
    if key == "data":
        return [
            Source(path, has_range(text))
            for text in texts
            for path in placeholders.expand(text)
        ]
    if any(map(has_range, texts)):
        raise ValueError(
            "a range of days is allowed in data only, which may be a list. Name one day, "
            "for example {date}."
        )
    later = {"summary"} if key == "command" else set()
    filled = [placeholders.expand(text, later)[0] for text in texts]
    return filled[0] if isinstance(value, str) else filled


def _validate(tables: dict[str, Any], filled: dict[str, Any], problems: Problems) -> Job:
    """Return the job in the tables; raise for the problems of the file so far."""
    for section in filled.keys() - SECTIONS.keys():
        problems.add(section, "", _unknown(section, [*SECTIONS, STORAGE], "a job"))
    job = Job()
    try:
        known = {name: filled[name] for name in SECTIONS if name in filled}
        job = Job.model_validate(known)
    except ValidationError as error:
        for details in error.errors(include_url=False, include_context=False):
            section, key = (*map(str, details["loc"]), "")[:2]
            if not key:
                problem = f"it must be a table of keys. Begin it with the line [{section}]."
            elif details["type"] == "extra_forbidden":
                problem = _unknown(key, KEYS[section], f"[{section}]")
            else:
                problem = _wrong_value(section, key, tables[section])
            problems.add(section, key, problem)
    problems.raise_any()
    return job


def _unknown(name: str, known: Iterable[str], where: str) -> str:
    nearest = get_close_matches(name[:80], known, n=1)
    hint = f" Did you mean {nearest[0]}?" if nearest else ""
    return (
        f"{short_repr(name)} is unknown in {where}.{hint} Known are {', '.join(known)}. "
        f"Correct it, or remove it."
    )


def _wrong_value(section: str, key: str, table: dict[str, Any]) -> str:
    known = SECTIONS[section].model_fields[key]
    if key not in table:
        return f"{key} is missing, {known.description}. Add it."
    # A command may have secrets among its arguments.
    return value_problem(key, table[key], known, is_secret=section == "notify")


@dataclass(frozen=True, slots=True)
class Problems:
    """The problems of a file, by section and key: the first one found for each.

    Attributes
    ----------
    path : str
        The file.
    messages : dict of (str, str) to str
    """

    path: str
    messages: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, section: str, key: str, problem: str) -> None:
        """Note a problem; ``section`` and ``key`` are empty if there is none."""
        self.messages.setdefault((section, key), problem)

    def raise_any(self) -> None:
        """Raise ValueError with the first problems, a line for each, if there are any."""
        lines = [
            f"{self.path}{_location(*names)}: {problem}"
            for names, problem in list(self.messages.items())[:MAX_PROBLEMS]
        ]
        if n_more := len(self.messages) - len(lines):
            lines.append(f"{self.path}: there are {n_more} more such problems.")
        if lines:
            raise ValueError("\n".join(lines))


def _location(section: str, key: str) -> str:
    location = f", [{section}] {key}" if section else ""
    return shorten(" ".join(location.split()), 90)
