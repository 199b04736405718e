"""Read a job file: what to fit and to score, and on which workers, as a checked `Job`.

    text --parse--> tables --fill--> texts without placeholders --check--> Job

One file is read and nothing else: neither data nor a model. All errors that can be found
from the file alone are found here, before hours of work begin, and are reported with their
line numbers; a problem with one key does not hide those with others. Only the arrays in
metric_params are left to the fit, which knows the columns.
"""

from __future__ import annotations

import datetime
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from lpe_dask.batch.dated_output import DatedOutput
from lpe_dask.batch.job import (
    DEFAULTS,
    KEYS,
    LARGEST_WHOLE,
    SECTIONS,
    Job,
    JobKeyError,
    Source,
    conflicts,
    shown,
)
from lpe_dask.batch.placeholders import Placeholders, cut, has_range
from lpe_dask.model import ParameterError, check_parameters
from lpe_dask.storage import brief

#: Most bytes of a job file; a larger file was named by mistake.
MAX_FILE_BYTES = 2**20

#: Most levels of tables and lists, as a matrix in metric_params has.
MAX_DEPTH = 5

#: Most problems in one message.
MAX_PROBLEMS = 5

_HEADER = re.compile(r"\s*\[+\s*([A-Za-z_][\w.\- \t]*?)\s*\]+\s*(?:#.*)?$")
_KEY = re.compile(r"\s*(?P<quote>[\"']?)(?P<name>[\w.\- \t]+?)(?P=quote)\s*=")

_TOO_DEEP = (
    f"values are nested too deep; {MAX_DEPTH} levels of tables and lists are allowed. "
    f"Remove some."
)


