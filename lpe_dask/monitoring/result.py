"""The result of a drift test: numbers for programs, and sentences for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from lpe_dask.monitoring.group_state import GROUP_CALIBRATION_ROWS
from lpe_dask.monitoring.state import CALIBRATION_ROWS, MIN_ROWS, RECENT, Verdict

#: Columns that the sentences name.
_MAX_COLUMNS = 3


@dataclass(frozen=True, slots=True)
class NewValues:
    """Missing values, and values that no nominal row has, in a column.

    Attributes
    ----------
    column : str
        Its name.
    missing, unseen : int
        Rows with these.
    is_category : bool
        Whether unseen values are categories; else numbers below the least or above the
        largest nominal one.
    is_reported : bool
        Whether there are more than by chance.
    examples : tuple of str
        Some of the categories.
    """

    column: str
    missing: int
    unseen: int
    is_category: bool
    is_reported: bool
    examples: tuple[str, ...] = ()

    def sentence(self) -> str:
        """Return a sentence about the unseen values."""
        if not self.is_category:
            return f"{self.column}: {self.unseen:,} rows are outside the nominal range"
        text = f"{self.column}: {self.unseen:,} rows have values that no nominal row has"
        return f"{text}: {', '.join(self.examples)}" if self.examples else text


@dataclass(frozen=True, slots=True)
class GroupDrift:
    """What the rows of a group say.

    Attributes
    ----------
    group : str
        Its name, by the values of the columns that divide rows.
    rows, flagged : int
        Of the run, with a p-value.
    shift, shift_low : float
        As ``recent_shift`` of `Drift`, of the last 4 to 8 runs.
    log10_evidence : float
        Of a change in this group.
    p_value : float
        Of a change in this group, for all groups together (Holm).
    is_changed : bool
        Whether it is as small as delta asks for.
    """

    group: str
    rows: int
    flagged: int
    shift: float
    shift_low: float
    log10_evidence: float
    p_value: float
    is_changed: bool


@dataclass(frozen=True, slots=True)
class GroupsDrift:
    """What groups say, where rows are divided into such.

    Attributes
    ----------
    watched, not_watched : int
        Groups that are tested for drift, the largest ones, and all others.
    rows_not_tested : int
        Of the run, with a p-value: those of the others, and of unknown groups.
    ready : int
        Watched groups that have enough rows for their reference.
    changed : int
        Those that have changed, by Holm's method.
    names : str
        The names of some of these.
    reference_rows : int, optional
        Of the first runs of all groups; None: the calibration rows are the reference.
    most_evidence : list of GroupDrift
        The groups with most evidence of a change.
    """

    watched: int
    not_watched: int
    rows_not_tested: int
    ready: int
    changed: int
    names: str
    reference_rows: int | None
    most_evidence: list[GroupDrift]

    def sentences(self) -> Iterator[str]:
        """Yield the sentences about them."""
        text = f"{self.watched:,} groups are tested, each against rows of its own"
        if self.not_watched > 0:
            text += f"; the other {self.not_watched:,}, which are smaller, are not"
        yield text
        if self.rows_not_tested > 0:
            yield f"{self.rows_not_tested:,} rows of small or unknown groups are not tested"
        if self.ready < self.watched:
            yield (
                f"{self.watched - self.ready:,} of them still have fewer than "
                f"{GROUP_CALIBRATION_ROWS} rows to test others against"
            )
        if self.changed > 0:
            yield f"evidence of a change in {self.names}"


@dataclass(frozen=True, slots=True)
class Drift:
    """What the rows of a run say, after those of earlier runs.

    Attributes
    ----------
    verdict : {"no drift", "drift", "invalid input", "too few rows to test", "calibrating"}
        What `lpe_dask.drift` says of these.
    reason : str, optional
        Why it is not "no drift".
    run : str
        Its name.
    number : int
        Runs that count, with this one if it does.
    rows, rows_nan, flagged : int
        Of this run: all rows, those without a p-value, and those with ``p <= alpha``.
    flagged_share : float, optional
        Of the rows with a p-value; None if there are none.
    flagged_between : tuple of float, optional
        Its Clopper-Pearson interval, at 95 %.
    promised : float
        The rate of false alarms that is promised: alpha.
    promised_between : tuple of float, optional
        The 95 % interval of the rate of false alarms of this calibration; where the first
        runs are the reference, of the share that is flagged in runs like these. None while
        there are too few.
    shift, shift_low : float
        By how much the distribution of p-values of rows that are not anomalous differs from
        that of the reference and earlier runs: the share that ranks elsewhere, about, and
        its lower limit, at 95 %.
    recent_shift, recent_shift_low : float
        The same for the last 7 runs together.
    log10_evidence : float
        Of a change of these; it takes 3 / delta.
    changed_since : dict, optional
        The "run", "output" and "number" from which on there is evidence of a change.
    consecutive_excess_runs : int
        Runs, up to this one, with more flagged rows than promised.
    n_calibration : int
        Calibration rows of the model.
    reference_rows : int, optional
        Of the first runs that later ones are tested against. None: the calibration rows are
        what runs are tested against.
    unseen_values : list of NewValues
        Of columns that have any in this run.
    state : dict
        For the next run; values of JSON. Its "runs" are what is remembered of the runs up
        to this one, the oldest one first; of invalid input there is only that in it.
    groups : GroupsDrift, optional
        Where the model divides rows into groups: ``shift`` and ``recent_shift`` then
        compare with what is expected of as many rows of each group.
    """

    verdict: Verdict
    reason: str | None
    run: str
    number: int
    rows: int
    rows_nan: int
    flagged: int
    flagged_share: float | None
    flagged_between: tuple[float, float] | None
    promised: float
    promised_between: tuple[float, float] | None
    shift: float
    shift_low: float
    recent_shift: float
    recent_shift_low: float
    log10_evidence: float
    changed_since: dict[str, Any] | None
    consecutive_excess_runs: int
    n_calibration: int
    reference_rows: int | None
    unseen_values: list[NewValues]
    state: dict[str, Any]
    groups: GroupsDrift | None = None

    def __str__(self) -> str:
        """Return all of it in sentences."""
        return f"{self.verdict}: {'. '.join(_sentences(self))}."

    def as_json(self) -> dict[str, Any]:
        """Return all of it as values of JSON, and the sentences as "text"."""
        content = asdict(self)
        pairs = ("flagged_between", "promised_between")
        listed = {name: content[name] and list(content[name]) for name in pairs}
        values = [of | {"examples": [*of["examples"]]} for of in content["unseen_values"]]
        return content | listed | {"unseen_values": values, "text": str(self)}


def with_examples(drift: Drift, examples: Callable[[str], Sequence[str]]) -> Drift:
    """Return the same result with examples of categories that no nominal row has.

    Parameters
    ----------
    examples : callable
        Of the name of a column; asked for those that are reported.
    """
    values = [
        replace(of, examples=tuple(examples(of.column)))
        if of.is_reported and of.is_category and of.unseen > 0
        else of
        for of in drift.unseen_values
    ]
    return replace(drift, unseen_values=values)


def _sentences(drift: Drift) -> Iterator[str]:
    """Yield all sentences."""
    if drift.verdict == "invalid input":
        yield _sentence(str(drift.reason))
        yield "This run is excluded from the drift test"
        return
    yield _of_alarms(drift)
    yield from _of_unseen(drift)
    yield from map(_sentence, _of_bulk(drift))
    if drift.groups is not None:
        yield from map(_sentence, drift.groups.sentences())
    if drift.consecutive_excess_runs > 1:
        than = "promised" if drift.reference_rows is None else "in the first runs"
        yield (
            f"More such rows than {than} in {drift.consecutive_excess_runs} runs in a row: "
            f"lasting anomalies, or rows of a kind that the model has not seen"
        )
    if drift.verdict == "drift":
        reason = _sentence(str(drift.reason))
        yield f"{reason}. Look at what has changed, and fit the model again"
    if drift.verdict == "too few rows to test":
        yield (
            f"Up to {RECENT} runs have {drift.reason}: too few to say that nothing changed"
        )


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _of_unseen(drift: Drift) -> list[str]:
    """Return which columns have more unseen values than by chance."""
    columns = [of for of in drift.unseen_values if of.is_reported and of.unseen > 0]
    texts = [of.sentence() for of in columns[:_MAX_COLUMNS]]
    if (n_more := len(columns) - _MAX_COLUMNS) > 0:
        texts.append(f"{n_more} more columns have such values")
    return texts


def _of_bulk(drift: Drift) -> list[str]:
    """Return whether p-values above those of anomalies have shifted, and since when."""
    if drift.verdict == "drift" and drift.promised_between is None:
        return ["later runs are not tested against this one"]
    if drift.verdict == "calibrating" or drift.promised_between is None:
        if drift.groups is not None:
            return ["later runs are tested against the first rows of each group"]
        if (drift.reference_rows or 0) >= CALIBRATION_ROWS:
            return [f"later runs are tested against these {drift.reference_rows:,} rows"]
        return [
            f"later runs are tested against the first ones, which have "
            f"{drift.reference_rows:,} rows so far, of at least {CALIBRATION_ROWS:,}"
        ]
    if not drift.state["wealth"] and drift.groups is None:
        return ["too few distinct p-values to test for a shift"]
    shift = (
        f"the distribution of p-values of non-anomalous rows differs by "
        f"{drift.shift:.2%} in this run"
    )
    if drift.shift_low > 0:
        shift += f" (with 95% confidence by at least {drift.shift_low:.2%})"
    if len(drift.state["recent"]) > 1:
        n_recent = len(drift.state["recent"])
        runs = f"the last {n_recent} runs" if drift.groups is None else "recent runs"
        shift += f", by {drift.recent_shift:.2%} in {runs}"
    since = drift.changed_since
    if since is None:
        return [shift, "no evidence of a change"]
    small = ", by less than what is tolerated" if drift.verdict == "no drift" else ""
    return [shift, f"evidence of a change since {since['run']}{small}"]


def _of_alarms(drift: Drift) -> str:
    """Return the share of p-values up to alpha beside what is promised."""
    level = f"have p <= {drift.promised:g}"
    promised = f"{drift.promised:.2%} promised"
    if drift.promised_between is not None:
        low, high = (f"{end:.2%}" for end in drift.promised_between)
        if drift.reference_rows is None:
            rows = f"{drift.n_calibration:,} calibration rows"
            promised += f" (95% interval by {rows}: {low} to {high})"
        else:
            rows = f"{drift.reference_rows:,} rows"
            promised += f", {low} to {high} by the first runs (95% interval, {rows})"
    n_measured = drift.rows - drift.rows_nan
    assert drift.flagged_between is not None  # or the input is invalid
    if n_measured < MIN_ROWS:
        return f"{drift.flagged} of {n_measured} rows {level}, {promised}"
    low, high = (f"{end:.2%}" for end in drift.flagged_between)
    return f"{drift.flagged_share:.2%} {level} (95% interval: {low} to {high}), {promised}"
