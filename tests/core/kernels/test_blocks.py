"""Blocks hold the rows they were given, and bounds that are never on the wrong side."""

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpe_dask.kernels.arrays import LANES
from lpe_dask.kernels.blocks import (
    ALIGNMENT,
    aligned,
    as_float32_if_exact,
    block_of,
    empty_aligned,
)
from searching import EXACT, HARD_POINTS, SAMPLES, in_blocks, search_nearest
from strategies import point_sets

#: Bounds in float32 cannot be closer; the filter allows for more.
TINY = 2.0**-149


def _rows_by_cell(block):
    return [slice(start, stop) for start, stop in itertools.pairwise(block.starts)]


def _lanes(block):
    """Return the points of all groups, row by row."""
    n_features = block.rows.shape[1]
    groups = block.groups.reshape(-1, n_features, LANES)
    return groups.transpose(0, 2, 1).reshape(-1, n_features)


@pytest.mark.parametrize("algorithm", EXACT)
@given(data=st.data(), points=point_sets(max_rows=20))
def test_build_block__keeps_each_row_with_its_number(algorithm, data, points):
    numbers = np.array(data.draw(st.permutations(range(len(points)))))

    block = in_blocks(algorithm, points, [numbers]).blocks[0]

    assert block.n_rows == len(points)
    np.testing.assert_array_equal(np.sort(block.numbers), np.arange(len(points)))
    np.testing.assert_array_equal(block.rows, points[block.numbers])


@pytest.mark.parametrize("algorithm", EXACT)
@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("name", HARD_POINTS)
def test_build_block__describes_the_points_of_each_cell(name, sample, algorithm):
    """Groups, lengths and boxes are those of the rows from the center of their cell."""
    rows = HARD_POINTS[name]
    reference = in_blocks(algorithm, rows, sample=rows[: SAMPLES[sample]])
    block = reference.blocks[0]
    points = reference.basis.points(block.rows)
    n_rows = len(rows)

    lanes = _lanes(block)
    squares = (lanes.astype(float) ** 2).sum(axis=1)
    is_far = np.isneginf(block.norms[:n_rows])

    for cell, run in enumerate(_rows_by_cell(block)):
        offsets = points[run] - block.centers[cell]
        far = is_far[run]
        np.testing.assert_array_equal(lanes[run][~far], offsets[~far].astype(np.float32))
        assert (block.norms[run] <= squares[run] + TINY).all()
        assert (block.norms[run][~far] >= squares[run][~far] * 0.99 - 1e-37).all()
        longest = np.repeat(block.longest, LANES)[run]
        assert (longest[far] == np.inf).all()
        assert (squares[run] <= longest + TINY).all()
        assert (block.lows[cell] <= offsets).all()
        assert (block.highs[cell] >= offsets).all()
        own_reaches = (points[run][~far] ** 2).sum(axis=1)
        if not far.all():  # a sum of squares, in whatever order
            np.testing.assert_allclose(block.reaches[cell], own_reaches.max(), rtol=1e-13)
    assert (block.low <= points).all()
    assert (block.high >= points).all()
    assert np.isnan(block.norms[n_rows:]).all()


@pytest.mark.parametrize("algorithm", EXACT)
def test_build_block__does_not_filter_rows_too_far_out_for_float32(algorithm):
    near = np.random.default_rng(0).standard_normal((100, 2))
    rows = np.concatenate([near, [[1e13, 0.0], [0.0, 1e300]]])

    block = in_blocks(algorithm, rows, sample=near).blocks[0]

    is_far = block.norms[: block.n_rows] == -np.inf
    assert is_far[block.numbers >= 100].all()
    lanes = _lanes(block)[: block.n_rows]
    assert not lanes[is_far].any()


@pytest.mark.parametrize("algorithm", EXACT)
def test_build_block__is_bounded_where_near_rows_are_together(algorithm):
    rows = np.random.default_rng(0).standard_normal((200, 2))

    block = in_blocks(algorithm, rows).blocks[0]

    is_bounded = algorithm == "pruned"
    for bounds in (block.low, block.high, block.lows, block.highs):
        assert (np.isfinite(bounds) == is_bounded).all()


