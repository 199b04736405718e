"""Verdicts of the monitor over many runs: bursts of anomalies, and usual tests beside it.

The evidence alone, for many more series, is tested in test_drift.py.
"""

import math

import numpy as np
import pytest
from scipy import stats

from lpe_dask.monitoring import new_state, update
from lpe_dask.monitoring.bins import PValueBins
from lpe_dask.monitoring.eprocess import (
    bet_exponents,
    log_evidence,
    log_ratios,
    update_log_wealth,
)

DELTA = 0.01


def bins_of(m):
    return PValueBins.of(np.arange(1, m + 1), 0.01, 0)


def gaps_of(bins):
    """Gaps of zero, the other flagged, the rest of the tail, and the bulk bins."""
    return np.diff([-1, 0, bins.flag, *bins.edges])


def numbers_of(drawn):
    """The numbers of `PValueBins.count`, of rows drawn into `gaps_of`."""
    zero, flagged, tail, *bulk = drawn.tolist()
    return np.array([drawn.sum(), 0, zero + flagged, zero + flagged + tail, *bulk])


def said_of(bins, runs):
    """What is said of each run of counts."""
    state, said = new_state("a model", bins, DELTA, is_exact=True), []
    for run, counts in enumerate(runs):
        said.append(update(state, bins, counts, str(run)))
        state = said[-1].state
    return said


@pytest.mark.parametrize(("m", "n_rows"), [(200, 1), (200, 10**6), (10_000, 1000)])
def test_update__gathers_the_evidence_of_several_series_at_once(m, n_rows):
    """So what is simulated for many series at once holds for those of users."""
    rng, bins = np.random.default_rng([1, m, n_rows]), bins_of(m)
    n_series, n_runs = 3, 20
    shares = rng.dirichlet(gaps_of(bins), n_series)
    drawn = rng.multinomial(n_rows, shares, size=(n_runs, n_series))
    exponents = bet_exponents(bins.widths)
    urn = np.tile(bins.widths.astype(float), (n_series, 1))
    wealth = np.full((n_series, len(exponents)), -np.inf)
    expected = []
    for run, counts in enumerate(drawn[..., 3:], 1):
        ratios = log_ratios(urn, counts.astype(float), exponents)
        wealth = update_log_wealth(wealth, ratios, run)
        urn += counts
        expected.append(log_evidence(wealth, run))

    for i in range(n_series):
        runs = [numbers_of(counts) for counts in drawn[:, i]]
        found = [drift.state["evidence"] for drift in said_of(bins, runs)]

        assert max(found) < math.log(3 / DELTA)
        np.testing.assert_allclose(found, np.array(expected)[:, i], rtol=0, atol=1e-9)


@pytest.mark.parametrize("far", [True, False], ids=["far out", "near"])
@pytest.mark.parametrize(("m", "n_rows"), [(1000, 1000), (10_000, 10_000)])
def test_update__of_bursts_of_anomalies_never_says_drift(m, n_rows, far):
    """3 % of the rows each run, whether no calibration row is like them or some are."""
    rng, bins, n_series = np.random.default_rng([3, m, far]), bins_of(m), 6
    n_burst = round(0.03 * n_rows)
    for shares in rng.dirichlet(gaps_of(bins), n_series):
        runs = []
        for counts in rng.multinomial(n_rows - n_burst, shares, size=20):
            p_values = np.zeros(n_burst) if far else rng.beta(0.3, 6, n_burst)
            burst = bins.count(np.floor(p_values * (m + 1)) / m)
            runs.append(numbers_of(counts) + burst)
        said = said_of(bins, runs)

        assert {drift.verdict for drift in said} == {"no drift"}
        if far and m == 10_000:
            assert said[-1].consecutive_excess_runs == 20
            assert "in 20 runs in a row" in str(said[-1])


@pytest.mark.parametrize(("m", "n_rows"), [(10_000, 10_000), (1000, 100_000)])
def test_update__says_drift_within_a_week_of_a_change_beside_a_burst(m, n_rows):
    """Non-anomalous rows change by .3 standard deviations, after 10 runs without drift."""
    rng, bins, n_series, first = np.random.default_rng([4, m]), bins_of(m), 9, []
    for shares in rng.dirichlet(gaps_of(bins), n_series):
        upper = np.cumsum(shares)
        shift = np.diff(stats.norm.cdf(stats.norm.ppf(upper.clip(0, 1)) + 0.3), prepend=0)
        chances = [shares] * 10 + [shift / shift.sum()] * 7
        runs = [
            numbers_of(rng.multinomial(n_rows, some))
            + bins.count(np.zeros(round(0.02 * n_rows)))
            for some in chances
        ]
        verdicts = [drift.verdict for drift in said_of(bins, runs)]
        first.append(verdicts.index("drift"))

    assert min(first) >= 10
    assert np.median(first) == 10
