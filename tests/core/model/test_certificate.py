"""What a sample says of all rows, by the exact binomial."""

import numpy as np
import pytest
from scipy.stats import binom, binomtest, kstest

from lpe_dask import LPE
from lpe_dask.model.certificate import (
    FAILURE_PROBABILITY,
    MAX_ERROR_SHARE,
    NOMINAL_DRAW,
    TABLE_DRAW,
    ApproximationSettings,
    certificate_of,
    clopper_pearson_upper,
    draws,
)
from lpe_dask.search import Approximation

N_AUDITED = Approximation.AUDITED_ROWS


def _quality(**arguments):
    return ApproximationSettings.of(LPE(**arguments).get_params())


def _errors(n_off):
    return np.where(np.arange(N_AUDITED) < n_off, 0.5, 0.01)


@pytest.mark.parametrize("n_found", [0, 1, 7, 1100])
@pytest.mark.parametrize("risk", [1e-4, 0.05])
def test_upper_bound__is_that_of_clopper_and_pearson(n_found, risk):
    bound = clopper_pearson_upper(n_found, 1100, risk)

    test = binomtest(n_found, 1100, alternative="less")
    expected = test.proportion_ci(1 - risk, method="exact").high
    assert bound == pytest.approx(expected, rel=1e-9)


def test_certificates__are_wrong_as_seldom_as_is_said():
    """If hardly more rows are off than is certified, by any sample."""
    n_off = 0
    while certificate_of(_errors(n_off), 0.01).bound <= MAX_ERROR_SHARE:
        n_off += 1

    wrong = binom.cdf(n_off - 1, N_AUDITED, 1.0001 * MAX_ERROR_SHARE)
    assert FAILURE_PROBABILITY / 100 < wrong <= FAILURE_PROBABILITY
    # A good search is hardly ever refused.
    assert binom.sf(n_off - 1, N_AUDITED, MAX_ERROR_SHARE / 10) < FAILURE_PROBABILITY


def test_quality__is_made_of_plain_numbers():
    quality = _quality(random_state=np.int64(7), max_p_error=np.float32(0.5))

    assert type(quality.seed) is int
    assert type(quality.max_p_error) is float
    assert quality.seed == 7
    draws(np.arange(3), quality.seed, 0)


def test_quality__rechecks_what_alpha_flags():
    assert _quality(alpha=0.02).recheck == 0.02
    assert _quality(alpha=0.02, recheck=0.1).recheck == 0.1


def test_certificate__says_what_was_found():
    found = certificate_of(np.r_[_errors(11), np.nan], 0.01)

    assert (found.n_audited, found.n_exceeding, found.largest_error) == (3000, 11, 0.5)
    assert not found.is_exact
    assert "at most 0.97% of the rows" in str(found)
    assert "11 of 3000 sampled rows" in str(found)
    found.check()


def test_certificate__of_too_many_rows_is_an_error():
    with pytest.raises(RuntimeError, match=r"12 of 3000 .* No more than 1% .*='auto'"):
        certificate_of(_errors(12), 0.01).check()


def test_certificate__of_no_sample_is_exact():
    found = certificate_of(np.empty(0), 0.01)

    assert found.is_exact
    assert found.bound == 0
    assert str(found) == "every row was measured exactly"
    found.check()


def test_draws__are_uniform_and_belong_to_numbers():
    numbers = np.arange(100_000)
    drawn = draws(numbers, 3, 0)

    assert kstest(drawn / 2**64, "uniform").pvalue > 1e-3
    np.testing.assert_array_equal(draws(numbers[5:9], 3, 0), drawn[5:9])
    for other in (draws(numbers, 4, 0), draws(numbers, 3, 1)):
        shared = np.intersect1d(np.argsort(drawn)[:1000], np.argsort(other)[:1000])
        assert 0 < len(shared) < 40  # about 10 of 1000 by chance
    assert len(np.unique(drawn)) == len(drawn)
    assert NOMINAL_DRAW != TABLE_DRAW
