"""Work out what a run would need, from a sample of the rows and the workers at hand.

    DATA, NOMINAL --files, a few partitions--> numbers of rows, samples
    numbers       --plan, task_counts-->       cut, memory, tasks          (whole numbers)
    samples       --choice, trials-->          algorithm, pairs, seconds   (measured here)

The run goes through the same steps with all rows; what it deduces is deduced here by the
same functions. Nothing is searched for but what a second's trial needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

from lpe_dask.batch import (
    Fit,
    Run,
    Scoring,
    check_is_alone,
    next_job,
    open_measured,
    prepare,
    tables_to_score,
)
from lpe_dask.forecast.forecast import Forecast
from lpe_dask.forecast.forecaster import Forecaster, Scored
from lpe_dask.forecast.foreseen import foresee_fit, look_at_model
from lpe_dask.forecast.sample import Sample, take_sample
from lpe_dask.model import Fitted, check_names, check_parameters, load_fitted, with_defaults
from lpe_dask.tables import (
    FileTable,
    Table,
    is_paths,
    read_table,
    select_columns,
)
from lpe_dask.tasks import Workers, active_workers


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
        return forecast_job(workers, prepare(next_job(data)))
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
    return _of_fit(workers, parameters, learnt, scored, is_own=is_own).forecast()


def forecast_with_model(
    workers: Workers, data: Any, path: str | PathLike[str], columns: Any
) -> Forecast:
    """Return what `plan` does with a saved model, for workers that need not be there."""
    model = load_fitted(path)
    if is_paths(data):
        table, rows = tables_to_score(model, data, columns)
        scored = _files(table, rows)
    else:
        X = data if columns is None else select_columns(data, columns)
        scored = _collection(model.table(X))
    return _of_model(workers, model, scored).forecast()


def forecast_job(workers: Workers, run: Run) -> Forecast:
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
    scoring = run.scoring
    if run.model is None:
        assert run.fit is not None
        forecaster = _of_fit_step(workers, run.fit, scoring)
    else:
        assert scoring is not None
        scored = _files(scoring.kept, scoring.rows)
        forecaster = _of_model(workers, run.model, scored)
    decides_late = scoring is not None and scoring.fdr is not None
    return replace(forecaster, decides_late=decides_late).forecast()


def _of_fit_step(workers: Workers, fit: Fit, scoring: Scoring | None) -> Forecaster:
    learnt, scored = _files(fit.table, fit.nominal), None
    is_own = scoring is not None and scoring.rows is None
    if scoring is not None:
        scored = _files(scoring.kept, fit.nominal if is_own else scoring.rows)
    forecaster = _of_fit(workers, fit.parameters, learnt, scored, is_own=is_own)
    return replace(forecaster, saves=fit.url is not None)


def _of_fit(
    workers: Workers,
    parameters: Mapping[str, Any],
    learnt: _Input,
    scored: _Input | None,
    *,
    is_own: bool,
) -> Forecaster:
    """Return the forecaster of a model to be fitted; takes samples."""
    sample = learnt.sample(workers)
    model = foresee_fit(parameters, learnt.table, sample, workers)
    if scored is None:
        return Forecaster(workers, model, sample, None)
    of_scored = sample if is_own else scored.sample(workers)
    return Forecaster(workers, model, sample, scored.scored(of_scored, is_own=is_own))


def _of_model(workers: Workers, model: Fitted, scored: _Input) -> Forecaster:
    """Return the forecaster of a model on disk; takes samples."""
    foreseen, sample = look_at_model(model, workers)
    new = scored.scored(scored.sample(workers), is_own=False)
    return Forecaster(workers, foreseen, sample, new)


# Inputs


@dataclass(frozen=True, slots=True)
class _Input:
    """A table, and what its files say.

    Attributes
    ----------
    table : Table
    counted : tuple of list of int and bool, optional
        As `FileTable.rows_of_parts` gives it.
    n_columns : int
        Columns to carry over.
    is_carried : bool
        Whether the tasks that write results read it again, to carry columns over.
    """

    table: Table
    counted: tuple[list[int], bool] | None
    n_columns: int
    is_carried: bool = False

    def sample(self, workers: Workers) -> Sample:
        """Return a sample of its rows; reads some partitions."""
        return take_sample(self.table.rows, self.counted, workers.n_threads)

    def scored(self, sample: Sample, *, is_own: bool) -> Scored:
        """Return it as rows to score."""
        is_frame = self.table.frame is not None
        return Scored(sample, self.n_columns, is_frame, self.is_carried, is_own)


def _open(X: Any, columns: Sequence[Any] | None) -> _Input:
    if is_paths(X):
        return _files(*open_measured(X, columns))
    return _collection(read_table(X if columns is None else select_columns(X, columns)))


def _collection(table: Table) -> _Input:
    return _Input(table, None, table.rows.shape[1])


def _files(kept: FileTable, measured: Any) -> _Input:
    """Return what is read of files: a frame to be measured, and what is carried over."""
    n_columns = len(kept.columns)
    return _Input(read_table(measured), kept.rows_of_parts(), n_columns, is_carried=True)


def _check_features(learnt: Table, scored: Table) -> None:
    n_learnt, n_scored = learnt.rows.shape[1], scored.rows.shape[1]
    if n_learnt != n_scored:
        raise ValueError(
            f"the rows to score have {n_scored} features, but the nominal rows have "
            f"{n_learnt}. Give the same columns (columns=, --columns)."
        )
