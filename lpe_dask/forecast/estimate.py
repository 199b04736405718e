"""Work out what a run would need, from a sample of the rows and the workers at hand.

    DATA, NOMINAL --files, a few partitions--> numbers of rows, samples
    numbers       --plan, task_counts-->       cut, memory, tasks          (whole numbers)
    samples       --choice, trials-->          algorithm, pairs, seconds   (measured here)

The run goes through the same steps with all rows; what it deduces is deduced here by the
same functions. Nothing is searched for but what a second's trial needs.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpe_dask.batch import (
    Fit,
    Run,
    Scoring,
    check_is_alone,
    measured_columns,
    next_job,
    prepare,
    tables_to_score,
)
from lpe_dask.forecast.costs import Cost, search_cost, walk_seconds
from lpe_dask.forecast.counts import ScoreShape, decide_tasks, own_score_tasks, score_tasks
from lpe_dask.forecast.forecast import Forecast
from lpe_dask.forecast.models import ForeseenFit, SavedModel
from lpe_dask.forecast.sample import Sample, take_sample
from lpe_dask.model import Fitted, check_names, check_parameters, load_fitted, with_defaults
from lpe_dask.pvalues import MERGED_HISTOGRAMS
from lpe_dask.search import Needs, needs
from lpe_dask.tables import (
    Paths,
    Table,
    as_given,
    is_paths,
    read_frame,
    read_table,
    rows_of_partitions,
    select_columns,
)
from lpe_dask.tasks import Workers, active_workers

#: Seconds to write a number, and for a task to be handed out and its result taken back: by
#: the scheduler of this process, and by one of `distributed` (measured).
WRITE_SECONDS, TASK_SECONDS, CLUSTER_TASK_SECONDS = 1e-7, 1e-3, 1e-2

#: Bytes of a spool that all threads together read in a second: those of a plain disk.
SPOOL_BYTES_A_SECOND = 500e6


def plan(
    data: Any,
    nominal: Any = None,
    *,
    model: str | PathLike[str] | None = None,
    columns: Any = None,
    **arguments: Any,
) -> Forecast:
    """Return what scoring a table, or a job, would need: tasks, memory, pairs and time.

    Nothing is scored, and no table is read but for the number of its rows and a sample from
    up to 16 partitions; a second or two of trials on this sample tell how fast this
    machine is with it. Forecast is the run of ``lpe-dask score``, on the workers that a
    compute would use now: that of `score` has the same searches, but writes nothing.

    Parameters
    ----------
    data : array-like, DataFrame, dask array or dask DataFrame of shape (n, n_features)
        Rows to score; or the path of a Parquet or CSV table, or a list of such paths. Rows
        of files are counted by their metadata (Parquet) or by their bytes (CSV, about),
        those of a Dask DataFrame by the partitions that are read (about). Or the path of a
        job file, which ends in ``.toml``, alone: what `run` would do from its start, for
        the day that it would take, on these workers rather than those of its section
        ``[cluster]``.
    nominal : same kinds, optional
        Nominal rows. None, without ``model``: each row of ``data`` is scored against all
        others.
    model : str or path, optional
        Folder of a model that `LPE.save` has written, instead of ``nominal``: nothing is
        fitted then.
    columns : sequence of str, optional
        The columns to measure, for frames and paths; None: all, or those of the model.
    **arguments
        Of `LPE`; none with ``model``. What ``anomaly_log_density`` takes is not counted.

    Returns
    -------
    forecast : Forecast
        Its ``tasks`` are exact for brute force, and an upper bound for pruning or where
        rows are drawn; ``worker_bytes`` is the bound that a fit is checked against;
        ``seconds`` are right up to a factor of about 2, and 4 for pruning, if the machine
        stays as busy as it is. ``print`` shows all of it. A run that does not fit is no
        error here: ``fits`` is false then.

    Raises
    ------
    TypeError, ValueError, OSError
        As `score`, `score_files` or `run` would, as far as the sample shows it;
        FileExistsError if nothing of a job is left to be done.

    Examples
    --------
    >>> import numpy as np
    >>> import lpe_dask
    >>> rows = np.random.default_rng(0).standard_normal((3000, 4))
    >>> forecast = lpe_dask.plan(rows, n_neighbors=20, algorithm="brute")
    >>> forecast.pairs, forecast.fits
    (9000000, True)
    """
    workers = active_workers(wait=True)
    given = {"nominal": nominal, "model": model, "columns": columns}
    given = {name: value for name, value in given.items() if value is not None}
    if is_job(data):
        check_no_others(data, [*given, *arguments])
        return forecast_job(workers, prepare_job(next_job(data)))
    if model is not None:
        check_is_alone(model, nominal, arguments)
        return forecast_with_model(workers, data, model, columns)
    check_names("plan", arguments)
    return forecast_score(workers, data, nominal, columns, **arguments)


def is_job(data: Any) -> bool:
    """Return whether this is the path of a job file, rather than a table."""
    return isinstance(data, str | PathLike) and str(data).endswith(".toml")


def check_no_others(job: str | PathLike[str], given: Sequence[str]) -> None:
    """Raise ValueError if something is given beside a job."""
    if given:
        raise ValueError(
            f"{job} is a job, which says all of it: {', '.join(given)} cannot be given "
            f"with it. Leave that out, or write it into the job."
        )


def forecast_score(
    workers: Workers, data: Any, nominal: Any, columns: Any, **arguments: Any
) -> Forecast:
    """Return what `plan` does, for workers that need not be there."""
    parameters = with_defaults(arguments)
    check_parameters(parameters)
    is_own = nominal is None
    learnt = _open(data if is_own else nominal, columns)
    scored = learnt if is_own else _open(data, learnt.table.columns)
    _check_features(learnt.table, scored.table)
    return _Forecaster.of_fit(workers, parameters, learnt, scored, is_own=is_own).forecast()


def forecast_with_model(
    workers: Workers, data: Any, path: str | PathLike[str], columns: Any
) -> Forecast:
    """Return what `plan` does with a saved model, for workers that need not be there."""
    model = load_fitted(path)
    if is_paths(data):
        table, rows = tables_to_score(model, data, columns)
        scored = _files(data, rows, table)
    else:
        X = data if columns is None else select_columns(data, columns)
        scored = _collection(model.table(X))
    return _Forecaster.of_model(workers, model, scored).forecast()


def forecast_job(workers: Workers, prepared: JobRun) -> Forecast:
    """Return what a job would need from its start, for workers that need not be there.

    Raises
    ------
    FileExistsError
        If there is nothing to do.
    """
    if run.is_finished():
        raise FileExistsError(
            f"nothing to do: {run.job.place} is there already. Plan a job whose output is "
            f"yet to be made."
        )
    run = prepared.scoring
    if run is None:
        assert prepared.fit is not None
        return _of_fit_run(workers, prepared.fit, None).forecast()
    if isinstance(run.model, FitRun):
        forecaster = _of_fit_run(workers, run.model, run)
    else:
        scored = _files(run.paths, run.rows, run.kept)
        forecaster = _Forecaster.of_model(workers, run.model, scored)
    return replace(forecaster, decides_late=run.fdr is not None).forecast()


def _of_fit_run(workers: Workers, fit: FitRun, run: Run | None) -> _Forecaster:
    learnt, scored = _files(fit.paths, fit.nominal, fit.nominal), None
    is_own = run is not None and run.rows is None
    if run is not None:
        scored = _files(run.paths, fit.nominal if is_own else run.rows, run.kept)
    forecaster = _Forecaster.of_fit(workers, fit.parameters, learnt, scored, is_own=is_own)
    return replace(forecaster, saves=fit.url is not None)


# Inputs


@dataclass(frozen=True, slots=True)
class _Input:
    """A table, and what its files say.

    Attributes
    ----------
    table : Table
    counted : tuple of list of int and bool, optional
        As `files.rows_of_partitions` gives it.
    n_columns : int
        Columns to carry over.
    is_carried : bool
        Whether the tasks that write results read it again, to carry columns over.
    """

    table: Table
    counted: tuple[list[int], bool] | None
    n_columns: int
    is_carried: bool = False


def _open(X: Any, columns: Sequence[Any] | None) -> _Input:
    if is_paths(X):
        frame = read_frame(X, columns)
        chosen = None if columns is None else as_given(columns, frame.columns)
        return _files(X, measured_columns(X, frame, chosen), frame)
    return _collection(read_table(X if columns is None else select_columns(X, columns)))


def _collection(table: Table) -> _Input:
    return _Input(table, None, table.rows.shape[1])


def _files(paths: Paths, measured: Any, kept: Any) -> _Input:
    """Return what is read of files: frames to be measured, and to be carried over."""
    counted = rows_of_partitions(paths, measured.npartitions)
    return _Input(read_table(measured), counted, len(kept.columns), is_carried=True)


def _check_features(learnt: Table, scored: Table) -> None:
    n_learnt, n_scored = learnt.rows.shape[1], scored.rows.shape[1]
    if n_learnt != n_scored:
        raise ValueError(
            f"the rows to score have {n_scored} features, but the nominal rows have "
            f"{n_learnt}. Give the same columns (columns=, --columns)."
        )


def _sample_of(scored: _Input | None, n_threads: int) -> Sample:
    if scored is None:
        return Sample(np.empty((0, 0)), [], True, 0.0)
    return take_sample(scored.table.rows, scored.counted, n_threads)


# The forecast


@dataclass(frozen=True, slots=True)
class _Forecaster:
    """All that a forecast is made of.

    Attributes
    ----------
    workers : Workers
    fit : ForeseenFit or SavedModel
    nominal, new : Sample
        Of the nominal rows, and of the rows to score.
    scored : _Input, optional
        The rows to score; None: there are none.
    is_own : bool
        Whether these are the nominal ones.
    saves : bool, default=False
        Whether the model is written.
    decides_late : bool, default=False
        Whether rows are flagged once all p-values are known.
    """

    workers: Workers
    fit: ForeseenFit | SavedModel
    nominal: Sample
    new: Sample
    scored: _Input | None
    is_own: bool
    saves: bool = False
    decides_late: bool = False

    @classmethod
    def of_fit(
        cls,
        workers: Workers,
        parameters: Mapping[str, Any],
        learnt: _Input,
        scored: _Input | None,
        *,
        is_own: bool,
    ) -> _Forecaster:
        """Return that of a model to be fitted; takes samples."""
        threads = workers.n_threads
        sample = take_sample(learnt.table.rows, learnt.counted, threads)
        new = sample if is_own else _sample_of(scored, threads)
        fit = ForeseenFit.of(parameters, learnt.table, sample, workers)
        return cls(workers, fit, sample, new, scored, is_own)

    @classmethod
    def of_model(cls, workers: Workers, model: Fitted, scored: _Input) -> _Forecaster:
        """Return that of a model on disk; takes samples."""
        saved, sample = SavedModel.of(model, workers)
        new = _sample_of(scored, workers.n_threads)
        return cls(workers, saved, sample, new, scored, is_own=False)

    def forecast(self) -> Forecast:
        """Return the forecast; tries the searches on the samples."""
        fit, found = self.fit, self.workers
        began, began_work = time.perf_counter(), time.thread_time()
        own_cost, own_queries = self._own_search()
        row_cost, row_queries = self._row_search()
        worked = time.thread_time() - began_work
        slowdown = max(1.0, (time.perf_counter() - began) / max(worked, 1e-9))
        walks = self._n_walks(row_queries)
        tasks = self._tasks()
        return Forecast(
            n_rows=self.new.n_rows,
            n_nominal=fit.n_nominal,
            n_features=fit.plan.shape.n_features,
            n_neighbors=fit.statistic.n_neighbors,
            radius=fit.statistic.radius,
            algorithm=fit.sampled.search.algorithm,
            is_exact=fit.is_counted and self.new.is_exact,
            tasks=dict(tasks),
            own_pairs=round(own_queries * own_cost.pairs),
            row_pairs=round(row_queries * row_cost.pairs),
            walks=walks,
            needs=self._largest_needs(),
            n_threads=found.n_threads,
            memory_limit=found.memory_limit,
            steps=self._steps(
                tasks,
                own_queries * own_cost.seconds,
                row_queries * row_cost.seconds,
                walks,
                slowdown,
            ),
            slowdown=slowdown,
        )

    def _own_search(self) -> tuple[Cost, int]:
        """Return what it costs to search for a nominal row, and how many are."""
        fit = self.fit
        if fit.n_measured == 0:
            return Cost(0.0, 0.0), 0
        n_reference = fit.plans[0].shape.n_reference
        if fit.is_like_new:
            rows = self._task_rows(self.nominal.sizes, fit.n_measured)
            queries: NDArray[np.floating] | None = fit.sampled.reference
            density = rows / n_reference
        else:
            queries, density = None, fit.n_measured / n_reference
        # A neighbor graph has edges from all rows, and is walked along from some.
        n_queries = fit.n_measured if fit.params is None else n_reference
        return search_cost(fit.sampled, queries, n_reference, density), n_queries

    def _row_search(self) -> tuple[Cost, int]:
        """Return what it costs to search for a row to score, and how many are."""
        fit = self.fit
        n_queries = self.new.n_rows
        if self.is_own:  # those that the fit does not measure
            n_queries = fit.n_nominal - fit.n_measured
        if n_queries == 0 or len(self.new.rows) == 0:
            return Cost(0.0, 0.0), n_queries
        rows = self._task_rows(self.new.sizes, n_queries)
        n_reference = fit.plan.shape.n_reference
        queries = fit.preparation.apply(self.new.rows)
        return (
            search_cost(fit.sampled, queries, n_reference, rows / n_reference),
            n_queries,
        )

    def _task_rows(self, sizes: Sequence[int], n_queries: int) -> float:
        """Return about how many new rows are searched for at a time."""
        n_tasks = len(sizes) * self._score_shape().n_shares
        return min(self.fit.plan.pass_rows, n_queries / n_tasks)

    def _n_walks(self, row_queries: int) -> int:
        return 0 if self.fit.params is None else self.fit.n_measured + row_queries

    def _score_shape(self) -> ScoreShape:
        scored, new = self.scored, self.new
        if scored is None:  # rows are measured like new ones, but only nominal ones
            new = self.nominal
        # Partitions of a frame are counted by no one before they are scored.
        is_known = self.is_own or scored is None or scored.table.frame is None
        return ScoreShape(
            len(new.sizes),
            max(new.sizes) if is_known else None,
            self.fit.plan.least_task_rows,
            self.workers.n_threads,
        )

    def _tasks(self) -> Counter[str]:
        fit, shape = self.fit, self._score_shape()
        tasks = fit.tasks(self.nominal.sizes, self.workers, saves=self.saves)
        if self.scored is None:
            return tasks
        if self.decides_late:
            tasks += decide_tasks(shape.n_partitions, MERGED_HISTOGRAMS)
        if not self.is_own:
            return tasks + score_tasks(shape)
        return tasks + own_score_tasks(shape, all_measured=fit.n_measured == fit.n_nominal)

    def _largest_needs(self) -> Needs:
        """Return what the search needs that needs most, with the partitions to score."""
        scored = self.scored
        is_frame = scored is not None and scored.table.frame is not None
        found = []
        for plan in self.fit.plans:
            rows = max(plan.shape.partition_rows, *self.new.sizes, 0)
            reads_frame = plan.shape.reads_frame or is_frame
            shape = replace(plan.shape, partition_rows=rows, reads_frame=reads_frame)
            found.append(needs(replace(plan, shape=shape)))
        return max(found, key=lambda of_plan: of_plan.worker)

    # Seconds

    def _steps(
        self,
        tasks: Counter[str],
        own_seconds: float,
        row_seconds: float,
        walks: int,
        slowdown: float,
    ) -> dict[str, float]:
        n_own, n_rows = tasks["self-join"], tasks["join"]
        task_seconds = CLUSTER_TASK_SECONDS if self.workers.is_cluster else TASK_SECONDS
        steps = {
            "start": self.workers.start_seconds,
            "read": self._read_seconds(tasks) / slowdown,  # a clock has seen it already
            "prepare": self._prepare_seconds(),
            "search among nominal rows": self._shared(own_seconds, n_own),
            "search": self._shared(row_seconds, n_rows),
            "walk": self._walk_seconds(walks),
            "read the spool": self._spool_seconds(n_own + n_rows) / slowdown,
            "write": self._write_seconds(tasks),
            "hand out tasks": task_seconds * sum(tasks.values()),
        }
        return {name: slowdown * seconds for name, seconds in steps.items()}

    def _shared(self, seconds: float, n_tasks: int) -> float:
        """Return the seconds of work that threads share, the last of which ends last."""
        n_threads = self.workers.n_threads
        if n_tasks == 0:
            return 0.0
        return seconds / n_tasks * -(-n_tasks // n_threads)

    def _read_seconds(self, tasks: Counter[str]) -> float:
        n_partitions = len(self.nominal.sizes)
        n_new = 0 if self.is_own else len(self.new.sizes)
        n_times = (tasks["read"] + tasks["load"] - n_new) / n_partitions
        nominal = n_times * self.nominal.n_rows * self.nominal.read_seconds
        is_carried = self.scored is not None and self.scored.is_carried
        n_times_new = int(not self.is_own) + int(is_carried)
        new = n_times_new * self.new.n_rows * self.new.read_seconds
        return self._shared(nominal, n_partitions) + self._shared(new, len(self.new.sizes))

    def _prepare_seconds(self) -> float:
        fit = self.fit
        seconds = self._shared(fit.learning_seconds, len(self.nominal.sizes))
        return seconds + sum(self._shared(*packing) for packing in fit.packings())

    def _walk_seconds(self, walks: int) -> float:
        params = self.fit.params
        if params is None:
            return 0.0
        return walks * walk_seconds(self.fit.sampled, params) / self.workers.n_threads

    def _spool_seconds(self, n_tasks: int) -> float:
        """Return the seconds to read all blocks from a spool, once in each pass."""
        plan = self.fit.plan
        if not plan.is_spooled:
            return 0.0
        n_passes = n_tasks * max(1, plan.task_rows // plan.pass_rows)
        return n_passes * needs(plan).reference / SPOOL_BYTES_A_SECOND

    def _write_seconds(self, tasks: Counter[str]) -> float:
        shape, seconds = self.fit.plan.shape, 0.0
        if self.saves:
            numbers = shape.n_reference * (shape.n_features + 1 + 2 * shape.graph_neighbors)
            seconds = self._shared(WRITE_SECONDS * numbers, tasks["save"])
        if self.scored is not None:
            n_times = 2 if self.decides_late else 1
            numbers = n_times * self.new.n_rows * (self.scored.n_columns + 3)  # and results
            seconds += self._shared(WRITE_SECONDS * numbers, len(self.new.sizes))
        return seconds
