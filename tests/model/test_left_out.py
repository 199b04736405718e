"""What learning adds to false alarms: against learning anew without each row."""

import dask.array as da
import numpy as np
import pytest

import false_alarms
from lpe_dask import LPE
from lpe_dask.model import left_out
from lpe_dask.model.detector import fitted_of
from lpe_dask.model.left_out import MOST_ROWS, added_false_alarms
from lpe_dask.model.scaling import learn_scaling
from lpe_dask.pvalues.validity import what_is_learned
from lpe_dask.search.plan import Statistic
from lpe_dask.search.preparation import LinearMap, Preparation

ROWS = np.random.default_rng(1).standard_t(3, (40, 4))


def estimated(nominal, arguments, asked, alpha):
    model = LPE(calibration="loo", **arguments).fit(nominal)
    given = {"scale": None, "metric": "euclidean", "metric_params": None} | arguments
    learned = what_is_learned(given["scale"], given["metric"], given["metric_params"])
    preparation = fitted_of(model).reference.space.preparation
    return added_false_alarms(nominal, preparation, learned, asked, len(nominal), alpha)


@pytest.mark.parametrize(
    ("learned", "size"), [("variances", np.var), ("ranges", lambda x: np.ptp(x) ** 2)]
)
def test_stretched__is_what_is_learned_with_a_row_over_what_is_without_it(learned, size):
    found = left_out._STRETCHED[learned](ROWS, len(ROWS))

    for i, j in np.ndindex(ROWS.shape):
        without = np.delete(ROWS[:, j], i)
        np.testing.assert_allclose(found[i, j], size(ROWS[:, j]) / size(without))


def test_without_own_knot__is_about_what_the_others_say():
    """To the share of a row; exactly beyond the ends, in units of the others' range."""
    rows = np.concatenate([ROWS, ROWS[-1:] * [1, 1, 0, 0]])
    knots = false_alarms.knots_of(rows)

    found = left_out._without_own_knot(rows, knots.apply(rows), knots)

    for i, row in enumerate(rows):
        others = false_alarms.knots_of(np.delete(rows, i, axis=0))
        expected = others.apply(row[None])[0]
        np.testing.assert_allclose(found[i], expected, atol=1.01 / len(rows))
    assert (np.abs(found - knots.apply(rows)) > 0.1).any()


def test_common_stretch__is_how_much_squared_distances_grow_on_average():
    rng = np.random.default_rng(0)
    lengths, stretched = np.array([1.0, 0.3, 2.0, 5.0]), rng.uniform(1, 2, ROWS.shape)

    found = left_out._common_stretch(ROWS, stretched, LinearMap(factor=lengths))

    squares = ((ROWS * lengths) ** 2).sum()
    for i, factors in enumerate(stretched):
        grown = ((ROWS * np.sqrt(factors) * lengths) ** 2).sum()
        np.testing.assert_allclose(found[i], grown / squares)


def test_without_covariance__is_that_of_the_other_rows():
    """Up to a factor that all rows have in common."""
    whitened = ROWS @ np.linalg.inv(np.linalg.cholesky(np.cov(ROWS.T))).T
    asked = Statistic(3, None)

    among, alone = left_out._without_covariance(
        whitened - whitened.mean(axis=0), np.arange(len(ROWS)), asked, len(ROWS)
    )

    for i, row in enumerate(ROWS):
        others = np.delete(ROWS, i, axis=0)
        inverse = np.linalg.inv(np.cov(others.T)) * 39 / 38
        steps = others - row
        squares = np.sort(np.einsum("ij,jk,ik->i", steps, inverse, steps))
        lengths = np.einsum("ij,jk,ik->i", steps, np.linalg.inv(np.cov(ROWS.T)), steps)
        leverage = ((whitened[i] - whitened.mean(axis=0)) ** 2).sum() * 40 / 39**2
        common = 1 + leverage / (1 - leverage) / 4
        np.testing.assert_allclose(among[i], np.sort(lengths)[2])
        np.testing.assert_allclose(alone[i] * common, squares[2])


@pytest.mark.parametrize(
    ("arguments", "same"),
    [
        ({"scale": "standard"}, {"metric": "seuclidean"}),
        ({"scale": "minmax"}, {"scale": "minmax", "metric_params": {"w": [4.0] * 12}}),
        (
            {"scale": "minmax"},
            {
                "scale": "minmax",
                "metric": "mahalanobis",
                "metric_params": {"VI": np.eye(12)},
            },
        ),
        ({"metric": "mahalanobis"}, {"metric": "mahalanobis", "scale": "standard"}),
    ],
)
def test_added_false_alarms__of_the_same_distances_are_the_same(arguments, same):
    rows = np.random.default_rng(1).standard_t(3, (40, 12))

    found = [estimated(rows, a, Statistic(3, None), 0.1) for a in (arguments, same)]

    assert found[0] == found[1] > 1


