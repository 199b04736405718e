"""P-values of new rows are uniform, or valid, over fresh draws of the nominal rows.

Thousands of draws are simulated from the definition, with all distances at once; the
library gives the same p-values for the first of them, and where tests may be slow for all.
"""

import math

import dask
import numpy as np
import pytest
from scipy import stats

from choosing import mostly_full
from lpe_dask import LPE

#: Name -> arguments, nominal rows of a draw, and draws.
CASES = {
    "loo": ({"n_neighbors": 4, "calibration": "loo"}, 39, 2000),
    "sample": ({"n_neighbors": 3, "calibration": "loo", "calibration_size": 7}, 60, 2000),
    "split": ({"n_neighbors": 3, "calibration": "split"}, 41, 2000),
    "conformal": ({"n_neighbors": 2, "calibration": "conformal"}, 27, 4000),
    "conformal radius": ({"radius": 0.8, "calibration": "conformal"}, 27, 4000),
}


def draws(name, n_draws):
    """Return rows of shape (n_draws, n + 1, 2): a new one, and n nominal ones, each."""
    return np.random.default_rng(20261121).standard_normal((n_draws, CASES[name][1] + 1, 2))


def simulated(rows, calibration, n_neighbors=None, radius=None, calibration_size=None):
    """Return the p-value of the first row of each draw, of shape (n_draws,)."""
    n = rows.shape[1] - 1
    # The library draws in the same way, so that p-values can be compared one by one.
    order = 1 + np.random.default_rng(0).permutation(n)
    half = (n + 1) // 2
    measured, searched, own = {
        "loo": (order[:calibration_size], order, order),
        "split": (order[:half], order[half:], order[:half]),
        "conformal": (order[:half], order[half:], order[half:]),
    }[calibration]
    distances = np.sqrt(((rows[:, :, None] - rows[:, None]) ** 2).sum(axis=-1))
    distances[:, np.arange(n + 1), np.arange(n + 1)] = np.inf

    def anomaly(of, among):
        near = distances[:, of][:, :, among]
        if radius is not None:
            return -(near <= radius).sum(axis=-1)
        return np.sort(near, axis=-1)[:, :, n_neighbors - 1]

    new, compared = anomaly(np.zeros(1, int), searched), anomaly(measured, own)
    counts = (compared >= new).sum(axis=1)
    if calibration == "conformal":
        return (1 + counts) / (1 + len(measured))
    return counts / len(measured)


def assert_library_agrees(name, n_draws):
    arguments = CASES[name][0]
    graph = "radius" if "radius" in arguments else "knn"
    model = LPE(graph=graph, algorithm="brute", random_state=0, **arguments)
    rows = draws(name, n_draws)
    with dask.config.set(scheduler="sync"):  # there is nothing to share between threads
        found = [model.fit(some[1:]).score_samples(some[:1])[0] for some in rows]

    assert found == simulated(rows, **arguments).tolist()


@pytest.mark.parametrize("name", mostly_full(CASES, ["loo", "sample"]))
def test_score_samples__gives_the_simulated_p_values(name):
    assert_library_agrees(name, 25)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_score_samples__gives_all_simulated_p_values(name):
    assert_library_agrees(name, CASES[name][2])


@pytest.mark.parametrize("name", ["loo", "sample", "split"])
def test_p_values__of_new_rows_are_uniform(name):
    """P(p <= a) is about (floor(a m) + 1) / (m + 1) for m calibration rows.

    For the sample m is small, so that one row more or less in a count would show.
    """
    arguments, n, n_draws = CASES[name]
    p_values = simulated(draws(name, n_draws), **arguments)
    m = {"loo": n, "sample": 7, "split": 21}[name]

    assert p_values.min() == 0.0
    for alpha in (0.05, 0.1, 0.3, 0.5, 0.8, 0.9):
        rate = (math.floor(alpha * m) + 1) / (m + 1)
        low, high = stats.binom.ppf([1e-6, 1 - 1e-6], n_draws, rate) / n_draws
        # A nominal row is measured among n - 1 others, a new row among n. The split form is
        # uniform for many rows only: all of S1 are measured among the same rows, a new row
        # among others (with 7 rows in S1, 0.67 are below 0.8 instead of 0.75).
        slack = 0.02 if name == "split" else 1 / n
        assert low - slack <= (p_values <= alpha).mean() <= high + slack


@pytest.mark.parametrize("name", ["conformal", "conformal radius"])
def test_p_values__of_the_conformal_form_are_valid_at_every_level(name):
    """P(p <= a) <= a over fresh draws of nominal rows and one more, for a small sample."""
    arguments, _, n_draws = CASES[name]
    p_values = simulated(draws(name, n_draws), **arguments)

    for alpha in (1 / 15, 0.1, 2 / 15, 0.2, 0.5, 0.8):
        most = stats.binom.ppf(1 - 1e-6, n_draws, alpha)
        assert (p_values <= alpha).sum() <= most
    assert p_values.min() == 1 / 15
    if name == "conformal":  # no ties: as often as a whole number of rows allows
        for alpha in (1 / 15, 2 / 15, 6 / 15):
            least = stats.binom.ppf(1e-6, n_draws, alpha)
            assert (p_values <= alpha + 1e-12).sum() >= least
