"""The promise on false alarms: what it depends on, and that the default keeps it."""

import itertools
import logging
import math

import dask
import numpy as np
import pytest
from scipy import stats

from choosing import mostly_slow
from lpe_dask import LPE
from lpe_dask.model.validity import false_alarm_bound

ALPHAS = (0.01, 0.05, 0.1)


def test_auto__logs_what_it_took_and_why(caplog):
    nominal = np.random.default_rng(0).standard_normal((90, 2))
    caplog.set_level(logging.INFO, "lpe_dask")

    few = LPE(scale="standard", random_state=0).fit(nominal)
    many = LPE(scale="standard").fit(np.tile(nominal, (2, 1)))

    assert (few.calibration_kind_, many.calibration_kind_) == ("conformal", "loo")
    assert (len(few.calibration_), len(many.calibration_)) == (45, 180)
    logged = [line for line in caplog.messages if line.startswith("calibration=")]
    assert logged == [
        "calibration=conformal: variances of 2 columns learned from 90 nominal rows; 'loo' "
        "would need 140",
        "calibration=loo: variances of 2 columns learned from 180 nominal rows; 'loo' is "
        "right from 140 rows on",
    ]


@pytest.mark.full
def test_most_false_alarms__bounds_the_average_rate():
    """Exactly, for any data: here with many ties and with few rows."""
    rng = np.random.default_rng(0)
    model, rates = LPE(1), []
    with dask.config.set(scheduler="sync"):
        for _ in range(150):
            nominal, new = (rng.integers(0, 50, (size, 1)) / 1.0 for size in (9, 40))
            rates.append((model.fit(nominal).score_samples(new) <= 0.15).mean())

    mean, error = mean_and_error(np.array(rates))
    assert false_alarm_bound(0.15, 9) == 0.2
    assert 0.1 < mean < 0.2 + 3 * error


def shares_of_sets(models, n_sets, n_rows, n_features, draw):
    """The shares of new rows that several models flag, of shape (sets, models, levels)."""
    rng, shares = np.random.default_rng(20261122), []
    with dask.config.set(scheduler="sync"):
        for _ in range(n_sets):
            nominal, new = np.split(draw(rng, (4 * n_rows, n_features)), [n_rows])
            p_values = [model.fit(nominal).score_samples(new) for model in models]
            shares.append([[(p <= alpha).mean() for alpha in ALPHAS] for p in p_values])
    return np.array(shares)


def mean_and_error(values):
    return values.mean(axis=0), values.std(axis=0, ddof=1) / math.sqrt(len(values))


def heavy_tailed(rng, shape):
    return rng.standard_t(3, shape)


def rounded(rng, shape):
    return rng.standard_normal(shape).round()


def heavy_tailed_with_gaps(rng, shape):
    rows = rng.standard_t(3, shape)
    rows[rng.random(shape) < 0.1] = np.nan
    return rows


DRAWS = [np.random.Generator.standard_normal, heavy_tailed, rounded]
LEARNED = [
    {"scale": "minmax"},
    {"scale": "standard"},
    {"scale": "standard", "graph": "radius", "radius": 4.5},
    {"scale": "minmax", "graph": "radius"},
    {"metric": "seuclidean"},
    {"scale": "quantile"},
    {"scale": "minmax+quantile"},
    {"metric": "mahalanobis"},
    {"metric": "mahalanobis", "scale": "minmax", "n_neighbors": 2},
    {"metric": "geodesic", "metric_params": {"n_neighbors": 3, "graph": "union"}},
]


@pytest.mark.parametrize(
    "arguments", mostly_slow(LEARNED, LEARNED[1::2], [{"scale": "standard"}])
)
def test_auto__keeps_the_promise_where_scale_or_metric_are_learned(arguments):
    """With 60 rows and 12 columns "loo" flags up to four times as many as it should."""
    model = LPE(algorithm="brute", **arguments)

    (shares, errors) = mean_and_error(
        shares_of_sets([model], 40, 60, 12, np.random.Generator.standard_normal)[:, 0]
    )

    m = len(model.calibration_)
    exact = np.array([math.floor(alpha * (m + 1)) / (m + 1) for alpha in ALPHAS])
    assert model.calibration_kind_ == "conformal"
    assert (shares <= exact + 4 * errors + 1e-12).all()
    if "graph" not in arguments:  # counts tie, and ties lower the share
        assert (shares >= exact - 4 * errors - 1e-12).all()


