"""What is kept of many pairs, and the bounds by which the others are dropped."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiling import from_python
from lpe_dask.kernels import initial_limits, nearest, selection
from lpe_dask.kernels.arrays import LANES
from lpe_dask.kernels.initial_limits import MIN_SQUARE
from lpe_dask.kernels.nearest import TOLERANCE, _upper_bits, reservoir_size

_keep_smallest = from_python(selection.keep_smallest)
keep_smallest_pairs = from_python(selection.keep_smallest_pairs)
largest_of = from_python(selection.largest_of)
bits_within = from_python(nearest._bits_within)
square_of = from_python(initial_limits._square_of)


def keep_smallest(values, n_values, n_kept):
    return _keep_smallest(values, np.zeros(n_values, np.int64), n_values, n_kept)


@pytest.mark.parametrize("dtype", [np.float64, np.uint64])
@given(
    values=st.lists(st.integers(0, 10) | st.integers(0, 2**53), min_size=1, max_size=80),
    data=st.data(),
)
def test_keep_smallest__equals_sorting(dtype, values, data):
    n_kept = data.draw(st.integers(1, len(values)))
    # Words sort as such, not as signed numbers; a place beyond n_values is not looked at.
    offset = 2**63 - 5 if dtype == np.uint64 else -5
    array = np.array([*(value + offset for value in values), 0], dtype)
    expected = np.sort(array[:-1])

    largest = keep_smallest(array, len(values), n_kept)

    np.testing.assert_array_equal(np.sort(array[:n_kept]), expected[:n_kept])
    np.testing.assert_array_equal(np.sort(array[:-1]), expected)  # none is lost
    assert largest == array[n_kept - 1] == expected[n_kept - 1]
    assert array[-1] == 0


def test_keep_smallest__stays_cheap_in_any_order():
    """Quadratic behavior would take hours here; reservoirs fill in such orders."""
    n = 2_000_000
    up = np.arange(n, dtype=float)
    for values in (np.zeros(n), up, up[::-1], np.concatenate([up[::2], up[::-2]])):
        expected = np.sort(values)[n // 2 - 1]

        assert keep_smallest(values.copy(), n, n // 2) == expected


@given(
    values=st.lists(st.integers(-3, 3) | st.sampled_from([np.inf, -np.inf]), min_size=1),
    data=st.data(),
)
def test_keep_smallest_pairs__equals_sorting_by_value_and_number(values, data):
    """Of equal values those with smaller numbers are kept, and pairs stay together."""
    n_kept = data.draw(st.integers(1, len(values)))
    numbers = data.draw(st.permutations(range(len(values))))
    pairs = sorted(zip(values, numbers, strict=True))
    # A place beyond n_values is not looked at.
    value_array, number_array = np.array([*values, -99.0]), np.array([*numbers, -99])

    keep_smallest_pairs(value_array, number_array, len(values), n_kept)

    kept = zip(value_array[:n_kept], number_array[:n_kept], strict=True)
    left = zip(value_array[n_kept:-1], number_array[n_kept:-1], strict=True)
    assert sorted(kept) == pairs[:n_kept]
    assert sorted(left) == pairs[n_kept:]


def test_keep_smallest_pairs__stays_cheap_on_equal_and_sorted_numbers():
    """Quadratic behavior would take hours here."""
    n = 1_000_000
    for values in (np.zeros(n), np.arange(n, dtype=float), np.arange(n, 0.0, -1)):
        numbers = np.arange(n)
        expected = np.lexsort((numbers, values))[: n // 2]

        keep_smallest_pairs(values.copy(), numbers, n, n // 2)

        np.testing.assert_array_equal(np.sort(numbers[: n // 2]), np.sort(expected))


def test_largest_of__is_that_of_a_part():
    values = np.array([9.0, 1.0, 3.0, 2.0, 8.0])

    assert largest_of(values, 1, 4) == 3.0
    assert largest_of(values, 2, 2) == -np.inf


def test_reservoir_size__leaves_room_beyond_k():
    assert all(reservoir_size(k) > k for k in (1, 2, 32, 33, 1000))


finite = st.floats(allow_nan=False, allow_infinity=False, width=32)


@given(total=finite, rise=finite.map(abs))
def test_upper_bits__are_just_above_the_exact_sum(total, rise):
    bits = _upper_bits(np.float32(total), np.float32(rise), np.float32(1))

    upper = np.uint32(bits).view(np.float32)
    exact = max(0, Fraction(total) + Fraction(rise))
    assert upper == np.inf or Fraction(float(upper)) > exact
    two_below = np.nextafter(np.nextafter(upper, np.float32(0)), np.float32(-1))
    assert Fraction(float(two_below)) <= exact


@pytest.mark.parametrize("limit", [1.0, 1.9, 0.2, 6.0, np.inf])
def test_bits_within__have_k_pairs_and_few_more(limit):
    """By counting where the limit is near the K-th (1, 1.9), and else by selection."""
    uppers = np.random.default_rng(0).random(400).astype(np.float32)
    keys = uppers.view(np.uint32).astype(np.uint64) << np.uint64(32)
    keys |= np.arange(400, dtype=np.uint64)

    bits = bits_within(keys, np.zeros(400, np.int64), np.uint64(400), 250, limit)

    n_within = (uppers <= np.uint32(bits).view(np.float32)).sum()
    assert 250 <= n_within <= 250 * (1 + TOLERANCE)


SQUARES = st.one_of(
    st.integers(0, 5).map(float),
    st.floats(0, 1e6, width=32),
    st.sampled_from([0.0, 1e-30, 1e-12, 1e20]),
)


@given(
    squares=st.lists(SQUARES, min_size=LANES, max_size=LANES),
    n_least=st.integers(1, 41),
    began=st.sampled_from([0.0, 1e-40, 1e-3, 1.0, 7e5, 1e40, np.inf]),
)
def test_square_of__has_as_many_lanes_within(squares, n_least, began):
    """Wherever the search begins; what is much nearer than another one is found out."""
    sums = np.array([np.nan] * 3 + squares, np.float32)

    square = square_of(n_least, sums, 3, 0.0, began)

    assert (sums[3:] <= np.float32(square)).sum() >= n_least
    nth = np.sort(sums[3:])[n_least - 1]
    assert square <= max(4 * nth, 4 * MIN_SQUARE)
