"""The promise for one nominal set: how often it is broken, with exact bands."""

import dask
import numpy as np
import pytest
from scipy import stats

from lpe_dask import LPE, false_discovery_control
from lpe_dask.model.false_alarms import false_alarms_at_most, false_discoveries_at_most
from lpe_dask.model.validity import confident_places, flagged_places

#: How probable it is that a band fails where all is right.
RISK = 1e-4


def grid(shape, n_cells):
    """Values and their probabilities: rows of a table whose true rates are sums."""
    if shape == "clusters":
        values = np.linspace(-12, 12, n_cells)
        shares = sum(stats.norm.pdf(values, at, 1) for at in (-7, 0, 8))
    else:
        law = stats.norm if shape == "normal" else stats.t(3)
        values = np.linspace(*law.ppf([1e-5, 1 - 1e-5]), n_cells)
        shares = law.pdf(values)
    return values[:, None], shares / shares.sum()


def true_rate(model, values, shares, rng, n_nominal):
    nominal = values[rng.choice(len(values), n_nominal, p=shares)]
    labels = model.fit(nominal).predict(values)
    return shares[labels == -1].sum()


@pytest.mark.parametrize(
    ("shape", "n_cells", "confidence", "alpha", "m"),
    [
        ("normal", 1500, 0.9, 0.05, 50),
        pytest.param("clusters", 1500, 0.95, 0.05, 500, marks=pytest.mark.full),
        pytest.param("heavy tails", 1500, 0.9, 0.01, 300, marks=pytest.mark.full),
        ("normal", 25, 0.95, 0.05, 200),  # ties
    ],
)
def test_the_rate_exceeds_alpha__in_as_few_nominal_sets_as_said(
    shape, n_cells, confidence, alpha, m
):
    rng, n_sets = np.random.default_rng(20261130), 120
    values, shares = grid(shape, n_cells)
    model = LPE(alpha=alpha, confidence=confidence, scale="standard", random_state=0)
    with dask.config.set(scheduler="sync"):
        rates = [true_rate(model, values, shares, rng, 2 * m) for _ in range(n_sets)]

    k = int(confident_places(alpha, m, confidence))
    exceeds = stats.beta.sf(alpha, k, m + 1 - k)  # by how many sets, without ties
    n_above = int(np.sum(np.array(rates) > alpha))
    assert exceeds <= 1 - confidence
    assert n_above <= stats.binom.isf(RISK, n_sets, exceeds)
    if n_cells > 1000:
        assert n_above >= stats.binom.ppf(RISK, n_sets, exceeds)
        mean, error = np.mean(rates), np.std(rates) / np.sqrt(n_sets)
        assert abs(mean - k / (m + 1)) < 5 * error


def drawn_p_values(rng, n_nominal, n_anomalous, m):
    """Conformal p-values of nominal and of anomalous rows; the larger the more odd."""
    calibration = np.sort(rng.random(m))
    rows = np.append(rng.random(n_nominal), rng.random(n_anomalous) ** 0.002)
    return (1 + m - np.searchsorted(calibration, rows)) / (m + 1)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1])
@pytest.mark.parametrize("n_groups", [1, 4])
@pytest.mark.parametrize("by", ["alpha", "fdr"])
def test_more_false_alarms_than_the_bound__in_as_few_sets_as_said(by, n_groups, share):
    rng, n_sets, confidence, q, alpha = np.random.default_rng(1), 400, 0.9, 0.2, 0.02
    m = np.array([999, 400, 150, 2500])[:n_groups]
    n = np.array([1500, 500, 3000, 200])[:n_groups]
    n_anomalous = (share * n).astype(int)
    places = flagged_places(alpha, m, includes_self=True)
    fixed, n_exceeded, n_flagging = false_alarms_at_most(n, places, m, confidence), 0, 0
    for _ in range(n_sets):
        sizes = zip(n, n_anomalous, m, strict=True)
        drawn = [drawn_p_values(rng, a - b, b, size) for a, b, size in sizes]
        if by == "alpha":
            flagged, bound = [p <= alpha for p in drawn], fixed
        else:
            flags = false_discovery_control(np.concatenate(drawn), q)
            flagged = np.split(flags, np.cumsum(n)[:-1])
            if not flags.any():
                continue
            cut_off = np.concatenate(drawn)[flags].max()
            bound = false_discoveries_at_most(cut_off, q, n, m, confidence)
        n_flagging += 1
        n_false = sum(
            f[: a - b].sum() for f, a, b in zip(flagged, n, n_anomalous, strict=True)
        )
        n_exceeded += n_false > bound

    assert n_exceeded <= stats.binom.isf(RISK, n_sets, 1 - confidence)
    if by == "alpha" and share == 0:  # the bound is no larger than it has to be
        assert n_exceeded >= stats.binom.ppf(RISK, n_sets, 0.06)
    assert n_flagging == n_sets or by == "fdr"
    assert n_flagging > 0.9 * n_sets or share < 0.1  # there is something to bound
