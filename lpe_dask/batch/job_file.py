"""Read a job file: what to fit and to score, and on which workers, as checked values.

    text --parse--> tables --fill--> texts without placeholders --check--> sections -> Job

One file is read and nothing else: neither data nor a model. All that can be known to be
wrong from the file alone is found here, before a night's work begins, and is told with the
line it stands on; a problem in one key does not hide those in others.
"""

from __future__ import annotations

import datetime
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

import numpy as np
from pydantic import ValidationError

from lpe_dask.batch.fingerprint import digest
from lpe_dask.batch.job import (
    DEFAULTS,
    LARGEST_WHOLE,
    SECTIONS,
    ClusterSection,
    Job,
    JobTables,
    ModelSection,
    NominalSection,
    ScoreSection,
    Source,
)
from lpe_dask.batch.job_problems import Problems, cut, shown
from lpe_dask.batch.placeholders import Placeholders, has_range
from lpe_dask.batch.unfinished import DayOfJob
from lpe_dask.model import METRIC_PARAMS, ParameterError, check_parameters, given_parameter
from lpe_dask.storage import brief

# Who reads a job takes its parts from here, too.
__all__ = [
    "ClusterSection",
    "Job",
    "ModelSection",
    "NominalSection",
    "ScoreSection",
    "Source",
    "read_job",
]

#: Most bytes of a job file; what is larger is another file, named by mistake.
MAX_FILE_BYTES = 2**20

#: What any day is taken for where only the job matters.
_SOME_DAY = datetime.date(2000, 1, 1)

#: Most levels of tables and lists, as a matrix in metric_params has.
MAX_DEPTH = 5


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
    checked = _check_keys(_fill(tables, placeholders, problems), problems)
    problems.raise_any()
    _check_together(checked, problems)
    problems.raise_any()
    return replace(_job_of(checked, name), today=_day_of_job(tables, placeholders, name))


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


def _job_of(tables: JobTables, path: str) -> Job:
    nominal, score, given = tables.nominal, tables.score, _given(tables.model)
    arguments = {name: value for name, value in given.items() if name in DEFAULTS}
    if nominal is not None and "missing" in given:
        nominal = nominal.model_copy(update={"missing": given["missing"]})
    if score is not None and "alpha" in given:
        score = score.model_copy(update={"alpha": given["alpha"]})
    model = ModelSection(
        tables.model.path, tables.model.refit, tables.model.check_calibration, arguments
    )
    return Job(nominal, model, score, tables.cluster, path)


def _given(section: Any) -> dict[str, Any]:
    """Return the keys of a section that stand in the file, in the order of its fields."""
    if section is None:
        return {}
    names = type(section).model_fields
    return {
        name: getattr(section, name) for name in names if name in section.model_fields_set
    }


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


_TOO_DEEP = (
    f"values are nested too deep; {MAX_DEPTH} levels of tables and lists are allowed. Take "
    f"some out."
)


def _check_plain(tables: dict[str, Any], problems: Problems) -> None:
    """Report what is nested too deep to be looked at, or too large to be printed."""
    for names, value, depth in _values(tables):
        if depth > MAX_DEPTH:
            problems.add(*names, _TOO_DEEP)
        if isinstance(value, int) and abs(value) > LARGEST_WHOLE:
            problem = (
                f"a whole number of {value.bit_length()} bits is too large; at most "
                f"{LARGEST_WHOLE} is allowed. Give a smaller one."
            )
            problems.add(*names, problem)


def _values(tables: dict[str, Any]) -> Iterator[tuple[tuple[str, str], Any, int]]:
    """Yield each value with its section, key and level, down to one level too many."""
    waiting: list[tuple[tuple[str, ...], Any, int]] = [((), tables, 0)]
    while waiting:  # no recursion: dotted keys may nest by the thousand
        names, value, depth = waiting.pop()
        section, key = (*names, "", "")[:2]
        yield (section, key), value, depth
        if depth > MAX_DEPTH:
            continue
        if isinstance(value, dict):
            waiting += [((*names, k)[:2], v, depth + 1) for k, v in value.items()]
        elif isinstance(value, list):
            waiting += [(names, v, depth + 1) for v in value]


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
        return [source for text in texts for source in _sources(text, placeholders)]
    filled = [placeholders.fill(text) for text in texts]
    return filled[0] if isinstance(value, str) else filled


def _sources(text: str, placeholders: Placeholders) -> list[Source]:
    if has_range(text):
        return [Source(path, is_optional=True) for path in placeholders.fill_days(text)]
    return [Source(placeholders.fill(text))]


# Checks of each key