@pytest.mark.parametrize("algorithm", EXACT)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_build_block__keeps_rows_one_after_the_other(algorithm, dtype):
    """Kernels read along a row, whatever the order of the table in memory is."""
    normal = np.random.default_rng(0).standard_normal((70, 3))
    rows = np.asfortranarray(normal, dtype)

    block = in_blocks(algorithm, rows).blocks[0]

    assert block.rows.dtype == dtype
    assert block.rows.nbytes == rows.nbytes
    assert block.rows.flags.c_contiguous
    np.testing.assert_array_equal(block.rows, rows[block.numbers])


@pytest.mark.parametrize(
    ("rows", "dtype"),
    [
        (np.array([[1.0, 0.5], [-3.0, 2.0**100]]), np.float32),
        (np.array([[1.0, 0.1]]), np.float64),
        (np.array([[1.0, 1e300]]), np.float64),
        (np.array([[1.0, 1e-300]]), np.float64),
        (np.array([[1.0, -0.0]]), np.float32),
    ],
)
def test_narrow__takes_half_the_room_where_that_changes_nothing(rows, dtype):
    actual = as_float32_if_exact(rows)

    assert actual.dtype == dtype
    np.testing.assert_array_equal(actual.astype(np.float64), rows)


def test_narrow__does_not_copy_float32():
    rows = np.ones((3, 2), np.float32)

    assert as_float32_if_exact(rows) is rows


def _sent(block, shift):
    """Return a block that came in a message, its arrays at ``shift`` from any alignment."""
    buffers = []
    message = pickle.dumps(block, protocol=5, buffer_callback=buffers.append)
    assert len(message) < 2000  # no array is copied into it
    received = []
    for buffer in buffers:
        raw = buffer.raw()
        room = np.empty(raw.nbytes + 2 * ALIGNMENT, np.uint8)
        first = -room.ctypes.data % ALIGNMENT + shift
        room[first : first + raw.nbytes] = np.frombuffer(raw, np.uint8)
        received.append(room[first : first + raw.nbytes].data)
    assert sum(map(len, received)) == block.__sizeof__()
    return pickle.loads(message, buffers=received)


@pytest.mark.parametrize("algorithm", EXACT)
@pytest.mark.parametrize("shift", [0, 4, 16, 32, None])
def test_block__survives_a_message(algorithm, shift):
    """Sent without copies, and searched with the same bits wherever its arrays arrive."""
    rows = np.random.default_rng(0).standard_normal((3000, 3))
    reference = in_blocks(algorithm, rows)
    block = reference.blocks[0]
    expected = search_nearest(reference, rows[:300], 5).finish()

    in_one_piece = pickle.loads(pickle.dumps(block, 2))
    sent = in_one_piece if shift is None else _sent(block, shift)

    assert block.__sizeof__() == sent.__sizeof__() == sum(array.nbytes for array in block)
    for array, other in zip(block, sent, strict=True):
        assert (other.dtype, other.shape) == (array.dtype, array.shape)
        assert other.tobytes() == array.tobytes()
    assert sent.groups.ctypes.data % ALIGNMENT == sent.norms.ctypes.data % ALIGNMENT == 0
    reference.blocks[0] = sent
    found = search_nearest(reference, rows[:300], 5).finish()
    np.testing.assert_array_equal(found, expected)


def test_block_of__takes_arrays_back():
    rows = np.random.default_rng(0).standard_normal((100, 3))
    block = in_blocks("pruned", rows).blocks[0]

    again = block_of(*block)

    no_row = block.double_rows if len(block.single_rows) > 0 else block.single_rows
    for a, b in zip(again, block, strict=True):
        assert b is no_row or np.shares_memory(a, b)
        assert not a.flags.writeable


@given(shape=st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple))
def test_empty_aligned__starts_at_a_cache_line(shape):
    array = empty_aligned(shape)

    assert array.shape == shape
    assert array.dtype == np.float32
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert array.ctypes.data % ALIGNMENT == 0


def test_aligned__copies_only_what_is_not():
    good = empty_aligned((2 * LANES,))
    good[:] = np.arange(2 * LANES)

    shifted = aligned(good[1:])

    assert aligned(good) is good
    assert shifted.ctypes.data % ALIGNMENT == 0
    np.testing.assert_array_equal(shifted, good[1:])
