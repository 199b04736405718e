"""Blocks hold the rows they were given, in cells, with bounds that are never wrong."""

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpe_dask.aligned_arrays import ALIGNMENT
from lpe_dask.kernels import ALGORITHMS, Block, as_float32_if_exact
from lpe_dask.kernels import brute as tiles
from lpe_dask.kernels import pruned as cells
from lpe_dask.kernels.arrays import LANES
from searching import HARD_POINTS, SAMPLES, in_blocks, search_nearest
from strategies import point_sets

#: Bounds in float32 cannot be closer; the filter allows for more.
TINY = 2.0**-149


def _rows_by_cell(block):
    return [slice(start, stop) for start, stop in itertools.pairwise(block.starts)]


def _lanes(block):
    """Return the points of all groups, as whole numbers times their steps, row by row."""
    n_features = block.rows.shape[1]
    groups = block.groups.reshape(len(block.steps), -1, LANES, 2)
    whole = groups.swapaxes(1, 2).reshape(len(block.steps), LANES, -1)
    assert not whole[:, :, n_features:].any()
    lanes = whole[:, :, :n_features] * block.steps[:, None, None].astype(float)
    return lanes.reshape(-1, n_features)


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("name", HARD_POINTS)
def test_build__describes_the_points_of_each_cell(name, sample, algorithm):
    """Groups, lengths and boxes are those of the rows from the center of their cell."""
    rows = HARD_POINTS[name]
    reference = in_blocks(algorithm, rows, sample=rows[: SAMPLES[sample]])
    block = reference.blocks[0]
    points = reference.basis.points(block.rows)
    n_rows = len(rows)

    lanes = _lanes(block)
    is_far = np.isneginf(block.norms[:n_rows])
    np.testing.assert_array_equal(np.sort(block.numbers), np.arange(n_rows))
    np.testing.assert_array_equal(block.rows, rows[block.numbers])
    assert is_far[np.abs(points[:, 0]) > 2.0**50].all()

    for cell, run in enumerate(_rows_by_cell(block)):
        offsets = points[run] - block.centers[cell]
        far = is_far[run]
        with np.errstate(over="ignore"):
            moved = np.where(far[:, None], 0, offsets).astype(np.float32).astype(float)
        squares = (moved**2).sum(axis=1)
        steps, roundings, spans = (
            np.repeat(of.astype(float), LANES)[run]
            for of in (block.steps, block.roundings, block.spans)
        )
        off = np.sqrt(((lanes[run] - moved) ** 2).sum(axis=1))
        assert (off <= roundings).all()
        assert (roundings <= steps * np.sqrt(rows.shape[1] + 3) / 2 * 1.01).all()
        assert (np.sqrt(squares) <= spans).all()
        # As long as 16 bits allow.
        assert ((steps == 2.0**-60) | (spans >= 2**14 * 0.99 * steps)).all()
        assert (block.norms[run] <= squares + TINY).all()
        assert (block.norms[run][~far] >= squares[~far] * 0.99 - 1e-37).all()
        longest = np.repeat(block.longest, LANES)[run]
        assert (longest[far] == np.inf).all()
        assert not lanes[run][far].any()  # float32 would not hold them
        assert (squares <= longest + TINY).all()
        assert (block.lows[cell] <= offsets).all()
        assert (block.highs[cell] >= offsets).all()
        own_reaches = (points[run][~far] ** 2).sum(axis=1)
        if not far.all():  # a sum of squares, in whatever order
            np.testing.assert_allclose(block.reaches[cell], own_reaches.max(), rtol=1e-13)
    low, high = block.box()
    assert (low <= points).all()
    assert (high >= points).all()
    assert np.isnan(block.norms[n_rows:]).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_build__keeps_rows_one_after_the_other(algorithm, dtype):
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
    for array in (block.groups, block.norms, sent.groups, sent.norms):
        assert array.ctypes.data % ALIGNMENT == 0
    reference.blocks[0] = sent
    found = search_nearest(reference, rows[:300], 5).finish()
    np.testing.assert_array_equal(found, expected)


def test_from_arrays__takes_arrays_back():
    rows = np.random.default_rng(0).standard_normal((100, 3))
    block = in_blocks("pruned", rows).blocks[0]

    again = Block.from_arrays(*block)

    for a, b in zip(again, block, strict=True):
        assert b.size == 0 or np.shares_memory(a, b)
        assert not a.flags.writeable


# How points are put into cells: by brute force (tiles) and by pruning (cells)


@given(
    data=st.data(),
    points=point_sets(max_rows=9),
    cell_rows=st.sampled_from([64, 128, 256, 1024]),
)
def test_arrange__cuts_an_order_of_all_points_into_cells(
    algorithm, data, points, cell_rows
):
    """Each point is in one cell, also one that is not measured; the points stay.

    Cells are not too large, and start at groups of 64.
    """
    points = np.repeat(points, data.draw(st.integers(0, 200)), axis=0)
    points[:: data.draw(st.integers(1, 9))] = data.draw(st.sampled_from([np.nan, 0.0]))
    before = points.copy()

    arrangement = ALGORITHMS[algorithm].arrange(points, cell_rows)

    sizes = np.diff(arrangement.starts)
    np.testing.assert_array_equal(np.sort(arrangement.order), np.arange(len(points)))
    assert arrangement.starts[0] == 0
    assert arrangement.starts[-1] == len(points)
    assert ((sizes > 0) & (sizes <= cell_rows)).all()
    assert (arrangement.starts[:-1] % LANES == 0).all()
    np.testing.assert_array_equal(points, before)


