"""How many rows of a group are flagged: against scipy, plain counts, and a simulation."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import betabinom

from lpe_dask.pvalues.formulas import p_values as p_values_of
from lpe_dask.pvalues.group_counts import excess_p_values, expected_flagged, holm


@st.composite
def groups(draw):
    """Numbers of one group: x of N rows are flagged, by k of the m + 1 places."""
    m, n = draw(st.integers(1, 400)), draw(st.integers(1, 400))
    return draw(st.integers(0, n)), n, draw(st.integers(1, m)), m


@given(st.lists(groups(), min_size=1, max_size=5))
def test_excess_p_values__are_tails_of_the_beta_binomial(some):
    x, n, k, m = np.array(some).T

    found = excess_p_values(x, n, k, m)

    expected = betabinom.sf(x - 1, n, k, m + 1 - k)  # of differences of logarithms
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(expected_flagged(n, k, m), betabinom.mean(n, k, m + 1 - k))


@pytest.mark.parametrize(("x", "n", "k", "m"), [(60, 60, 2, 99), (90, 900, 5, 999)])
def test_excess_p_values__of_far_tails_are_sums_of_their_terms(x, n, k, m):
    terms = betabinom.logpmf(np.arange(x, n + 1), n, k, m + 1 - k)

    (found,) = excess_p_values(*(np.array([of]) for of in (x, n, k, m)))

    assert 0 < found < 1e-20
    np.testing.assert_allclose(np.log(found), np.logaddexp.reduce(terms), rtol=1e-7)


def test_excess_p_values__where_no_place_is_flagged():
    found = excess_p_values(
        np.array([0, 2]), np.array([5, 5]), np.array([0, 0]), np.array([9, 9])
    )

    assert found.tolist() == [1, 0]


@pytest.mark.parametrize(("n", "m", "k"), [(2, 3, 1), (3, 3, 2), (1, 4, 3)])
def test_excess_p_values__count_the_orders_of_all_rows(n, m, k):
    """With m calibration rows and N new ones in every order, by the definition of p."""
    orders, counts = 0, np.zeros(n + 1)
    for ranks in itertools.permutations(range(n + m)):
        known, new = np.sort(ranks[:m]).astype(float), np.array(ranks[m:], float)
        p = p_values_of(new, known, includes_self=1)
        counts[(p <= k / (m + 1)).sum()] += 1
        orders += 1

    x = np.arange(n + 1)
    found = excess_p_values(x, *(np.full(n + 1, of) for of in (n, k, m)))

    np.testing.assert_allclose(found, counts[::-1].cumsum()[::-1] / orders)


@pytest.mark.parametrize("ties", [False, True])
def test_excess_p_values__of_nominal_groups_are_at_most_as_often_small(ties):
    """Groups of normal rows; rounded, their statistics tie, and fewer are flagged."""
    rng, (n, m, k, n_groups) = np.random.default_rng(0), (40, 59, 3, 4000)
    flagged = np.empty(n_groups, int)
    for group in range(n_groups):
        values = rng.normal(size=n + m)
        values = np.round(values) if ties else values
        p = p_values_of(values[m:], np.sort(values[:m]), includes_self=1)
        flagged[group] = (p <= k / (m + 1)).sum()

    found = excess_p_values(flagged, *(np.full(n_groups, of) for of in (n, k, m)))

    for level in 0.01, 0.1, 0.3:
        bound = level * n_groups + 4 * np.sqrt(level * n_groups)
        assert (found <= level).sum() <= bound
    mean = expected_flagged(*(np.array([of]) for of in (n, k, m)))
    if ties:
        assert flagged.mean() < mean
    else:
        np.testing.assert_allclose(
            flagged.mean(), mean, atol=4 * flagged.std() / n_groups**0.5
        )


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm__rejects_step_by_step(values):
    adjusted = holm(np.array(values))

    for level in {0.05, *adjusted}:
        left, rejected = sorted(range(len(values)), key=values.__getitem__), set()
        while left and values[left[0]] * len(left) <= level:
            rejected.add(left.pop(0))
        expected = {
            i for i in range(len(values)) if values[i] in {values[j] for j in rejected}
        }
        assert {*np.flatnonzero(adjusted <= level)} >= rejected
        if level < 1:
            assert {*np.flatnonzero(adjusted <= level)} <= expected
