"""Equal differences stay equal, whatever weights, variances and ranges multiply them by."""

from fractions import Fraction

import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import definitions
from lpe_dask import LPE
from lpe_dask.model.learning.scaling import as_factors, learned_weights

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
