import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiling import from_python
from lpe_dask.kernels import initial_limits
from lpe_dask.kernels.arrays import LANES
from lpe_dask.kernels.initial_limits import MAX_SQUARE, MIN_SQUARE
from searching import EXACT, all_distances, in_blocks, search_nearest, smallest

_square_of = from_python(initial_limits._square_of)

pytestmark = pytest.mark.usefixtures("compiled_kernels")

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

    square = _square_of(n_least, sums, 3, 0.0, began)

    is_within = sums[3:] <= np.float32(square)
    assert is_within.sum() >= n_least
    nth = np.sort(sums[3:])[n_least - 1]
    assert square <= max(4 * nth, 4 * MIN_SQUARE)


def test_square_of__is_close_where_squares_differ():
    squares = np.random.default_rng(0).random(LANES)
    length = 3.0
    sums = (squares - length).astype(np.float32)

    square = _square_of(21, sums, 0, length, 1.0)

    assert 21 <= (squares <= square).sum() <= 21 + 21 // 8


def test_square_of__is_none_where_too_few_have_a_sum():
    sums = np.full(LANES, np.inf, np.float32)
    sums[:20] = 1

    for began in (0.0, 1.0, MAX_SQUARE, np.inf):
        assert _square_of(21, sums, 0, 0.0, began) == np.inf
        assert _square_of(20, sums, 0, 0.0, began) < 4


@pytest.mark.parametrize("algorithm", EXACT)
@pytest.mark.parametrize("n_features", [2, 12])
def test_seed_limits__end_where_half_of_the_rows_are_equal(n_features, algorithm):
    """The square of a query among equal rows is no start for that of the next one."""
    rows = np.random.default_rng(0).standard_normal((2000, n_features))
    rows[::2] = rows[0]
    reference = in_blocks(algorithm, rows, cell_rows=256)

    found = search_nearest(reference, rows, 20, np.arange(2000)).finish()

    expected = smallest(all_distances(rows, rows, exclude_self=True), 20)[0][:, -1]
    np.testing.assert_array_equal(found, expected)
