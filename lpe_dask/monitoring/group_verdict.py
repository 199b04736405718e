r"""Test the groups of a run for drift, each against its own reference.

    state of groups, counts of a run --GroupTest.of--> evidence of each group, and its state
    evidence of groups --mean--> evidence of a change
                       --Holm--> the groups that have changed

Which groups the rows of a run are of says nothing of drift: all is tested given how many
rows each group has in each run. Evidence :math:`M_g` of a group g is then a martingale that
begins at 1, whatever the other groups do, and so is the mean over G groups: it reaches
1 / delta with a probability of at most delta. All groups have the same weight. A group with
many rows gathers evidence as fast as it has rows, so that a factor of G is hardly felt
there; with weights by size small groups would have a much larger one.

By Ville's inequality the largest evidence so far is the reciprocal of a p-value, and Holm's
method says which groups have changed: if it names one, the mean is above 1 / delta, too.

Small p-values have limits as those of all rows have, in each group and in all together:
see share_limits.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from lpe_dask.monitoring.bins import MAX_BULK
from lpe_dask.monitoring.config import DriftConfig
from lpe_dask.monitoring.eprocess import (
    bet_exponents,
    log_evidence,
    log_ratios,
    update_log_wealth,
)
from lpe_dask.monitoring.group_state import BLOCK, GroupStates, rounded_down
from lpe_dask.monitoring.intervals import LEVEL, shift_between
from lpe_dask.monitoring.result import GroupDrift, GroupsDrift
from lpe_dask.monitoring.share_limits import ShareLimits, mean_limits
from lpe_dask.monitoring.state import Reference
from lpe_dask.monitoring.watched_groups import WatchedGroups
from lpe_dask.pvalues import holm

#: Groups that a result has of their own, and that sentences name.
_N_LARGEST, _N_NAMED = 20, 3


@dataclass(frozen=True, slots=True, eq=False)
class GroupTest:
    """The groups of a run.

    Attributes
    ----------
    watched : WatchedGroups
    before, after : GroupStates
    counts : ndarray of shape (n_watched, N_GROUP_BINS)
        Rows of the run, as `GroupBins.count` gives them.
    references : dict
        Of groups that are tested, by their places: what each is tested against.
    error : float
        The probability that evidence ever leads to a false verdict; likewise for small
        p-values.
    """

    watched: WatchedGroups
    before: GroupStates
    after: GroupStates
    counts: NDArray[np.int64]
    references: dict[int, Reference]
    error: float

    @classmethod
    def of(
        cls,
        watched: WatchedGroups,
        before: GroupStates,
        counts: NDArray[np.int64],
        error: float,
    ) -> GroupTest:
        """Return the test of a run, which is not in the state yet."""
        places = map(int, np.flatnonzero(before.is_ready))
        references = {place: _reference(watched, before, place) for place in places}
        return cls(watched, before, before, counts, references, error)

    def counted(self, *, is_reference: bool) -> GroupTest:
        """Return the test with the run in the state.

        ``is_reference`` says whether groups that are not tested yet have their first rows
        in it.
        """
        before, after = self.before, self.before
        if before.reference is not None and is_reference:
            more = np.where(before.is_ready[:, None], 0, self.counts)
            after = replace(after, reference=before.reference + more)
        sums, recent, runs = before.sums.copy(), before.recent.copy(), before.runs.copy()
        wealth, evidence = before.wealth.copy(), before.evidence.copy()
        # That of one group is enough by itself: later rows of it are not learned from.
        enough = math.log(len(self.watched) / self.error) if len(self.watched) else 0.0
        for place, reference in self.references.items():
            if not (counts := self.counts[place]).any():
                continue
            bulk, is_open = counts[2:], before.evidence[place, 1] < enough
            if is_open:
                known = before.sums[place] + before.recent[place].sum(axis=0)
                runs[place, 0] += 1
                given = reference, known, bulk, wealth[place], int(runs[place, 0])
                evidence[place, 0] = _bet(*given)
                evidence[place, 1] = max(evidence[place])
            if runs[place, 1] == BLOCK:
                sums[place] += recent[place, 0] * is_open
                recent[place] = [recent[place, 1], 0 * bulk]
                runs[place, 1] = 0
            recent[place, 1] += bulk
            runs[place, 1] += 1
        after = replace(
            after, sums=sums, recent=recent, runs=runs, wealth=wealth, evidence=evidence
        )
        return replace(self, after=after)

    @property
    def evidence(self) -> float:
        """The logarithm of the evidence of a change in any group."""
        logs = self.after.evidence[:, 0]
        return float(np.logaddexp.reduce(logs) - math.log(len(logs))) if len(logs) else 0.0

    @property
    def _tested(self) -> NDArray[np.int64]:
        """The places of the groups that are tested and have rows in the run."""
        places = [p for p in self.references if self.counts[p].any()]
        return np.array(places, np.int64)

    def is_elsewhere(self, share: float) -> bool:
        """Return whether more than a share of the rows is where few were before."""
        places = self._tested
        rows = np.c_[self.counts[places, :2].sum(axis=1), self.counts[places, 2:]]
        known = [self.references[int(place)] for place in places]
        before = np.array([_padded(of, of.bulk, of.tail) for of in known])
        expected, seen = _mixed(before.reshape(rows.shape), rows)
        if expected.sum() == 0:
            return False
        chance = math.sqrt(rows.shape[1] * (1 / seen.sum() + 1 / expected.sum())) / 2
        gaps = np.abs(seen / seen.sum() - expected / expected.sum())
        return bool(gaps.sum() / 2 - chance > share)

    def promised(self) -> tuple[float, float] | None:
        """Return the interval of the flagged share of such groups; None: unknown."""
        places = self._tested
        if len(places) == 0:
            return None
        n, known = self.counts[places].sum(axis=1), self._known(places)
        shares, m = (known[:, 0] + 0.5) / (known[:, 2] + 1), known[:, 2]
        weights = n / n.sum()
        deviation = math.sqrt(weights**2 @ (shares * (1 - shares) / (m + 2)))
        half = float(-ndtri((1 - LEVEL) / 2)) * deviation
        middle = float(weights @ shares)
        return max(0.0, middle - half), min(1.0, middle + half)

    def shifts(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return the shift of the run and of recent ones, each with its lower limit.

        They compare with what is expected of as many rows of each group.
        """
        if not self.references:
            return (0.0, 0.0), (0.0, 0.0)
        places = np.array(list(self.references))
        before = np.array([self._earlier(int(place)) for place in places])
        bulk = self.counts[places, 2:], self.after.recent[places].sum(axis=1)
        run, recent = (shift_between(*_mixed(before, rows)) for rows in bulk)
        return run, recent

    def has_shifted(self, config: DriftConfig) -> str | None:
        """Return in words that rows have shifted by so much that it matters, or None.

        Those of all groups, or of one that has by itself as much evidence as all need.
        """
        of_all = max(low for _, low in self.shifts()) > config.shift
        has_much = self.after.evidence[:, 1] >= -math.log(self.error)
        places = [
            place
            for place in map(int, np.flatnonzero(has_much))
            if max(low for _, low in self._shifts_of(place)) > config.shift
        ]
        if not of_all and not places:
            return None
        names = self._in_words([p for p in self._named() if p in places])
        where = f" ({names})" if names else ""
        return f"the distribution of p-values of non-anomalous rows has shifted{where}"

    def of_small(self, config: DriftConfig, run: int, names: tuple[str, str]) -> str | None:
        """Return in words what small p-values prove; None for nothing.

        Parameters
        ----------
        config : DriftConfig
        run : int
            Number of the run.
        names : tuple of str
            What flagged rows, and all of the tail, have.
        """
        places, error = self._tested, self.error / 16
        if len(places) == 0:
            return None
        n, known = self.counts[places].sum(axis=1), self._known(places)
        seen = np.cumsum(self.counts[places, :2], axis=1)
        spent = error * 6 / (math.pi * run) ** 2
        for which, name in enumerate(names):
            given = seen[:, which], n, known[:, which], known[:, 2]
            found = ShareLimits.of_all(*given, config, spent)
            if (why := found.in_words(name, "the rows")) is not None:
                return why
            each = [error / len(self.watched), spent / len(self.watched)]
            of_groups = ShareLimits.of_each(*given, config, *each)
            odd = places[of_groups.is_odd]
            if len(odd) > 0:
                first = int(np.flatnonzero(of_groups.is_odd)[0])
                rows = f"the rows of {self.watched.names[odd[0]]}"
                more = f", and so in {len(odd) - 1} more groups" if len(odd) > 1 else ""
                return f"{of_groups.in_words(name, rows, first)}{more}"
        return None

    def tail_rows(self) -> tuple[int, int]:
        """Return how many rows are in the tails of their groups, and how many there are."""
        return int(self.counts[:, :2].sum()), int(self.counts.sum())

    def largest_tail_share(self, error: float) -> float:
        """Return an upper limit of the share of the tails, by calibration rows."""
        n, widths = self.counts.sum(axis=1), self.watched.widths
        n, widths = n[n > 0], widths[n > 0]
        m, tails = widths.sum(axis=1), widths[:, :2].sum(axis=1)
        return mean_limits(n, tails, m, error)[1] if m.all() and len(n) else 1.0

    def result(self, n_rows: int) -> GroupsDrift:
        """Return the drift of groups in a run of so many rows with a p-value."""
        adjusted, named = self._adjusted(), self._named()
        n = self.counts.sum(axis=1)
        order = np.lexsort((-n, -self.after.evidence[:, 0], adjusted))[:_N_LARGEST]
        largest = [
            GroupDrift(
                self.watched.names[place], int(n[place]), int(self.counts[place, 0]),
                *self._shifts_of(place)[-1],
                round(float(self.after.evidence[place, 0]) / math.log(10), 3),
                float(adjusted[place]), place in named,
            )
            for place in map(int, order)
        ]  # fmt: skip
        reference = self.after.reference
        return GroupsDrift(
            len(self.watched), self.watched.n_groups - len(self.watched),
            n_rows - int(n.sum()), int(self.after.is_ready.sum()), len(named),
            self._in_words(named),
            None if reference is None else int(reference.sum()), largest,
        )  # fmt: skip

    def _adjusted(self) -> NDArray[np.float64]:
        """Return p-values of a change in each group, that hold for all together."""
        return holm(np.exp(-self.after.evidence[:, 1].clip(0)))

    def _named(self) -> list[int]:
        """Return the places of the groups that have changed, by Holm, the surest first."""
        adjusted = self._adjusted()
        order = np.argsort(-self.after.evidence[:, 1], kind="stable")
        return [place for place in map(int, order) if adjusted[place] <= self.error]

    def _in_words(self, places: list[int]) -> str:
        """Return the names of some groups; nothing of none."""
        names = "; ".join(self.watched.names[place] for place in places[:_N_NAMED])
        n_more = len(places) - _N_NAMED
        return f"{names} and {n_more} more groups" if n_more > 0 else names

    def _known(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return flagged, tail and all rows of the references of groups."""
        known = [self.references[int(place)] for place in places]
        return np.array([(of.flagged, of.tail, of.rows) for of in known], np.int64)

    def _earlier(self, place: int) -> NDArray[np.float64]:
        """Return the rows of a group in bulk bins, without recent ones."""
        reference = self.references[place]
        return _padded(reference, reference.bulk)[1:] + self.after.sums[place]

    def _shifts_of(self, place: int) -> list[tuple[float, float]]:
        """Return the shift of a group in the run, in up to 4 runs, and in recent ones."""
        if place not in self.references:
            return [(0.0, 0.0)]
        before, n_bulk = self._earlier(place), len(self.references[place].bulk)
        earlier, last = self.after.recent[place]
        rows = self.counts[place, 2:], last, earlier + last
        return [shift_between(before[:n_bulk], of[:n_bulk]) for of in rows]


def _bet(
    reference: Reference,
    known: NDArray[np.int64],
    bulk: NDArray[np.int64],
    wealth: NDArray[np.float64],
    run: int,
) -> float:
    """Return the evidence of a group after a run; changes the wealth of its bets."""
    n_bulk = len(reference.bulk)
    if n_bulk == 0:
        return 0.0
    exponents = bet_exponents(reference.prior)
    urn = reference.prior + reference.joined(known[:n_bulk])
    ratios = log_ratios(urn, reference.joined(bulk[:n_bulk]), exponents)
    n_bets = len(exponents)
    wealth[:n_bets] = rounded_down(update_log_wealth(wealth[:n_bets], ratios, run))
    return float(rounded_down(log_evidence(wealth[:n_bets], run)))


def _reference(watched: WatchedGroups, state: GroupStates, place: int) -> Reference:
    """Return what a group is tested against."""
    n_bulk = int(watched.bins.n_bulk[place])
    rows = watched.widths if state.reference is None else state.reference
    flagged, rest, *bulk = rows[place, : 2 + n_bulk].tolist()
    if state.reference is not None:
        return Reference.of_first_rows(flagged, flagged + rest, bulk)
    widths = np.array(bulk, np.float64)
    tail = flagged + rest
    n_rows = tail + sum(bulk)
    return Reference(n_rows, flagged, tail, widths, np.arange(n_bulk), widths)


def _padded(
    reference: Reference, bulk: NDArray[np.float64], tail: int = 0
) -> NDArray[np.float64]:
    """Return rows of the tail and of bulk bins, with 0 for bins that a group has not."""
    padded = np.zeros(1 + MAX_BULK)
    padded[: 1 + len(reference.bulk)] = [tail, *bulk]
    return padded


def _mixed(
    before: NDArray[np.float64], rows: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return what is expected of rows of groups, as that of so many rows, and what is seen.

    Parameters
    ----------
    before, rows : ndarray of shape (n_groups, n_bins)
        Earlier rows of each group in each bin, and those of a run.
    """
    known = before.sum(axis=1)
    before, rows, known = before[known > 0], rows[known > 0], known[known > 0]
    n, seen = rows.sum(axis=1), rows.sum(axis=0)
    if n.sum() == 0:
        return np.zeros(rows.shape[1]), seen
    expected = (n / n.sum() / known) @ before
    # The shares of groups add up with their errors.
    return expected * n.sum() ** 2 / (n**2 / known).sum(), seen
