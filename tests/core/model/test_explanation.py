"""Reasons are right: shares by their formulas, typical ones, and what is usual."""

import re

import dask
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import definitions
from choosing import dealt, mostly_dealt, mostly_full, pairs
from compiling import WAYS, taking
from flows import CATEGORICAL, NAMES, table
from indexes import right_lists
from lpe_dask import LPE
from lpe_dask.kernels import nn_descent
from lpe_dask.model.certificate import Certificate
from oracle import Oracle
from problems import METRICS, SCALES, computed, cut, lattice, problems

pytestmark = pytest.mark.filterwarnings("ignore:.*, and no p-value:UserWarning")


def by_row(reasons, name, columns):
    """Values of all columns of each row, in the order of the columns."""
    numbers = reasons["column"].map({column: i for i, column in enumerate(columns)})
    values = reasons[name].to_numpy().reshape(-1, len(columns))
    places = numbers.to_numpy().reshape(-1, len(columns))
    ordered = np.empty_like(values)
    np.put_along_axis(ordered, places, values, axis=1)
    return ordered


def check_shares(reasons, oracle, rows, own=None, atol=1e-12):
    """They are right, add up to 1, and the largest comes first."""
    shown = shown_columns(oracle)
    places = [oracle.columns.index(column) for column in shown]
    shares = by_row(reasons, "share", shown).astype(float)
    error = atol + rounding(oracle, rows, own)
    right = oracle.shares(rows, own)[:, places]
    np.testing.assert_array_equal(np.isnan(shares), np.isnan(right))
    assert (np.abs(shares - right) <= error).all(where=~np.isnan(right))
    is_known = ~np.isnan(shares).any(axis=1)
    total, largest = shares.sum(axis=1), np.abs(shares).max(axis=1, initial=1)
    assert (np.abs(total - 1) <= 1e-12 * largest).all(where=is_known)
    searched = oracle.nominal.iloc[oracle.searched]
    of_nominal = rounding(oracle, searched, np.arange(len(searched))).max()
    np.testing.assert_allclose(
        by_row(reasons, "typical_share", shown).astype(float),
        [oracle.typical_shares[places]] * len(rows), rtol=0, atol=atol + of_nominal,
    )  # fmt: skip
    in_order = reasons["column"].to_numpy().reshape(-1, len(shown))
    for of_row, columns in zip(shares, in_order, strict=True):
        order = definitions.telling_order(np.nan_to_num(of_row))
        assert [shown[place] for place in order] == list(columns)


def shown_columns(oracle):
    """Those that have a weight."""
    w = oracle.params.get("w", [1.0] * len(oracle.columns))
    return [column for column, weight in zip(oracle.columns, w, strict=True) if weight > 0]


def rounding(oracle, rows, own=None):
    """By how much shares may be off: what a matrix mixes is rounded before R is."""
    error = np.zeros((len(rows), 1))
    if oracle.factor is None:
        return error
    is_known = oracle.is_known(rows)
    largest = np.abs([*oracle.prepared(rows[is_known]), *oracle.reference]).max()
    nearest = oracle.nearest(rows, oracle.arguments["n_neighbors"] or 20, own)
    for i, of_row in enumerate(nearest):
        total = sum(d for d, _ in of_row)
        error[i] = 1e-14 * largest * len(of_row) / total if total > 0 else 0.0
    return error


def check_nominal_values(reasons, oracle, rows):
    """They are those of the nearest nominal row, or what becomes the same."""
    shown, nominal = shown_columns(oracle), oracle.nominal.iloc[oracle.searched]
    values = by_row(reasons, "nominal_value", shown)
    for of_row, nearest in zip(values, oracle.nearest(rows, 1), strict=True):
        if not nearest:
            assert pd.isna(of_row).all()
            continue
        ((_, number),) = nearest
        found = nominal.iloc[[number]].astype(object)
        found.loc[:, shown] = of_row
        if oracle.factor is not None:
            largest = nominal.abs().max().max()
            if oracle.arguments["scale"] is not None:
                largest = max(1.0, largest)  # a constant column keeps its unit
            right, atol = nominal.iloc[number].to_numpy(), 1e-9 * largest
            np.testing.assert_allclose(of_row.astype(float), right, rtol=1e-9, atol=atol)
        else:
            assert oracle.prepared(found) == [oracle.reference[number]]


