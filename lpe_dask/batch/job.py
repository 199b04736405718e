"""What a job is: what to fit and to score, from which files, and on which workers.

Jobs are made from a job file (job_file.py reads and checks it) or from the arguments of a
command or a call (api.py). This file has the keys of each section, with the allowed values
and an example, from which messages are made, and the rules that tie keys to one another.
Those about arguments of `LPE` are in model/lpe_parameters.py, and checked by `Run.prepare`.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar, get_args

from dask.utils import parse_bytes
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    create_model,
)
from pydantic.fields import FieldInfo

from lpe_dask.batch.dated_output import DatedOutput
from lpe_dask.batch.placeholders import shorten
from lpe_dask.batch.refit_policy import PATTERN as REFIT_POLICY
from lpe_dask.batch.refit_policy import RefitPolicy
from lpe_dask.model import PARAMETERS
from lpe_dask.storage import Url, with_options
from lpe_dask.tables import CsvOptions, ExcludedColumns, feature_columns
from lpe_dask.tasks import Workers, seconds_of

#: Arguments of `LPE` that a file can contain -> their default values.
DEFAULTS = {name: known.default for name, known in PARAMETERS.items() if known.is_option}

#: A path, which is not empty.
_PATH = r"^[^\x00]+$"

#: Keys of sections that have one path each.
_PATHS = ("path", "output", "without_rows")

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Source:
    """A path to read rows from.

    Attributes
    ----------
    path : str
        File, folder or glob; local or an fsspec URL.
    is_optional : bool
        Whether files may be missing: for a day of a range, such as a Sunday.
    """

    path: str
    is_optional: bool = False


# Checks of one value; users see the description of the key, and not these messages.


def _check_distinct(items: tuple[_Item, ...]) -> tuple[_Item, ...]:
    if len(set(items)) < len(items):
        raise ValueError("an item occurs twice")
    return items


def _check_sources(sources: tuple[Source, ...]) -> tuple[Source, ...]:
    if not all(re.match(_PATH, source.path) for source in sources):
        raise ValueError("not a path")
    return _check_distinct(sources)


def _as_bytes(value: Any) -> Any:
    """Return an amount of memory, such as 4GiB, as a number of bytes."""
    is_amount = isinstance(value, str) and re.match(r"\s*[0-9]", value)
    with suppress(OverflowError):  # an infinite one, which stays a text
        return parse_bytes(value) if is_amount else value
    return value


def _as_seconds(value: Any) -> Any:
    """Return a time with its unit, such as 30min, in seconds."""
    return seconds_of(value) if isinstance(value, str) else value


def _key(
    meaning: str, must_be: str, example: str, default: Any = None, **limits: Any
) -> Any:
    """Return a key of a section: what it is for, and for messages its values and one.

    Editors show all of it (json_schema.py).
    """
    texts: dict[str, Any] = {"title": meaning, "description": must_be}
    return Field(default, examples=[example], **texts, **limits)


_DISTINCT = {"uniqueItems": True}

# Lists become tuples, which are frozen; nothing else is converted.
_Names = Annotated[
    tuple[str | int, ...],
    AfterValidator(_check_distinct),
    Field(strict=False, json_schema_extra=_DISTINCT),
]
_Text = {"type": "string", "minLength": 1}
_Sources = Annotated[
    tuple[Source, ...],
    AfterValidator(_check_sources),
    Field(strict=False, min_length=1),
    WithJsonSchema(
        {"anyOf": [_Text, {"type": "array", "items": _Text, "minItems": 1} | _DISTINCT]}
    ),
]
_Seconds = Annotated[
    float | None,
    BeforeValidator(_as_seconds),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, _Text]}),
]
_SOURCES = "a path or a list of paths, at least one, none empty and none twice"
_NAMES = "a list of column names, at least one and none twice"
_LEVEL = "a number between 0 and 1, both excluded"
_CONFIDENCE = "a number between 0.5 and 1, both excluded"
_SHARE = "a number of at least 0 and less than 1"
_WHOLE = "a whole number of at least 1"
_SWITCH = "true or false"


class Section(BaseModel):
    """A section of a job."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    @property
    def given(self) -> dict[str, Any]:
        """The keys that were given."""
        return self.model_dump(exclude_unset=True)


