"""The detector: `LPE`, a scikit-learn estimator, and `score`, the same in one call.

    fit      rows -> survey -> scaling, metric -> pack -> self-join -> sorted statistics
    score    rows -> join with the packed reference -> statistic -> p-value

`fit` computes, with whatever scheduler is active. The other methods are lazy on Dask input.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Self
from uuid import uuid4

import dask
import dask.array as da
import numpy as np
from dask.highlevelgraph import HighLevelGraph
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.utils.validation import check_is_fitted

from lpe_dask import decisions
from lpe_dask.calibration import P_VALUES
from lpe_dask.inputs import Table, map_values, read_table, select_columns
from lpe_dask.literals import enter
from lpe_dask.neighbors import Search, join, join_frame, self_join
from lpe_dask.nominal import Nominal, read_nominal
from lpe_dask.parameters import check_parameters, neighbors_by_rule, radius_by_rule
from lpe_dask.plan import JoinPlan, n_shares, plan_join
from lpe_dask.reference import prepare_reference
from lpe_dask.resources import workers
from lpe_dask.scaling import learn_preparation

logger = logging.getLogger(__name__)


class LPE(OutlierMixin, BaseEstimator):
    r"""Anomaly detector with p-values, from nearest neighbors among nominal rows.

    K-LPE gives each row :math:`\eta` the share of nominal rows whose distance to their K-th
    nearest neighbor is at least as large as its own,

    .. math:: \hat p_K(\eta) = \frac1n \sum_{i=1}^n 1\{R_S(\eta) \le R_S(x_i)\},

    where :math:`R_S(x_i)` leaves :math:`x_i` out of its own neighborhood. For a nominal row
    this is about uniform, so ``p <= alpha`` raises false alarms at rate alpha; near 0 means
    anomalous. Epsilon-LPE (``graph="radius"``) compares how many nominal rows lie within a
    radius instead. Distances are exact, in float64: the numbers do not depend on chunks,
    scheduler or workers.

    Parameters
    ----------
    n_neighbors : int, optional
        K, from 1 to n - 1. None: ``round(n**0.4)``.
    graph : {"knn", "radius"}, default="knn"
    radius : float, optional
        Epsilon, at least 0, for ``graph="radius"``, in scaled units; the ball is closed.
        None: ``n**(-3/(5 d)) * sqrt(d / (2 pi e))``, which needs ``scale="minmax"``.
    metric : {"euclidean", "seuclidean", "mahalanobis"}, default="euclidean"
    metric_params : dict, optional
        ``{"w": weights}`` for euclidean, ``{"V": variances}`` for seuclidean, or
        ``{"VI": inverse covariance}`` for mahalanobis, in scaled units. V and VI are learnt
        from the nominal rows (ddof 1) when omitted; V is 1 for a constant column.
    scale : {None, "minmax", "standard"}, default=None
        Learnt from the nominal rows: ``(x - min) / (max - min)`` or ``(x - mean) / std``. A
        constant column is shifted by its value and keeps its unit.
    alpha : float, default=0.05
        False-alarm level of `predict`, between 0 and 1.
    algorithm : {"auto", "brute", "pruned"}, default="auto"
        How neighbors are searched; results are the same. "brute" compares all pairs,
        "pruned" groups near rows and leaves out what is too far, which is faster unless
        the rows have many independent columns; "auto" tries a sample and logs what it took.
    calibration : {"loo"}, default="loo"
        Nominal rows are measured each left out, as in equations (1) and (2).
    calibration_size : None
    anomaly_log_density : None
    missing : {"error", "drop"}, default="error"
        What to do about a nominal row with NaN or inf.
    random_state : int, optional
        Nothing here is random with ``calibration="loo"`` and an exact algorithm.

    Attributes
    ----------
    calibration_ : ndarray of shape (n_samples_,)
        The statistic of each nominal row, ascending.
    n_neighbors_, radius_ : int, float
        K or epsilon in use; None for the other graph.
    offset_ : float
        The next float64 above alpha; an anomaly is what scores below it.
    n_samples_, n_dropped_ : int
        Nominal rows in use, and left out for ``missing="drop"``.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only after fitting a frame whose column names are all text.

    References
    ----------
    .. [1] M. Zhao and V. Saligrama, "Anomaly Detection with Score functions based on
       Nearest Neighbor Graphs", NIPS 2009, equations (1) and (2).

    Examples
    --------
    >>> import numpy as np
    >>> from lpe_dask import LPE
    >>> nominal = np.random.default_rng(0).standard_normal((1000, 2))
    >>> model = LPE(n_neighbors=10, alpha=0.05).fit(nominal)
    >>> model.score_samples(np.array([[0.0, 0.0], [2.0, 1.0], [9.0, 9.0]]))
    array([0.957, 0.071, 0.   ])
    >>> model.predict(np.array([[0.0, 0.0], [9.0, 9.0]]))
    array([ 1, -1])
    """

    def __init__(
        self,
        n_neighbors: int | None = None,
        *,
        graph: str = "knn",
        radius: float | None = None,
        metric: str = "euclidean",
        metric_params: Mapping[str, Any] | None = None,
        scale: str | None = None,
        alpha: float = 0.05,
        algorithm: str = "auto",
        calibration: str = "loo",
        calibration_size: int | None = None,
        anomaly_log_density: Any = None,
        missing: str = "error",
        random_state: int | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.graph = graph
        self.radius = radius
        self.metric = metric
        self.metric_params = metric_params
        self.scale = scale
        self.alpha = alpha
        self.algorithm = algorithm
        self.calibration = calibration
        self.calibration_size = calibration_size
        self.anomaly_log_density = anomaly_log_density
        self.missing = missing
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from nominal rows; computes, with the scheduler that is active.

        Parameters
        ----------
        X : array-like, DataFrame, dask array or dask DataFrame of shape (n, n_features)
            Nominal rows, numbers or booleans; or the path of a Parquet or CSV table. A Dask
            input is read several times.
        y : ignored

        Returns
        -------
        self : LPE

        Raises
        ------
        ValueError
            For a parameter out of range, NaN or inf (unless ``missing="drop"``), no more
            rows than ``n_neighbors``, or a singular covariance.
        TypeError
            For columns that are not numbers, or a dask array with unknown chunk sizes.
        MemoryError
            If a worker cannot hold what a task needs.
        OSError
            If the nominal rows do not fit into the memory of each worker, and there is no
            storage for them that all workers see.
        """
        check_parameters(self.get_params(deep=False))
        table = read_table(X)
        nominal = read_nominal(table, self.missing)
        self._learn_shape(table, nominal)
        plan = self._checked_plan(nominal.input_chunks)
        preparation = learn_preparation(
            nominal.rows, self.scale, self.metric, self.metric_params, table.labels
        )
        self._reference = prepare_reference(
            nominal.rows, nominal.sample, preparation, plan, self.algorithm, self.radius_
        )
        self._measure_nominal(table, nominal, plan)
        self.offset_ = decisions.threshold(self.alpha)
        logger.info(
            "fitted %d nominal rows x %d columns: graph=%s, n_neighbors=%s, radius=%s",
            self.n_samples_, self.n_features_in_, self.graph, self.n_neighbors_,
            self.radius_,
        )  # fmt: skip
        return self

    def _learn_shape(self, table: Table, nominal: Nominal) -> None:
        n, d = nominal.rows.shape
        n_neighbors, radius = self.n_neighbors, self.radius
        if self.graph == "radius":
            radius = radius_by_rule(n, d) if radius is None else float(radius)
        else:
            n_neighbors = neighbors_by_rule(n) if n_neighbors is None else int(n_neighbors)
            if n <= n_neighbors:
                raise ValueError(
                    f"n_neighbors={n_neighbors} needs at least {n_neighbors + 1} nominal "
                    f"rows, because a row is no neighbor of itself; there are n_samples = "
                    f"{n}. Lower n_neighbors, or give more rows."
                )
        self.n_samples_, self.n_features_in_ = n, d
        self.n_dropped_ = nominal.n_dropped
        self.n_neighbors_, self.radius_ = n_neighbors, radius
        if table.columns is not None:
            self.feature_names_in_ = np.array(table.columns, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _checked_plan(
        self, partition_sizes: Sequence[int], is_spooled: bool | None = None
    ) -> JoinPlan:
        """Return the plan for the workers at hand, which hold it; sizes may be NaN."""
        found = workers()
        plan = plan_join(
            self.n_samples_,
            self.n_features_in_,
            self.n_neighbors_ or 0,
            n_threads=found.n_threads,
            threads=found.threads,
            memory_limit=found.memory_limit,
            block_rows=dask.config.get("lpe-dask.block-rows", None),
            partition_rows=_largest(partition_sizes) or 0,
            is_spooled=is_spooled,
        )
        plan.check(found.memory_limit)
        return plan

    def _search(self, plan: JoinPlan) -> Search:
        algorithm = self._reference.algorithm
        return Search(algorithm, self.n_neighbors_, self.radius_, plan.pass_rows)

    def _measure_nominal(self, table: Table, nominal: Nominal, plan: JoinPlan) -> None:
        reference = self._reference
        joins = self_join(
            len(reference.blocks), reference.tasks(), reference.space, self._search(plan),
            plan.block_shares,
        )  # fmt: skip
        statistic = np.empty(self.n_samples_)
        for numbers, of_block in dask.compute(*joins):
            statistic[numbers] = of_block
        self.calibration_ = np.sort(statistic)
        if nominal.is_kept is not None:
            whole = np.full(len(nominal.is_kept), np.nan)
            whole[nominal.is_kept] = statistic
            statistic = whole
        self._nominal_statistic = statistic
        self._nominal_chunks = nominal.input_chunks
        self._restore_nominal = table.restore

    def statistic(self, X: Any) -> Any:
        """Return the statistic of new rows: distance to the K-th neighbor, or their number.

        Ranks rows beyond the largest nominal statistic, where every p-value is 0.

        Parameters
        ----------
        X : array-like, DataFrame, dask array or dask DataFrame of shape (n, n_features)
            Rows to measure against all nominal rows. Columns of a frame are found by name.

        Returns
        -------
        statistic : array or Series of shape (n,)
            float64, of the kind of ``X``, with its index; lazy for Dask. NaN for a row with
            NaN or inf.
        """
        return self._searched(self._table(X), self._search)

    def _searched(self, table: Table, to_search: Callable[[JoinPlan], Search]) -> Any:
        """Return the statistic of a search, of the kind that came in."""
        if table.frame is None:
            return table.restore(self._join(table, to_search), "statistic")
        reference = self._reference
        plan = self._checked_plan(table.rows.chunks[0], reference.blocks.is_spooled)
        return join_frame(table.frame, reference.tasks(), reference.space, to_search(plan))

    def _table(self, X: Any) -> Table:
        check_is_fitted(self)
        table = read_table(X, getattr(self, "feature_names_in_", None))
        if table.rows.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {table.rows.shape[1]} features, but LPE is expecting "
                f"{self.n_features_in_} features as input: the columns it was fitted on."
            )
        return table

    def _join(self, table: Table, to_search: Callable[[JoinPlan], Search]) -> da.Array:
        sizes = table.rows.chunks[0]
        plan = self._checked_plan(sizes, self._reference.blocks.is_spooled)
        shares = n_shares(
            len(sizes), workers().n_threads, _largest(sizes), plan.least_task_rows
        )
        reference = self._reference
        return join(table.rows, reference.tasks(), reference.space, to_search(plan), shares)

    def score_samples(self, X: Any) -> Any:
        """Return the p-value of new rows: in [0, 1], the lower the more anomalous.

        The rows are new points also if they were fitted: for nominal rows, each left out of
        its own neighborhood, see `p_values_`.

        Parameters
        ----------
        X : array-like, DataFrame, dask array or dask DataFrame of shape (n, n_features)

        Returns
        -------
        p_values : array or Series of shape (n,)
            float64 multiples of 1 / n_samples_, of the kind of ``X``, with its index; lazy
            for Dask. NaN for a row with NaN or inf.
        """
        return self.p_values_of(self.statistic(X))

    def p_values_of(self, statistic: Any) -> Any:
        """Return the p-values that belong to a statistic, without another search.

        Parameters
        ----------
        statistic : array or Series of shape (n,)
            As `statistic` or `statistic_` gives it.

        Returns
        -------
        p_values : array or Series of shape (n,)
            As `score_samples` gives them for the same rows.
        """
        check_is_fitted(self)
        function = P_VALUES[self.graph]
        return map_values(
            statistic, function, self.calibration_, name="p_value", dtype=np.float64
        )

    def predict(self, X: Any) -> Any:
        """Return -1 for rows with a p-value of at most alpha, else 1.

        The labels are those of `score_samples`, for less work: a row is not searched any
        further once enough nominal rows are near to know that it is none to report.

        Parameters
        ----------
        X : array-like, DataFrame, dask array or dask DataFrame of shape (n, n_features)

        Returns
        -------
        labels : array or Series of shape (n,)
            int64, of the kind of ``X``; lazy for Dask. 1 for a row with NaN or inf.
        """
        table = self._table(X)
        bound = decisions.nominal_bound(self.graph, self.calibration_, self.offset_)
        if not 0 < bound < np.inf:
            return self._labels(self.score_samples(X))
        # So many rows within this radius show that a row is nominal.
        enough = int(bound) if self.n_neighbors_ is None else self.n_neighbors_
        radius = bound if self.radius_ is None else self.radius_
        algorithm = self._reference.algorithm
        counts = self._searched(
            table, lambda plan: Search(algorithm, None, radius, plan.pass_rows, enough)
        )
        function = partial(decisions.labels_by_count, enough=enough)
        return map_values(counts, function, name="prediction", dtype=np.int64)

    def _labels(self, p_values: Any) -> Any:
        function = partial(decisions.labels, offset=self.offset_)
        return map_values(p_values, function, name="prediction", dtype=np.int64)

    def decision_function(self, X: Any) -> Any:
        """Return ``score_samples(X) - offset_``: negative exactly where `predict` is -1.

        Parameters
        ----------
        X : array-like, DataFrame, dask array or dask DataFrame of shape (n, n_features)

        Returns
        -------
        margins : array or Series of shape (n,)
            float64, of the kind of ``X``; lazy for Dask. NaN for a row with NaN or inf.
        """
        p_values = self.score_samples(X)
        function = partial(decisions.margin, offset=self.offset_)
        return map_values(p_values, function, name="decision_function", dtype=np.float64)

    def fit_predict(self, X: Any, y: Any = None) -> Any:
        """Fit nominal rows and return their labels, each left out of its own neighborhood.

        Parameters
        ----------
        X : as in `fit`
        y : ignored

        Returns
        -------
        labels : array or Series of shape (n,)
            -1 where `p_values_` is at most alpha, else 1; of the kind of ``X``.
        """
        return self._labels(self.fit(X).p_values_)

    @property
    def statistic_(self) -> Any:
        """Statistic of the nominal rows, each left out of its own neighborhood.

        In input order and of the kind that was fitted, lazy for Dask; NaN for dropped rows.
        """
        check_is_fitted(self)
        return self._restore_nominal(measure_blocks(self), "statistic")

    @property
    def p_values_(self) -> Any:
        """P-values of the nominal rows, each left out of its own neighborhood.

        In input order and of the kind that was fitted, lazy for Dask; NaN for dropped rows.
        """
        return self.p_values_of(self.statistic_)


