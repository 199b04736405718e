"""The graph of a search: right, lazy, small, and the same bits however it is cut."""

import math
import pickle
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest
from dask.delayed import delayed
from dask.sizeof import sizeof
from hypothesis import given
from hypothesis import strategies as st

import definitions
from lpe_dask.kernels.algorithms import ALGORITHMS
from lpe_dask.search import locality
from lpe_dask.search.blocks.packing import Space, pack_chunks, prepare_blocks
from lpe_dask.search.blocks.spool_blocks import SpooledBlock, sample_url
from lpe_dask.search.join import JoinInputs, JoinSpec, join, self_join
from lpe_dask.search.locality import by_box, learn_regions
from lpe_dask.search.plan import MIN_SAMPLED_NEIGHBORS, Statistic
from lpe_dask.search.preparation import Preparation
from lpe_dask.tasks.spool import spool_at
from lpe_dask.tasks.transfer import to_task
from strategies import point_sets, row_chunks

algorithms = pytest.mark.parametrize("algorithm", ALGORITHMS)


def space_of(reference, algorithm, preparation=None):
    preparation = Preparation() if preparation is None else preparation
    prepared = preparation.apply(reference)
    basis = ALGORITHMS[algorithm].basis(prepared)
    return Space(algorithm, preparation, basis, with_samples=True)


def blocks_of(rows, space, entry=None, n_regions=3, block_rows=None):
    """Put rows, a dask array, into blocks; where near rows are kept together, by region."""
    regions = None
    if space.prunes:
        points = space.basis.points(space.preparation.apply(rows.compute()))
        regions = learn_regions(points, n_regions)
    return prepare_blocks(lambda: rows, space, entry, regions, block_rows)


def searched(blocks, space, n_neighbors, pass_rows=64):
    return JoinInputs(blocks, space, JoinSpec(Statistic(n_neighbors, None), pass_rows))


def chunked(rows, chunks):
    return da.from_array(rows, chunks=(chunks, -1))


def tasks_of(collection, prefix):
    keys = dict(collection.__dask_graph__())
    return [
        key
        for key in keys
        if str(key[0] if isinstance(key, tuple) else key).startswith(prefix)
    ]


def searches():
    statistics = st.builds(
        Statistic,
        st.none() | st.integers(1, 15) | st.just(MIN_SAMPLED_NEIGHBORS),
        st.sampled_from([0.0, 0.1, 1.0, 3e-9, 1e7]),
        aggregation=st.sampled_from(["kth", "mean"]),
    )
    return st.builds(JoinSpec, statistics, st.integers(1, 15))


def expected_statistic(queries, reference, search, exclude_self=False):
    asked = search.statistic
    if asked.n_neighbors is None:
        return definitions.neighbor_counts(queries, reference, asked.radius, exclude_self)
    radii = {"kth": definitions.knn_radii, "mean": definitions.mean_radii}
    return radii[asked.aggregation](queries, reference, asked.n_neighbors, exclude_self)


@pytest.fixture(scope="module")
def spool(tmp_path_factory):
    return spool_at(str(tmp_path_factory.mktemp("spool")))


@algorithms
@given(data=st.data(), points=point_sets())
def test_self_join__equals_definition_for_any_blocks(algorithm, data, points, spool):
    """Held or in a spool, of all rows or of some, also where blocks have none of these."""
    search, n_rows = data.draw(searches()), len(points)
    chunks = data.draw(row_chunks(n_rows))
    block_rows = data.draw(st.none() | st.integers(1, n_rows))
    chosen = data.draw(st.none() | st.sets(st.integers(0, n_rows - 1)).map(sorted))
    space, n_regions = space_of(points, algorithm), data.draw(st.integers(1, 5))
    entry = spool.folder("blocks") if data.draw(st.booleans()) else None
    numbers = None if chosen is None else to_task(np.array(chosen, int), "chosen")

    with dask.config.set(scheduler="sync"):
        blocks = blocks_of(chunked(points, chunks), space, entry, n_regions, block_rows)
        tasks = self_join(
            len(blocks), JoinInputs(blocks.tasks(), space, search), 2, numbers
        )
        found = dask.compute(*tasks)

    actual = {
        number: value
        for numbers, statistic in found
        for number, value in zip(numbers.tolist(), statistic.tolist(), strict=True)
    }
    expected = expected_statistic(points, points, search, exclude_self=True)
    of_rows = range(n_rows) if chosen is None else chosen
    assert actual == {i: expected[i] for i in of_rows}


