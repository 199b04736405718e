"""Have a run done in time: refuse it before its start, or end it while little is lost.

forecast ------------> refused, with what would fit          before workers are started
rows done --rate-----> ended, to be resumed                  after a tenth of the rows
end of the run ------> a line says by how much it is late    where it was too late to end
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from lpe_dask.cli.interrupts import DeadlineTimeout, interrupt_main
from lpe_dask.cli.messages import log_level, notice
from lpe_dask.tasks import Computation, Workers

if TYPE_CHECKING:
    from lpe_dask.batch import Run
    from lpe_dask.cli.cluster import WorkerChoice
    from lpe_dask.cli.shared_workers import SharedWorkers

logger = logging.getLogger(__name__)

#: Share of the rows from which on their rate is judged, and up to which: what has done more
#: is better late than ended.
TENTH, HALF = 0.1, 0.5

#: By which factor what is left may be too high by the rate of then, by what is done with
#: rows. Of pairs of nominal rows that are compared once, the first rows have the most, and
#: what comes after them is only forecast.
RATE_MARGINS = {"measured": 2.0, "scored": 1.25}


@dataclass(slots=True)
class Deadline:
    """When a run is to be done, which begins now.

    Attributes
    ----------
    seconds : float
        From its start; inf: it may take any time.
    clock : callable
        Seconds that never decrease.
    later : dict of str to float
        Seconds that come after all rows are "measured", as forecast.
    """

    seconds: float
    clock: Callable[[], float] = time.monotonic
    later: dict[str, float] = field(default_factory=dict)
    _began: float = field(init=False)

    def __post_init__(self) -> None:
        self._began = self.clock()

    @property
    def left(self) -> float:
        """Seconds until then; below 0 after it."""
        return self._began + self.seconds - self.clock()

    @property
    def text(self) -> str:
        """The limit, as part of a sentence."""
        limit = timedelta(seconds=self.seconds)
        return f"is to be done within {limit} of its start (--finish-within)"

    def check_forecast(self, run: Run, workers: WorkerChoice | SharedWorkers) -> None:
        """Raise ValueError, with what would fit, if a run is forecast to take too long.

        Not where an interrupted run has done a part: what is left shows soon enough.
        """
        if self.seconds == math.inf:
            return
        from lpe_dask.forecast import check_in_time, duration_text

        if run.is_begun():
            logger.info(
                "an earlier run has done a part: whether the rest is done in time shows "
                "after a tenth of it"
            )
            return
        # The run itself says again what a forecast finds out about the rows.
        with workers.for_plan() as choose, log_level(logging.ERROR, "lpe_dask"):
            forecast = check_in_time(
                run, choose, lambda: self.left, self.text, workers.larger
            )
        if forecast.seconds > self.left:
            logger.warning(
                "the run is forecast to take about %s, and %s: whether it is shows after "
                "a tenth of the rows", duration_text(forecast.seconds), self.text,
            )  # fmt: skip
        if run.scoring is not None:
            self.later["measured"] = forecast.scoring_seconds

    @contextmanager
    def watched(
        self, workers: WorkerChoice | SharedWorkers
    ) -> Iterator[Callable[[Computation], None]]:
        """End a run that is too slow while the context is open; gives a listener.

        The workers are open.
        """
        if self.seconds == math.inf:
            yield lambda computation: None
            return
        check = RateCheck(self, Workers.active(wait=True), workers.larger)
        timer = threading.Timer(max(0.0, self.left), check.time_is_over)
        timer.daemon = True
        timer.start()
        try:
            yield check.listen
        finally:
            timer.cancel()
            check.stop()

    def show_late(self) -> None:
        """Print by how much a run that is done is late, if it is."""
        if self.left < 0:
            from lpe_dask.forecast import duration_text

            late = duration_text(-self.left)
            notice(f"done {late} too late: it {self.text}", level=logging.WARNING)


@dataclass
class RateCheck:
    """Whether a run is done in time, by the rate of its first rows.

    Results of threads that work at the same time come about together, and the first ones
    wait for what all have in common, or for a kernel to be compiled. So the time left is
    the lesser of what the rates since the start and since the first result say, with the
    rows that are at work as good as done.

    Attributes
    ----------
    deadline : Deadline
    workers : Workers
        That do the run.
    larger : callable
        From workers to others that are faster, and how to get them.
    """

    deadline: Deadline
    workers: Workers
    larger: Callable[[Workers], Iterable[tuple[str, Workers]]]
    _computation: Computation | None = None
    _starts: list[tuple[float, float]] = field(default_factory=list)
    _share: float = 0.0
    _is_over: bool = False
    _ending: threading.Lock = field(default_factory=threading.Lock)

    def stop(self) -> None:
        """End no run any more: this one is done."""
        with self._ending:
            self._is_over = True

    def listen(self, computation: Computation) -> None:
        """Take note of a computation that has moved."""
        if computation.rows is None or self._is_over:
            return
        if computation is not self._computation:
            self._computation = computation
            self._starts = [(self.deadline.clock(), 0.0)]
        self._share = _share(computation)
        if not computation.is_open:
            self._share = 1.0
            # What comes after the rows are scored, such as another fit, is better late.
            self._is_over = computation.rows.verb == "scored"
        elif computation.n_done > 0:
            self._judge(computation)

    def time_is_over(self) -> None:
        """End a run at its deadline if not even a tenth of its rows is done."""
        if self._share < TENTH:
            rows = self._computation and self._computation.rows
            what = f"a tenth of the rows is not {rows.verb}" if rows else "no row is done"
            self._end(f"{what} by now", "with more time (--finish-within) or more workers")

    def _judge(self, computation: Computation) -> None:
        now, share, n_done = self.deadline.clock(), self._share, computation.n_done
        n_threads = self.workers.n_threads
        if len(self._starts) == 1:
            self._starts.append((now, share))
        if not TENTH <= share < HALF or n_done <= n_threads:
            return
        assert computation.rows is not None
        verb = computation.rows.verb
        ahead = min(1.0, share * (1 + n_threads / n_done))
        left = min(
            (now - began) * (1 - ahead) / (ahead - before) for began, before in self._starts
        )
        later = self.deadline.later.get(verb, 0.0)
        if (left + later) / RATE_MARGINS[verb] > self.deadline.left:
            rest = (now - self._starts[0][0]) * (1 - share) / share + later
            self._end(*self._rate_texts(share, verb, rest))

    def _rate_texts(self, share: float, verb: str, rest: float) -> tuple[str, str]:
        """Return why the run ends, and with what it would be done when it is resumed."""
        from lpe_dask.forecast import duration_text, time_option

        deadline = self.deadline
        reason = (
            f"{share:.0%} of the rows are {verb}, and by their rate what is left takes "
            f"about {duration_text(rest)}"
        )
        # What comes before the first rows is done again.
        remedy = (
            f"with --finish-within {time_option(deadline.seconds - deadline.left + rest)}"
        )
        usable = deadline.left + deadline.clock() - self._starts[0][0]
        for how, workers in self.larger(self.workers):
            if workers.n_threads * usable >= self.workers.n_threads * rest:
                return reason, f"{remedy}, or with {how}"
        return reason, remedy

    def _end(self, reason: str, remedy: str) -> None:
        with self._ending:
            if self._is_over:
                return
            self._is_over = True
            interrupt_main(
                DeadlineTimeout(
                    f"the run was ended, as it {self.deadline.text}, but {reason}. What "
                    f"was written is complete; start the same run again to resume, "
                    f"{remedy}."
                )
            )


def _share(computation: Computation) -> float:
    """Return the share of its rows, or else of its results, that a computation has done."""
    rows = computation.rows
    if rows is not None and rows.total:
        return computation.rows_done / rows.total
    return computation.n_done / max(1, computation.n_results)
