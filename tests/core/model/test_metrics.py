"""Metrics and scales: what is learned, what is refused, and units of any size."""

from fractions import Fraction

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import definitions
from choosing import mostly_dealt
from lpe_dask import LPE
from lpe_dask.model.learning.column_facts import AskedFacts, read_facts
from lpe_dask.model.learning.metrics import learned_mahalanobis_matrix, mahalanobis_matrix
from lpe_dask.model.learning.scaling import (
    as_factors,
    learn_scaling,
    learned_weights,
)
from lpe_dask.search.preparation import Preparation, Scaling
from problems import SCALES, VI
from strategies import point_sets, row_chunks


@pytest.mark.parametrize(
    ("metric", "params", "message"),
    [
        (
            "euclidean",
            {"V": [1, 1]},
            r"has \['V'\], but metric='euclidean' takes 'w' and 'w_m",
        ),
        ("mahalanobis", {"VI": np.eye(2), "w": [1, 1]}, r"has \['w'\]"),
        ("euclidean", {"w": [1, 1, 1]}, r"shape \(3,\), but the rows have 2 columns"),
        ("euclidean", {"w": [1, -1]}, "must not be negative; the smallest is -1"),
        ("euclidean", {"w": [1, np.nan]}, "NaN or inf"),
        ("seuclidean", {"V": [1, 0]}, "must be positive; the smallest is 0"),
        ("mahalanobis", {"VI": [1, 1]}, r"give an array of shape \(2, 2\)"),
        ("mahalanobis", {"VI": [[1, 2], [0, 1]]}, "must be symmetric"),
        ("mahalanobis", {"VI": [[1, 2], [2, 1]]}, "positive definite; its smallest.* -1"),
        ("euclidean", {"w": np.ma.array([1.0, 2.0], mask=[False, True])}, "holds NaN"),
        *(
            ("euclidean", {"w": w}, r"\['w'\] must be an array of numbers.*[^.]\.$")
            for w in ("ab", [1, [2]], {"x": 1})
        ),
    ],
)
def test_metric_params__are_checked(metric, params, message):
    with pytest.raises(ValueError, match=message):
        LPE(2, metric=metric, metric_params=params).fit(np.eye(5)[:, :2])


@pytest.mark.parametrize(
    ("extra", "named"),
    [
        (lambda x: np.full(len(x), 0.1), "same is constant"),
        (lambda x: x[:, 0] * 3 - x[:, 1], "is determined by the other columns"),
        (lambda x: x[:, 0] + 1e-9 * x[:, 1] ** 2, "is determined by the other columns"),
    ],
)
def test_mahalanobis__names_columns_that_make_the_covariance_singular(extra, named):
    import pandas as pd

    rows = np.random.default_rng(0).standard_normal((50, 2))
    frame = pd.DataFrame(rows, columns=["a", "b"]).assign(same=extra(rows))

    with pytest.raises(ValueError, match=named) as caught:
        LPE(2, metric="mahalanobis").fit(frame)

    assert "--columns" in str(caught.value)


def test_learned_mahalanobis_matrix__of_units_far_apart():
    """What is singular does not depend on the units of the columns."""
    units = np.array([1e-9, 1.0, 1e12])
    covariance = np.cov((np.random.default_rng(0).standard_normal((50, 3)) * units).T)

    root = learned_mahalanobis_matrix(covariance, np.zeros(3, bool), list("abc"))

    inverse = (root @ root.T) * np.outer(units, units)
    np.testing.assert_allclose(
        inverse @ (covariance / np.outer(units, units)), np.eye(3), atol=1e-12
    )
    np.testing.assert_array_equal(root, np.tril(root))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_preparation__keeps_what_is_not_finite_in_its_row(value):
    preparation = Preparation(Scaling(np.zeros(3), np.ones(3)), mahalanobis_matrix(VI))
    rows = np.array([[1.0, 2.0, 3.0], [value, 2.0, 3.0], [1e308, -1e308, 1e308]])

    prepared = preparation.apply(rows)

    assert np.isfinite(prepared).all(axis=1).tolist() == [True, False, True]
    np.testing.assert_array_equal(prepared[:1], preparation.apply(rows[:1]))


UNITS = [1e-300, 1e-170, 1e-160, 1e-154, 1e154, 1e160, 1e300]