def check_nearest(nearest, oracle, rows, n, own=None):
    """Ranks, places in the input, and distances."""
    right = oracle.nearest(rows, n, own)
    right = [[*of_row, *[(np.nan, None)] * (n - len(of_row))] for of_row in right]
    pairs = [pair for of_row in right for pair in of_row]
    assert nearest["rank"].tolist() == list(range(1, n + 1)) * len(rows)
    np.testing.assert_array_equal(nearest["distance"], [d for d, _ in pairs])
    assert nearest["nominal_row"].fillna(-1).tolist() == [
        -1 if number is None else oracle.places[number] for _, number in pairs
    ]


@pytest.mark.parametrize(
    ("metric", "scale"), mostly_full(pairs(METRICS, SCALES), dealt(METRICS, SCALES))
)
@given(data=st.data())
def test_reasons__are_the_definition(metric, scale, data):
    """Of new rows and of those that were fitted, with compiled kernels and without."""
    nominal, new, arguments = data.draw(problems(metric, scale))
    oracle = Oracle(nominal, **arguments)
    n = data.draw(st.integers(1, len(oracle.searched)))

    with (
        dask.config.set({"scheduler": "sync", "lpe-dask.block-rows": 64}),
        taking(data.draw(st.sampled_from(sorted(WAYS)))),
    ):
        model = LPE(**arguments).fit(data.draw(cut(nominal)))
        rows = data.draw(cut(new))
        reasons, nearest = model.explain(rows, top=6), model.nearest_nominal(rows, n=n)
        reasons["column"] = named(reasons["column"], oracle)
        places = data.draw(st.lists(st.integers(0, len(nominal) - 1), min_size=1))
        own_reasons = model.explain(rows=places, top=6)
        own_reasons["column"] = named(own_reasons["column"], oracle)
        p_values = computed(model.p_values_)

    shown = shown_columns(oracle)
    for name, right in (("p_value", "score_samples"), ("statistic", "statistic")):
        found = reasons[name][:: len(shown)]
        np.testing.assert_array_equal(found, getattr(oracle, right)(new))
    values = pd.DataFrame(by_row(reasons, "value", shown), columns=shown)
    for column in shown:
        np.testing.assert_array_equal(values[column].tolist(), new[column].tolist())
    check_shares(reasons, oracle, new)
    check_nominal_values(reasons, oracle, new)
    check_nearest(nearest, oracle, new, n)
    np.testing.assert_array_equal(own_reasons["p_value"][:: len(shown)], p_values[places])
    own = [oracle.places.tolist().index(i) if i in oracle.places else -1 for i in places]
    check_shares(own_reasons, oracle, nominal.iloc[places], own)


def named(columns, oracle):
    """The names of columns: a model of an array has numbers."""
    numbers = dict(enumerate(oracle.columns))
    return columns.map(lambda column: numbers.get(column, column))


@pytest.mark.parametrize(
    ("scale", "aggregation"),
    mostly_dealt([None, "standard", "minmax+quantile"], ["kth", "mean"]),
)
def test_explain__shares_of_a_learned_covariance(scale, aggregation):
    """They are those of both forms together, and negative where columns make up."""
    rng = np.random.default_rng(0)
    nominal = rng.standard_normal((30, 3)) @ [[1, 0.8, 0], [0, 0.6, 0], [0, 0.5, 1]]
    rows = np.concatenate([nominal[:5] + np.array([0, 3, 0]), 4 * nominal[5:15]])
    arguments = {
        "n_neighbors": 4, "scale": scale, "metric": "mahalanobis",
        "aggregation": aggregation, "calibration": "loo",
    }  # fmt: skip

    model, oracle = LPE(**arguments).fit(nominal), Oracle(nominal, **arguments)
    reasons = model.explain(rows)

    np.testing.assert_array_equal(model.calibration_, oracle.calibration_)
    check_shares(reasons, oracle, pd.DataFrame(rows), atol=1e-11)
    assert (reasons["share"] < -0.01).any()


