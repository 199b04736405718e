"""Small tables are searched without compiled kernels: no result depends on that."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiling import WAYS, taking
from lpe_dask import LPE

#: One of each kind of model, with two columns of numbers.
KINDS = {
    "kth": {},
    "mean": {"aggregation": "mean"},
    "loo": {"calibration": "loo"},
    "large K": {"n_neighbors": 50},
    "radius": {"graph": "radius", "radius": 1.0},
    "weights": {"metric_params": {"w": [1.0, 0.3]}},
    "standard": {"scale": "standard"},
    "quantile": {"scale": "minmax+quantile"},
    "mahalanobis": {"metric": "mahalanobis"},
    "directed": {
        "metric": "geodesic", "metric_params": {"n_neighbors": 4, "graph": "directed"}
    },
    "union": {
        "metric": "geodesic", "metric_params": {"n_neighbors": 4, "graph": "union"},
        "aggregation": "mean",
    },
    "geodesic radius": {"metric": "geodesic", "graph": "radius", "radius": 1.0},
}  # fmt: skip


def results(kind, nominal, queries, **given):
    """Return all that a model says of some rows."""
    model = LPE(random_state=0, alpha=0.5, **{**KINDS[kind], **given}).fit(nominal)
    said = [
        model.statistic(queries), model.score_samples(queries), model.predict(queries),
        model.p_values_,
    ]  # fmt: skip
    if "graph" not in KINDS[kind]:
        said += [model.explain(queries[:5]), model.nearest_nominal(queries[:5])]
    return said


def check_alike(kind, nominal, queries, **given):
    """Compare the results of both ways, and of a change from either to the other."""
    found = []
    for way in WAYS:
        with taking(way):
            found.append(results(kind, nominal, queries, **given))
    for one, other in zip(*found, strict=True):
        if isinstance(one, pd.DataFrame):
            pd.testing.assert_frame_equal(one, other, check_exact=True)
        else:
            np.testing.assert_array_equal(one, other)


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 10**6), n_levels=st.sampled_from([3, 8, 10**6]))
def test_models__say_the_same_without_compilation(kind, seed, n_levels):
    """Of rows that differ, and of such as are equally far away, or equal."""
    rng = np.random.default_rng(seed)
    nominal = rng.integers(0, n_levels, (140, 2)) / 7
    queries = np.vstack([rng.integers(0, n_levels, (20, 2)) / 7, nominal[:5], [[1e200, 0]]])

    check_alike(kind, nominal, queries)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["kth", "mean", "radius", "standard"])
@given(seed=st.integers(0, 10**6))
def test_models_of_categories__say_the_same_without_compilation(kind, seed):
    rng = np.random.default_rng(seed)

    def table(n_rows):
        numbers = pd.DataFrame(rng.integers(0, 5, (n_rows, 2)) / 3, columns=["a", "b"])
        return numbers.assign(code=rng.choice(["x", "y", "z"], n_rows))

    check_alike(kind, table(140), table(20), categorical=["code"])


@pytest.mark.parametrize(
    ("before", "after"), [("compiled", "defined"), ("defined", "compiled")]
)
@pytest.mark.parametrize("kind", KINDS)
def test_models__may_be_fitted_one_way_and_score_the_other(kind, before, after):
    rng = np.random.default_rng(0)
    nominal, queries = rng.standard_normal((300, 2)), rng.standard_normal((30, 2))
    with taking(before):
        model = LPE(random_state=0, alpha=0.5, **KINDS[kind]).fit(nominal)
        expected = model.statistic(queries)

    with taking(after):
        np.testing.assert_array_equal(model.statistic(queries), expected)
