"""All that a fit has found, and what follows from it for rows.

    fitting   --> Fitted --> statistic, p-values, labels of new rows and of its own
    Fitted    <-> saving, loading

`LPE` holds one, runs score by one, a folder stores one; nothing changes it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from dask.base import is_dask_collection
from dask.delayed import Delayed
from numpy.typing import NDArray

from lpe_dask import dask_array as da
from lpe_dask.model.audit import Audit, is_exact
from lpe_dask.model.calibration_split import CalibrationSplit, GroupedSize
from lpe_dask.model.certificate import ApproximationSettings, Certificate
from lpe_dask.model.groups import FittedGroups
from lpe_dask.model.labels import (
    labels,
    labels_within,
    limits,
    margin,
    row_limits,
    threshold,
)
from lpe_dask.model.lpe_parameters import check_confidence
from lpe_dask.model.nominal_scores import NominalScores, StoredNominalScores
from lpe_dask.model.score_table import (
    RowScorer,
    group_codes,
    log_densities,
    replaced,
    score_table,
)
from lpe_dask.model.validity import (
    choose_calibration,
    confident_places,
    learned_components,
    least_group,
)
from lpe_dask.pvalues import Calibration
from lpe_dask.search import Approximation, Reference, Statistic
from lpe_dask.tables import (
    Categories,
    ColumnOffsets,
    FileTable,
    InputKind,
    RowStatus,
    Table,
    ValueRanges,
    is_path_like,
    map_blocks,
    map_several,
    map_to_frame,
    map_values,
    names_at,
    open_features,
    read_frame,
    status_codes,
    with_columns_last,
)
from lpe_dask.tasks import (
    LocalValue,
    compute,
    counted,
    eager_scope,
    lazy_scope,
    new_array,
    new_tasks,
    reread_once,
    to_task,
)

#: How limits of rows are called.
_LIMITS: dict[str, Any] = {"name": "limit", "dtype": np.float64}

#: The statuses of rows that the pool measures.
_POOLED = [RowStatus.NAMES.index(name) for name in ("unknown group", "small group")]


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """A fitted model.

    Attributes
    ----------
    parameters : dict
        The arguments of `LPE`, as they were given.
    columns : list, optional
        Names of the columns; None: those of an array have none.
    n_dropped : int
        Nominal rows that were left out.
    offset : float
        The next float64 above alpha.
    reference : Reference
        What new rows are measured among.
    calibration : Calibration
        What their statistic is compared with.
    nominal_scores : NominalScores or StoredNominalScores
        Of the nominal rows themselves.
    nominal : InputKind
    division : CalibrationSplit or GroupedSize
        How the nominal rows in use were divided.
    ranges : ValueRanges
        Of their values.
    categories : Categories, optional
        How values of categorical columns become codes; None: there are none, or rows come
        with codes.
    minima : ColumnOffsets
        From where the numbers of columns are measured that float64 cannot hold.
    quality : ApproximationSettings, optional
        What is asked where the search may miss neighbors; None: it misses none.
    certificate : Certificate, optional
        Then, of the nominal rows that are no calibration rows.
    groups : FittedGroups, optional
        Where rows are divided into groups.
    pool : Fitted, optional
        What measures rows of small and unknown groups, among all nominal rows.
    confidence : float, optional
        The probability with which decisions keep alpha for these nominal rows; None: they
        do on average.
    source : str, optional
        Tells from what it was fitted, if a run has fitted it; of a model that was loaded,
        its identifier.
    n_confirmed : int
        Rows that a run has left out before the fit, as they are anomalies.
    confirmed_digest : str, optional
        Identifies these rows; None: there were none.
    created : str, optional
        When it was fitted, in UTC, as 2026-11-20T05:03:11+00:00; None: it was saved by a
        release that did not write that.
    run_date : str, optional
        The day of the run that has fitted it, that of ``{date}``, as 2026-11-20.
    checksum : str, optional
        Identifies what it says of rows, if it is saved: the same wherever and whenever the
        same was fitted and saved.
    """

    #: The warning about rows that were fitted, and come as new ones.
    FITTED_ROWS_WARNING: ClassVar[str] = (
        "some of these rows were fitted: as new ones they find themselves among the "
        "nominal rows, so that their p-values are too large. Score the nominal rows "
        "without others and without a model; in Python see p_values_, score(table) and "
        "explain(rows=...), too."
    )

    parameters: dict[str, Any]
    columns: list[Any] | None
    n_dropped: int
    offset: float
    reference: Reference
    calibration: Calibration
    nominal_scores: NominalScores | StoredNominalScores
    nominal: InputKind
    division: CalibrationSplit | GroupedSize
    ranges: ValueRanges
    categories: Categories | None
    minima: ColumnOffsets
    quality: ApproximationSettings | None = None
    certificate: Certificate | None = None
    groups: FittedGroups | None = None
    pool: Fitted | None = None
    confidence: float | None = None
    source: str | None = None
    n_confirmed: int = 0
    confirmed_digest: str | None = None
    created: str | None = None
    run_date: str | None = None
    checksum: str | None = None

    @property
    def alpha(self) -> float:
        """The level of false alarms; the parameter may have been set after the fit."""
        return math.nextafter(self.offset, 0)

    @property
    def limit(self) -> float:
        """An anomaly is what scores below this, where groups have no limits of their own.

        0 if nothing can be flagged.
        """
        if self.confidence is None:
            return self.offset
        m = len(self.calibration.values)
        return float(limits(confident_places(self.alpha, m, self.confidence), m))

    @property
    def group_limits(self) -> LocalValue | None:
        """The same of each group, of shape (n_groups,), where each has one of its own."""
        if self.confidence is None or self.groups is None:
            return None
        of_groups = self.groups.limits(self.alpha, self.confidence)
        return LocalValue(of_groups, "lpe-group-limits")

    @property
    def n_samples(self) -> int:
        """Nominal rows in use."""
        return self.division.n_rows

    @property
    def calibration_kind(self) -> str:
        """How p-values are calibrated: "loo", "split" or "conformal"."""
        return self.division.kind

    @property
    def n_features(self) -> int:
        """Columns of the rows, as they came, that are measured."""
        return self.reference.shape.n_read_features - self.has_groups

    @property
    def has_groups(self) -> bool:
        """Whether rows are divided into groups, whose numbers are their last column."""
        return self.categories is not None and self.categories.groups is not None

    @property
    def by(self) -> list[Any]:
        """The columns that divide rows into groups."""
        return [] if self.groups is None else self.groups.by

    @property
    def measures_gaps(self) -> bool:
        """Whether rows with missing values are measured."""
        return self.reference.space.preparation.fill is not None

    @property
    def _measured(self) -> dict[str, Any]:
        """Which rows are measured, as `Table.status_codes` takes it."""
        is_small = None if self.groups is None else self.groups.small
        return {"measures_gaps": self.measures_gaps, "is_small": is_small}

    def count_new(self, rows: da.Array) -> list[Delayed]:
        """Return the result of `ValueRanges.count_new`."""
        given = {**self._measured, "has_groups": self.has_groups}
        return self.ranges.count_new(rows, **given)

    def groups_table(self) -> pd.DataFrame:
        """Return the attribute ``LPE.groups_``."""
        assert self.groups is not None
        assert self.categories is not None
        assert self.categories.groups is not None
        return self.groups.table(
            self.categories.groups.values, self.by, self.alpha, self.confidence,
            self.n_neighbors, self.radius,
        )  # fmt: skip

    @property
    def groups_own(self) -> frozenset[str]:
        """What each group has for itself; nothing without groups."""
        return frozenset() if self.groups is None else self.groups.own

    def group_values(self, codes: NDArray[np.generic]) -> pd.DataFrame:
        """Return the values of the groups of rows, missing where there is none.

        In the columns that divide rows into groups.
        """
        assert self.categories is not None
        assert self.categories.groups is not None
        numbers = np.nan_to_num(codes, nan=-1).astype(np.int64)
        values = self.categories.groups.values
        if (numbers < 0).any():  # as floats, large whole numbers would be others
            values = values.astype(object)
        values = values.reindex(numbers)
        names = pd.Index(self.by, dtype=object, tupleize_cols=False)
        return values.reset_index(drop=True).set_axis(names, axis=1)

    @property
    def n_numbers(self) -> int:
        """Columns of the rows that are not categorical."""
        n_codes = len(self.reference.space.preparation.categorical)
        return self.n_features + self.has_groups - n_codes

    @property
    def n_neighbors(self) -> int | None:
        """K; None for counts within a radius."""
        return self.reference.shape.statistic.n_neighbors

    @property
    def radius(self) -> float | None:
        """Epsilon; None for distances to K neighbors."""
        return self.reference.shape.statistic.radius

    @property
    def aggregation(self) -> str:
        """What is made of the distances to K neighbors: "kth" or "mean"."""
        return self.reference.shape.statistic.aggregation

    def at_level(self, level: float, confidence: float | None = None) -> Fitted:
        """Return the model with a level that decides, and how sure it is.

        Raises
        ------
        ValueError
            For a confidence that this model can promise nothing with.
        """
        if confidence is not None:
            check_confidence(self.parameters, confidence, self.calibration_kind)
        return replace(self, offset=threshold(level), confidence=confidence)

    def calibration_by(self, parameters: Mapping[str, Any]) -> str:
        """Return the calibration that arguments of `LPE` mean for these nominal rows."""
        if parameters["calibration"] != "auto":
            return str(parameters["calibration"])
        learned, n_learned = learned_components(parameters), self.n_samples
        if self.groups is not None and "scale" in parameters["own"]:
            n_learned = least_group(self.groups.n_rows, parameters["alpha"])
        confidence = parameters["confidence"]
        return choose_calibration(learned, n_learned, self.n_numbers, confidence)[0]

    def table(self, X: Any) -> Table:
        """Return rows as the model takes them; raises as `LPE.score_samples` does."""
        return self._open(X).without_input()

    def table_of_values(self, values: pd.DataFrame) -> Table:
        """Return rows that `values` gave, or such ones, as the model takes them."""
        if self.columns is not None:
            return self.table(values)
        table = Table.of(values.to_numpy(), None, self.categories, minima=self.minima)
        return table.without_input()

    def values(self, X: Any) -> pd.DataFrame:
        """Return rows of any kind as they came, of the measured columns; computes.

        The columns that divide rows into groups come after these.
        """
        return self._open(X).values()

    def _open(self, X: Any) -> Table:
        columns = self.columns
        if self.has_groups:
            if columns is None:
                X = with_columns_last(X, self.by, are_positions=True)
            else:
                columns = [*columns, *self.by]
        table = Table.of(X, columns, self.categories, minima=self.minima)
        if table.rows.shape[1] != self.n_features + self.has_groups:
            raise ValueError(
                f"X has {table.rows.shape[1] - self.has_groups} features, but LPE is "
                f"expecting {self.n_features} features as input: the columns it was fitted "
                f"on."
            )
        return table

    def open_table(
        self, data: str | Sequence[str], columns: Sequence[Any] | None
    ) -> tuple[FileTable, Any]:
        """Return a table in files, and of it the frame of columns that are measured."""
        kinds, by = None, self.by
        if self.categories is not None:
            kinds = self.categories.kinds_among(self.n_features + len(by))
        if by and self.columns is None:
            by = names_at(by, read_frame(data).columns)
        table, rows = open_features(data, columns, self.columns, kinds=kinds, by=by)
        n_measured = len(rows.columns) - len(by)
        if n_measured != self.n_features:
            raise ValueError(
                f"{table.place} has {n_measured} columns to measure, but the "
                f"model was fitted on {self.n_features}. Name that many (columns=, "
                f"--columns)."
            )
        return table, rows

    def statistic(self, X: Any) -> Any:
        """Return the result of `LPE.statistic`."""
        with _call_for(X):
            table, approximation = self._audited(self.table(X))
            found = self.reference.measure_table(table, approximation=approximation)
            return self._with_pool("statistic", found, table)

    def p_values(self, X: Any) -> Any:
        """Return the result of `LPE.score_samples`."""
        calibration = self.calibration
        with _call_for(X):
            table, approximation = self._audited(self.table(X))
            compared = self.reference.measure_table(
                table, weight=calibration.weigher, approximation=approximation
            )
            return self._with_pool("p_value", calibration.p_values(compared), table)

    def _with_pool(self, name: str, found: Any, table: Table) -> Any:
        """Return the statistic or p-values of rows, some of which the pool measures."""
        if self.pool is None:
            return found
        statistic, p_values = self._of_pool(table.rows)
        of_pool = statistic if name == "statistic" else p_values
        others = table.restore_verified(of_pool, name)
        return map_several([found, others], replaced, name=name, dtype=np.float64)

    def _of_pool(self, rows: da.Array) -> tuple[da.Array, da.Array]:
        """Return statistic and p-values of the rows that the pool measures, else NaN."""
        assert self.groups is not None
        assert self.pool is not None
        small = to_task(self.groups.small, "")
        tasks = (
            (_pooled_rows, (rows.name, i, 0), small.key) for i in range(rows.numblocks[0])
        )
        chunks = (rows.chunks[0], (rows.shape[1] - 1,))
        pooled = new_array("pooled", tasks, [rows, small], chunks, np.empty((0, 0)))
        return self.pool.scored(pooled)

    def status(self, X: Any) -> Any:
        """Return the result of `LPE.status`."""
        with _call_for(X):
            return self.table(X).status(**self._measured)

    def score_frame(self, X: Any) -> Any:
        """Return the result of `LPE.score_frame`."""
        calibration, weigh = self.calibration, None
        with _call_for(X):
            table, approximation = self._audited(self.table(X))
            statistic = self.reference.measure_table(table, approximation=approximation)
            codes = table.status_codes(**self._measured)
            values = [statistic, codes]
            if (weight := calibration.weight) is not None:
                weigh = partial(weight.weigh, n_features=self.n_features)
                values.append(
                    table.map_rows(log_densities, weight, name="logs", dtype=np.float64)
                )
            if calibration.groups is not None:
                values.append(table.map_rows(group_codes, name="group", dtype=np.float64))
            of_groups = self.group_limits
            if of_groups is not None:
                values.append(table.map_rows(row_limits, of_groups, **_LIMITS))
            if self.pool is not None:
                of_pool: Any = self._of_pool(table.rows)
                if not table.is_lazy:  # by one search
                    of_pool = compute(*of_pool)
                values += map(table.restore_verified, of_pool, ("statistic", "p_value"))
            scorer = RowScorer(
                calibration.function(), weigh, calibration.groups is not None,
                self.pool is not None, None if of_groups is not None else self.limit,
            )  # fmt: skip
            return map_to_frame(values, scorer, calibration.groups or calibration.shared)

    def own_score_frame(self) -> Any:
        """Return the same table of the nominal rows among themselves."""
        own, kind = self.nominal_scores.known(), self.nominal
        names = ("p_value", "statistic", RowStatus.COLUMN)
        with lazy_scope() if kind.is_lazy else eager_scope():
            if self._has_all_results(own):
                values = [own.series(kind, name, self.calibration) for name in names]
            else:
                statistic, p_values = self.blocks()
                found: Any = [p_values, statistic, own.status_blocks(), *self._own_limits()]
                found = found if kind.is_lazy else compute(*found)
                values = list(map(kind.restore, found, [*names, "limit"]))
            has_limits = len(values) > len(names)
            function = score_table if has_limits else partial(score_table, limit=self.limit)
            return map_to_frame(values, function)

    def own_labels(self) -> Any:
        """Return the result of `LPE.fit_predict` for the rows that were fitted."""
        p_values, naming = self.own("p_value"), {"name": "prediction"}
        with lazy_scope() if self.nominal.is_lazy else eager_scope():
            given = [self.nominal.restore(of, "limit") for of in self._own_limits()]
            if given:
                return map_several([p_values, *given], labels, **naming, dtype=np.int64)
            function = partial(labels, limit=self.limit)
            return map_values(p_values, function, **naming, dtype=np.int64)

    def _own_limits(self) -> list[da.Array]:
        """Return the limits of the nominal rows, lazily, if groups have their own."""
        of_groups = self.group_limits
        if of_groups is None:
            return []
        rows = self.nominal_scores.known().rows()
        return [map_blocks([rows], row_limits, of_groups, **_LIMITS)]

    def is_measured(self, rows: NDArray[np.generic]) -> NDArray[np.bool_]:
        """Return which rows of numbers and codes are measured."""
        return self.status_codes(rows) == 0

    def status_codes(self, rows: NDArray[np.generic]) -> NDArray[np.int8]:
        """Return the numbers of the statuses of rows of numbers and codes."""
        is_small = None if self.groups is None else self.groups.small.value
        return status_codes(
            rows, is_small, measures_gaps=self.measures_gaps, has_groups=self.has_groups
        )

    def is_pooled(self, rows: NDArray[np.generic]) -> NDArray[np.bool_]:
        """Return which rows of numbers and codes the pool measures, if there is one."""
        return np.isin(self.status_codes(rows), _POOLED)

    @property
    def most_neighbors(self) -> int:
        """How many nominal rows a new one can be measured among, at most."""
        n_reference = self.reference.shape.n_reference
        if self.groups is None or "neighbors" not in self.groups_own:
            return n_reference
        return int(self.groups.n_reference().max())

    def fdr_caveat(
        self,
        q: float,
        n_rows: int,
        n_flagged: int,
        statuses: NDArray[np.int64] | None = None,
    ) -> str | None:
        """Return why a false discovery rate does not hold; see `Calibration.fdr_caveat`.

        ``statuses`` is how many rows have each status; None: there may be rows of all.
        """
        doubt = self.calibration.fdr_caveat(q, n_rows, n_flagged)
        if doubt is not None or self.groups is None or not n_flagged:
            return doubt
        if "calibration" not in self.groups.own:
            return (
                f"fdr={q:g} holds only if rows to score have each group as often as "
                f"nominal rows do: groups have no calibration of their own. Give one "
                f"(own=, --own)."
            )
        are_pooled = statuses is None or statuses[_POOLED].any()
        if self.pool is not None and are_pooled:
            return (
                f"fdr={q:g} does not hold for rows of small and unknown groups, which are "
                f"compared with all nominal rows. Leave them out (small_groups='nan', "
                f"--small-groups nan)."
            )
        return None

    def exact_scores(
        self, rows: NDArray[np.generic]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return p-values and statistic of new rows, by an exact search; computes.

        Parameters
        ----------
        rows : ndarray of shape (n, n_features)
            Numbers, and codes of categories; with groups, then the numbers of these.
        """
        with counted():  # explanations call this often
            blocks = Table.of(rows).rows
            statistic = self.reference.measure_rows(blocks)
            compared = self.calibration.compared(blocks, statistic)
            found = compute(self.calibration.p_values(compared), statistic)
        return found[0], found[1]

    def labels(self, X: Any) -> Any:
        """Return the result of `LPE.predict`."""
        values, function = self._decisive(X)
        _warn_of_unmeasured(values, "inf" if self.measures_gaps else "NaN or inf")
        if self.group_limits is not None:
            given = [values, self._limits_of(X)]
            return map_several(given, labels, name="prediction", dtype=np.int64)
        return map_values(values, function, name="prediction", dtype=np.int64)

    def margins(self, X: Any) -> Any:
        """Return the result of `LPE.decision_function`."""
        p_values, naming = self.p_values(X), {"name": "decision_function"}
        if self.group_limits is not None:
            given = [p_values, self._limits_of(X)]
            return map_several(given, margin, **naming, dtype=np.float64)
        function = partial(margin, limit=self.limit)
        return map_values(p_values, function, **naming, dtype=np.float64)

    def _limits_of(self, X: Any) -> Any:
        """Return the limits of rows whose groups have their own, in the kind of ``X``."""
        with _call_for(X):
            return self.table(X).map_rows(row_limits, self.group_limits, **_LIMITS)

    def _decisive(self, X: Any) -> tuple[Any, Callable[..., Any]]:
        """Return the values that labels follow from, NaN for rows not measured, and how."""
        bound = self.calibration.nominal_bound(self.limit)
        if bound is None or self.quality is not None or self.has_groups:
            return self.p_values(X), partial(labels, limit=self.limit)
        with _call_for(X):
            return self._early(self.table(X), bound)

    def _early(self, table: Table, bound: float) -> tuple[Any, Callable[..., Any]]:
        """Return the same where rows are nominal within a bound on their statistic."""
        if self.aggregation == "mean":
            asked = replace(self.reference.shape.statistic, bound=bound)
            means = self.reference.measure_table(table, asked)
            return means, partial(labels_within, bound=bound)
        # So many rows within this radius show that a row is nominal.
        enough = int(bound) if self.n_neighbors is None else self.n_neighbors
        radius = bound if self.radius is None else self.radius
        statistic = Statistic(None, radius, enough)
        counts = self.reference.measure_table(table, statistic)
        return counts, partial(labels, limit=enough)

    def certify(self, X: Any) -> Certificate | None:
        """Return the certificate of rows to score, computed; None: nothing is missed.

        Parameters
        ----------
        X : as in `LPE.statistic`

        Raises
        ------
        RuntimeError
            If too many p-values may be off.
        """
        audit, table = self._audit(), self.table(X)
        if audit is None:
            return None
        certificate: Certificate
        (certificate,) = compute(audit.of_table(table.rows, is_lazy=table.is_lazy))
        return certificate

    def _audited(self, table: Table) -> tuple[Table, Approximation | None]:
        """Return rows, and how they are searched for once a sample of them was judged.

        Lazy rows are not read before that.
        """
        audit = self._audit()
        if audit is None:
            return table, None
        certificate = audit.of_table(table.rows, is_lazy=table.is_lazy)
        (exact,) = new_tasks("is-exact", [(is_exact, certificate.key)], [certificate])
        if table.is_lazy:
            table = replace(table, rows=reread_once(table.rows, exact))
        return table, audit.approximation(exact)

    def _certified(self, certificate: Certificate | None) -> Approximation | None:
        """Return how rows with this certificate are searched for."""
        audit = self._audit()
        if audit is None or certificate is None or certificate.is_exact:
            return None
        return audit.approximation()

    def _audit(self) -> Audit | None:
        """Return the audit of searches: every decision of this model has to be exact."""
        if self.quality is None:
            return None
        recheck = max(self.quality.recheck, math.nextafter(self.offset, 0))
        quality = replace(self.quality, recheck=recheck)
        return Audit(self.reference, self.calibration, quality)

    def own(self, name: str) -> Any:
        """Return the "statistic" or the "p_value" of each nominal row, in their kind."""
        own, kind = self.nominal_scores.known(), self.nominal
        with lazy_scope() if kind.is_lazy else eager_scope():
            if self._has_all_results(own):
                return own.series(kind, name, self.calibration)
            statistic, p_values = self.blocks()
            return kind.restore(statistic if name == "statistic" else p_values, name)

    def _has_all_results(self, own: NominalScores) -> bool:
        """Return whether results of a dask frame that was fitted are all known."""
        is_frame = self.nominal.frame is not None
        return is_frame and own.others is None and self.pool is None

    def blocks(
        self,
        X: Any = None,
        frame_sizes: Sequence[int] = (),
        certificate: Certificate | None = None,
    ) -> tuple[da.Array, da.Array]:
        """Return statistic and p-values of rows as dask arrays in their partitions, lazily.

        For those who write results partition by partition: unlike in `statistic`, a frame
        gives as many tasks as the workers have use for, also if it has few partitions.

        Parameters
        ----------
        X : as in `LPE.statistic`, or Table, optional
            None: the nominal rows, as `own` gives them.
        frame_sizes : sequence of int
            As in `Reference.measure_rows`.
        certificate : Certificate, optional
            Of these rows, as `certify` gives it.

        Returns
        -------
        statistic, p_values : dask array of shape (n,)
        """
        reference, calibration = self.reference, self.calibration
        if X is None:
            own, approximation = (
                self.nominal_scores.known(),
                self._certified(self.certificate),
            )
            statistic, compared = own.blocks(reference, calibration, approximation)
            p_values = calibration.own_p_values(compared, own.is_own_blocks())
            if self.pool is None:
                return statistic, p_values
            statuses = own.status_blocks()
            found = zip((statistic, p_values), self.pool.blocks(), strict=True)
            statistic, p_values = (
                map_blocks([*of, statuses], _in_small, name="pooled", dtype=np.float64)
                for of in found
            )
            return statistic, p_values
        rows = X.rows if isinstance(X, Table) else self.table(X).rows
        return self.scored(rows, frame_sizes, self._certified(certificate))

    def scored(
        self,
        rows: da.Array,
        frame_sizes: Sequence[int] = (),
        approximation: Approximation | None = None,
    ) -> tuple[da.Array, da.Array]:
        """Return statistic and p-values of new rows of numbers and codes, lazily.

        Parameters as for `Reference.measure_rows`.
        """
        calibration = self.calibration
        statistic = self.reference.measure_rows(
            rows, frame_sizes=frame_sizes, approximation=approximation
        )
        p_values = calibration.p_values(calibration.compared(rows, statistic))
        if self.pool is None:
            return statistic, p_values
        of_rows = zip((statistic, p_values), self._of_pool(rows), strict=True)
        statistic, p_values = (
            map_blocks(list(of), replaced, name="pooled", dtype=np.float64)
            for of in of_rows
        )
        return statistic, p_values