def test_typical_share__is_the_mean_of_256_rows():
    nominal = pd.DataFrame(lattice(512, 0, n_features=2) * [1.0, 100.0])
    arguments = {"n_neighbors": 3, "aggregation": "mean", "calibration": "loo"}

    reasons = LPE(**arguments).fit(nominal).explain(nominal.iloc[:1])

    check_shares(reasons, Oracle(nominal, **arguments), nominal.iloc[:1])
    assert len(definitions.typical_rows(512)) == 256


# Where nothing has a share


@pytest.mark.parametrize("aggregation", ["kth", "mean"])
def test_explain__of_0_and_inf_has_no_shares(aggregation):
    """Of a row of which some neighbors are too far, it has those of the others."""
    nominal = np.array([[1.0, 2.0]] * 5 + [[4.0, 6.0]] * 3)
    rows = np.array([[1.0, 2.0], [1e300, 0], [4, 7], [1, 3]])
    model = LPE(3, aggregation=aggregation, alpha=0.2).fit(nominal)
    far = np.array([[1.3e154, 0.0], [1.31e154, 0], [-1.3e154, 0], [-1.31e154, 0]])

    reasons = model.explain(rows)
    of_far = LPE(3, aggregation=aggregation).fit(far).explain(np.array([[1.3e154, 2e153]]))

    np.testing.assert_array_equal(reasons["statistic"][::2], [0, np.inf, 1, 1])
    shares = by_row(reasons, "share", [0, 1])
    np.testing.assert_array_equal(shares, [[np.nan] * 2] * 2 + [[0, 1]] * 2)
    nominal_values = by_row(reasons, "nominal_value", [0, 1])
    np.testing.assert_array_equal(nominal_values, [[1, 2], [np.nan] * 2, [4, 6], [1, 2]])
    assert np.isinf(of_far["statistic"]).all()
    parts, distances = [[0, 4e306], [1e304, 4e306]], np.hypot([0, 1e152], 2e153)
    right = definitions.shares([*distances, np.inf], [*parts, [np.inf, 0]])
    np.testing.assert_allclose(by_row(of_far, "share", [0, 1]), [right], rtol=1e-9)
    assert by_row(of_far, "nominal_value", [0, 1]).tolist() == [[1.3e154, 0]]


@pytest.mark.parametrize("names", [NAMES, CATEGORICAL])
def test_explain__of_missing_and_unknown_categories(names):
    nominal, rows = table(60, 0)[names], table(4, 1)[names].astype(object)
    rows.loc[0, "protocol"], rows.loc[1, "port"], rows.loc[2, "flag"] = None, 22, np.nan
    model = LPE(3, categorical=CATEGORICAL, calibration="loo").fit(nominal)

    reasons = model.explain(rows, top=6)

    oracle = Oracle(nominal, **model.get_params())
    check_shares(reasons, oracle, rows)
    check_nominal_values(reasons, oracle, rows)
    is_missing = np.repeat([True, False, True, False], len(names))
    for name in ("p_value", "share", "nominal_value"):
        np.testing.assert_array_equal(reasons[name].isna(), is_missing)
    values = pd.DataFrame(by_row(reasons, "value", names), columns=names)
    assert values.isna().sum().sum() == 2
    assert values.loc[1, "port"] == 22