class _FeatureSection(Section):
    """The columns of a section that are measured.

    Attributes
    ----------
    columns : sequence, optional
        These; None: all.
    exclude : sequence, optional
        All but these.
    """

    columns: _Names | None = _key(
        "The columns to measure; all, if neither this nor exclude is given",
        _NAMES,
        '["src_bytes", "dst_bytes"]',
        min_length=1,
    )
    exclude: _Names | None = _key(
        "Measure all columns but these", _NAMES, '["id", "ts"]', min_length=1
    )

    @property
    def measured(self) -> Sequence[Any] | ExcludedColumns | None:
        """Which columns are measured; None: all, or those of the model."""
        return feature_columns(self.columns, self.exclude)


class NominalSection(_FeatureSection):
    """What to fit: the rows known to be normal.

    Attributes
    ----------
    data : tuple of Source
    columns, exclude : sequence, optional
    missing : {"error", "drop", "measure"}
        What to do about a row with NaN or inf; may be in [model] instead.
    without_rows : str, optional
        A list with marks at rows to leave out, which are anomalies.
    """

    data: _Sources = _key(
        "The rows to fit, known to be normal: Parquet or CSV; files, folders or globs",
        _SOURCES,
        '"nominal/*.parquet"',
        ...,
    )
    missing: Literal["error", "drop", "measure"] = _key(
        "What to do about nominal rows with NaN or inf; measure: rows of [score] too are "
        "measured with their gaps",
        '"error", "drop" or "measure"',
        '"drop"',
        "error",
    )
    without_rows: str | None = _key(
        "Leave out the nominal rows that are marked as anomalies in this list, which "
        "lpe-dask explain OUT --confirm LIST has written",
        "a path, not empty",
        '"list.csv"',
        pattern=_PATH,
    )


