"""Rows in groups that have a normal of their own, beside the definition."""

import datetime
import itertools
from dataclasses import replace

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from dask.sizeof import sizeof

from choosing import mostly_dealt, mostly_full
from grouping import GroupOracle
from lpe_dask import LPE
from lpe_dask.model.detector import fitted_of
from lpe_dask.pvalues import Calibration, GroupStatistics
from lpe_dask.search import SearchGroups
from lpe_dask.search.blocks import buckets
from problems import computed

OWN = [
    part
    for n in (3, 2, 1)
    for part in itertools.combinations(("scale", "neighbors", "calibration"), n)
]
CALIBRATIONS = ["loo", "split", "conformal"]
SCALES = [None, "minmax", "standard", "quantile", "minmax+quantile"]
FORMS = [
    {"n_neighbors": 3}, {}, {"aggregation": "mean"}, {"graph": "radius", "radius": 1.5},
]  # fmt: skip


def table(n_rows, seed, sites="abcdefgh"):
    """Rows on a grid, which each site has elsewhere, and in other units."""
    rng = np.random.default_rng(seed)
    which = np.minimum(rng.geometric(0.3, n_rows) - 1, len(sites) - 1)
    return pd.DataFrame(
        {
            "x": rng.integers(0, 9, n_rows) * 0.5 * (1 + which) + which * 1000,
            "site": np.array(list(sites), object)[which],
            "y": rng.integers(0, 5, n_rows) * 0.25,
            "hour": rng.integers(0, 2, n_rows),
        }
    )


NOMINAL = table(150, 0)
NOMINAL.loc[[4, 77], "site"] = None
NEW = table(40, 1, "abcdefgz").set_index(np.arange(40) * 3)
NEW.iloc[5, 1], NEW.iloc[7, 0], NEW.iloc[9, 2] = None, np.nan, np.inf


def unfitted(own=OWN[0], calibration="loo", form=FORMS[0], by=("site",), **given):
    return LPE(
        by=list(by), own=own, calibration=calibration, alpha=0.12, random_state=0,
        **(form | given),
    )  # fmt: skip


def right(model, nominal=NOMINAL):
    names = ("by", "own", "alpha", "calibration", "scale", "metric", "metric_params",
             "n_neighbors", "radius", "graph", "aggregation", "random_state", "missing",
             "categorical", "calibration_size")  # fmt: skip
    given = model.get_params()
    given = {name: given[name] for name in names}
    return GroupOracle(nominal, **given)


def assert_right(model, expected, nominal=NOMINAL, new=NEW):
    np.testing.assert_array_equal(np.sort(model.calibration_), expected.calibration_)
    np.testing.assert_array_equal(model.statistic(new), expected.statistic(new))
    np.testing.assert_array_equal(model.score_samples(new), expected.score_samples(new))
    np.testing.assert_array_equal(model.p_values_, expected.p_values_)


@pytest.mark.parametrize(
    ("own", "calibration", "scale", "form", "algorithm"),
    mostly_dealt(OWN, CALIBRATIONS, SCALES, FORMS, ["brute", "pruned"]),
)
def test_lpe__measures_groups_as_defined(own, calibration, scale, form, algorithm):
    if own == ("scale",) and scale is None:
        with pytest.raises(ValueError, match="leaves groups nothing of their own"):
            unfitted(own, calibration, form).fit(NOMINAL)
        return
    model = unfitted(own, calibration, form, scale=scale, algorithm=algorithm)
    model.fit(NOMINAL)

    assert_right(model, right(model))


@pytest.mark.parametrize(("own", "calibration"), mostly_dealt(OWN, CALIBRATIONS))
def test_score_frame__gives_all_results_of_groups_at_once(own, calibration):
    model = unfitted(own, calibration, scale="standard").fit(NOMINAL)

    found = model.score_frame(NEW)

    expected = right(model)
    np.testing.assert_array_equal(found["p_value"], expected.score_samples(NEW))
    np.testing.assert_array_equal(found["statistic"], expected.statistic(NEW))
    statuses = np.array(expected.status(NEW), object)
    statuses[[7, 9]] = "missing value", "infinite value"
    assert found["p_value_status"].tolist() == statuses.tolist()
    assert model.status(NEW).tolist() == statuses.tolist()
    with pytest.warns(UserWarning, match="no p-value"):
        labels = model.predict(NEW)
    assert (labels == np.where(found["p_value"] <= 0.12, -1, 1)).all()


