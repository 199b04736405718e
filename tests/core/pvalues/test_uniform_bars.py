"""Bars of p-values, and the band in which those of nominal rows stay."""

import numpy as np
import pytest
from scipy import stats

from lpe_dask.pvalues import bar_densities, uniform_band


def test_bars__have_their_right_edge_and_the_first_both():
    ranks = np.arange(101) / 100

    counts = bar_densities(ranks, 20) * 101 / 20

    assert counts.round(9).tolist() == [6] + [5] * 19


def test_bars__are_a_density():
    p_values = np.random.default_rng(0).random(123)

    assert bar_densities(p_values, 7).mean() == pytest.approx(1)


@pytest.mark.parametrize(("n_rows", "n_bars"), [(1, 1), (5, 20), (300, 10), (10**6, 20)])
def test_band__of_independent_p_values_is_binomial(n_rows, n_bars):
    low, high = uniform_band(n_rows, n_bars) * np.array(n_rows / n_bars)

    tail, law = 0.025 / n_bars, stats.binom(n_rows, 1 / n_bars)
    assert law.cdf(low - 1).max() <= tail
    assert law.sf(high).max() <= tail
    if n_bars > 1:  # and no wider than that
        assert law.sf(high - 1).min() > tail
        assert law.cdf(low).min() > tail


@pytest.mark.parametrize(
    ("n_rows", "n_bars", "n_calibration"),
    [(50, 10, 99), (300, 4, 99), (20, 3, 10), (7, 2, 1)],
)
def test_band__of_p_values_with_common_calibration_rows_is_beta_binomial(
    n_rows, n_bars, n_calibration
):
    scaled = n_rows / n_bars
    low, high = (of * scaled for of in uniform_band(n_rows, n_bars, n_calibration))

    tail = 0.025 / n_bars
    places = np.diff(np.arange(n_bars + 1) * (n_calibration + 1) // n_bars)
    law = stats.betabinom(n_rows, places, n_calibration + 1 - places)
    for at in (low, high):
        np.testing.assert_allclose(at, at.round(), atol=1e-9)
    assert law.cdf(low.round() - 1).max() <= tail
    assert law.sf(high.round()).max() <= tail
    assert law.sf(high.round() - 1).min() > tail
    assert law.cdf(low.round()).min() > tail


def test_band__holds_for_nominal_rows_where_the_binomial_one_does_not():
    rng = np.random.default_rng(0)
    n_rows, n_bars, m, n_sets = 400, 10, 99, 400
    calibration = np.sort(rng.random((n_sets, m)), axis=1)
    rows = rng.random((n_sets, n_rows))
    below = np.array([np.searchsorted(*of) for of in zip(calibration, rows, strict=True)])
    p_values = (1 + m - below) / (m + 1)
    bars = np.array([bar_densities(of, n_bars) for of in p_values])

    def share_inside(n_calibration):
        low, high = uniform_band(n_rows, n_bars, n_calibration)
        return ((bars >= low - 1e-9) & (bars <= high + 1e-9)).all(axis=1).mean()

    assert share_inside(m) >= 0.95
    assert share_inside(None) < 0.5


def test_band__of_one_bar_or_too_few_places_is_certain():
    low, high = uniform_band(9, 1, 5)
    assert (low.tolist(), high.tolist()) == ([1], [1])

    # Of four bars, two p-values are in two: the others are empty.
    low, high = uniform_band(9, 4, 1)
    assert (high == 0).sum() == 2
    assert (low == 0).all()


def test_band__is_that_of_uniform_p_values_for_many_calibration_rows():
    for at, limit in zip(uniform_band(500, 10, 10**7), uniform_band(500, 10), strict=True):
        np.testing.assert_allclose(at, limit, atol=0.021)  # one row of 50
