"""What a series of nights has said so far, as values of JSON: the state of the monitor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lpe_dask.pvalues.cells import Cells
from lpe_dask.pvalues.evidence import bets

#: The version of the format of a state.
FORMAT = 1

#: Nights that together carry the size of a change; runs that a state remembers.
RECENT, REMEMBERED = 7, 200

_ANEW = "Start anew (state=None)."

Verdict = Literal["fits", "drifting", "broken input"]

# A state comes from a file: what it holds must be fit to compute with.
_Rows = Annotated[int, Field(ge=0, le=2**53)]  # as float64 holds exactly
_Nights = Annotated[int, Field(ge=0, le=10**9)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Change(_Section):
    """The night from which on there is evidence of a change."""

    run: str
    output: str
    night: _Nights


class Night(_Section):
    """What a state remembers of a run; ``moved`` is of the last 7 nights together."""

    run: str
    output: str
    verdict: Verdict
    reason: str | None
    night: _Nights
    rows: _Rows
    flagged_share: float | None
    flagged_between: tuple[float, float] | None
    moved: float
    log10_evidence: float


class State(_Section):
    """A series of nights; see `new_state`."""

    format: int
    model: str
    n_calibration: int
    alpha: float
    edges: list[int]
    phi: float = Field(ge=1, le=2**53)
    delta: float = Field(gt=0, lt=1)
    nights: _Nights = 0
    sums: list[_Rows]
    recent: list[list[_Rows]] = Field(default=[], max_length=RECENT)
    wealth: list[float | None]
    evidence: float = 0.0
    change: Change | None = None
    excess_nights: _Nights = 0
    runs: list[Night] = []


def new_state(model: str, cells: Cells, phi: float, delta: float) -> dict[str, Any]:
    """Return the state before the first night.

    Parameters
    ----------
    model : str
        Tells the calibration from others.
    cells : Cells
    phi : float
        As `phi_of` gives it.
    delta : float
        As in `Tolerances`; it stays the same for all nights.
    """
    n_bets = len(bets(cells.widths))
    return State(
        format=FORMAT, model=model, n_calibration=cells.n_calibration, alpha=cells.alpha,
        edges=list(cells.edges), phi=phi, delta=delta, sums=[0] * len(cells.widths),
        wealth=[None] * n_bets,
    ).model_dump(mode="json")  # fmt: skip


def checked_state(state: Mapping[str, Any], cells: Cells) -> State:
    """Return a state that came from a file, if it is one of these cells."""
    try:
        content = dict(state)
        if (said := content.get("format", FORMAT)) != FORMAT:
            raise ValueError(f"format {said!r}, and this version knows format {FORMAT}")
        checked = State.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(
            f"the state of earlier nights is damaged ({where}: {first['msg']}). {_ANEW}"
        ) from None
    except (TypeError, ValueError) as error:
        raise ValueError(f"this is no state of earlier nights ({error}). {_ANEW}") from None
    n_bulk = len(cells.widths)
    lengths = {len(checked.sums), *map(len, checked.recent)}
    is_whole = lengths == {n_bulk} and len(checked.wealth) == len(bets(cells.widths))
    said = (checked.n_calibration, checked.alpha, tuple(checked.edges))
    wanted = (cells.n_calibration, cells.alpha, cells.edges)
    if said != wanted or not is_whole:
        raise ValueError(
            f"the state belongs to another model: it has {said[0]} calibration rows and "
            f"alpha={said[1]:g}, but this one {wanted[0]} and {wanted[1]:g}, or other "
            f"cells. {_ANEW}"
        )
    return checked
