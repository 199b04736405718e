"""Walks along a neighbor graph against shortest paths by definition and by scipy."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

import definitions
from lpe_dask.kernels import NeighborGraph, walks
from lpe_dask.kernels.neighbor_graph import GRAPHS
from searching import all_distances, smallest
from strategies import point_sets


@pytest.fixture(scope="module", params=sorted(GRAPHS))
def graph(request):
    return request.param


def graph_of(points, n_neighbors, graph):
    distances, numbers = smallest(
        all_distances(points, points, exclude_self=True), n_neighbors
    )
    return NeighborGraph.of(graph, numbers.astype(np.int32), distances)


def edges_of(graph):
    return {
        (i, int(graph.targets[e])): float(graph.lengths[e])
        for i in range(graph.n_rows)
        for e in range(graph.starts[i], graph.starts[i + 1])
    }


@given(points=point_sets(), n_neighbors=st.integers(1, 6))
def test_graphs__have_the_edges_of_the_definition(graph, points, n_neighbors):
    actual = graph_of(points, n_neighbors, graph)

    expected = definitions.neighbor_edges(points, n_neighbors, graph == "union")
    assert edges_of(actual) == expected
    assert len(actual.targets) == len(expected)


@given(points=point_sets(), n_neighbors=st.integers(1, 6), most=st.integers(1, 14))
def test_walk_from_rows__gives_the_kth_and_the_mean(graph, points, n_neighbors, most):
    walked, rows = graph_of(points, n_neighbors, graph), np.arange(len(points))

    distances, counts = walked.walk_from_rows(rows, most=most)
    means, same_counts = walked.walk_from_rows(rows, most=most, aggregation="mean")

    expected = definitions.geodesic_distances(
        points, points, n_neighbors, graph == "union", exclude_self=True
    )
    assert distances.tolist() == definitions.geodesic_radii(expected, most)
    assert means.tolist() == definitions.geodesic_means(expected, most)
    reachable = definitions.geodesic_counts(expected, 1e300)
    assert counts.tolist() == same_counts.tolist() == [min(most, n) for n in reachable]


@given(
    data=st.data(),
    n_features=st.integers(1, 2),
    n_neighbors=st.integers(1, 6),
    radius=st.sampled_from([0.0, 0.1, 0.30000000000000004, 1.0, 3.0, 3e-9, 1e7]),
)
def test_walk_from_points__counts_the_closed_ball_by_definition(
    graph, data, n_features, n_neighbors, radius
):
    points = data.draw(point_sets(n_features=n_features))
    queries = data.draw(point_sets(n_features=n_features))
    entries, numbers = smallest(all_distances(queries, points), n_neighbors)

    walked = graph_of(points, n_neighbors, graph)
    _, counts = walked.walk_from_points(numbers, entries, radius)

    expected = definitions.geodesic_distances(
        queries, points, n_neighbors, graph == "union"
    )
    assert counts.tolist() == definitions.geodesic_counts(expected, radius)


def test_walk_from_rows__equals_scipy_in_every_bit(graph):
    """A curved sheet: far rows are reached in many steps."""
    rng = np.random.default_rng(0)
    turn, height = rng.uniform(0, 4 * math.pi, 400), rng.uniform(0, 3, 400)
    points = np.c_[turn * np.cos(turn), height, turn * np.sin(turn)]
    walked = graph_of(points, 5, graph)

    # The oldest scipy takes no other whole numbers.
    targets, starts = walked.targets.astype(np.int32), walked.starts.astype(np.int32)
    matrix = csr_array((walked.lengths, targets, starts), (400, 400))
    expected = np.sort(dijkstra(matrix), axis=1)[:, 1:]

    for most in (1, 20, 399):
        distances, _ = walked.walk_from_rows(np.arange(400), most=most)
        np.testing.assert_array_equal(distances, expected[:, most - 1])
    _, counts = walked.walk_from_rows(np.arange(400), radius=7.0)
    np.testing.assert_array_equal(counts, (expected <= 7.0).sum(axis=1))


def test_walk__finds_room_for_every_row():
    n_rows = 8 * walks.INITIAL_CAPACITY
    points = np.arange(n_rows, dtype=float)[:, None]
    points[n_rows // 2 :] += 10.0  # two parts, not joined
    line = graph_of(points, 2, "directed")

    distances, counts = line.walk_from_rows(np.array([0, n_rows - 1, 5]))

    assert counts.tolist() == [n_rows // 2 - 1] * 3
    assert np.isinf(distances).all()


def test_walk__finds_room_for_a_row_that_leads_everywhere():
    n_rows = 8 * walks.INITIAL_CAPACITY
    starts = np.r_[0, np.full(n_rows, n_rows - 1)]
    star = NeighborGraph(
        starts, np.arange(1, n_rows, dtype=np.int32), np.arange(1.0, n_rows)
    )

    distances, counts = star.walk_from_rows(np.array([0, 1, 0]), most=n_rows - 1)

    assert counts.tolist() == [n_rows - 1, 0, n_rows - 1]
    assert distances.tolist() == [n_rows - 1, math.inf, n_rows - 1]


def test_walk__ends_with_the_rows_that_were_asked_for():
    """The work of a walk does not grow with the graph: so little room is enough for it."""
    points = np.random.default_rng(0).random((1200, 2))
    graph = graph_of(points, 5, "directed")
    far = NeighborGraph(graph.starts, graph.targets, graph.lengths.copy())
    distances, _ = graph.walk_from_rows(np.arange(20), most=20)

    # What is further away than the twentieth row is not looked at: it may say anything.
    near = {
        j
        for i in range(20)
        for j in np.flatnonzero(all_distances(points[i : i + 1], points)[0] <= distances[i])
    }
    is_far = np.repeat(~np.isin(np.arange(1200), list(near)), np.diff(graph.starts))
    assert is_far.mean() > 0.5
    far.lengths[is_far] = np.nan
    far.targets[is_far] = -5

    np.testing.assert_array_equal(far.walk_from_rows(np.arange(20), most=20)[0], distances)


def test_walk__overflowing_paths_lead_nowhere():
    points = np.array([[0.0], [1.7e308], [-1.7e308], [1.0]])
    with np.errstate(over="ignore"):
        graph = graph_of(points, 3, "directed")

    distances, counts = graph.walk_from_rows(np.arange(4), most=1)
    assert distances.tolist() == [1.0, math.inf, math.inf, 1.0]
    assert counts.tolist() == [1, 0, 0, 1]
