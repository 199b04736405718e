"""The monitor of drift raises as few false alarms as promised, and finds changes in time.

Bins of new rows have the probabilities that one calibration set gives them, drawn once for
each series of runs.
"""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from choosing import mostly_full, mostly_slow
from lpe_dask import LPE
from lpe_dask.model import fitted_of
from lpe_dask.monitoring.api import drift
from lpe_dask.monitoring.bins import BinCounts, PValueBins
from lpe_dask.monitoring.config import DriftConfig
from lpe_dask.monitoring.eprocess import (
    bet_exponents,
    log_evidence,
    log_ratios,
    update_log_wealth,
)
from lpe_dask.monitoring.monitor import DriftMonitor
from lpe_dask.monitoring.new_values import NewValueCounts, NominalColumn
from lpe_dask.monitoring.state import DriftState, Reference, new_state
from lpe_dask.monitoring.verdict import update

DELTA = 0.01


def distinct_bins(m):
    """The bins of calibration rows that all differ."""
    return PValueBins.of(np.arange(1, m + 1), 0.01, 0)


def runs_of(shares, n_rows, n_runs, rng):
    """BinCounts in bins, of shape (n_runs, n_series, n_bins)."""
    return rng.multinomial(n_rows, shares, size=(n_runs, len(shares)))


def evidence_of(widths, runs):
    """Yield the evidence of each series after each run, as `update` gathers it."""
    exponents, n_series = bet_exponents(widths), runs.shape[1]
    urn = np.tile(widths.astype(float), (n_series, 1))
    wealth = np.full((n_series, len(exponents)), -np.inf)
    for run, counts in enumerate(runs, 1):
        ratios = log_ratios(urn, counts.astype(float), exponents)
        wealth = update_log_wealth(wealth, ratios, run)
        urn += counts
        yield log_evidence(wealth, run)


def first_alarms(widths, runs):
    """The number of the run on which each series has enough evidence; inf for none."""
    is_enough = np.array(list(evidence_of(widths, runs))) >= math.log(3 / DELTA)
    return np.where(is_enough.any(axis=0), is_enough.argmax(axis=0) + 1, np.inf)


# Nothing changes


@pytest.mark.parametrize(
    ("m", "n_rows"),
    mostly_full(
        [(200, 1), (200, 10**6), (10_000, 1000), (1000, 1000)], [(200, 10**6), (1000, 1000)]
    ),
)
def test_evidence__of_50_runs_like_the_calibration_is_as_rare_as_promised(m, n_rows):
    rng, widths = np.random.default_rng([1, m, n_rows]), distinct_bins(m).widths

    runs = runs_of(rng.dirichlet(widths, 500), n_rows, 50, rng)

    assert np.isfinite(first_alarms(widths, runs)).mean() <= DELTA


@pytest.mark.parametrize(
    ("is_exact", "m", "n_rows"),
    mostly_full(
        [
            (is_exact, *sizes)
            for is_exact in (True, False)
            for sizes in ((200, 300), (2000, 10**6))
        ],
        [(True, 200, 300), (False, 2000, 10**6)],
    ),
)
def test_update__says_drift_as_rarely_as_promised(m, n_rows, is_exact):
    """Where nothing is tolerated, and with a delta that the series can tell from more.

    With the first runs as reference the law of the rows is any one, with bins that no row
    is ever in; and columns have values that no nominal row has.
    """
    rng, bins, delta, n_series = np.random.default_rng([3, m]), distinct_bins(m), 0.2, 60
    gaps = np.diff([-1, 0, bins.flag, *bins.edges])
    nothing = DriftConfig(delta, tolerance=0, anomalies=0, shift=0)
    columns = [NominalColumn(name, m) for name in "ab"]
    n_false = 0
    for shares in rng.dirichlet(gaps if is_exact else 0 * gaps + 0.1, n_series):
        state = new_state("a model", bins, delta, is_exact=is_exact)
        beyond = rng.beta(2, m - 1, 2)
        for run in range(15):
            zero, flagged, tail, *bulk = rng.multinomial(n_rows, shares)
            counts = [n_rows, 0, zero + flagged, zero + flagged + tail, *bulk]
            unseen = NewValueCounts(n_rows, np.zeros(2, int), rng.binomial(n_rows, beyond))
            given = str(run), "", nothing, columns, unseen
            drift = update(state, bins, np.array(counts), *given)
            state = drift.state
            if run == 0 and "few nominal rows" in str(drift.reason):
                break  # a law that is no first run
            if drift.verdict == "drift":
                n_false += 1
                break

    assert n_false <= delta * n_series


# Non-anomalous rows change


def location(m):
    """How a shift of normal statistics tilts the bins, in standard deviations."""
    bins = distinct_bins(m)
    density = stats.norm.pdf(stats.norm.isf(np.array(bins.edges) / m))
    shares = bins.widths / bins.widths.sum()
    tilt = np.diff(density) / bins.widths
    tilt -= shares @ tilt
    return tilt / math.sqrt(shares @ tilt**2)


