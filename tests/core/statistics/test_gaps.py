"""False alarms where rows are measured with their gaps: exact bands over many sets."""

import itertools

import dask
import numpy as np
import pytest

from bands import flagged_band
from choosing import mostly_full
from lpe_dask import LPE

#: Nominal sets, and new rows for each.
N_SETS, N_NOMINAL, N_NEW = 200, 60, 40
ALPHAS = (0.1, 0.3)

#: With which probability a count is outside its band, if all is as promised.
RISK = 1e-6


def complete(rng, n_rows):
    return rng.standard_normal((n_rows, 1)) + rng.standard_normal((n_rows, 3))


def missing_at_random(rng, rows):
    return rng.random(rows.shape) < 0.2


def missing_by_another_column(rng, rows):
    return (rng.random(rows.shape) < 0.5) & (rows[:, :1] > 0) & [False, True, True]


def missing_by_the_value_itself(rng, rows):
    return (rng.random(rows.shape) < 0.5) & (rows > 0.5)


REASONS = [missing_at_random, missing_by_another_column, missing_by_the_value_itself]


def counts_of_sets(reason, **given):
    """How many new rows are flagged at each level, over all sets."""
    rng, counts = np.random.default_rng(20261129), np.zeros(len(ALPHAS), int)
    for seed in range(N_SETS):
        rows = complete(rng, N_NOMINAL + N_NEW)
        rows[reason(rng, rows)] = np.nan
        model = LPE(3, missing="measure", random_state=seed, **given).fit(rows[:N_NOMINAL])
        p_values = model.score_samples(rows[N_NOMINAL:])
        counts += [int((p_values <= alpha).sum()) for alpha in ALPHAS]
    return counts


@pytest.mark.parametrize(
    ("reason", "scale"),
    mostly_full(itertools.product(REASONS, [None, "quantile"]), [(REASONS[2], None)]),
)
def test_conformal__keeps_its_promise_for_any_reason_of_gaps(reason, scale):
    """Ties of rows without a value only lower the counts, and are rare here."""
    with dask.config.set(scheduler="sync"):
        counts = counts_of_sets(reason, calibration="conformal", scale=scale)

    for count, alpha in zip(counts, ALPHAS, strict=True):
        _, most = flagged_band(N_SETS, N_NEW, alpha, N_NOMINAL // 2, RISK)
        expected = N_SETS * N_NEW * np.floor(alpha * 31) / 31
        assert 0.8 * expected < count <= most


def test_auto__counts_medians_as_learned():
    rows = np.random.default_rng(0).standard_normal((140, 2))

    few = LPE(missing="measure", random_state=0).fit(rows[:139])
    many = LPE(missing="measure").fit(rows)

    assert (few.calibration_kind_, many.calibration_kind_) == ("conformal", "loo")
