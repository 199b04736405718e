"""Read a job file: what to fit and to score, and on which workers, as a checked `Job`.

    text --parse--> tables --fill--> texts without placeholders --check--> Job

One file is read and nothing else: neither data nor a model. All that can be known to be
wrong from the file alone is found here, before a night's work begins, and is told with the
line it stands on; a problem in one key does not hide those in others.
"""

from __future__ import annotations

import datetime
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

import numpy as np
from pydantic import ValidationError

from lpe_dask.batch.fingerprint import digest
from lpe_dask.batch.job import (
    DEFAULTS,
    KEYS,
    LARGEST_WHOLE,
    SECTIONS,
    Job,
    Source,
    conflicts,
    cut,
    shown,
)
from lpe_dask.batch.placeholders import Placeholders, has_range
from lpe_dask.batch.unfinished import DayOfJob
from lpe_dask.model import METRIC_PARAMS, ParameterError, check_parameters, given_parameter
from lpe_dask.storage import brief

#: Most bytes of a job file; what is larger is another file, named by mistake.
MAX_FILE_BYTES = 2**20

#: Most levels of tables and lists, as a matrix in metric_params has.
MAX_DEPTH = 5

#: Most problems in one message.
MAX_PROBLEMS = 5

#: What any day is taken for where only the job matters.
_SOME_DAY = datetime.date(2000, 1, 1)

_HEADER = re.compile(r"\s*\[+\s*([A-Za-z_][\w.\- \t]*?)\s*\]+\s*(?:#.*)?$")
_KEY = re.compile(r"\s*(?P<quote>[\"']?)(?P<name>[\w.\- \t]+?)(?P=quote)\s*=")

_TOO_DEEP = (
    f"values are nested too deep; {MAX_DEPTH} levels of tables and lists are allowed. Take "
    f"some out."
)


def read_job(
    path: str | os.PathLike[str],
    date: datetime.date | None = None,
    environment: Mapping[str, str] | None = None,
) -> Job:
    """Return the job that a TOML file describes, checked as far as the file alone tells.

    Placeholders (see placeholders.py) are filled in the texts and lists of texts that stand
    directly in a section; no text in metric_params is a path or a day.

    Parameters
    ----------
    path : str or path
        A local file. Paths in it that are relative start from the current folder, as on the
        command line, and not from the folder of the file.
    date : datetime.date, optional
        What ``{date}`` means; None: today, by the clock of this machine.
    environment : mapping of str to str, optional
        What ``${NAME}`` means; None: what the environment of this process has.

    Raises
    ------
    ValueError
        For what stands in the file, a line for each of the first problems.
    OSError
        If the file cannot be read; FileNotFoundError if it is not there.
    """
    name = os.fspath(path)
    text = _read_text(name)
    problems = Problems(name, text)
    tables = _parse(name, text)
    _check_plain(tables, problems)
    problems.raise_any()
    # A datetime is a date to Python, but would not be written like one.
    ordinal = (date or datetime.date.today()).toordinal()
    day = datetime.date.fromordinal(ordinal)
    placeholders = Placeholders(day, os.environ if environment is None else environment)
    filled = _fill(tables, placeholders, problems)
    _check_arguments(filled, problems)
    job = _check_keys(filled, problems)
    problems.raise_any()
    for conflict in conflicts(job):
        problems.add(*conflict)
    problems.raise_any()
    return job.model_copy(update={"today": _day_of_job(tables, placeholders, name)})


