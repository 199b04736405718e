"""Bounds on the probability of values that no nominal row has."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from choosing import mostly_dealt
from lpe_dask.monitoring.new_values import (
    NominalColumn,
    clopper_pearson_lower,
    clopper_pearson_upper,
    columns_in_excess,
)


@given(data=st.data(), n=st.integers(1, 10**8), error=st.sampled_from([0.025, 0.01]))
def test_bounds__are_those_of_clopper_and_pearson(data, n, error):
    x = data.draw(st.integers(0, n) | st.sampled_from([0, n]))

    low, high = clopper_pearson_lower(x, n, error), clopper_pearson_upper(x, n, error)

    assert 0 <= low <= x / n <= high <= 1
    assert (
        low == 0 if x == 0 else stats.binom.sf(x - 1, n, low) == pytest.approx(error, 1e-5)
    )
    assert (
        high == 1 if x == n else stats.binom.cdf(x, n, high) == pytest.approx(error, 1e-5)
    )


@pytest.mark.parametrize("n", [2, 10, 300])
def test_bound_of_numbers__holds_as_often_as_it_says(n):
    """The probability beyond the extremes of n uniform numbers is known."""
    rows = np.random.default_rng(n).random((20_000, n))
    beyond = rows.min(axis=1) + 1 - rows.max(axis=1)

    for level in (0.2, 0.01):
        exceeded = (beyond > NominalColumn("x", n).unseen_bound(level)).sum()
        assert stats.binom.ppf(1e-4, len(rows), level) <= exceeded
        assert exceeded <= stats.binom.ppf(1 - 1e-4, len(rows), level)


def test_bound__of_hardly_any_rows_is_1():
    assert NominalColumn("x", 1).unseen_bound(0.1) == 1
    assert NominalColumn("x", 1, (1, 0)).unseen_bound(0.1) == 1


LAWS = {
    "one": np.ones(1),
    "uniform": np.full(1000, 1e-3),
    "rare": np.r_[0.99, np.full(1000, 1e-5)],
    "zipf": 1 / np.arange(1, 5001),
    "geometric": 0.9 ** np.arange(300.0),
}


@pytest.mark.parametrize(("law", "n"), mostly_dealt(LAWS, [100, 3000]))
def test_bound_of_categories__holds_at_least_as_often_as_it_says(law, n):
    shares = LAWS[law] / LAWS[law].sum()
    counts = np.random.default_rng(n).multinomial(n, shares, size=2000)
    unseen = ((counts == 0) * shares).sum(axis=1)

    for level in (0.2, 0.01):
        bounds = [
            NominalColumn("x", n, (int((of == 1).sum()), int((of > 1).sum())))
            .unseen_bound(level)
            for of in counts
        ]  # fmt: skip
        exceeded = (unseen > np.array(bounds)).sum()
        assert exceeded <= stats.binom.ppf(1 - 1e-4, len(counts), level)


def exceeds(rng, n, n_rows, n_runs, error, further=0.0):
    """Whether a series of runs of uniform numbers, and of categories, ever exceeds."""
    nominal = rng.random(n)
    counts = rng.multinomial(n, LAWS["uniform"])
    beyond = nominal.min() + 1 - nominal.max(), LAWS["uniform"][counts == 0].sum()
    rare = int((counts == 1).sum()), int((counts > 1).sum())
    columns = [NominalColumn("x", n), NominalColumn("c", n, rare)]
    shares = np.minimum(1, np.array(beyond) + further)
    total = np.zeros((2, 2), int)
    for run in range(1, n_runs + 1):
        of_run = np.array([[n_rows] * 2, rng.binomial(n_rows, shares)])
        total += of_run
        if columns_in_excess(columns, [tuple(of_run), tuple(total)], run, error):
            return True
    return False


@pytest.mark.parametrize(("n_rows", "n_runs"), [(20, 100), (20_000, 30)])
def test_exceeding__without_change_is_as_rare_as_promised(n_rows, n_runs):
    rng, error = np.random.default_rng([1, n_rows]), 0.3

    n_false = sum(exceeds(rng, 400, n_rows, n_runs, error) for _ in range(100))

    assert n_false <= stats.binom.ppf(0.999, 100, error)


@pytest.mark.parametrize(
    ("n", "n_rows", "n_runs", "further"),
    [(400, 1000, 3, 0.1), (1000, 20, 60, 0.05)],  # little more, in many small runs
)
def test_exceeding__finds_more_than_chance(n, n_rows, n_runs, further):
    rng = np.random.default_rng(3)

    assert all(exceeds(rng, n, n_rows, n_runs, 0.01, further) for _ in range(20))


def test_exceeding__names_columns_by_place_and_counts_known_values_only():
    columns = [NominalColumn("a", 10_000), NominalColumn("b", 10_000, (0, 2))]
    of_run = np.array([10, 1000]), np.array([10, 3])
    nothing = np.array([0, 0]), np.array([0, 0])

    assert columns_in_excess(columns, [of_run, nothing], 1, 0.01) == [0]
    assert columns_in_excess(columns, [nothing, of_run], 1, 0.01) == [0]
    new = np.array([1000, 1000]), np.array([0, 500])
    assert columns_in_excess(columns, [new, of_run], 1, 0.01) == [0, 1]
    assert columns_in_excess([], [(np.zeros(0, int),) * 2], 1, 0.01) == []
