"""The detector: `LPE`, a scikit-learn estimator, and `score`, the same in one call.

    fit      rows -> survey -> divide -> learn, pack -> measure -> sorted statistics
    score    rows -> join with the packed reference -> statistic -> p-value

`fit` computes, with whatever scheduler is active. The other methods are lazy on Dask input.
Each method imports the steps it takes: the class is there as soon as scikit-learn is.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Self, Unpack, overload

import numpy as np
import pandas as pd
from dask.tokenize import normalize_token
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.utils.validation import check_is_fitted

# As modules: what opens files and computes is imported when a method needs it.
import lpe_dask.tables as tables
import lpe_dask.tasks as tasks
from lpe_dask.model.arguments import (
    AggregationChoice,
    AlgorithmChoice,
    Arguments,
    CalibrationChoice,
    Categorical,
    Csv,
    GraphChoice,
    LogDensity,
    MetricChoice,
    MissingChoice,
    Names,
    OutputChoice,
    OwnPart,
    Rows,
    ScaleChoice,
    ScoreArguments,
    SmallGroupsChoice,
)
from lpe_dask.model.lpe_parameters import as_lists, check_choice, reject_unknown_arguments
from lpe_dask.storage import redact_errors

if TYPE_CHECKING:
    import dask.array as da
    import dask.dataframe as dd

    from lpe_dask.model.calibration_check import CalibrationCheck
    from lpe_dask.model.fitted import Fitted

logger = logging.getLogger(__name__)


class LPE(OutlierMixin, BaseEstimator):
    r"""Anomaly detector with p-values, from nearest neighbors among nominal rows.

    K-LPE gives each row :math:`\eta` the share of nominal rows whose distance to their K-th
    nearest neighbor is at least as large as its own,

    .. math:: \hat p{}_K(\eta) = \frac1n \sum_{i=1}^n \mathbb{I}\{R_S(\eta) \le R_S(x_i)\},

    where :math:`R_S(x_i)` leaves :math:`x_i` out of its own neighborhood. For a nominal row
    this is about uniform, so ``p <= alpha`` raises false alarms at rate alpha (exactly what
    is promised depends on what is learned: see ``calibration``); near 0 means
    anomalous. Epsilon-LPE (``graph="radius"``) compares how many nominal rows lie within a
    radius instead. Distances are exact, in float64: the numbers do not depend on chunks,
    scheduler or workers. Which scale, K, aggregation and weights find most is a matter of
    the table: docs/guide/choosing.md helps to choose.

    Parameters
    ----------
    n_neighbors : int, optional
        K, at least 1 and less than the nominal rows that rows are measured among. None:
        ``round(n**0.4)`` for n rows that new rows are measured among.
    graph : {"knn", "radius"}, default="knn"
        Whether rows are measured by the distance to K nearest rows, or by how many rows are
        within a radius.
    radius : float, optional
        Epsilon, at least 0, for ``graph="radius"``, in scaled units; the ball is closed.
        None: ``n**(-3/(5 d)) * sqrt(d / (2 pi e))``, which needs ``scale="minmax"``.
    aggregation : {"kth", "mean"}, default="kth"
        R for ``graph="knn"``: the distance to the K-th nearest row, as in the paper, or the
        mean of the distances to the K nearest [2]_, added ascending, which depends less on
        K. It is inf where fewer than K are at a finite distance.
    metric : {"euclidean", "seuclidean", "mahalanobis", "geodesic"}, default="euclidean"
        "geodesic" goes along a graph that links each nominal row to its K' nearest; a new
        row enters it through its own K' nearest. Rows that cannot be reached are at
        distance inf. With ``graph="knn"`` it differs from "euclidean" only for K' < K.
    metric_params : dict, optional
        ``{"w": weights}`` for euclidean, ``{"V": variances}`` for seuclidean, or
        ``{"VI": inverse covariance}`` for mahalanobis, in scaled units. V and VI are
        learned from the nominal rows (ddof 1) when omitted; V is 1 for a constant column.
        With ``scale="minmax+quantile"`` a weight is that of both forms of its column, and V
        and VI are those of all forms. Squared differences are multiplied by w or 1 / V, so
        that equal ones stay equal; a column of weight 0 is left out. For "w_missing" see
        ``missing``.
        ``{"n_neighbors": K', "graph": "directed"}`` for geodesic, K' = 5 when omitted;
        p-values then come out somewhat too large for K several times K'. ``"union"`` has
        edges in both directions, as Isomap does, but then nominal rows have more edges than
        new ones, and p-values come out too small: it takes ``calibration="conformal"``,
        which is right for both (docs/explanation/geodesic.md).
    scale : {None, "minmax", "standard", "quantile", "minmax+quantile"}, default=None
        Learned from the nominal rows: start with "standard", unless all columns have the
        same unit (docs/guide/choosing.md). "minmax" and "standard" multiply squared
        differences by ``1 / (max - min)**2`` or ``1 / variance``, rounded to 24
        significant bits, so that differences tie as they do unscaled; before a Mahalanobis
        matrix, rows become ``(x - min) / (max - min)`` or ``(x - mean) / std``. "quantile"
        takes x to the share of nominal rows below it and half of the share that equals it,
        before differences are taken. That is linear between at most 1,000 of their values
        and beyond their ends, there with slope ``1 / (max - min)``; of more than 100,000
        rows it is the share in a sample of so many, drawn by ``random_state``.
        "minmax+quantile": each column in both forms, first all in the one and then all in
        the other. A constant column keeps its unit.
    categorical : {None, "auto"} or list, default=None
        Columns that are compared as equal or different: each that differs adds 1 to the
        squared distance, or its weight in ``metric_params={"w": ...}``, which has an entry
        for each column. Their names, or positions for an array; "auto": all columns of
        text, categories or booleans. Text, categories, booleans or whole numbers (a float
        column with no fractions is one of these), with at most 10,000 different values of
        at most 1,000 characters in all nominal rows, also those that are dropped. A value
        that none of the rows has that are searched, known or new, differs from all; one of
        another type (the text '1' instead of the number 1) is a TypeError. They are neither
        scaled nor learned from. With the Euclidean metric and exact algorithms only,
        without the rule for ``radius``; that holds for "auto" also where it finds none.
        None: all columns are numbers, booleans too.
    alpha : float, default=0.05
        False-alarm level of `predict`, between 0 and 1.
    algorithm : {"auto", "brute", "pruned", "nn_descent"}, default="auto"
        How neighbors are searched. "brute" compares all pairs, "pruned" groups near rows
        and leaves out what is too far, which is faster unless the rows have many
        independent columns; results are the same. "auto" tries a sample and logs what it
        took (``algorithm_``). "nn_descent" goes along a graph of about the nearest rows
        and misses some, which may pay for many rows of many columns: calibration statistics
        are exact, 20,000 of them unless ``calibration_size`` says otherwise; so are
        p-values up to ``recheck``, and all decisions at ``alpha``; other p-values may be
        too small, which ``certificate_`` bounds (docs/explanation/approximate.md).
    max_p_error : float, default=0.01
        With "nn_descent": what a p-value may be off. `RuntimeError` where a sample cannot
        certify, with probability 0.9999, that at most 1 % of the rows are off by more.
    recheck : float, optional
        With "nn_descent": rows with p-values up to this are measured exactly. None: alpha.
    calibration : {"auto", "loo", "split", "conformal"}, default="auto"
        Which nominal rows p-values compare with. "loo": all, each measured left out, as in
        equations (1) and (2); where scale and metric are given, P(p <= a) is at most
        ``(floor(a n) + 1) / (n + 1)`` for rows drawn like the nominal ones, averaged over
        nominal sets. "split": half of them, S1, measured within S1, and new rows within the
        other half, S2, as in the paper's theory. "conformal": half of them, measured like
        new rows among the other half, from which scaling and metric are learned, too; with
        ``p = (1 + count) / (m + 1)``, P(p <= a) <= a holds exactly, whatever is learned.
        "auto": "loo" where nothing is learned, or from enough rows (200 d of d columns for
        "minmax", 2,000 sqrt(d) for "quantile", 70 d for "standard" and "seuclidean",
        40 d**1.5 for "mahalanobis"; for several of them their sum), else "conformal", as
        for the "union" graph; a log line says which, and why. "loo" is
        also allowed with fewer rows; a warning says how many more false alarms it raises
        (docs/guide/calibration.md).
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
        ``log N - log f1``, and are the best test against f1. The scale must be linear.
    missing : {"error", "drop", "measure"}, default="error"
        What to do about a nominal row with NaN or inf. "measure": nominal and new rows are
        measured with their gaps. A missing number counts as the median of its column in the
        rows that are searched, of what is there and before any scale; and each column of
        numbers in which one of two rows has a gap adds 1 to the squared distance, or
        ``metric_params={"w_missing": ...}``, unless its weight is 0. A missing category is
        a level of its own. Rows with inf have no p-value, and are an error among nominal
        ones. With the Euclidean metric and exact algorithms only, without the rule for
        ``radius``. Medians count as learned, also where no nominal row has a gap
        (docs/guide/missing_values.md).
    by : list, optional
        Columns whose values divide rows into groups, each with a normal of its own: names,
        or positions for an array. Text, categories, booleans, whole numbers or dates, any
        number of different values; they are not measured. With all three ``own`` a row is
        scored as by a model of the nominal rows of its group, bit for bit, with the same
        arguments and the same ``calibration`` for all groups: "auto" is "loo" only if every
        group that is not small has the rows it needs. With exact algorithms, and not along
        a graph.
    own : sequence of {"scale", "neighbors", "calibration"}, default=all three
        What each group has for itself. "scale": what ``scale`` and ``missing="measure"``
        learn, and the metric where "neighbors" is there, too. "neighbors": rows are
        searched within the group, with K or the radius by the rows of the group.
        "calibration": p-values compare with the rows of the group; what ``calibration``
        promises then holds within each group, whatever the groups of rows are. Without it
        the promise is for a row whose group is drawn as among the nominal rows
        (docs/guide/calibration.md).
    small_groups : {"nan", "pool", "error"}, default="nan"
        What to do about rows of groups that no nominal row has, and of small groups: those
        with so few calibration rows m that 1 / (m + 1) is above alpha, without a K-th
        neighbor, or of which nothing can be learned (``groups_`` says why). "nan": they
        have no p-value, and `status` says so. "pool": they are compared with all nominal
        rows, by the model without ``by``; nothing is promised for them. "error": they are
        refused.
    confidence : float, optional
        The probability, between 0.5 and 1, with which the rate of false alarms at alpha
        holds for the nominal rows at hand [3]_, if these are independent of each other;
        None: it holds on average over such sets, and for one set is about as often above
        alpha as below. With m calibration rows a
        row is then flagged if it has one of the k most anomalous of m + 1 places, for the
        largest k for which Beta(k, m + 1 - k) is at most alpha with this probability:
        ``offset_`` is the next float64 above k / (m + 1), and with ``by`` there is a k of
        each group, for which, by itself, the confidence holds. It takes
        ``log(1 - confidence) / log(1 - alpha)`` calibration rows to flag any row: 299 for
        alpha=0.01 and confidence=0.95. With ``calibration="conformal"`` only, which "auto"
        then is, and groups with their own calibration.
    random_state : int, optional
        Draws the rows of ``calibration`` and ``calibration_size``; None: different rows in
        each fit, but with ``calibration="auto"`` always the same. Also which rows quantiles
        are learned from, and with "nn_descent" which are audited; None: as for 0. Nothing
        else is random.

    Attributes
    ----------
    algorithm_ : {"brute", "pruned", "nn_descent"}
        The algorithm in use.
    certificate_ : Certificate
        Only with "nn_descent": what is known of the p-values of the nominal rows that are
        no calibration rows. Rows that are scored later are judged by themselves.
    calibration_ : ndarray or SortedVector of shape ``(n_samples_,)`` or (m,)
        The statistic of each calibration row, or what p-values compare instead, ascending.
        Of more rows than the configuration key ``statistics-in-memory`` says, they are on
        storage: `numpy.asarray` reads them all, ``calibration_[i]`` one of them.
        With ``by``, if groups have their own calibration, it makes no difference if other
        values are assigned.
    calibration_kind_ : {"loo", "split", "conformal"}
        The calibration in use.
    n_neighbors_, radius_ : int, float
        K or epsilon in use; None for the other graph. Not with ``by``.
    offset_ : float
        The next float64 above alpha, or above what ``confidence`` leaves of it, 0 if that
        is nothing; an anomaly is what scores below it. Not with ``by``.
    groups_ : DataFrame
        Only with ``by``: the columns that divide rows, and of each group its nominal and
        its calibration rows, ``n_neighbors`` or ``radius``, ``calibration``,
        ``flagged_places``, how many of the m + 1 places of a row among m calibration rows
        are flagged, ``offset``, the ``largest_false_alarm_rate`` that is promised on
        average, and ``why_small``, "" for a group that is not small.
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
    .. [2] J. Qian and V. Saligrama, "New statistic in p-value estimation for anomaly
       detection", 2012.
    .. [3] V. Vovk, "Conditional validity of inductive conformal predictors", ACML 2012.

    Examples
    --------
    >>> import numpy as np
    >>> from lpe_dask import LPE
    >>> nominal = np.random.default_rng(0).standard_normal((1000, 2))
    >>> model = LPE(scale="standard", aggregation="mean", alpha=0.05).fit(nominal)
    >>> model.score_samples(np.array([[0.0, 0.0], [2.0, 1.0], [9.0, 9.0]]))
    array([0.946, 0.067, 0.   ])
    >>> model.predict(np.array([[0.0, 0.0], [9.0, 9.0]]))
    array([ 1, -1])
    """

    def __init__(
        self,
        n_neighbors: int | np.integer[Any] | None = None,
        *,
        graph: GraphChoice = "knn",
        radius: float | None = None,
        aggregation: AggregationChoice = "kth",
        metric: MetricChoice = "euclidean",
        metric_params: Mapping[str, Any] | None = None,
        scale: ScaleChoice = None,
        categorical: Categorical = None,
        alpha: float = 0.05,
        algorithm: AlgorithmChoice = "auto",
        max_p_error: float = 0.01,
        recheck: float | None = None,
        calibration: CalibrationChoice = "auto",
        calibration_size: int | None = None,
        anomaly_log_density: LogDensity | None = None,
        missing: MissingChoice = "error",
        by: Names | None = None,
        own: Sequence[OwnPart] = ("scale", "neighbors", "calibration"),
        small_groups: SmallGroupsChoice = "nan",
        confidence: float | None = None,
        random_state: int | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.graph = graph
        self.radius = radius
        self.aggregation = aggregation
        self.metric = metric
        self.metric_params = metric_params
        self.scale = scale
        self.categorical = categorical
        self.alpha = alpha
        self.algorithm = algorithm
        self.max_p_error = max_p_error
        self.recheck = recheck
        self.calibration = calibration
        self.calibration_size = calibration_size
        self.anomaly_log_density = anomaly_log_density
        self.missing = missing
        self.by = by
        self.own = own
        self.small_groups = small_groups
        self.confidence = confidence
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        """Return the tags of scikit-learn: NaN is taken where gaps are measured."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing == "measure"
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """Leave to the model that was fitted what a copy has of its calibration."""
        state: dict[str, Any] = super().__getstate__()
        fitted = state.get("_fitted")
        if fitted is not None and state["calibration_"] is fitted.calibration.values:
            state = state | {"calibration_": fitted.calibration.shared}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the calibration from the model that was fitted."""
        if isinstance(of := state.get("calibration_"), tasks.LocalValue):
            state = state | {"calibration_": of.value}
        super().__setstate__(state)

    def fit(self, X: Any, y: Any = None, *, csv: Csv = None) -> Self:
        """Learn from nominal rows; computes, with the scheduler that is active.

        Parameters
        ----------
        X : array-like, DataFrame, dask array or dask DataFrame of shape (n, n_features)
            Nominal rows, numbers or booleans (see ``categorical`` for others); lazy as a
            `dask.array.Array` or a `dask.dataframe.DataFrame`; or another table in memory
            that has names, such as a Polars frame, an Arrow table or a dict of columns
            (docs/guide/input.md); or the path of a Parquet or CSV table, or a list of such
            paths. Masked values are missing. A Dask input is read several times, and again
            where a cluster has lost what was made of it. The model keeps what it was given,
            for `check_calibration` as well, without a copy. An array that was fitted on a
            cluster, or of which not all rows are calibration rows, must not be changed;
            ValueError when it is read again otherwise.
        y : ignored
            There for pipelines of scikit-learn.
        csv : dict, optional
            How CSV files are read: see `score`.

        Returns
        -------
        self : LPE
            With the attributes whose names end in ``_``.

        Raises
        ------
        ValueError
            For a parameter out of range, NaN or inf (see ``missing``), fewer rows
            than ``n_neighbors`` or the calibration needs, a singular covariance, or an
            ``anomaly_log_density`` that gives no logarithms; for categorical columns that
            are not there, or have too many different values; for more than 256 MiB of rows
            of this process, on a cluster that shares no storage with it; for whole numbers
            more than 2**53 apart in a column (docs/guide/large_numbers.md).
        TypeError
            For columns that are not numbers, categorical ones of other types than those
            that they may have, or a dask array of an unknown number of
            columns. (Unknown lengths of chunks are computed, and a log line says so.)
        RuntimeError
            With "nn_descent", where too many p-values of nominal rows may be off: see
            ``max_p_error``.
        MemoryError
            If a worker cannot hold what a task needs.
        OSError
            If the nominal rows do not fit into the memory of each worker, and there is no
            storage for them that all workers see.

        Examples
        --------
        >>> import numpy as np
        >>> from lpe_dask import LPE
        >>> model = LPE().fit(np.array([[0.0], [1.0], [5.0]]))
        >>> model.n_samples_, model.n_neighbors_, model.calibration_kind_
        (3, 2, 'loo')
        """
        return self._fit(tables.with_csv(X, csv))

    @redact_errors()
    def _fit(self, X: Any, *, for_own: bool = False, advises: bool = False) -> Self:
        """Fit; ``for_own`` and ``advises`` as in `fitting.fit_model`."""
        from lpe_dask.model.fitting import fit_model

        parameters = self.get_params(deep=False)
        tasks.Workers.check_versions()
        # The last fit is forgotten before the search, which needs its memory.
        fitted = fit_model(
            parameters, X, on_start=self._forget, for_own=for_own, advises=advises
        )
        return self._adopt(fitted)

    def _forget(self) -> None:
        """Become an estimator that is not fitted."""
        for name in [*vars(self)]:
            if name == "_fitted" or name.endswith("_"):
                delattr(self, name)

    def _adopt(self, fitted: Fitted) -> Self:
        """Become the estimator of a fitted model."""
        self._fitted = fitted
        self.algorithm_ = fitted.reference.space.algorithm
        if fitted.certificate is not None:
            self.certificate_ = fitted.certificate
        self.calibration_ = fitted.calibration.values
        self.calibration_kind_ = fitted.calibration_kind
        if fitted.groups is None:
            self.n_neighbors_, self.radius_ = fitted.n_neighbors, fitted.radius
            self.offset_ = fitted.limit
        else:
            self.groups_ = fitted.groups_table()
        self.n_samples_, self.n_dropped_ = fitted.n_samples, fitted.n_dropped
        self.n_features_in_ = fitted.n_features
        names = fitted.columns
        if names is not None and all(isinstance(name, str) for name in names):
            self.feature_names_in_ = np.array(names, dtype=object)
        return self

    @redact_errors()
    def save(
        self,
        path: str | PathLike[str],
        *,
        overwrite: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the model to a folder, from which `load` reads it; computes.

        JSON and Parquet files only. The rows of the reference are written by the workers;
        what a reader sees is the whole model, or the one that was there before. (The JSON
        has some 40 kB for each column of a quantile scale.)

        Parameters
        ----------
        path : str or path
            Folder or fsspec URL that this process and all workers see.
        overwrite : bool, default=False
            Replace a model that is there. Its files stay until the next time, for those who
            read them at the moment.
        storage_options : dict, optional
            How a URL opens, here and on workers: see `score_files`.

        Raises
        ------
        FileExistsError
            If there is a model and ``overwrite`` is false, or something else is there.
        ValueError
            For parameters that were set after the fit, and are out of range.
        OSError
            If nothing can be written, or another run is writing a model there.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> import lpe_dask
        >>> model = lpe_dask.LPE().fit(np.array([[0.0], [1.0], [5.0]]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(f"{folder}/model")
        ...     lpe_dask.load(f"{folder}/model").n_samples_
        3
        """
        from lpe_dask.model.persistence.model_folder import ModelFolder
        from lpe_dask.storage import with_options

        now = {"parameters": self.get_params(deep=False), "source": None}
        fitted = replace(self._current(), **now)
        url = with_options(path, tasks.call_options(storage_options))
        ModelFolder(url).save(fitted, overwrite=overwrite)

    @overload
    def statistic(self, X: NDArray[Any]) -> NDArray[np.float64]: ...
    @overload
    def statistic(self, X: da.Array) -> da.Array: ...
    @overload
    def statistic(self, X: dd.DataFrame) -> dd.Series: ...
    @overload
    def statistic(self, X: pd.DataFrame) -> pd.Series[float]: ...
    @overload
    def statistic(self, X: Any, *, csv: Csv = None) -> Any: ...
    def statistic(self, X: Any, *, csv: Csv = None) -> Any:
        """Return the statistic of new rows: a distance to neighbors, or their number.

        The distance to the K-th neighbor, the mean of those to the K nearest
        (``aggregation="mean"``), or the nominal rows within the radius. Ranks rows beyond
        the largest nominal statistic, where every p-value is 0.

        Parameters
        ----------
        X : array-like, DataFrame, dask array or dask DataFrame of shape (n, n_features)
            Rows to measure, or as in `fit`. Columns with names are found by name, where
            such were fitted; otherwise by position: where names were fitted, those that are
            measured come first, and those of ``by`` last.
        csv : dict, optional
            How CSV files are read: see `score`.

        Returns
        -------
        statistic : array or Series of shape (n,)
            float64, of the kind of ``X``, with its index; lazy for Dask. NaN for a row that
            is not measured (see `status`). Of a small group there is one where rows are
            searched together and scaled alike, though no p-value. With "nn_descent" it may
            be too large, but where the p-value is at most ``recheck``.

        Raises
        ------
        RuntimeError, ValueError, TypeError
            As `score_samples`.

        Examples
        --------
        >>> import numpy as np
        >>> from lpe_dask import LPE
        >>> model = LPE(n_neighbors=1).fit(np.array([[0.0], [1.0], [5.0]]))
        >>> model.statistic(np.array([[0.5], [90.0], [np.nan]]))
        array([ 0.5, 85. ,  nan])
        """
        return self._current().statistic(self._new_rows(X, csv))

    @overload
    def score_samples(self, X: NDArray[Any]) -> NDArray[np.float64]: ...
    @overload
    def score_samples(self, X: da.Array) -> da.Array: ...
    @overload
    def score_samples(self, X: dd.DataFrame) -> dd.Series: ...
    @overload
    def score_samples(self, X: pd.DataFrame) -> pd.Series[float]: ...
    @overload
    def score_samples(self, X: Any, *, csv: Csv = None) -> Any: ...
    def score_samples(self, X: Any, *, csv: Csv = None) -> Any:
        """Return the p-value of new rows: in [0, 1], the lower the more anomalous.

        The rows are new points also if they were fitted: for nominal rows, each left out of
        its own neighborhood, see `p_values_`.

        Parameters
        ----------
        X : array-like, DataFrame, dask array or dask DataFrame of shape (n, n_features)
            Rows to measure, as in `statistic`.
        csv : dict, optional
            How CSV files are read: see `score`.

        Returns
        -------
        p_values : array or Series of shape (n,)
            float64 multiples of ``1 / n_samples_`` (or of 1 / m or 1 / (m + 1) for m
            calibration rows), of the kind of ``X``, with its index; lazy for Dask. NaN for
            a row that is not measured (see `status`). With "nn_descent" a sample of the
            rows is judged first, for which a Dask input is read once more, so that it has
            to give the same rows, and a frame another time: its p-values are gathered
            before they get its index (docs/explanation/approximate.md).

        Raises
        ------
        RuntimeError
            With "nn_descent", where the sample shows that too many p-values may be off;
            for Dask when it is computed, as the next.
        ValueError
            If ``X`` has other columns than were fitted; with "nn_descent", if a Dask frame
            has other rows when it is read again; on a cluster that shares no storage with
            this process, if too much would have to be sent (docs/guide/cluster.md).
        TypeError
            If columns are not numbers, or categorical ones have values of another type than
            in the nominal rows.

        Examples
        --------
        >>> import numpy as np
        >>> from lpe_dask import LPE
        >>> model = LPE(n_neighbors=1).fit(np.array([[0.0], [1.0], [5.0]]))
        >>> model.score_samples(np.array([[0.5], [8.0], [90.0]])).round(2)
        array([1.  , 0.33, 0.  ])
        """
        return self._current().p_values(self._new_rows(X, csv))

    @overload
    def predict(self, X: NDArray[Any]) -> NDArray[np.int64]: ...
    @overload
    def predict(self, X: da.Array) -> da.Array: ...
    @overload
    def predict(self, X: dd.DataFrame) -> dd.Series: ...
    @overload
    def predict(self, X: pd.DataFrame) -> pd.Series[int]: ...
    @overload
    def predict(self, X: Any, *, csv: Csv = None) -> Any: ...
    def predict(self, X: Any, *, csv: Csv = None) -> Any:
        """Return -1 for rows with a p-value below ``offset_``, else 1.

        That is of at most alpha, or of what ``confidence`` leaves of it; with ``by`` that
        of the group of a row.

        The labels are those of `score_samples`, for less work: a row is not searched any
        further once enough nominal rows are near to know that it is none to report. (With
        ``aggregation="mean"`` a row for which there are not enough is then measured.) With
        "nn_descent" it takes, and raises, what `score_samples` does.

        Parameters
        ----------
        X : array-like, DataFrame, dask array or dask DataFrame of shape (n, n_features)
            Rows to measure, as in `statistic`.
        csv : dict, optional
            How CSV files are read: see `score`.

        Returns
        -------
        labels : array or Series of shape (n,)
            int64, of the kind of ``X``; lazy for Dask. 1 for a row that is not measured
            (see `status`); a warning says how many there are, but for Dask and files, which
            are lazy.

        Raises
        ------
        RuntimeError, ValueError, TypeError
            As `score_samples`.

        Examples
        --------
        >>> import numpy as np
        >>> from lpe_dask import LPE
        >>> model = LPE(n_neighbors=1).fit(np.array([[0.0], [1.0], [5.0]]))
        >>> model.predict(np.array([[0.5], [90.0]]))
        array([ 1, -1])
        """
        return self._current().labels(self._new_rows(X, csv))

    @redact_errors()
    def _new_rows(self, X: Any, csv: Any) -> Any:
        """Return rows to measure as new ones; a log line says if they were fitted."""
        X, fitted = tables.with_csv(X, csv), fitted_of(self)
        origin = fitted.nominal.origin
        if origin is not None and origin.is_input(X):
            logger.warning(fitted.FITTED_ROWS_WARNING)
        return X

    def _current(self) -> Fitted:
        """Return the fitted model with the attributes that users may have changed."""
        fitted = fitted_of(self)
        calibration = fitted.calibration.with_values(self.calibration_)
        fitted = replace(fitted, calibration=calibration)
        if fitted.groups is not None or self.offset_ == fitted.limit:
            return fitted
        return replace(fitted, offset=self.offset_, confidence=None)

    @overload
    def decision_function(self, X: NDArray[Any]) -> NDArray[np.float64]: ...
    @overload
    def decision_function(self, X: da.Array) -> da.Array: ...
    @overload
    def decision_function(self, X: dd.DataFrame) -> dd.Series: ...
    @overload
    def decision_function(self, X: pd.DataFrame) -> pd.Series[float]: ...
    @overload
    def decision_function(self, X: Any, *, csv: Csv = None) -> Any: ...
    def decision_function(self, X: Any, *, csv: Csv = None) -> Any:
        """Return ``score_samples(X) - offset_``: negative exactly where `predict` is -1.

        Parameters
        ----------
        X : array-like, DataFrame, dask array or dask DataFrame of shape (n, n_features)
            Rows to measure, as in `statistic`.
        csv : dict, optional
            How CSV files are read: see `score`.

        Returns
        -------
        margins : array or Series of shape (n,)
            float64, of the kind of ``X``; lazy for Dask. NaN for a row that is not measured
            (see `status`).

        Raises
        ------
        RuntimeError, ValueError, TypeError
            As `score_samples`.

        Examples
        --------
        >>> import numpy as np
        >>> from lpe_dask import LPE
        >>> model = LPE(n_neighbors=1).fit(np.array([[0.0], [1.0], [5.0]]))
        >>> model.decision_function(np.array([[0.5], [90.0]]))
        array([ 0.95, -0.05])
        """
        return self._current().margins(self._new_rows(X, csv))

    @overload
    def status(self, X: NDArray[Any]) -> NDArray[np.object_]: ...
    @overload
    def status(self, X: da.Array) -> da.Array: ...
    @overload
    def status(self, X: dd.DataFrame) -> dd.Series: ...
    @overload
    def status(self, X: pd.DataFrame) -> pd.Series[str]: ...
    @overload
    def status(self, X: Any, *, csv: Csv = None) -> Any: ...
    @redact_errors()
    def status(self, X: Any, *, csv: Csv = None) -> Any:
        """Return why rows have a p-value or none; searches for nothing.

        Parameters
        ----------
        X : array-like, DataFrame, dask array or dask DataFrame of shape (n, n_features)
            Rows to measure, as in `statistic`.
        csv : dict, optional
            How CSV files are read: see `score`.

        Returns
        -------
        status : array or Series of shape (n,)
            "ok", "missing value" or "infinite value" (also beside a missing one); with
            ``by``, of rows without these, "no group" where a value of ``by`` is missing,
            "unknown group" where no nominal row has these values, and "small group". Rows
            of the last two have a p-value with ``small_groups="pool"``. Of the kind of
            ``X``, categories in pandas and Dask frames; lazy for Dask.

        Raises
        ------
        ValueError, TypeError
            For wrong columns, as `score_samples`.

        Examples
        --------
        >>> import numpy as np
        >>> from lpe_dask import LPE
        >>> model = LPE(n_neighbors=1).fit(np.array([[0.0], [1.0], [5.0]]))
        >>> model.status(np.array([[2.0], [np.nan], [-np.inf]])).tolist()
        ['ok', 'missing value', 'infinite value']
        """
        return self._current().status(tables.with_csv(X, csv))

    @overload
    def score_frame(self, X: da.Array | dd.DataFrame) -> dd.DataFrame: ...
    @overload
    def score_frame(self, X: NDArray[Any] | pd.DataFrame) -> pd.DataFrame: ...
    @overload
    def score_frame(self, X: Any, *, csv: Csv = None) -> Any: ...
    @redact_errors()
    def score_frame(self, X: Any, *, csv: Csv = None) -> Any:
        """Return all results of new rows as one table, by one search.

        Parameters
        ----------
        X : array-like, DataFrame, dask array or dask DataFrame of shape (n, n_features)
            Rows to measure, as in `statistic`.
        csv : dict, optional
            How CSV files are read: see `score`.

        Returns
        -------
        table : DataFrame or dask DataFrame of shape (n, 4)
            With the index of ``X``, which for arrays counts from 0; lazy for Dask, and for
            other libraries a table of theirs: p_value, as `score_samples` gives it;
            statistic; is_anomaly, whether `predict` gives -1, NA without a p-value; and
            p_value_status, as `status` gives it.

        Raises
        ------
        RuntimeError, ValueError, TypeError
            As `score_samples`.

        Examples
        --------
        >>> import numpy as np
        >>> from lpe_dask import LPE
        >>> model = LPE(n_neighbors=1, alpha=0.2).fit(np.array([[0.0], [1.0], [5.0]]))
        >>> model.score_frame(np.array([[0.5], [90.0], [np.nan]]))
           p_value  statistic  is_anomaly p_value_status
        0      1.0        0.5       False             ok
        1      0.0       85.0        True             ok
        2      NaN        NaN        <NA>  missing value
        """
        return self._current().score_frame(self._new_rows(X, csv))

    @redact_errors()
    def check_calibration(
        self,
        X: Any = None,
        fraction: float = 0.1,
        alphas: Sequence[float] = (0.01, 0.05, 0.1),
        *,
        csv: Csv = None,
    ) -> CalibrationCheck:
        """Judge by nominal rows that are held out whether false alarms are as promised.

        Fits the other rows with the parameters of this model, K or radius and the
        calibration as they are in use, and scores those that were held out, by an exact
        search. Computes, and takes about as long as `fit`; with "nn_descent" as long as an
        exact search for the held-out rows takes.

        With ``by``, rows of groups that are small without those that were held out are not
        judged, and groups with their own neighbors have their K by the rule again, where it
        was not given. Where groups have their own calibration, the number of all flagged
        rows is judged, and that of each group by Holm's procedure.

        Parameters
        ----------
        X : as in `fit`, optional
            Nominal rows. None: those that were fitted; a model that was loaded, or a copy
            of one that was fitted on an array or a pandas frame, has none. Categories that
            the model does not know count as one.
        fraction : float, default=0.1
            Of the rows, to be held out: drawn by ``random_state``, or 0.
        alphas : sequence of float
            The levels to judge.
        csv : dict, optional
            How CSV files are read: see `score`.

        Returns
        -------
        check : CalibrationCheck
            Its ``table`` has a line for each level, ``holds`` is the verdict on all.
            Where the promise holds, that is found with a probability of 0.99 at least. Its
            ``odd_groups`` are those with too many false alarms.

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
        from lpe_dask.model.calibration_check import check_calibration

        return check_calibration(fitted_of(self), tables.with_csv(X, csv), fraction, alphas)

    @redact_errors()
    def explain(
        self,
        X: Any = None,
        top: int = 5,
        *,
        rows: Rows | None = None,
        csv: Csv = None,
    ) -> pd.DataFrame:
        r"""Return which columns make rows anomalous, the largest share first; computes.

        The share of column c is :math:`\sum_{k=1}^K \delta_{kc}^2 / (d_k K M)`, where
        :math:`\delta_k` is the difference to the k-th nearest nominal row in scaled units,
        :math:`d_k` the distance to it and :math:`M` the mean of the :math:`d_k`, so that
        the shares of a row are 1 together; a category that differs counts its weight. They
        are means over the K nearest rows also with ``aggregation="kth"``: those of one
        neighbor are noisy. Where no column has 5 %, what is anomalous is spread over many.

        Neighbors are exact here, also with "nn_descent". With "mahalanobis" a column adds
        :math:`\delta_c (V^{-1} \delta)_c`, and a share may be negative, or above 1, where
        columns are correlated: they then make up for each other. With "geodesic" shares are
        those of straight distances, as walks begin with these, and with ``graph="radius"``,
        where there is no K, those to the 20 nearest rows.

        With ``by``, columns that divide rows into groups are no reasons. Where groups have
        their own neighbors, the nearest rows are those of the group of the row, its K and
        its scale as in ``groups_``, and usual and typical_share are of this group, too.

        Parameters
        ----------
        X : as in `score_samples`, optional
            New rows, such as those that were flagged: all of them come to this process.
        top : int, default=5
            Columns to return for each row, at least 1.
        rows : sequence of int, optional
            In the place of ``X``: places of rows that were fitted, from 0, with dropped
            ones. Each is left out of its own neighborhood, as in `p_values_`; given as
            ``X`` it would be its own nearest row. Not for a model that was loaded.
        csv : dict, optional
            How CSV files are read: see `score`.

        Returns
        -------
        reasons : DataFrame
            ``top`` lines for each row, or as many as there are columns with a weight, under
            the label of the row in ``X``, or its place: p_value; statistic; column, a name,
            or number where an array was fitted; value; usual, between which quantiles, 1 %
            and 99 %, nominal rows are, and their median, or which values are the most
            frequent ones in a column of categories or up to three values (of up to 4096
            nominal rows among which new ones are measured); nominal_value, that of the
            nearest nominal row (of numbers that are scaled to the same the shortest, as
            models have only scaled ones; NaN where no row is at a finite distance); share,
            NaN if all distances are 0, inf or NaN, as nothing has a share in these;
            typical_share, the mean of the shares of up to 256 nominal rows; is_spread,
            whether no column of the row has a share of 5 %. A row of a group with its own
            neighbors that is small or unknown, and one without a group, has NaN in the
            place of numbers, and its status (see `status`) in that of usual.

        Raises
        ------
        ValueError
            For a ``top`` that is no whole number above 0, ``rows`` that are no places of
            rows that this model has, or as `score_samples`.

        Examples
        --------
        >>> import numpy as np
        >>> import pandas as pd
        >>> from lpe_dask import LPE
        >>> rng = np.random.default_rng(0)
        >>> nominal = pd.DataFrame(rng.uniform(0, 1, (2000, 3)).round(2), columns=[*"abc"])
        >>> nominal.loc[7, "b"] = 3.0
        >>> model = LPE(alpha=0.001).fit(nominal)
        >>> row = pd.DataFrame({"a": [0.5], "b": [4.0], "c": [0.4]}, index=["x7"])
        >>> columns = ["column", "value", "usual", "share"]
        >>> model.explain(row, top=1)[columns].round(2)
           column  value                      usual  share
        x7      b    4.0  0.01 to 0.99, median 0.49   0.99
        >>> model.explain(rows=[7], top=1)[columns].round(2)
          column  value                      usual  share
        7      b    3.0  0.01 to 0.99, median 0.49   0.99
        """
        from lpe_dask.model.explanation import explain

        return explain(self._current(), self._new_rows(X, csv), top, rows)

    @redact_errors()
    def nearest_nominal(
        self,
        X: Any = None,
        n: int = 3,
        *,
        rows: Rows | None = None,
        csv: Csv = None,
    ) -> pd.DataFrame:
        """Return the nearest nominal rows of others; computes, by an exact search.

        Parameters
        ----------
        X : as in `score_samples`, optional
            New rows; all of them come to this process.
        n : int, default=3
            How many, at least 1, and no more than there are to be measured among.
        rows : sequence of int, optional
            In the place of ``X``: places of rows that were fitted, as in `explain`.
        csv : dict, optional
            How CSV files are read: see `score`.

        Returns
        -------
        nearest : DataFrame
            ``n`` lines for each row, under its label in ``X``, or its place: rank, from 1;
            nominal_row, its place in the rows that were fitted, from 0 (with dropped ones);
            distance, in scaled units, NaN for a row that is not measured. Rows that are
            equally far come in the order of their places. With "geodesic" it is the
            straight distance. A model that was loaded does not know the place (NA) if
            nominal rows were drawn without a ``random_state``, or within groups, or were
            drawn and others dropped. Where groups have their own neighbors, rows are of the
            group of the row; if it has fewer than ``n``, the others have distance inf, and
            no place.

        Raises
        ------
        ValueError
            For an ``n`` out of range, or as `explain`.

        Examples
        --------
        >>> import numpy as np
        >>> from lpe_dask import LPE
        >>> model = LPE(n_neighbors=1).fit(np.array([[0.0], [1.0], [5.0], [9.0]]))
        >>> model.nearest_nominal(np.array([[4.0]]), n=2)
           rank  nominal_row  distance
        0     1            2       1.0
        0     2            1       3.0
        >>> model.nearest_nominal(rows=[2], n=1)
           rank  nominal_row  distance
        2     1            1       4.0
        """
        from lpe_dask.model.explanation import nearest_nominal

        return nearest_nominal(self._current(), self._new_rows(X, csv), n, rows)

    @overload
    def fit_predict(self, X: NDArray[Any], y: Any = None) -> NDArray[np.int64]: ...
    @overload
    def fit_predict(self, X: da.Array, y: Any = None) -> da.Array: ...
    @overload
    def fit_predict(self, X: dd.DataFrame, y: Any = None) -> dd.Series: ...
    @overload
    def fit_predict(self, X: pd.DataFrame, y: Any = None) -> pd.Series[int]: ...
    @overload
    def fit_predict(self, X: Any, y: Any = None, *, csv: Csv = None) -> Any: ...
    def fit_predict(self, X: Any, y: Any = None, *, csv: Csv = None) -> Any:
        """Fit nominal rows and return their labels, by `p_values_`.

        Parameters
        ----------
        X : as in `fit`
            Nominal rows.
        y : ignored
            There for pipelines of scikit-learn.
        csv : dict, optional
            How CSV files are read: see `score`.

        Returns
        -------
        labels : array or Series of shape (n,)
            -1 where `p_values_` is as small as `predict` says, else 1; of the kind of
            ``X``.

        Raises
        ------
        ValueError, TypeError, RuntimeError, MemoryError, OSError
            As `fit`.

        Examples
        --------
        >>> import numpy as np
        >>> from lpe_dask import LPE
        >>> rows = np.array([[0.0], [1.0], [2.0], [90.0]])
        >>> LPE(n_neighbors=1, alpha=0.3).fit_predict(rows)
        array([ 1,  1,  1, -1])
        """
        return self._fit(tables.with_csv(X, csv), for_own=True)._current().own_labels()

    @property
    def statistic_(self) -> Any:
        """Statistic of the nominal rows, each left out of its own neighborhood.

        In input order and of the kind that was fitted, lazy for Dask; NaN for dropped rows.
        With ``calibration_size``, "split" or "conformal" the calibration rows are measured
        as `LPE` says; all others are measured when they are asked for, each time, among the
        rows that new ones are measured among.
        """
        return fitted_of(self).own("statistic")

    @property
    def p_values_(self) -> Any:
        """P-values of the nominal rows, each left out of its own neighborhood.

        In input order and of the kind that was fitted, lazy for Dask; NaN for dropped rows.
        That holds for calibration rows, which are all of them if not asked for otherwise;
        about rows that are not calibration rows see `statistic_`. A calibration row does
        not count itself twice: in the conformal form its p-value is ``count / (m + 1)``,
        where the count has itself in it.
        """
        return self._current().own("p_value")


def fitted_of(model: LPE) -> Fitted:
    """Return the result of a fit; raises NotFittedError before `LPE.fit`."""
    check_is_fitted(model)
    fitted: Fitted = model._fitted
    return fitted


def _token_of_model(model: LPE) -> Any:
    """Tell a model from a copy of it, which can be sent where the model cannot.

    dask-ml names estimators by what is public: the two would be one task to a client, which
    waits for ever where the model was refused and the copy is then sent.
    """
    return type(model).__name__, normalize_token(vars(model))


normalize_token.register(LPE, _token_of_model)


@redact_errors()
def load(
    path: str | PathLike[str],
    anomaly_log_density: LogDensity | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> LPE:
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
    storage_options : dict, optional
        How a URL opens, here and on workers: see `score_files`. Lazy results need no more.

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
        If a file was cut short or altered, is of another format, or holds what no model
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
    ...     model = lpe_dask.LPE(scale="standard", aggregation="mean").fit(nominal)
    ...     model.save(f"{folder}/model")
    ...     model = lpe_dask.load(f"{folder}/model")
    ...     model.score_samples(np.array([[0.0, 0.0], [2.0, 1.0], [9.0, 9.0]]))
    array([0.946, 0.067, 0.   ])
    """
    from lpe_dask.model.persistence.model_folder import ModelFolder
    from lpe_dask.storage import with_options

    url = with_options(path, tasks.call_options(storage_options))
    fitted = ModelFolder(url).load(anomaly_log_density)
    return LPE(**fitted.parameters)._adopt(fitted)


@overload
def score(
    data: NDArray[Any], nominal: Any = None, **arguments: Unpack[ScoreArguments]
) -> NDArray[np.float64]: ...
@overload
def score(
    data: da.Array, nominal: Any = None, **arguments: Unpack[ScoreArguments]
) -> da.Array: ...
@overload
def score(
    data: dd.DataFrame, nominal: Any = None, **arguments: Unpack[ScoreArguments]
) -> dd.Series: ...
@overload
def score(
    data: pd.DataFrame, nominal: Any = None, **arguments: Unpack[ScoreArguments]
) -> pd.Series[float]: ...
@overload
def score(
    data: Any,
    nominal: Any = None,
    *,
    csv: Csv = None,
    output: OutputChoice = "p_values",
    storage_options: Mapping[str, Any] | None = None,
    **arguments: Unpack[ScoreArguments],
) -> Any: ...
@redact_errors()
def score(
    data: Any,
    nominal: Any = None,
    *,
    columns: Any = None,
    exclude: Names | None = None,
    csv: Csv = None,
    output: OutputChoice = "p_values",
    storage_options: Mapping[str, Any] | None = None,
    **arguments: Unpack[Arguments],
) -> Any:
    """Return the p-value of each row of a table, against the others or a nominal set.

    Parameters
    ----------
    data : array-like, DataFrame, dask array or dask DataFrame of shape (n, n_features)
        Rows to score, or another kind of table as in `LPE.fit`; or the path of a Parquet or
        CSV table, or a list of such paths.
    nominal : same kinds, optional
        Nominal rows. None: those of ``data``, scored as `LPE.p_values_` says: each against
        all others, unless not all rows are calibration rows.
    columns : sequence, optional
        Names of the columns to measure, for frames and paths; None: all.
    exclude : sequence, optional
        Measure all columns of the nominal rows but these, instead of ``columns``.
    csv : dict, optional
        How CSV files at paths are read, such as ``{"separator": ";", "decimal": ","}``:
        separator, decimal, thousands, quote, comment, skip_rows, header, names, na_values,
        encoding; see ``docs/guide/csv.md``.
    output : {"p_values", "frame"}, default="p_values"
        "frame": the table of `LPE.score_frame`, by one search as well.
    storage_options : dict, optional
        How URLs among ``data`` and ``nominal`` open: see `score_files`.
    **arguments
        Of `LPE`; ``by`` may be the name of one column. Without ``scale`` a log line says
        which column makes up over 90 % of the typical distance between nominal rows, if one
        does; with ``scale=None`` none does.

    Returns
    -------
    p_values : array or Series of shape (n,)
        In [0, 1], the lower the more anomalous; of the kind of ``data``, with its index;
        lazy for Dask (the nominal rows are computed with at once). NaN for a row with NaN
        or inf; without ``nominal`` such rows are an error unless ``missing="drop"``. For
        ``output="frame"`` what `LPE.score_frame` returns.

    Raises
    ------
    TypeError
        For an unknown argument; otherwise as `LPE.fit`.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> import lpe_dask
    >>> rng = np.random.default_rng(0)
    >>> amounts, items = rng.normal(200, 50, 1000), rng.poisson(3, 1000)
    >>> table = pd.DataFrame({"amount": amounts, "items": items, "is_gift": items > 4})
    >>> table.loc[7, "items"] = 20
    >>> start = {"scale": "standard", "aggregation": "mean", "categorical": "auto"}
    >>> lpe_dask.score(table, **start).nsmallest(2)
    7      0.001
    478    0.002
    Name: p_value, dtype: float64
    """
    reject_unknown_arguments("score", arguments)
    arguments = as_lists(arguments)
    check_choice("output", output, ("p_values", "frame"))
    options = tasks.call_options(storage_options)
    data = tables.with_csv(tables.with_storage_options(data, options), csv)
    if nominal is not None:
        nominal = tables.with_csv(tables.with_storage_options(nominal, options), csv)
    model, measured = LPE(**arguments), tables.feature_columns(columns, exclude)
    advises = "scale" not in arguments
    learned = data if nominal is None else nominal
    if measured is not None:
        learned = tables.select_columns(
            learned, measured, model.categorical, model.by or ()
        )
    if nominal is None:
        model._fit(learned, for_own=True, advises=advises)
        if output == "frame":
            return model._current().own_score_frame()
        return model.p_values_
    # The model knows which columns of a CSV are text, and all columns but some.
    if columns is not None and not tables.is_path_like(data):
        data = tables.select_columns(data, columns, model.categorical, model.by or ())
    model._fit(learned, advises=advises)
    return model.score_frame(data) if output == "frame" else model.score_samples(data)
