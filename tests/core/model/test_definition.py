"""Models of every kind find what the definitions say, however rows come and are cut."""

import tempfile

import dask
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lpe_dask
from choosing import dealt, mostly_full, pairs
from compiling import WAYS, taking
from lpe_dask import LPE
from oracle import Oracle
from problems import METRICS, SCALES, computed, cut, problems

pytestmark = pytest.mark.filterwarnings("ignore:.*, and no p-value:UserWarning")

METHODS = ["statistic", "score_samples", "predict"]
OWN = ["calibration_", "p_values_"]


@pytest.mark.parametrize(
    ("metric", "scale"), mostly_full(pairs(METRICS, SCALES), dealt(METRICS, SCALES))
)
@given(data=st.data())
def test_lpe__is_the_definition(metric, scale, data):
    """Fitted with compiled kernels or without, and asked either way; also from a disk."""
    nominal, new, arguments = data.draw(problems(metric, scale))
    ways = st.sampled_from(sorted(WAYS))
    oracle = Oracle(nominal, **arguments)

    with dask.config.set({"scheduler": "sync", "lpe-dask.block-rows": 64}):
        with taking(data.draw(ways)):
            model = LPE(**arguments).fit(data.draw(cut(nominal)))
        with taking(data.draw(ways)), tempfile.TemporaryDirectory() as folder:
            check(model, oracle, new, OWN)
            n_kept = len(oracle.nominal)
            assert (model.n_samples_, model.n_dropped_) == (n_kept, len(nominal) - n_kept)
            rows = data.draw(cut(new))
            check(model, oracle, new, METHODS, rows)
            decisions = computed(model.decision_function(rows))
            np.testing.assert_array_equal(decisions < 0, oracle.predict(new) == -1)
            own = np.where(oracle.p_values_ <= model.alpha, -1, 1)
            np.testing.assert_array_equal(model.fit_predict(nominal), own)
            if data.draw(st.booleans()):
                model.save(f"{folder}/model")
                density = model.anomaly_log_density
                loaded = lpe_dask.load(f"{folder}/model", anomaly_log_density=density)
                check(loaded, oracle, new, ["calibration_", *METHODS], rows)


def check(model, oracle, new, names, rows=None):
    """Compare some results with what is right, to the last bit."""
    for name in names:
        found, right = getattr(model, name), getattr(oracle, name)
        if not name.endswith("_"):
            found, right = found(rows), right(new)
        np.testing.assert_array_equal(computed(found), right, name)


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