def _largest(sizes: Sequence[int]) -> int | None:
    return None if np.isnan(sizes[0]) else max(sizes)


def measure_blocks(model: LPE, X: Any = None) -> da.Array:
    """Return the statistic of the rows of ``X`` as a dask array in its partitions, lazily.

    For those who write results partition by partition: unlike in `LPE.statistic`, a frame
    gives as many tasks as the workers have use for, also if it has few partitions.

    Parameters
    ----------
    model : LPE
        Fitted.
    X : as in `LPE.statistic`, optional
        None: the nominal rows, each left out, as `LPE.statistic_`.

    Returns
    -------
    statistic : dask array of shape (n,)
    """
    if X is None:
        return _stored(model._nominal_statistic, model._nominal_chunks)
    return model._join(model._table(X), model._search)


def _stored(values: NDArray[np.float64], chunks: Sequence[int]) -> da.Array:
    """Return numbers on the client as a dask array of shape (n,) in these chunks."""
    whole = enter(values, "lpe-nominal-statistic")
    name = f"lpe-stored-{uuid4().hex}"
    edges = np.cumsum([0, *chunks]).tolist()
    tasks = {
        (name, i): (_part, whole.key, start, stop)
        for i, (start, stop) in enumerate(pairwise(edges))
    }
    graph = HighLevelGraph.from_collections(name, tasks, dependencies=[whole])
    return da.Array(graph, name, (tuple(chunks),), meta=np.empty(0))


