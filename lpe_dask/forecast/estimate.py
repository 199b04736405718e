"""Work out what a run would need, from a sample of the rows and the active workers.

    DATA, NOMINAL --files, a few partitions--> numbers of rows, samples
    numbers       --plan-->                    cut, memory, tasks          (whole numbers)
    samples       --trials-->                  algorithm, pairs, seconds   (measured here)

The run goes through the same steps with all rows; what it deduces is deduced here by the
same functions. Searches are only tried, for about a second.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from lpe_dask.batch import Run, check_not_with_model, next_job
from lpe_dask.forecast.forecast import Forecast
from lpe_dask.forecast.forecaster import Forecaster
from lpe_dask.forecast.planned_model import PlannedModel, plan_model, sample_model
from lpe_dask.forecast.sample import MAX_PARTITIONS, Sample, sample_table
from lpe_dask.forecast.sizes import Workload
from lpe_dask.model import Arguments, Fitted, ModelFolder, checked_parameters
from lpe_dask.storage import redact_errors, with_options
from lpe_dask.tables import (
    ExcludedColumns,
    FileTable,
    Table,
    feature_columns,
    is_path_like,
    open_features,
    sample_groups,
    select_columns,
    with_columns_last,
    with_csv,
    with_storage_options,
    without_last,
)
from lpe_dask.tasks import Workers, call_options, eager_scope


@redact_errors()
def plan(
    data: Any,
    nominal: Any = None,
    *,
    model: str | PathLike[str] | None = None,
    columns: Any = None,
    exclude: list[Any] | tuple[Any, ...] | None = None,
    csv: Mapping[str, Any] | None = None,
    date: datetime.date | str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **arguments: Unpack[Arguments],
) -> Forecast:
    """Forecast what scoring a table, or a job, needs: tasks, memory, pairs and time.

    Nothing is scored, and no table is read but for the number of its rows and a sample from
    up to 16 partitions; a second or two of trials on this sample measure how fast this
    machine is with it. Forecast is the run of ``lpe-dask score``, on the workers that a
    compute would use now: that of `score` has the same searches, but writes nothing.

    Parameters
    ----------
    data : array-like, DataFrame, dask array or dask DataFrame of shape (n, n_features)
        Rows to score; or the path of a Parquet or CSV table, or a list of such paths. Rows
        of files are counted by their metadata (Parquet) or by their bytes (CSV, about),
        those of a Dask DataFrame by the partitions that are read (about). Or the path of a
        job file, which ends in ``.toml``, with a ``date`` at most: what `run` would do
        from its start, on these workers rather than those of its section ``[cluster]``.
    nominal : same kinds, optional
        Nominal rows. None, without ``model``: each row of ``data`` is scored against all
        others.
    model : str or path, optional
        Folder of a model that `LPE.save` has written, instead of ``nominal``: nothing is
        fitted then.
    columns : sequence of str, optional
        The columns to measure, for frames and paths; None: all, or those of the model.
    exclude : sequence of str, optional
        Measure all columns of the nominal rows but these, instead of ``columns``; not with
        ``model``.
    csv : dict, optional
        How CSV files are read: see `score`.
    date : datetime.date or str, optional
        Of a job: the day to plan, as in `run`; None: the one that it would take.
    storage_options : dict, optional
        How URLs open, but those of a job, which has them in its section ``[storage]``: see
        `score_files`.
    **arguments
        Of `LPE`; none with ``model``. What ``anomaly_log_density`` takes is not counted.

    Returns
    -------
    forecast : Forecast
        Its ``tasks`` are those that make blocks of nominal rows and that compare rows:
        about so many for pruning or where rows are drawn; ``worker_bytes`` is the bound
        that a fit is checked against; ``seconds`` are right up to a factor of about 2, and
        4 for pruning, if nothing else takes the processors. ``print`` shows all of it. A
        run that does not fit is no error here: ``fits`` is false then.

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
    workers = Workers.active(wait=True)
    if is_job(data):
        data, date = Run.prepare(next_job(data, date)), None
    return make_forecast(
        lambda sizes: workers, data, nominal=nominal, model=model, columns=columns,
        exclude=exclude, csv=csv, date=date, storage_options=storage_options, **arguments,
    )  # fmt: skip


def is_job(data: Any) -> bool:
    """Return whether this is the path of a job file, rather than a table."""
    return isinstance(data, str | PathLike) and str(data).endswith(".toml")