def read_job(
    path: str | os.PathLike[str],
    date: datetime.date | None = None,
    environment: Mapping[str, str] | None = None,
) -> Job:
    """Return the job that a TOML file describes, checked as far as the file alone tells.

    Placeholders (see placeholders.py) are filled in the texts and lists of texts that are
    values of a key; no text in metric_params is a path or a day.

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
    name = os.fspath(path)
    text = _read_text(name)
    problems = Problems(name, text)
    tables = _parse(name, text)
    _check_plain(tables, problems)
    problems.raise_any()
    # A datetime is a date to Python, but would be formatted with its time.
    day = datetime.date.fromordinal((date or datetime.date.today()).toordinal())
    placeholders = Placeholders(day, os.environ if environment is None else environment)
    filled = _fill(tables, placeholders, problems)
    _check_arguments(filled, problems)
    job = _check_keys(filled, problems)
    problems.raise_any()
    job = job.model_copy(update={"has_dated_model": _has_dated_model(tables)})
    for conflict in conflicts(job):
        problems.add(*conflict)
    problems.raise_any()
    if job.score is None:
        return job
    dated_output = DatedOutput.of(tables["score"]["output"], placeholders)
    return job.model_copy(update={"dated_output": dated_output})


def _has_dated_model(tables: dict[str, Any]) -> bool:
    fitted = tables.get("model", {}).get("path", tables.get("nominal", {}).get("data", ""))
    return "{date" in str(fitted)


@contextmanager
def naming_keys(job: Job) -> Iterator[None]:
    """Name file, line and key where an error is about a value in a job file."""
    try:
        yield
    except (ParameterError, JobKeyError) as error:
        if not job.path:
            raise
        section, key = "model", getattr(error, "names", ("",))[0]
        if isinstance(error, JobKeyError):
            section, key = error.section, error.key
        problems = Problems(job.path, _read_text(job.path))
        problems.add(section, key, str(error))
        problems.raise_any()


# From a file to tables


def _read_text(path: str) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"there is no job file at {path}. Give the path of a TOML file; relative paths "
            f"start from the current folder."
        ) from error
    except IsADirectoryError as error:
        raise IsADirectoryError(
            f"{path} is a folder; a job is one TOML file. Give the path of a file in it."
        ) from error
    except (OSError, ValueError) as error:  # ValueError: an impossible name
        raise OSError(
            f"the job file {path} cannot be read: {brief(error)} Give a readable TOML file."
        ) from error
    if len(data) > MAX_FILE_BYTES:
        raise ValueError(
            f"{path} has more than {MAX_FILE_BYTES} bytes, the limit for a job file. Give "
            f"the path of a job, and name the data in it."
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ValueError(
            f"{path}, line {line}: this is not text in UTF-8, the encoding of job files. "
            f"Save it as UTF-8, or give another file."
        ) from error


def _parse(path: str, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError(f"{path}: {_TOO_DEEP}") from None
    except tomllib.TOMLDecodeError as error:
        line = text.rstrip().count("\n") + 1
        reason = str(error).replace(" (at end of document)", " at the end of the file")
        if found := re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", reason):
            reason, line = f"{found[1]} in column {found[3]}", int(found[2])
        raise ValueError(
            f"{path}, line {line}: this is not TOML: {cut(reason, 150)}. A line contains "
            f'[section] or key = value, with texts in quotes, as in output = "out". '
            f"Correct it."
        ) from error
    except ValueError as error:  # too many digits for Python, which gives no line
        raise ValueError(
            f"{path}: a number in it cannot be read: {cut(str(error), 80)}. Whole numbers "
            f"up to {LARGEST_WHOLE} are allowed. Give a smaller one."
        ) from error


def _check_plain(
    value: Any, problems: Problems, names: tuple[str, ...] = (), depth: int = 0
) -> None:
    """Report values that are nested too deep, and numbers that are too large."""
    section, key = (*names, "", "")[:2]
    if depth > MAX_DEPTH:  # dotted keys may nest thousands of levels deep
        problems.add(section, key, _TOO_DEEP)
    elif isinstance(value, dict):
        for name, item in value.items():
            _check_plain(item, problems, (*names, name)[:2], depth + 1)
    elif isinstance(value, list):
        for item in value:
            _check_plain(item, problems, names, depth + 1)
    elif isinstance(value, int) and abs(value) > LARGEST_WHOLE:
        problem = (
            f"a whole number of {value.bit_length()} bits is too large; at most "
            f"{LARGEST_WHOLE} is allowed. Give a smaller one."
        )
        problems.add(section, key, problem)


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
                filled[section][key] = _filled(key, value, placeholders)
            except ValueError as error:
                problems.add(section, key, str(error))
    return filled


def _filled(key: str, value: Any, placeholders: Placeholders) -> Any:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        return value  # if it must be text, `_check_keys` reports it
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
    filled = [placeholders.expand(text)[0] for text in texts]
    return filled[0] if isinstance(value, str) else filled


# Checks of each key


def _check_keys(tables: dict[str, Any], problems: Problems) -> Job:
    """Return the job in the tables, checked; an empty one if a problem was reported."""
    known: dict[str, Any] = {}
    for section, table in tables.items():
        if section not in SECTIONS:
            problem = (
                f"unknown section {shown(section)}.{_nearest(section, SECTIONS)} Sections "
                f"are {', '.join(f'[{name}]' for name in SECTIONS)}; every key must be in "
                f"one of them. Correct it, or remove it."
            )
            problems.add(section, "", problem)
        elif not isinstance(table, dict):
            problem = (
                f"{section}={shown(table)} must be a table of keys. Begin it with the line "
                f"[{section}]."
            )
            problems.add(section, "", problem)
        else:
            _check_names(section, table, problems)
            known[section] = {k: v for k, v in table.items() if k in KEYS[section]}
    try:
        return Job.model_validate(known | {"path": problems.path})
    except ValidationError as error:
        for details in error.errors(include_url=False, include_context=False):
            section, key = map(str, details["loc"][:2])
            is_missing = details["type"] == "missing"
            value = None if is_missing else known[section][key]
            problems.add(section, key, _wrong_value(section, key, value, is_missing))
        return Job()


def _check_names(section: str, names: Iterable[str], problems: Problems) -> None:
    known = KEYS[section]
    for name in [name for name in names if name not in known]:
        problem = (
            f"unknown key {shown(name)} in [{section}].{_nearest(name, known)} Keys are "
            f"{', '.join(known)}. Correct it, or remove it."
        )
        if name == "anomaly_log_density":
            problem = (
                "a job file cannot contain a function. Leave it out, or fit in Python "
                "with LPE(anomaly_log_density=...)."
            )
        problems.add(section, name, problem)


def _wrong_value(section: str, key: str, value: Any, is_missing: bool) -> str:
    known = SECTIONS[section].model_fields[key]
    allowed, example = known.description, f"{key} = {(known.examples or [''])[0]}"
    if is_missing:
        return f"{key} is missing, {allowed}. Add it, for example {example}."
    if isinstance(value, list):
        value = [item.path if isinstance(item, Source) else item for item in value]
    return f"{key}={shown(value)} must be {allowed}. For example: {example}."


def _nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint: where this name belongs, or which similar name may be meant."""
    homes = [f"[{section}]" for section, keys in KEYS.items() if name in keys]
    if homes:
        return f" It belongs to {' or '.join(homes)}."
    nearest = get_close_matches(name[:80], known, n=1)
    return f" Did you mean {nearest[0]}?" if nearest else ""


