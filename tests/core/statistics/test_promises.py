"""What is promised for one nominal set, and for all runs that are compared with it."""

import dask
import numpy as np
import pytest
from scipy import stats

import promises
import shared_calibration
from bands import flagged_band
from lpe_dask import LPE

ALPHA = 0.05
RISK = 1e-4

#: Nominal sets, runs of each, and rows of each run.
N_SETS, N_RUNS, N_NEW = 100, 30, 50


@pytest.fixture(scope="module")
def flagged_of_sets():
    """How many rows all runs of a nominal set flag, and m: all rows are nominal.

    Of uniform rows "split" would not have this law.
    """
    rng = np.random.default_rng(0)
    model = LPE(5, calibration="conformal", alpha=ALPHA, random_state=0, algorithm="brute")
    counts = []
    with dask.config.set(scheduler="sync"):
        for _ in range(N_SETS):
            model.fit(rng.random((197, 1)))
            p_values = model.score_samples(rng.random((N_RUNS * N_NEW, 1)))
            counts.append((p_values <= ALPHA).sum())
    return np.array(counts), len(model.calibration_)


def test_flagged_rows_of_many_runs__are_not_binomial(flagged_of_sets):
    """A test that takes runs as independent rejects at 0.05 where nothing is wrong."""
    counts, _ = flagged_of_sets

    n_rejected = (stats.binom.sf(counts - 1, N_RUNS * N_NEW, ALPHA) <= 0.05).sum()

    assert n_rejected > stats.binom.isf(RISK, N_SETS, 0.05)


def test_flagged_rows_of_many_runs__are_beta_binomial(flagged_of_sets):
    counts, m = flagged_of_sets
    k = round(ALPHA * (m + 1))
    law = stats.betabinom(N_RUNS * N_NEW, k, m + 1 - k)

    n_rejected = (law.sf(counts - 1) <= 0.05).sum()
    n_low = (law.cdf(counts) <= 0.05).sum()

    assert (k, m + 1) == (5, 100)
    assert max(n_rejected, n_low) <= stats.binom.isf(RISK, N_SETS, 0.05)
    least, most = flagged_band(N_SETS, N_RUNS * N_NEW, ALPHA, m, RISK)
    assert least <= counts.sum() <= most


def test_tests_of_runs__combined_as_if_independent_reject_too_often():
    """Also where the test of each run is exact; Bonferroni's holds for any dependence."""
    names = ["beta-binomial tests of runs, combined by Fisher",
             "beta-binomial tests of runs, by Bonferroni"]  # fmt: skip
    tests = [shared_calibration.TESTS[name] for name in names]

    fisher, bonferroni = shared_calibration.rejections(
        np.random.default_rng(0), tests, m=200, n_sets=100
    )

    limit = stats.binom.isf(RISK, 100, 0.05)
    assert bonferroni <= limit < fisher


def test_false_discovery_control__holds_over_all_rows_and_not_for_a_union_of_runs():
    rng, n_sets, m = np.random.default_rng(0), 40, 10_000
    names = list(shared_calibration.DISCOVERIES)

    in_one_run, in_every_run = (
        shared_calibration.discoveries(rng, m, n_anomalous, n_sets)[:, 0]
        for n_anomalous in (1, shared_calibration.N_RUNS)
    )

    for_each_run = in_one_run[names.index("each run, q")]
    error = for_each_run.std() / n_sets**0.5
    assert for_each_run.mean() > shared_calibration.Q + 4 * error
    of_all_rows = in_every_run[names.index("all rows at once, q")]
    error = of_all_rows.std() / n_sets**0.5
    assert abs(of_all_rows.mean() - 0.99 * shared_calibration.Q) <= 4 * error + 0.01


@pytest.mark.parametrize("name", ["lond", "lord"])
def test_levels_row_by_row__are_those_of_the_definition(name):
    q, gamma = shared_calibration.Q, shared_calibration.GAMMA
    (p_values,) = sets = np.random.default_rng(0).random((1, 60)) ** 8

    expected = []
    for t, p in enumerate(p_values):
        before = [s for s in range(t) if expected[s]]
        if name == "lond":
            level = q * gamma[t] * (len(before) + 1)
        else:
            level = q / 2 * gamma[t]
            for i, s in enumerate(before):  # the first one has earned half of the others
                level += (q / 2 if i == 0 else q) * gamma[t - s - 1]
        expected.append(p <= level)

    (actual,) = getattr(shared_calibration, name)(sets)
    np.testing.assert_array_equal(actual, expected)
    assert 1 < sum(expected) < 60


def test_rates__are_those_of_the_definition():
    """What is flagged changes only where a row comes within the distance, or leaves it."""
    rng = np.random.default_rng(0)
    for (name, kind), n_neighbors in zip(
        promises.KINDS.items(), (1, 2, 3, 4, 8), strict=True
    ):
        draw, cdf = kind(20, n_neighbors)
        (rows,) = sets = np.sort(draw(rng, (1, 20)))
        distances = np.sort(abs(rows[:, None] - rows))[:, n_neighbors]  # without itself
        cut_off = np.sort(distances)[-4]

        ends = np.sort(np.r_[rows - cut_off, rows + cut_off])
        middles = np.r_[ends[0] - 1, (ends[1:] + ends[:-1]) / 2, ends[-1] + 1]
        n_within = (abs(middles[:, None] - rows) <= cut_off).sum(axis=1)
        chances = np.diff(cdf(np.r_[-np.inf, ends, np.inf]))

        (own,) = promises.leave_one_out(sets, n_neighbors)
        np.testing.assert_allclose(own, distances, rtol=1e-12)
        (rate,) = promises.rates(sets, n_neighbors, cut_off, cdf)
        assert rate == pytest.approx(chances[n_within < n_neighbors].sum()), name


@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_confidence__holds_for_conformal_and_not_for_loo(confidence):
    n_sets, alpha = 2000, 0.05

    rates = promises.rates_of_sets(
        np.random.default_rng(0), promises.uniform, 299, 1, [(alpha, confidence)], n_sets
    )

    conformal, loo, split = (rates[:, 0] > alpha).sum(axis=-1)
    limit = stats.binom.isf(RISK, n_sets, 1 - confidence)
    assert conformal <= limit < min(loo, split)
    k = promises.places(299, alpha, confidence)
    exact = stats.beta.sf(alpha, k, 300 - k)
    assert conformal >= stats.binom.ppf(RISK, n_sets, exact)
