"""Decisions at a false discovery rate, and weights of statistics, by their definitions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpe_dask import false_discovery_control
from lpe_dask.pvalues import formulas
from lpe_dask.pvalues.decisions import (
    Adjustment,
    Histogram,
    fdr_caveat,
    histogram_of,
)
from lpe_dask.pvalues.density import LikelihoodRatio


def test_cut_off__of_more_rows_than_int32_counts():
    counts = np.array([2**33, 2**34, 2**35])
    histogram = Histogram(np.array([0.01, 0.05, 1.0]), counts)

    for q, expected in ((0.0699, math.nan), (0.0701, 0.01), (0.1167, 0.05)):
        cut_off = Adjustment.of(histogram).cut_off(q)
        np.testing.assert_equal(cut_off, expected)


def test_histogram__counts_each_value_once():
    values, counts = histogram_of(np.array([0.5, math.nan, 0.0, 0.5, -0.0]))

    assert (values.tolist(), counts.tolist()) == ([0.0, 0.5], [2, 2])
    assert counts.dtype == np.int64


# Where the rate does not hold, or nothing can be flagged


def realised(includes_self, n_nominal, n_rows, n_anomalies, q, seed):
    """Nominal rows and all rows flagged; the last rows are more anomalous than any."""
    rng = np.random.default_rng(seed)
    nominal = np.sort(rng.random(n_nominal))
    statistic = np.append(rng.random(n_rows), np.full(n_anomalies, 2.0))
    found = formulas.p_values(statistic, nominal, includes_self=includes_self)
    flags = false_discovery_control(found, q)
    return int(flags[:n_rows].sum()), int(flags.sum())


@pytest.mark.parametrize(
    ("n_nominal", "n_rows", "n_anomalies", "is_exceeded"),
    [
        (1000, 50_000, 20, True),
        (1000, 50_000, 500, True),
        (200, 2000, 50, True),
        (1000, 1000, 0, True),
        (1000, 1000, 500, False),
        (200, 20, 50, False),
        (10_000, 1000, 50, False),
    ],
)
def test_doubt__comes_where_the_rate_is_exceeded(
    n_nominal, n_rows, n_anomalies, is_exceeded
):
    shares, doubts = [], []
    for seed in range(100):
        n_false, n_flagged = realised(0, n_nominal, n_rows, n_anomalies, 0.1, seed)
        shares.append(n_false / max(1, n_flagged))
        given = (0.1, n_rows + n_anomalies, n_flagged, n_nominal)
        if n_flagged:
            doubts.append(fdr_caveat(*given, includes_self=0) is not None)

    assert (np.mean(shares) > 0.11) == is_exceeded
    assert np.mean(doubts) > 0.9 if is_exceeded else np.mean(doubts) < 0.1


def test_doubt__tells_its_numbers():
    loo = fdr_caveat(0.1, 50_020, 65, 1000, includes_self=0)
    conformal = fdr_caveat(0.1, 50_020, 0, 1000, includes_self=1)

    assert loo.startswith("fdr=0.1 does not hold: about 49.9 of the 50020 rows have p = 0")
    assert "calibration='conformal'" in loo
    assert "about 500200 / k calibration rows" in loo
    assert "is 0.000999, which at least 500 of the 50020 rows must have" in conformal
    assert "about 500200 / k calibration rows" in conformal


def test_doubt__of_groups_is_about_the_largest_or_the_mix_of_all():
    """One in m + 1 rows of a group has p = 0, and the more rows the more m it has."""
    sizes = np.array([99, 899, 2])
    zeros = 1000 * (99 / 1000 / 100 + 899 / 1000 / 900 + 2 / 1000 / 3)

    loo = fdr_caveat(0.1, 1010, 10, sizes, includes_self=0)
    conformal = fdr_caveat(0.1, 1010, 0, sizes, includes_self=1)

    assert loo.startswith(f"fdr=0.1 does not hold: about {zeros:.3g} of the 1010 rows")
    assert "one in m + 1, in a group of m calibration rows" in loo
    assert "with 899 calibration rows of a group the smallest p-value is" in conformal
    assert f"is {1 / 900:.3g}, which at least 12 of the 1010 rows must have" in conformal
    assert fdr_caveat(0.1, 1010, 1, sizes, includes_self=1) is None


@pytest.mark.parametrize(
    ("n_calibration", "n_anomalies", "is_found"), [(999, 99, False), (999, 100, True)]
)
def test_doubt__of_conformal_where_too_few_calibration_rows_are(
    n_calibration, n_anomalies, is_found
):
    smallest = 1 / (n_calibration + 1)
    found = np.append(np.full(n_anomalies, smallest), np.full(10_000 - n_anomalies, 0.5))

    n_flagged = int(false_discovery_control(found, 0.1).sum())

    doubt = fdr_caveat(0.1, len(found), n_flagged, n_calibration, includes_self=1)
    assert (n_flagged > 0) == is_found
    assert (doubt is None) == is_found
    if doubt:
        assert "at least 100 of the 10000 rows" in doubt


@pytest.mark.parametrize(
    ("q", "n_rows", "n_flagged", "n_calibration", "includes_self", "is_doubted"),
    [
        (0.1, 0, 0, 10, 0, False),
        (0.1, 0, 0, 10, 1, False),
        (0.1, 50_000, 0, 10, 0, False),
        (0.1, 50_000, 1, 10, 1, False),
        (0.1, 5, 5, 99, 0, False),
        # Above the rate and a tenth: 4 are flagged, and 0.55 allows a rate of 1 with p = 0.
        (0.5, 10, 4, 5, 0, False),
        (0.5, 10, 4, 4, 0, True),
    ],
)
def test_doubt__is_none_where_there_is_nothing_to_doubt(
    q, n_rows, n_flagged, n_calibration, includes_self, is_doubted
):
    given = (q, n_rows, n_flagged, n_calibration)
    doubt = fdr_caveat(*given, includes_self=includes_self)
    assert (doubt is not None) == is_doubted


# A density of anomalies


INF, NAN = math.inf, math.nan


@given(
    log=st.sampled_from([-INF, -1.5, 0.0, 2.0]),
    statistic=st.sampled_from([0.0, 1.0, 3.0, INF]),
    n_features=st.integers(1, 3),
)
def test_weigh__is_the_logarithm_of_the_likelihood_ratio(log, statistic, n_features):
    """Where the density is 0 a row is as nominal as possible."""
    log_statistic = math.log(statistic) if statistic else -INF

    given = np.array([log]), np.array([statistic]), n_features
    (knn,), (radius,) = (
        LikelihoodRatio(sum, graph).weigh(*given) for graph in ("knn", "radius")
    )

    if log == -INF:
        assert (knn, radius) == (-INF, INF)
    else:
        assert knn == pytest.approx(log + n_features * log_statistic)
        assert radius == pytest.approx(log_statistic - log)


def test_density_weight__leaves_out_rows_that_were_not_measured():
    seen = []
    weight = LikelihoodRatio(lambda rows: seen.append(rows) or rows[:, 0], "radius")

    weighed = weight(np.arange(6.0).reshape(3, 2), np.array([1.0, NAN, math.e]))

    np.testing.assert_array_equal(seen, [[[0, 1], [4, 5]]])
    np.testing.assert_array_equal(weighed, [0.0, NAN, 1.0 - 4.0])


@pytest.mark.parametrize(
    ("given_back", "message"),
    [
        ([-INF, NAN], r"gave nan for the row \[3.0, 4.0\]"),
        ([-INF, INF], r"gave inf for the row \[3.0, 4.0\]"),
        (np.zeros(3), r"gave an array of shape \(3,\) for rows of shape"),
        (np.zeros(2, complex), "dtype complex128; it must give real numbers"),
    ],
)
def test_log_densities__are_real_numbers(given_back, message):
    rows = np.array([[1.0, 2.0], [3.0, 4.0]])

    with pytest.raises(ValueError, match=message):
        LikelihoodRatio(lambda given: np.array(given_back), "knn").log_densities(rows)
    of_zero_and_one = LikelihoodRatio(lambda given: [0, 1], "knn")
    assert of_zero_and_one.log_densities(rows).dtype == np.float64
    assert of_zero_and_one.log_densities(rows[:0]).shape == (0,)
