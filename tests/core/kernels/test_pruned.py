"""How points are put into cells: by brute force (tiles) and by pruning (cells)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpe_dask.kernels import brute as tiles
from lpe_dask.kernels import pruned as cells
from lpe_dask.kernels.algorithms import ALGORITHMS
from lpe_dask.kernels.arrays import LANES
from searching import EXACT
from strategies import point_sets


@pytest.mark.parametrize("algorithm", EXACT)
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


@pytest.mark.parametrize("algorithm", EXACT)
@pytest.mark.parametrize("n_points", [0, 1, 63, 64, 65, 127, 128, 129, 191, 1000])
def test_arrange__does_not_leave_cells_half_empty(algorithm, n_points):
    points = np.random.default_rng(n_points).standard_normal((n_points, 2))

    arrangement = ALGORITHMS[algorithm].arrange(points, 64)

    assert len(arrangement.starts) - 1 == -(-n_points // 64)


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