def _warn_of_unmeasured(values: Any, what: str) -> None:
    """Warn of rows in this process that have no value, and get the label of nominal ones.

    ``what`` is in them. Of Dask rows it is not known before they are computed.
    """
    if is_dask_collection(values):
        return
    n_unmeasured = int(np.isnan(np.asarray(values, np.float64)).sum())
    if n_unmeasured > 0:
        rows = "1 row has" if n_unmeasured == 1 else f"{n_unmeasured} rows have"
        warnings.warn(
            f"{rows} {what}, and no p-value: the label is 1. score_samples gives NaN.",
            stacklevel=4,
        )


def _call_for(X: Any) -> AbstractContextManager[Any]:
    """Return the context of a call for rows: those of Dask and of files are lazy."""
    return lazy_scope() if is_dask_collection(X) or is_path_like(X) else eager_scope()


# The functions below run inside tasks: NumPy in, NumPy out.


def _pooled_rows(
    rows: NDArray[np.generic], is_small: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return rows of small and unknown groups, and inf in the place of others."""
    codes = status_codes(rows, is_small, measures_gaps=True, has_groups=True)
    pooled = rows[:, :-1].astype(np.float64)
    pooled[~np.isin(codes, _POOLED)] = np.inf
    return pooled


def _in_small(
    values: NDArray[np.float64],
    others: NDArray[np.float64],
    statuses: NDArray[np.number[Any]],
) -> NDArray[np.float64]:
    """Return values, in whose place are others for rows of small groups."""
    return np.where(np.isin(statuses, _POOLED), others, values)