@algorithms
@given(data=st.data(), n_features=st.integers(1, 3))
def test_join__equals_definition_for_any_chunks(algorithm, data, n_features):
    search = data.draw(searches())
    reference = data.draw(point_sets(n_features=n_features))
    queries = data.draw(point_sets(n_features=n_features))
    chunks = data.draw(row_chunks(len(queries)))
    space = space_of(reference, algorithm)

    with dask.config.set(scheduler="sync"):
        rows = chunked(reference, data.draw(row_chunks(len(reference))))
        blocks = blocks_of(rows, space)
        actual = join(
            chunked(queries, chunks),
            JoinInputs(blocks.tasks(), space, search),
            data.draw(st.integers(1, 4)),
        )

    assert actual.chunks == (chunks,)
    expected = expected_statistic(queries, reference, search)
    np.testing.assert_array_equal(actual.compute(scheduler="sync"), expected)


@algorithms
@given(data=st.data(), n_features=st.integers(1, 3))
def test_join__says_on_which_side_of_a_bound_a_mean_is(algorithm, data, n_features):
    """Also next to a bound; a count alone says of no row that it is beyond."""
    reference = data.draw(point_sets(n_features=n_features))
    queries = data.draw(point_sets(n_features=n_features))
    n_neighbors = data.draw(st.integers(1, 15))
    means = definitions.mean_radii(queries, reference, n_neighbors)
    towards = data.draw(st.sampled_from([-np.inf, 0.0, np.inf]))
    bound = abs(float(np.nextafter(data.draw(st.sampled_from(means)), towards)))
    asked = Statistic(n_neighbors, None, aggregation="mean", bound=bound)
    queries = np.concatenate([queries, np.full((1, n_features), np.nan)])
    space = space_of(reference, algorithm)

    with dask.config.set(scheduler="sync"):
        blocks = blocks_of(chunked(reference, 5), space)
        search = JoinSpec(asked, data.draw(st.integers(1, 15)))
        found = join(
            chunked(queries, 4), JoinInputs(blocks.tasks(), space, search), 2
        ).compute()

    np.testing.assert_array_equal(found[:-1] <= bound, means <= bound)
    is_beyond = means > bound
    np.testing.assert_array_equal(found[:-1][is_beyond], means[is_beyond])
    assert np.isnan(found[-1])


@pytest.mark.parametrize("n_shares", [1, 3])
def test_join__is_lazy_and_has_a_task_for_each_share(at_most_computes, n_shares):
    space = space_of(np.zeros((10, 3)), "brute")
    blocks = pack_chunks(da.zeros((640, 3), chunks=(64, 3)), space)
    queries = da.zeros((500, 3), chunks=(50, 3))

    with at_most_computes(0):
        statistic = join(queries, searched(blocks, space, 2), n_shares)

    assert len(tasks_of(statistic, "lpe-join")) == 10 * n_shares
    assert len(tasks_of(statistic, "lpe-statistic")) == 10
    assert len(tasks_of(statistic, "lpe-space")) == 2  # of the blocks, of the queries
    assert len(tasks_of(statistic, "lpe-pack")) == 10


def test_join__holds_no_literal_of_size():
    """A large matrix is a task of its own; what is written into a join is small."""
    n_features = 200
    preparation = Preparation(matrix=np.eye(n_features))
    space = space_of(np.zeros((9, n_features)), "brute", preparation)
    queries = da.zeros((1000, n_features), chunks=(10, n_features))
    blocks = [delayed(np.zeros)(3)] * 5

    statistic = join(queries, searched(blocks, space, 2), 1)

    graph = dict(statistic.__dask_graph__())
    assert all(sizeof(graph[key]) < 10_000 for key in tasks_of(statistic, "lpe-join"))


def test_join__of_a_spool_stays_small_for_many_blocks(tmp_path):
    """Handles are one task, so that the graph does not grow with blocks times queries."""
    points = np.random.default_rng(0).standard_normal((3200, 2))
    space = space_of(points, "pruned")
    entry = spool_at(str(tmp_path)).folder("blocks")
    blocks = blocks_of(chunked(points, 320), space, entry, n_regions=50)
    queries = da.zeros((10_000, 2), chunks=(100, 2))

    statistic = join(queries, searched(blocks.tasks(), space, 2), 1)

    graph = dict(statistic.__dask_graph__())
    assert len(blocks) == 50
    assert len(tasks_of(statistic, "lpe-join")) == 100
    own = tasks_of(statistic, "lpe-")
    assert sum(len(pickle.dumps(graph[key])) for key in own) < 100_000


