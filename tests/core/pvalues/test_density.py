"""Statistics that a density of anomalies weighs, against the footnote as corrected."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpe_dask import LPE
from lpe_dask.pvalues.density import LikelihoodRatio, log_densities, log_likelihood_ratio

INF, NAN = math.inf, math.nan


@given(
    log=st.sampled_from([-INF, -1.5, 0.0, 2.0]),
    statistic=st.sampled_from([0.0, 1.0, 3.0, INF]),
    n_features=st.integers(1, 3),
)
def test_weigh__is_the_logarithm_of_the_likelihood_ratio(log, statistic, n_features):
    """Where the density is 0 a row is as nominal as possible."""
    log_statistic = math.log(statistic) if statistic else -INF

    (knn,) = log_likelihood_ratio("knn", np.array([log]), np.array([statistic]), n_features)
    (radius,) = log_likelihood_ratio(
        "radius", np.array([log]), np.array([statistic]), n_features
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


@pytest.mark.parametrize("bad", [NAN, INF])
def test_log_densities__tells_the_row_that_has_none(bad):
    rows = np.array([[1.0, 2.0], [3.0, 4.0]])

    with pytest.raises(ValueError, match=rf"gave {bad} for the row \[3.0, 4.0\]"):
        log_densities(lambda given: np.array([-INF, bad]), rows)


def test_log_densities__are_real_numbers_as_float64():
    rows = np.zeros((2, 1))

    assert log_densities(lambda given: [0, 1], rows).dtype == np.float64
    assert log_densities(lambda given: NAN, rows[:0]).shape == (0,)
    with pytest.raises(ValueError, match="dtype complex128; it must give real numbers"):
        log_densities(lambda given: np.zeros(2, complex), rows)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda rows: np.zeros(3), r"gave an array of shape \(3,\) for rows of shape"),
        (lambda rows: np.full(len(rows), np.nan), "gave nan for the row"),
        (lambda rows: np.full(len(rows), np.inf), "gave inf for the row"),
    ],
)
def test_anomaly_log_density__is_checked(function, message):
    with pytest.raises(ValueError, match=message):
        LPE(2, anomaly_log_density=function).fit(np.random.default_rng(0).random((9, 2)))
