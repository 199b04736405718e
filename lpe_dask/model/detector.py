"""The detector: `LPE`, a scikit-learn estimator, and `score`, the same in one call.

    fit      rows -> survey -> divide -> learn, pack -> measure -> sorted statistics
    score    rows -> join with the packed reference -> statistic -> p-value

`fit` computes, with whatever scheduler is active. The other methods are lazy on Dask input.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike, fspath
from typing import Any, Self

import dask.array as da
import fsspec
import numpy as np
from dask.tokenize import normalize_token
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.utils.validation import check_is_fitted

from lpe_dask.model.calibration_check import CalibrationCheck, hold_out, judge
from lpe_dask.model.checkpoint import Checkpoint
from lpe_dask.model.division import Division, divide
from lpe_dask.model.false_alarms import settle_calibration, warn_of_false_alarms
from lpe_dask.model.fitting import Recipe, measure_nominal, weigh_nominal
from lpe_dask.model.left_out import Asked
from lpe_dask.model.manifest import MANIFEST_NAME
from lpe_dask.model.own_values import OwnValues, StoredOwnValues
from lpe_dask.model.parameters import (
    check_names,
    check_parameters,
    neighbors_by_rule,
    radius_by_rule,
)
from lpe_dask.model.saving import (
    ModelParts,
    model_url,
    read_model,
    reserved_model,
    write_model,
)
from lpe_dask.pvalues import (
    Comparison,
    DensityWeight,
    LogDensity,
    check_level,
    labels,
    labels_by_count,
    margin,
    threshold,
    what_is_learnt,
)
from lpe_dask.search import Measure, Reference
from lpe_dask.storage import Lock, retried
from lpe_dask.tables import (
    Nominal,
    Origin,
    Table,
    map_values,
    name_from_json,
    name_to_json,
    read_nominal,
    read_table,
    select_columns,
    to_numpy,
)
from lpe_dask.tasks import Shared, eagerly, lazily

logger = logging.getLogger(__name__)

#: Start of the key of the task that gives what p-values compare with.
_CALIBRATION = "lpe-calibration"

#: Attributes of a fitted estimator that are numbers, without their underscore.
_SHAPE = ("n_samples", "n_dropped", "n_features_in", "n_neighbors", "radius", "offset")


class LPE(OutlierMixin, BaseEstimator):
    r"""Anomaly detector with p-values, from nearest neighbors among nominal rows.

    K-LPE gives each row :math:`\eta` the share of nominal rows whose distance to their K-th
    nearest neighbor is at least as large as its own,

    .. math:: \hat p_K(\eta) = \frac1n \sum_{i=1}^n 1\{R_S(\eta) \le R_S(x_i)\},

    where :math:`R_S(x_i)` leaves :math:`x_i` out of its own neighborhood. For a nominal row
    this is about uniform, so ``p <= alpha`` raises false alarms at rate alpha (exactly what
    is promised depends on what is learnt: see ``calibration``); near 0 means
    anomalous. Epsilon-LPE (``graph="radius"``) compares how many nominal rows lie within a
    radius instead. Distances are exact, in float64: the numbers do not depend on chunks,
    scheduler or workers.

    Parameters
    ----------
    n_neighbors : int, optional
        K, at least 1 and less than the nominal rows that rows are measured among. None:
        ``round(n**0.4)`` for n rows that new rows are measured among.
    graph : {"knn", "radius"}, default="knn"
    radius : float, optional
        Epsilon, at least 0, for ``graph="radius"``, in scaled units; the ball is closed.
        None: ``n**(-3/(5 d)) * sqrt(d / (2 pi e))``, which needs ``scale="minmax"``.
    metric : {"euclidean", "seuclidean", "mahalanobis", "geodesic"}, default="euclidean"
        "geodesic" goes along a graph that links each nominal row to its K' nearest; a new
        row enters it through its own K' nearest. Rows that cannot be reached are at
        distance inf. With ``graph="knn"`` it differs from "euclidean" only for K' < K.
    metric_params : dict, optional
        ``{"w": weights}`` for euclidean, ``{"V": variances}`` for seuclidean, or
        ``{"VI": inverse covariance}`` for mahalanobis, in scaled units. V and VI are learnt
        from the nominal rows (ddof 1) when omitted; V is 1 for a constant column.
        ``{"n_neighbors": K', "graph": "directed"}`` for geodesic, K' = 5 when omitted;
        p-values then come out somewhat too large for K several times K'. ``"union"`` has
        edges in both directions, as Isomap does, but then nominal rows have more edges than
        new ones, and p-values come out too small: it takes ``calibration="conformal"``,
        which is right for both (docs/geodesic.md).
    scale : {None, "minmax", "standard"}, default=None
        Learnt from the nominal rows: ``(x - min) / (max - min)`` or ``(x - mean) / std``. A
        constant column is shifted by its value and keeps its unit.
    alpha : float, default=0.05
        False-alarm level of `predict`, between 0 and 1.
    algorithm : {"auto", "brute", "pruned"}, default="auto"
        How neighbors are searched; results are the same. "brute" compares all pairs,
        "pruned" groups near rows and leaves out what is too far, which is faster unless
        the rows have many independent columns; "auto" tries a sample and logs what it took.
    calibration : {"auto", "loo", "split", "conformal"}, default="auto"
        Which nominal rows p-values compare with. "loo": all, each measured left out, as in
        equations (1) and (2); where scale and metric are given, P(p <= a) is at most
        ``(floor(a n) + 1) / (n + 1)`` for rows drawn like the nominal ones, averaged over
        nominal sets. "split": half of them, S1, measured within S1, and new rows within the
        other half, S2, as in the paper's theory. "conformal": half of them, measured like
        new rows among the other half, from which scaling and metric are learnt, too; with
        ``p = (1 + count) / (m + 1)``, P(p <= a) <= a holds exactly, whatever is learnt.
        "auto": "loo" where nothing is learnt, or from rows enough (200 d of d columns for
        "minmax", 70 d for "standard" and "seuclidean", 40 d**1.5 for "mahalanobis"), else
        "conformal", as for the "union" graph; a log line says which, and why. "loo" with
        fewer is obeyed, with a warning where it raises more false alarms
        (docs/calibration.md).
    calibration_size : int, optional
        m, how many nominal rows are measured, drawn at random: measuring them takes a time
        proportional to m. With "loo" p-values differ from those with all rows by at most
        about ``sqrt(log(2 / 0.05) / (2 m))``, all at once, with probability 0.95 (0.014 for
        m = 10,000). With "split" the m are drawn from S1; with "conformal" all other rows
        are what rows are measured among.
    anomaly_log_density : callable, optional
        The logarithm of a known density f1 of the anomalies, as a function from rows,
        float64 of shape (n_rows, n_features) in the units they came in, to shape (n_rows,);
        up to a constant. p-values then compare ``log f1 + n_features * log R``, or
        ``log N - log f1``, and are the best test against f1.
    missing : {"error", "drop"}, default="error"
        What to do about a nominal row with NaN or inf.
    random_state : int, optional
        Draws the rows of ``calibration`` and ``calibration_size``; None: others at each
        fit, but with ``calibration="auto"`` always the same. Nothing else is random.

    Attributes
    ----------
    calibration_ : ndarray of shape (n_samples_,) or (m,)
        The statistic of each calibration row, or what p-values compare instead, ascending.
    calibration_kind_ : {"loo", "split", "conformal"}
        The calibration in use.
    n_neighbors_, radius_ : int, float
        K or epsilon in use; None for the other graph.
    offset_ : float
        The next float64 above alpha; an anomaly is what scores below it.
    n_samples_, n_dropped_ : int
        Nominal rows in use, and left out for ``missing="drop"``.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only after fitting a frame whose column names are all text. (Columns of other names
        are found by name as well.)

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
        calibration: str = "auto",
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
            Nominal rows, numbers or booleans; or the path of a Parquet or CSV table, or a
            list of such paths. A Dask input is read several times, and again where a
            cluster has lost what was made of it. The model keeps what it was given, for
            `check_calibration` as well, without a copy. An array that was fitted on a
            cluster, or of which not all rows are calibration rows, must not be changed;
            ValueError when it is read again otherwise.
        y : ignored

        Returns
        -------
        self : LPE

        Raises
        ------
        ValueError
            For a parameter out of range, NaN or inf (unless ``missing="drop"``), fewer rows
            than ``n_neighbors`` or the calibration needs, a singular covariance, or an
            ``anomaly_log_density`` that gives no logarithms.
        TypeError
            For columns that are not numbers, or a dask array of an unknown number of
            columns. (Unknown lengths of chunks are computed, and a log line says so.)
        MemoryError
            If a worker cannot hold what a task needs.
        OSError
            If the nominal rows do not fit into the memory of each worker, and there is no
            storage for them that all workers see.
        """
        return eagerly(lambda: self._fit(X, None))

    def _fit(self, X: Any, checkpoint: Checkpoint | None) -> Self:
        parameters = self.get_params(deep=False)
        check_parameters(parameters)
        table = read_table(X)
        nominal = read_nominal(table, self.missing)
        shape = nominal.rows.shape
        calibration = calibration_of(self, *shape)
        division = divide(calibration, shape[0], self.calibration_size, self._seed)
        measure = self._measure(division, shape[1], calibration)
        recipe = Recipe(
            measure, self.scale, self.metric, self.metric_params, self.algorithm,
            table.labels,
        )  # fmt: skip
        comparison = Comparison.of(self.graph, calibration, self.anomaly_log_density)
        self._forget()  # what the last fit holds gives way, and is not mixed with this one
        reference, statistic = measure_nominal(nominal, division, recipe, checkpoint)
        compared = statistic
        if comparison.weight is not None:
            compared = weigh_nominal(nominal, division, statistic, comparison.weight)
        self._reference, self._comparison = reference, comparison
        self._own: OwnValues | StoredOwnValues = OwnValues.of(
            X, nominal, division, statistic, compared
        )
        self.calibration_ = np.sort(compared)
        self._shared_calibration = Shared(self.calibration_, _CALIBRATION)
        self._take_shape(table, nominal, measure)
        self._nominal = NominalKind(table.restore, table.frame, table.is_lazy, Origin(X))
        self._parameters = parameters
        self.calibration_kind_ = calibration
        self._warn_if_nothing_can_be_flagged()
        warn_of_false_alarms(
            calibration, what_is_learnt(self.scale, self.metric, self.metric_params),
            nominal.sample, reference.space.preparation,
            Asked(measure.n_neighbors, measure.radius), shape[0], division.n_calibration,
            self.alpha,
        )  # fmt: skip
        logger.info(
            "fitted %d nominal rows x %d columns: graph=%s, n_neighbors=%s, radius=%s",
            self.n_samples_, self.n_features_in_, self.graph, self.n_neighbors_,
            self.radius_,
        )  # fmt: skip
        return self

    @property
    def _seed(self) -> int | None:
        """The seed of the draw of rows: with "auto" the same at each fit."""
        is_fixed = self.random_state is None and self.calibration == "auto"
        return 0 if is_fixed else self.random_state

    @property
    def _calibration(self) -> Shared:
        """What p-values compare with, sent once for all graphs."""
        shared: Shared = self._shared_calibration
        if shared.value is not self.calibration_:  # set by the user, or by a deep copy
            shared = self._shared_calibration = Shared(self.calibration_, _CALIBRATION)
        return shared

    def _forget(self) -> None:
        """Become an estimator that is not fitted."""
        held = (
            "_reference", "_comparison", "_own", "_nominal", "_shared_calibration",
            "_columns", "_parameters",
        )  # fmt: skip
        for name in [*vars(self)]:
            if name in held or name.endswith("_"):
                delattr(self, name)

    def _measure(self, division: Division, n_features: int, calibration: str) -> Measure:
        """Return what is asked of rows: K, or the radius; checked, or by their rules."""
        n = division.n_reference
        if self.graph == "radius":
            radius = radius_by_rule(n, n_features) if self.radius is None else self.radius
            return Measure(None, float(radius))
        n_neighbors = neighbors_by_rule(n) if self.n_neighbors is None else self.n_neighbors
        _check_enough_rows(int(n_neighbors), calibration, division)
        return Measure(int(n_neighbors), None)

    def _take_shape(self, table: Table, nominal: Nominal, measure: Measure) -> None:
        self.n_samples_, self.n_features_in_ = nominal.rows.shape
        self.n_dropped_ = nominal.n_dropped
        self.n_neighbors_, self.radius_ = measure.n_neighbors, measure.radius
        self.offset_ = threshold(self.alpha)
        self._take_names(table.columns)

    def _take_names(self, columns: list[Any] | None) -> None:
        """Remember the names of the columns; scikit-learn's attribute is for text only."""
        self._columns = columns
        if columns is not None and all(isinstance(name, str) for name in columns):
            self.feature_names_in_ = np.array(columns, dtype=object)

    def _warn_if_nothing_can_be_flagged(self) -> None:
        least = self._comparison.least_p_value(self.calibration_)
        if least < self.offset_:
            return
        n_rows = len(self.calibration_)
        logger.warning(
            "no row can be flagged at alpha=%g: the p-value of a row as anomalous as can "
            "be is %.3g, with %d calibration rows. Raise alpha, or use more nominal rows; "
            "with graph='radius' a larger radius; along a neighbor graph more edges "
            "(metric_params['n_neighbors'], the graph 'union') or a lower n_neighbors.",
            self.alpha, least, n_rows,
        )  # fmt: skip

    def save(self, path: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Write the model to a folder, from which `load` reads it; computes.

        JSON and Parquet files only. The rows of the reference are written by the workers;
        what a reader sees is the whole model, or the one that was there before.

        Parameters
        ----------
        path : str or path
            Folder or fsspec URL that this process and all workers see.
        overwrite : bool, default=False
            Replace a model that is there. Its files stay until the next time, for those who
            read them at the moment.

        Raises
        ------
        FileExistsError
            If there is a model and ``overwrite`` is false, or something else is there.
        ValueError
            For parameters that were set after the fit, and are out of range.
        OSError
            If nothing can be written, or another run is writing a model there.
        """
        check_is_fitted(self)
        url = model_url(path)
        filesystem, root = fsspec.core.url_to_fs(url)
        with reserved_model(url) as lock:
            is_there = retried(filesystem.exists)(f"{root}/{MANIFEST_NAME}")
            if is_there and not overwrite:
                raise FileExistsError(
                    f"there is a model at {url}. Give another folder, or replace it "
                    f"(overwrite=True)."
                )
            save_model(self, lock)

    def statistic(self, X: Any) -> Any:
        """Return the statistic of new rows: distance to the K-th neighbor, or their number.

        Ranks rows beyond the largest nominal statistic, where every p-value is 0.

        Parameters
        ----------
        X : array-like, DataFrame, dask array or dask DataFrame of shape (n, n_features)
            Rows to measure. Columns of a frame are found by name, where a frame was fitted;
            otherwise by position.

        Returns
        -------
        statistic : array or Series of shape (n,)
            float64, of the kind of ``X``, with its index; lazy for Dask. NaN for a row with
            NaN or inf.
        """
        table = self._table(X)
        return self._reference.measure_table(table)

    def _table(self, X: Any) -> Table:
        check_is_fitted(self)
        table = read_table(X, self._columns)
        if table.rows.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {table.rows.shape[1]} features, but LPE is expecting "
                f"{self.n_features_in_} features as input: the columns it was fitted on."
            )
        return table

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
            float64 multiples of 1 / n_samples_ (or of 1 / m or 1 / (m + 1) for m
            calibration rows), of the kind of ``X``, with its index; lazy for Dask. NaN for
            a row with NaN or inf.
        """
        table, comparison = self._table(X), self._comparison
        with lazily():
            compared = self._reference.measure_table(table, weight=comparison.weight)
            return comparison.p_values(compared, self._calibration)

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

        Raises
        ------
        ValueError
            With ``anomaly_log_density``, which needs the rows.
        """
        check_is_fitted(self)
        if self._comparison.weight is not None:
            raise ValueError(
                "with anomaly_log_density a p-value depends on the row, not on its "
                "statistic alone. Use score_samples(X) for new rows, p_values_ for nominal "
                "ones."
            )
        return self._comparison.p_values(statistic, self._calibration)

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
        bound = self._comparison.nominal_bound(self.calibration_, self.offset_)
        if bound is None:
            return self._labels(self.score_samples(X))
        # So many rows within this radius show that a row is nominal.
        enough = int(bound) if self.n_neighbors_ is None else self.n_neighbors_
        radius = bound if self.radius_ is None else self.radius_
        counts = self._reference.measure_table(table, Measure(None, radius, enough))
        function = partial(labels_by_count, enough=enough)
        return map_values(counts, function, name="prediction", dtype=np.int64)

    def _labels(self, p_values: Any) -> Any:
        function = partial(labels, offset=self.offset_)
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
        function = partial(margin, offset=self.offset_)
        return map_values(p_values, function, name="decision_function", dtype=np.float64)

    def check_calibration(
        self,
        X: Any = None,
        fraction: float = 0.1,
        alphas: Sequence[float] = (0.01, 0.05, 0.1),
    ) -> CalibrationCheck:
        """Judge by nominal rows that are held out whether false alarms are as promised.

        Fits the other rows with the parameters of this model, K or radius and the
        calibration as they are in use, and scores those that were held out. Computes, and
        takes about as long as `fit`.

        Parameters
        ----------
        X : as in `fit`, optional
            Nominal rows. None: those that were fitted; a model that was loaded, or a copy
            of one that was fitted on an array or a pandas frame, has none.
        fraction : float, default=0.1
            Of the rows, to be held out: drawn by ``random_state``, or 0.
        alphas : sequence of float
            The levels to judge.

        Returns
        -------
        check : CalibrationCheck
            Its ``table`` has a line for each level, ``holds`` is the verdict on all.
            Where the promise holds, that is found with a probability of 0.99 at least.

        Raises
        ------
        ValueError
            Without rows, or if those that are left are too few to fit.

        Examples
        --------
        >>> import numpy as np
        >>> from lpe_dask import LPE
        >>> nominal = np.random.default_rng(0).standard_normal((2000, 3))
        >>> check = LPE(scale="standard").fit(nominal).check_calibration()
        >>> check.table[["alpha", "flagged", "lower", "upper", "verdict"]]
           alpha  flagged  lower  upper verdict
        0   0.01        0      0      7   holds
        1   0.05        8      3     20   holds
        2   0.10       15      9     33   holds
        >>> check.holds
        True
        """
        check_is_fitted(self)
        alphas = np.atleast_1d(alphas).tolist()
        for alpha in alphas:
            check_level("alphas", alpha)
        origin = self._nominal.origin
        if X is None and origin is not None:
            X = origin.rows
        if X is None:
            raise ValueError(
                "check_calibration needs the nominal rows, and this model has not got "
                "them: it was loaded or copied. Give them: check_calibration(X)."
            )
        return eagerly(lambda: self._check_calibration(self._table(X), fraction, alphas))

    def _check_calibration(
        self, table: Table, fraction: float, alphas: Sequence[float]
    ) -> CalibrationCheck:
        parameters = self._parameters
        nominal = read_nominal(table, parameters["missing"])
        seed, size = parameters["random_state"] or 0, parameters["calibration_size"]
        fitted, held_out = hold_out(nominal, fraction, seed)
        settled = {
            "n_neighbors": self.n_neighbors_,
            "radius": self.radius_,
            "calibration": self.calibration_kind_,
            "calibration_size": size and max(1, size * len(fitted) // len(nominal.rows)),
            "random_state": seed,
        }
        model = LPE(**parameters | settled)
        p_values = to_numpy(model.fit(fitted).score_samples(held_out), "p_value")
        return judge(p_values, self.calibration_kind_, len(model.calibration_), alphas)

    def fit_predict(self, X: Any, y: Any = None) -> Any:
        """Fit nominal rows and return their labels, by `p_values_`.

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
        With ``calibration_size``, "split" or "conformal" the calibration rows are measured
        as `LPE` says; all others are measured when they are asked for, each time, among the
        rows that new ones are measured among.
        """
        return self._of_nominal_rows("statistic")

    @property
    def p_values_(self) -> Any:
        """P-values of the nominal rows, each left out of its own neighborhood.

        In input order and of the kind that was fitted, lazy for Dask; NaN for dropped rows.
        That holds for calibration rows, which are all of them if not asked for otherwise;
        about rows that are not calibration rows see `statistic_`. A calibration row does
        not count itself twice: in the conformal form its p-value is ``count / (m + 1)``,
        where the count has itself in it.
        """
        return self._of_nominal_rows("p_value")

    def _of_nominal_rows(self, name: str) -> Any:
        """Return the statistic or the p-values of the nominal rows, in the kind fitted."""
        check_is_fitted(self)
        own, kind = self._own.known(), self._nominal
        is_statistic = name == "statistic"
        if own.others is not None:
            return (
                own_values_in_kind(self, name)
                if kind.is_lazy
                else eagerly(lambda: own_values_in_kind(self, name))
            )
        if kind.frame is not None:
            with lazily():
                if is_statistic:
                    return own.series(kind.frame)
                return own.p_value_series(kind.frame, self._comparison, self._calibration)
        if kind.is_lazy:
            return own_values_in_kind(self, name)
        if is_statistic:
            return kind.restore(own.statistic.value.copy(), name)
        p_values = own.own_p_values(self._comparison, self._calibration)
        return kind.restore(p_values, name)


def _token_of_model(model: LPE) -> Any:
    """Tell a model from a copy of it, which can be sent where the model cannot.

    dask-ml names estimators by what is public: the two would be one task to a client, which
    waits for ever where the model was refused and the copy is then sent.
    """
    return type(model).__name__, normalize_token(vars(model))


normalize_token.register(LPE, _token_of_model)


@dataclass(frozen=True, slots=True)
class NominalKind:
    """In what kind the nominal rows came, for results that belong to them.

    Attributes
    ----------
    restore, frame, is_lazy
        As in `Table`.
    origin : Origin, optional
        The rows themselves.
    """

    restore: Callable[[Any, str], Any]
    frame: Any = None
    is_lazy: bool = False
    origin: Origin | None = None


def own_values_in_kind(model: LPE, name: str) -> Any:
    """Return the statistic or p-values of nominal rows that may have to be measured."""
    with lazily():
        statistic, p_values = measure_blocks(model)
        values = statistic if name == "statistic" else p_values
        return model._nominal.restore(values, name)


def _check_enough_rows(n_neighbors: int, calibration: str, division: Division) -> None:
    if n_neighbors <= division.most_neighbors:
        return
    n, most = division.n_rows, division.most_neighbors
    if not division.is_disjoint:
        raise ValueError(
            f"n_neighbors={n_neighbors} needs at least {n_neighbors + 1} nominal rows, "
            f"because a row is no neighbor of itself; there are n_samples = {n}. Lower "
            f"n_neighbors, or give more rows."
        )
    remedy = "Give more rows, or another calibration."
    if most > 0:
        remedy = f"Lower n_neighbors to {most} or less, or give more rows."
    raise ValueError(
        f"n_neighbors={n_neighbors} is too many for calibration={calibration!r}, which "
        f"measures new rows among {division.n_reference} of n_samples = {n} nominal rows. "
        f"{remedy}"
    )


def save_model(model: LPE, lock: Lock, source: str | None = None) -> None:
    """Write a fitted model to the folder of a `saving.reserved_model`; computes.

    Parameters
    ----------
    model : LPE
    lock : Lock
    source : str, optional
        Tells what it was fitted from.
    """
    parameters = model.get_params(deep=False)
    del parameters["anomaly_log_density"]  # a function: whoever loads has to have it
    names = model._columns
    comparison = model._comparison
    fitted = {name: getattr(model, f"{name}_") for name in _SHAPE} | {
        "feature_names_in": None if names is None else list(map(name_to_json, names)),
        "graph": comparison.graph,
        "counts_itself": comparison.counts_itself,
        "has_anomaly_log_density": comparison.weight is not None,
    }
    parts = ModelParts(
        parameters, fitted, model._reference, model.calibration_, model._own, source
    )
    write_model(parts, lock)


def load(path: str | PathLike[str], anomaly_log_density: LogDensity | None = None) -> LPE:
    """Return the model that `LPE.save` wrote to a folder; computes nothing.

    No code is run that comes from the folder, and no row of the reference is read here: the
    tasks that score rows read them, on the workers. Input of this process (NumPy, pandas)
    is scored at once, and the model then keeps them.

    Parameters
    ----------
    path : str or path
        Folder or fsspec URL that this process and all workers see.
    anomaly_log_density : callable, optional
        The same function that the model was fitted with, if it was with one: only that
        there was one is saved.

    Returns
    -------
    model : LPE
        It scores bit for bit as the one that was saved. Its ``p_values_`` and
        ``statistic_`` are NumPy arrays in the order of the nominal rows, and there only if
        all of these were calibration rows. Arrays in ``metric_params`` have become lists.

    Raises
    ------
    FileNotFoundError
        If there is no model, or one of its files is missing.
    ValueError
        If a file was cut short or altered, is of a newer format, or holds what no model
        does; or if ``anomaly_log_density`` is missing, or one too many.
    OSError
        If a file cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import lpe_dask
    >>> nominal = np.random.default_rng(0).standard_normal((1000, 2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lpe_dask.LPE(n_neighbors=10).fit(nominal).save(f"{folder}/model")
    ...     model = lpe_dask.load(f"{folder}/model")
    ...     model.score_samples(np.array([[0.0, 0.0], [2.0, 1.0], [9.0, 9.0]]))
    array([0.957, 0.071, 0.   ])
    """
    return _model_of(read_model(path), path, anomaly_log_density)


def load_with_source(path: str | PathLike[str]) -> tuple[LPE, str]:
    """Return the model of a folder, and what tells it from others: of one reading.

    Others may be replacing it at the same time; see `saving.model_source`.
    """
    parts = read_model(path)
    assert parts.source is not None
    return _model_of(parts, path, None), parts.source


def _model_of(
    parts: ModelParts, path: str | PathLike[str], anomaly_log_density: LogDensity | None
) -> LPE:
    fitted = parts.fitted
    if fitted["has_anomaly_log_density"] != (anomaly_log_density is not None):
        was = "with" if fitted["has_anomaly_log_density"] else "without"
        remedy = "that same function" if was == "with" else "none"
        raise ValueError(
            f"the model at {fspath(path)} was fitted {was} anomaly_log_density. Give "
            f"{remedy} to load(path, anomaly_log_density=...)."
        )
    model = LPE(**parts.parameters, anomaly_log_density=anomaly_log_density)
    model._parameters = model.get_params(deep=False)
    check_parameters(model._parameters)
    weight = None
    if anomaly_log_density is not None:
        weight = DensityWeight(anomaly_log_density, fitted["graph"])
    model._reference, model._own = parts.reference, parts.own_values
    model._comparison = Comparison(fitted["graph"], fitted["counts_itself"], weight)
    model._nominal = NominalKind(to_numpy)
    model.calibration_ = parts.calibration
    model.calibration_kind_ = model._comparison.kind(model.calibration)
    model._shared_calibration = Shared(parts.calibration, _CALIBRATION)
    for name in _SHAPE:
        setattr(model, f"{name}_", fitted[name])
    names = fitted["feature_names_in"]
    model._take_names(None if names is None else list(map(name_from_json, names)))
    return model


def fit_resumably(model: LPE, X: Any, checkpoint: Checkpoint) -> LPE:
    """Fit a model as `LPE.fit` does, but keep what is measured as soon as it is.

    Parameters
    ----------
    model : LPE
        With a ``random_state``, where rows are drawn: it decides which are measured.
    X : as in `LPE.fit`
    checkpoint : Checkpoint
        Of these rows and these parameters; what it holds is not measured again.
    """
    return eagerly(lambda: model._fit(X, checkpoint))


def calibration_of(model: LPE, n_rows: int, n_features: int) -> str:
    """Return the calibration that a model takes for so many nominal rows."""
    learnt = what_is_learnt(model.scale, model.metric, model.metric_params)
    return settle_calibration(model.calibration, learnt, n_rows, n_features)


def measure_of(
    model: LPE, division: Division, n_features: int, calibration: str
) -> Measure:
    """Return what a model asks of rows, by its parameters; raises as `LPE.fit` does."""
    return model._measure(division, n_features, calibration)


def reference_of(model: LPE) -> Reference:
    """Return what a fitted model measures new rows among."""
    return model._reference


def learnt_columns(model: LPE) -> list[Any] | None:
    """Return the names of the columns that a model was fitted on; None for an array."""
    return model._columns


def table_to_score(model: LPE, X: Any) -> Table:
    """Return rows as a fitted model takes them; raises as `LPE.score_samples` does."""
    return model._table(X)


def measure_blocks(
    model: LPE, X: Any = None, frame_sizes: Sequence[int] = ()
) -> tuple[da.Array, da.Array]:
    """Return statistic and p-values of rows as dask arrays in their partitions, lazily.

    For those who write results partition by partition: unlike in `LPE.statistic`, a frame
    gives as many tasks as the workers have use for, also if it has few partitions.

    Parameters
    ----------
    model : LPE
        Fitted.
    X : as in `LPE.statistic`, optional
        None: the nominal rows, as `LPE.statistic_` and `LPE.p_values_`.
    frame_sizes : sequence of int
        As in `Reference.measure_rows`.

    Returns
    -------
    statistic, p_values : dask array of shape (n,)
    """
    reference, comparison = model._reference, model._comparison
    calibration = model._calibration
    if X is None:
        own = model._own.known()
        statistic, compared = own.blocks(reference, comparison)
        is_own = own.is_own_blocks()
        return statistic, comparison.own_p_values(compared, is_own, calibration)
    rows = model._table(X).rows
    statistic = reference.measure_rows(rows, frame_sizes=frame_sizes)
    compared = comparison.compared(rows, statistic)
    return statistic, comparison.p_values(compared, calibration)


def score(data: Any, nominal: Any = None, *, columns: Any = None, **arguments: Any) -> Any:
    """Return the p-value of each row of a table, against the others or a nominal set.

    Parameters
    ----------
    data : array-like, DataFrame, dask array or dask DataFrame of shape (n, n_features)
        Rows to score; or the path of a Parquet or CSV table, or a list of such paths.
    nominal : same kinds, optional
        Nominal rows. None: those of ``data``, scored as `LPE.p_values_` says: each against
        all others, unless not all rows are calibration rows.
    columns : sequence, optional
        Names of the columns to measure, for frames and paths; None: all.
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
    check_names("score", arguments)
    model = LPE(**arguments)
    if columns is not None:
        data = select_columns(data, columns)
        nominal = None if nominal is None else select_columns(nominal, columns)
    if nominal is None:
        return model.fit(data).p_values_
    return model.fit(nominal).score_samples(data)