@pytest.mark.parametrize("n_neighbors", [3, MIN_SAMPLED_NEIGHBORS])
def test_join__does_not_read_blocks_that_are_too_far(n_neighbors, tmp_path):
    """Their files, and those of their samples, may be gone."""
    rng = np.random.default_rng(0)
    centers = np.arange(8)[:, None, None] * [1000.0, 0.0]
    reference = (centers + rng.standard_normal((8, 200, 2))).reshape(-1, 2)
    queries = reference[:20]
    space = space_of(reference, "pruned")
    entry = spool_at(str(tmp_path)).folder("blocks")
    blocks = blocks_of(chunked(reference, 500), space, entry, n_regions=8)
    (handles,) = map(list, dask.compute(*blocks.tasks()))
    points = space.basis.points(queries)
    for handle in handles:
        if not ((handle.low <= points[0]) & (points[0] <= handle.high)).all():
            for url in (handle.url, sample_url(handle.url)):
                Path(url.removeprefix("file://")).unlink()

    asked = searched(blocks.tasks(), space, n_neighbors, 100)
    actual = join(chunked(queries, 20), asked, 1).compute()

    n_left = sum("sample" not in path.name for path in tmp_path.glob("*/block-*"))
    assert n_left < len(handles)
    expected = definitions.knn_radii(queries, reference, n_neighbors)
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(
    "statistic", [Statistic(3, None), Statistic(3, None, aggregation="mean"),
                  Statistic(None, 0.3), Statistic(None, 0.3, 2)],
)  # fmt: skip
def test_join__reads_each_block_once_or_twice_a_pass(statistic, tmp_path, monkeypatch):
    """Though rows of a pass are near all of them, and each is near several."""
    rng = np.random.default_rng(0)
    reference, queries = rng.standard_normal((2000, 3)), rng.standard_normal((400, 3))
    queries[7], queries[8] = np.nan, reference[5]
    n_read, load = [], SpooledBlock.load

    def counted(handle):
        n_read.append(1)
        return load(handle)

    monkeypatch.setattr(SpooledBlock, "load", counted)
    space = space_of(reference, "pruned")
    held = blocks_of(chunked(reference, 500), space, n_regions=12)
    entry = spool_at(str(tmp_path)).folder("blocks")
    spooled = blocks_of(chunked(reference, 500), space, entry, n_regions=12)

    found = []
    for blocks, pass_rows in ((held, 400), (spooled, 200)):
        asked = JoinInputs(blocks.tasks(), space, JoinSpec(statistic, pass_rows))
        found.append(join(chunked(queries, 400), asked, 1).compute(scheduler="sync"))
    expected, actual = np.minimum(found, statistic.enough or np.inf)

    np.testing.assert_array_equal(actual, expected)
    assert 2 * 12 <= len(n_read) <= 2 * 2 * 12  # in two passes


@algorithms
@given(data=st.data(), points=point_sets())
def test_self_join__gives_the_edges_of_a_graph(algorithm, data, points):
    """The numbers of the nearest rows, ties by number, and how far they are."""
    n_edges = data.draw(st.integers(1, 5) | st.just(MIN_SAMPLED_NEIGHBORS))
    search = JoinSpec(Statistic(3, None), data.draw(st.integers(1, 15)), n_edges)
    space = space_of(points, algorithm)

    with dask.config.set(scheduler="sync"):
        blocks = blocks_of(chunked(points, 5), space, block_rows=3)
        found = dask.compute(
            *self_join(len(blocks), JoinInputs(blocks.tasks(), space, search), 2)
        )

    for numbers, neighbors, distances in found:
        for i, row, lengths in zip(numbers, neighbors, distances, strict=True):
            expected = definitions.nearest_rows(points[i], points, n_edges, left_out=i)
            n_found = len(expected)
            assert list(zip(lengths, row, strict=True))[:n_found] == expected
            assert (row[n_found:] == -1).all()
    all_numbers = np.concatenate([numbers for numbers, *_ in found])
    np.testing.assert_array_equal(np.sort(all_numbers), np.arange(len(points)))


def regions_of(points, boxes):
    """Return the number of the region of each point."""
    order, starts = by_box(points, boxes)
    assert sorted(order) == list(range(len(points)))
    regions = np.empty(len(points), int)
    regions[order] = np.repeat(np.arange(len(boxes[0])), np.diff(starts))
    return regions