@pytest.mark.parametrize(("own", "calibration"), mostly_dealt(OWN, CALIBRATIONS))
@pytest.mark.parametrize("is_lazy", [False, True])
def test_small_and_unknown_groups__are_compared_with_all_rows(own, calibration, is_lazy):
    """As a model of all rows, without groups, compares them."""
    model = unfitted(own, calibration, scale="standard", small_groups="pool")
    pool = LPE(3, calibration=calibration, alpha=0.12, random_state=0, scale="standard")
    nominal, new = NOMINAL, NEW
    if is_lazy:
        nominal = dd.from_pandas(NOMINAL, npartitions=3)
        new = dd.from_pandas(NEW.sort_index(), npartitions=2)

    model.fit(nominal)
    pool.fit(NOMINAL[["x", "y", "hour"]])

    expected = right(model)
    is_pooled = np.isin(expected.status(NEW), ["small group", "unknown group"])
    assert is_pooled.sum() > 2
    rows = NEW[["x", "y", "hour"]]
    p_values = np.where(is_pooled, pool.score_samples(rows), expected.score_samples(NEW))
    statistic = np.where(is_pooled, pool.statistic(rows), expected.statistic(NEW))
    np.testing.assert_array_equal(computed(model.score_samples(new)), p_values)
    np.testing.assert_array_equal(computed(model.statistic(new)), statistic)
    (found,) = dask.compute(model.score_frame(new))
    np.testing.assert_array_equal(found["p_value"], p_values)
    np.testing.assert_array_equal(found["statistic"], statistic)
    is_small = np.array(expected.status(NOMINAL)) == "small group"
    own_values = np.where(is_small, pool.p_values_, expected.p_values_)
    np.testing.assert_array_equal(computed(model.p_values_), own_values)


def test_small_groups__may_be_an_error():
    model = unfitted(small_groups="error")
    with pytest.raises(ValueError, match=r"\d of \d groups are small \(too few calibr"):
        model.fit(NOMINAL)

    large = NOMINAL[NOMINAL["site"].isin(["a", "b"])]
    model.fit(large)
    with pytest.raises(
        ValueError, match=r"groups have no nominal row, of column .site., such as"
    ):
        model.score_samples(NEW)
    known = NEW[NEW["site"].isin(["a", "b"])]
    np.testing.assert_array_equal(
        model.score_samples(known), unfitted().fit(large).score_samples(known)
    )


