"""Refuse a run that would not be done in time, and say what would be.

Run --forecast--> seconds --too many--> fewer calibration rows   --forecast again--+
                                        more workers             --forecast again--+
                                        fewer rows at a time     --forecast again--+
                                                 ValueError that names what fits <-+
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from lpe_dask.batch import Run
from lpe_dask.forecast.estimate import Choice, forecaster_of
from lpe_dask.forecast.forecast import (
    OWN_SEARCH,
    ROW_SEARCH,
    WRITE,
    Forecast,
    duration_text,
)
from lpe_dask.forecast.forecaster import Forecaster
from lpe_dask.forecast.sizes import Workload
from lpe_dask.model import checked_parameters
from lpe_dask.tasks import Workers, eager_scope

#: By which factor a forecast may be too high: a run is refused if not even this many times
#: less would be in time, as another one can be stopped early (measured: up to 1.9).
MARGIN = 2.0

#: Calibration rows that are advised at least, and at least for each level of 1.
MIN_CALIBRATION, MIN_FLAGGED = 1000, 10

#: How often a remedy is made stronger until its forecast is in time.
N_TRIES = 4

#: Steps whose seconds grow with the rows to score.
_OF_ROWS = (ROW_SEARCH, WRITE, "walk")

#: Other workers, and how to get them.
MoreWorkers = Iterable[tuple[str, Workers]]


@eager_scope()
def check_in_time(
    run: Run,
    choose: Choice,
    seconds_left: Callable[[], float],
    limit: str,
    larger: Callable[[Workers], MoreWorkers],
) -> Forecast:
    """Return the forecast of a run, if that may be done in time.

    Parameters
    ----------
    run : Run
    choose : callable
        As in `make_forecast`.
    seconds_left : callable
        Returns the seconds that it may take; a forecast takes some of them.
    limit : str
        Where these come from, as the end of "the run ...".
    larger : callable
        From workers to others that are faster, and how to get them: an option, or words.

    Raises
    ------
    ValueError
        If `MARGIN` times that would be too few; it names what has been found to fit, each
        by a forecast of its own.
    """
    forecaster = forecaster_of(choose, run)
    forecast = forecaster.forecast()
    seconds = seconds_left()
    if forecast.seconds <= MARGIN * seconds:
        return forecast
    attempt = _Attempt(run, choose, forecaster, forecast, seconds)
    fitting = []
    if seconds > 0:
        more = larger(forecaster.workers)
        fitting = [*attempt.calibration(), *attempt.workers(more), *attempt.rows()]
    steps = ", ".join(
        f"{step} {duration_text(of_step)}"
        for step, of_step in forecast.steps.items()
        if of_step >= forecast.seconds / 20
    )
    enough = MARGIN * (forecast.seconds - min(0.0, seconds))
    fitting.append(f"more time, --finish-within {time_option(enough)}")
    raise ValueError(
        f"the run {limit}, but is forecast to take about {duration_text(forecast.seconds)} "
        f"({steps}). By forecasts, what would fit is: {'; or '.join(fitting)}."
    )


def time_option(seconds: float) -> str:
    """Return a time as an option has it, rounded up."""
    if seconds > 600:
        return f"{math.ceil(seconds / 60)}min"
    return f"{max(1, math.ceil(seconds))}s"


@dataclass(frozen=True, slots=True)
class _Attempt:
    """What is changed about a run that takes too long.

    Attributes
    ----------
    run : Run
    choose : callable
        As in `make_forecast`.
    forecaster : Forecaster
        Of the run as it is.
    forecast : Forecast
        The same.
    seconds : float
        That a changed one may take.
    """

    run: Run
    choose: Choice
    forecaster: Forecaster
    forecast: Forecast
    seconds: float

    def calibration(self) -> Iterator[str]:
        """Yield how many calibration rows would do, where measuring them takes longest."""
        fit, n_measured = self.run.fit, self.forecaster.model.n_measured
        own = self.forecast.steps[OWN_SEARCH]
        rest = self.forecast.seconds - own
        if self.run.model is not None or fit is None or fit.by or own < rest:
            return

        def forecast(size: int) -> Forecast:
            parameters = checked_parameters(fit.parameters | {"calibration_size": size})
            changed = replace(fit, parameters=parameters)
            return forecaster_of(self.choose, replace(self.run, fit=changed)).forecast()

        level = fit.parameters["alpha"]
        most = n_measured * (self.seconds - rest) / own
        at_least = max(MIN_CALIBRATION, math.ceil(MIN_FLAGGED / level))
        for size, seconds in self._sizes(most, at_least, forecast):
            name = "calibration_size = " if self.run.job.path else "--calibration-size "
            yield f"{name}{size} instead of {n_measured} ({duration_text(seconds)})"

    def workers(self, more: MoreWorkers) -> Iterator[str]:
        """Yield the first of some workers that would do."""
        for how, workers in more:

            def choose(sizes: Workload, of: Workers = workers) -> Workers:
                return of

            seconds = forecaster_of(choose, self.run).forecast().seconds
            if seconds <= self.seconds:
                yield f"{how} ({duration_text(seconds)})"
                return

    def rows(self) -> Iterator[str]:
        """Yield how many rows to score would do."""
        sample, n_rows = self.forecaster.scored, self.forecast.n_rows
        of_rows = sum(self.forecast.steps[step] for step in _OF_ROWS)
        if self.forecaster.scores_nominal_rows or of_rows == 0:
            return

        def forecast(size: int) -> Forecast:
            fewer = replace(sample, sizes=_first_partitions(sample.sizes, size))
            return replace(self.forecaster, scored=fewer).forecast()

        rest = self.forecast.seconds - of_rows
        for size, seconds in self._sizes(
            n_rows * (self.seconds - rest) / of_rows, 1, forecast
        ):
            yield (
                f"at most {size:,} of the {n_rows:,} rows at a time "
                f"({duration_text(seconds)})"
            )

    def _sizes(
        self, most: float, at_least: int, forecast: Callable[[int], Forecast]
    ) -> Iterator[tuple[int, float]]:
        """Yield a size whose forecast is in time, and its seconds; none if none is."""
        for attempt in range(N_TRIES):
            size = _rounded(0.9 * most / 2**attempt)
            if size < at_least:
                return
            seconds = forecast(size).seconds
            if seconds <= self.seconds:
                yield size, seconds
                return


def _rounded(size: float) -> int:
    """Return a size that is not above another and has two digits other than 0."""
    if size < 1:
        return 0
    digit = 10 ** max(0, math.floor(math.log10(size)) - 1)
    return int(size // digit) * digit


def _first_partitions(sizes: Sequence[int], n_rows: int) -> list[int]:
    """Return the rows of the partitions that the first rows of a table are in."""
    ends = [0, *accumulate(sizes)]
    cut = pairwise(ends)
    return [min(end, n_rows) - start for start, end in cut if start < n_rows]