def _check_arguments(tables: dict[str, Any], problems: Problems) -> None:
    """Report what `LPE` would refuse in [model], as far as no rows are needed for that."""
    table = tables.get("model")
    if not isinstance(table, dict):
        return
    given = {name: value for name, value in table.items() if name in DEFAULTS}
    left_out: set[str] = set()
    while (refusal := _refusal(given)) is not None:
        if not left_out.isdisjoint(refusal.names):
            return  # perhaps only because of what was left out
        message = str(refusal)
        key = refusal.names[0] if refusal.names[0] in given else ""
        is_allowed = re.search(r"\b(in|or) None\b", message)  # TOML has no None
        hint = " For None, leave the key out." if is_allowed else ""
        problems.add("model", key, cut(message, 600) + hint)
        if not key:
            return
        del given[key]
        left_out.add(key)


def _refusal(given: dict[str, Any]) -> ParameterError | None:
    """Return the refusal of the first argument that is refused, if one is."""
    try:
        check_parameters(DEFAULTS | {"anomaly_log_density": None} | given)
    except ParameterError as refusal:
        return refusal
    return None


# Problems and their lines


@dataclass(frozen=True, slots=True)
class Problems:
    """The problems of a file, by section and key: the first one found for each.

    Attributes
    ----------
    path, text : str
        The file and its content.
    """

    path: str
    text: str
    found: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, section: str, key: str, problem: str) -> None:
        """Note a problem; ``section`` and ``key`` are empty if there is none."""
        self.found.setdefault((section, key), problem)

    def raise_any(self) -> None:
        """Raise ValueError with the first problems, a line for each, if there are any."""
        if not self.found:
            return
        lines = {names: line_of(self.text, *names) for names in self.found}
        ordered = sorted(lines, key=lambda names: lines[names] or 0)
        message = [
            f"{self._place(lines[names], *names)}: {self.found[names]}"
            for names in ordered[:MAX_PROBLEMS]
        ]
        if n_more := len(ordered[MAX_PROBLEMS:]):
            message.append(f"{self.path}: there are {n_more} more such problems.")
        raise ValueError("\n".join(message))

    def _place(self, line: int | None, section: str, key: str) -> str:
        place = self.path if line is None else f"{self.path}, line {line}"
        if not _is_plain(section):
            return place
        return f"{place}, [{section}]" + (f" {key}" if _is_plain(key) else "")


def _is_plain(name: str) -> bool:
    """Return whether a name can be printed as it is; others are quoted in the message."""
    return re.fullmatch(r"[\w-]{1,60}", name) is not None


def line_of(text: str, section: str, key: str) -> int | None:
    r"""Return the number of the line where a key, or else its section, begins.

    None if that is not known: names that need quotes are not searched for, and within a
    text of several lines anything may look like a key.

    Examples
    --------
    >>> line_of('[score]\noutput = "out"', "score", "output")
    2
    >>> line_of('[score]\noutput = "out"', "score", "data")
    1
    """
    if '"""' in text or "'''" in text:
        return None
    addresses = list(_addresses(text))
    for wanted in filter(None, (f"{section}.{key}", section)):
        for number, address in enumerate(addresses, 1):
            if address == wanted or address.startswith(f"{wanted}."):
                return number
    return None


def _addresses(text: str) -> Iterator[str]:
    """Yield for each line the dotted name that begins there, or "" if none does."""
    section = ""
    for line in text.split("\n"):
        header, key = _HEADER.match(line), _KEY.match(line)
        if header:
            section = re.sub(r"\s", "", header[1])
            yield section
        else:
            name = re.sub(r"\s", "", key["name"]) if key else ""
            yield f"{section}.{name}" if section and name else name