#: Metrics, weights, categories and gaps of all rows together, or of groups.
OTHERS = {
    "seuclidean": {"metric": "seuclidean", "scale": "standard"},
    "variances": {
        "metric": "seuclidean", "metric_params": {"V": [2.0, 0.5, 1.0]}, "scale": "minmax"
    },
    "mahalanobis": {"metric": "mahalanobis", "scale": "standard"},
    "weights": {"metric_params": {"w": [1.0, 0.0, 3.0]}, "scale": "minmax+quantile"},
    "categories": {
        "categorical": ["hour"], "metric_params": {"w": [1.0, 2.0, 0.5]}, "scale": "minmax"
    },
    "gaps": {"missing": "measure", "scale": "standard"},
    "gaps alone": {
        "missing": "measure", "metric_params": {"w": [1, 2.0, 0], "w_missing": 0.5}
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("own", "calibration", "name"), mostly_dealt(OWN, CALIBRATIONS, OTHERS)
)
def test_lpe__measures_groups_by_any_metric(own, calibration, name):
    nominal, new = NOMINAL.copy(), NEW
    if "gaps" in name:
        nominal.loc[nominal.index % 5 == 0, "y"] = np.nan
    if name == "mahalanobis":  # of one site too few rows differ
        nominal["hour"] = np.random.default_rng(5).standard_normal(len(nominal))
        nominal = nominal[nominal["site"].isin(["a", "b", "c", None])]
        nominal = nominal.reset_index(drop=True)
    model = unfitted(own, calibration, {"n_neighbors": 3}, **OTHERS[name])

    model.fit(nominal)

    assert_right(model, right(model, nominal), nominal, new)


@pytest.mark.parametrize("alpha", [0.05, 0.29])
@pytest.mark.parametrize("calibration", CALIBRATIONS)
def test_groups__tell_what_is_promised(calibration, alpha):
    nominal = frame_of([5, 99, 198, 400])
    model = LPE(by=["site"], calibration=calibration, alpha=alpha, random_state=0)

    table = model.fit(nominal).groups_

    for _, group in table.iterrows():
        if group["why_small"]:
            assert pd.isna(group["largest_false_alarm_rate"])
            continue
        m, own = int(group["calibration_rows"]), 1 if calibration == "conformal" else 0
        flagged = sum(k / (m + own) <= alpha for k in range(1, m + own + 1)) + 1 - own
        assert group["largest_false_alarm_rate"] == flagged / (m + 1)
        assert group["offset"] == np.nextafter(alpha, 1)
    assert table["site"].tolist() == [0, 1, 2, 3]
    assert not hasattr(model, "offset_")
    assert not hasattr(model, "n_neighbors_")
    expected = model.score_samples(nominal) - np.nextafter(alpha, 1)
    np.testing.assert_array_equal(model.decision_function(nominal), expected)


def frame_of(sizes, seed=0):
    """Rows of groups of these sizes, in any order."""
    rng = np.random.default_rng(seed)
    sites = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    numbers = rng.integers(0, 9, (len(sites), 3)) * 0.25
    return pd.DataFrame(numbers, columns=["x", "y", "z"]).assign(site=sites)


SIZES = {
    "one, K, K + 1, 2 K": [1, 4, 5, 8, 40], "one group": [60], "all different": [1] * 30,
    "large and small": [70, 2, 2, 2, 30],
}  # fmt: skip


@pytest.mark.parametrize(
    ("sizes", "own", "calibration", "scale"),
    mostly_dealt(SIZES, OWN, CALIBRATIONS, [None, "standard", "quantile"]),
)
def test_groups__of_any_sizes(sizes, own, calibration, scale):
    if own == ("scale",) and scale is None:
        return  # an error
    nominal, new = frame_of(SIZES[sizes]), frame_of(SIZES[sizes], seed=1).head(20)
    model = unfitted(own, calibration, {"n_neighbors": 4}, scale=scale)
    expected = right(model, nominal)
    if expected.are_all_small:
        with pytest.raises(ValueError, match=r"all \d+ groups are small"):
            model.fit(nominal)
        return

    model.fit(nominal)

    assert_right(model, expected, nominal, new)
    is_small = model.groups_["why_small"] != ""
    assert {(site,) for site in model.groups_["site"][is_small]} == expected.small


def test_fit__says_that_calibration_size_is_too_large_for_groups():
    message = r"calibration_size=50 is too large for 3 of them: lower it, or give more rows"
    for calibration in CALIBRATIONS:
        with pytest.raises(ValueError, match=message):
            unfitted(calibration=calibration, calibration_size=50).fit(frame_of([30, 9, 1]))


KINDS = {
    "frame": lambda frame: frame,
    "objects": lambda frame: frame.astype(object),
    "array": lambda frame: frame.to_numpy(object),
    "dask frame": lambda frame: dd.from_pandas(frame, npartitions=3, sort=False),
    "dask array": lambda frame: da.from_array(frame.to_numpy(object), chunks=(40, 2)),
    "arrow": lambda frame: pa.table(frame.astype({"site": "str"})),
}


@pytest.mark.parametrize(
    ("fitted", "kind"),
    mostly_full(itertools.product(KINDS, KINDS), zip(KINDS, KINDS, strict=True)),
)
def test_groups__of_any_kind_of_input(fitted, kind):
    own, new = ("scale", "neighbors", "calibration"), NEW.fillna({"site": "zz"})
    model = unfitted(own, "conformal", scale="standard", by=["site", "hour"])
    expected = right(model)
    if "array" in fitted:
        model.set_params(by=[1, 3])

    model.fit(KINDS[fitted](NOMINAL))

    if "array" in kind and "array" not in fitted:  # without names: as the model has them
        rows = KINDS[kind](new[["x", "y", "site", "hour"]])
    else:
        rows = KINDS[kind](new)
    found = computed(model.score_samples(rows))
    np.testing.assert_array_equal(found, expected.score_samples(new))
    np.testing.assert_array_equal(computed(model.p_values_), expected.p_values_)
    statuses = np.array(expected.status(new), object)
    statuses[[7, 9]] = "missing value", "infinite value"
    assert computed(model.status(rows)).tolist() == statuses.tolist()


VALUES = {
    "text": ["1", "2", "03"],
    "numbers": [1, 2, 3],
    "large": [2**63, 2**70, -1],
    "flags": [True, False, True],
    "dates": list(pd.to_datetime(["2026-01-01", "2026-01-02", "1700-01-01"])),
    "zones": list(pd.to_datetime(["2026-01-01", "2026-01-02", "2026-03-01"], utc=True)),
    "days": [
        datetime.date(2026, 1, 1),
        datetime.date(2026, 1, 2),
        datetime.date(2025, 1, 1),
    ],
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("n_parts", [0, 1, 4])
def test_groups__by_values_of_any_type(name, n_parts):
    values = VALUES[name]
    which = np.arange(90) % 3
    rows = pd.DataFrame({"x": np.arange(90.0) ** 1.1, "site": [values[i] for i in which]})
    given = {"n_neighbors": 2, "calibration": "loo", "alpha": 0.1}

    with dask.config.set({"dataframe.convert-string": False}):  # objects stay what they are
        X = dd.from_pandas(rows, npartitions=n_parts) if n_parts else rows
        model = LPE(by=["site"], **given).fit(X)

    for value in values:
        own = rows[rows["site"] == value]
        expected = LPE(**given).fit(own[["x"]])
        np.testing.assert_array_equal(
            model.score_samples(own), expected.score_samples(own[["x"]])
        )
    assert model.groups_["nominal_rows"].sum() == 90


def test_groups__match_by_type():
    model = unfitted().fit(NOMINAL)

    with pytest.raises(TypeError, match="'site' has whole numbers"):
        model.score_samples(NEW.assign(site=1))
    with pytest.raises(TypeError, match="must be text, categories, booleans, whole numb"):
        LPE(by=["x"]).fit(NOMINAL)
    with pytest.raises(ValueError, match=r"names \['city'\], but the columns are"):
        LPE(by=["site", "city"]).fit(NOMINAL)
    with pytest.raises(ValueError, match="no row has a group"):
        LPE(by=["site"]).fit(NOMINAL.assign(site=None))


def test_density__in_groups_is_of_the_measured_columns():
    def log_density(rows):
        assert rows.shape[1] == 3
        return -np.abs(rows).sum(axis=1)

    given = {"n_neighbors": 3, "calibration": "loo", "alpha": 0.1}
    rows = NOMINAL[NOMINAL["site"].isin(["a", "b"])]
    model = LPE(by=["site"], anomaly_log_density=log_density, **given).fit(rows)

    for site in ("a", "b"):
        own = rows.loc[rows["site"] == site, ["x", "y", "hour"]]
        new = NEW[(NEW["site"] == site) & np.isfinite(NEW["x"])]
        plain = LPE(anomaly_log_density=log_density, **given).fit(own)
        expected = plain.score_samples(new[["x", "y", "hour"]])
        np.testing.assert_array_equal(model.score_samples(new), expected)
        np.testing.assert_array_equal(model.score_frame(new)["p_value"], expected)


def counting(sizes):
    def get(graph, keys, **given):
        sizes.append(len(dict(getattr(graph, "__dask_graph__", lambda: graph)())))
        return dask.get(graph, keys, **given)

    return get


@pytest.mark.parametrize("scale", [None, "standard"])
def test_tasks__are_as_many_however_many_groups_there_are(scale):
    numbers = []
    for n_groups in (2, 400):
        frame = frame_of([4000 // n_groups] * n_groups)
        sizes, rows = [], dd.from_pandas(frame, npartitions=4)
        with dask.config.set(scheduler=counting(sizes)):
            model = LPE(3, by=["site"], alpha=0.2, scale=scale, calibration="loo")
            model.fit(rows)
        sizes.append(len(dict(model.score_samples(rows).__dask_graph__())))
        numbers.append(sizes)

    assert numbers[0] == numbers[1]


def test_graphs__hold_nothing_of_a_million_groups():
    """What is known of each is on storage, or sent once."""
    model = LPE(3, by=["site"], alpha=0.2, scale="standard", calibration="loo")
    model.fit(frame_of([50] * 4))
    fitted, n_groups = fitted_of(model), 1_000_000
    rows = dd.from_pandas(frame_of([50] * 4), npartitions=4)
    plain = dict(model.score_frame(rows).__dask_graph__())

    def many(values):
        return np.resize(values, (n_groups, *np.shape(values)[1:]))

    space, known = fitted.reference.space, fitted.calibration.groups.value
    learned = space.preparation.groups
    learned = replace(
        learned, is_known=many(learned.is_known), weights=many(learned.weights),
        centers=many(learned.centers),
        vectors={name: many(of) for name, of in learned.vectors.items()},
    )  # fmt: skip
    levels = replace(
        fitted.categories.groups, values=pd.DataFrame({0: np.arange(n_groups)}),
        n_rows=np.full(n_groups, 50),
    )  # fmt: skip
    space = replace(
        space, preparation=replace(space.preparation, groups=learned),
        basis=replace(space.basis, groups=learned.points()),
        groups=SearchGroups(many(space.groups.n_neighbors)),
    )  # fmt: skip
    statistics = GroupStatistics(np.zeros(n_groups * 6), np.arange(n_groups + 1) * 6)
    calibration = Calibration.of_groups("knn", 0, None, statistics)
    reference = replace(fitted.reference, space=space)
    model._adopt(
        replace(
            fitted, reference=reference, calibration=calibration,
            categories=replace(fitted.categories, groups=levels),
        )
    )  # fmt: skip
    assert known.known.values.nbytes < 2**20 < statistics.values.nbytes

    graph = dict(model.score_frame(rows).__dask_graph__())

    assert len(graph) <= len(plain) + 2  # large values are tasks, not arguments of some
    assert max(sizeof(task) for task in graph.values()) < 2**20


@pytest.mark.parametrize("bucket_rows", [1, 20, 10**6])
@pytest.mark.parametrize("is_spooled", [False, True])
@pytest.mark.parametrize("name", ["standard", "quantile", "mahalanobis", "gaps"])
def test_groups__of_any_size_are_learned_alike(monkeypatch, bucket_rows, is_spooled, name):
    """A large group in parts of its own, and small ones together, in a spool or not."""
    nominal = NOMINAL[NOMINAL["site"].isin(["a", "b", "c"])].reset_index(drop=True)
    arguments = OTHERS.get(name, {"scale": name})
    if name == "gaps":
        nominal.loc[nominal.index % 5 == 0, "y"] = np.nan
    if name == "mahalanobis":
        nominal["hour"] = np.random.default_rng(5).standard_normal(len(nominal))
    model = unfitted(calibration="loo", **arguments)
    expected = model.fit(nominal).score_frame(NEW)
    monkeypatch.setattr(buckets, "BUCKET_ROWS", bucket_rows)
    if is_spooled:
        plan = buckets.plan_for_active_workers
        monkeypatch.setattr(
            buckets, "plan_for_active_workers",
            lambda *given, **how: replace(plan(*given, **how), is_spooled=True),
        )  # fmt: skip

    with dask.config.set(scheduler="sync"):
        model.fit(dd.from_pandas(nominal, npartitions=4))

    pd.testing.assert_frame_equal(model.score_frame(NEW), expected)


@pytest.mark.parametrize("own", OWN)
def test_groups__that_cannot_be_divided(own):
    """Their rows are in no part: neither measured, nor others among them."""
    model = unfitted(own, calibration_size=12, scale="standard").fit(NOMINAL)

    expected = right(model)
    assert 0 < len(expected.small) < len(expected.places)
    assert_right(model, expected)


def test_groups__have_the_radius_that_is_given():
    given = {"graph": "radius", "radius": 0.0, "calibration": "loo", "alpha": 0.1}
    rows = NOMINAL[NOMINAL["site"].isin(["a", "b"])]
    model = LPE(by=["site"], **given).fit(rows)

    plain = LPE(**given).fit(rows.loc[rows["site"] == "b", ["x", "y", "hour"]])

    own = rows[rows["site"] == "b"]
    np.testing.assert_array_equal(
        model.statistic(own), plain.statistic(own[["x", "y", "hour"]])
    )
    assert model.groups_["radius"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("is_lazy", [False, True])
def test_pool__of_an_array(is_lazy):
    """Whose columns are found by their positions."""
    given = {"calibration": "loo", "alpha": 0.12, "n_neighbors": 3}
    rows = np.column_stack([NOMINAL["x"], NOMINAL["hour"], NOMINAL["y"]]).astype(float)
    rows[:4, 1] = 7
    X = da.from_array(rows, chunks=(40, 3)) if is_lazy else rows

    model = LPE(by=[1], small_groups="pool", **given).fit(X)

    plain = LPE(**given).fit(rows[:, [0, 2]])
    new = np.array([[3.0, 7, 1], [5, 9, 2], [700, 9, 0]])
    expected = plain.score_samples(new[:, [0, 2]])
    np.testing.assert_array_equal(model.score_samples(new), expected)
    own = np.asarray(model.p_values_)[:4]
    np.testing.assert_array_equal(own, plain.p_values_[:4])


def test_by__as_text_names_a_whole_number():
    rows = pd.DataFrame({0: np.arange(60.0), 1: np.arange(60) % 2, 2: np.arange(60.0) ** 2})

    model = LPE(3, by=["1"], calibration="loo", alpha=0.1).fit(rows)

    expected = LPE(3, by=[1], calibration="loo", alpha=0.1).fit(rows)
    np.testing.assert_array_equal(model.score_samples(rows), expected.score_samples(rows))
    assert model.groups_.columns.tolist() == expected.groups_.columns.tolist()
