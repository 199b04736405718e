"""The monitor of drift raises as few false alarms as promised, and finds changes in time.

Cells of new rows have the probabilities that one calibration set gives them, drawn once for
each series of nights. Usual tests forget that, and fail beside it.
"""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.spatial import KDTree

from lpe_dask import LPE
from lpe_dask.pvalues import Tolerances, new_state, phi_of, update
from lpe_dask.pvalues.cells import Cells, Counts
from lpe_dask.pvalues.evidence import after_night, bets, log_evidence, log_ratios
from lpe_dask.pvalues.formulas import p_values

DELTA = 0.01


def cells_of(m):
    """The cells of calibration rows that all differ."""
    return Cells.of(np.arange(1, m + 1), 0.01, 0)


def nights_of(shares, n_rows, n_nights, rng):
    """Counts in cells, of shape (n_nights, n_series, n_cells)."""
    return rng.multinomial(n_rows, shares, size=(n_nights, len(shares)))


def first_alarms(widths, nights, phi=1.0):
    """The number of the night on which each series has enough evidence; inf for none.

    As `monitor.update` gathers it, for all series at once.
    """
    exponents, n_series = bets(widths), nights.shape[1]
    urn = np.tile(widths / phi, (n_series, 1))
    wealth = np.full((n_series, len(exponents)), -np.inf)
    first = np.full(n_series, np.inf)
    for night, counts in enumerate(nights, 1):
        waits = np.isinf(first)
        if not waits.any():
            break
        ratios = log_ratios(urn[waits], counts[waits].astype(float), exponents)
        wealth[waits] = after_night(wealth[waits], ratios, night)
        alarmed = log_evidence(wealth, night) >= math.log(2 / DELTA)
        first[waits & alarmed] = night
        urn += counts
    return first


# Nothing changes


@pytest.mark.parametrize(
    ("m", "n_rows"), [(200, 1), (200, 10**6), (10_000, 1000), (1000, 1000)]
)
def test_evidence__of_50_nights_like_the_calibration_is_as_rare_as_promised(m, n_rows):
    rng, widths = np.random.default_rng([1, m, n_rows]), cells_of(m).widths

    nights = nights_of(rng.dirichlet(widths, 500), n_rows, 50, rng)

    assert np.isfinite(first_alarms(widths, nights)).mean() <= DELTA


@pytest.mark.parametrize(("m", "n_rows", "least"), [(1000, 1000, 0.6), (200, 2000, 0.99)])
def test_chi_square__of_the_same_nights_fails(m, n_rows, least):
    """Each night is tested at a level that would make DELTA over all of them."""
    rng, widths = np.random.default_rng([2, m, n_rows]), cells_of(m).widths
    nights = nights_of(rng.dirichlet(widths, 500), n_rows, 50, rng)

    expected = n_rows * widths / widths.sum()
    statistics = ((nights - expected) ** 2 / expected).sum(axis=-1)
    rejects = stats.chi2.sf(statistics, len(widths) - 1) < DELTA / 50

    assert rejects.any(axis=0).mean() > least
    assert np.isfinite(first_alarms(widths, nights)).mean() <= DELTA


@pytest.mark.parametrize(("m", "n_rows"), [(200, 300), (2000, 10**6)])
def test_update__says_drifting_as_rarely_as_promised(m, n_rows):
    """Where nothing is tolerated, and with a delta that the series can tell from more."""
    rng, cells, delta, n_series = np.random.default_rng([3, m]), cells_of(m), 0.2, 60
    gaps = np.diff([-1, 0, cells.flag, *cells.edges])
    nothing = Tolerances(delta, tolerance=0, anomalies=0, moved=0)
    n_false = 0
    for shares in rng.dirichlet(gaps, n_series):
        state = new_state("a model", cells, 1.0, delta)
        for run in range(15):
            zero, flagged, tail, *bulk = rng.multinomial(n_rows, shares)
            counts = [n_rows, 0, zero + flagged, zero + flagged + tail, *bulk]
            drift = update(state, cells, np.array(counts), str(run), tolerances=nothing)
            state = drift.state
            if drift.verdict != "fits":
                n_false += 1
                break

    assert n_false <= delta * n_series