@pytest.mark.parametrize(
    ("unit", "n_scaled"),
    mostly_dealt(UNITS, [1, 2]),
)
def test_mahalanobis__refuses_units_that_float64_cannot_invert(unit, n_scaled):
    """And takes them by what the message says."""
    plain = np.random.default_rng(0).standard_normal((400, 2))
    rows = plain.copy()
    rows[:, :n_scaled] *= unit

    with pytest.raises(ValueError, match=r"variance of column 0.*multiply.*'minmax'"):
        LPE(3, metric="mahalanobis").fit(rows)

    expected = LPE(3, metric="mahalanobis").fit(plain)
    rows[:, :n_scaled] *= 1 / unit
    multiplied = LPE(3, metric="mahalanobis").fit(rows)
    np.testing.assert_allclose(multiplied.calibration_, expected.calibration_, rtol=1e-9)
    rows[:, :n_scaled] *= unit
    scaled = LPE(3, metric="mahalanobis", scale="minmax").fit(rows)
    np.testing.assert_allclose(scaled.calibration_, expected.calibration_, rtol=1e-9)


EXTENTS = [5e-324, 1e-308, 1e-170, 1e200, 1e308]
VARIANCES = ["mahalanobis", "seuclidean"], [None, "standard"], EXTENTS


@pytest.mark.parametrize(
    ("metric", "scale", "extent"),
    mostly_dealt(*VARIANCES),
)
def test_metrics__name_a_column_whose_variance_is_no_float64(metric, scale, extent):
    """It is not called constant, and what is said to do works."""
    plain, unit = _with_two_values(), np.array([extent, 1.0])
    model = LPE(3, metric=metric, scale=scale)

    with pytest.raises(ValueError, match=r"variance of column 0 is .*multiply") as caught:
        model.fit(plain * unit)

    assert "constant" not in str(caught.value)
    with pytest.raises(ValueError, match="variance of 0 is too large or too small"):
        model.fit(dd.from_pandas(pd.DataFrame(plain * unit), npartitions=2))
    if "scale='minmax'" in str(caught.value) and extent >= 1e-308:
        LPE(3, metric=metric, scale="minmax").fit(plain * unit)
    model.fit((plain * unit)[:, 1:])
    found = model.fit(plain * unit / unit).calibration_
    np.testing.assert_array_equal(found, model.fit(plain).calibration_)


@pytest.mark.parametrize("unit", [1e-150, 1e-100, 1e100, 1e150])
def test_mahalanobis__takes_units_far_apart_and_columns_nearly_dependent(unit):
    rows = np.random.default_rng(0).standard_normal((400, 2))
    near = np.c_[rows[:, 0], rows[:, 0] + 1e-3 * rows[:, 1]]

    for plain, scaled in ((rows, rows * [unit, 1.0]), (near, near * 3e-154)):
        right, found = (LPE(3, metric="mahalanobis").fit(some) for some in (plain, scaled))
        np.testing.assert_allclose(found.calibration_, right.calibration_, rtol=1e-9)


@given(data=st.data(), points=point_sets(min_rows=2))
def test_read_facts__equal_definitions_for_any_chunks(data, points):
    chunks = data.draw(row_chunks(len(points)))
    rows = da.from_array(points, chunks=(chunks, -1))

    facts = read_facts(rows, AskedFacts(ranges=True, moments=True, products=True))

    actual, is_constant = facts.moments.covariance(ddof=1)
    np.testing.assert_array_equal(facts.low, points.min(axis=0))
    np.testing.assert_array_equal(facts.high, points.max(axis=0))

    expected = [[definitions.covariance(a, b, ddof=1) for b in points.T] for a in points.T]
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(is_constant, (points == points[0]).all(axis=0))


def _with_two_values():
    rng = np.random.default_rng(0)
    return np.column_stack([rng.integers(0, 2, 80), rng.standard_normal(80)])


