import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import definitions
from choosing import mostly_dealt
from lpe_dask import LPE
from lpe_dask.model.learning.metrics import learned_mahalanobis_matrix, mahalanobis_matrix
from lpe_dask.search.preparation import Preparation, Scaling
from strategies import point_sets

VI = np.array([[2.0, 0.3, 0.0], [0.3, 1.0, -0.2], [0.0, -0.2, 0.7]])


@given(points=point_sets(n_features=3), data=st.data())
def test_mahalanobis_matrix__equals_its_definition_however_rows_are_cut(points, data):
    cut = data.draw(st.integers(0, len(points)))
    preparation = Preparation(matrix=mahalanobis_matrix(VI))

    parts = [preparation.apply(part) for part in (points[:cut], points[cut:])]

    np.testing.assert_array_equal(np.concatenate(parts), definitions.whitened(points, VI))


@pytest.mark.parametrize(
    ("metric", "params", "message"),
    [
        ("euclidean", {"V": [1, 1]}, r"has \['V'\], but metric='euclidean' takes 'w' only"),
        ("mahalanobis", {"VI": np.eye(2), "w": [1, 1]}, r"has \['w'\]"),
        ("euclidean", {"w": [1, 1, 1]}, r"shape \(3,\), but the rows have 2 columns"),
        ("euclidean", {"w": [1, -1]}, "must not be negative; the smallest is -1"),
        ("euclidean", {"w": [1, np.nan]}, "NaN or inf"),
        ("seuclidean", {"V": [1, 0]}, "must be positive; the smallest is 0"),
        ("mahalanobis", {"VI": [1, 1]}, r"give an array of shape \(2, 2\)"),
        ("mahalanobis", {"VI": [[1, 2], [0, 1]]}, "must be symmetric"),
        ("mahalanobis", {"VI": [[1, 2], [2, 1]]}, "positive definite; its smallest.* -1"),
    ],
)
def test_metric_params__are_checked(metric, params, message):
    with pytest.raises(ValueError, match=message):
        LPE(2, metric=metric, metric_params=params).fit(np.eye(5)[:, :2])


@pytest.mark.parametrize(
    ("extra", "named"),
    [
        (lambda x: np.full(len(x), 0.1), "same is constant"),
        (lambda x: x[:, 0] * 3 - x[:, 1], "is determined by the other columns"),
        (lambda x: x[:, 0] + 1e-9 * x[:, 1] ** 2, "is determined by the other columns"),
    ],
)
def test_mahalanobis__names_columns_that_make_the_covariance_singular(extra, named):
    import pandas as pd

    rows = np.random.default_rng(0).standard_normal((50, 2))
    frame = pd.DataFrame(rows, columns=["a", "b"]).assign(same=extra(rows))

    with pytest.raises(ValueError, match=named) as caught:
        LPE(2, metric="mahalanobis").fit(frame)

    assert "--columns" in str(caught.value)


def test_learned_mahalanobis_matrix__of_units_far_apart():
    """What is singular does not depend on the units of the columns."""
    units = np.array([1e-9, 1.0, 1e12])
    covariance = np.cov((np.random.default_rng(0).standard_normal((50, 3)) * units).T)

    root = learned_mahalanobis_matrix(covariance, np.zeros(3, bool), list("abc"))

    inverse = (root @ root.T) * np.outer(units, units)
    np.testing.assert_allclose(
        inverse @ (covariance / np.outer(units, units)), np.eye(3), atol=1e-12
    )
    np.testing.assert_array_equal(root, np.tril(root))


def test_mahalanobis__learned_from_a_lattice_equals_its_definition():
    """Many distances tie there, so that any other arithmetic gives other p-values."""
    nominal = np.random.default_rng(0).integers(0, 4, (120, 3)) * 0.1
    covariance = np.array(
        [[definitions.covariance(a, b, 1) for b in nominal.T] for a in nominal.T]
    )
    deviations = np.sqrt(np.diag(covariance))
    correlation = covariance / (deviations[:, None] * deviations)
    root = definitions.cholesky_of_inverse(correlation.tolist()) / deviations[:, None]

    model = LPE(4, metric="mahalanobis", calibration="loo").fit(nominal)

    mapped = definitions.mapped(nominal, root)
    radii = definitions.knn_radii(mapped, mapped, 4, True)
    np.testing.assert_array_equal(model.statistic_, radii)


def test_seuclidean__constant_column_keeps_its_unit():
    nominal = np.column_stack([np.arange(6.0), np.full(6, 0.1)])
    model = LPE(1, metric="seuclidean", calibration="loo").fit(nominal)

    assert model.statistic([[0.0, 3.1]]) == 3.0


@pytest.mark.parametrize("scale", ["minmax", "standard"])
def test_scale__constant_column_keeps_its_unit(scale):
    """Nominal rows come out at exactly 0, others at their difference."""
    nominal = np.column_stack([np.arange(6.0), np.full(6, 0.1)])
    model = LPE(1, scale=scale, calibration="loo").fit(nominal)

    assert model.statistic([[0.0, 0.1]]) == 0.0
    assert model.statistic([[0.0, 2.6]]) == 2.5


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_preparation__keeps_what_is_not_finite_in_its_row(value):
    preparation = Preparation(Scaling(np.zeros(3), np.ones(3)), mahalanobis_matrix(VI))
    rows = np.array([[1.0, 2.0, 3.0], [value, 2.0, 3.0], [1e308, -1e308, 1e308]])

    prepared = preparation.apply(rows)

    assert np.isfinite(prepared).all(axis=1).tolist() == [True, False, True]
    np.testing.assert_array_equal(prepared[:1], preparation.apply(rows[:1]))