class _ModelSection(Section):
    """The model to load, or to fit. All other keys are arguments of `LPE`.

    Attributes
    ----------
    path : str, optional
        Where it is, or is to be saved; None: it is not kept.
    refit : bool or str
        Whether to fit again if there is a model; a policy does so after a run, where the
        old model has scored.
    check_calibration : bool
        Whether to judge the model by nominal rows that are held out.
    """

    path: str | None = _key(
        "The folder of the model: loaded where it is there, else fitted and saved; needed "
        "without [score]",
        "a path, not empty",
        '"models/kdd"',
        pattern=_PATH,
    )
    refit: bool | Annotated[str, Field(pattern=REFIT_POLICY)] = _key(
        "Fit again and replace the model: before rows are scored (true), or after the old "
        "one has scored, if it is time",
        'true, false, "on drift" or "every N days"',
        '"every 30 days"',
        default=False,
    )
    check_calibration: bool = _key(
        "Judge by nominal rows that are held out whether false alarms are as rare as "
        "promised",
        _SWITCH,
        "true",
        default=False,
    )

    @property
    def policy(self) -> RefitPolicy | None:
        """When to fit again, where that is neither always nor never."""
        return RefitPolicy(self.refit) if isinstance(self.refit, str) else None

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `LPE` that were given, by name."""
        return {name: getattr(self, name) for name in PARAMETERS if name in self.given}


if TYPE_CHECKING:
    ModelSection = _ModelSection
else:
    ModelSection = create_model(
        "ModelSection",
        __base__=_ModelSection,
        __doc__=_ModelSection.__doc__,
        anomaly_log_density=(
            Annotated[Callable | None, WithJsonSchema({})],
            Field(None, description="a function, which only LPE in Python can be given"),
        ),
        **{name: (Any, default) for name, default in DEFAULTS.items()},
    )


class ScoreSection(_FeatureSection):
    """What to score, and where to write it.

    Attributes
    ----------
    data : tuple of Source
    columns, exclude : sequence, optional
        Where no [nominal] has them.
    keep : sequence, optional
        Columns to carry over; None: all.
    output : str
    alpha : float, optional
        False-alarm level; may be in [model] instead.
    confidence : float, optional
        How sure that level is for the nominal rows at hand; may be in [model] instead.
    fdr : float, optional
        Level for the control of false discoveries; None: no such control.
    report : bool
        Whether a page about the run is made.
    private : sequence, optional
        Columns that are in no reasons.
    rows : {"all", "flagged"}
        Which rows are written; those without a p-value always are.
    format : {"parquet", "csv", "jsonl"}
        Whether the rows are written to one file, too.
    """

    data: _Sources = _key(
        "The rows to score: Parquet or CSV; files, folders or globs",
        _SOURCES,
        '"in/{date}/*.parquet"',
        ...,
    )
    keep: _Names | None = _key(
        "The columns to carry over to the output; all, if it is not given",
        "a list of column names, none twice; an empty one carries over none",
        '["id", "ts"]',
    )
    output: str = _key(
        "The folder to write", "a path, not empty", '"out/{date}"', ..., pattern=_PATH
    )
    alpha: float | None = _key(
        "Flag rows with a p-value of at most this; the level of the model, or 0.05, if it "
        "is not given",
        _LEVEL,
        "0.05",
        gt=0,
        lt=1,
    )
    confidence: float | None = _key(
        "Keep alpha with this probability for these nominal rows; on average over such "
        "sets, if it is not given",
        _CONFIDENCE,
        "0.95",
        gt=0.5,
        lt=1,
    )
    fdr: float | None = _key(
        "Flag rows at this false discovery rate, instead of alpha",
        _LEVEL,
        "0.1",
        gt=0,
        lt=1,
    )
    report: bool = _key("Make a page about the run", _SWITCH, "false", default=True)
    private: _Names | None = _key(
        "Columns that are in no reasons and not on the page",
        _NAMES,
        '["name", "birth_date"]',
        min_length=1,
    )
    rows: Literal["all", "flagged"] = _key(
        "The rows to write; flagged: those that are flagged or have no p-value, with their "
        "row_number in data",
        '"all" or "flagged"',
        '"flagged"',
        "all",
    )
    format: Literal["parquet", "csv", "jsonl"] = _key(
        "Write the rows to one file of this format, too",
        '"parquet", "csv" or "jsonl"',
        '"csv"',
        "parquet",
    )

    def check_form(self) -> None:
        """Raise ValueError if ``rows`` or ``format`` has another value, as by a call."""
        for name in ("rows", "format"):
            known, value = type(self).model_fields[name], getattr(self, name)
            if value not in get_args(known.annotation):
                raise ValueError(value_problem(name, value, known))

    @property
    def form_setting(self) -> dict[str, Any]:
        """What the output has, to compare runs; nothing if by default."""
        known = type(self).model_fields
        given = {"rows": self.rows, "format": self.format}
        return {key: of for key, of in given.items() if of != known[key].default}


class DriftSection(Section):
    """What counts as drift of the rows to score away from the nominal ones.

    Attributes
    ----------
    delta, tolerance, anomalies, shift : float
        As in `monitoring.config.DriftConfig`.
    """

    delta: float = _key(
        'The probability of a false verdict "drift", over all runs of a series',
        _LEVEL,
        "0.01",
        default=0.01,
        gt=0,
        lt=1,
    )
    tolerance: float = _key(
        "By which share more, or fewer, rows than promised may have small p-values",
        "a number of at least 0",
        "0.25",
        default=0.25,
        ge=0,
    )
    anomalies: float = _key(
        "The share of rows that may be anomalies, beside false alarms",
        _SHARE,
        "0.05",
        default=0.05,
        ge=0,
        lt=1,
    )
    shift: float = _key(
        "By how much the distribution of the p-values of other rows may shift",
        _SHARE,
        "0.02",
        default=0.02,
        ge=0,
        lt=1,
    )


class ClusterSection(Section):
    """The workers: those of a scheduler, or of a cluster to start.

    Attributes
    ----------
    scheduler : str, optional
        An address, or "threads".
    scheduler_file : str, optional
        File in which a scheduler has written its address.
    workers, threads : int, optional
        Worker processes to start, and threads of each.
    memory_limit : int, optional
        Bytes of each.
    give_up_after : float, optional
        Seconds without a finished task after which the run ends; None: never.
    finish_within : float, optional
        Seconds from the start of a run in which it is to be done; None: it may take any.
    dashboard : bool
        Whether a cluster that is started has one.
    """

    #: Keys that are about the run, and not about its workers.
    RUN_KEYS: ClassVar[tuple[str, ...]] = ("give_up_after", "finish_within")

    scheduler: str | None = _key(
        "Join the cluster of this scheduler, or work in this process",
        'the address of a scheduler, or "threads"',
        '"tcp://10.0.0.1:8786"',
        pattern="^threads$|:",
    )
    scheduler_file: str | None = _key(
        "Join the cluster whose scheduler has written its address to this file",
        "a path",
        '"scheduler.json"',
        pattern=_PATH,
    )
    workers: int | None = _key(
        "How many worker processes to start; as suits the machine, if it is not given",
        _WHOLE,
        "4",
        ge=1,
    )
    memory_limit: Annotated[
        int | None,
        BeforeValidator(_as_bytes),
        WithJsonSchema({"type": ["integer", "string"]}),
    ] = _key(
        "The memory of each worker to start",
        f"an amount of memory, of at least {Workers.MIN_BYTES // 2**20}MiB",
        '"4GiB"',
        ge=Workers.MIN_BYTES,
        le=2**63 - 1,
    )
    threads: int | None = _key("The threads of each worker to start", _WHOLE, "1", ge=1)
    give_up_after: _Seconds = _key(
        "End the run if no task is done for so long",
        "a time above 0, as a text with its unit or in seconds",
        '"30min"',
        gt=0,
    )
    finish_within: _Seconds = _key(
        "Refuse a run that is forecast to take longer, and end one that is too slow",
        "a time above 0, as a text with its unit or in seconds",
        '"2h"',
        gt=0,
    )
    dashboard: bool = _key(
        "Start Dask's dashboard with the workers", _SWITCH, "true", default=False
    )

    @classmethod
    def of_options(cls, given: Mapping[str, Any]) -> ClusterSection:
        """Return the section that options of a command stand for.

        Parameters
        ----------
        given : mapping of str to object
            The values of options by the keys of the section, also as texts such as "4GiB".

        Raises
        ------
        ValueError
            For a value that is not allowed, or that contradicts another, by its option.
        """
        try:
            section = cls.model_validate(dict(given))
        except ValidationError as error:
            key = str(error.errors()[0]["loc"][0])
            known = cls.model_fields[key]
            raise ValueError(value_problem(_option(key), given[key], known)) from None
        for _, problem in section.conflicts(_option):
            raise ValueError(problem)
        return section

    def conflicts(self, spell: Callable[[str], str] = str) -> Iterator[tuple[str, str]]:
        """Yield keys that contradict others, and what is wrong.

        Parameters
        ----------
        spell : callable
            Returns the name of a key for a message.
        """
        joined = [key for key in ("scheduler", "scheduler_file") if key in self.given]
        idle = [key for key in self.given if key not in (*joined, *self.RUN_KEYS)]
        names = [*map(spell, joined)]
        if len(joined) > 1:
            yield joined[1], f"{' and '.join(names)} name one each. Leave out one of them."
        if joined and idle:
            problem = (
                f"{names[0]}={short_repr(self.given[joined[0]])} has its workers, but "
                f"{', '.join(map(spell, idle))} would describe workers to start. Leave out "
                f"one or the other."
            )
            yield joined[0], problem


class NotifySection(Section):
    """What `lpe-dask run` does when there is something to look at.

    Attributes
    ----------
    command : tuple of str
        A program and its arguments; ``{summary}`` stands for the path of the summary.
    """

    command: Annotated[
        tuple[Annotated[str, Field(pattern=_PATH)], ...], Field(strict=False, min_length=1)
    ] = _key(
        "What to run at the end, on new patterns, drift or failure; {summary} is the path "
        "of the summary",
        "a list of texts, a program and its arguments, none of them empty",
        '["notify-us", "{summary}"]',
        ...,
    )


def _option(key: str) -> str:
    return f"--{key.replace('_', '-')}"


def value_problem(
    name: str, value: Any, known: FieldInfo, *, is_secret: bool = False
) -> str:
    """Return the problem of the value of a key, which is called ``name``."""
    example = f" For example: {name}={known.examples[0]}." if known.examples else ""
    given = name if is_secret else f"{name}={short_repr(value)}"
    return f"{given} must be {known.description}.{example}"


#: The sections, by name.
SECTIONS: dict[str, type[BaseModel]] = {
    "nominal": NominalSection,
    "model": ModelSection,
    "score": ScoreSection,
    "drift": DriftSection,
    "cluster": ClusterSection,
    "notify": NotifySection,
    "csv": CsvOptions,
}

#: The keys that each may have in a file.
KEYS = {name: list(section.model_fields) for name, section in SECTIONS.items()}
KEYS["model"].remove("anomaly_log_density")


class Job(Section):
    """What is to be done.

    At least one of ``nominal`` and ``score`` is given. Without ``nominal``, the model at
    ``model.path`` scores; without that, too, the rows of ``score`` are scored against each
    other.

    Attributes
    ----------
    nominal : NominalSection, optional
    model : ModelSection
    score : ScoreSection, optional
    drift : DriftSection, optional
        Given, a single run is tested, too.
    cluster : ClusterSection, optional
        None: this process for what it does in seconds, else workers of this machine.
    notify : NotifySection, optional
        The command for anomalies, drift and failures, of `lpe-dask run`.
    csv : CsvOptions, optional
        How CSV files of the job are read.
    path : str
        The file that it was read from; "" if there is none.
    date : datetime.date, optional
        The day of the run: that of ``{date}``; None without a file.
    dated_output : DatedOutput, optional
        None if the output has no day in its name.
    has_dated_model : bool
        Whether each day has a model of its own, by the days in its path or, where it is
        not kept, in those of the nominal rows.
    """

    nominal: NominalSection | None = None
    model: ModelSection = ModelSection()
    score: ScoreSection | None = None
    drift: DriftSection | None = None
    cluster: ClusterSection | None = None
    notify: NotifySection | None = None
    csv: CsvOptions | None = None
    path: str = ""
    date: datetime.date | None = None
    dated_output: DatedOutput | None = None
    has_dated_model: bool = False

    @property
    def lpe_arguments(self) -> dict[str, Any]:
        """The arguments of `LPE` that were given, in [model] or in another section."""
        arguments = self.model.arguments
        if self.nominal is not None and "missing" in self.nominal.model_fields_set:
            arguments["missing"] = self.nominal.missing
        if self.score is not None:
            levels = {"alpha": self.score.alpha, "confidence": self.score.confidence}
            arguments |= {name: of for name, of in levels.items() if of is not None}
        return arguments

    @property
    def csv_setting(self) -> dict[str, Any]:
        """How CSV files are read, to compare runs; nothing if by default."""
        given = {} if self.csv is None else self.csv.given()
        return {"csv": given} if given else {}

    @property
    def scores_nominal_rows(self) -> bool:
        """Whether the rows to score are the nominal ones, too."""
        return self.nominal is None and self.model.path is None

    @property
    def drift_test_obstacle(self) -> str | None:
        """Why runs are not tested for drift; None if they are."""
        if self.scores_nominal_rows:
            return "rows were scored against each other: their p-values are ranks"
        if self.model.refit is True or self.has_dated_model:
            return "each run has a model of its own (refit, or {date} in what is fitted)"
        if self.path == "" and self.drift is None:
            return "this is a single run: only the runs of a job are compared"
        return None

    def with_storage_options(self, options: Mapping[str, Any]) -> Job:
        """Return the same job, all URLs of which open with some options of storages."""
        if not options:
            return self
        update: dict[str, Any] = {
            name: section.model_copy(update=_paths_with(section, options))
            for name in ("nominal", "model", "score")
            if (section := getattr(self, name)) is not None
        }
        if self.dated_output is not None:  # a template, perhaps without a protocol yet
            template = Url(self.dated_output.template, options)
            update["dated_output"] = replace(self.dated_output, template=template)
        return self.model_copy(update=update)

    def with_drift_test(self) -> Job:
        """Return the same job with a drift test, also for a single run.

        Raises
        ------
        ValueError
            If there can be none.
        """
        drift = self.drift or DriftSection()
        tested = self.model_copy(update={"drift": drift})
        if (why := tested.drift_test_obstacle) is not None:
            raise ValueError(
                f"there is no drift test for --fail-on-drift to ask: {why}. Leave the "
                f"option out."
            )
        return tested

    @property
    def place(self) -> str:
        """Where its result is: the output, or else the model."""
        place = self.model.path if self.score is None else self.score.output
        assert place is not None
        return place


def _paths_with(section: Section, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the paths of a section, with options of storages."""
    given = {name: getattr(section, name, None) for name in _PATHS}
    update: dict[str, Any] = {
        name: with_options(path, options) for name, path in given.items() if path
    }
    if sources := getattr(section, "data", ()):
        update["data"] = tuple(
            replace(source, path=with_options(source.path, options)) for source in sources
        )
    return update