@pytest.mark.parametrize("scale", [None, "standard", "minmax+quantile"])
def test_usual__is_said_as_users_write_it(scale):
    rng = np.random.default_rng(2)
    nominal = pd.DataFrame(
        {
            "amount": np.arange(1000) * 10.0,
            "items": rng.permutation(np.arange(1000) % 50),
            "is_gift": np.arange(1000) % 4 == 0,
            "errors": (np.arange(1000) == 500) * 2,
            "plan": pd.Series(["a", "b"] * 500).where(np.arange(1000) > 2, "rare"),
            "constant": 7,
            "tries": np.arange(1000) % 3,
            "floor": np.arange(1000) % 4,
        }
    )
    model = LPE(5, scale=scale, categorical=["plan"], calibration="loo").fit(nominal)

    found = model.explain(nominal.iloc[:1], top=8).set_index("column")["usual"]

    assert found.to_dict() == {
        "amount": "90 to 9890, median 4990",
        "items": "0 to 49, median 24",
        "is_gift": "False 75%, True 25%",
        "errors": "0 >99%, 2 <1%",
        "plan": "b 50%, a 50%, rare <1%",
        "constant": "7 100%",
        "tries": "0 33%, 1 33%, 2 33%",
        "floor": "0 to 3, median 1",
    }


NARROW = {
    (1013.25, 0.05): r"1013\.1\d* to 1013\.[34]\d*, median 1013\.2[45]\d*",
    (0.0, 1.0): r"-2\.\d{1,3} to 2\.\d{1,3}, median -?0\.0\d+",
    (1e6, 3e4): r"9\d{5}(\.\d)? to 10\d{5}, median (9|10)\d{5}(\.\d)?",
    (1767226814.0, 1e5): r"17\d{8} to 17\d{8}, median 17\d{8}",
    (1e-7, 1e-9): r"9\.\d+e-08 to 1\.0\d+e-07, median (9\.\d+e-08|1(\.0\d+)?e-07)",
}


@pytest.mark.parametrize(("law", "text"), NARROW.items())
def test_usual__has_as_many_digits_as_differ(law, text):
    nominal = np.random.default_rng(3).normal(*law, (2000, 1))

    usual = LPE(5).fit(nominal).explain(nominal[:1] + law[1])["usual"].item()

    assert re.fullmatch(text, usual), usual
    low, high = (float(part) for part in usual.split(",")[0].split(" to "))
    assert low < high


def test_usual__of_long_categories_is_shortened():
    kinds = pd.Series(["a" * 500, "b" * 500] * 20)

    frame = pd.DataFrame({"kind": kinds, "x": 1.0})
    found = LPE(5, categorical=["kind"]).fit(frame).explain(frame.iloc[:1])

    usual = found.set_index("column")["usual"]["kind"]
    assert usual == f"{'a' * 39}… 50%, {'b' * 39}… 50%"


def test_explain__says_whether_a_row_is_spread_over_many_columns():
    rng = np.random.default_rng(8)
    nominal, new = rng.normal(size=(500, 100)), np.full((2, 100), 3.0)
    new[1, 3] = 1000.0

    found = LPE(5).fit(nominal).explain(new, top=2)

    assert found["is_spread"].tolist() == [True, True, False, False]


@pytest.fixture
def lists(monkeypatch):
    """Lists of near rows that lead nowhere: an approximate search misses most."""

    def first_rows(points, seed):
        return np.minimum(right_lists(points), 40)

    monkeypatch.setattr(nn_descent, "neighbor_lists", first_rows)
    monkeypatch.setattr(Certificate, "check", lambda certificate: None)


def test_reasons__of_an_approximate_model_are_exact(lists):
    rng = np.random.default_rng(0)
    nominal = rng.standard_normal((3500, 6))
    rows = np.concatenate([rng.standard_normal((30, 6)), rng.standard_normal((30, 6)) * 2])
    arguments = {"n_neighbors": 5, "calibration_size": 300, "random_state": 0, "alpha": 0.1}
    with dask.config.set({"scheduler": "sync"}):
        model, exact = (
            LPE(algorithm=algorithm, **arguments).fit(nominal)
            for algorithm in ("nn_descent", "brute")
        )

        found, right = (
            (some.explain(rows, top=3), some.nearest_nominal(rows))
            for some in (model, exact)
        )

    assert model.algorithm_ == "nn_descent"
    np.testing.assert_array_equal(found[0]["p_value"][::3], exact.score_samples(rows))
    for frame, expected in zip(found, right, strict=True):
        pd.testing.assert_frame_equal(frame, expected, check_exact=True)