@pytest.mark.parametrize(
    ("m", "n_rows", "size", "n_before", "median"),
    [
        (10_000, 10_000, 0.1, 29, 1),
        (10_000, 1000, 0.1, 29, 6),
        (10_000, 1000, 0.05, 29, 20),
        (1000, 10_000, 0.05, 29, 4),
        (1000, 1000, 0.3, 0, 2),
        (10_000, 1000, -0.1, 299, 8),
    ],
)
def test_evidence__of_a_change_comes_in_time(m, n_rows, size, n_before, median):
    rng, widths = np.random.default_rng([4, m, n_rows]), distinct_bins(m).widths
    shares = rng.dirichlet(widths, 60)
    changed = shares * np.exp(size * location(m))
    changed /= changed.sum(axis=1, keepdims=True)

    before = runs_of(shares, n_rows, n_before, rng)
    after = runs_of(changed, n_rows, 60, rng)
    found = first_alarms(widths, np.concatenate([before, after])) - n_before

    is_early = found < 1
    assert is_early.sum() <= stats.binom.ppf(1 - 1e-4, len(found), DELTA / 3)
    assert np.median(np.where(is_early, np.inf, found)) <= median


# Rows and their neighbors

CENTERS = np.random.default_rng(1).standard_normal((20, 2))
VALUES = np.cumsum(np.random.default_rng(5).lognormal(0, 1.5, 33))

DRAWS = {
    "uniform": lambda rng, n: rng.random((n, 2)),
    "normal": lambda rng, n: rng.standard_normal((n, 2)),
    "heavy": lambda rng, n: rng.standard_t(1.5, (n, 2)),
    "groups": lambda rng, n: (
        rng.standard_normal((n, 2)) * 0.01 + CENTERS[rng.integers(0, 20, n)]
    ),
    "few values": lambda rng, n: VALUES[rng.integers(0, 33, n)][:, None],
    "counts": lambda rng, n: rng.poisson(3, (n, 2)).astype(float),
    "flags": lambda rng, n: np.c_[rng.random((n, 3)) < 0.2, rng.poisson(1, n)] * 1.0,
}


def found_by(calibration, rows, new, k, *, is_mean=False):
    """The bins of a model, and p-values of new rows."""
    model = LPE(
        k, aggregation="mean" if is_mean else "kth", calibration=calibration, alpha=0.05,
        random_state=0,
    ).fit(rows)  # fmt: skip
    return PValueBins.of_calibration(
        fitted_of(model).calibration, 0.05
    ), model.score_samples(new)


#: Nominal rows, K, and whether it is the mean distance; rows and number of the runs.
MODELS = [(100, 2, False), (300, 20, True), (1000, 5, False), (5000, 30, True)]
RUNS = [(20, 400), (1000, 400), (20_000, 40)]
SERIES = [
    (draw, *model, *runs, calibration)
    for draw in DRAWS
    for model in MODELS
    for runs in RUNS
    for calibration in ("loo", "split", "conformal")
]
FEW_SERIES = [
    ("groups", 300, 20, True, 20_000, 40, "loo"),
    ("few values", 100, 2, False, 1000, 400, "loo"),
    ("uniform", 300, 20, True, 1000, 400, "split"),
    ("counts", 100, 2, False, 20, 400, "conformal"),
]