#: Returns the workers for so much to do; they need not be there.
Choice = Callable[[Workload], Workers]


#: Arguments of `plan` that are none of `LPE`.
_OWN = ("nominal", "model", "columns", "exclude", "csv", "date", "storage_options")


@eager_scope()
def make_forecast(choose: Choice, data: Any, **given: Any) -> Forecast:
    """Return the forecast of `plan`, for the workers that are chosen.

    Parameters
    ----------
    choose : callable
    data
        As there, but instead of the path of a job its prepared run.
    **given
        The other arguments, as there.

    Raises
    ------
    FileExistsError
        If nothing of a job is left to be done.
    """
    given = {name: of for name, of in given.items() if of is not None or name not in _OWN}
    if isinstance(data, Run):
        if given:
            raise ValueError(
                f"{data.job.path} is a job file: {', '.join(given)} cannot be given with "
                f"it. Leave that out, or write it into the job."
            )
        return _forecast_job(choose, data)
    if "date" in given:
        raise ValueError(
            "a date (date=, --date) is for the path of a job file, which ends in .toml. "
            "Leave it out."
        )
    nominal, columns, csv = (
        given.pop(name, None) for name in ("nominal", "columns", "csv")
    )
    options = call_options(given.pop("storage_options", None))
    data = with_csv(with_storage_options(data, options), csv)
    if "model" in given:
        model = with_options(given.pop("model"), options)
        check_not_with_model(model, nominal, given)
        return _forecast_with_model(choose, data, model, columns)
    measured = feature_columns(columns, given.pop("exclude", None))
    parameters = checked_parameters(given, "plan")
    nominal = (
        None if nominal is None else with_csv(with_storage_options(nominal, options), csv)
    )
    return _forecast_score(choose, data, nominal, measured, parameters)


def _forecast_score(
    choose: Choice,
    data: Any,
    nominal: Any,
    measured: Sequence[Any] | ExcludedColumns | None,
    parameters: Mapping[str, Any],
) -> Forecast:
    categorical, by = parameters["categorical"], parameters["by"] or ()
    if nominal is None:
        scored = _open(data, measured, categorical, by=by)
        workers = choose(scored.sizes(parameters))
        model = scored.planned(workers, parameters)
        return scored.forecaster(workers, model, scores_nominal_rows=True).forecast()
    learned = _open(nominal, measured, categorical, by=by)
    scored = _open(data, learned.table.columns, None, learned.table)
    _check_features(learned.table, scored.table)
    workers = choose(learned.sizes(parameters, scored.sample.sizes))
    model = learned.planned(workers, parameters)
    return scored.forecaster(workers, model).forecast()


def _forecast_with_model(
    choose: Choice, data: Any, path: str | PathLike[str], columns: Any
) -> Forecast:
    model = ModelFolder(path).load()
    if is_path_like(data):
        kept, rows = model.open_table(data, columns)
        scored = _scored(rows, model, kept)
    else:
        X = data if columns is None else select_columns(data, columns, by=model.by)
        scored = _sampled(model.table(X))
    workers = choose(Workload.with_model(model, scored.sample.sizes))
    return scored.forecaster(workers, sample_model(model, workers)).forecast()


def _forecast_job(choose: Choice, run: Run) -> Forecast:
    if run.is_finished():
        raise FileExistsError(
            f"nothing to do: {run.job.place} exists already. Plan a job whose output is "
            f"yet to be made."
        )
    return forecaster_of(choose, run).forecast()


def forecaster_of(choose: Choice, run: Run) -> Forecaster:
    """Return the forecaster of a prepared run; reads samples of its rows."""
    with run.errors_with_location():
        return _forecaster_of(choose(Workload.of_run(run)), run)


def _forecaster_of(workers: Workers, run: Run) -> Forecaster:
    fit, scoring, scored = run.fit, run.scoring, None
    is_checked = run.job.model.check_calibration and run.model is None
    if run.model is not None:
        model = sample_model(run.model, workers)
    else:
        assert fit is not None
        categorical, n_by = fit.parameters["categorical"], len(fit.by)
        nominal = _learned(fit.nominal, categorical, fit.table, n_by)
        model = nominal.planned(workers, fit.parameters)
    if scoring is not None and not scoring.scores_nominal_rows:
        learned, rows = run.model or nominal.table, scoring.rows
        if run.model is None:
            rows = without_last(rows, n_by)
        scored = _scored(rows, learned, scoring.kept)
    if scoring is None:
        return Forecaster(workers, model, is_checked=is_checked)
    scores_nominal_rows = scored is None
    scored = scored or replace(nominal, n_columns=len(scoring.kept.columns))
    forecaster = scored.forecaster(workers, model, scores_nominal_rows=scores_nominal_rows)
    return replace(forecaster, is_checked=is_checked)