# Contradictions


def conflicts(job: Job) -> Iterator[tuple[str, str, str]]:
    """Yield what cannot be meant: a section, a key in it or "", and what is wrong.

    That is a job without a result, and keys without an effect.
    """
    nominal, model, score = job.nominal, job.model, job.score
    if nominal is None and score is None:
        problem = "there is neither [nominal], rows to fit, nor [score]. Add one, or both."
        yield "", "", problem
    if nominal is not None and score is None and model.path is None:
        yield "nominal", "", "the model is not saved. Add [score], or a path to [model]."
    if nominal is None and model.refit:
        yield "model", "refit", "there is no [nominal] to fit again. Leave refit out."
    if model.policy is not None:
        yield from _conflicts_of_policy(job)
    if nominal is None and model.path is not None:
        for key in sorted(model.given.keys() - {"path", "refit", "alpha", "confidence"}):
            problem = "the model is loaded, and has this. Leave it out, or add [nominal]."
            yield "model", key, problem
    yield from _conflicts_of_columns(job)
    for name, section, key in (
        ("nominal", nominal, "missing"), ("score", score, "alpha"),
        ("score", score, "confidence"),
    ):  # fmt: skip
        values = [of.given[key] for of in (section, model) if of and key in of.given]
        if len(set(values)) > 1:
            problem = f"{key}={values[0]!r}, but [model] has {values[1]!r}. Leave out one."
            yield name, key, problem
    if job.drift is not None and (model.refit is True or job.has_dated_model):
        yield (
            "drift",
            "",
            f"{job.drift_test_obstacle}. Leave [drift] out, or keep one model.",
        )
    if job.csv is not None:
        yield from (("csv", *conflict) for conflict in job.csv.conflicts())
    if job.cluster is not None:
        yield from (("cluster", *conflict) for conflict in job.cluster.conflicts())