@pytest.mark.parametrize("n_points", [0, 1, 63, 64, 65, 127, 128, 129, 191, 1000])
def test_arrange__does_not_leave_cells_half_empty(algorithm, n_points):
    points = np.random.default_rng(n_points).standard_normal((n_points, 2))

    arrangement = ALGORITHMS[algorithm].arrange(points, 64)

    assert len(arrangement.starts) - 1 == -(-n_points // 64)


@pytest.mark.parametrize("n_points", [300, 1000, 5003])
def test_pruned_arrange__cuts_the_same_cells_however_many_rows_are_cut_together(
    n_points, monkeypatch
):
    points = np.random.default_rng(0).standard_normal((n_points, 4))
    at_once = cells.arrange(points, 128)

    monkeypatch.setattr(cells, "CUT_NUMBERS", 4 * 256)
    in_parts = cells.arrange(points, 128)

    np.testing.assert_array_equal(in_parts.starts, at_once.starts)
    for start, stop in itertools.pairwise(at_once.starts):
        assert set(in_parts.order[start:stop]) == set(at_once.order[start:stop])


@pytest.mark.parametrize(
    ("n_points", "n_features", "most"),
    [(3000, 8, 2048), (2999, 8, 1024), (3000, 7, 1024), (3000, 3, 64)],
)
def test_pruned_arrange__makes_larger_cells_of_many_rows_of_many_columns(
    n_points, n_features, most, monkeypatch
):
    monkeypatch.setattr(cells, "MANY_ROWS", 3000)
    points = np.random.default_rng(0).standard_normal((n_points, n_features))

    sizes = np.diff(cells.arrange(points).starts)

    assert most / 2 < sizes.max() <= most


def test_tiles_arrange__sorts_runs_by_length_and_has_no_boxes():
    points = np.random.default_rng(0).standard_normal((200, 2))

    arrangement = tiles.arrange(points, 64)

    lengths = np.linalg.norm(points, axis=1)
    for start in range(0, 200, 64):
        run = arrangement.order[start : start + 64]
        np.testing.assert_array_equal(np.sort(run), np.arange(start, min(200, start + 64)))
        assert (np.diff(lengths[run]) >= 0).all()
    np.testing.assert_array_equal(arrangement.starts, [0, 64, 128, 192, 200])
    assert not arrangement.bounded


def test_cells_arrange__puts_points_on_a_line_into_intervals():
    points = np.random.default_rng(0).standard_normal((1000, 1))

    arrangement = cells.arrange(points, 64)

    sorted_points = points[arrangement.order, 0]
    for start in arrangement.starts[1:-1]:
        assert sorted_points[:start].max() <= sorted_points[start:].min()
    assert arrangement.bounded


def test_cells_arrange__gives_each_cluster_its_cells():
    """Cut along the longest axis first, whichever that is."""
    rng = np.random.default_rng(0)
    cluster = rng.permutation(np.repeat([0, 1, 2, 3], 64))
    centers = np.array([[0, 0, 0], [0, 100, 0], [0, 0, 900], [0, 100, 900]])
    points = centers[cluster] + rng.standard_normal((256, 3))

    arrangement = cells.arrange(points, 64)

    by_cell = cluster[arrangement.order].reshape(4, 64)
    assert (by_cell == by_cell[:, :1]).all()


def test_basis__is_rotated_where_boxes_profit():
    sample = np.random.default_rng(0).standard_normal((50, 3))

    assert tiles.basis(sample).rotation is None
    assert cells.basis(sample).rotation is not None
    assert cells.basis(sample[:, :1]).rotation is None


@pytest.mark.parametrize("name", HARD_POINTS)
def test_build__gives_each_group_a_box_within_its_cell(name):
    """Of no more than its rows need, rounded outward."""
    rows = np.hstack([HARD_POINTS[name]] * 4)  # cells of few columns are groups
    reference = in_blocks("pruned", rows, cell_rows=128)
    block = reference.blocks[0]
    points = reference.basis.points(block.rows)

    for group, start in enumerate(range(0, len(rows), LANES)):
        of_group = points[start : start + LANES]
        low, high = of_group.min(axis=0), of_group.max(axis=0)
        margin = 2.0**-20 * np.maximum(np.abs(low), np.abs(high)) + 1e-36
        assert (block.group_lows[group] <= low).all()
        assert (block.group_lows[group] >= low - margin).all()
        assert (block.group_highs[group] >= high).all()
        assert (block.group_highs[group] <= high + margin).all()


def test_build__gives_groups_no_boxes_where_they_are_cells_or_have_none():
    rows = np.random.default_rng(0).standard_normal((640, 4))

    for algorithm, cell_rows in (("pruned", 64), ("brute", 128)):
        block = in_blocks(algorithm, rows, cell_rows=cell_rows).blocks[0]

        assert block.group_lows.shape == block.group_highs.shape == (0, 4)


def test_cells_arrange__keeps_near_rows_in_groups_within_cells():
    points = np.random.default_rng(0).standard_normal((1024, 1))

    in_groups = points[cells.arrange(points, 512).order, 0].reshape(16, 64)

    np.testing.assert_array_equal(np.sort(in_groups.ravel()), np.sort(points[:, 0]))
    order = np.argsort(in_groups[:, 0])
    lows, highs = in_groups[order].min(axis=1), in_groups[order].max(axis=1)
    assert (highs[:-1] <= lows[1:]).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_cells_arrange__takes_points_that_are_not_measured(value):
    """Without a warning; codes of categories may be infinite as well."""
    points = np.random.default_rng(0).standard_normal((500, 8))
    points[::3, 2] = value

    arrangement = cells.arrange(points, 64)

    assert sorted(arrangement.order) == list(range(500))
