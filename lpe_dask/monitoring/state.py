"""The state of a drift test: what is known of the runs of a series, as values of JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lpe_dask.monitoring.bins import BinCounts, PValueBins
from lpe_dask.monitoring.eprocess import bet_exponents
from lpe_dask.monitoring.group_state import GroupsSection, GroupStates
from lpe_dask.monitoring.watched_groups import WatchedGroups

#: The version of the format of a state; keys may be added to it.
FORMAT = 1

#: Runs that together carry the size of a shift; runs that a state remembers.
RECENT, MAX_RUNS = 7, 200

#: Rows of the first runs that are the reference of later ones, where calibration rows are
#: none; and rows of up to `RECENT` runs below which nothing is said of drift.
CALIBRATION_ROWS, MIN_ROWS = 1000, 100

#: Rows of the first runs that a bin needs: with fewer it is joined to the next one.
_MIN_BIN_ROWS = 20

_RESET_HINT = "Start anew (state=None)."

Verdict = Literal[
    "no drift", "drift", "invalid input", "too few rows to test", "calibrating"
]

# A state comes from a file: what it holds must be fit to compute with.
_Rows = Annotated[int, Field(ge=0, le=2**53)]  # as float64 holds exactly
_Runs = Annotated[int, Field(ge=0, le=10**9)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


class Change(_Section):
    """The run from which on there is evidence of a change."""

    run: str
    output: str
    number: _Runs


class RunRecord(_Section):
    """What a state remembers of a run; ``recent_shift`` is of the last 7 runs together."""

    run: str
    output: str
    verdict: Verdict
    reason: str | None
    number: _Runs
    rows: _Rows
    flagged_share: float | None
    flagged_between: tuple[float, float] | None
    shift: float
    recent_shift: float
    log10_evidence: float


class DriftState(_Section):
    """A series of runs; see `new_state`.

    ``reference`` has the rows of the first runs where these are what later runs are tested
    against: the flagged ones, all of the tail, and those of each bulk bin; None where the
    calibration rows are. ``tested_runs`` are those that count but for these, ``n_runs``
    all, ``recent`` the rows of the tail and of each bulk bin of up to `RECENT` tested runs,
    and ``sums`` those of the bulk before them. ``known`` and ``unseen`` have how many rows
    of all runs have a value in each column, and one that no nominal row has. Where rows are
    divided into groups, ``groups`` has what these are tested by, ``evidence`` is that of
    all of them, and there are no ``reference`` and no ``wealth`` beside.
    """

    format: int
    model: str
    n_calibration: int
    alpha: float
    edges: list[int]
    delta: float = Field(gt=0, lt=1)
    reference: list[_Rows] | None
    n_runs: _Runs = 0
    counted_runs: _Runs = 0
    tested_runs: _Runs = 0
    sums: list[_Rows]
    recent: list[list[_Rows]] = Field(default=[], max_length=RECENT)
    known: list[_Rows] = []
    unseen: list[_Rows] = []
    wealth: list[float | None] = []
    evidence: float = 0.0
    change: Change | None = None
    consecutive_excess_runs: _Runs = 0
    runs: list[RunRecord] = []
    groups: GroupsSection | None = None

    @property
    def is_calibrating(self) -> bool:
        """Whether the rows so far are still too few to test others against them."""
        return self.reference is not None and sum(self.reference[1:]) < CALIBRATION_ROWS


@dataclass(frozen=True, slots=True)
class Reference:
    """The rows that those of a run are tested against.

    Attributes
    ----------
    rows : int
    flagged, tail : int
        How many have p <= alpha, and are in no bulk bin; with ties, at most.
    bulk : ndarray of shape (n_bulk,)
        How many are in each bulk bin.
    starts : ndarray of shape (n_bets_on,)
        Where the bins begin that evidence is about: each has some rows.
    prior : ndarray of shape (n_bets_on,)
        What the urn of `eprocess` begins with.
    """

    rows: int
    flagged: int
    tail: int
    bulk: NDArray[np.float64]
    starts: NDArray[np.intp]
    prior: NDArray[np.float64]

    @classmethod
    def of(cls, bins: PValueBins, state: DriftState) -> Reference:
        """Return the calibration rows, or those of the first runs."""
        if state.reference is None:
            flagged = bins.above if bins.flag >= 0 else -1
            widths = bins.widths.astype(np.float64)
            starts = np.arange(len(widths))
            return cls(bins.n_calibration, flagged, bins.edges[0], widths, starts, widths)
        flagged, tail, *rows = state.reference
        return cls.of_first_rows(flagged if bins.flag >= 0 else -1, tail, rows)

    @classmethod
    def of_first_rows(cls, flagged: int, tail: int, rows: Sequence[int]) -> Reference:
        """Return the first rows of a series, by those in each bulk bin."""
        bulk, starts = np.array(rows, np.float64), _starts(rows)
        prior = np.add.reduceat(bulk, starts) + 0.5 if rows else bulk
        return cls(tail + sum(rows), flagged, tail, bulk, starts, prior)

    def joined(self, bulk: NDArray[Any]) -> NDArray[np.float64]:
        """Return counts in bulk bins as those of the bins that evidence is about."""
        joined: NDArray[np.float64] = np.add.reduceat(bulk, self.starts).astype(np.float64)
        return joined


def _starts(rows: Sequence[int]) -> NDArray[np.intp]:
    """Return where bins begin that have enough rows each, if there are so many.

    Jeffreys' prior gives bins that rows never reach a probability: with many such bins,
    evidence would grow from that alone.
    """
    starts, n_rows = [0] if rows else [], 0
    for place, n in enumerate(rows):
        if n_rows >= _MIN_BIN_ROWS:
            starts.append(place)
            n_rows = 0
        n_rows += n
    if n_rows < _MIN_BIN_ROWS and len(starts) > 1:
        del starts[-1]
    return np.array(starts, np.intp)


def new_state(
    model: str,
    bins: PValueBins,
    delta: float,
    *,
    is_exact: bool,
    watched: WatchedGroups | None = None,
) -> dict[str, Any]:
    """Return the state before the first run.

    Parameters
    ----------
    model : str
        Tells the calibration from others.
    bins : PValueBins
    delta : float
        As in `DriftConfig`; it stays the same for all runs.
    is_exact : bool
        Whether calibration rows are measured as new rows are, so that runs can be tested
        against them. Otherwise against the first runs.
    watched : WatchedGroups, optional
        Where rows are divided into groups; these say what they are tested against.
    """
    n_bulk = len(bins.widths)
    state = DriftState(
        format=FORMAT, model=model, n_calibration=bins.n_calibration, alpha=bins.alpha,
        edges=list(bins.edges), delta=delta, sums=[0] * n_bulk,
        reference=None if is_exact or watched is not None else [0] * (n_bulk + 2),
    )  # fmt: skip
    if watched is not None:
        groups = GroupStates.new(watched).section(watched)
        return state.model_copy(update={"groups": groups}).model_dump(mode="json")
    return reset_wealth(state, bins).model_dump(mode="json")


def reset_wealth(state: DriftState, bins: PValueBins) -> DriftState:
    """Return a state with bets on which nothing was put yet."""
    n_bets = len(bet_exponents(Reference.of(bins, state).prior))
    return state.model_copy(update={"wealth": [None] * n_bets})


def with_reference_rows(
    state: DriftState, bins: PValueBins, counts: BinCounts
) -> DriftState:
    """Return a state with the rows of a run among those of the reference."""
    assert state.reference is not None
    more = [counts.flagged, counts.tail, *counts.bulk.tolist()]
    reference = [a + b for a, b in zip(state.reference, more, strict=True)]
    return reset_wealth(state.model_copy(update={"reference": reference}), bins)


def validate_state(
    state: Mapping[str, Any], bins: PValueBins, watched: WatchedGroups | None = None
) -> DriftState:
    """Return a state that came from a file, if it is one of these bins and groups."""
    try:
        content = dict(state)
        if (version := content.get("format", FORMAT)) != FORMAT:
            raise ValueError(f"format {version!r}, and this version knows format {FORMAT}")
        checked = DriftState.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(
            f"the state of earlier runs is damaged ({where}: {first['msg']}). {_RESET_HINT}"
        ) from None
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"this is no state of earlier runs ({error}). {_RESET_HINT}"
        ) from None
    n_bulk = len(bins.widths)
    lengths = {len(checked.sums), *(len(of_run) - 1 for of_run in checked.recent)}
    if checked.reference is not None:
        lengths.add(len(checked.reference) - 2)
    found = (checked.n_calibration, checked.alpha, tuple(checked.edges))
    wanted = (bins.n_calibration, bins.alpha, bins.edges)
    if found != wanted or lengths != {n_bulk}:
        raise ValueError(
            f"the state belongs to another model: it has {found[0]} calibration rows and "
            f"alpha={found[1]:g}, but this one {wanted[0]} and {wanted[1]:g}, or other "
            f"bins. {_RESET_HINT}"
        )
    if (checked.groups is None) != (watched is None):
        raise ValueError(
            f"the state belongs to another model: only one of the two divides rows into "
            f"groups. {_RESET_HINT}"
        )
    if checked.groups is None and len(checked.wealth) != len(
        bet_exponents(Reference.of(bins, checked).prior)
    ):
        raise ValueError(f"the state of earlier runs is damaged (wealth). {_RESET_HINT}")
    if len(checked.known) != len(checked.unseen):
        raise ValueError(f"the state of earlier runs is damaged (unseen). {_RESET_HINT}")
    return checked


def group_states(state: DriftState, watched: WatchedGroups) -> GroupStates:
    """Return what a state has of groups.

    Raises
    ------
    ValueError
        If it is damaged, or of other groups.
    """
    assert state.groups is not None
    try:
        return GroupStates.read(state.groups, watched)
    except ValueError as error:
        raise ValueError(
            f"the state of earlier runs is damaged, or of another model ({error}). "
            f"{_RESET_HINT}"
        ) from None
