"""On public data: nominal rows are flagged at the rate asked for, and anomalies more."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from lpe_dask import LPE

ALPHAS = np.array([0.01, 0.05, 0.1])

#: Data set -> the least area under the ROC curve; half of the nominal rows are fitted.
AREAS = {
    "6_cardio": 0.85,
    "38_thyroid": 0.9,
    "30_satellite": 0.75,
    "28_pendigits": 0.95,
    "23_mammography": 0.8,
}


@pytest.fixture(scope="module", params=AREAS)
def split(request, data_folder):
    """Nominal rows, held-out nominal rows and anomalies of one data set."""
    with np.load(data_folder / "adbench" / f"{request.param}.npz") as file:
        rows, is_anomaly = file["X"], file["y"].astype(bool)
    order = np.random.default_rng(0).permutation(np.flatnonzero(~is_anomaly))
    half = len(order) // 2
    return request.param, rows[order[:half]], rows[order[half:]], rows[is_anomaly]


def test_lpe__flags_nominal_rows_at_the_rate_asked_for(split):
    """Not more, that is: equal rows make p-values larger."""
    _, nominal, held_out, _ = split

    p_values = LPE(scale="standard").fit(nominal).score_samples(held_out)

    n, m = len(nominal), len(held_out)
    shares = (p_values[:, None] <= ALPHAS).mean(axis=0)
    expected = (np.floor(ALPHAS * n) + 1) / (n + 1)
    deviation = np.sqrt(ALPHAS * (1 - ALPHAS) * (1 / n + 1 / m))
    assert (shares <= expected + 5 * deviation).all()


def test_lpe__ranks_anomalies_first(split):
    name, nominal, held_out, anomalies = split

    model = LPE(scale="standard").fit(nominal)
    statistic = model.statistic(np.concatenate([held_out, anomalies]))

    is_anomaly = np.arange(len(statistic)) >= len(held_out)
    assert roc_auc_score(is_anomaly, statistic) > AREAS[name]