def _check_keys(tables: dict[str, Any], problems: Problems) -> JobTables:
    """Return the tables as checked values; empty ones where a problem was reported."""
    _check_arguments(tables, problems)
    try:
        return JobTables.model_validate(tables)
    except ValidationError as error:
        for details in error.errors(include_url=False, include_context=False):
            section, key = (*map(str, details["loc"]), None)[:2]
            problem = _problem_of_key(details["type"], str(section), key, tables)
            problems.add(str(section), key or "", problem)
        return JobTables()


def _problem_of_key(
    kind: str, section: str, key: str | None, tables: dict[str, Any]
) -> str:
    if section not in SECTIONS:
        return (
            f"{shown(section)} is no section of a job.{_nearest(section, SECTIONS)} There "
            f"are {', '.join(f'[{name}]' for name in SECTIONS)}, and each key stands below "
            f"one of them. Correct it, or take it out."
        )
    if key is None:
        return (
            f"{section}={shown(tables[section])} must be a table of keys. Begin it with "
            f"the line [{section}]."
        )
    if key == "anomaly_log_density":
        return (
            "a function cannot stand in a job file. Leave it out, or fit in Python with "
            "LPE(anomaly_log_density=...)."
        )
    keys = SECTIONS[section].model_fields
    if key not in keys:
        return (
            f"{shown(key)} is no key of [{section}].{_nearest(key, keys)} There are "
            f"{', '.join(keys)}. Correct it, or take it out."
        )
    allowed, example = keys[key].description, f"{key} = {(keys[key].examples or [''])[0]}"
    if kind == "missing":
        return f"{key} is missing, {allowed}. Add it, for example {example}."
    return (
        f"{key}={_shown(tables[section][key])} must be {allowed}. For example: {example}."
    )


def _shown(value: Any) -> str:
    if isinstance(value, list):
        value = [item.path if isinstance(item, Source) else item for item in value]
    return shown(value)


def _nearest(name: str, known: Mapping[str, Any]) -> str:
    """Return the question whether another name was meant, or where this one belongs."""
    homes = [
        f"[{section}]" for section, keys in SECTIONS.items() if name in keys.model_fields
    ]
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


# Checks of keys together


def _check_together(tables: JobTables, problems: Problems) -> None:
    _check_purpose(tables, problems)
    _check_agreement("nominal", tables.nominal, "missing", tables.model, problems)
    _check_agreement("score", tables.score, "alpha", tables.model, problems)
    _check_workers(tables.cluster, problems)


def _check_purpose(tables: JobTables, problems: Problems) -> None:
    """Report a job that nothing would come of, and keys that would do nothing."""
    nominal, model, score = tables.nominal, tables.model, tables.score
    if nominal is None and score is None:
        problem = (
            "there is neither [nominal], what to fit, nor [score], what to score. Add one "
            'of them, or both, with data = "...".'
        )
        problems.add("", "", problem)
    if nominal is not None and score is None and model.path is None:
        problem = (
            "nothing would come of the fit: the model is not saved, and nothing is scored. "
            'Add [score], or a path to [model], for example path = "models/kdd".'
        )
        problems.add("nominal", "", problem)
    if nominal is not None and score is not None and score.columns is not None:
        problem = (
            "the columns to measure are those of [nominal], and those alone are measured "
            "in [score]. Name them in [nominal], and take them out here."
        )
        problems.add("score", "columns", problem)
    if nominal is None and model.refit:
        problem = (
            "refit=True needs rows to fit, but there is no [nominal]. Add it, or leave "
            "refit out."
        )
        problems.add("model", "refit", problem)
    if nominal is None and model.path is not None:
        _check_loaded(tables, problems)


def _check_loaded(tables: JobTables, problems: Problems) -> None:
    idle = [name for name in _given(tables.model) if name not in ("path", "refit", "alpha")]
    if idle:
        problem = (
            f"the model at {shown(tables.model.path)} is loaded, as there is no [nominal], "
            f"and has all its arguments but alpha; given are {', '.join(idle)}. Leave them "
            f"out, or add [nominal] to fit a model with them."
        )
        problems.add("model", idle[0], problem)


def _check_agreement(
    name: str, section: Any, key: str, model: Any, problems: Problems
) -> None:
    """Report a key that stands in [model] too, with another value."""
    given, elsewhere = _given(section), _given(model)
    if key in given and key in elsewhere and given[key] != elsewhere[key]:
        problem = (
            f"{key}={given[key]!r}, but [model] has {key}={elsewhere[key]!r}. It may stand "
            f"in either, and in both if they agree. Take one of them out."
        )
        problems.add(name, key, problem)


def _check_workers(cluster: ClusterSection | None, problems: Problems) -> None:
    idle = [name for name in _given(cluster) if name != "scheduler"]
    if cluster is not None and cluster.scheduler is not None and idle:
        problem = (
            f"scheduler={shown(cluster.scheduler)} has its workers, but {', '.join(idle)} "
            f"would describe workers to start. Leave out one or the other."
        )
        problems.add("cluster", "scheduler", problem)
