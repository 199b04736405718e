"""What a job is: what to fit and to score, from which files, and on which workers.

Jobs are made from a job file (job_file.py reads and checks it) or from the arguments of a
command or a call (api.py). This file has the keys of each section, with the allowed values
and an example, from which messages are made, and the rules that tie keys to one another.
Those about the arguments of `LPE` are in model/parameters.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from dask.utils import parse_bytes
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
)

from lpe_dask.batch.dated_output import DatedOutput
from lpe_dask.batch.placeholders import cut
from lpe_dask.model import PARAMETERS
from lpe_dask.tables import AllBut, CsvOptions, measured_columns
from lpe_dask.tasks import KERNEL_BYTES, MIN_WORKER_BYTES, PROCESS_BYTES, seconds_of

#: The largest whole number that TOML guarantees.
LARGEST_WHOLE = 2**63 - 1

#: Arguments of `LPE` that a file can contain -> their default values.
DEFAULTS = {name: known.default for name, known in PARAMETERS.items() if known.is_option}

#: Allowed amounts of memory: Dask reads more, such as 1e3GB.
_AMOUNT = re.compile(r"\s*[0-9]{1,15}(\.[0-9]{1,15})?\s*[A-Za-z]{0,3}\s*")

#: A path, which is not empty.
_PATH = r"^[^\x00]+$"

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
    if isinstance(value, str) and _AMOUNT.fullmatch(value):
        return parse_bytes(value)
    return value


def _as_seconds(value: Any) -> Any:
    """Return a time with its unit, such as 30min, in seconds."""
    if isinstance(value, str):
        with suppress(ValueError):
            return seconds_of(value)
    return float(value) if type(value) is int else value


def _key(description: str, example: str, default: Any = None, **limits: Any) -> Any:
    """Return a key of a section, with what it may be and an example, for messages."""
    return Field(default, description=description, examples=[example], **limits)


# Lists become tuples, which are frozen; nothing else is converted.
_Names = Annotated[
    tuple[str | int, ...], AfterValidator(_check_distinct), Field(strict=False)
]
_Sources = Annotated[
    tuple[Source, ...], AfterValidator(_check_sources), Field(strict=False, min_length=1)
]
_SOURCES = "a path or a list of paths, at least one, none empty and none twice"
_NAMES = "a list of column names, at least one and none twice"
_LEVEL = "a number between 0 and 1, both excluded"
_SHARE = "a number of at least 0 and less than 1"
_WHOLE = "a whole number of at least 1"
_SWITCH = "true or false"


class JobKeyError(ValueError):
    """The value of a key of a job does not go with the files that the job names.

    Attributes
    ----------
    section, key : str
    """

    def __init__(self, message: str, section: str, key: str) -> None:
        super().__init__(message)
        self.section, self.key = section, key


class Section(BaseModel):
    """A section of a job."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class _Measured(Section):
    """The columns of a section that are measured.

    Attributes
    ----------
    columns : sequence, optional
        These; None: all.
    exclude : sequence, optional
        All but these.
    """

    columns: _Names | None = _key(_NAMES, '["src_bytes", "dst_bytes"]', min_length=1)
    exclude: _Names | None = _key(_NAMES, '["id", "ts"]', min_length=1)

    @property
    def measured(self) -> Sequence[Any] | AllBut | None:
        """Which columns are measured; None: all, or those of the model."""
        return measured_columns(self.columns, self.exclude)


class NominalSection(_Measured):
    """What to fit: the rows known to be normal.

    Attributes
    ----------
    data : tuple of Source
    columns, exclude : sequence, optional
    missing : {"error", "drop"}
        What to do about a row with NaN or inf; may be in [model] instead.
    """

    data: _Sources = _key(_SOURCES, '"nominal/*.parquet"', ...)
    missing: Literal["error", "drop"] = _key('"error" or "drop"', '"drop"', "error")


class ModelSection(Section, extra="allow"):
    """The model to load, or to fit. All other keys are arguments of `LPE`.

    Attributes
    ----------
    path : str, optional
        Where it is, or is to be saved; None: it is not kept.
    refit : bool
        Whether to fit again if there is a model.
    check_calibration : bool
        Whether to judge the model by nominal rows that are held out.
    """

    path: str | None = _key("a path, not empty", '"models/kdd"', pattern=_PATH)
    refit: bool = _key(_SWITCH, "true", default=False)
    check_calibration: bool = _key(_SWITCH, "true", default=False)

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `LPE` that were given, by name."""
        return dict(self.model_extra or {})


class ScoreSection(_Measured):
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
    fdr : float, optional
        Level for the control of false discoveries; None: no such control.
    report : bool
        Whether a page about the run is made.
    private : sequence, optional
        Columns that are in no reasons.
    """

    data: _Sources = _key(_SOURCES, '"in/{date}/*.parquet"', ...)
    keep: _Names | None = _key(
        "a list of column names, none twice; an empty one carries over none",
        '["id", "ts"]',
    )
    output: str = _key("a path, not empty", '"out/{date}"', ..., pattern=_PATH)
    alpha: float | None = _key(_LEVEL, "0.05", gt=0, lt=1)
    fdr: float | None = _key(_LEVEL, "0.1", gt=0, lt=1)
    report: bool = _key(_SWITCH, "false", default=True)
    private: _Names | None = _key(_NAMES, '["name", "birth_date"]', min_length=1)


