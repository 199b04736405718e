r"""Judge night after night whether new rows are still like those of the calibration.

    state, counts of a night --update--> Drift: verdict, intervals, new state

    broken input   too few rows have a p-value, or most are where nearly none should be
    drifting       more or fewer rows are flagged than can be explained, or there is
                   evidence of a change of ordinary rows, and it is large enough to matter
    fits           neither

Of the probability delta of a false "drifting", over all nights, half goes to evidence about
ordinary rows (evidence.py), and half to the flagged share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from scipy import stats

from lpe_dask.pvalues.cells import Cells, Counts
from lpe_dask.pvalues.evidence import after_night, bets, log_evidence, log_ratios

#: The version of the format of a state.
FORMAT = 1

#: Nights that together carry the size of a change; runs that a state remembers.
RECENT, REMEMBERED = 7, 400

#: Rows from which on a night may be broken input, and a rate is told instead of a number.
MIN_ROWS = 100

#: The share of rows that are elsewhere from which on the input is broken.
_BROKEN_SHARE = 0.5

#: Level of the intervals that are told.
LEVEL = 0.95

_ANEW = "Start anew (state=None)."

Verdict = Literal["fits", "drifting", "broken input"]

# A state comes from a file: what it holds must be fit to compute with.
_Rows = Annotated[int, Field(ge=0, le=2**53)]  # as float64 holds exactly
_Nights = Annotated[int, Field(ge=0, le=10**9)]


@dataclass(frozen=True, slots=True)
class Tolerances:
    """What counts as drift.

    Attributes
    ----------
    delta : float
        The probability of a false verdict "drifting", over all nights of a model.
    tolerance : float
        By which share more, or fewer, rows than promised may be flagged.
    anomalies : float
        The share of rows that may be anomalies, beside false alarms.
    moved : float
        The share of ordinary rows that may rank elsewhere.
    nan_limit : float
        The share of rows that may have no p-value.
    """

    delta: float = 0.01
    tolerance: float = 0.25
    anomalies: float = 0.05
    moved: float = 0.02
    nan_limit: float = 0.1

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self)):
            value = getattr(self, name)
            most = math.inf if name == "tolerance" else 1
            least = math.ulp(0.0) if name == "delta" else 0
            if isinstance(value, bool) or not isinstance(value, int | float | np.number):
                raise ValueError(f"{name}={value!r} must be a number.")
            if not least <= value < most:
                above = "above 0" if name == "delta" else "of at least 0"
                below = "" if most == math.inf else " and below 1"
                raise ValueError(f"{name}={value!r} must be a number {above}{below}.")


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Change(_Section):
    """The night from which on there is evidence of a change."""

    run: str
    output: str
    night: _Nights


class Night(_Section):
    """What a state remembers of a run: what was said of it, to say it again.

    ``moved`` and ``moved_low`` are of the last 7 nights together.
    """

    run: str
    output: str
    verdict: Verdict
    reason: str | None
    night: _Nights
    rows: _Rows
    flagged_share: float | None
    flagged_between: tuple[float, float] | None
    moved: float
    moved_low: float
    moved_tonight: tuple[float, float]
    log10_evidence: float
    excess_nights: _Nights


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


@dataclass(frozen=True, slots=True)
class Drift:
    """What the rows of a night say, after those of earlier nights.

    Attributes
    ----------
    verdict : {"fits", "drifting", "broken input"}
    reason : str, optional
        Why it is not "fits".
    run : str
    night : int
        Nights that are counted, with this one if it is.
    rows, rows_nan, flagged : int
    flagged_share : float, optional
        Of the rows with a p-value; None if there are none.
    flagged_between : tuple of float, optional
        Its Clopper-Pearson interval, at 95 %.
    promised : float
        alpha.
    promised_between : tuple of float
        Where the rate of false alarms of this calibration lies, at 95 %.
    moved, moved_low : float
        The share of ordinary rows that rank elsewhere, about, and its lower limit.
    moved_week, moved_week_low : float
        The same for the last 7 nights together.
    log10_evidence : float
        Of a change of ordinary rows; it takes 2 / delta.
    changed_since : dict, optional
        The "run", "output" and "night" from which on there is evidence of a change.
    excess_nights : int
        Nights in a row, up to this one, with more flagged rows than promised.
    is_counted : bool
        Whether the night is in the new state.
    is_replay : bool
        Whether it was in the state before.
    n_calibration : int
    state : dict
        For the next night; values of JSON.
    """

    verdict: Verdict
    reason: str | None
    run: str
    night: int
    rows: int
    rows_nan: int
    flagged: int
    flagged_share: float | None
    flagged_between: tuple[float, float] | None
    promised: float
    promised_between: tuple[float, float]
    moved: float
    moved_low: float
    moved_week: float
    moved_week_low: float
    log10_evidence: float
    changed_since: dict[str, Any] | None
    excess_nights: int
    is_counted: bool
    is_replay: bool
    n_calibration: int
    state: dict[str, Any]

    def __str__(self) -> str:
        """Return all of it in sentences."""
        return f"{self.verdict}: {'. '.join(_sentences(self))}."

    def as_json(self) -> dict[str, Any]:
        """Return all but the state as values of JSON, and the sentences as "text"."""
        names = [field.name for field in fields(self) if field.name != "state"]
        content = {name: getattr(self, name) for name in names}
        pairs = ("flagged_between", "promised_between")
        listed = {name: content[name] and list(content[name]) for name in pairs}
        return content | listed | {"text": str(self)}

    def history(self, last: int = 200) -> list[dict[str, Any]]:
        """Return what is remembered of the last runs, the oldest one first."""
        runs: list[dict[str, Any]] = self.state["runs"]
        return runs[max(0, len(runs) - last) :]


def phi_of(calibration: str, n_neighbors: int | None) -> float:
    """Return by how much calibration rows are to be divided, to count as independent ones.

    Rows share neighbors, so that the share of new rows in a cell varies more from model to
    model than independent rows would make it. How much more was simulated: not at all for
    "conformal"; up to 2 times for "loo"; about K times, and at least 2, for "split". Counts
    within a radius have no K: with "split", up to 108 times, for medians of 2 to 1153 rows
    within it, and no false alarm in 316 models with 100, which is what is taken.

    Parameters
    ----------
    calibration : {"loo", "split", "conformal"}
    n_neighbors : int, optional
        K; None for counts within a radius.

    Examples
    --------
    >>> phi_of("conformal", 5), phi_of("loo", 5), phi_of("split", 5), phi_of("split", 1)
    (1.0, 2.0, 5.0, 2.0)
    """
    if calibration == "split":
        return float(max(2, n_neighbors or 100))
    return {"conformal": 1.0, "loo": 2.0}[calibration]


def share_between(n_flagged: int, n_rows: int, level: float = LEVEL) -> tuple[float, float]:
    """Return the Clopper-Pearson interval of a share.

    Examples
    --------
    >>> [round(end, 4) for end in share_between(5, 100)]
    [0.0164, 0.1128]
    """
    error = (1 - level) / 2
    return _low(n_flagged, n_rows, error), _high(n_flagged, n_rows, error)


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


def update(
    state: Mapping[str, Any],
    cells: Cells,
    numbers: NDArray[np.int64],
    run: str,
    output: str = "",
    tolerances: Tolerances = Tolerances(),
) -> Drift:
    """Return what a night says, and the state after it; changes nothing that is given.

    Parameters
    ----------
    state : dict
        Of `new_state`, or of the night before.
    cells : Cells
    numbers : ndarray of shape (5 + n_bulk,)
        As `Cells.count` gives them.
    run : str
        Tells the night from others: one that is known changes nothing.
    output : str, default=""
        Where its results are: another run with the same one is judged, but not counted,
        unless the input of that one was broken.
    tolerances : Tolerances

    Raises
    ------
    ValueError
        If the state is damaged, or belongs to another calibration or alpha.

    Examples
    --------
    >>> cells = Cells.of(np.arange(1, 1001), 0.01, 0)
    >>> state = new_state("a model", cells, phi_of("loo", 5), delta=0.01)
    >>> for run, most in enumerate([1000, 1000, 500]):
    ...     drift = update(state, cells, cells.count(np.arange(most) / 1000), str(run))
    ...     print(drift.verdict)
    ...     state = drift.state
    fits
    fits
    drifting
    >>> drift.changed_since
    {'run': '2', 'output': '', 'night': 3}
    """
    before, counts = _checked(state, cells), Counts.of(numbers)
    known = next((night for night in before.runs if night.run == run), None)
    if known is not None:
        return _drift(known, before, before, cells, counts, is_replay=True)
    counted = [night for night in before.runs if night.verdict != "broken input"]
    is_taken = any(output and night.output == output for night in counted)
    broken = _why_broken(cells, counts, tolerances)
    after, excess = before, before.excess_nights
    if broken is None:
        after = _with_night(before, cells, counts, Change(run=run, output=output, night=0))
    seen = _Seen.of(after, cells, counts)
    if broken is None:
        excess = excess + 1 if _has_excess(seen, tolerances) else 0
    verdict, reason = _verdict(seen, after, cells, counts, tolerances, broken)
    night = Night(
        run=run, output=output, verdict=verdict, reason=reason, night=after.nights,
        rows=counts.rows, flagged_share=seen.share, flagged_between=seen.between,
        moved=seen.week[0], moved_low=seen.week[1], moved_tonight=seen.night,
        log10_evidence=round(after.evidence / math.log(10), 3), excess_nights=excess,
    )  # fmt: skip
    kept = before
    if not is_taken:
        runs = [*before.runs, night][-REMEMBERED:]
        kept = after.model_copy(update={"runs": runs, "excess_nights": excess})
    return _drift(night, after, kept, cells, counts)


def _drift(
    night: Night,
    after: State,
    kept: State,
    cells: Cells,
    counts: Counts,
    *,
    is_replay: bool = False,
) -> Drift:
    """Return what is said of a night, with the state to keep."""
    change = after.change
    if change is not None and change.night > night.night:  # not yet, when it was said
        change = None
    return Drift(
        night.verdict, night.reason, night.run, night.night, night.rows, counts.rows_nan,
        counts.flagged, night.flagged_share, night.flagged_between, cells.alpha,
        _promise(cells, after.phi, (1 - LEVEL) / 2), *night.moved_tonight, night.moved,
        night.moved_low, night.log10_evidence,
        None if change is None else change.model_dump(), night.excess_nights,
        not is_replay and night in kept.runs, is_replay, cells.n_calibration,
        kept.model_dump(mode="json"),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Seen:
    """What is seen of a night: shares and their intervals.

    Attributes
    ----------
    share, between
        Of flagged rows; None without a p-value.
    promised : tuple of float
    night, week : tuple of float
        The share of ordinary rows that rank elsewhere, and its lower limit.
    """

    share: float | None
    between: tuple[float, float] | None
    promised: tuple[float, float]
    night: tuple[float, float]
    week: tuple[float, float]

    @classmethod
    def of(cls, state: State, cells: Cells, counts: Counts) -> _Seen:
        """Return what is seen of a night, which is in the state unless it is broken."""
        reference = cells.widths / state.phi + np.array(state.sums)
        week = sum(map(np.array, state.recent), 0 * counts.bulk)
        share = between = None
        if counts.measured > 0:
            share = counts.flagged / counts.measured
            between = share_between(counts.flagged, counts.measured)
        return cls(
            share, between, _promise(cells, state.phi, (1 - LEVEL) / 2),
            _moved(reference, counts.bulk), _moved(reference, week),
        )  # fmt: skip


def _checked(state: Mapping[str, Any], cells: Cells) -> State:
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


def _with_night(before: State, cells: Cells, counts: Counts, now: Change) -> State:
    """Return the state after a night, without its run."""
    night, bulk = before.nights + 1, counts.bulk.astype(np.float64)
    update: dict[str, Any] = {"nights": night}
    sums, recent = np.array(before.sums), [*before.recent, counts.bulk.tolist()]
    if before.change is None:
        urn = cells.widths / before.phi + sum(map(np.array, before.recent), sums)
        wealth = np.array([-np.inf if w is None else w for w in before.wealth])
        ratios = log_ratios(urn, bulk, bets(cells.widths))
        wealth = after_night(wealth, ratios, night)
        evidence = float(log_evidence(wealth, night))
        update["evidence"] = evidence
        update["wealth"] = [float(w) if w > -np.inf else None for w in wealth]
        if evidence >= math.log(2 / before.delta):
            update["change"] = now.model_copy(update={"night": night})
    if len(recent) > RECENT:
        oldest, recent = recent[0], recent[1:]
        if before.change is None:  # what has changed is no longer compared with
            update["sums"] = (sums + oldest).tolist()
    return before.model_copy(update=update | {"recent": recent})


def _verdict(
    seen: _Seen,
    state: State,
    cells: Cells,
    counts: Counts,
    tolerances: Tolerances,
    broken: str | None,
) -> tuple[Verdict, str | None]:
    """Return the verdict on a night, and why it is not "fits"."""
    if broken is not None:
        return "broken input", broken
    reasons = []
    if (why := _why_flagged(state, cells, counts, tolerances)) is not None:
        reasons.append(why)
    has_moved = max(seen.night[1], seen.week[1]) > tolerances.moved
    if state.change is not None and has_moved:
        reasons.append("ordinary rows rank elsewhere than nominal ones")
    if reasons:
        return "drifting", "; ".join(reasons)
    return "fits", None


def _why_flagged(
    state: State, cells: Cells, counts: Counts, tolerances: Tolerances
) -> str | None:
    """Return in words what flagged rows prove, with the rest of delta; None for nothing."""
    error, n_rows = state.delta / 8, counts.measured
    spent = error * 6 / (math.pi * max(1, state.nights)) ** 2  # their sum is the error
    low, high = _promise(cells, state.phi, error)
    most = high * (1 + tolerances.tolerance) + tolerances.anomalies
    if _low(counts.flagged, n_rows, spent) > most:
        return f"more rows are flagged than {most:.2%}, which could be explained"
    least = low * (1 - tolerances.tolerance)
    if n_rows > 0 and _high(counts.flagged, n_rows, spent) < least:
        return f"fewer rows are flagged than {least:.2%}"
    return None


def _has_excess(seen: _Seen, tolerances: Tolerances) -> bool:
    if seen.between is None:
        return False
    return seen.between[0] > seen.promised[1] * (1 + tolerances.tolerance)


def _why_broken(cells: Cells, counts: Counts, tolerances: Tolerances) -> str | None:
    """Return in words why a night is no input of this model; None if it may be."""
    rows, measured = counts.rows, counts.measured
    if rows == 0:
        return "there are no rows"
    if rows >= MIN_ROWS and counts.rows_nan > tolerances.nan_limit * rows:
        return (
            f"{counts.rows_nan / rows:.0%} of the rows have no p-value, and "
            f"{tolerances.nan_limit:.0%} may have none"
        )
    if measured < MIN_ROWS:
        return None
    shares = np.array([counts.tail, *counts.bulk]) / measured
    promised = np.diff([-1, *cells.edges]) / (cells.n_calibration + 1)
    chance = math.sqrt(len(shares) * (1 / measured + 1 / cells.n_calibration)) / 2
    if np.abs(shares - promised).sum() / 2 - chance > _BROKEN_SHARE:
        return "more than half of the rows are where nominal rows hardly ever are"
    return None


def _moved(reference: NDArray[np.float64], bulk: NDArray[np.int64]) -> tuple[float, float]:
    """Return the share of rows that rank elsewhere, and its lower limit.

    The largest difference of the distribution functions of the two; the limit is two
    standard deviations below, for each.
    """
    if len(bulk) < 2 or bulk.sum() == 0:
        return 0.0, 0.0
    n_new, n_old = bulk.sum(), reference.sum()
    new, old = np.cumsum(bulk)[:-1], np.cumsum(reference)[:-1]
    gaps, pooled = np.abs(new / n_new - old / n_old), (new + old) / (n_new + n_old)
    deviation = np.sqrt(pooled * (1 - pooled) * (1 / n_new + 1 / n_old))
    return float(gaps.max()), max(0.0, float((gaps - 2 * deviation).max()))


def _promise(cells: Cells, phi: float, error: float) -> tuple[float, float]:
    """Return the interval of the rate of false alarms of this one calibration.

    It is distributed as Beta; with ties between two such laws.
    """
    if cells.flag < 0:
        return 0.0, 0.0
    m, k = cells.n_calibration, cells.above  # k < m, as alpha < 1
    low = float(stats.beta.ppf(error, k / phi, (m + 1 - k) / phi)) if k > 0 else 0.0
    return low, float(stats.beta.isf(error, (k + 1) / phi, (m - k) / phi))


def _low(x: int, n: int, error: float) -> float:
    return float(stats.beta.ppf(error, x, n - x + 1)) if x > 0 else 0.0


def _high(x: int, n: int, error: float) -> float:
    return float(stats.beta.isf(error, x + 1, n - x)) if x < n else 1.0


def _sentences(drift: Drift) -> list[str]:
    """Return what is to be told of a night."""
    if drift.verdict == "broken input":
        return [f"{drift.reason}, so this night does not count", "Repair the input"]
    told = [_of_flagged(drift), *_of_ordinary(drift)]
    if drift.excess_nights > 1:
        told.append(
            f"more flagged than promised for {drift.excess_nights} nights in a row: "
            f"lasting anomalies, or rows of a kind that the model has not seen"
        )
    if drift.verdict == "drifting":
        told.append(f"{drift.reason}: look at what has changed, and fit the model again")
    return [sentence[0].upper() + sentence[1:] for sentence in told]


def _of_ordinary(drift: Drift) -> list[str]:
    """Return whether ordinary rows have changed, by how much, and since when."""
    if not drift.state["wealth"]:
        return ["p-values are too few different ones to tell whether ordinary rows change"]
    moved = (
        f"of the ordinary rows {drift.moved_week:.2%} rank elsewhere, at least "
        f"{drift.moved_week_low:.2%}, in up to {RECENT} nights"
    )
    since = drift.changed_since
    if since is None:
        return [moved, "no evidence of a change of ordinary rows"]
    where = since["output"] or since["run"]
    small = ", by less than what is tolerated" if drift.verdict == "fits" else ""
    return [moved, f"evidence of a change since {where} (night {since['night']}){small}"]


def _of_flagged(drift: Drift) -> str:
    """Return the realised share of flagged rows beside what is promised."""
    low, high = drift.promised_between
    promised = (
        f"{drift.promised:.2%} promised (with {drift.n_calibration:,} calibration rows "
        f"between {low:.2%} and {high:.2%})"
    )
    n_measured = drift.rows - drift.rows_nan
    if drift.flagged_share is None or drift.flagged_between is None:
        return f"no row has a p-value, {promised}"
    if n_measured < MIN_ROWS:
        return f"{drift.flagged} of {n_measured} rows flagged, {promised}"
    low, high = drift.flagged_between
    return (
        f"{drift.flagged_share:.2%} flagged (between {low:.2%} and {high:.2%}), {promised}"
    )
