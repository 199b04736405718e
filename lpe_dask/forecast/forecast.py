"""What a run would need, as `lpe_dask.plan` works it out and `lpe-dask plan` prints it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lpe_dask.search import MemoryEstimate, SearchPlan
from lpe_dask.tasks import Workers

#: Steps of a run: to search for nominal rows, and for rows to score, and to write results.
OWN_SEARCH = "search among nominal rows"
ROW_SEARCH = "search"
WRITE = "write"

#: Seconds in a minute, hour and day, from which on a time is given in them.
_UNITS = ((86_400, "days"), (3600, "hours"), (60, "minutes"))


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a run of ``lpe-dask score``, ``fit`` or ``run`` would need.

    Attributes
    ----------
    n_rows : int
        Rows to score; 0 for a fit.
    n_nominal : int
        Nominal rows; the same ones, where each row is scored against all others.
    n_features : int
        Columns that are measured.
    algorithm : str
        "brute" or "pruned".
    is_exact : bool
        Whether rows were counted; otherwise their number was worked out from a sample, and
        so is all that follows from it.
    tasks : mapping of str to int
        Tasks that make blocks of nominal rows ("pack", "load", "index"), and that compare
        nominal rows ("self-join") and rows to score ("join"); about so many for "pruned"
        and where rows are drawn. Those that read, learn and write are not counted.
    own_pairs, row_pairs : int
        Pairs that are compared: of nominal rows with each other, and of rows to score with
        nominal rows. All for "brute", about so many for "pruned".
    walks : int
        Walks along a neighbor graph.
    needs : MemoryEstimate
        Bytes of a worker for the larger search.
    n_threads : int
        Of all workers.
    memory_limit : int
        Bytes of the worker that has the least.
    steps : mapping of str to float
        Seconds of each step of the run, expected.
    """

    n_rows: int
    n_nominal: int
    n_features: int
    algorithm: str
    is_exact: bool
    tasks: Mapping[str, int]
    own_pairs: int
    row_pairs: int
    walks: int
    needs: MemoryEstimate
    n_threads: int
    memory_limit: int
    steps: Mapping[str, float]

    @property
    def n_neighbors(self) -> int | None:
        """K; None where rows within a radius are counted."""
        return self.plan.shape.statistic.n_neighbors

    @property
    def n_tasks(self) -> int:
        """All tasks."""
        return sum(self.tasks.values())

    @property
    def pairs(self) -> int:
        """All pairs that are compared."""
        return self.own_pairs + self.row_pairs

    @property
    def seconds(self) -> float:
        """Seconds from the start to the end, expected."""
        return sum(self.steps.values())

    @property
    def scoring_seconds(self) -> float:
        """Seconds of what comes after the fit, expected."""
        return self.steps[ROW_SEARCH] + self.steps[WRITE]

    @property
    def plan(self) -> SearchPlan:
        """The cut of the larger search."""
        return self.needs.plan

    @property
    def is_spooled(self) -> bool:
        """Whether the nominal rows do not fit into the memory of each worker."""
        return self.plan.is_spooled

    @property
    def worker_bytes(self) -> int:
        """Bytes of a worker at its peak, at most."""
        return self.needs.worker

    @property
    def fits(self) -> bool:
        """Whether a worker can hold what its tasks need."""
        return self.needs.fits(self.memory_limit)

    def check(self) -> None:
        """Raise MemoryError, which says what to do, if a worker cannot hold its tasks."""
        self.needs.check(self.memory_limit)

    def __str__(self) -> str:
        """Return all of it as a table."""
        lines = {
            "rows": self._rows(),
            "search": self._search(),
            "tasks": self._tasks(),
            "memory": self._memory(),
            "time": self._time(),
        }
        return "\n".join(f"{name:<8}{text}" for name, text in lines.items())

    def _rows(self) -> str:
        about = "" if self.is_exact else "about "
        if self.n_rows == 0:
            return (
                f"{about}{self.n_nominal:,} nominal rows to fit, {self.n_features} columns"
            )
        return (
            f"{about}{self.n_rows:,} to score against {about}{self.n_nominal:,} nominal "
            f"rows, {self.n_features} columns"
        )

    def _search(self) -> str:
        asked = self.plan.shape.statistic
        kind = f"{'mean of ' * (asked.aggregation == 'mean')}K = {asked.n_neighbors}"
        if asked.n_neighbors is None:
            kind = f"radius {asked.radius:g}"
        counted = {
            "pairs among the nominal rows": self.own_pairs,
            "pairs of rows to score": self.row_pairs,
            "walks": self.walks,
        }
        listed = [f"{n:.3g} {what}" for what, n in counted.items() if n > 0]
        return f"{kind}, {self.algorithm}: {', '.join(listed) or 'no pairs'}"

    def _tasks(self) -> str:
        listed = ", ".join(f"{kind} {n:,}" for kind, n in self.tasks.items())
        return f"{self.n_tasks:,}: {listed}"

    def _memory(self) -> str:
        place = "in a spool on disk" if self.is_spooled else "in the memory of each worker"
        usable = int(Workers.USABLE_SHARE * self.memory_limit)
        fits = "" if self.fits else "; this does not fit"
        return (
            f"{_mebibytes(self.worker_bytes)} a worker at most, of "
            f"{_mebibytes(usable)} that it may use{fits}; nominal rows {place}"
        )

    def _time(self) -> str:
        total = f"about {duration_text(self.seconds)} on {self.n_threads} threads"
        listed = ", ".join(
            f"{step} {seconds:.1f} s"
            for step, seconds in self.steps.items()
            if seconds >= 0.05
        )
        return f"{total}: {listed}" if listed else total


def _mebibytes(n_bytes: int) -> str:
    return f"{n_bytes / 2**20:,.0f} MiB"


def duration_text(seconds: float) -> str:
    """Return seconds in the unit that suits them: "2.5 hours"."""
    for unit, name in _UNITS:
        if seconds >= 2 * unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
