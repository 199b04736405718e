import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiling import from_python
from lpe_dask.kernels import selection

_keep_smallest = from_python(selection.keep_smallest)
keep_smallest_pairs = from_python(selection.keep_smallest_pairs)
largest_of = from_python(selection.largest_of)


def keep_smallest(values, n_values, n_kept):
    return _keep_smallest(values, np.zeros(n_values, np.int64), n_values, n_kept)


@pytest.mark.parametrize("dtype", [np.float64, np.uint64])
@given(values=st.lists(st.integers(0, 10), min_size=1, max_size=60), data=st.data())
def test_keep_smallest__equals_sorting(dtype, values, data):
    n_kept = data.draw(st.integers(1, len(values)))
    # Words sort as such, not as signed numbers; a place beyond n_values is not looked at.
    offset = 2**63 - 5 if dtype == np.uint64 else -5
    array = np.array([*(value + offset for value in values), 0], dtype)
    expected = np.sort(array[:-1])[:n_kept]

    largest = keep_smallest(array, len(values), n_kept)

    np.testing.assert_array_equal(np.sort(array[:n_kept]), expected)
    assert largest == array[n_kept - 1] == expected[-1]


def test_keep_smallest__stays_cheap_in_any_order():
    """Quadratic behavior would take hours here; reservoirs fill in such orders."""
    n = 2_000_000
    up = np.arange(n, dtype=float)
    for values in (np.zeros(n), up, up[::-1], np.concatenate([up[::2], up[::-2]])):
        expected = np.sort(values)[n // 2 - 1]

        assert keep_smallest(values.copy(), n, n // 2) == expected


@given(
    values=st.lists(st.integers(0, 2**64 - 2), min_size=1, max_size=80, unique=True),
    data=st.data(),
)
def test_keep_smallest__loses_none_of_different_words(values, data):
    n_kept = data.draw(st.integers(1, len(values)))
    words = np.array([*values, 0], np.uint64)  # the last place is not looked at
    expected = np.sort(words[:-1])

    keep_smallest(words, len(values), n_kept)

    np.testing.assert_array_equal(np.sort(words[:n_kept]), expected[:n_kept])
    np.testing.assert_array_equal(np.sort(words[:-1]), expected)
    assert words[-1] == 0


@given(values=st.lists(st.integers(-3, 3), min_size=1, max_size=60), data=st.data())
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


@pytest.mark.parametrize("infinite", [np.inf, -np.inf])
def test_keep_smallest_pairs__takes_infinite_values(infinite):
    values, numbers = np.full(5, infinite), np.array([4, 2, 0, 1, 3])

    keep_smallest_pairs(values, numbers, 5, 2)

    assert sorted(numbers[:2]) == [0, 1]


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