def test_metric_params__with_names_are_in_the_order_of_the_columns():
    rows = pd.DataFrame(np.random.default_rng(0).random((30, 2)), columns=["a", "b"])
    expected = LPE(3, metric_params={"w": [1, 2]}).fit(rows).p_values_

    for w in (pd.Series({"a": 1, "b": 2}), pd.Series([1, 2])):
        found = LPE(3, metric_params={"w": w}).fit(rows)
        np.testing.assert_array_equal(found.p_values_, expected)
    with pytest.raises(ValueError, match=r"Give w\.loc\[\['a', 'b'\]\]"):
        LPE(3, metric_params={"w": pd.Series({"b": 2, "a": 1})}).fit(rows)
    covariance = rows[["b", "a"]].cov()
    with pytest.raises(ValueError, match=r"Give VI\.loc\[\['a', 'b'\], \['a', 'b'\]\]"):
        LPE(3, metric="mahalanobis", metric_params={"VI": covariance}).fit(rows)


# Scales


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int64, np.float32, np.bool_])
@pytest.mark.parametrize("scale", SCALES[1:])
def test_learn_scaling__widens_before_it_subtracts(dtype, scale):
    points = np.array([[0, 1], [1, 1], [100, 0], [255, 1]]).astype(dtype)

    scaling = learn_scaling(da.from_array(points, chunks=(3, -1)), scale, "ab")

    expected = definitions.scaled(points, points, scale)
    np.testing.assert_array_equal(scaling.apply(points), expected)
    assert scaling.apply(points).dtype == np.float64


# The threads of Dask 2026.1 and before do not know the np.errstate of who computes.
@pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning")
@pytest.mark.parametrize(
    ("scale", "column", "what"),
    [
        ("minmax", [-1.7e308, 1.7e308, 0.0], "range of big"),
        ("minmax", [0.0, 5e-324, 0.0], "range of big"),
        ("quantile", [-1.7e308, 1.7e308, 0.0], "range of big"),
        ("minmax+quantile", [0.0, 5e-324, 0.0], "range of big"),
        ("standard", [-1.7e308, 1.7e308, 0.0], "variance of big"),
        ("standard", [0.0, 1e-200, 0.0], "variance of big"),
    ],
)
def test_learn_scaling__says_which_column_cannot_be_scaled(scale, column, what):
    points = da.from_array(np.array([column, [1.0, 2.0, 3.0]]).T, chunks=(2, -1))

    with pytest.raises(ValueError, match=what):
        learn_scaling(points, scale, ["big", "plain"])


#: What whole squared differences of each column are multiplied by, but for a common factor;
#: the largest number; and the arguments that are to make the same of it.
MIXES = {
    "w": ((2.0, 0.5), 5, {"metric_params": {"w": [2.0, 0.5]}}),
    "V": ((3.0, 1.0), 5, {"metric": "seuclidean", "metric_params": {"V": [1 / 3, 1.0]}}),
    "one range": ((1.0,) * 6, 5, {"scale": "minmax"}),
    "one range, wide": ((1.0,) * 3, 1000, {"scale": "minmax"}),
    "range and w": ((4.0, 1.0), 7, {"scale": "minmax", "metric_params": {"w": [4, 1]}}),
}


def p_values_of_whole_numbers(new, nominal, factors, n_neighbors):
    """By whole numbers alone: no rounding decides a tie."""
    new, nominal = new.astype(np.int64), nominal.astype(np.int64)
    twice = 2 * np.array(factors)  # one half is a factor, too
    factors = twice.astype(np.int64)
    assert (factors == twice).all()

    def squares(rows):
        return ((rows[:, None] - nominal) ** 2 * factors).sum(axis=-1)

    # Each nominal row is the first of those that are sorted by their distance to it.
    own = np.sort(squares(nominal), axis=1)[:, n_neighbors]
    statistic = np.sort(squares(new), axis=1)[:, n_neighbors - 1]
    return [(own >= r).sum() / len(own) for r in statistic]


@pytest.mark.parametrize("name", MIXES)
def test_ties__are_those_of_whole_numbers(name):
    factors, most, arguments = MIXES[name]
    rng = np.random.default_rng(4)
    shape = 60, len(factors)
    nominal, new = (rng.integers(0, most + 1, shape).astype(float) for _ in range(2))
    nominal[:2] = [[0] * len(factors), [most] * len(factors)]

    model = LPE(5, calibration="loo", **arguments).fit(da.from_array(nominal, (17, -1)))

    right = p_values_of_whole_numbers(new, nominal, factors, 5)
    assert model.score_samples(new).tolist() == right