def _conflicts_of_policy(job: Job) -> Iterator[tuple[str, str, str]]:
    refit = f"refit={job.model.refit!r}"
    if job.model.path is None:
        problem = f"{refit} replaces a saved model. Add path, or leave refit out."
        yield "model", "refit", problem
    if job.score is None:
        problem = (
            f"{refit} judges a new model by the rows of [score]. Add it, or give "
            f"refit=true."
        )
        yield "model", "refit", problem
    if job.has_dated_model and job.model.path is not None:
        problem = (
            f"{refit} replaces one model, but each day has its own ({{date}} in path). "
            f"Leave one of them out."
        )
        yield "model", "refit", problem


def _conflicts_of_columns(job: Job) -> Iterator[tuple[str, str, str]]:
    nominal, score = (s.given if s else {} for s in (job.nominal, job.score))
    for name, section in ("nominal", nominal), ("score", score):
        if {"columns", "exclude"} <= section.keys():
            yield name, "exclude", "columns says what is measured, too. Leave out one."
    for key in ("columns", "exclude"):
        if job.nominal is not None and key in score:
            problem = f"what is measured is said in [nominal]. Give {key} there."
            yield "score", key, problem
    if job.nominal is None and job.model.path is not None and "exclude" in score:
        problem = "the columns to measure are those of the model. Leave exclude out."
        yield "score", "exclude", problem


def short_repr(value: Any) -> str:
    """Return a value of the file for a message, shortened."""
    return shorten(repr(value), 80)