def _day_of_job(
    tables: dict[str, Any], placeholders: Placeholders, path: str
) -> DayOfJob | None:
    """Return the day of a run among those of the job, if its output has one."""
    score = tables.get("score")
    folder = placeholders.folder_of_days(score["output"]) if score is not None else None
    if folder is None:
        return None
    decisive = {name: table for name, table in tables.items() if name != "cluster"}
    # All days of a job say the same, once another day stands in place of each.
    fixed = replace(placeholders, day=_SOME_DAY)
    said = _fill(decisive, fixed, Problems(path, ""))
    output = digest(said["score"]["output"])
    return DayOfJob(folder, digest(said), output, path, placeholders.day)


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
    except (OSError, ValueError) as error:  # ValueError: no name of a file at all
        raise OSError(
            f"the job file {path} cannot be read: {brief(error)} Give a TOML file that may "
            f"be read."
        ) from error
    if len(data) > MAX_FILE_BYTES:
        raise ValueError(
            f"{path} has more than {MAX_FILE_BYTES} bytes, the most of a job file. Give "
            f"the path of a job, and name the data in it."
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ValueError(
            f"{path}, line {line}: this is not text in UTF-8, which a job file is written "
            f"in. Save it as UTF-8, or give another file."
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
            f"{path}, line {line}: this is not TOML: {cut(reason, 150)}. A line holds "
            f'[section] or key = value, with texts in quotes, as in output = "out". '
            f"Correct it."
        ) from error
    except ValueError as error:  # Python stops at some thousand digits, without a line
        raise ValueError(
            f"{path}: a number in it cannot be read: {cut(str(error), 80)}. Whole numbers "
            f"up to {LARGEST_WHOLE} are allowed. Give a smaller one."
        ) from error


def _check_plain(
    value: Any, problems: Problems, names: tuple[str, ...] = (), depth: int = 0
) -> None:
    """Report what is nested too deep to be looked at, or too large to be printed."""
    section, key = (*names, "", "")[:2]
    if depth > MAX_DEPTH:  # dotted keys may nest by the thousand
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
        return value  # if it should be text, its check will say so
    if key == "data":
        return [
            Source(path, has_range(text))
            for text in texts
            for path in placeholders.expand(text)
        ]
    if any(map(has_range, texts)):
        raise ValueError(
            "a range of days can stand in data only, where it makes a list. Name one day, "
            "for example {date}."
        )
    filled = [placeholders.expand(text)[0] for text in texts]
    return filled[0] if isinstance(value, str) else filled


# Checks of each key


def _check_keys(tables: dict[str, Any], problems: Problems) -> Job:
    """Return what the tables say, checked; nothing where a problem was reported."""
    known: dict[str, Any] = {}
    for section, table in tables.items():
        if section not in SECTIONS:
            problem = (
                f"{shown(section)} is no section of a job.{_nearest(section, SECTIONS)} "
                f"There are {', '.join(f'[{name}]' for name in SECTIONS)}, and each key "
                f"stands below one of them. Correct it, or take it out."
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
            f"{shown(name)} is no key of [{section}].{_nearest(name, known)} There are "
            f"{', '.join(known)}. Correct it, or take it out."
        )
        if name == "anomaly_log_density":
            problem = (
                "a function cannot stand in a job file. Leave it out, or fit in Python "
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
    """Return the question whether another name was meant, or where this one belongs."""
    homes = [f"[{section}]" for section, keys in KEYS.items() if name in keys]
    if homes:
        return f" It belongs to {' or '.join(homes)}."
    nearest = get_close_matches(name[:80], known, n=1)
    return f" Did you mean {nearest[0]}?" if nearest else ""


def _check_arguments(tables: dict[str, Any], problems: Problems) -> None:
    """Report what `LPE` would refuse of [model], as far as no rows are needed for that."""
    table, nominal = tables.get("model"), tables.get("nominal")
    if not isinstance(table, dict):
        return
    measured = tables.get("score") if nominal is None else nominal
    columns = measured.get("columns") if isinstance(measured, dict) else None
    given = {name: value for name, value in table.items() if name in DEFAULTS}
    left_out: set[str] = set()
    while (refusal := _refusal(given, columns)) is not None:
        if not left_out.isdisjoint(refusal.names):
            return  # perhaps it comes of what was left out
        message = str(refusal)
        key = refusal.names[0] if refusal.names[0] in given else ""
        is_offered = re.search(r"\b(in|or) None\b", message)  # TOML has no word for it
        hint = " For None, leave the key out." if is_offered else ""
        problems.add("model", key, cut(message, 600) + hint)
        if not key:
            return
        del given[key]
        left_out.add(key)


def _refusal(given: dict[str, Any], columns: Any) -> ParameterError | None:
    """Return the refusal of the first argument that is refused, if one is."""
    try:
        check_parameters(DEFAULTS | {"anomaly_log_density": None} | given)
        _check_metric_array(given, columns)
    except ParameterError as refusal:
        return refusal
    except ValueError as error:
        return ParameterError(str(error), "metric_params", "metric")
    return None


def _check_metric_array(given: dict[str, Any], columns: Any) -> None:
    """Raise ValueError for weights, variances or covariances that no rows would suit."""
    metric, params = given.get("metric", DEFAULTS["metric"]), given.get("metric_params")
    if metric == "geodesic" or not params:
        return
    (name,) = METRIC_PARAMS[metric]
    array = params[name]
    if not isinstance(array, list) or not array:
        raise ValueError(
            f"metric_params[{name!r}]={shown(array)} must be an array of numbers, for "
            f"example a list of one for each column."
        )
    n_columns = len(columns if isinstance(columns, list) and columns else array)
    with np.errstate(over="ignore"):
        given_parameter(metric, params, n_columns)


# Problems, and the lines they stand on


@dataclass(frozen=True, slots=True)
class Problems:
    """What is wrong with a file, by section and key: the first thing found of each.

    Attributes
    ----------
    path, text : str
        The file, and what it holds.
    """

    path: str
    text: str
    found: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, section: str, key: str, problem: str) -> None:
        """Note a problem; ``section`` and ``key`` are empty where it has none."""
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
            message.append(f"{self.path}: there are {n_more} more of such problems.")
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

    None where that is not known: names in quotes that need them are not looked for, and in
    a text over several lines anything may look like a key.

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
    """Yield for each line the dotted name that it begins; "" where it begins none."""
    section = ""
    for line in text.split("\n"):
        header, key = _HEADER.match(line), _KEY.match(line)
        if header:
            section = re.sub(r"\s", "", header[1])
            yield section
        else:
            name = re.sub(r"\s", "", key["name"]) if key else ""
            yield f"{section}.{name}" if section and name else name
