"""What a sample says of all rows, by the exact binomial."""

import numpy as np
import pytest
from scipy.stats import binom, kstest

from lpe_dask import LPE
from lpe_dask.model.certificate import (
    NOMINAL_DRAWS,
    RISK,
    ROUNDS,
    TABLE_DRAWS,
    TUNING_DRAW,
    Quality,
    certificate_of,
    draws,
    exact_certificate,
    upper_bound,
)


def _quality(**arguments):
    return Quality.of(LPE(**arguments).get_params())


@pytest.mark.parametrize("n_found", [0, 1, 7, 1099])
@pytest.mark.parametrize("risk", [1e-4, 0.05])
def test_upper_bound__is_the_share_at_which_so_few_are_unlikely(n_found, risk):
    bound = upper_bound(n_found, 1100, risk)

    assert binom.cdf(n_found, 1100, bound) == pytest.approx(risk, rel=1e-6)


def test_upper_bound__is_all_where_all_are_found():
    assert upper_bound(3, 3, 0.01) == 1.0


@pytest.mark.parametrize("share", [0.001, 0.01, 0.1])
def test_certificates__are_wrong_as_seldom_as_is_said(share):
    """If hardly more rows are off than is certified, in whichever round, by any sample."""
    quality = _quality(max_error_share=share)
    wrong = 0.0
    for n_sampled in quality.sample_rows:
        errors, n_off = np.zeros(n_sampled), 0
        while certificate_of(errors, quality, 1, 4, 0).is_met:
            errors[n_off] = 0.5
            n_off += 1
        assert n_off > 0
        wrong += binom.cdf(n_off - 1, n_sampled, 1.0001 * share)

    assert RISK / 100 < wrong <= RISK


@pytest.mark.parametrize("share", [0.001, 0.01, 0.1])
def test_sample_rows__can_show_the_share_that_is_asked(share):
    """If none of them is off; one that is too many for the smallest sample."""
    sizes = _quality(max_error_share=share).sample_rows

    assert len(sizes) == ROUNDS
    assert upper_bound(0, sizes[0], RISK / ROUNDS) <= share
    assert min(sizes) == sizes[0] >= 1100


def test_quality__rechecks_what_alpha_flags():
    assert _quality(alpha=0.02).recheck == 0.02
    assert _quality(alpha=0.02, recheck=0.1).recheck == 0.1
    assert _quality(random_state=7).seed == 7


def test_quality__is_made_of_plain_numbers():
    quality = _quality(random_state=np.int64(7), max_p_error=np.float32(0.5))

    assert type(quality.seed) is int
    assert type(quality.max_p_error) is float
    draws(np.arange(3), quality.seed, 0)


def test_certificate__tells_what_was_found():
    quality = _quality()
    errors = np.r_[np.zeros(1098), 0.01, 0.02]

    found = certificate_of(errors, quality, 2, blocks=4, exact=1)

    assert (found.audited, found.beyond, found.largest_error) == (1100, 1, 0.02)
    assert not found.is_met  # by one row
    assert "1 of 1100" in str(found)
    assert "1 of 4 blocks" in str(found)
    assert certificate_of(errors[:-1], quality, 1, 4, 0).is_met
    assert exact_certificate(quality, 3, 4).is_met
    assert str(exact_certificate(quality, 0, 4)) == "every row was measured exactly"
    assert "exactly, after 3 samples" in str(exact_certificate(quality, 3, 4))


def test_draws__of_one_kind_tell_nothing_of_another():
    """Of nominal rows, of rows of tables, and of rows that guides are tried on."""
    kinds = [*NOMINAL_DRAWS, *TABLE_DRAWS, TUNING_DRAW]

    assert len(NOMINAL_DRAWS) == len(TABLE_DRAWS) == ROUNDS
    assert len(set(kinds)) == len(kinds)


def test_draws__are_uniform_and_belong_to_numbers():
    numbers = np.arange(100_000)
    drawn = draws(numbers, 3, 0)

    assert kstest(drawn / 2**64, "uniform").pvalue > 1e-3
    np.testing.assert_array_equal(draws(numbers[5:9], 3, 0), drawn[5:9])
    for other in (draws(numbers, 4, 0), draws(numbers, 3, 1)):
        shared = np.intersect1d(np.argsort(drawn)[:1000], np.argsort(other)[:1000])
        assert 0 < len(shared) < 40  # about 10 of 1000 by chance
    assert len(np.unique(drawn)) == len(drawn)