class DriftSection(Section):
    """What counts as drift of the rows to score away from the nominal ones.

    Attributes
    ----------
    delta, tolerance, anomalies, shift : float
        As in `pvalues.DriftConfig`.
    """

    delta: float = _key(_LEVEL, "0.01", default=0.01, gt=0, lt=1)
    tolerance: float = _key("a number of at least 0", "0.25", default=0.25, ge=0)
    anomalies: float = _key(_SHARE, "0.05", default=0.05, ge=0, lt=1)
    shift: float = _key(_SHARE, "0.02", default=0.02, ge=0, lt=1)


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
    dashboard : bool
        Whether a cluster that is started has one.
    """

    scheduler: str | None = _key(
        'the address of a scheduler, or "threads"',
        '"tcp://10.0.0.1:8786"',
        pattern="^threads$|:",
    )
    scheduler_file: str | None = _key("a path", '"scheduler.json"', pattern=_PATH)
    workers: int | None = _key(_WHOLE, "4", ge=1)
    memory_limit: Annotated[int | None, BeforeValidator(_as_bytes)] = _key(
        f"an amount of memory or a number of bytes, of at least "
        f"{MIN_WORKER_BYTES // 2**20}MiB (a worker takes "
        f"{(PROCESS_BYTES + KERNEL_BYTES) // 2**20}MiB before any data)",
        '"4GiB"',
        ge=MIN_WORKER_BYTES,
        le=LARGEST_WHOLE,
    )
    threads: int | None = _key(_WHOLE, "1", ge=1)
    give_up_after: Annotated[float | None, BeforeValidator(_as_seconds)] = _key(
        "a time above 0, as a text with its unit or in seconds", '"30min"', gt=0
    )
    dashboard: bool = _key(_SWITCH, "true", default=False)


#: The sections, by name.
SECTIONS: dict[str, type[BaseModel]] = {
    "nominal": NominalSection,
    "model": ModelSection,
    "score": ScoreSection,
    "drift": DriftSection,
    "cluster": ClusterSection,
    "csv": CsvOptions,
}

#: The keys that each may have in a file.
KEYS = {name: list(section.model_fields) for name, section in SECTIONS.items()}
KEYS["model"] += DEFAULTS


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
    csv : CsvOptions, optional
        How CSV files of the job are read.
    path : str
        The file that it was read from; "" if there is none.
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
    csv: CsvOptions | None = None
    path: str = ""
    dated_output: DatedOutput | None = None
    has_dated_model: bool = False

    @property
    def lpe_arguments(self) -> dict[str, Any]:
        """The arguments of `LPE` that were given, in [model] or in another section."""
        arguments = self.model.arguments
        if self.nominal is not None and "missing" in self.nominal.model_fields_set:
            arguments["missing"] = self.nominal.missing
        if self.score is not None and self.score.alpha is not None:
            arguments["alpha"] = self.score.alpha
        return arguments

    @property
    def is_own(self) -> bool:
        """Whether the rows to score are the nominal ones, too."""
        return self.nominal is None and self.model.path is None

    @property
    def why_no_drift_test(self) -> str | None:
        """Why runs are not tested for drift; None if they are."""
        if self.is_own:
            return "rows were scored against each other: their p-values are ranks"
        if self.model.refit:
            return "each run fits a model of its own (refit), which no other run has"
        if self.has_dated_model:
            return (
                "each day has a model of its own, which the runs of other days do not have"
            )
        if self.path == "" and self.drift is None:
            return "this is a single run: only the runs of a job are compared"
        return None

    def with_drift_test(self) -> Job:
        """Return the same job with a drift test, also for a single run.

        Raises
        ------
        ValueError
            If there can be none.
        """
        drift = self.drift or DriftSection()
        tested = self.model_copy(update={"drift": drift})
        if (why := tested.why_no_drift_test) is not None:
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


# Contradictions


def conflicts(job: Job) -> Iterator[tuple[str, str, str]]:
    """Yield what cannot be meant: a section, a key in it or "", and what is wrong.

    That is a job without a result, and keys without an effect.
    """
    nominal, model, score = job.nominal, job.model, job.score
    if nominal is None and score is None:
        problem = (
            "the job has neither a [nominal] section (rows to fit) nor a [score] section "
            '(rows to score). Add one of them, or both, with data = "...".'
        )
        yield "", "", problem
    if nominal is not None and score is None and model.path is None:
        problem = (
            "the fit would have no result: the model is not saved and nothing is scored. "
            'Add [score], or a path to [model], for example path = "models/kdd".'
        )
        yield "nominal", "", problem
    yield from _conflicts_of_columns(job)
    if nominal is None:
        yield from _conflicts_of_loaded(model)
    yield from _disagreement("nominal", nominal, "missing", model)
    yield from _disagreement("score", score, "alpha", model)
    if job.drift is not None and (job.model.refit or job.has_dated_model):
        problem = (
            "each run has a model of its own (refit = true, or {date} in what is fitted), "
            "and no other run to be compared with. Leave out [drift], or keep one model."
        )
        yield "drift", "", problem
    if job.csv is not None:
        yield from (("csv", *conflict) for conflict in job.csv.conflicts())
    given = _given(job.cluster)
    joined = [name for name in ("scheduler", "scheduler_file") if name in given]
    idle = [name for name in given if name not in (*joined, "give_up_after")]
    if len(joined) > 1:
        problem = "scheduler and scheduler_file name one each. Leave out one or the other."
        yield "cluster", joined[1], problem
    if joined and idle:
        problem = (
            f"{joined[0]}={shown(given[joined[0]])} has its workers, but {', '.join(idle)} "
            f"would describe workers to start. Leave out one or the other."
        )
        yield "cluster", joined[0], problem


def _given(section: Section | None) -> dict[str, Any]:
    """Return the keys that were given."""
    return {} if section is None else section.model_dump(exclude_unset=True)


def _conflicts_of_columns(job: Job) -> Iterator[tuple[str, str, str]]:
    nominal, score = _given(job.nominal), _given(job.score)
    for name, section in ("nominal", nominal), ("score", score):
        if {"columns", "exclude"} <= section.keys():
            problem = "columns and exclude both say what is measured. Leave out one."
            yield name, "exclude", problem
    for key in ("columns", "exclude"):
        if job.nominal is not None and key in score:
            problem = (
                f"the columns to measure are those of [nominal], also for the rows to "
                f"score. Give {key} in [nominal], and remove it here."
            )
            yield "score", key, problem
    if job.nominal is None and job.model.path is not None and "exclude" in score:
        problem = (
            "the columns to measure are those of the model. Remove exclude, or name as "
            "many as it has with columns."
        )
        yield "score", "exclude", problem


def _conflicts_of_loaded(model: ModelSection) -> Iterator[tuple[str, str, str]]:
    if model.refit:
        problem = (
            "refit=True needs rows to fit, but there is no [nominal]. Add it, or leave "
            "refit out."
        )
        yield "model", "refit", problem
    given = _given(model).keys() - {"path", "refit", "alpha"}
    idle = [name for name in KEYS["model"] if name in given]
    if model.path is not None and idle:
        problem = (
            f"without [nominal] the model at {shown(model.path)} is loaded, and only alpha "
            f"may be given with it, not {', '.join(idle)}. Leave them out, or add "
            f"[nominal] to fit a model with them."
        )
        yield "model", idle[0], problem


def _disagreement(
    name: str, section: Section | None, key: str, model: ModelSection
) -> Iterator[tuple[str, str, str]]:
    given, elsewhere = _given(section), _given(model)
    if key in given and key in elsewhere and given[key] != elsewhere[key]:
        problem = (
            f"{key}={given[key]!r}, but [model] has {key}={elsewhere[key]!r}. Give it in "
            f"one of them, or the same value in both."
        )
        yield name, key, problem


def shown(value: Any) -> str:
    """Return a value of the file for a message, shortened."""
    return cut(repr(value), 80)


def cluster_section(given: Mapping[str, Any]) -> ClusterSection:
    """Return the section that options of a command stand for.

    Parameters
    ----------
    given : mapping of str to object
        The values of options by the keys of the section, also as texts: "4GiB", "30min".

    Raises
    ------
    ValueError
        For a value that is not allowed, or that contradicts another, by its option.
    """
    try:
        section = ClusterSection.model_validate(dict(given))
    except ValidationError as error:
        key = str(error.errors()[0]["loc"][0])
        option, known = f"--{key.replace('_', '-')}", ClusterSection.model_fields[key]
        raise ValueError(
            f"{option}={shown(given[key])} must be {known.description}."
        ) from None
    for name, _, problem in conflicts(Job(cluster=section)):
        if name == "cluster":
            raise ValueError(problem)
    return section
