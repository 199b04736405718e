r"""Test run after run whether new rows are still like those of the calibration.

    state, counts of a run --update--> Drift: verdict, intervals, new state

    invalid input         what cannot be meant: no rows, none with a p-value, or most rows
                          where hardly any should be, after runs without drift
    calibrating           the first runs, against which later ones are tested
    drift                 more or fewer small p-values than can be explained, evidence of a
                          shift of the others that is large enough to matter, or many values
                          that no nominal row has
    too few rows to test  up to 7 runs have fewer rows than `MIN_ROWS` together
    no drift              none of these

With ``calibration="conformal"`` runs are tested against the calibration rows, which are
measured as new ones are. A row that is left out of its own neighborhood has one neighbor
fewer than a new row, and a "split" measures new rows among others: their calibration rows
are no such reference, and the first runs of a series are it. One that is "drift" all the
same is not: most of its rows have small p-values, or values that no nominal row has.

Of the probability delta of a false "drift", over all runs, a third each goes to evidence
about p-values of the bulk (eprocess.py), to the share of small ones, and to unseen values.

Where rows are divided into groups, group_verdict.py tests each group against rows of its
own; unseen values are those of all rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpe_dask.monitoring.bins import BinCounts, PValueBins
from lpe_dask.monitoring.config import DEFAULT_CONFIG, N_TESTS, DriftConfig
from lpe_dask.monitoring.eprocess import (
    bet_exponents,
    log_evidence,
    log_ratios,
    update_log_wealth,
)
from lpe_dask.monitoring.group_verdict import GroupTest
from lpe_dask.monitoring.intervals import (
    LEVEL,
    beta_interval,
    clopper_pearson_interval,
    shift_between,
)
from lpe_dask.monitoring.new_values import (
    NewValueCounts,
    NominalColumn,
    clopper_pearson_lower,
    clopper_pearson_upper,
    columns_in_excess,
)
from lpe_dask.monitoring.result import Drift, NewValues
from lpe_dask.monitoring.state import (
    MAX_RUNS,
    MIN_ROWS,
    RECENT,
    Change,
    DriftState,
    Reference,
    RunRecord,
    Verdict,
    group_states,
    validate_state,
    with_reference_rows,
)
from lpe_dask.monitoring.watched_groups import WatchedGroups

#: What is said of rows of the tail, where rows are divided into groups.
_SMALL_IN_GROUPS = "are where the most anomalous nominal rows of their groups are"

#: The share of rows that are elsewhere from which on the input is invalid.
_INVALID_SHARE = 0.5


def update(
    state: Mapping[str, Any],
    bins: PValueBins,
    numbers: NDArray[np.int64],
    run: str = "",
    output: str = "",
    config: DriftConfig = DEFAULT_CONFIG,
    columns: Sequence[NominalColumn] = (),
    unseen: NewValueCounts | None = None,
    groups: tuple[WatchedGroups, NDArray[np.int64]] | None = None,
) -> Drift:
    """Return the drift of a run, with the state after it; changes no argument.

    Parameters
    ----------
    state : dict
        Of `new_state`, or of the run before.
    bins : PValueBins
    numbers : ndarray of shape (4 + n_bulk,)
        As `PValueBins.count` gives them.
    run : str, default=""
        Names the run, in sentences too. Empty: by its number.
    output : str, default=""
        Where its results are.
    config : DriftConfig
    columns : sequence of NominalColumn
        What nominal rows have in the columns that are measured.
    unseen : NewValueCounts, optional
        What the rows of the run have there; None: it is not known.
    groups : tuple of WatchedGroups and ndarray, optional
        Where rows are divided into groups: those that are tested, and the rows of the run
        in each, as `GroupBins.count` gives them.

    Raises
    ------
    ValueError
        If the state is damaged, or belongs to another calibration or alpha.

    Examples
    --------
    >>> from lpe_dask.monitoring.state import new_state
    >>> bins = PValueBins.of(np.arange(1, 1001), 0.01, 1)
    >>> state = new_state("a model", bins, delta=0.01, is_exact=True)
    >>> for day, most in [("Mon", 1001), ("Tue", 1001), ("Wed", 500)]:
    ...     drift = update(state, bins, bins.count(np.arange(1, most + 1) / 1001), day)
    ...     print(drift.verdict)
    ...     state = drift.state
    no drift
    no drift
    drift
    >>> drift.changed_since
    {'run': 'Wed', 'output': '', 'number': 3}
    """
    watched = None if groups is None else groups[0]
    before, counts = validate_state(state, bins, watched), BinCounts.of(numbers)
    of_groups = None if groups is None else _group_test(before, *groups)
    is_calibrating = (
        before.is_calibrating if of_groups is None else not of_groups.references
    )
    invalid = _invalid_reason(before, bins, counts, of_groups)
    number = before.counted_runs + (invalid is None)
    numbered = {"n_runs": before.n_runs + 1, "counted_runs": number}
    run = run or f"run {numbered['n_runs']}"
    before = before.model_copy(update=numbered)
    values: list[NewValues] = []
    if invalid is None and unseen is not None:
        before, values = _with_unseen(before, columns, unseen)
    unlike = (
        None
        if invalid
        else _early_drift_reason(before, bins, counts, config, values, of_groups)
    )
    after = before
    if invalid is None and not (unlike and is_calibrating):
        now = Change(run=run, output=output, number=number)
        if of_groups is None:
            after = _with_run(before, bins, counts, now)
        else:
            of_groups = of_groups.counted(is_reference=unlike is None)
            after = _with_groups(before, of_groups, counts, now)
    seen = _Seen.of(before, after, bins, counts, of_groups)
    excess = before.consecutive_excess_runs
    if invalid is None and seen.promised is not None:
        excess = excess + 1 if _has_excess(seen, config) else 0
    test = _Test(
        before, after, bins, counts, config, seen, of_groups, is_calibrating=is_calibrating
    )
    verdict, reason = ("invalid input", invalid) if invalid else test.verdict(unlike)
    record = RunRecord(
        run=run, output=output, verdict=verdict, reason=reason, number=number,
        rows=counts.rows, flagged_share=seen.share, flagged_between=seen.between,
        shift=seen.shift[0], recent_shift=seen.recent_shift[0],
        log10_evidence=round(after.evidence / math.log(10), 3),
    )  # fmt: skip
    runs = [*before.runs, record][-MAX_RUNS:]
    kept = after.model_copy(update={"runs": runs, "consecutive_excess_runs": excess})
    change, reference = after.change, after.reference
    n_reference = None if reference is None else sum(reference[1:])
    n_measured = counts.rows - counts.rows_nan
    in_groups = None if of_groups is None else of_groups.result(n_measured)
    return Drift(
        verdict, reason, run, number, counts.rows, counts.rows_nan, counts.flagged,
        seen.share, seen.between, bins.alpha, seen.promised, *seen.shift,
        *seen.recent_shift, record.log10_evidence,
        None if change is None else change.model_dump(), excess, bins.n_calibration,
        n_reference if in_groups is None else in_groups.reference_rows, values,
        kept.model_dump(mode="json"), in_groups,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Seen:
    """What is seen of a run: shares and their intervals.

    Attributes
    ----------
    share, between
        Of flagged rows; None without a p-value.
    promised : tuple of float, optional
        None while there is nothing to compare with.
    shift, recent_shift : tuple of float
        By how much the distribution of p-values in the bulk differs from that of the
        reference, in this run and in up to `RECENT` ones; each with its lower limit.
    """

    share: float | None
    between: tuple[float, float] | None
    promised: tuple[float, float] | None
    shift: tuple[float, float]
    recent_shift: tuple[float, float]

    @classmethod
    def of(
        cls,
        before: DriftState,
        after: DriftState,
        bins: PValueBins,
        counts: BinCounts,
        groups: GroupTest | None = None,
    ) -> _Seen:
        """Return the record of a run, which is in the state unless it is invalid."""
        share = between = promised = None
        if counts.measured > 0:
            share = counts.flagged / counts.measured
            between = clopper_pearson_interval(counts.flagged, counts.measured)
        if groups is not None:
            return cls(share, between, groups.promised(), *groups.shifts())
        if before.is_calibrating:
            return cls(share, between, promised, (0.0, 0.0), (0.0, 0.0))
        reference = Reference.of(bins, after)
        promised = beta_interval(reference.flagged, reference.rows, (1 - LEVEL) / 2)
        bulk = reference.bulk + np.array(after.sums)
        recent = sum(map(_bulk_of, after.recent), 0 * counts.bulk)
        return cls(
            share,
            between,
            promised,
            shift_between(bulk, counts.bulk),
            shift_between(bulk, recent),
        )


def _with_run(
    before: DriftState, bins: PValueBins, counts: BinCounts, now: Change
) -> DriftState:
    """Return the state after a run, without its record."""
    if before.is_calibrating:
        return with_reference_rows(before, bins, counts)
    tested = before.tested_runs + 1
    update: dict[str, Any] = {"tested_runs": tested}
    bulk, sums = counts.bulk.astype(np.float64), np.array(before.sums)
    recent = [*before.recent, [counts.tail, *counts.bulk.tolist()]]
    if before.change is None:
        reference = Reference.of(bins, before)
        earlier = sum(map(_bulk_of, before.recent), sums.astype(np.int64))
        urn = reference.prior + reference.joined(earlier)
        wealth = np.array([-np.inf if w is None else w for w in before.wealth])
        ratios = log_ratios(urn, reference.joined(bulk), bet_exponents(reference.prior))
        wealth = update_log_wealth(wealth, ratios, tested)
        evidence = float(log_evidence(wealth, tested))
        update["evidence"] = evidence
        update["wealth"] = [float(w) if w > -np.inf else None for w in wealth]
        if evidence >= math.log(N_TESTS / before.delta):
            update["change"] = now
    if len(recent) > RECENT:
        oldest, recent = recent[0], recent[1:]
        if before.change is None:  # what has changed is no longer compared with
            update["sums"] = (sums + _bulk_of(oldest)).tolist()
    return before.model_copy(update=update | {"recent": recent})


def _group_test(
    state: DriftState, watched: WatchedGroups, counts: NDArray[np.int64]
) -> GroupTest:
    """Return the test of the groups of a run."""
    states = group_states(state, watched)
    return GroupTest.of(watched, states, counts, state.delta / N_TESTS)


def _with_groups(
    before: DriftState, groups: GroupTest, counts: BinCounts, now: Change
) -> DriftState:
    """Return the state after a run whose groups are tested, without its record."""
    section, evidence = groups.after.section(groups.watched), groups.evidence
    update: dict[str, Any] = {"groups": section, "evidence": evidence}
    if groups.references:
        recent = [*before.recent, [counts.tail, *counts.bulk.tolist()]]
        update |= {"tested_runs": before.tested_runs + 1, "recent": recent[-RECENT:]}
    if before.change is None and evidence >= math.log(N_TESTS / before.delta):
        update["change"] = now
    return before.model_copy(update=update)


def _bulk_of(run: Sequence[int]) -> NDArray[np.int64]:
    """Return the rows of a recent run in bulk bins."""
    return np.array(run[1:], np.int64)


@dataclass(frozen=True, slots=True)
class _Test:
    """What decides about a run that is valid; attributes are those of `update`."""

    before: DriftState
    after: DriftState
    bins: PValueBins
    counts: BinCounts
    config: DriftConfig
    seen: _Seen
    groups: GroupTest | None
    is_calibrating: bool

    def verdict(self, unlike: str | None) -> tuple[Verdict, str | None]:
        """Return the verdict, and why it is not "no drift"; ``unlike`` may be why."""
        reasons = [unlike]
        if not self.is_calibrating:
            reasons += [self._of_small(), self._of_bulk()]
        if why := "; ".join(reason for reason in reasons if reason):
            return "drift", why
        if self.is_calibrating:
            return "calibrating", "later runs are tested against the first ones"
        n_rows = sum(map(sum, self.after.recent))
        if n_rows < MIN_ROWS:
            return "too few rows to test", f"{n_rows} rows, of at least {MIN_ROWS}"
        return "no drift", None

    def _of_bulk(self) -> str | None:
        if self.groups is not None and self.after.change is not None:
            return self.groups.has_shifted(self.config)
        shift = max(self.seen.shift[1], self.seen.recent_shift[1])
        if self.after.change is None or shift <= self.config.shift:
            return None
        return "the distribution of p-values of non-anomalous rows has shifted"

    def _of_small(self) -> str | None:
        """Return in words what small p-values prove; None for nothing.

        Those up to alpha and those before the bulk; each in two directions, with an error
        of the reference and one of the runs: the errors of all runs add up to the last.
        """
        names = (
            f"have p <= {self.bins.alpha:g}",
            f"have p-values up to {_largest_of_tail(self.bins):.2g}",
        )
        if self.groups is not None:
            return self.groups.of_small(
                self.config, self.after.tested_runs, (names[0], _SMALL_IN_GROUPS)
            )
        reference, n_rows = Reference.of(self.bins, self.before), self.counts.measured
        error = self.before.delta / N_TESTS / 8
        spent = error * 6 / (math.pi * self.after.tested_runs) ** 2
        for k, x, name in (
            (reference.flagged, self.counts.flagged, names[0]),
            (reference.tail, self.counts.tail, names[1]),
        ):
            low, high = beta_interval(k, reference.rows, error)
            most = high * (1 + self.config.tolerance) + self.config.anomalies
            if clopper_pearson_lower(x, n_rows, spent) > most:
                return (
                    f"{x / n_rows:.2%} of the rows {name}: false alarms and anomalies "
                    f"explain up to {most:.2%}"
                )
            least = low * (1 - self.config.tolerance)
            if clopper_pearson_upper(x, n_rows, spent) < least:
                return (
                    f"{x / n_rows:.2%} of the rows {name}: at least {least:.2%} were "
                    f"expected"
                )
        return None


def _with_unseen(
    state: DriftState, columns: Sequence[NominalColumn], unseen: NewValueCounts
) -> tuple[DriftState, list[NewValues]]:
    """Return a state with the values of a run, and which columns have odd ones."""
    known, of_all = unseen.known, unseen.unseen
    if len(state.known) == len(columns):
        known, of_all = known + state.known, of_all + state.unseen
    counts = [(unseen.known, unseen.unseen), (known, of_all)]
    reported = columns_in_excess(columns, counts, state.counted_runs, state.delta / N_TESTS)
    values = [
        NewValues(
            columns[place].name, int(unseen.missing[place]), int(unseen.unseen[place]),
            columns[place].rare is not None, place in reported,
        )
        for place in map(int, np.flatnonzero(unseen.missing + unseen.unseen))
    ]  # fmt: skip
    sums = {"known": known.tolist(), "unseen": of_all.tolist()}
    return state.model_copy(update=sums), values


def _early_drift_reason(
    state: DriftState,
    bins: PValueBins,
    counts: BinCounts,
    config: DriftConfig,
    values: Sequence[NewValues],
    groups: GroupTest | None = None,
) -> str | None:
    """Return in words how rows differ from nominal ones, whatever the reference is.

    That is in columns with more unseen values than anomalies explain; and in the first runs
    if most p-values are small. Those of calibration rows that are left out are no smaller
    than those of new rows, but for less than that.
    """
    error = (1 - LEVEL) / 2
    names = [
        of.column
        for of in values
        if of.is_reported
        and clopper_pearson_lower(of.unseen, counts.rows - of.missing, error)
        > config.anomalies
    ]
    if names:
        return (
            f"more than {config.anomalies:.0%} of the rows have values that no nominal row "
            f"has ({', '.join(names)})"
        )
    tail, measured = counts.tail, counts.measured
    error = state.delta / N_TESTS / 8
    spent = error * 6 / (math.pi * state.counted_runs) ** 2
    small = f"have p-values up to {_largest_of_tail(bins):.2g}, which few nominal rows have"
    if groups is None:
        is_calibrating = state.is_calibrating
        _, high = beta_interval(bins.edges[0], bins.n_calibration, error)
    else:
        is_calibrating, small = not groups.references, _SMALL_IN_GROUPS
        (tail, measured), high = groups.tail_rows(), groups.largest_tail_share(spent)
    most = max(_INVALID_SHARE, high * (1 + config.tolerance) + config.anomalies)
    if not is_calibrating or clopper_pearson_lower(tail, measured, spent) <= most:
        return None
    return f"{tail / measured:.2%} of the rows {small}"


def _largest_of_tail(bins: PValueBins) -> float:
    """Return the largest p-value below those of the bulk."""
    itself = bins.includes_self
    return (bins.edges[0] + itself) / (bins.n_calibration + itself)


def _has_excess(seen: _Seen, config: DriftConfig) -> bool:
    """Return whether more rows are flagged than promised, in a run that is tested."""
    assert seen.between is not None
    assert seen.promised is not None
    return seen.between[0] > seen.promised[1] * (1 + config.tolerance)


def _invalid_reason(
    state: DriftState,
    bins: PValueBins,
    counts: BinCounts,
    groups: GroupTest | None = None,
) -> str | None:
    """Return in words why the rows of a run cannot be meant; None if they may be."""
    rows, measured = counts.rows, counts.measured
    if rows == 0:
        return "there are no rows"
    if measured == 0:
        return f"no p-value for any of {rows:,} rows"
    were_otherwise = any(run.verdict in ("no drift", "calibrating") for run in state.runs)
    if measured < MIN_ROWS or state.is_calibrating or not were_otherwise:
        return None
    elsewhere = "more than half of the rows are where hardly any were in earlier runs"
    if groups is not None:
        return elsewhere if groups.is_elsewhere(_INVALID_SHARE) else None
    reference = Reference.of(bins, state)
    expected = np.array([reference.tail, *reference.bulk])
    shares = np.array([counts.tail, *counts.bulk]) / measured
    chance = math.sqrt(len(shares) * (1 / measured + 1 / reference.rows)) / 2
    if np.abs(shares - expected / expected.sum()).sum() / 2 - chance > _INVALID_SHARE:
        return elsewhere
    return None
