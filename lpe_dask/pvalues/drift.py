"""What is said of a night: numbers for programs, and sentences for people."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from lpe_dask.pvalues.series import RECENT, Verdict

#: Rows from which on a night may be broken input, and a rate is told instead of a number.
MIN_ROWS = 100


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
    n_calibration : int
    state : dict
        For the next night; values of JSON. Its "runs" are what is remembered of the runs up
        to this one, the oldest one first; of broken input there is no more in it than that.
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
    n_calibration: int
    state: dict[str, Any]

    def __str__(self) -> str:
        """Return all of it in sentences."""
        return self.text()

    def text(self, *, is_flagged: bool = True) -> str:
        """Return all of it in sentences.

        Parameters
        ----------
        is_flagged : bool, default=True
            Whether rows with p-values up to alpha are those that are flagged: they are not
            where a false discovery rate decides.

        Returns
        -------
        text : str
            The verdict, a colon, and sentences.
        """
        called = "flagged" if is_flagged else f"with p <= {self.promised:g}"
        return f"{self.verdict}: {'. '.join(_sentences(self, called))}."

    def as_json(self) -> dict[str, Any]:
        """Return all of it as values of JSON, and the sentences as "text"."""
        names = [field.name for field in fields(self)]
        content = {name: getattr(self, name) for name in names}
        pairs = ("flagged_between", "promised_between")
        listed = {name: content[name] and list(content[name]) for name in pairs}
        return content | listed | {"text": str(self)}


def _sentences(drift: Drift, called: str) -> list[str]:
    """Return what is to be told, and how rows with p-values up to alpha are called."""
    if drift.verdict == "broken input":
        return [f"{drift.reason}, so this night does not count", "Repair the input"]
    told = [_of_flagged(drift, called), *_of_ordinary(drift)]
    if drift.excess_nights > 1:
        told.append(
            f"more {called} than promised for {drift.excess_nights} nights in a row: "
            f"lasting anomalies, or rows of a kind that the model has not seen"
        )
    if drift.verdict == "drifting":
        reason = str(drift.reason).replace("are flagged", f"are {called}")
        told.append(f"{reason}: look at what has changed, and fit the model again")
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


def _of_flagged(drift: Drift, called: str) -> str:
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
        return f"{drift.flagged} of {n_measured} rows {called}, {promised}"
    low, high = drift.flagged_between
    return (
        f"{drift.flagged_share:.2%} {called} (between {low:.2%} and {high:.2%}), {promised}"
    )