@given(data=st.data(), points=point_sets(max_rows=20), n_regions=st.integers(1, 30))
def test_regions__do_not_depend_on_other_points(data, points, n_regions):
    """A region can be found chunk by chunk; what is equal is not divided."""
    lows, highs = boxes = learn_regions(points, n_regions)
    queries = data.draw(point_sets(max_rows=20, n_features=points.shape[1]))
    cut = data.draw(st.integers(0, len(queries)))

    regions = regions_of(queries, boxes)

    assert 1 <= len(lows) <= min(n_regions, len(points))
    parts = [regions_of(part, boxes) for part in (queries[:cut], queries[cut:])]
    np.testing.assert_array_equal(regions, np.concatenate(parts))
    inside = ((lows <= queries[:, None]) & (queries[:, None] <= highs)).all(axis=2)
    is_inside = inside.any(axis=1)
    np.testing.assert_array_equal(regions[is_inside], inside[is_inside].argmax(axis=1))


@given(data=st.data(), points=point_sets(max_rows=40), n_boxes=st.integers(1, 90))
def test_regions__of_boxes_that_overlap_are_some(data, points, n_boxes):
    """In whatever order they are; as are the boxes of blocks of one region."""
    corners = np.random.default_rng(data.draw(st.integers(0, 9))).choice(
        points, (2, n_boxes)
    )
    cut = data.draw(st.integers(0, len(points)))
    boxes = corners.min(axis=0), corners.max(axis=0)

    regions = regions_of(points, boxes)

    parts = [regions_of(part, boxes) for part in (points[:cut], points[cut:])]
    np.testing.assert_array_equal(regions, np.concatenate(parts))


@pytest.mark.parametrize(("n_regions", "share"), [(8, 0.05), (256, 0.05), (2048, 0.15)])
def test_regions__of_new_points_are_near_where_blocks_overlap(n_regions, share):
    """Rows between regions make the boxes of blocks larger; few cuts find one of them."""
    sample, rows, new = np.random.default_rng(0).standard_normal((3, 20_000, 5))
    regions = regions_of(rows, learn_regions(sample, n_regions))
    blocks = [rows[regions == i] for i in np.unique(regions)]
    lows, highs = (
        np.array([edge(block, axis=0) for block in blocks]) for edge in (np.min, np.max)
    )

    found = regions_of(new, (lows, highs))

    def squares(which):
        gaps = np.maximum(np.maximum(lows[which] - new, new - highs[which]), 0)
        return (gaps**2).sum(axis=1)

    nearest = np.min([squares(np.full(len(new), i)) for i in range(len(lows))], axis=0)
    usual = np.linalg.norm(highs - lows, axis=1).mean()
    assert np.mean(np.sqrt(squares(found)) - np.sqrt(nearest) > 0.1 * usual) < share
    assert locality._Cuts.between(lows, highs).depth <= 2 * math.log2(len(lows)) + 2


@given(points=point_sets(max_rows=20), n_regions=st.integers(1, 30))
def test_learn_regions__has_one_box_around_every_point(points, n_regions):
    """What boxes share would all come to the first one, and blocks would be uneven."""
    lows, highs = learn_regions(points, n_regions)

    is_within = ((lows <= points[:, None]) & (points[:, None] <= highs)).all(axis=2)
    assert (is_within.sum(axis=1) == 1).all()


@pytest.mark.parametrize("n_regions", [1, 2, 3, 7, 16, 100])
@pytest.mark.parametrize("n_features", [1, 5])
def test_regions__hold_about_as_many_points_each(n_regions, n_features):
    points = np.random.default_rng(0).standard_normal((5000, n_features))

    boxes = learn_regions(points, n_regions)

    sizes = np.bincount(regions_of(points, boxes), minlength=n_regions)
    assert len(boxes[0]) == n_regions
    assert sizes.min() >= 0.8 * 5000 / n_regions - 2
    assert sizes.max() <= 1.2 * 5000 / n_regions + 2


def test_regions__hold_about_as_many_points_each_where_most_have_one_value():
    """The part with more points is cut more often."""
    points = np.random.default_rng(0).standard_normal((5000, 2))
    points[:, 0] = 1000 * (np.arange(5000) >= 500)

    sizes = np.bincount(regions_of(points, learn_regions(points, 10)), minlength=10)

    assert 400 <= sizes.min() <= sizes.max() <= 600


def test_regions__hold_about_as_many_new_points_each():
    sample, points = np.random.default_rng(0).standard_normal((2, 20_000, 5))

    regions = regions_of(points, learn_regions(sample[:2000], 16))

    sizes = np.bincount(regions, minlength=16)
    assert sizes.min() >= 0.5 * len(points) / 16
    assert sizes.max() <= 2 * len(points) / 16
