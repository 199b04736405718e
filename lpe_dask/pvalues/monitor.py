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
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from lpe_dask.pvalues.cells import Cells, Counts
from lpe_dask.pvalues.drift import MIN_ROWS, Drift
from lpe_dask.pvalues.evidence import after_night, bets, log_evidence, log_ratios
from lpe_dask.pvalues.series import (
    RECENT,
    REMEMBERED,
    Change,
    Night,
    State,
    Verdict,
    checked_state,
)
from lpe_dask.pvalues.tolerances import USUAL, Tolerances

#: The share of rows that are elsewhere from which on the input is broken.
_BROKEN_SHARE = 0.5

#: Level of the intervals that are told.
LEVEL = 0.95


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


def share_between(n_flagged: int, n_rows: int) -> tuple[float, float]:
    """Return the Clopper-Pearson interval of a share.

    Examples
    --------
    >>> [round(end, 4) for end in share_between(5, 100)]
    [0.0164, 0.1128]
    """
    error = (1 - LEVEL) / 2
    return _low(n_flagged, n_rows, error), _high(n_flagged, n_rows, error)


def update(
    state: Mapping[str, Any],
    cells: Cells,
    numbers: NDArray[np.int64],
    run: str,
    output: str = "",
    tolerances: Tolerances = USUAL,
) -> Drift:
    """Return what a night says, and the state after it; changes nothing that is given.

    Parameters
    ----------
    state : dict
        Of `new_state`, or of the night before.
    cells : Cells
    numbers : ndarray of shape (4 + n_bulk,)
        As `Cells.count` gives them.
    run : str
        Names the night.
    output : str, default=""
        Where its results are.
    tolerances : Tolerances

    Raises
    ------
    ValueError
        If the state is damaged, or belongs to another calibration or alpha.

    Examples
    --------
    >>> from lpe_dask.pvalues import Cells, new_state, phi_of
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
    before, counts = checked_state(state, cells), Counts.of(numbers)
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
        moved=seen.week[0], log10_evidence=round(after.evidence / math.log(10), 3),
    )  # fmt: skip
    runs = [*before.runs, night][-REMEMBERED:]
    kept = after.model_copy(update={"runs": runs, "excess_nights": excess})
    change = after.change
    return Drift(
        verdict, reason, run, night.night, night.rows, counts.rows_nan, counts.flagged,
        seen.share, seen.between, cells.alpha, seen.promised, *seen.night, *seen.week,
        night.log10_evidence, None if change is None else change.model_dump(), excess,
        cells.n_calibration, kept.model_dump(mode="json"),
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
