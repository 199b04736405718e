"""Runs at the edge of what the monitor takes: hardly any bins, rows or money."""

import json
import math

import numpy as np
import pytest

from lpe_dask.monitoring import new_state, update
from lpe_dask.monitoring.bins import PValueBins
from lpe_dask.monitoring.eprocess import (
    bet_exponents,
    log_evidence,
    log_ratios,
    update_log_wealth,
)

BINS = PValueBins.of(np.arange(1, 2001), 0.01, 0)


def runs_of(bins, runs):
    """What each run says; a run is p-values."""
    state, said = new_state("a model", bins, 0.01, is_exact=True), []
    for run, p_values in enumerate(runs):
        said.append(update(state, bins, bins.count(p_values), str(run)))
        state = json.loads(json.dumps(said[-1].state, allow_nan=False))
    return said


# PValueBins


@pytest.mark.parametrize("includes_self", [0, 1])
@pytest.mark.parametrize("alpha", [0.001, 0.1, 0.3, 0.6, 0.99])
@pytest.mark.parametrize("m", [1, 2, 5])
def test_update__of_hardly_any_calibration_rows(m, alpha, includes_self):
    """Twice alpha may be above 1: then no row is an ordinary one."""
    bins, rng = (
        PValueBins.of(np.arange(1, m + 1), alpha, includes_self),
        np.random.default_rng(0),
    )
    assert bins.edges[-1] == m
    if 2 * alpha >= 1:
        assert bins.edges == (m,)

    runs = [
        (rng.integers(0, m + 1, n) + includes_self) / (m + includes_self)
        for n in (1, 3, 100, 10_000, 10**6)
    ]
    said = runs_of(bins, runs)

    verdicts = [drift.verdict for drift in said]
    assert verdicts == ["too few rows to test"] * 2 + ["no drift"] * 3
    for drift, run in zip(said, runs, strict=True):
        assert drift.flagged == (run <= alpha).sum()
        low, high = drift.promised_between
        assert 0 <= low <= high <= 1
        assert "nan" not in str(drift)
    if len(bins.edges) < 3:
        assert said[-1].state["wealth"] == []
        assert said[-1].log10_evidence == 0


def test_count__computes_ranks_with_64_bits():
    """A rank of 99,991 calibration rows from a p-value of 32 bits is still that rank."""
    m = 99_991
    bins = PValueBins(m, 0, 0.01, 0, 0, tuple(range(m + 1)))
    p_values = (np.arange(m + 1) / m).astype(np.float32)

    assert (bins.count(p_values)[4:] == 1).all()


# Evidence


@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize("rest", [10**3, 10**6, 10**9, 10**11])
def test_log_ratios__are_finite_where_a_cell_is_hardly_there(rest, is_last):
    """One calibration row in it, as ties of all others leave: tilts are strong."""
    widths = np.array([rest, 1] if is_last else [1, rest])
    exponents = bet_exponents(widths)
    for counts in ([0, 0], [1, 0], [0, 1], [10**6, 3], [3, 10**6]):
        ratios = log_ratios(widths.astype(float), np.array(counts, float), exponents)

        wealth = update_log_wealth(np.full(len(exponents), -np.inf), ratios, 1)
        assert np.isfinite(ratios).all()
        assert np.isfinite(log_evidence(wealth, 1))

    # Of one row, the mean over where it falls is 1: a fair game in spite of it.
    alone = np.exp([log_ratios(widths.astype(float), row, exponents) for row in np.eye(2)])
    mean = widths / widths.sum() @ alone
    # Logarithms of the gamma function are rounded to about 1e-16 of their size.
    error = 1e-9 + 1e-15 * rest * math.log(rest)
    np.testing.assert_allclose(mean, 1, rtol=0, atol=error)


def test_update__of_a_calibration_most_of_which_is_tied():
    m = 2_000_000
    ranks = np.append(np.arange(1, m // 10 + 2), np.full(m - m // 10 - 1, m))
    bins = PValueBins.of(ranks, 0.01, 0)
    rng = np.random.default_rng(1)
    assert bins.edges == (m // 10, m // 10 + 1, m)

    said = runs_of(bins, [rng.choice(ranks, n) / m for n in (1, 1000, 100_000)])
    [burst] = runs_of(bins, [np.append(rng.choice(ranks, 1000), [m // 10 + 1] * 9) / m])

    verdicts = [drift.verdict for drift in said]
    assert verdicts == ["too few rows to test", "no drift", "no drift"]
    assert burst.changed_since is not None


# The state


@pytest.mark.parametrize("bad", [np.full(500, np.nan), np.full(500, 0.35), np.empty(0)])
def test_update__gathers_nothing_from_broken_runs(bad):
    rng = np.random.default_rng(3)
    good = [rng.integers(0, 2001, 300) / 2000 for _ in range(9)]

    with_broken = runs_of(BINS, [x for run in good for x in (run, bad)])[-1].state
    without = runs_of(BINS, good)[-1].state

    of_all = {"runs": [], "n_runs": 0}
    assert {**with_broken, **of_all} == {**without, **of_all}
    assert with_broken["counted_runs"] == with_broken["tested_runs"] == 9
