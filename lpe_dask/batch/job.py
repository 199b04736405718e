"""What a job is: the sections of a job file, as checked and frozen values.

The keys of each section stand here, with what each may be and how it is written; messages
are made of that. The rules that tie keys to one another are in job_file.py, and those about
the arguments of `LPE` in parameters.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    create_model,
)

from lpe_dask.batch.unfinished import DayOfJob
from lpe_dask.model import PARAMETERS
from lpe_dask.search import MIN_WORKER_BYTES, PROCESS_BYTES

#: TOML promises whole numbers of 64 bits, and so do we.
LARGEST_WHOLE = 2**63 - 1

#: Unit of an amount of memory, in lower case -> bytes; those that Dask knows.
_UNITS = {
    f"{letter}{binary}{b}": (1024 if binary else 1000) ** power
    for power, letter in enumerate(["", "k", "m", "g", "t", "p"])
    for binary in (["", "i"] if letter else [""])
    for b in ("", "b")
}
_AMOUNT = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([A-Za-z]{0,3})\s*")

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
    if not isinstance(value, str):
        return value
    found = _AMOUNT.fullmatch(value)
    if found is None or found[2].lower() not in _UNITS:
        raise ValueError("no amount")
    return int(float(found[1]) * _UNITS[found[2].lower()])


_Path = Annotated[str, AfterValidator(_check_path)]
# Lists become tuples, which are frozen; nothing else becomes what it was not.
_Names = Annotated[
    tuple[str | int, ...], AfterValidator(_check_distinct), Field(strict=False)
]
_Sources = Annotated[
    tuple[Annotated[Source, AfterValidator(_check_source)], ...],
    AfterValidator(_check_distinct),
    Field(strict=False),
]


class Section(BaseModel):
    """A table of the file. Its keys have a description and an example, for messages."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class NominalSection(Section):
    """What to fit: the rows known to be normal.

    Attributes
    ----------
    data : tuple of Source
    columns : tuple of str or int, optional
        Columns to measure; None: all.
    missing : {"error", "drop"}
        What to do about a row with NaN or inf; wherever it stands in the file.
    """

    data: _Sources = Field(
        min_length=1,
        description="a path or a list of paths, at least one, none empty and none twice",
        examples=['"nominal/*.parquet"'],
    )
    columns: _Names | None = Field(
        default=None,
        min_length=1,
        description="a list of column names, at least one and none twice",
        examples=['["src_bytes", "dst_bytes"]'],
    )
    missing: Literal["error", "drop"] = Field(
        default="error", description='"error" or "drop"', examples=['"drop"']
    )


class ScoreSection(Section):
    """What to score, and where to write it.

    Attributes
    ----------
    data : tuple of Source
    columns : tuple of str or int, optional
        Columns to measure, where no [nominal] names them; None: all, or those of the model.
    keep : tuple of str or int, optional
        Columns to carry over; None: all.
    output : str
    alpha : float, optional
        Wherever it stands in the file; None: as the model has it.
    fdr : float, optional
        Level for the control of false discoveries; None: no such control.
    """

    data: _Sources = Field(
        min_length=1,
        description="a path or a list of paths, at least one, none empty and none twice",
        examples=['"in/{date}/*.parquet"'],
    )
    columns: _Names | None = Field(
        default=None,
        min_length=1,
        description="a list of column names, at least one and none twice",
        examples=['["src_bytes", "dst_bytes"]'],
    )
    keep: _Names | None = Field(
        default=None,
        description="a list of column names, none twice; an empty one carries over none",
        examples=['["id", "ts"]'],
    )
    output: _Path = Field(description="a path, not empty", examples=['"out/{date}"'])
    alpha: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="a number between 0 and 1, both excluded",
        examples=["0.05"],
    )
    fdr: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="a number between 0 and 1, both excluded",
        examples=["0.1"],
    )


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

    scheduler: Annotated[str, AfterValidator(_check_scheduler)] | None = Field(
        default=None,
        description='the address of a scheduler, or "threads"',
        examples=['"tcp://10.0.0.1:8786"'],
    )
    workers: int | None = Field(
        default=None, ge=1, description="a whole number of at least 1", examples=["4"]
    )
    memory_limit: Annotated[int | None, BeforeValidator(_as_bytes)] = Field(
        default=None,
        ge=MIN_WORKER_BYTES,
        le=LARGEST_WHOLE,
        description=f"an amount of memory or a number of bytes, of at least "
        f"{MIN_WORKER_BYTES // 2**20}MiB (a worker takes {PROCESS_BYTES // 2**20}MiB "
        f"before any data)",
        examples=['"4GiB"'],
    )
    threads: int | None = Field(
        default=None, ge=1, description="a whole number of at least 1", examples=["1"]
    )


#: Arguments of `LPE` that a file can say -> their defaults.
DEFAULTS = {name: known.default for name, known in PARAMETERS.items() if known.is_option}

_ARGUMENTS: Any = {name: (Any, default) for name, default in DEFAULTS.items()}
_Arguments: Any = create_model("_Arguments", __base__=Section, **_ARGUMENTS)


class ModelTable(_Arguments):
    """[model] as it stands in the file: the arguments of `LPE` lie beside the path.

    `check_parameters` judges the arguments, alone and together, and has the messages.
    """

    path: _Path | None = Field(
        default=None, description="a path, not empty", examples=['"models/kdd"']
    )
    refit: bool = Field(default=False, description="true or false", examples=["true"])
    check_calibration: bool = Field(
        default=False, description="true or false", examples=["true"]
    )


class JobTables(Section):
    """All tables of the file."""

    nominal: NominalSection | None = None
    model: ModelTable = ModelTable()
    score: ScoreSection | None = None
    cluster: ClusterSection | None = None


#: The sections, by name.
SECTIONS: dict[str, type[Section]] = {
    "nominal": NominalSection,
    "model": ModelTable,
    "score": ScoreSection,
    "cluster": ClusterSection,
}


@dataclass(frozen=True, slots=True)
class ModelSection:
    """The model to load, or to fit.

    Attributes
    ----------
    path : str, optional
        Where it is, or is to be saved; None: it is not kept.
    refit : bool
        Whether to fit again although there is one.
    check_calibration : bool
        Whether a model that is fitted is judged by rows that are held out.
    arguments : dict
        The arguments of `LPE` that stand in [model], by name.
    """

    path: str | None
    refit: bool
    check_calibration: bool
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Job:
    """A job file that has been checked.

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
        The file.
    today : DayOfJob, optional
        The day of the run; None where no day stands in the output.
    """

    nominal: NominalSection | None
    model: ModelSection
    score: ScoreSection | None
    cluster: ClusterSection | None
    path: str
    today: DayOfJob | None = None

    @property
    def lpe_arguments(self) -> dict[str, Any]:
        """Arguments of `LPE`, those in [nominal] and [score] among them."""
        arguments = dict(self.model.arguments)
        if self.nominal is not None:
            arguments["missing"] = self.nominal.missing
        if self.score is not None and self.score.alpha is not None:
            arguments["alpha"] = self.score.alpha
        return arguments