def has_evidence(bins, found, calibration, n_rows, n_runs, rng):
    """Whether a series of rows like these ever has evidence of a change.

    Without the limits that a shift and anomalies have, which only make "drift" rarer.
    """
    counts = BinCounts.of(bins.count(found))
    shares = np.array([counts.tail, *counts.bulk]) / len(found)
    drawn, n_first = rng.multinomial(n_rows, shares, size=n_runs), 0
    is_exact = calibration == "conformal"
    state = new_state("a model", bins, DELTA, is_exact=is_exact)
    if not is_exact:
        n_first = -(-1000 // n_rows)
        state["reference"] = [0, *drawn[:n_first].sum(axis=0).tolist()]
    reference = Reference.of(bins, DriftState.model_validate(state))
    exponents = bet_exponents(reference.prior)
    drawn = np.add.reduceat(drawn[n_first:, 1:], reference.starts, axis=1).astype(float)
    urns = reference.prior + np.cumsum(drawn, axis=0) - drawn
    ratios, wealth = log_ratios(urns, drawn, exponents), np.full(len(exponents), -np.inf)
    for run, of_run in enumerate(ratios, 1):
        wealth = update_log_wealth(wealth, of_run, run)
        if log_evidence(wealth, run) >= math.log(3 / DELTA):
            return True
    return False


@pytest.mark.parametrize(
    ("draw", "n", "k", "is_mean", "n_rows", "n_runs", "calibration"),
    mostly_slow(SERIES, FEW_SERIES, [some for some in FEW_SERIES if "conformal" in some]),
)
def test_evidence__of_series_without_change_is_as_rare_as_promised(
    draw, n, k, is_mean, n_rows, n_runs, calibration
):
    """200 series with the slow tests, else 20: a model each, and a pool of rows."""
    is_slow = (draw, n, k, is_mean, n_rows, n_runs, calibration) not in FEW_SERIES
    n_series, n_new = (200, 250_000) if is_slow else (20, 100_000)
    rng, n_false = np.random.default_rng([6, n, k, n_rows]), 0
    for _ in range(n_series):
        rows, new = DRAWS[draw](rng, n), DRAWS[draw](rng, n_new)
        bins, found = found_by(calibration, rows, new, k, is_mean=is_mean)
        n_false += has_evidence(bins, found, calibration, n_rows, n_runs, rng)

    assert n_false <= stats.binom.ppf(0.999, n_series, DELTA)


@pytest.mark.parametrize(
    ("n_values", "k"), mostly_full([(300, 1), (200, 5), (100, 20)], [(200, 5)])
)
def test_evidence__of_rows_that_repeat_nominal_ones_is_none(n_values, k):
    """With "loo" a nominal row has k - 1 rows like it, a new one k: many bins are empty."""
    rng, n_false = np.random.default_rng([7, k]), 0
    for _ in range(20):
        values = rng.random((n_values, 2))
        bins, found = found_by(
            "loo", values.repeat(k, axis=0), values[rng.integers(0, n_values, 50_000)], k
        )
        n_false += has_evidence(bins, found, "loo", 1000, 40, rng)

    assert n_false <= stats.binom.ppf(0.999, 20, DELTA)


# Verdicts over many runs


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
    rng, bins = np.random.default_rng([1, m, n_rows]), distinct_bins(m)
    n_series, n_runs = 3, 20
    shares = rng.dirichlet(gaps_of(bins), n_series)
    drawn = rng.multinomial(n_rows, shares, size=(n_runs, n_series))
    expected = np.array(list(evidence_of(bins.widths, drawn[..., 3:])))

    for i in range(n_series):
        runs = [numbers_of(counts) for counts in drawn[:, i]]
        found = [drift.state["evidence"] for drift in said_of(bins, runs)]

        assert max(found) < math.log(3 / DELTA)
        np.testing.assert_allclose(found, expected[:, i], rtol=0, atol=1e-9)


@pytest.mark.parametrize("far", [True, False], ids=["far out", "near"])
@pytest.mark.parametrize(("m", "n_rows"), [(1000, 1000), (10_000, 10_000)])
def test_update__of_bursts_of_anomalies_never_says_drift(m, n_rows, far):
    """3 % of the rows each run, whether no calibration row is like them or some are."""
    rng, bins, n_series = np.random.default_rng([3, m, far]), distinct_bins(m), 6
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
    rng, bins, n_series, first = np.random.default_rng([4, m]), distinct_bins(m), 9, []
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


# Groups whose mix varies


def rows_of_groups(rng, n, mix):
    """Rows of six groups, with scales of their own, and one with heavy tails."""
    group = rng.choice(6, n, p=mix)
    x = rng.standard_normal((n, 2)) * (1 + group[:, None])
    x[group == 5] = 3 * rng.standard_t(2, ((group == 5).sum(), 2))
    return pd.DataFrame({"x": x[:, 0] + 2 * group, "y": x[:, 1], "group": group})


@pytest.mark.parametrize(
    ("calibration", "own", "n_series"),
    mostly_slow(
        [
            (calibration, own, n_series)
            for calibration in ("conformal", "loo")
            for own in (("scale", "neighbors", "calibration"), ("neighbors",))
            for n_series in (60, 3)
        ],
        [
            ("conformal", ("scale", "neighbors", "calibration"), 3),
            ("loo", ("neighbors",), 3),
        ],
    ),
)
def test_drift__of_groups_whose_mix_varies_is_as_rare_as_promised(
    calibration, own, n_series
):
    """None of 60 series of each kind was drift by groups.

    Pooled over groups, 15 ("conformal") and 8 ("loo") were of models whose groups have all
    for themselves, and all 60 of those without a calibration of each group.
    """
    rng, n_false, n_pooled = np.random.default_rng(3), 0, 0
    for seed in range(n_series):
        nominal = rows_of_groups(rng, 2000, [0.3, 0.2, 0.2, 0.1, 0.1, 0.1])
        model = LPE(
            by=["group"], own=own, calibration=calibration, scale="standard",
            random_state=seed,
        ).fit(nominal)  # fmt: skip
        fitted = fitted_of(model)
        bins = PValueBins.of_calibration(fitted.calibration, 0.05)
        pooled = DriftMonitor.of(fitted.calibration, bins)
        said, of_all = [], []
        for run in range(15):
            rows = rows_of_groups(rng, 1500, rng.dirichlet(np.full(6, 0.5)))
            p_values = model.score_samples(rows)
            states = [of[-1].state if of else None for of in (said, of_all)]
            said.append(drift(p_values, model, states[0], groups=rows["group"]))
            of_all.append(pooled.update(states[1], bins.count(p_values), str(run)))
        n_false += any(of.verdict == "drift" for of in said)
        n_pooled += any(of.verdict == "drift" for of in of_all)

    assert n_false <= stats.binom.ppf(0.999, n_series, DELTA)
    if "calibration" not in own:
        assert n_pooled == n_series
