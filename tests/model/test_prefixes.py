"""How many columns are enough: the shortest prefix, found by trying them all."""

import itertools
from unittest import mock

import dask
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choosing import dealt, mostly_slow
from flows import table
from lpe_dask import LPE
from lpe_dask.model import prefixes
from lpe_dask.model.detector import fitted_of
from lpe_dask.model.explanation import explain_rows
from lpe_dask.model.fitted import Fitted
from lpe_dask.model.numbering import reference_numbers
from strategies import point_sets

#: FIRST_TRIED and TRIED_NUMBERS: as they are, and so that each try is of few columns.
TRIES = {
    "at once": (4, 2**21),
    "one by one": (1, 1),
    "growing": (1, 60),
    "in pairs": (2, 40),
}


def trying(name):
    first, numbers = TRIES[name]
    return mock.patch.multiple(prefixes, FIRST_TRIED=first, TRIED_NUMBERS=numbers)


def enough_by_trying(model, rows):
    """The definition: copy columns one after another, and score each row that results."""
    columns = list(rows.columns)
    reasons = model.explain(rows, top=len(columns))
    tried = rows.loc[rows.index.repeat(len(columns))].reset_index(drop=True)
    for line, (column, value) in enumerate(
        zip(reasons["column"], reasons["nominal_value"], strict=True)
    ):
        if not pd.isna(value):  # a column without weight is not known
            last = (line // len(columns) + 1) * len(columns)
            tried.loc[line : last - 1, column] = value
    p_values = model.score_samples(tried).to_numpy().reshape(len(rows), -1)
    found = []
    for p_value, of_row in zip(model.score_samples(rows), p_values, strict=True):
        if np.isnan(p_value) or of_row[-1] <= model.alpha:
            found.append(0 if p_value > model.alpha else None)
        else:
            enough = np.flatnonzero(of_row > model.alpha)
            found.append(0 if p_value > model.alpha else int(enough[0]) + 1)
    return reasons["enough"][:: len(columns)].tolist(), found


def assert_enough(model, rows):
    """Return how many columns are enough, having tried them."""
    actual, found = enough_by_trying(model, rows)
    actual = [None if pd.isna(n) else n for n in actual]
    assert actual == found
    return found


def framed(points):
    return pd.DataFrame(points, columns=[f"c{i}" for i in range(points.shape[1])])


def log_slope(rows):
    return rows[:, 0] - rows[:, 1]


VI = np.array([[2.0, 0.3, 0.0], [0.3, 1.0, -0.2], [0.0, -0.2, 0.7]])
BOUNDED = {
    "kth": {},
    "mean": {"aggregation": "mean"},
    "pruned": {"algorithm": "pruned"},
    "minmax": {"scale": "minmax"},
    "standard": {"scale": "standard", "aggregation": "mean"},
    "quantile": {"scale": "quantile"},
    "both forms": {"scale": "minmax+quantile", "metric_params": {"w": [1, 0.3, 2]}},
    "weights": {"metric_params": {"w": [1.0, 0.0, 4.0]}},
    "seuclidean": {"metric": "seuclidean"},
    "mahalanobis": {"metric": "mahalanobis", "metric_params": {"VI": VI}},
}
UNBOUNDED = {
    "radius": {"graph": "radius", "radius": 1.0, "n_neighbors": None},
    "geodesic": {"metric": "geodesic", "metric_params": {"n_neighbors": 2}},
    "walked means": {
        "metric": "geodesic", "metric_params": {"n_neighbors": 2}, "aggregation": "mean"
    },
    "density": {"anomaly_log_density": log_slope},
}  # fmt: skip
MODELS = BOUNDED | UNBOUNDED
CASES = [(name, tries) for name in MODELS for tries in TRIES]
ALWAYS = [
    ("kth", "one by one"), ("mean", "growing"), ("weights", "in pairs"),
    ("both forms", "growing"), ("radius", "at once"), ("geodesic", "one by one"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _quickly():
    with dask.config.set(scheduler="sync"):
        yield


@pytest.mark.parametrize(("name", "tries"), mostly_slow(CASES, ALWAYS))
@given(data=st.data())
def test_enough__is_the_shortest_prefix_that_makes_a_row_nominal(name, tries, data):
    """On a grid, where many distances are equal to the bound."""
    nominal = data.draw(point_sets(min_rows=5, n_features=3))
    rows = data.draw(point_sets(n_features=3))
    if "metric_params" in MODELS[name] and "VI" in MODELS[name]["metric_params"]:
        nominal, rows = nominal - nominal[0], rows - nominal[0]
    arguments = {"n_neighbors": data.draw(st.integers(1, 3)), "calibration": "loo"}
    alpha = data.draw(st.sampled_from([0.1, 1 / 3, 0.5, 0.7]))

    with trying(tries):
        model = LPE(**arguments | MODELS[name], alpha=alpha).fit(framed(nominal))
        assert_enough(model, framed(rows))


def many_columns(n_features, seed, n_rows=200):
    """Nominal rows and some that are far out in a few columns."""
    rng = np.random.default_rng(seed)
    nominal, rows = rng.integers(0, 10, (2, n_rows, n_features)) * 0.1
    n_shifted = rng.integers(0, n_features + 1, (40, 1))
    is_shifted = rng.permuted(np.arange(n_features) < n_shifted, axis=1)
    rows = rows[:40] + is_shifted * rng.choice([0.5, 1.0, 3.0], (40, n_features))
    return framed(nominal), framed(rows)


HIDDEN = {"none": [], "some": [1, 4, 5], "all": [*range(12)]}


MOST = [0, 1, 3, 8, 9, 11, 12, 30, None]
MOST_CASES = list(itertools.product(HIDDEN, MOST, TRIES))
MOST_ALWAYS = dealt(HIDDEN, MOST, TRIES)


@pytest.mark.parametrize(("hidden", "most", "tries"), mostly_slow(MOST_CASES, MOST_ALWAYS))
def test_enough__of_so_many_columns_that_are_not_hidden(hidden, most, tries):
    """All are copied to see whether any are enough, but no prefix has a hidden one."""
    nominal, rows = many_columns(12, 3)
    model = LPE(5, alpha=0.2).fit(nominal)
    is_hidden = np.isin(np.arange(12), HIDDEN[hidden])
    whole = explain_rows(fitted_of(model), rows, is_hidden=is_hidden)

    with trying(tries):
        found = explain_rows(fitted_of(model), rows, is_hidden=is_hidden, most_copied=most)

    n_shown = 12 - len(HIDDEN[hidden])
    assert set(found.order[:, :n_shown].ravel()).isdisjoint(HIDDEN[hidden])
    np.testing.assert_array_equal(found.order, whole.order)
    right = prefixes_by_trying(model, rows, found)
    last = n_shown if most is None else min(most, n_shown)
    is_left_out = (right > last) | ((right > 0) & (last == 0))
    np.testing.assert_array_equal(found.enough, np.where(is_left_out, -1, right))
    assert len(np.unique(right)) > 4


def prefixes_by_trying(model, rows, found):
    """How many columns are enough in the order that was found, of all there are."""
    n_rows, n_features = rows.shape
    tried = np.repeat(rows.to_numpy(float)[:, None, :], n_features, axis=1)
    for i, order in enumerate(found.order):
        for place, column in enumerate(order):
            tried[i, place:, column] = found.nominal_values.iloc[i, column]
    p_values = model.score_samples(framed(tried.reshape(-1, n_features))).to_numpy()
    is_enough = p_values.reshape(n_rows, n_features) > model.alpha
    right = np.where(is_enough[:, -1], is_enough.argmax(axis=1) + 1, -1)
    return np.where(found.p_values > model.alpha, 0, right)


@pytest.mark.parametrize("calibration", ["split", "conformal"])
@pytest.mark.parametrize("aggregation", ["kth", "mean"])
def test_enough__of_other_calibrations(calibration, aggregation):
    nominal, rows = many_columns(8, 1)
    model = LPE(
        4, calibration=calibration, aggregation=aggregation, alpha=0.15, random_state=0,
        scale="standard", calibration_size=60,
    ).fit(nominal)  # fmt: skip

    found = assert_enough(model, rows)

    assert len(set(found)) > 4


@pytest.mark.parametrize("aggregation", ["kth", "mean"])
@pytest.mark.parametrize("tries", ["at once", "one by one"])
def test_enough__of_categories(aggregation, tries):
    nominal, rows = (
        rows.drop(columns="level")
        for rows in (table(120, 0), table(40, 1, ("tcp", "icmp"), (80, 22)))
    )
    rows = rows.astype({"protocol": object})
    rows.iloc[3, 0] = None
    rows.loc[5:12, "x"] += 3
    model = LPE(
        4, categorical=["protocol", "flag", "port"], aggregation=aggregation, alpha=0.1,
        metric_params={"w": [1.0, 2.0, 0.0, 1.0, 0.5]},
    ).fit(nominal)  # fmt: skip

    with trying(tries):
        found = assert_enough(model, rows)

    assert found[3] is None
    assert len(set(found)) > 3


# What it means


def test_enough__is_0_for_rows_that_are_not_flagged_and_missing_for_rows_with_nan():
    model = LPE(1, alpha=0.25).fit(np.arange(20.0)[:, None])

    reasons = model.explain(np.array([[3.5], [np.nan], [40.0], [np.inf]]))

    assert reasons["enough"].dtype == pd.Int64Dtype()
    assert reasons["enough"].fillna(-1).tolist() == [0, -1, 1, -1]
    assert (reasons["p_value"] <= 0.25).tolist() == [False, False, True, False]


def test_enough__is_missing_where_not_all_columns_are():
    """The nearest nominal row is an anomaly itself: its second neighbor is far."""
    nominal = np.array([[0.0, 0.0]] * 30 + [[50.0, 50.0]])
    model = LPE(2, alpha=0.05).fit(nominal)

    reasons = model.explain(np.array([[51.0, 52.0], [0.0, 1.0]]), top=2)

    assert (reasons["p_value"] <= 0.05).all()
    assert reasons["enough"].fillna(-1).tolist() == [-1, -1, 1, 1]
    assert reasons["nominal_value"].tolist() == [50, 50, 0, 0]


def test_enough__needs_a_p_value_above_alpha():
    """With p = alpha a row is flagged."""
    nominal = np.array([[0.0, 0], [1, 0], [3, 0], [6, 0]])
    rows = np.array([[0.0, 2.5]])  # nearest: the first, at 2.5; copied, R is 0 or 2.5

    of_half = LPE(1, alpha=0.5).fit(nominal).explain(rows, top=2)
    of_less = LPE(1, alpha=0.49).fit(nominal).explain(rows, top=2)

    assert of_half["p_value"].tolist() == of_less["p_value"].tolist() == [0.25, 0.25]
    assert of_half["enough"].tolist() == of_less["enough"].tolist() == [1, 1]
    assert of_half["column"].tolist() == [1, 0]
    tie = LPE(1, alpha=0.5).fit(np.array([[0.0, 0], [1, 0], [4, 0], [8, 0]]))
    assert tie.score_samples(np.array([[4.0, 3.0]])).tolist() == [0.5]
    assert tie.explain(np.array([[4.0, 3.0]]), top=1)["enough"].tolist() == [1]


# The bounds that spare scores


def scored_rows(model, rows):
    """How many rows are scored to explain some."""
    scored, exactly = [], Fitted.exactly

    def counted(fitted, some, numbers=None):
        scored.append(len(some))
        return exactly(fitted, some, numbers)

    with mock.patch.object(Fitted, "exactly", counted):
        found = model.explain(rows, top=1)["enough"]
    return sum(scored), found


@pytest.mark.parametrize("aggregation", ["kth", "mean"])
def test_prefixes__that_cannot_be_enough_are_not_scored(aggregation):
    nominal, rows = many_columns(30, 0)
    rows.iloc[:, :20] += 2.0
    model = LPE(5, alpha=0.1, aggregation=aggregation).fit(nominal)

    n_scored, found = scored_rows(model, rows)

    calibration = type(fitted_of(model).calibration)
    with mock.patch.object(calibration, "nominal_bound", return_value=None):
        n_all, right = scored_rows(model, rows)
    pd.testing.assert_series_equal(found, right)
    assert (found > 8).sum() > 10
    assert 40 < n_scored < 0.75 * n_all


def test_prefixes__of_neighbors_that_are_too_far_are_scored():
    """A distance that overflows says nothing about how far the row is."""
    rng = np.random.default_rng(0)
    nominal = np.concatenate([np.zeros((3, 3)), rng.random((200, 3))]) * 1e153
    rows = np.c_[1.3e154 + 1e152 * np.arange(20), np.full((20, 2), 0.5e153)]
    model = LPE(40, alpha=0.1).fit(framed(nominal))

    found = assert_enough(model, framed(rows))

    statistic = model.statistic(framed(rows)).to_numpy()
    assert np.isinf(statistic).any()
    assert next(n for n, r in zip(found, statistic, strict=True) if np.isinf(r)) == 1


@pytest.mark.parametrize("step", [3e-162, 2e-160, 1e-155])
def test_prefixes__of_distances_that_underflow_are_scored(step):
    rng = np.random.default_rng(0)
    nominal = rng.integers(0, 4, (60, 4)) * step
    rows = rng.integers(0, 9, (60, 4)) * step
    model = LPE(3, alpha=0.3).fit(framed(nominal))

    found = assert_enough(model, framed(rows))

    assert len(set(found)) > 1


def test_prefixes__of_nearly_dependent_columns_are_scored():
    """What columns add to a distance is then far more than it, and cancels out."""
    rng = np.random.default_rng(0)
    inverse = np.linalg.inv([[1, 1 - 1e-12, 0], [1 - 1e-12, 1, 0], [0, 0, 1]])
    inverse = (inverse + inverse.T) / 2
    normal = rng.standard_normal((200, 3))
    nominal = np.c_[normal[:, 0], normal[:, 0] + 1e-6 * normal[:, 1], normal[:, 2]]
    rows = nominal[:60] + rng.integers(-3, 4, (60, 3)) * [1.0, 0, 1] * 0.7
    rows[:, 1] = rows[:, 0] + 1e-6 * rng.standard_normal(60)
    model = LPE(4, metric="mahalanobis", metric_params={"VI": inverse}, alpha=0.2).fit(
        framed(nominal)
    )

    found = assert_enough(model, framed(rows))

    assert len(set(found)) > 2


# Nominal rows themselves

OWN = {
    "kth": {"n_neighbors": 1},
    "mean": {"n_neighbors": 4, "aggregation": "mean"},
    "radius": {"graph": "radius", "radius": 0.6},
    "weights": {"n_neighbors": 3, "metric_params": {"w": [1.0, 2.0, 0.0, 1.0, 0.5]}},
}


OWN_CASES = [(name, kind) for name in OWN for kind in (False, True)]
OWN_ALWAYS = [("kth", False), ("radius", False), ("mean", True), ("weights", True)]


@pytest.mark.parametrize(("name", "is_of_categories"), mostly_slow(OWN_CASES, OWN_ALWAYS))
def test_enough__of_nominal_rows_leaves_them_out(name, is_of_categories):
    """Each is tried among all others: a copy has itself, as it was, as a near neighbor."""
    nominal, _ = many_columns(5, 4, n_rows=80)
    arguments = dict(OWN[name])
    if is_of_categories:
        nominal = table(80, 0).drop(columns="level")
        arguments["categorical"] = ["protocol", "flag", "port"]
    model = LPE(**arguments, alpha=0.3).fit(nominal)
    numbers = np.concatenate([np.flatnonzero(model.p_values_ <= 0.3)[:6], [3, 79]])

    found = explain_rows(fitted_of(model), nominal.iloc[numbers], numbers=numbers)

    np.testing.assert_array_equal(found.p_values, model.p_values_.iloc[numbers])
    for place, number in enumerate(numbers):
        others = LPE(**arguments).fit(nominal.drop(index=number))
        tried, p_values = nominal.iloc[[number]].astype(object), []
        for column in found.order[place]:
            value = found.nominal_values.iloc[place, column]
            if not pd.isna(value):
                tried.iloc[0, column] = value
            statistic = others.statistic(tried.astype(nominal.dtypes)).to_numpy()
            p_values.append(fitted_of(model).calibration.p_values(statistic)[0])
        right = int(np.argmax(np.array(p_values) > 0.3)) + 1 if p_values[-1] > 0.3 else -1
        assert found.enough[place] == (0 if found.p_values[place] > 0.3 else right)
    assert len(set(found.enough)) > 1


def test_enough__of_nominal_rows_of_a_split_model_is_that_of_new_rows_where_they_are():
    """Half of them were measured among their half, which bounds nothing in the other."""
    rng = np.random.default_rng(5)
    nominal, _ = many_columns(5, 5, n_rows=120)
    model = LPE(1, calibration="split", random_state=0, alpha=0.1).fit(nominal)
    fitted = fitted_of(model)
    numbers = reference_numbers(fitted, np.arange(120))
    other = np.flatnonzero(numbers < 0)[rng.permutation(60)[:10]]
    # As if they had been far from all of their own half.
    known = np.zeros(10), np.full(10, 40.6)

    found = explain_rows(fitted, nominal.iloc[other], known, np.full(10, -1))

    new = explain_rows(fitted, nominal.iloc[other], (known[0], np.full(10, np.inf)))
    np.testing.assert_array_equal(found.enough, new.enough)
    np.testing.assert_array_equal(found.shares, new.shares)
    assert (found.enough > 0).sum() > 5


def test_enough__of_nominal_rows_along_a_graph_is_that_of_new_rows():
    nominal, _ = many_columns(5, 4, n_rows=80)
    model = LPE(4, metric="geodesic", metric_params={"n_neighbors": 2}, alpha=0.3)
    model.fit(nominal)
    numbers = np.arange(0, 80, 3)
    rows = nominal.iloc[numbers]

    found = explain_rows(fitted_of(model), rows, numbers=numbers)

    np.testing.assert_array_equal(found.p_values, model.p_values_.iloc[numbers])
    flagged = np.flatnonzero(found.p_values <= 0.3)
    assert (np.delete(found.enough, flagged) == 0).all()
    for place in flagged:
        tried, p_values = rows.iloc[[place]].copy(), []
        for column in found.order[place]:
            tried.iloc[0, column] = found.nominal_values.iloc[place, column]
            p_values.append(model.score_samples(tried).iloc[0])
        right = int(np.argmax(np.array(p_values) > 0.3)) + 1 if p_values[-1] > 0.3 else -1
        assert found.enough[place] == right
    assert len(set(found.enough)) > 2