GIVEN = [
    ({}, 12),
    ({"metric_params": {"w": [1.0, 0.1]}}, 2),
    ({"metric": "seuclidean", "metric_params": {"V": [1.0, 4.0]}}, 2),
    ({"metric": "mahalanobis", "metric_params": {"VI": [[2.0, 0.5], [0.5, 1.0]]}}, 2),
    ({"graph": "radius", "radius": 1.0}, 2),
    ({"calibration_size": 40}, 12),
    ({"metric": "geodesic", "metric_params": {"n_neighbors": 5}}, 2),
]
DRAWN = [(*given, draw) for given in GIVEN for draw in (heavy_tailed, rounded)]


@pytest.mark.parametrize(
    ("arguments", "n_features", "draw"),
    mostly_slow(
        DRAWN,
        [case for case in DRAWN if case[-1] is heavy_tailed or not case[0]],
        [case for case in DRAWN if not case[0]],
    ),
)
def test_auto__keeps_the_promise_where_nothing_is_learned(arguments, n_features, draw):
    model = LPE(algorithm="brute", **arguments)

    shares, errors = mean_and_error(shares_of_sets([model], 40, 60, n_features, draw)[:, 0])

    bounds = np.array(
        [false_alarm_bound(alpha, len(model.calibration_)) for alpha in ALPHAS]
    )
    assert model.calibration_kind_ == "loo"
    assert (shares <= bounds + 4 * errors).all()
    is_near = draw is not rounded and not {"graph", "metric"} & set(arguments)
    if is_near:  # ties and neighbor graphs make p-values larger
        assert (shares >= 0.85 * bounds - 4 * errors).all()


ENOUGH = [
    ({"scale": "standard"}, 350, 5),
    ({"metric": "seuclidean"}, 140, 2),
    ({"scale": "minmax+quantile"}, 3229, 2),
    ({"scale": "minmax"}, 400, 2),
    ({"metric": "mahalanobis"}, 450, 5),
    ({"scale": "quantile"}, 2829, 2),
]


# In the quick tests heavy tails, to which learning adds the most.
@pytest.mark.parametrize(
    ("arguments", "n_rows", "n_features", "draw"),
    mostly_slow(
        [(*enough, draw) for enough in ENOUGH for draw in DRAWS],
        [(*enough, heavy_tailed) for enough in (ENOUGH[0], *ENOUGH[3:])],
        [(*ENOUGH[3], heavy_tailed)],
    ),
)
def test_auto__keeps_the_promise_where_rows_are_enough(arguments, n_rows, n_features, draw):
    """What learning adds shows against nothing learned from the same rows."""
    models = [LPE(algorithm="brute", **arguments), LPE(algorithm="brute")]

    shares = shares_of_sets(models, 25, n_rows, n_features, draw)

    bounds = np.array([false_alarm_bound(alpha, n_rows) for alpha in ALPHAS])
    assert models[0].calibration_kind_ == "loo"
    total, errors = mean_and_error(shares[:, 0])
    assert (total <= 1.1 * bounds + 4 * errors).all()
    if draw is not rounded:  # where other rows tie when they are scaled
        added, errors = mean_and_error(shares[:, 0] - shares[:, 1])
        assert (np.abs(added) <= 0.1 * bounds + 4 * errors).all()
        assert (4 * errors <= 0.5 * bounds).all()  # or it would tell nothing


@pytest.mark.parametrize("n_sets", mostly_slow([400, 60], [60]))
def test_auto__keeps_the_promise_where_medians_are_learned_from_enough_rows(n_sets):
    model = LPE(missing="measure", algorithm="brute")

    shares, errors = mean_and_error(
        shares_of_sets([model], n_sets, 350, 5, heavy_tailed_with_gaps)[:, 0]
    )

    bounds = np.array([false_alarm_bound(alpha, 350) for alpha in ALPHAS])
    assert model.calibration_kind_ == "loo"
    assert (np.abs(shares - bounds) <= 0.1 * bounds + 4 * errors).all()
    assert (4 * errors <= 0.5 * bounds).all()  # or it would find nothing