@pytest.mark.parametrize(
    ("arguments", "exponent"),
    [
        ({"scale": "minmax"}, 480),
        ({"scale": "minmax"}, -480),
        ({"scale": "minmax+quantile"}, 480),
        ({"scale": "standard"}, 480),
        ({"scale": "standard"}, -480),
        ({"metric": "seuclidean"}, 480),
        ({"metric": "seuclidean", "scale": "minmax"}, -480),
    ],
)
def test_units_of_any_size__give_the_same_p_values(arguments, exponent):
    """Powers of two keep squares from overflow, and change no bit of a statistic."""
    rows = np.random.default_rng(0).integers(0, 9, (50, 2)) * 1.0

    plain, scaled = (
        LPE(3, calibration="loo", **arguments).fit(some)
        for some in (rows, rows * [2.0**exponent, 1.0])
    )

    np.testing.assert_array_equal(scaled.p_values_, plain.p_values_)
    np.testing.assert_array_equal(scaled.statistic_, plain.statistic_)


def test_weight__of_epoch_microseconds_keeps_the_digits():
    rng = np.random.default_rng(0)
    times = np.round((1.7637e9 + rng.uniform(0, 3600, 200)) * 1e6)[:, None]
    weight = 1 / 60e6**2

    model = LPE(1, calibration="loo", metric_params={"w": [weight]}).fit(times)

    right = definitions.knn_radii(times, times, 1, True, w=[weight])
    np.testing.assert_array_equal(model.statistic_, right)


@pytest.mark.parametrize("weight", [1e300, 1e-300, 5e-324])
def test_weights__may_be_as_large_or_small_as_float64_holds(weight):
    rows = np.arange(30.0).reshape(10, 3) ** 2
    extreme = LPE(2, metric_params={"w": [weight] * 3}).fit(rows)

    plain = LPE(2).fit(rows)

    np.testing.assert_array_equal(extreme.p_values_, plain.p_values_)


def test_column_of_weight_0__is_left_out():
    """Its values may be as large as they like, but not be missing."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((60, 3))
    arguments = {"calibration": "loo", "scale": "minmax"}
    model = LPE(3, metric_params={"w": [1.0, 0.0, 2.0]}, **arguments).fit(rows)
    alone = LPE(3, metric_params={"w": [1.0, 2.0]}, **arguments).fit(rows[:, [0, 2]])
    new = rng.standard_normal((20, 3))
    new[0, 1], new[1, 1], new[2, 1] = 1e308, np.nan, np.inf

    p_values = model.score_samples(new)

    expected = alone.score_samples(new[:, [0, 2]])
    expected[1:3] = np.nan
    np.testing.assert_array_equal(p_values, expected)
    np.testing.assert_array_equal(model.statistic_, alone.statistic_)


def test_weights_of_0__alone_make_all_rows_equal():
    rows = np.random.default_rng(0).standard_normal((20, 2))
    model = LPE(3, metric_params={"w": [0, 0]}).fit(rows)

    assert model.score_samples([[5.0, 5.0], [np.nan, 0.0]]).tolist()[0] == 1.0
    assert np.isnan(model.score_samples([[np.nan, 0.0]])).all()


def test_weights__that_no_float64_holds_name_the_column():
    rows = np.array([[0.0, 0.0], [2e-308, 1.0], [3e-308, 2.0]] * 4)

    with pytest.raises(ValueError, match="weight of column 0 is too large or too small"):
        LPE(1, scale="minmax", metric_params={"w": [1.7e308, 1.0]}).fit(rows)


@given(
    mantissa=st.floats(0.5, 1, exclude_max=True),
    exponent=st.integers(-480, 480),
    given_weight=st.floats(1e-3, 1e3),
)
def test_as_factors__leave_the_weight_as_it_is(mantissa, exponent, given_weight):
    extent = np.array([np.ldexp(mantissa, exponent)])
    weights = learned_weights(extent * extent, ["x"]) * given_weight

    (factor,), (left,) = as_factors(weights)

    learned = definitions.rounded(1 / (mantissa * mantissa))
    right = Fraction(learned * given_weight) * Fraction(2) ** (-2 * exponent)
    assert 1 <= left < 4
    assert np.frexp(factor)[0] == 0.5
    assert Fraction(float(left)) * Fraction(float(factor)) ** 2 == right
