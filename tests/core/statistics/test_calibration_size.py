"""A sample of the nominal rows gives p-values within a band of those of all rows."""

import dask
import numpy as np
from scipy import stats

from lpe_dask import LPE
from lpe_dask.pvalues import dkw_band

RISK = 1e-6


def test_p_values__of_a_sample_are_within_the_band():
    """All at once, in as many draws as said; and half the band is too narrow."""
    rng, n_draws, m = np.random.default_rng(0), 200, 50
    nominal, rows = rng.standard_normal((1000, 1)), np.linspace(0, 4, 200)[:, None]
    with dask.config.set(scheduler="sync"):
        whole = LPE(5, calibration="loo").fit(nominal).score_samples(rows)
        differences = np.array([
            abs(
                LPE(5, calibration="loo", calibration_size=m, random_state=seed)
                .fit(nominal)
                .score_samples(rows)
                - whole
            ).max()
            for seed in range(n_draws)
        ])  # fmt: skip

    band = dkw_band(m)

    most = stats.binom.isf(RISK, n_draws, 1 - band.level)
    assert (differences > band.half_width).sum() <= most
    assert (differences > band.half_width / 2).sum() > most
