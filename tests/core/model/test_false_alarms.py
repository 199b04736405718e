"""How many flagged rows are false alarms at most: the distribution, and the bound."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.signal import fftconvolve

from lpe_dask.model import flagged_counts
from lpe_dask.model.false_alarms import (
    CUT_OFF_RATIO,
    false_alarms_at_most,
    false_discoveries_at_most,
)
from lpe_dask.model.flagged_counts import MAX_SHARES, Counts
from lpe_dask.model.validity import flagged_places

GROUP = st.tuples(st.integers(0, 60), st.integers(0, 8), st.integers(8, 60))


def law_of_sum(groups):
    """By definition: the law of each group by scipy, convolved one after the other."""
    law = np.ones(1)
    for n, k, m in groups:
        of_group = [1.0] if k == 0 else stats.betabinom.pmf(range(n + 1), n, k, m + 1 - k)
        law = np.convolve(law, of_group)
    return law


@given(groups=st.lists(GROUP, min_size=1, max_size=6), level=st.sampled_from([0.5, 0.95]))
@settings(deadline=None)
def test_in_groups__is_the_law_of_the_sum(groups, level):
    expected = law_of_sum(groups)
    found = Counts.in_groups(*np.array(groups).T)

    shares = np.zeros(len(expected))
    shares[found.first : found.first + len(found.shares)] = found.shares
    np.testing.assert_allclose(shares, expected, rtol=1e-9, atol=1e-14)
    below, at = np.cumsum(expected), found.quantile(level)
    assert below[at] >= level - 1e-12
    assert at == 0 or below[at - 1] < level + 1e-12


@pytest.mark.parametrize(
    ("n", "k", "m"), [(3000, 1, 40), (3000, 40, 40), (100_000, 3, 9), (2, 300, 99_999)]
)
def test_flagged__leaves_out_what_is_next_to_impossible_only(n, k, m):
    found, law = Counts.flagged(n, k, m), stats.betabinom.pmf(range(n + 1), n, k, m + 1 - k)
    last = found.first + np.arange(len(found.shares)) * found.step
    below = np.append(0, np.cumsum(law))
    expected = below[np.minimum(last, n) + 1] - below[last + 1 - found.step]

    assert len(found.shares) <= MAX_SHARES
    np.testing.assert_allclose(found.shares, expected, rtol=1e-7, atol=1e-13)


def test_flagged__of_very_many_rows_keeps_few_numbers():
    found = Counts.flagged(10**9, 10_000, 10**6)

    assert len(found.shares) <= MAX_SHARES
    # The law is that of the rate, of which so many rows leave nothing to chance.
    expected = 1e9 * stats.beta.ppf(0.95, 10_000, 990_001)
    assert expected < found.quantile(0.95) < 1.0001 * expected


def test_in_groups__is_the_same_law_however_it_is_computed(monkeypatch):
    """In pieces or at once, convolved by products or by Fourier transforms."""
    groups = np.array([[500, 3, 40], [0, 2, 9], [1, 1, 1], [300, 0, 7], [200, 30, 30]]).T
    right = Counts.in_groups(*groups)

    monkeypatch.setattr(flagged_counts, "_AT_A_TIME", 8)
    pieces = Counts.in_groups(*groups)
    monkeypatch.setattr(flagged_counts, "_MANY", 1)
    transformed = Counts.in_groups(*groups)

    assert (pieces.first, pieces.step) == (right.first, 1)
    np.testing.assert_array_equal(pieces.shares, right.shares)
    for level in (0.001, 0.5, 0.95, 0.9999):
        assert transformed.quantile(level) == right.quantile(level)


def test_coarse_laws__have_quantiles_that_are_a_little_too_large_never_too_small():
    groups = np.array([[60_000, 3, 9], [50_000, 4, 19], *[[30, 1, 19]] * 40])
    law = np.ones(1)
    for n, k, m in groups.tolist():
        of_group = stats.betabinom.pmf(range(n + 1), n, k, m + 1 - k)
        law = fftconvolve(law, of_group)
    below = np.cumsum(law)

    found = Counts.in_groups(*groups.T)

    assert found.step > 1
    for level in (0.05, 0.5, 0.9, 0.95, 0.999):
        exact = int(np.searchsorted(below, level))
        assert exact <= found.quantile(level) <= exact + 50


def test_in_groups__adds_long_laws_as_short_ones():
    groups = np.array([[40_000, 20, 300], [30_000, 7, 90]])
    found, mean = Counts.in_groups(*groups.T), (groups[:, 0] * groups[:, 1]).astype(float)
    law = np.convolve(
        *(stats.betabinom.pmf(range(n + 1), n, k, m + 1 - k) for n, k, m in groups.tolist())
    )

    numbers = found.first + np.arange(len(found.shares))
    assert found.shares @ numbers == pytest.approx((mean / (groups[:, 2] + 1)).sum())
    np.testing.assert_allclose(found.shares, law[numbers], atol=1e-15)
    assert found.quantile(0.95) == np.searchsorted(np.cumsum(law), 0.95)


@given(
    q=st.sampled_from([0.01, 0.1, 0.5]),
    share=st.floats(0.001, 1),
    sizes=st.lists(
        st.tuples(st.integers(1, 400), st.integers(1, 500)), min_size=1, max_size=3
    ),
)
@settings(deadline=None)
def test_false_discoveries_at_most__is_the_bound_of_the_next_fixed_cut_off(q, share, sizes):
    n, m = np.array(sizes).T
    cut_offs = []
    while not cut_offs or q / CUT_OFF_RATIO ** len(cut_offs) >= 1 / (m.max() + 1):
        cut_offs.append(q / CUT_OFF_RATIO ** len(cut_offs))
    cut_off = q * share
    next_larger = min(c for c in cut_offs if c >= cut_off)
    k = flagged_places(next_larger, m, includes_self=True)
    certain = 1 - 0.05 / len(cut_offs)

    found = false_discoveries_at_most(cut_off, q, n, m, 0.95)

    assert found == false_alarms_at_most(n, k, m, certain)
