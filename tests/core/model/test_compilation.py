"""Models may be fitted with compiled kernels and score without them, or the reverse.

Small tables of all kinds are searched either way in test_definition.py.
"""

import numpy as np
import pytest

from compiling import taking
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