@pytest.mark.full
def test_loo__would_break_the_promise_where_rows_are_not_enough():
    """What the tests above would find."""
    models = [LPE(metric="mahalanobis", calibration="loo"), LPE()]

    shares = shares_of_sets(models, 25, 60, 12, np.random.Generator.standard_normal)

    added, errors = mean_and_error(shares[:, 0] - shares[:, 1])
    bounds = np.array([false_alarm_bound(alpha, 60) for alpha in ALPHAS])
    assert (added >= 0.5 * bounds + 4 * errors).all()


SHAPES = [(60, 2), (60, 20), (300, 100)]
OF_LEARNED = [*itertools.product(["auto", "conformal"], LEARNED, SHAPES, DRAWS)]
OF_SPLIT = [
    ("split", {"n_neighbors": 3}, (10 * n_rows, n_features), draw)
    for (n_rows, n_features), draw in itertools.product(SHAPES, DRAWS)
]


@pytest.mark.parametrize(
    ("calibration", "arguments", "shape", "draw"),
    mostly_slow(OF_LEARNED + OF_SPLIT, OF_SPLIT[:3], OF_SPLIT[1:2]),
)
def test_calibrations__keep_the_promise(calibration, arguments, shape, draw):
    """For "split" that is no more than about the level, where nothing is learned."""
    n_rows, n_features = shape
    model = LPE(random_state=0, algorithm="brute", calibration=calibration, **arguments)

    shares, errors = mean_and_error(
        shares_of_sets([model], 100, n_rows, n_features, draw)[:, 0]
    )

    m = len(model.calibration_)
    bounds = np.array([false_alarm_bound(alpha, m) for alpha in ALPHAS])
    if model.calibration_kind_ == "conformal":
        bounds = np.array(ALPHAS)
    assert (shares <= 1.1 * bounds + 4 * errors).all()


def test_auto__tells_how_many_rows_a_covariance_needs():
    """Half of the 60 rows are fewer than the columns."""
    nominal = np.random.default_rng(0).standard_normal((60, 40))

    with pytest.raises(ValueError, match=r"40 columns .* 30 to learn it from .*conformal"):
        LPE(metric="mahalanobis").fit(nominal)

    assert (
        len(LPE(metric="mahalanobis", calibration_size=16).fit(nominal).calibration_) == 16
    )


def test_loo__is_obeyed_with_a_warning_that_says_how_many_rows_it_needs(caplog):
    nominal = np.random.default_rng(0).standard_normal((100, 40))

    model = LPE(metric="mahalanobis", calibration="loo").fit(nominal)

    assert model.calibration_kind_ == "loo"
    (warning,) = caplog.messages
    assert "calibration='loo' with covariance of 40 columns learned from" in warning
    assert "the same 100 nominal rows needs 10120 rows" in warning
    assert "check_calibration (--check-calibration)" in warning
    assert "use calibration='conformal'" in warning


@pytest.mark.parametrize(
    ("arguments", "shape"),
    [
        ({"calibration": "conformal", "metric": "mahalanobis"}, (100, 10)),
        ({"calibration": "loo"}, (100, 40)),
        ({"calibration": "loo", "scale": "standard"}, (140, 2)),
    ],
)
def test_calibrations__that_keep_the_promise_are_not_warned_of(arguments, shape, caplog):
    LPE(1, alpha=0.3, **arguments).fit(np.random.default_rng(0).standard_normal(shape))

    assert caplog.messages == []


def test_p_values__of_rows_that_are_not_measured_in_fit_leave_themselves_out():
    """A row that found itself at distance 0 had p = 1, also the most anomalous one."""
    nominal = np.random.default_rng(0).standard_normal((300, 2))
    nominal[[7, 100]] = [[9.0, 9.0], [-9.0, 9.0]]

    whole = LPE(1).fit(nominal)
    part = LPE(1, calibration_size=30, random_state=0).fit(nominal)

    np.testing.assert_array_equal(part.statistic_, whole.statistic_)
    assert part.p_values_[[7, 100]].tolist() == [0.0, 0.0]
    shares = [(part.p_values_ <= alpha).mean() for alpha in (0.2, 0.5, 0.8)]
    bands = stats.beta.ppf([[1e-4], [1 - 1e-4]], [7, 16, 25], [24, 15, 6])
    assert (shares >= bands[0]).all()
    assert (shares <= bands[1]).all()
