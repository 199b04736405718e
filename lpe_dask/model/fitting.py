"""Fit a model: plan it, measure the nominal rows, keep the result.

    rows, parameters --FitPlan--> calibration, division, K or radius         (whole numbers)
    rows --split_calibration--> part to search, rows to measure
    rows --learn--> scaling, metric --> part, packed --> statistic of the rows to measure
    statistic --sorted--> calibration --> Fitted

Here is what "loo", "split" and "conformal" mean for the rows; validity.py has what they
promise.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from typing import Any, Self

import numpy as np
from dask.delayed import Delayed
from numpy.typing import NDArray

from lpe_dask import dask_array as da
from lpe_dask.kernels import Moments
from lpe_dask.model import measured_vectors
from lpe_dask.model.audit import Audit, Sample, sample_of
from lpe_dask.model.calibration_split import (
    INCLUDES_SELF,
    CalibrationSplit,
    GroupedSplit,
    default_calibration_size,
    split_calibration,
)
from lpe_dask.model.calibration_warnings import (
    warn_if_nothing_can_be_flagged,
    warn_of_false_alarms,
)
from lpe_dask.model.certificate import (
    NOMINAL_DRAW,
    ApproximationSettings,
    Certificate,
    certificate_of,
    draws,
)
from lpe_dask.model.fitted import Fitted
from lpe_dask.model.group_plan import NOT_DIVIDED, GroupPlan
from lpe_dask.model.groups import FittedGroups, refuse_unknown_groups
from lpe_dask.model.labels import threshold
from lpe_dask.model.learning.column_facts import AskedFacts, ColumnFacts
from lpe_dask.model.learning.group_scaling import (
    LearnsGroups,
    learn_group_preparations,
)
from lpe_dask.model.learning.metrics import graph_params, reorder_params
from lpe_dask.model.learning.scaling import check_determined, learn_preparation
from lpe_dask.model.lpe_parameters import (
    PARAMETERS,
    SCALES,
    check_parameters,
    neighbors_by_rule,
    radius_by_rule,
)
from lpe_dask.model.nominal_scores import NominalScores
from lpe_dask.model.persistence.checkpoint import (
    Checkpoint,
    measure_to_storage,
    measure_with_checkpoint,
)
from lpe_dask.model.scale_advice import advise_scale
from lpe_dask.model.sorted_vectors import ascending
from lpe_dask.model.validity import (
    choose_calibration,
    learned_components,
    least_group,
)
from lpe_dask.pvalues import Calibration, GroupStatistics, LikelihoodRatio
from lpe_dask.search import (
    Approximation,
    HeldRows,
    MemoryEstimate,
    Preparation,
    ProblemSize,
    Reference,
    SearchGroups,
    Statistic,
    can_hold,
)
from lpe_dask.storage import StoredVector
from lpe_dask.tables import (
    GroupFacts,
    NominalRows,
    NominalTable,
    Sums,
    map_blocks,
    select_rows,
)
from lpe_dask.tasks import (
    LocalValue,
    Workers,
    compute,
    eager_scope,
    freeze,
    new_tasks,
    to_task,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FitPlan:
    """What a fit settles before it searches.

    Attributes
    ----------
    parameters : dict
        The arguments of `LPE`.
    division : CalibrationSplit
    statistic : Statistic
    learned : str, optional
        What is learned from the nominal rows; see `validity.learned_components`.
    groups : GroupPlan, optional
        Where rows are divided into groups.
    """

    parameters: Mapping[str, Any]
    division: CalibrationSplit | GroupedSplit
    statistic: Statistic
    learned: str | None
    groups: GroupPlan | None = None

    @classmethod
    def of(
        cls,
        parameters: Mapping[str, Any],
        n_rows: int,
        n_features: int,
        n_categorical: int = 0,
        groups: NDArray[np.int32] | None = None,
        n_groups: int = 0,
    ) -> Self:
        """Plan a fit of so many rows; a log line says what "auto" chose.

        Parameters
        ----------
        parameters : dict
            The arguments of `LPE`, checked.
        n_rows, n_features : int
        n_categorical : int
            How many of the features are categorical: nothing is learned from these.
        groups : ndarray of shape (n_rows,), optional
            The number of the group of each row.
        n_groups : int
            How many there are.

        Raises
        ------
        ValueError
            If there are not enough rows.
        """
        learned, reason = learned_components(parameters), None
        calibration, seed = parameters["calibration"], parameters["random_state"]
        if calibration == "auto":
            n_numbers, n_learned = n_features - n_categorical, n_rows
            if groups is not None and "scale" in parameters["own"]:
                n_learned = least_group(np.bincount(groups), parameters["alpha"])
            calibration, reason = choose_calibration(
                learned, n_learned, n_numbers, parameters["confidence"]
            )
            seed = seed or 0  # the same draw at each fit
        if groups is not None:
            given = calibration, groups, n_groups, n_features, seed
            return cls._of_groups(parameters, learned, reason, *given)
        size = parameters["calibration_size"]
        if size is None and parameters["algorithm"] == "nn_descent":
            size = default_calibration_size(calibration, n_rows)
        division = split_calibration(calibration, n_rows, size, seed)
        statistic = _statistic(parameters, division, n_features)
        if "covariance" in (learned or ""):
            n_learned_from = division.n_reference if division.is_held_out else n_rows
            n_scaled = len(SCALES[parameters["scale"]].forms) * n_features
            check_determined(n_learned_from, n_scaled)
        if reason is not None:
            logger.info("calibration=%s: %s", division.kind, reason)
        return cls(parameters, division, statistic, learned)

    @classmethod
    def _of_groups(
        cls,
        parameters: Mapping[str, Any],
        learned: str | None,
        reason: str | None,
        kind: str,
        codes: NDArray[np.int32],
        *given: Any,
    ) -> Self:
        """Return the plan of rows in groups; what is given is as for `GroupPlan.of`."""
        groups = GroupPlan.of(parameters, kind, codes, *given)
        if groups.is_small.all():
            size, remedy = parameters["calibration_size"], "Give"
            lower = "" if parameters["confidence"] is None else "a lower confidence, "
            n_undivided = int((groups.why_small == NOT_DIVIDED).sum())
            if size is not None and n_undivided > 0:
                remedy = f"calibration_size={size} is too large for {n_undivided} of them: "
                remedy += "lower it, or give"
            raise ValueError(
                f"all {len(groups.n_rows)} groups are small ({', '.join(_whys(groups))}): "
                f"none of their rows could be judged. {remedy} more rows a group, a larger "
                f"alpha, {lower}or other columns (by=, --by)."
            )
        division = groups.division()
        if "neighbors" not in groups.own:
            statistic = _statistic(parameters, division, given[1])
        elif parameters["graph"] == "radius":
            statistic = Statistic(None, float(np.nanmax(groups.radii)))
        else:
            aggregation = parameters["aggregation"]
            statistic = Statistic(
                int(groups.n_neighbors.max()), None, aggregation=aggregation
            )
        if reason is not None:
            logger.info("calibration=%s: %s", kind, reason)
        return cls(parameters, division, statistic, learned, groups)

    def shape(
        self,
        n_reference: int,
        n_features: int,
        preparation: Preparation,
        **reading: Any,
    ) -> ProblemSize:
        """Return that of a search among so many rows; ``reading`` as in `ProblemSize`.

        ``n_features`` are those of the input, which the preparation may make more.
        """
        metric, given = self.parameters["metric"], self.parameters["metric_params"]
        n_calibration, n_ordered = self.division.n_calibration, None
        if self.are_statistics_stored:
            n_ordered = min(n_calibration, measured_vectors.TASK_NUMBERS)
        return ProblemSize(
            n_reference, preparation.n_prepared(n_features), self.statistic,
            graph_params(metric, given, n_reference), n_calibration,
            n_input_features=n_features, n_codes=preparation.n_codes,
            ordered_rows=n_ordered, **reading,
        )  # fmt: skip

    @property
    def are_statistics_stored(self) -> bool:
        """Whether the statistics of calibration rows go to storage, as they are many."""
        is_weighed = self.parameters["anomaly_log_density"] is not None
        is_plain = self.groups is None and not is_weighed
        return is_plain and measured_vectors.are_many(self.division.n_calibration)

    @property
    def small_rows(self) -> NDArray[np.bool_] | None:
        """Which rows belong to small groups, where there are groups."""
        groups = self.groups
        return None if groups is None else groups.is_small[groups.codes]

    @property
    def measures_all(self) -> bool:
        """Whether other rows than the calibration rows have no statistic, or are none."""
        if self.groups is None or "neighbors" not in self.groups.own:
            return self.division.calibration is None
        return self.division.kind == "loo" and self.parameters["calibration_size"] is None

    @property
    def learns_groups(self) -> bool:
        """Whether anything is learned of each group by itself."""
        groups, parameters = self.groups, self.parameters
        if groups is None or "scale" not in groups.own:
            return False
        if "neighbors" in groups.own:  # one group is all there is
            return groups.are_apart and self.learned is not None
        # The metric is that of all groups.
        return parameters["scale"] is not None or parameters["missing"] == "measure"

    def with_groups(self, groups: GroupPlan) -> Self:
        """Return the plan with groups of which some more are small."""
        return replace(self, groups=groups, division=groups.division())

    def learn_groups(
        self,
        rows: da.Array,
        labels: Sequence[str],
        places: Sequence[int],
        group_facts: GroupFacts | None = None,
        **reading: Any,
    ) -> tuple[Preparation, Self]:
        """Learn scale and metric of each group from rows; computes.

        Parameters are those of `learn_preparation`, but for what is known of the rows of
        each group, and ``reading`` as for `shape`. The plan that is returned has groups of
        which nothing can be learned as small ones.
        """
        groups, parameters = self.groups, self.parameters
        assert groups is not None
        facts = None if self.division.is_held_out else group_facts
        is_learned = groups.reference if self.division.is_held_out else None
        codes = groups.codes if is_learned is None else groups.codes[is_learned]
        has_metric = "neighbors" in groups.own
        learns = LearnsGroups(
            parameters["scale"], parameters["metric"], parameters["metric_params"],
            tuple(labels), parameters["random_state"], tuple(places),
            parameters["missing"] == "measure",
            ~groups.is_small if has_metric else groups.n_reference > 0, has_metric,
        )  # fmt: skip
        plain = Preparation(categorical=tuple(places))
        n_rows, n_columns = rows.shape
        shape = self.shape(n_rows, n_columns, plain, **reading)
        preparation, why = learn_group_preparations(rows, codes, learns, shape, facts)
        return preparation, self.with_groups(groups.without(why))

    def learn_preparation(
        self,
        rows: da.Array,
        labels: Sequence[str],
        places: Sequence[int],
        sample: NDArray[np.generic],
        known: ColumnFacts | None = None,
    ) -> Preparation:
        """Learn scale and metric from rows; computes. See `learn_preparation`.

        Parameters
        ----------
        rows : dask array of shape (n_rows, n_features)
        labels : sequence of str
            What to call the columns in an error.
        places : sequence of int
            The categorical columns.
        sample : ndarray of shape (n_sampled, n_features)
            Some nominal rows.
        known : ColumnFacts, optional
            What is known of the columns of numbers of the rows.
        """
        measures_gaps, role = self.parameters["missing"] == "measure", None
        if self.groups is not None:
            role = "separates" if self.groups.are_apart else "dropped"
        scale, metric, given, seed = (
            self.parameters[name]
            for name in ("scale", "metric", "metric_params", "random_state")
        )
        return learn_preparation(
            rows, scale, metric, given, labels, categorical=places, random_state=seed,
            sample=sample if measures_gaps else None, group_role=role,
            known=known,
        )  # fmt: skip


def largest_search(
    parameters: Mapping[str, Any], n_rows: int, n_features: int, **reading: Any
) -> ProblemSize:
    """Return the largest search that there may be in a fit of so many rows.

    Parameters are those of `FitPlan.of`; ``reading`` as in `ProblemSize`.
    """
    statistic = Statistic(None, 1.0)
    if parameters["graph"] == "knn":
        n_neighbors = parameters["n_neighbors"] or neighbors_by_rule(n_rows)
        statistic = Statistic(n_neighbors, None)
    metric, given = parameters["metric"], parameters["metric_params"]
    return ProblemSize(
        n_rows, n_features, statistic, graph_params(metric, given, n_rows),
        is_indexed=parameters["algorithm"] == "nn_descent", **reading,
    )  # fmt: skip


def _check_small(groups: GroupPlan, small_groups: str) -> None:
    """Say how many groups are small; an error if there must be none."""
    n_small = int(groups.is_small.sum())
    whys = ", ".join(_whys(groups))
    if n_small > 0 and small_groups == "error":
        raise ValueError(
            f"{n_small} of {len(groups.n_rows)} groups are small ({whys}). Leave their "
            f"rows out, or give small_groups='nan' or 'pool' (--small-groups)."
        )
    what = {"nan": "no p-values", "pool": "p-values among all nominal rows"}
    logger.info(
        "%d groups%s", len(groups.n_rows),
        f", of which {n_small} are small and have {what[small_groups]} ({whys})"
        if n_small > 0 else "",
    )  # fmt: skip


def _whys(groups: GroupPlan) -> list[str]:
    """Return why groups are small, and how many."""
    whys, counts = np.unique(
        groups.why_small[groups.is_small].astype(str), return_counts=True
    )
    return [f"{why}: {n}" for why, n in zip(whys, counts, strict=True)]


def _statistic(
    parameters: Mapping[str, Any],
    division: CalibrationSplit | GroupedSplit,
    n_features: int,
) -> Statistic:
    """Return K, or the radius: checked, or by their rules."""
    n, radius = division.n_reference, parameters["radius"]
    if parameters["graph"] == "radius":
        radius = radius_by_rule(n, n_features) if radius is None else radius
        return Statistic(None, float(radius))
    n_neighbors = parameters["n_neighbors"]
    n_neighbors = neighbors_by_rule(n) if n_neighbors is None else int(n_neighbors)
    division.check_neighbors(n_neighbors)
    return Statistic(n_neighbors, None, aggregation=parameters["aggregation"])


@eager_scope()
def fit_model(
    parameters: dict[str, Any],
    X: Any,
    checkpoint: str | None = None,
    on_start: Callable[[], None] | None = None,
    places: tuple[int, ...] | None = None,
    *,
    for_own: bool = False,
    advises: bool = False,
    sizes: Sequence[int] | None = None,
) -> Fitted:
    """Return the model of some nominal rows; computes, with the scheduler that is active.

    Parameters
    ----------
    parameters : dict
        All arguments of `LPE`, by name.
    X : as in `LPE.fit`
    checkpoint : str, optional
        URL of the `Checkpoint` of these rows and these parameters: what it holds is not
        measured again, and what is measured is kept there. ``random_state`` decides which
        rows are measured.
    on_start : callable, optional
        Called once everything is checked that can be checked without a search.
    places : tuple of int, optional
        The columns that have codes of categories already; the model is then one of such
        rows. None: categories are learned.
    for_own : bool, default=False
        Whether the results of the nominal rows follow: if these are lazy, it is checked
        before the search that they can be sent.
    advises : bool, default=False
        Whether to say before the search that a scale is needed: see `advise_scale`.
    sizes : sequence of int, optional
        Rows of the partitions of ``X``, where these are known.

    Raises
    ------
    ValueError, TypeError, MemoryError, OSError
        As `LPE.fit`.
    """
    check_parameters(parameters)
    early = _EarlyPlan(parameters)
    given = NominalTable.read(
        X, parameters["categorical"], parameters["missing"], places,
        parameters["by"] or (), _sums_of(parameters), early.draw, sizes,
    )  # fmt: skip
    reorder_params(parameters["metric_params"], given.table.columns)
    search = _Search.of(parameters, given, early.plan)
    if for_own and given.table.is_lazy:
        n_input = sum(given.rows.input_chunks)
        n_calibration = search.plan.division.n_calibration
        LocalValue.check_sizes([8 * n_input, 8 * n_calibration])
    if advises:
        advise_scale(parameters, given.rows.sample, search.labels, search.places)
    if on_start is not None:
        on_start()
    if checkpoint is not None:
        search = replace(search, checkpoint=Checkpoint(checkpoint))
    fitted = _searched(parameters, given, search)
    warn_if_nothing_can_be_flagged(fitted)
    warn_of_false_alarms(fitted, search.plan.learned)
    logger.info(
        "fitted %d nominal rows x %d columns: graph=%s, n_neighbors=%s, radius=%s%s",
        fitted.n_samples, fitted.n_features, parameters["graph"], fitted.n_neighbors,
        fitted.radius,
        "" if fitted.reference.space.groups is None else " at most, by the group",
    )  # fmt: skip
    return fitted


def _sums_of(parameters: dict[str, Any]) -> Sums | None:
    """Return what a survey of all rows has to add up, so that they are not read again.

    Nothing where it is learned from some of the rows; of groups nothing where they have to
    be read for quantiles or medians.
    """
    names = ("scale", "metric", "metric_params")
    asked = AskedFacts.of(*(parameters[name] for name in names))
    if parameters["calibration"] == "conformal":
        return None
    if scales_groups(parameters):
        if asked.sample or parameters["missing"] == "measure":
            return None
        is_asked = asked.moments or asked.ranges
        return Sums(asked.products, by_group=True) if is_asked else None
    return Sums(asked.products) if asked.moments else None


class _EarlyPlan:
    """Plans a fit before rows are read, where it is known how many there are.

    What "conformal" learns from a part can then be gathered while all rows are surveyed.
    """

    def __init__(self, parameters: dict[str, Any]) -> None:
        self._parameters = parameters
        self.plan: FitPlan | None = None

    def draw(
        self, n_rows: int, n_numbers: int, n_categorical: int
    ) -> tuple[NDArray[np.int64], Sums] | None:
        """Return the rows that scale and metric are learned from; None: not settled yet."""
        parameters = self._parameters
        names = ("scale", "metric", "metric_params")
        asked = AskedFacts.of(*(parameters[name] for name in names))
        is_asked = (asked.moments or asked.ranges) and not asked.sample
        is_all = parameters["missing"] == "error"  # or it is an error
        may_hold_out = parameters["calibration"] in ("conformal", "auto")
        if not (is_asked and is_all and may_hold_out):
            return None
        n_features = n_numbers + n_categorical
        try:
            self.plan = FitPlan.of(parameters, n_rows, n_features, n_categorical)
        except ValueError:  # which comes again, unless what the rows are comes first
            return None
        reference = self.plan.division.reference
        if not self.plan.division.is_held_out or reference is None:
            return None
        return reference, Sums(asked.products)


def scales_groups(parameters: Mapping[str, Any]) -> bool:
    """Return whether rows are divided into groups each of which may have its own scale."""
    return bool(parameters["by"]) and "scale" in parameters["own"]


def _searched(parameters: dict[str, Any], given: NominalTable, search: _Search) -> Fitted:
    """Return the model of nominal rows whose search is planned; computes."""
    preparation, search = search.learn()
    if search.plan.groups is not None:
        _check_small(search.plan.groups, parameters["small_groups"])
    reference, statistic = search.measure(preparation)
    fitted = _fitted(parameters, given, search.plan, reference, statistic)
    if not reference.space.is_indexed:
        return fitted
    quality = ApproximationSettings.of(parameters)
    certificate = search.certify(fitted, quality)
    return replace(fitted, quality=quality, certificate=certificate)


def _fitted(
    parameters: dict[str, Any],
    given: NominalTable,
    plan: FitPlan,
    reference: Reference,
    statistic: NDArray[np.float64] | StoredVector,
) -> Fitted:
    """Return the model of nominal rows of which some were measured; computes."""
    table, nominal, division = given.table, given.rows, plan.division
    calibration, compared = _calibrated(nominal, plan, statistic)
    groups, graph = None, parameters["graph"]
    if plan.groups is not None:
        groups = FittedGroups.of(plan.groups, graph, given.by, compared)
    small_groups = parameters["small_groups"]
    return Fitted(
        parameters=parameters,
        columns=table.columns,
        n_dropped=nominal.n_dropped,
        offset=threshold(parameters["alpha"]),
        reference=reference,
        calibration=calibration,
        nominal_scores=NominalScores.of(
            given.reread, nominal, division, statistic, compared, plan.small_rows,
            is_whole=plan.measures_all,
        ),
        nominal=given.kind,
        division=division.kept(),
        categories=refuse_unknown_groups(table.categories, small_groups),
        minima=table.minima,
        ranges=nominal.ranges,
        groups=groups,
        pool=_pool(parameters, given) if small_groups == "pool" else None,
        confidence=parameters["confidence"],
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )  # fmt: skip


def _pool(parameters: dict[str, Any], given: NominalTable) -> Fitted:
    """Return the model of all nominal rows together; computes."""
    of_groups = {name: PARAMETERS[name].default for name in ("by", "own", "small_groups")}
    return fit_model(parameters | of_groups, given.without_groups())


def _calibrated(
    nominal: NominalRows, plan: FitPlan, statistic: NDArray[np.float64] | StoredVector
) -> tuple[Calibration, Any]:
    """Return the calibration, and what it compares of the measured rows themselves.

    Computes, if the statistic is weighed, or on storage.
    """
    graph, log_density = plan.parameters["graph"], plan.parameters["anomaly_log_density"]
    if isinstance(statistic, StoredVector):
        includes_self = INCLUDES_SELF[plan.division.kind]
        return Calibration.of(graph, includes_self, None, ascending(statistic)), statistic
    weight, compared = None, statistic
    if log_density is not None:
        weight = LikelihoodRatio(log_density, graph, plan.groups is not None)
        compared = _weighed(nominal, plan.division, statistic, weight)
    includes_self, groups = INCLUDES_SELF[plan.division.kind], plan.groups
    if groups is None or "calibration" not in groups.own:
        values = compared
        if groups is not None:
            values = compared[~groups.is_small[groups.measured_codes]]
        return Calibration.of(graph, includes_self, weight, np.sort(values)), compared
    codes = groups.measured_codes
    is_known = ~groups.is_small[codes]
    known = GroupStatistics.of(compared[is_known], codes[is_known], len(groups.n_rows))
    own = known.p_values(
        compared, codes.astype(np.float64), np.ones(len(codes), bool),
        graph=graph, includes_self=includes_self,
    )  # fmt: skip
    return Calibration.of_groups(graph, includes_self, weight, known), own


@dataclass(frozen=True, slots=True)
class _Search:
    """What it takes to measure the nominal rows.

    Attributes
    ----------
    nominal : NominalRows
    plan : FitPlan
    labels : list of str
        What to call the columns in an error.
    places : tuple of int
        The categorical columns.
    checkpoint : Checkpoint, optional
        Keeps rows as soon as they are measured, by their numbers among the rows that they
        are measured among, or, where they belong to none, among all.
    """

    nominal: NominalRows
    plan: FitPlan
    labels: list[str]
    places: tuple[int, ...] = ()
    checkpoint: Checkpoint | None = None

    @classmethod
    def of(
        cls, parameters: dict[str, Any], given: NominalTable, plan: FitPlan | None = None
    ) -> Self:
        """Return the search among nominal rows, planned; see `FitPlan.of`.

        A ``plan`` that was made before is kept, if it is one of so many rows.
        """
        table, nominal, places = given.table, given.rows, given.places
        n_rows, n_features = nominal.rows.shape
        n_categorical, n_groups = len(places), 0
        if table.has_groups:
            n_features -= 1
            places = (*places, n_features)  # the numbers of groups
            assert table.categories is not None
            assert table.categories.groups is not None
            n_groups = len(table.categories.groups)
        if plan is None or plan.division.n_rows != n_rows:
            plan = FitPlan.of(
                parameters, n_rows, n_features, n_categorical, nominal.groups, n_groups
            )
        return cls(nominal, plan, table.labels, places)

    def learn(self) -> tuple[Preparation, _Search]:
        """Return the preparation of rows, and the search of these; computes.

        Of groups of which nothing can be learned the rows are not measured.
        """
        division, groups = self.plan.division, self.plan.groups
        # Were the rows to measure among those a scaling is learned from, they would no
        # longer be exchangeable with new ones.
        rows = self.nominal.rows
        if division.is_held_out:
            rows = self._part((groups or division).reference)()
        given = rows, self.labels, self.places
        if not self.plan.learns_groups:
            known = self._known()
            sample = self.nominal.sample
            return self.plan.learn_preparation(*given, sample, known), self
        reads: dict[str, Any] = {
            "partition_rows": max(self.nominal.input_chunks),
            "reads_frame": self.nominal.is_frame,
        }
        facts = self.nominal.group_facts
        preparation, plan = self.plan.learn_groups(*given, facts, **reads)
        return preparation, replace(self, plan=plan)

    def _known(self) -> ColumnFacts | None:
        """Return what the survey says of the columns of numbers that is learned from."""
        learned = self.nominal.learned
        if self.plan.division.is_held_out:
            if learned is None:
                return None
            low, high = np.array(learned.low), np.array(learned.high)
            return ColumnFacts(low, high, self.nominal.moments)
        ranges, moments = self.nominal.ranges, self.nominal.moments
        facts = self.nominal.group_facts
        if facts is not None and facts.of_groups:
            moments = Moments.add(of.moments for of in facts.of_groups.values())
        is_number = np.ones(len(ranges.low), bool)
        is_number[[place for place in self.places if place < len(ranges.low)]] = False
        low, high = (np.array(ends)[is_number] for ends in (ranges.low, ranges.high))
        return ColumnFacts(low, high, moments)

    def measure(
        self, preparation: Preparation
    ) -> tuple[Reference, NDArray[np.float64] | StoredVector]:
        """Return the reference of new rows, and the calibration statistics.

        Those of many rows are on storage: of all rows among which the calibration rows
        were numbered, NaN for the others. Computes.
        """
        division = self.plan.division
        if division.calibration_pool is not None:
            return self._measure_pool(preparation)
        if division.is_held_out:
            return self._measure_held_out(preparation)
        reference = self._reference(self._part(division.reference), preparation)
        numbers = division.calibration
        if numbers is not None and division.reference is not None:
            numbers = np.searchsorted(division.reference, numbers)
        tasks, n_rows = self._nominal_tasks(reference), len(self.nominal.rows)
        return self._indexed(reference), self._measured(numbers, n_rows, tasks)

    def _measured(
        self,
        numbers: NDArray[np.int64] | None,
        n_rows: int,
        tasks: Callable[[Any], list[Delayed]],
    ) -> NDArray[np.float64] | StoredVector:
        """Return the statistic of some of so many rows, or of all; computes."""
        if self.plan.are_statistics_stored:
            return measure_to_storage(numbers, n_rows, tasks, self.checkpoint)
        return measure_with_checkpoint(numbers, n_rows, tasks, self.checkpoint)

    def _measure_pool(
        self, preparation: Preparation
    ) -> tuple[Reference, NDArray[np.float64] | StoredVector]:
        """Measure rows of a part that belong to it, each without itself.

        Where workers can hold both parts, they are read once; else one after the other.
        """
        division, reference = self.plan.division, None
        assert division.calibration is not None
        assert division.calibration_pool is not None
        searched, pool = self._part(division.reference), division.calibration_pool
        held = HeldRows(self._part(pool))
        if self._can_hold(preparation, len(pool), is_packed=True):
            reference = self._reference(searched, preparation, beside=held)
        own = self._reference(held.rows, preparation, is_exact=True)
        chosen = np.searchsorted(pool, division.calibration)
        n_rows = own.shape.n_reference
        statistic = self._measured(chosen, n_rows, self._nominal_tasks(own))
        del own  # its memory is free before the other part is packed
        held.release()
        if reference is None:
            reference = self._reference(searched, preparation)
        return self._indexed(reference), statistic

    def _nominal_tasks(self, reference: Reference) -> Callable[..., list[Delayed]]:
        """Return what measures rows of a reference by their numbers."""
        keeps_rows = self.checkpoint is not None
        return partial(reference.nominal_tasks, keeps_rows=keeps_rows)

    def _measure_held_out(
        self, preparation: Preparation
    ) -> tuple[Reference, NDArray[np.float64] | StoredVector]:
        """Measure rows that are not searched like new ones.

        Where workers can hold them, they are read with the others.
        """
        division, beside = self.plan.division, None
        numbers = division.calibration
        assert numbers is not None
        held = HeldRows(self._part(numbers))
        if self._can_hold(preparation, len(numbers)):
            beside = held
        searched = self._part(division.reference)
        reference = self._reference(searched, preparation, beside=beside)

        def tasks(left: NDArray[np.int64]) -> list[Delayed]:
            return _tasks_of_rows(
                reference, held.rows(), np.searchsorted(numbers, left), left
            )

        statistic = self._measured(numbers, len(self.nominal.rows), tasks)
        held.release()
        return self._indexed(reference), statistic

    def _can_hold(
        self, preparation: Preparation, n_rows: int, *, is_packed: bool = False
    ) -> bool:
        """Return whether workers can hold so many rows beside the reference.

        ``is_packed``: as blocks, too.
        """
        rows, division = self.nominal.rows, self.plan.division
        shape = self._shape(division.n_reference, rows.shape[1], preparation)
        n_bytes = n_rows * rows.shape[1] * rows.dtype.itemsize
        if is_packed:
            n_bytes += MemoryEstimate.of(
                replace(shape, n_reference=n_rows, is_spooled=False), Workers.active()
            ).held
        return can_hold(shape, n_bytes)

    def _indexed(self, reference: Reference) -> Reference:
        """Return a reference with indexes, if it is to be searched along these."""
        is_indexed = reference.space.is_indexed
        return reference.indexed() if is_indexed else reference

    def certify(self, fitted: Fitted, quality: ApproximationSettings) -> Certificate:
        """Return the certificate of nominal rows that are no calibration rows; computes.

        Raises
        ------
        RuntimeError
            If too many p-values may be off.
        """
        division = self.plan.division
        is_other = np.ones(division.n_rows, bool)
        measured = division.calibration
        is_other[slice(None) if measured is None else measured] = False
        others = np.flatnonzero(is_other)
        if len(others) <= Approximation.AUDITED_ROWS:  # they are all measured exactly
            return certificate_of(np.empty(0), quality.max_p_error)
        sample = to_task(self._sample(others, quality.seed), "lpe-sample")
        audit = Audit(fitted.reference, fitted.calibration, quality)
        certificate: Certificate
        (certificate,) = compute(audit.of_sample(sample, fitted.n_features))
        return certificate

    def _sample(self, numbers: NDArray[np.int64], seed: int) -> Sample:
        """Return a sample of the nominal rows of these numbers; computes."""
        division = self.plan.division
        drawn = draws(numbers, seed, NOMINAL_DRAW)
        which = np.sort(np.argsort(drawn, kind="stable")[: Approximation.AUDITED_ROWS + 1])
        chosen, searched = numbers[which], division.reference
        own = np.full(division.n_rows, -1)
        own[slice(None) if searched is None else searched] = np.arange(division.n_reference)
        (rows,) = compute(select_rows(self.nominal.again(), chosen))
        return sample_of(rows, drawn[which], own[chosen])

    def _part(self, numbers: NDArray[np.int64] | None) -> Callable[[], da.Array]:
        """Return a function that gives some nominal rows, in a new graph each time."""
        again = self.nominal.again
        if numbers is None:
            return again
        # Blocks keep the function, so it is not to know all numbers of the plan.
        return lambda: freeze(select_rows(again(), numbers), "lpe-part")

    def _reference(
        self,
        source: Callable[[], da.Array],
        preparation: Preparation,
        *,
        is_exact: bool = False,
        beside: HeldRows | None = None,
    ) -> Reference:
        """Return nominal rows ready to be searched; ``is_exact``: without indexes.

        ``beside`` as for `Reference.of`.
        """
        algorithm = self.plan.parameters["algorithm"]
        if is_exact and algorithm == "nn_descent":
            algorithm = "brute"
        n_rows, n_features = source().shape
        shape = self._shape(n_rows, n_features, preparation, algorithm)
        groups, searched = self.plan.groups, None
        if groups is not None and groups.are_apart:
            is_knn = self.plan.parameters["graph"] == "knn"
            searched = SearchGroups(groups.n_neighbors if is_knn else None, groups.radii)
        return Reference.of(
            source, self.nominal.sample, preparation, shape, algorithm, searched, beside
        )

    def _shape(
        self,
        n_rows: int,
        n_features: int,
        preparation: Preparation,
        algorithm: str | None = None,
    ) -> ProblemSize:
        """Return that of a search among so many of the rows."""
        algorithm = algorithm or self.plan.parameters["algorithm"]
        return self.plan.shape(
            n_rows, n_features, preparation,
            partition_rows=max(self.nominal.input_chunks),
            reads_frame=self.nominal.is_frame, is_indexed=algorithm == "nn_descent",
        )  # fmt: skip


def _tasks_of_rows(
    reference: Reference,
    rows: da.Array,
    places: NDArray[np.int64],
    numbers: NDArray[np.int64],
) -> list[Delayed]:
    """Return tasks for some rows each: their numbers, and their statistic as new rows.

    ``places`` are those of these rows among ``rows``.
    """
    measured = reference.measure_rows(select_rows(rows, places))
    edges = np.cumsum([0, *measured.chunks[0]]).tolist()
    entered = [
        to_task(numbers[start:stop].astype(np.int64), "lpe-chosen")
        for start, stop in pairwise(edges)
    ]
    tasks = (
        (_numbered, of_chunk.key, (measured.name, i)) for i, of_chunk in enumerate(entered)
    )
    return new_tasks("numbered", tasks, [measured, *entered])


def _weighed(
    nominal: NominalRows,
    division: CalibrationSplit | GroupedSplit,
    statistic: NDArray[np.float64],
    weight: LikelihoodRatio,
) -> NDArray[np.float64]:
    """Return the weighed statistic of the calibration rows, of shape (m,); computes."""
    rows = nominal.rows
    if division.calibration is not None:
        rows = select_rows(rows, division.calibration)
    n_features = rows.shape[1] - weight.has_groups
    logs = map_blocks([rows], _log_densities, weight, name="log-density", dtype=np.float64)
    weighed = weight.weigh(np.asarray(*compute(logs)), statistic, n_features)
    return np.where(np.isnan(statistic), statistic, weighed)  # of small groups


# The functions below run inside tasks: NumPy in, NumPy out.


def _numbered(
    numbers: NDArray[np.int64], statistic: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    return numbers, statistic


def _log_densities(
    rows: NDArray[np.generic], weight: LikelihoodRatio
) -> NDArray[np.float64]:
    return weight.log_densities(rows)