def test_added_false_alarms__of_means_are_not_those_of_kth_distances():
    asked = [Statistic(9, None, aggregation=name) for name in ("kth", "mean")]

    kth, mean = (estimated(ROWS, {"scale": "standard"}, of, 0.2) for of in asked)

    assert 1 < mean != kth > 1


def test_added_false_alarms__of_categories_are_those_of_a_column_of_0_and_1():
    """Of which the range is the same without any row."""
    rng = np.random.default_rng(1)
    rows = np.hstack([rng.standard_t(3, (40, 12)), rng.integers(0, 2, (40, 1))])
    of_all = learn_scaling(da.from_array(rows), "minmax", [*"abcdefghijklm"])
    of_numbers = learn_scaling(da.from_array(rows[:, :12]), "minmax", [*"abcdefghijkl"])
    mixed = Preparation(of_numbers, LinearMap(), (12,), np.ones(1))
    arguments = "ranges", Statistic(3, None), 40, 0.1

    found = added_false_alarms(rows, mixed, *arguments)

    assert found == added_false_alarms(rows, Preparation(of_all), *arguments) > 1
    without = rows[:, :12], Preparation(of_numbers), *arguments
    assert found != added_false_alarms(*without)


@pytest.mark.parametrize("arguments", [{"scale": "standard"}, {"metric": "mahalanobis"}])
def test_added_false_alarms__of_means_of_one_are_those_of_the_nearest(arguments):
    asked = [Statistic(1, None, aggregation=name) for name in ("kth", "mean")]

    kth, mean = (estimated(ROWS, arguments, of, 0.1) for of in asked)

    assert kth == mean


@pytest.mark.parametrize("learned", false_alarms.LEARNED)
def test_added_false_alarms__are_those_of_new_rows(learned):
    rng = np.random.default_rng(0)
    simulated = false_alarms.cell("heavy-tailed", learned, 60, 20, 12_000)
    estimates = []
    for nominal in rng.standard_t(3, (30, 60, 20)):
        preparation = false_alarms.LEARNED[learned](nominal)
        estimates.append(
            added_false_alarms(nominal, preparation, learned, Statistic(5, None), 60, 0.05)
        )

    added = simulated["added_0.05"]
    assert added >= 1.5
    assert abs(np.mean(estimates) - added) <= 0.25 * (added - 1)


def test_added_false_alarms__of_counts_within_a_radius():
    """Many rows have no other within it: these tie, and none of them is flagged."""
    rng = np.random.default_rng(0)
    arguments = {"scale": "standard", "graph": "radius", "radius": 4.0}
    ratios = [
        estimated(rows, arguments, Statistic(None, 4.0), 0.1)
        for rows in rng.standard_t(3, (10, 60, 12))
    ]

    assert 1 <= np.mean(ratios) <= 2
    assert estimated(ROWS, arguments | {"radius": 1e-9}, Statistic(None, 1e-9), 0.1) == 1


@pytest.mark.parametrize("metric", ["variances", "covariance"])
@pytest.mark.parametrize("scale", ["quantiles", "ranges and quantiles"])
def test_added_false_alarms__of_scale_and_metric_are_those_of_the_one_that_adds_more(
    scale, metric
):
    rows = np.random.default_rng(0).standard_t(3, (60, 6))
    arguments = {
        "scale": {"quantiles": "quantile"}.get(scale, "minmax+quantile"),
        "metric": {"variances": "seuclidean"}.get(metric, "mahalanobis"),
    }
    model = LPE(calibration="loo", **arguments).fit(rows)
    preparation = fitted_of(model).reference.space.preparation
    asked = rows, preparation

    one, other, both = (
        added_false_alarms(*asked, learned, Statistic(3, None), 60, 0.1)
        for learned in (scale, metric, f"{scale} and {metric}")
    )

    assert one != other
    assert both == max(one, other)


@pytest.mark.parametrize(
    ("learned", "scale"),
    [
        ("ranges", None), ("variances", None), ("quantiles", "quantile"),
        ("ranges and quantiles", "minmax+quantile"),
    ],
)  # fmt: skip
def test_added_false_alarms__of_rows_that_are_no_example(learned, scale):
    """Constant columns, ties, three rows, and K as large as can be."""

    def prepared(rows):
        names = [str(k) for k in range(rows.shape[1])]
        return Preparation(learn_scaling(da.from_array(rows), scale, names))

    for rows in (
        np.ones((3, 2)),
        np.arange(6.0).reshape(3, 2),
        np.repeat(np.eye(3), 4, axis=0),
    ):
        asked, preparation = Statistic(len(rows) - 1, None), prepared(rows)
        ratio = added_false_alarms(rows, preparation, learned, asked, len(rows), 0.05)
        assert 0 <= ratio < 10
    many = np.random.default_rng(0).standard_normal((2 * MOST_ROWS, 2))
    asked = Statistic(len(many) - 1, None)
    preparation = prepared(many)
    ratio = added_false_alarms(many, preparation, learned, asked, len(many), 0.05)
    assert 0.9 < ratio < 1.1
