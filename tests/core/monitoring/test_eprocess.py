"""Evidence against Polya's urn: a fair game, by counting out all outcomes."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpe_dask.monitoring.bins import PValueBins
from lpe_dask.monitoring.eprocess import (
    bet_exponents,
    log_evidence,
    log_ratios,
    update_log_wealth,
)


def outcomes(n_bins, n_rows):
    """All ways in which rows fall into bins."""
    for counts in itertools.product(range(n_rows + 1), repeat=n_bins):
        if sum(counts) == n_rows:
            yield counts


def rising(a, n):
    return math.prod((a + i for i in range(n)), start=Fraction(1))


def chance(urn, counts):
    """The probability of an outcome by drawing from the urn row by row, exactly."""
    ways = math.factorial(sum(counts))
    for n in counts:
        ways //= math.factorial(n)
    total = rising(sum(map(Fraction, urn)), sum(counts))
    return ways * math.prod(map(rising, map(Fraction, urn), counts)) / total


# Logarithms of the gamma function are rounded to about 1e-16 of their size, which is 2e4
# for the last urn.
@pytest.mark.parametrize(
    ("urn", "error"),
    [((3, 1, 4, 2), 1e-12), ((0.25, 1.5, 0.5, 40), 1e-12), ((1000, 1, 1000, 3000), 1e-10)],
    ids=str,
)
def test_log_ratios__of_a_fair_game_have_mean_1(urn, error):
    exponents = bet_exponents(np.array([3, 1, 4, 2]))
    counts = np.array(list(outcomes(4, 6)))
    chances = np.array([float(chance(urn, some)) for some in counts])

    ratios = np.exp(log_ratios(np.array(urn, float), counts.astype(float), exponents))

    assert chances.sum() == pytest.approx(1, abs=1e-12)
    assert ratios.shape == (len(counts), 40)
    np.testing.assert_allclose(chances @ ratios, 1, rtol=0, atol=error)


def test_log_ratios__compare_the_tilted_urn_with_the_urn():
    urn, exponent, counts = (3, 1, 4), (0.5, -0.25, 0.125), (2, 0, 3)
    tilted = np.array(urn) * np.exp(exponent)
    tilted *= 8 / tilted.sum()

    [found] = log_ratios(np.array(urn, float), np.array(counts), np.array([exponent]))

    expected = chance(tilted.tolist(), counts) / chance(urn, counts)
    assert found == pytest.approx(math.log(expected), rel=1e-12)


def test_log_ratios__of_several_series_are_those_of_each():
    exponents, counts = (
        bet_exponents(np.array([5, 2, 3])),
        np.array([[1.0, 0, 9], [7, 10**6, 0]]),
    )
    urns = np.array([[5.0, 2, 3], [0.01, 1e9, 4]])

    together = log_ratios(urns, counts, exponents)
    wealth = update_log_wealth(np.zeros_like(together), together, 3)

    for i in range(2):
        alone = log_ratios(urns[i], counts[i], exponents)
        np.testing.assert_array_equal(together[i], alone)
        np.testing.assert_array_equal(wealth[i], update_log_wealth(np.zeros(40), alone, 3))
        assert log_evidence(wealth, 3)[i] == log_evidence(wealth[i], 3)


@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize("rest", [10**3, 10**6, 10**9, 10**11])
def test_log_ratios__are_finite_where_a_cell_is_hardly_there(rest, is_last):
    """One calibration row in it, as ties of all others leave: tilts are strong."""
    widths = np.array([rest, 1] if is_last else [1, rest])
    exponents = bet_exponents(widths)
    for counts in ([0, 0], [1, 0], [0, 1], [10**6, 3], [3, 10**6]):
        ratios = log_ratios(widths.astype(float), np.array(counts, float), exponents)

        wealth = update_log_wealth(np.full(len(exponents), -np.inf), ratios, 1)
        assert np.isfinite(ratios).all()
        assert np.isfinite(log_evidence(wealth, 1))

    # Of one row, the mean over where it falls is 1: a fair game in spite of it.
    alone = np.exp([log_ratios(widths.astype(float), row, exponents) for row in np.eye(2)])
    mean = widths / widths.sum() @ alone
    # Logarithms of the gamma function are rounded to about 1e-16 of their size.
    error = 1e-9 + 1e-15 * rest * math.log(rest)
    np.testing.assert_allclose(mean, 1, rtol=0, atol=error)


def test_log_ratios__of_no_rows_are_0():
    exponents = bet_exponents(np.array([5, 2, 3]))

    assert not log_ratios(np.array([5.0, 2, 3]), np.zeros(3), exponents).any()


@given(
    widths=st.lists(st.integers(1, 10**9), max_size=16).map(
        lambda some: np.array(some, int)
    )
)
def test_bets__tilt_by_so_many_standard_deviations(widths):
    exponents = bet_exponents(widths)

    assert exponents.shape[1] == len(widths)
    assert len(exponents) % 10 == 0
    assert len(exponents) <= 40
    shares = widths / max(1, widths.sum())
    sizes = np.sqrt(exponents**2 @ shares).reshape(10, -1)
    tilts = np.repeat([0.025, 0.0625, 0.156, 0.39, 0.98], 2)[:, None]
    np.testing.assert_allclose(sizes, tilts * np.ones_like(sizes), rtol=1e-6)
    np.testing.assert_allclose(exponents @ shares, 0, rtol=0, atol=1e-6)


def test_bets__come_in_pairs_that_tilt_either_way():
    exponents = bet_exponents(PValueBins.of(np.arange(1, 1001), 0.01, 0).widths)

    assert exponents.shape == (40, 16)
    mirrored = {tuple(row) for row in -exponents}
    assert mirrored == {tuple(row) for row in exponents}
    location = exponents[0]
    assert (np.diff(location) > 0).all()


def test_bets__see_bins_where_their_middle_is():
    location, spread, low, high = bet_exponents(np.array([20, 30, 50]))[:4]

    for found, shape in (
        (location, [0.1, 0.35, 0.75]),
        (spread, [0.4**2, 0.15**2, 0.25**2]),
        (low, np.exp([-1, -3.5, -7.5])),
        (high, np.exp([-9, -6.5, -2.5])),
    ):
        ratio = (shape[1] - shape[0]) / (shape[2] - shape[0])
        assert (found[1] - found[0]) / (found[2] - found[0]) == pytest.approx(ratio)


@pytest.mark.parametrize("widths", [[], [17]])
def test_evidence__is_0_where_there_is_nothing_to_bet_on(widths):
    exponents = bet_exponents(np.array(widths, int))

    ratios = log_ratios(np.array(widths, float), np.array(widths), exponents)
    wealth = update_log_wealth(np.empty(0), ratios, 1)

    assert exponents.shape == (0, len(widths))
    assert wealth.shape == (0,)
    assert log_evidence(wealth, 1) == 0


def test_evidence__of_nights_that_say_nothing_stays_0():
    wealth = np.full((2, 40), -np.inf)

    for run in range(1, 500):
        wealth = update_log_wealth(wealth, np.zeros((2, 40)), run)

        np.testing.assert_allclose(log_evidence(wealth, run), 0, rtol=0, atol=1e-12)


def test_after_run__bets_anew_each_run():
    lost = np.full(40, -1000.0)

    first = update_log_wealth(np.full(40, -np.inf), lost, 1)
    second = update_log_wealth(first, np.zeros(40), 2)

    put = 1 / math.log2(3) - 1 / math.log2(4)
    np.testing.assert_allclose(second, math.log(put / 40))
    assert log_evidence(second, 2) == pytest.approx(math.log(put + 0.5))
