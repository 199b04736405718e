import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lpe_dask.kernels.selection import keep_smallest, reservoir_size


@given(values=st.lists(st.integers(-5, 5), min_size=1, max_size=60), data=st.data())
def test_keep_smallest__equals_sorting(values, data):
    n_kept = data.draw(st.integers(1, len(values)))
    array = np.array(
        [*values, -99.0]
    )  # a place beyond n_values, which must not be looked at

    largest = keep_smallest(array, len(values), n_kept)

    np.testing.assert_array_equal(np.sort(array[:n_kept]), sorted(values)[:n_kept])
    assert largest == array[n_kept - 1] == sorted(values)[n_kept - 1]


def test_keep_smallest__stays_cheap_on_equal_and_sorted_numbers():
    """Quadratic behaviour would take hours here."""
    n = 2_000_000
    for values in (np.zeros(n), np.arange(n, dtype=float), np.arange(n, 0.0, -1)):
        expected = np.sort(values)[n // 2 - 1]

        assert keep_smallest(values.copy(), n, n // 2) == expected


def test_reservoir_size__leaves_room_beyond_k():
    assert all(reservoir_size(k) > k for k in (1, 2, 32, 33, 1000))
