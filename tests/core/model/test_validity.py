"""What the promise on false alarms depends on, and which calibration keeps it."""

import numpy as np
import pytest

from lpe_dask import LPE
from lpe_dask.model.validity import (
    choose_calibration,
    false_alarm_bound,
    flagged_places,
    learned_components,
    min_rows_for_loo,
    n_flagged_ranks,
)


@pytest.mark.parametrize("n", [1, 7, 20, 99, 100, 1000])
@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.07, 0.29, 0.57, 0.999])
def test_n_flagged_ranks__counts_p_values_as_they_are_compared(alpha, n):
    expected = sum(count / n <= alpha for count in range(1, n + 1))

    assert n_flagged_ranks(alpha, n) == expected
    np.testing.assert_array_equal(n_flagged_ranks(alpha, np.array([0, n])), [0, expected])
    assert false_alarm_bound(alpha, n) == (expected + 1) / (n + 1)


@pytest.mark.parametrize("includes_self", [False, True])
@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.07, 0.29, 0.57, 0.999])
def test_flagged_places__are_those_with_a_p_value_up_to_alpha(alpha, includes_self):
    sizes = np.array([1, 7, 20, 99, 100, 1000])
    flagged = [
        [(j + includes_self) / (m + includes_self) <= alpha for j in range(m + 1)]
        for m in sizes
    ]

    found = flagged_places(alpha, sizes, includes_self=includes_self)

    assert found.tolist() == [sum(of) for of in flagged]


@pytest.mark.parametrize(
    ("arguments", "learned"),
    [
        ({}, None),
        ({"metric_params": {"w": [1, 2]}}, None),
        ({"metric": "seuclidean", "metric_params": {"V": [1, 2]}}, None),
        ({"metric": "mahalanobis", "metric_params": {"VI": np.eye(2)}}, None),
        ({"scale": "minmax"}, "ranges"),
        (
            {"scale": "minmax", "metric": "mahalanobis", "metric_params": {"VI": 1}},
            "ranges",
        ),
        ({"scale": "standard"}, "variances"),
        ({"scale": "minmax", "metric": "seuclidean"}, "variances"),
        ({"scale": "quantile"}, "quantiles"),
        ({"scale": "minmax+quantile"}, "ranges and quantiles"),
        ({"scale": "quantile", "metric": "seuclidean"}, "quantiles and variances"),
        (
            {"scale": "quantile", "metric": "seuclidean", "metric_params": {"V": [1]}},
            "quantiles",
        ),
        (
            {"scale": "minmax+quantile", "metric": "mahalanobis"},
            "ranges and quantiles and covariance",
        ),
        ({"scale": "standard", "metric": "mahalanobis"}, "covariance"),
        ({"metric": "geodesic", "metric_params": {"graph": "union"}}, "neighbor graph"),
        ({"metric": "geodesic"}, None),
        ({"metric": "geodesic", "scale": "minmax"}, "ranges"),
        ({"missing": "measure"}, "medians"),
        ({"missing": "measure", "scale": "standard"}, "variances and medians"),
    ],
)
def test_learned_components__are_what_distances_depend_on(arguments, learned):
    arguments = {"scale": None, "metric": "euclidean", "metric_params": None} | arguments

    assert learned_components(arguments) == learned


@pytest.mark.parametrize("metric", ["seuclidean", "mahalanobis"])
def test_learned_components__do_not_depend_on_a_scale_that_the_metric_undoes(metric):
    nominal = np.random.default_rng(0).standard_normal((200, 3)) * [1, 5, 0.1]

    plain = LPE(metric=metric, calibration="loo").fit(nominal).p_values_

    for scale in ("minmax", "standard"):
        scaled = LPE(metric=metric, scale=scale, calibration="loo").fit(nominal)
        np.testing.assert_array_equal(scaled.p_values_, plain)


@pytest.mark.parametrize(
    "learned",
    [
        "ranges", "variances", "covariance", "quantiles", "ranges and quantiles",
        "ranges and quantiles and covariance", "medians",
    ],
)  # fmt: skip
@pytest.mark.parametrize("n_features", [1, 2, 30])
def test_choose_calibration__from_enough_rows_on(learned, n_features):
    least = int(min_rows_for_loo(learned, n_features))

    assert choose_calibration(learned, least - 1, n_features)[0] == "conformal"
    assert choose_calibration(learned, least, n_features)[0] == "loo"


def test_min_rows_for_loo__of_scale_and_metric_are_those_of_each():
    ranges, quantiles = min_rows_for_loo("ranges", 9), min_rows_for_loo("quantiles", 9)

    assert min_rows_for_loo("ranges and quantiles", 9) == ranges + quantiles
    of_metric = min_rows_for_loo("covariance", 9)
    assert min_rows_for_loo("quantiles and covariance", 9) == quantiles + of_metric
    both = min_rows_for_loo("ranges and quantiles and medians", 9)
    assert both == ranges + quantiles + min_rows_for_loo("medians", 9)
    # A metric is then learned from two forms of each column.
    found = min_rows_for_loo("ranges and quantiles and covariance", 9) - ranges - quantiles
    assert found == min_rows_for_loo("covariance", 18)


def test_choose_calibration__of_what_no_number_of_rows_mends():
    assert choose_calibration(None, 1, 1000)[0] == "loo"
    assert choose_calibration("neighbor graph", 10**9, 2)[0] == "conformal"