# Ordinary rows change


def location(m):
    """How a shift of normal statistics tilts the cells, in standard deviations."""
    cells = cells_of(m)
    density = stats.norm.pdf(stats.norm.isf(np.array(cells.edges) / m))
    shares = cells.widths / cells.widths.sum()
    tilt = np.diff(density) / cells.widths
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
    rng, widths = np.random.default_rng([4, m, n_rows]), cells_of(m).widths
    shares = rng.dirichlet(widths, 60)
    changed = shares * np.exp(size * location(m))
    changed /= changed.sum(axis=1, keepdims=True)

    before = nights_of(shares, n_rows, n_before, rng)
    after = nights_of(changed, n_rows, 60, rng)
    found = first_alarms(widths, np.concatenate([before, after])) - n_before

    is_early = found < 1
    assert is_early.sum() <= stats.binom.ppf(1 - 1e-4, len(found), DELTA / 2)
    assert np.median(np.where(is_early, np.inf, found)) <= median


# Rows and their neighbors

#: Calibration -> nominal rows of a model and K, and false alarms among 300 models.
MODELS = {"loo": (300, 10, 3), "conformal": (300, 7, 5), "split": (300, 7, 3)}


def statistics(calibration, rows, new, k):
    """R_S of calibration rows, ascending, and of new rows."""
    # The library draws in the same way, so that p-values can be compared.
    order = np.random.default_rng(0).permutation(len(rows))
    measured, searched = rows[order[: len(rows) // 2]], rows[order[len(rows) // 2 :]]
    if calibration == "loo":
        measured = searched = rows
    reference = KDTree(searched)
    own = KDTree(measured).query(measured, [k + 1])[0]  # each is nearest to itself
    if calibration == "conformal":
        own = reference.query(measured, [k])[0]
    return np.sort(own[:, 0]), reference.query(new, [k])[0][:, 0]


def found_by(calibration, rows, new, k):
    """The cells of a model, and p-values of new rows."""
    counts_itself = int(calibration == "conformal")
    values, statistic = statistics(calibration, rows, new, k)
    m = len(values)
    cells = Cells.of(np.arange(1, m + 1), 0.01, counts_itself)
    return cells, p_values(statistic, values, counts_itself=counts_itself)


@pytest.mark.parametrize("calibration", MODELS)
def test_found__is_what_the_library_finds(calibration):
    n_rows, k, _ = MODELS[calibration]
    rng = np.random.default_rng(5)
    rows, new = rng.random((n_rows, 2)), rng.random((500, 2))

    cells, found = found_by(calibration, rows, new, k)

    model = LPE(n_neighbors=k, calibration=calibration, alpha=0.01, random_state=0)
    np.testing.assert_array_equal(model.fit(rows).score_samples(new), found)
    assert cells.n_calibration == len(model.calibration_)


@pytest.mark.parametrize("calibration", MODELS)
def test_evidence__of_rows_that_share_neighbors_is_as_rare_as_promised(calibration):
    """Nights of 300 models; calibration rows count as often as `phi_of` says."""
    n_rows, k, most = MODELS[calibration]
    rng, shares = np.random.default_rng([6, k]), []
    for _ in range(300):
        rows, new = rng.random((n_rows, 2)), rng.random((8000, 2))
        cells, found = found_by(calibration, rows, new, k)
        shares.append(Counts.of(cells.count(found)).bulk)
    shares = np.array(shares) / np.sum(shares, axis=1, keepdims=True)

    for n_new in (1000, 10**6):
        nights = nights_of(shares, n_new, 30, rng)
        alarms = first_alarms(cells.widths, nights, phi_of(calibration, k))
        assert np.isfinite(alarms).sum() <= most
        if calibration == "split":  # as independent rows, they would not do
            as_independent = first_alarms(cells.widths, nights)
            assert np.isfinite(as_independent).mean() > 3 * DELTA
