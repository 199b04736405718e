"""The simulation of false alarms: its p-values are those of the library."""

import numpy as np
import pytest

import false_alarms
from lpe_dask import LPE

ARGUMENTS = {
    "ranges": {"scale": "minmax"},
    "quantiles": {"scale": "quantile"},
    "ranges and quantiles": {"scale": "minmax+quantile"},
    "variances": {"scale": "standard"},
    "covariance": {"metric": "mahalanobis"},
}


@pytest.mark.parametrize("learned", ARGUMENTS)
@pytest.mark.parametrize("kind", false_alarms.KINDS)
@pytest.mark.parametrize("many_rows", [1, 3000])
def test_p_values__are_those_of_the_library(many_rows, learned, kind, monkeypatch):
    monkeypatch.setattr(false_alarms, "MANY_ROWS", many_rows)
    draw = false_alarms.KINDS[kind](np.random.default_rng(0), 6)
    nominal, new = draw(300), draw(200)
    learn = false_alarms.LEARNED[learned]
    conformal = LPE(calibration="conformal", random_state=0, **ARGUMENTS[learned])
    order = np.random.default_rng(0).permutation(300)  # calibration rows come first

    for (counts, n), model, rows in (
        (false_alarms.loo(learn, nominal, new), LPE(calibration="loo"), nominal),
        (false_alarms.conformal(learn, nominal[order], new), conformal, nominal),
    ):
        expected = model.set_params(**ARGUMENTS[learned]).fit(rows).score_samples(new)

        # Distances of the simulation are of float32.
        assert (np.abs(counts / n - expected) * n).max() <= 1.01
        assert (np.abs(counts / n - expected) > 1e-9).mean() <= 0.05


def test_cell__of_what_keeps_the_promise_and_what_breaks_it():
    kept = false_alarms.cell("normal", "variances", 200, 2, 20_000)
    broken = false_alarms.cell("normal", "covariance", 50, 20, 5_000)

    assert (kept["auto"], broken["auto"]) == ("loo", "conformal")
    assert abs(kept["loo_0.05"] - 1) <= 4 * kept["loo_0.05_error"] + 0.05
    assert broken["loo_0.05"] > 5
    assert broken["conformal_0.05"] <= 1 + 4 * broken["conformal_0.05_error"]
    assert false_alarms.cell("normal", "covariance", 50, 50, 1) is None