# Inputs


@dataclass(frozen=True, slots=True)
class _Input:
    """A table, and a sample of it.

    Attributes
    ----------
    table : Table
    sample : Sample
    n_columns : int
        Columns to carry over.
    is_carried : bool
        Whether the tasks that write results read it again, to carry columns over.
    group_sizes : ndarray of shape (n_groups,), optional
        Rows of groups in some partitions, where rows are divided into groups.
    """

    table: Table
    sample: Sample
    n_columns: int
    is_carried: bool = False
    group_sizes: NDArray[np.int64] | None = None

    def planned(self, workers: Workers, parameters: Mapping[str, Any]) -> PlannedModel:
        """Return the planned model of a fit to this table."""
        places = tuple(self.table.kinds)
        return plan_model(
            parameters, self.table, self.sample, workers, places, self.group_sizes
        )

    def sizes(self, parameters: Mapping[str, Any], scored: Sequence[int] = ()) -> Workload:
        """Return the work of a fit to this table, and of rows that are scored with it."""
        n_features = self.table.rows.shape[1] + (self.group_sizes is not None)
        return Workload.of_fit(parameters, self.sample.sizes, scored, n_features)

    def forecaster(
        self, workers: Workers, model: PlannedModel, *, scores_nominal_rows: bool = False
    ) -> Forecaster:
        """Return the forecaster of a run that scores these rows; see `Forecaster`."""
        is_frame = self.table.frame is not None
        return Forecaster(
            workers,
            model,
            self.sample,
            self.n_columns,
            is_frame,
            self.is_carried,
            scores_nominal_rows,
        )


def _open(
    X: Any,
    columns: Sequence[Any] | ExcludedColumns | None,
    categorical: str | Sequence[Any] | None = None,
    learned: Table | None = None,
    by: Sequence[Any] = (),
) -> _Input:
    """Return a table of any kind; ``learned`` has the nominal rows, if these are others.

    Without the columns in ``by``, which divide nominal rows into groups.
    """
    kept = None
    if is_path_like(X):
        kinds = None if learned is None else learned.kinds
        kept, X = open_features(X, columns, kinds=kinds, categorical=categorical, by=by)
    elif columns is not None:
        X = select_columns(X, columns, by=by)
    if by:
        X = with_columns_last(X, by)
    if learned is None:
        return _learned(X, categorical, kept, len(by))
    return _scored(X, learned, kept)


def _learned(
    X: Any, categorical: str | Sequence[Any] | None, kept: FileTable | None, n_by: int = 0
) -> _Input:
    """Return nominal rows, by the categories, groups and minima of some partitions.

    ``n_by``: how many of the last columns divide rows into groups.
    """
    sizes, read = None, partial(_sampled, kept=kept)
    if n_by:
        sizes, X = sample_groups(X, n_by, max_partitions=MAX_PARTITIONS)
    found = Table.read_sample(X, categorical, read, max_partitions=MAX_PARTITIONS)
    return replace(found, group_sizes=sizes)


def _scored(X: Any, learned: Table | Fitted, kept: FileTable | None) -> _Input:
    """Return rows to score, by the categories and minima of the nominal rows."""
    table = Table.of(X, categories=learned.categories, minima=learned.minima)
    return _sampled(table, kept)


def _sampled(table: Table, kept: FileTable | None = None) -> _Input:
    """Return a table; ``kept`` has the columns to carry over, if it is in files."""
    counted = None if kept is None else kept.rows_of_parts()
    sample = sample_table(table.rows, counted, Workers.active().n_threads)
    if kept is None:
        return _Input(table, sample, table.rows.shape[1])
    return _Input(table, sample, len(kept.columns), is_carried=True)


def _check_features(learned: Table, scored: Table) -> None:
    n_learned, n_scored = learned.rows.shape[1], scored.rows.shape[1]
    if n_learned != n_scored:
        raise ValueError(
            f"the rows to score have {n_scored} features, but the nominal rows have "
            f"{n_learned}. Give the same columns (columns=, --columns)."
        )
