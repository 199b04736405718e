"""Do a job for each day of a range, as `run` does it for one.

    days --in order, each in its turn--> Job --> done, finished before, or failed
                                          +----- workers that all days share

A day is prepared when those before it have ended: they may have fitted its model, and drift
follows from one to the next.
"""

from __future__ import annotations

import datetime
import gc
import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from lpe_dask.cli.interrupts import DeadlineTimeout
from lpe_dask.cli.json_lines import name_run
from lpe_dask.cli.messages import notice
from lpe_dask.cli.outcome import FAILED, UnavailableError, end_reason, show_failure
from lpe_dask.cli.shared_workers import SharedWorkers

if TYPE_CHECKING:
    from lpe_dask.batch import Job
    from lpe_dask.cli.cluster import WorkerChoice

#: Most characters of the reason for a failed day in the list at the end.
_REASON_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class DayResult:
    """How the run of a day has ended.

    Attributes
    ----------
    state : {"done", "finished before", "failed"}
    code : int
        The exit code of that run alone.
    reason : str
        Why the code is not 0, in a line.
    """

    state: Literal["done", "finished before", "failed"]
    code: int
    reason: str = ""


@dataclass
class Backfill:
    """A job for the days of a range.

    Attributes
    ----------
    path : str
        Of the job file.
    days : sequence of date
        Ascending.
    job_of : callable
        From a day to its job.
    execute : callable
        From a job, workers and a function to the exit code of its run; calls the function
        with the job, and whether it was finished before, when that is known.
    debug : bool
        Whether to show the traceback of an error.
    """

    path: str
    days: Sequence[datetime.date]
    job_of: Callable[[datetime.date], Job]
    execute: Callable[[Job, SharedWorkers, Callable[[Job, bool], None]], int]
    debug: bool = False
    _results: dict[datetime.date, DayResult] = field(default_factory=dict)
    _skipped: list[datetime.date] = field(default_factory=list)
    _shown: datetime.date | None = None

    def run(self, choice: WorkerChoice, *, keep_going: bool = False) -> int:
        """Do the days that are not done yet, and return the exit code.

        That is the code of the first day that failed; if none did, the first other than 0.

        Parameters
        ----------
        choice : WorkerChoice
        keep_going : bool, default=False
            Whether a day that failed is left, and the next one begun.

        Raises
        ------
        ValueError
            If the days would all have the same output.
        """
        self._check_places()
        try:
            with ExitStack() as stack:
                self._run_days(SharedWorkers(choice, stack), keep_going)
        finally:
            self._show_skipped()
            name_run(None)
            notice("\n".join(self._lines()), "days finished", **self._counts())
        results = self._results.values()
        codes = [of.code for of in results if of.state == "failed"]
        return next(filter(None, [*codes, *(of.code for of in results)]), 0)

    def _check_places(self) -> None:
        first, last = self.job_of(self.days[0]), self.job_of(self.days[-1])
        if len(self.days) > 1 and first.place == last.place:
            key = "[model] path" if first.score is None else "[score] output"
            raise ValueError(
                f"{self.path}, {key}: {first.place} is the same for each day, so that a "
                f"day would replace the day before. Write {{date}} into it, for example "
                f'"out/{{date}}", or give one day (--date YYYY-MM-DD).'
            )

    def _run_days(self, workers: SharedWorkers, keep_going: bool) -> None:
        for day in self.days:
            try:
                self._run_day(day, workers)
            except (Exception, DeadlineTimeout) as error:
                self._show(day)
                failure = show_failure(error, self.debug)
                reason = failure.text.removeprefix("Error: ")
                self._results[day] = DayResult("failed", failure.code, reason)
                if not keep_going or isinstance(error, UnavailableError):
                    return
                if failure.code == FAILED:
                    self._close(workers)  # it may be their fault, or they may be at work
            # A run refers to itself, and so to the blocks that workers hold for it.
            gc.collect()

    def _run_day(self, day: datetime.date, workers: SharedWorkers) -> None:
        state: Literal["done", "finished before"] = "done"

        def announce(job: Job, is_finished: bool) -> None:
            nonlocal state
            if is_finished:
                state = "finished before"
                self._skipped.append(day)
                notice("", "nothing to do")
            else:
                self._show(day)

        name_run(None)  # not the day before, while this one is read
        job = self.job_of(day)
        code = self.execute(job, workers, announce)
        reason = "" if code == 0 else end_reason(job.place, code)
        self._results[day] = DayResult(state, code, reason)

    def _close(self, workers: SharedWorkers) -> None:
        try:
            workers.close()
        except Exception as error:
            notice(f"the workers could not be ended: {error}", level=logging.WARNING)

    # What is printed

    def _show(self, day: datetime.date) -> None:
        """Print the day that the next lines are about, unless they are about it already."""
        if self._shown != day:
            self._shown = day
            self._show_skipped()
            notice(f"{day}:")

    def _show_skipped(self) -> None:
        if self._skipped:
            notice(f"{_span(self._skipped)}: nothing to do, finished before")
            self._skipped.clear()

    def _counts(self) -> dict[str, int]:
        """Return how many days have ended in each way, and how many are left."""
        n_left = len(self.days) - len(self._results)
        states = [of.state for of in self._results.values()] + ["left"] * n_left
        return {state: states.count(state) for state in dict.fromkeys(states)}

    def _lines(self) -> list[str]:
        """Return how many days ended how, those not with 0, and those that are left."""
        results, left = self._results, self.days[len(self._results) :]
        listed = ", ".join(f"{n} {state}" for state, n in self._counts().items())
        lines = [f"{len(self.days)} days: {listed}"]
        for day, of in results.items():
            if of.code != 0:
                reason = f": {_shorten(of.reason)}" if of.reason else ""
                lines.append(f"  {day} {of.state}, exit code {of.code}{reason}")
        failed = [day for day, of in results.items() if of.state == "failed"]
        if left and failed:
            lines.append(
                f"left: {_span(left)}. The same command tries {failed[0]} again first; "
                f"with --date {_span(left)} it goes on without it."
            )
        elif left:
            lines.append(f"left: {_span(left)}. The same command goes on with them.")
        elif failed:
            lines.append("The same command tries again what failed.")
        return lines


def _span(days: Sequence[datetime.date]) -> str:
    """Return days as an option has them: one, or a range without gaps."""
    return f"{days[0]}" if len(days) == 1 else f"{days[0]}..{days[-1]}"


def _shorten(text: str) -> str:
    """Return the first line of a text, cut if it is long."""
    line, _, _ = text.partition("\n")
    n = _REASON_CHARACTERS
    return line if len(line) <= n else f"{line[:n]} ..."
