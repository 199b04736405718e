"""What a job is: what to fit and to score, from which files, and on which workers.

A job file says it (job_file.py reads and checks it), or the arguments of a command or a
call do (api.py). The keys of each section of a file stand here, with what each may be and
how it is written; messages are made of that, and of the rules that tie keys to one another.
Those about the arguments of `LPE` are in model/parameters.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from dask.utils import parse_bytes
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from lpe_dask.batch.unfinished import DayOfJob
from lpe_dask.model import PARAMETERS
from lpe_dask.tasks import MIN_WORKER_BYTES, PROCESS_BYTES

#: TOML promises whole numbers of 64 bits, and so do we.
LARGEST_WHOLE = 2**63 - 1

#: Arguments of `LPE` that a file can say -> what it has where the file is silent.
DEFAULTS = {name: known.default for name, known in PARAMETERS.items() if known.is_option}

#: Amounts of memory that are read: Dask takes more, such as 1e3GB.
_AMOUNT = re.compile(r"\s*[0-9]{1,15}(\.[0-9]{1,15})?\s*[A-Za-z]{0,3}\s*")

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Source:
    """A path to read rows from.

    Attributes
    ----------
    path : str
        File, folder or glob; local or an fsspec URL.
    is_optional : bool
        Whether nothing may be there: for a day of a range, such as a Sunday.
    """

    path: str
    is_optional: bool = False


# Checks of one value; the message is that of the key, so that theirs is seen by us only.


def _check_path(path: str) -> str:
    if not path or "\0" in path:
        raise ValueError("no path")
    return path


def _check_source(source: Source) -> Source:
    _check_path(source.path)
    return source


def _check_scheduler(scheduler: str) -> str:
    if scheduler != "threads" and ":" not in scheduler:
        raise ValueError("no address")
    return scheduler


def _check_distinct(items: tuple[_Item, ...]) -> tuple[_Item, ...]:
    if len(set(items)) < len(items):
        raise ValueError("twice")
    return items


def _as_bytes(value: Any) -> Any:
    """Return an amount of memory, such as 4GiB, as a number of bytes."""
    if isinstance(value, str) and _AMOUNT.fullmatch(value):
        return parse_bytes(value)
    return value


def _key(description: str, example: str, default: Any = None, **limits: Any) -> Any:
    """Return a key of a section, with what it may be and an example, for messages."""
    return Field(default, description=description, examples=[example], **limits)


_Path = Annotated[str, AfterValidator(_check_path)]
# Lists become tuples, which are frozen; nothing else becomes what it was not.
_Names = Annotated[
    tuple[str | int, ...], AfterValidator(_check_distinct), Field(strict=False)
]
_Sources = Annotated[
    tuple[Annotated[Source, AfterValidator(_check_source)], ...],
    AfterValidator(_check_distinct),
    Field(strict=False, min_length=1),
]
_SOURCES = "a path or a list of paths, at least one, none empty and none twice"
_NAMES = "a list of column names, at least one and none twice"
_LEVEL = "a number between 0 and 1, both excluded"
_WHOLE = "a whole number of at least 1"
_SWITCH = "true or false"


class Section(BaseModel):
    """A section of a job."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class NominalSection(Section):
    """What to fit: the rows known to be normal.

    Attributes
    ----------
    data : tuple of Source
    columns : sequence, optional
        Columns to measure; None: all.
    missing : {"error", "drop"}
        What to do about a row with NaN or inf; may stand among the arguments of `LPE`, too.
    """

    data: _Sources = _key(_SOURCES, '"nominal/*.parquet"', ...)
    columns: _Names | None = _key(_NAMES, '["src_bytes", "dst_bytes"]', min_length=1)
    missing: Literal["error", "drop"] = _key('"error" or "drop"', '"drop"', "error")