UNITS = [1e-300, 1e-170, 1e-160, 1e-154, 1e154, 1e160, 1e300]


@pytest.mark.parametrize(
    ("unit", "n_scaled"),
    mostly_dealt(UNITS, [1, 2]),
)
def test_mahalanobis__refuses_units_that_float64_cannot_invert(unit, n_scaled):
    """And takes them by what the message says."""
    plain = np.random.default_rng(0).standard_normal((400, 2))
    rows = plain.copy()
    rows[:, :n_scaled] *= unit

    with pytest.raises(ValueError, match=r"variance of column 0.*multiply.*'minmax'"):
        LPE(3, metric="mahalanobis").fit(rows)

    expected = LPE(3, metric="mahalanobis").fit(plain)
    rows[:, :n_scaled] *= 1 / unit
    multiplied = LPE(3, metric="mahalanobis").fit(rows)
    np.testing.assert_allclose(multiplied.calibration_, expected.calibration_, rtol=1e-9)
    rows[:, :n_scaled] *= unit
    scaled = LPE(3, metric="mahalanobis", scale="minmax").fit(rows)
    np.testing.assert_allclose(scaled.calibration_, expected.calibration_, rtol=1e-9)


EXTENTS = [5e-324, 1e-308, 1e-170, 1e200, 1e308]
VARIANCES = ["mahalanobis", "seuclidean"], [None, "standard"], EXTENTS


@pytest.mark.parametrize(
    ("metric", "scale", "extent"),
    mostly_dealt(*VARIANCES),
)
def test_metrics__name_a_column_whose_variance_is_no_float64(metric, scale, extent):
    """It is not called constant, and what is said to do works."""
    plain, unit = _with_two_values(), np.array([extent, 1.0])
    model = LPE(3, metric=metric, scale=scale)

    with pytest.raises(ValueError, match=r"variance of column 0 is .*multiply") as caught:
        model.fit(plain * unit)

    assert "constant" not in str(caught.value)
    if "scale='minmax'" in str(caught.value) and extent >= 1e-308:
        LPE(3, metric=metric, scale="minmax").fit(plain * unit)
    model.fit((plain * unit)[:, 1:])
    found = model.fit(plain * unit / unit).calibration_
    np.testing.assert_array_equal(found, model.fit(plain).calibration_)


@pytest.mark.parametrize(
    "of_kind", [pd.DataFrame, da.from_array, lambda x: dd.from_pandas(pd.DataFrame(x))]
)
@pytest.mark.parametrize("calibration", ["loo", "conformal"])
def test_mahalanobis__calls_no_column_constant_that_is_not(of_kind, calibration):
    rows = _with_two_values() * [1e-170, 1.0]

    with pytest.raises(ValueError, match=r"variance of (0|column 0) is too large or too"):
        LPE(3, metric="mahalanobis", calibration=calibration).fit(of_kind(rows))


def _with_two_values():
    rng = np.random.default_rng(0)
    return np.column_stack([rng.integers(0, 2, 80), rng.standard_normal(80)])


def test_mahalanobis__needs_no_inverse_within_float64():
    """The variances are usable, but the columns are nearly dependent."""
    rows = np.random.default_rng(0).standard_normal((400, 2))
    rows[:, 1] = rows[:, 0] + 1e-3 * rows[:, 1]

    plain = LPE(3, metric="mahalanobis").fit(rows)
    scaled = LPE(3, metric="mahalanobis").fit(rows * 3e-154)

    np.testing.assert_allclose(scaled.calibration_, plain.calibration_, rtol=1e-9)


@pytest.mark.parametrize("unit", [1e-150, 1e-100, 1e100, 1e150])
def test_mahalanobis__takes_units_far_apart(unit):
    rows = np.random.default_rng(0).standard_normal((400, 2))

    plain = LPE(3, metric="mahalanobis").fit(rows)
    scaled = LPE(3, metric="mahalanobis").fit(rows * [unit, 1.0])

    np.testing.assert_allclose(scaled.calibration_, plain.calibration_, rtol=1e-9)


def test_metric_params__with_names_are_in_the_order_of_the_columns():
    rows = pd.DataFrame(np.random.default_rng(0).random((30, 2)), columns=["a", "b"])
    expected = LPE(3, metric_params={"w": [1, 2]}).fit(rows).p_values_

    for w in (pd.Series({"a": 1, "b": 2}), pd.Series([1, 2])):
        found = LPE(3, metric_params={"w": w}).fit(rows)
        np.testing.assert_array_equal(found.p_values_, expected)
    with pytest.raises(ValueError, match=r"Give w\.loc\[\['a', 'b'\]\]"):
        LPE(3, metric_params={"w": pd.Series({"b": 2, "a": 1})}).fit(rows)
    covariance = rows[["b", "a"]].cov()
    with pytest.raises(ValueError, match=r"Give VI\.loc\[\['a', 'b'\], \['a', 'b'\]\]"):
        LPE(3, metric="mahalanobis", metric_params={"VI": covariance}).fit(rows)


def test_metric_params__that_are_masked():
    w = np.ma.array([1.0, 2.0], mask=[False, True])

    with pytest.raises(ValueError, match="holds NaN"):
        LPE(3, metric_params={"w": w}).fit(np.random.default_rng(0).random((30, 2)))


@pytest.mark.parametrize("weights", ["ab", [1, [2]], {"x": 1}])
def test_metric_params__that_are_no_numbers(weights):
    with pytest.raises(
        ValueError, match=r"metric_params\['w'\] must be an array of numbers.*[^.]\.$"
    ):
        LPE(2, metric_params={"w": weights}).fit(np.eye(5)[:, :2])