def _part(values: NDArray[np.float64], start: int, stop: int) -> NDArray[np.float64]:
    return values[start:stop]


def score(data: Any, nominal: Any = None, *, columns: Any = None, **arguments: Any) -> Any:
    """Return the p-value of each row of a table, against the others or a nominal set.

    Parameters
    ----------
    data : array-like, DataFrame, dask array or dask DataFrame of shape (n, n_features)
        Rows to score; or the path of a Parquet or CSV table.
    nominal : same kinds, optional
        Nominal rows. None: each row of ``data`` is scored against all others.
    columns : sequence of str, optional
        The columns to measure, for frames and paths; None: all.
    **arguments
        Of `LPE`.

    Returns
    -------
    p_values : array or Series of shape (n,)
        In [0, 1], the lower the more anomalous; of the kind of ``data``, with its index;
        lazy for Dask (the nominal rows are computed with at once). NaN for a row with NaN
        or inf; without ``nominal`` such rows are an error unless ``missing="drop"``.

    Raises
    ------
    TypeError
        For an unknown argument; otherwise as `LPE.fit`.

    Examples
    --------
    >>> import pandas as pd
    >>> import lpe_dask
    >>> table = pd.DataFrame({"x": [0, 1, 2, 3, 50]}, index=list("abcde"))
    >>> lpe_dask.score(table, n_neighbors=1)
    a    1.0
    b    1.0
    c    1.0
    d    1.0
    e    0.2
    Name: p_value, dtype: float64
    """
    allowed = LPE().get_params()
    unknown = sorted(set(arguments) - set(allowed))
    if unknown:
        raise TypeError(
            f"score() knows no {unknown}; arguments of LPE are {sorted(allowed)}."
        )
    model = LPE(**arguments)
    if columns is not None:
        data = select_columns(data, columns)
        nominal = None if nominal is None else select_columns(nominal, columns)
    if nominal is None:
        return model.fit(data).p_values_
    return model.fit(nominal).score_samples(data)