class ModelSection(Section, extra="allow"):
    """The model to load, or to fit. What is no key of its own is an argument of `LPE`.

    Attributes
    ----------
    path : str, optional
        Where it is, or is to be saved; None: it is not kept.
    refit : bool
        Whether to fit again although there is one.
    check_calibration : bool
        Whether to judge the model by nominal rows that are held out.
    """

    path: _Path | None = _key("a path, not empty", '"models/kdd"')
    refit: bool = _key(_SWITCH, "true", default=False)
    check_calibration: bool = _key(_SWITCH, "true", default=False)

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `LPE` that were given, by name."""
        return dict(self.model_extra or {})


class ScoreSection(Section):
    """What to score, and where to write it.

    Attributes
    ----------
    data : tuple of Source
    columns : sequence, optional
        Columns to measure, where no [nominal] names them; None: all, or those of the model.
    keep : sequence, optional
        Columns to carry over; None: all.
    output : str
    alpha : float, optional
        False-alarm level; may stand among the arguments of `LPE`, too.
    fdr : float, optional
        Level for the control of false discoveries; None: no such control.
    """

    data: _Sources = _key(_SOURCES, '"in/{date}/*.parquet"', ...)
    columns: _Names | None = _key(_NAMES, '["src_bytes", "dst_bytes"]', min_length=1)
    keep: _Names | None = _key(
        "a list of column names, none twice; an empty one carries over none",
        '["id", "ts"]',
    )
    output: _Path = _key("a path, not empty", '"out/{date}"', ...)
    alpha: float | None = _key(_LEVEL, "0.05", gt=0, lt=1)
    fdr: float | None = _key(_LEVEL, "0.1", gt=0, lt=1)


class ClusterSection(Section):
    """The workers: those of a scheduler, or of a cluster to start.

    Attributes
    ----------
    scheduler : str, optional
        An address, or "threads".
    workers, threads : int, optional
        Worker processes to start, and threads of each.
    memory_limit : int, optional
        Bytes of each.
    """

    scheduler: Annotated[str, AfterValidator(_check_scheduler)] | None = _key(
        'the address of a scheduler, or "threads"', '"tcp://10.0.0.1:8786"'
    )
    workers: int | None = _key(_WHOLE, "4", ge=1)
    memory_limit: Annotated[int | None, BeforeValidator(_as_bytes)] = _key(
        f"an amount of memory or a number of bytes, of at least "
        f"{MIN_WORKER_BYTES // 2**20}MiB (a worker takes {PROCESS_BYTES // 2**20}MiB "
        f"before any data)",
        '"4GiB"',
        ge=MIN_WORKER_BYTES,
        le=LARGEST_WHOLE,
    )
    threads: int | None = _key(_WHOLE, "1", ge=1)


#: The sections, by name.
SECTIONS: dict[str, type[Section]] = {
    "nominal": NominalSection,
    "model": ModelSection,
    "score": ScoreSection,
    "cluster": ClusterSection,
}

#: The keys that each may have in a file.
KEYS = {name: list(section.model_fields) for name, section in SECTIONS.items()}
KEYS["model"] += DEFAULTS


class Job(Section):
    """What is to be done.

    At least one of ``nominal`` and ``score`` is there. Without ``nominal``, the model at
    ``model.path`` scores; without that, too, the rows of ``score`` score each other.

    Attributes
    ----------
    nominal : NominalSection, optional
    model : ModelSection
    score : ScoreSection, optional
    cluster : ClusterSection, optional
        None: a cluster on this machine, sized to it.
    path : str
        The file that says it; "" where no file does.
    today : DayOfJob, optional
        The day of the run; None where no day stands in the output.
    """

    nominal: NominalSection | None = None
    model: ModelSection = ModelSection()
    score: ScoreSection | None = None
    cluster: ClusterSection | None = None
    path: str = ""
    today: DayOfJob | None = None

    @property
    def lpe_arguments(self) -> dict[str, Any]:
        """The arguments of `LPE` that were given, those beside its section among them."""
        arguments = self.model.arguments
        if self.nominal is not None and "missing" in self.nominal.model_fields_set:
            arguments["missing"] = self.nominal.missing
        if self.score is not None and self.score.alpha is not None:
            arguments["alpha"] = self.score.alpha
        return arguments

    @property
    def alpha(self) -> float | None:
        """The false-alarm level, where one was given; None: that of the model."""
        return self.lpe_arguments.get("alpha")

    @property
    def is_own(self) -> bool:
        """Whether the rows to score are the nominal ones, too."""
        return self.nominal is None and self.model.path is None

    @property
    def place(self) -> str:
        """Where its result is: the output, or else the model."""
        place = self.model.path if self.score is None else self.score.output
        assert place is not None
        return place


# What contradicts itself


def conflicts(job: Job) -> Iterator[tuple[str, str, str]]:
    """Yield what cannot be meant: a section, a key in it or "", and what is wrong.

    That is a job that nothing would come of, and keys that would do nothing.
    """
    nominal, model, score = job.nominal, job.model, job.score
    if nominal is None and score is None:
        problem = (
            "there is neither [nominal], what to fit, nor [score], what to score. Add one "
            'of them, or both, with data = "...".'
        )
        yield "", "", problem
    if nominal is not None and score is None and model.path is None:
        problem = (
            "nothing would come of the fit: the model is not saved, and nothing is scored. "
            'Add [score], or a path to [model], for example path = "models/kdd".'
        )
        yield "nominal", "", problem
    if nominal is not None and score is not None and score.columns is not None:
        problem = (
            "the columns to measure are those of [nominal], and those alone are measured "
            "in [score]. Name them in [nominal], and take them out here."
        )
        yield "score", "columns", problem
    if nominal is None:
        yield from _conflicts_of_loaded(model)
    yield from _disagreement("nominal", nominal, "missing", model)
    yield from _disagreement("score", score, "alpha", model)
    yield from _conflicts_of_workers(job.cluster)


def _given(section: Section | None) -> dict[str, Any]:
    """Return the keys that were given."""
    if section is None:
        return {}
    return {name: value for name, value in section if name in section.model_fields_set}


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
            f"the model at {shown(model.path)} is loaded, as there is no [nominal], and "
            f"has all its arguments but alpha; given are {', '.join(idle)}. Leave them "
            f"out, or add [nominal] to fit a model with them."
        )
        yield "model", idle[0], problem


def _disagreement(
    name: str, section: Section | None, key: str, model: ModelSection
) -> Iterator[tuple[str, str, str]]:
    given, elsewhere = _given(section), _given(model)
    if key in given and key in elsewhere and given[key] != elsewhere[key]:
        problem = (
            f"{key}={given[key]!r}, but [model] has {key}={elsewhere[key]!r}. It may stand "
            f"in either, and in both if they agree. Take one of them out."
        )
        yield name, key, problem


def _conflicts_of_workers(cluster: ClusterSection | None) -> Iterator[tuple[str, str, str]]:
    given = _given(cluster)
    idle = [name for name in given if name != "scheduler"]
    if "scheduler" in given and idle:
        problem = (
            f"scheduler={shown(given['scheduler'])} has its workers, but {', '.join(idle)} "
            f"would describe workers to start. Leave out one or the other."
        )
        yield "cluster", "scheduler", problem


def shown(value: Any) -> str:
    """Return a value of the file for a message, shortened."""
    return cut(repr(value), 80)


def cut(text: str, length: int) -> str:
    """Return ``text``, without its middle if it is longer than ``length``."""
    half = length // 2
    return text if len(text) <= length else f"{text[:half]} ... {text[-half:]}"
