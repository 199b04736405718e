import math
import pickle
import tracemalloc
from dataclasses import replace

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

import definitions
from choosing import mostly_paired
from lpe_dask.aligned_arrays import ALIGNMENT
from lpe_dask.kernels import (
    KNearestAccumulator,
    bounds,
    nearest,
    neighbor_graph,
    simd,
    walks,
)
from lpe_dask.kernels.algorithms import ALGORITHMS
from lpe_dask.search import geodesic, join
from lpe_dask.search.blocks import packing
from lpe_dask.search.blocks.packing import (
    Space,
    build_region_blocks,
    region_sizes,
    split_chunks,
)
from lpe_dask.search.blocks.spool_blocks import Handles, SpooledBlock, SpooledPieces
from lpe_dask.search.join import JoinInputs, JoinSpec, self_join
from lpe_dask.search.locality import learn_regions
from lpe_dask.search.memory import (
    ARRAY_COPIES,
    CALIBRATION_COPIES,
    DICTIONARY_BYTES,
    FRAME_COPIES,
    WALK_ROW_BYTES,
    MemoryEstimate,
    block_bytes,
)
from lpe_dask.search.plan import (
    NeighborGraphParams,
    ProblemSize,
    SearchPlan,
    Statistic,
    plan_search,
)
from lpe_dask.search.preparation import Preparation, Scaling
from lpe_dask.search.quantile_scale import QuantileKnots
from lpe_dask.tasks.transfer import LITERAL_BYTES, LocalValueTask, to_task
from lpe_dask.tasks.worker_pool import Workers
from searching import all_distances, smallest

GIB = 2**30
URL = f"file:///scratch/dask-worker-space/lpe-spool-{'0' * 32}/block-{'0' * 32}"

sizes = {
    "n_reference": st.integers(1, 10**9),
    "n_features": st.integers(1, 1000),
    "n_neighbors": st.integers(0, 10**6),
    "n_threads": st.integers(1, 1000),
    "memory_limit": st.integers(GIB // 4, 100 * GIB),
}


def shape_of(n_reference, n_features, n_neighbors, *, graph=None, **others):
    """Problem size of a search for so many neighbors, or within a radius."""
    statistic = Statistic(n_neighbors or None, None if n_neighbors else 1.0)
    return ProblemSize(n_reference, n_features, statistic, graph, **others)


def planned(*shape, n_threads, threads, memory_limit, **others):
    workers = Workers(n_threads, threads, memory_limit)
    return MemoryEstimate.of(shape_of(*shape, **others), workers).plan


@example(
    n_reference=15_105, n_features=133, n_neighbors=11_535, n_threads=1,
    memory_limit=421_815_360,
)  # fmt: skip
@example(
    n_reference=24_577, n_features=76, n_neighbors=11_094, n_threads=1,
    memory_limit=398_503_936,
)  # fmt: skip
@given(**sizes)
def test_plan_for__cuts_so_that_tasks_are_small(
    n_reference, n_features, n_neighbors, n_threads, memory_limit
):
    """What a task adds is a small part of its worker, if a single row can be."""
    cut = planned(
        n_reference, n_features, n_neighbors, n_threads=n_threads, threads=1,
        memory_limit=memory_limit,
    )  # fmt: skip

    assert cut.block_rows % 64 == 0
    assert cut.pass_rows >= 1
    one_row = 8 * (1.25 * n_neighbors + 24 + 8 * n_features)
    tile = 256 * (16 * max(n_neighbors, 64) + 16 * n_features + 64)
    one_group = 64 * (10 * n_features + 12) * 8
    assert MemoryEstimate(cut).join <= 2 * max(
        one_row + tile + 4 * one_group, memory_limit / 8
    )
    assert MemoryEstimate(cut).pack <= max(2 * one_group, memory_limit / 4)


@pytest.mark.parametrize(
    ("n_rows", "n_neighbors", "n_threads", "n_blocks", "n_tasks"),
    [
        (200_000, 20, 8, 8, 32),
        (200_000, 60, 8, 8, 32),
        (150_000, 60, 8, 4, 32),
        (50_000, 20, 8, 4, 32),
        (500_000, 200, 16, 4, 64),
        (10_000, 20, 8, 1, 8),
    ],
)
def test_plan_for__keeps_all_threads_busy(
    n_rows, n_neighbors, n_threads, n_blocks, n_tasks
):
    """Also where blocks are fewer than threads: none has another task to do at the end."""
    arguments = {"n_threads": n_threads, "threads": 4, "memory_limit": 8 * GIB}

    cut = planned(n_rows, 8, n_neighbors, **arguments)

    assert cut.n_blocks == n_blocks
    assert cut.n_blocks * cut.block_shares == n_tasks


def test_plan_for__spools_what_does_not_fit():
    """12 bytes a number, and rows twice while they are gathered."""
    arguments = {"n_threads": 2, "threads": 1}

    small = planned(10**6, 64, 20, memory_limit=4 * GIB, **arguments)
    large = planned(10**6, 64, 20, memory_limit=GIB, **arguments)

    assert not small.is_spooled
    assert large.is_spooled
    assert MemoryEstimate(large).held == 0
    MemoryEstimate(large).check(GIB)


def test_plan_for__takes_long_passes_only_where_there_is_room():
    """They read a spool less often; what fits without them is not refused."""
    arguments = {
        "n_threads": 2,
        "threads": 1,
        "partition_rows": 100_000,
        "reads_frame": True,
    }

    roomy, tight = (
        planned(2 * 10**6, 8, 20, memory_limit=mib * 2**20, **arguments)
        for mib in (1000, 800)
    )

    assert roomy.is_spooled
    assert tight.is_spooled
    assert roomy.pass_rows > roomy.block_rows // 2 > 32_768
    assert tight.pass_rows <= 32_768 < tight.block_rows
    MemoryEstimate(roomy).check(1000 * 2**20)
    MemoryEstimate(tight).check(800 * 2**20)


@pytest.mark.parametrize(("n_features", "n_blocks"), [(64, 2), (256, 2), (768, 4)])
def test_plan_for__cuts_blocks_with_indexes_alike_for_all_workers(n_features, n_blocks):
    """Results depend on them, so nothing but the rows decides."""
    with dask.config.set({"lpe-dask.block-rows": 1000}):  # of exact searches
        cuts = [
        planned(
            400_000, n_features, 20, n_threads=n_threads, threads=threads,
            memory_limit=gib * GIB, partition_rows=partition_rows, reads_frame=True,
            calibration_rows=20_000, is_indexed=True,
        )
        for n_threads, threads in ((1, 1), (2, 1), (16, 4))
        for gib in (4, 8, 64)
        for partition_rows in (1000, 200_000)
    ]  # fmt: skip

    assert {cut.n_blocks for cut in cuts} == {n_blocks}
    assert {cut.is_spooled for cut in cuts} == {True, False}


def test_needs__of_blocks_with_indexes_say_what_takes_less():
    cut = planned(
        400_000, 256, 20, n_threads=2, threads=2, memory_limit=4 * GIB, is_indexed=True
    )

    with pytest.raises(MemoryError, match=r"An exact search takes less \(algorithm='auto'"):
        MemoryEstimate(cut).check(4 * GIB)


def test_own_shares__are_fewer_where_each_reads_a_spool():
    """Of few rows to measure; as many as there are of all rows."""
    held, spooled = (
        planned(
            400_000, 256, 20, n_threads=2, threads=2, memory_limit=6 * GIB,
            is_indexed=True, block_rows=50_000, is_spooled=is_spooled,
        )
        for is_spooled in (False, True)
    )  # fmt: skip

    assert held.nominal_shares(4000) == held.block_shares == spooled.block_shares == 2
    assert spooled.nominal_shares(0) == spooled.nominal_shares(4000) == 1
    assert spooled.nominal_shares(400_000) == spooled.block_shares


def test_needs__fit_into_all_memory_that_is_usable():
    needs = MemoryEstimate(planned(10**6, 64, 20, memory_limit=GIB, n_threads=2, threads=1))
    enough = math.ceil(needs.worker / Workers.USABLE_SHARE)

    assert int(Workers.USABLE_SHARE * enough) == needs.worker
    assert needs.fits(enough)
    assert not needs.fits(enough - 2)


@pytest.mark.full  # of fewer rows there are graphs in test_join.py
def test_plan_for__of_1e8_rows_is_small_without_computing(at_most_computes):
    """Its own tasks, not counting those that read the input: 5e4 and 10 MB at most."""
    n_reference, n_features = 10**8, 64
    cut = planned(
        n_reference, n_features, 1585, n_threads=64, threads=4, memory_limit=4 * GIB,
        ordered_rows=2**22,  # the statistics of so many rows are on storage
    )  # fmt: skip
    sample = np.random.default_rng(0).standard_normal((5000, n_features))
    basis = ALGORITHMS["pruned"].basis(sample)
    space = Space("pruned", Preparation(), basis)
    regions = learn_regions(basis.points(sample), cut.n_blocks)
    rows = da.zeros((n_reference, n_features), chunks=(cut.block_rows, -1))

    with at_most_computes(0):
        splits = split_chunks(rows, space, regions)
        n_regions = len(regions[0])
        piece = SpooledPieces(URL)
        pieces = to_task(Handles([piece] * len(splits), None), "lpe-pieces")
        counts = region_sizes([pieces], len(splits))
        sizes = np.full(n_regions, -(-n_reference // n_regions))
        gathers = build_region_blocks([pieces], sizes, space, None, cut.largest_block_rows)
        block = SpooledBlock(URL, np.zeros(n_features), np.zeros(n_features))
        handles = to_task(Handles([block] * len(gathers), None), "lpe-blocks")
        search = JoinSpec(Statistic(1585, None), 9)
        joins = self_join(
            len(gathers), JoinInputs([handles], space, search), cut.block_shares
        )

    for literal in (pieces, handles):
        assert len(pickle.dumps(literal.dask[literal.key])) <= LITERAL_BYTES or isinstance(
            literal.dask[literal.key][0], LocalValueTask
        )
    own: dict = {}
    for task in (*splits, *counts, *gathers, *joins):
        layer = next(name for name in task.dask.layers if task.key.startswith(name))
        own |= task.dask.layers[layer].mapping
    assert cut.is_spooled
    MemoryEstimate(cut).check(4 * GIB)
    assert len(gathers) < 1.2 * cut.n_blocks
    assert len(own) <= (2.3 + cut.block_shares) * cut.n_blocks <= 5e4
    assert cut.block_shares <= 6
    n_bytes = sum(len(pickle.dumps(task)) + len(key) for key, task in own.items())
    assert n_bytes <= 10e6


def knots_of(n_features):
    values = tuple(np.linspace(-0.1, 1.1, 1002) for _ in range(n_features))
    return QuantileKnots(values, (np.arange(1002),) * n_features, 501)


def preparation_of_codes(n_features):
    """Every third column is one of codes."""
    categorical = tuple(range(0, n_features, 3))
    n_numbers = n_features - len(categorical)
    return Preparation(
        factor=np.ones(n_numbers), categorical=categorical, weights=np.ones(n_features)
    )


def traced(call):
    """Result of a call, and the memory that it takes at its peak.

    The less of two calls: what threads of a cluster allocate meanwhile is traced, too.
    """
    peaks = []
    for _ in range(2):
        tracemalloc.start()
        found = call()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    return found, min(peaks)


JOINS = (
    ALGORITHMS, [3, 40], [None, 20, 400],
    ["scaled", "all", "plain", "decided", "knots", "codes"],
)  # fmt: skip


@pytest.mark.usefixtures("compiled_kernels")  # without numba, a process takes less
@pytest.mark.parametrize(
    ("algorithm", "n_features", "n_neighbors", "kind"),
    mostly_paired(*JOINS),
)
def test_join_bytes__bounds_what_a_join_allocates(algorithm, n_features, n_neighbors, kind):
    cut = SearchPlan(shape_of(8000, n_features, n_neighbors), 8000, 2000, 3000, 1)
    statistic = Statistic(n_neighbors, 1.0)
    if kind == "decided" and n_neighbors is not None:  # no row is: all are measured, too
        statistic = Statistic(n_neighbors, None, aggregation="mean", bound=1e-9)
    search = JoinSpec(statistic, cut.pass_rows)
    preparation = {
        "plain": Preparation(),
        "decided": Preparation(),
        "scaled": Preparation(
            factor=np.full(n_features, 0.5), weights=np.full(n_features, 1.5)
        ),
        "all": Preparation(
            Scaling(np.zeros(n_features), None, np.ones(n_features)),
            np.eye(n_features),
        ),
        "knots": Preparation(Scaling(knots=knots_of(n_features))),
        "codes": preparation_of_codes(n_features),
    }[kind]
    if kind == "codes" and ALGORITHMS[algorithm].neighbor_lists is not None:
        pytest.skip("an index has no categories")
    rng = np.random.default_rng(0)
    reference = rng.random((4000, n_features))
    basis = ALGORITHMS[algorithm].basis(
        reference, preparation.weights, len(preparation.categorical)
    )
    space = Space(algorithm, preparation, basis, with_samples=True)
    handles = [packing._pack(reference[i : i + 2000], i, space, None) for i in (0, 2000)]
    queries = rng.random((2 * cut.pass_rows, n_features), dtype=np.float32)
    join._join(queries[:300], 0, 1, None, handles, space, search)  # compiles

    statistic, peak = traced(
        lambda: join._join(queries, 0, 1, None, handles, space, search)
    )

    # What kernels allocate is not traced; what they may is the room of a tile.
    room = 256 * (16 * max(n_neighbors or 0, 64) + 16 * n_features + 64)
    assert peak + room <= MemoryEstimate(cut).join + statistic.nbytes
    if n_neighbors == 400:  # here the bound must be near
        assert peak + room >= 0.5 * MemoryEstimate(cut).join


PACKS = ALGORITHMS, ["linear", "both forms", "codes"], [2, 50]


@pytest.mark.parametrize(
    ("algorithm", "kind", "n_features"),
    mostly_paired(*PACKS),
)
def test_pack_bytes__bounds_what_packing_allocates(algorithm, kind, n_features):
    cut = planned(20_000, n_features, 60, n_threads=1, threads=1, memory_limit=4 * GIB)
    if kind == "codes" and ALGORITHMS[algorithm].neighbor_lists is not None:
        pytest.skip("an index has no categories")
    n_read = n_features // 2 if kind == "both forms" else n_features
    rows = np.random.default_rng(0).random((cut.block_rows, n_read))
    scaling = Scaling(np.zeros(n_read), None, np.ones(n_read))
    if kind == "both forms":
        knots, ones = knots_of(n_read), np.ones(n_read)
        scaling = Scaling(np.zeros(n_read), ones, knots=knots, has_both=True)
    preparation = Preparation(scaling, np.eye(n_features))
    if kind == "codes":
        preparation = preparation_of_codes(n_features)
        cut = replace(cut, shape=replace(cut.shape, n_codes=preparation.n_codes))
    assert preparation.n_prepared(n_read) == n_features
    sample = preparation.apply(rows[:1000])
    basis = ALGORITHMS[algorithm].basis(
        sample, preparation.weights, len(preparation.categorical)
    )
    space = Space(algorithm, preparation, basis, with_samples=True)
    packing._pack(rows[:300], 0, space, None)  # compiles

    held, peak = traced(lambda: packing._pack(rows, 0, space, None))

    assert peak + rows.nbytes <= MemoryEstimate(cut).pack
    assert 0.8 * block_bytes(cut) <= held.__sizeof__() <= block_bytes(cut)


@pytest.mark.usefixtures("compiled_kernels")
@pytest.mark.parametrize("n_neighbors", [1, 20, 65, 4000])
@pytest.mark.parametrize(("n_features", "n_codes"), [(2, 0), (8, 7), (64, 20), (200, 0)])
def test_tile_bytes__bound_a_tile_and_its_reservoirs(n_features, n_codes, n_neighbors):
    """What kernels allocate, which is not traced."""
    rows = np.random.default_rng(0).integers(0, 9, (6000, n_features)).astype(float)
    basis = ALGORITHMS["pruned"].basis(rows[:1000], None, n_codes)
    space = Space("pruned", Preparation(), basis)
    block, queries = space.pack(rows, np.arange(6000)).block, space.tiles(rows[:300])
    tile = bounds.empty_tile(block, queries.arrays)
    reservoir = nearest._empty_reservoir(n_neighbors)

    taken = sum(array.nbytes for array in (*tile, *reservoir))

    said = KNearestAccumulator.tile_bytes(n_features, n_neighbors, 6000)
    assert 0.5 * said <= taken <= said


@pytest.mark.usefixtures("compiled_kernels")  # without numba, a process takes less
@pytest.mark.parametrize("n_edges", [1, 6, 60])
@pytest.mark.parametrize("kind", sorted(neighbor_graph.GRAPHS))
def test_graph_bytes__bound_a_graph_and_what_it_is_made_of(kind, n_edges):
    cut = planned(
        3000, 2, 20, n_threads=1, threads=1, memory_limit=4 * GIB,
        graph=NeighborGraphParams(n_edges, kind),
    )  # fmt: skip
    points = np.random.default_rng(0).random((3000, 2))
    search = JoinSpec(Statistic(20, None), cut.pass_rows, n_edges)
    basis = ALGORITHMS["brute"].basis(points)
    space = Space("brute", Preparation(), basis, with_samples=True)
    held = packing._pack(points, 0, space, None)
    numbers, *edges = join._join_self(0, 0, 1, None, [held], space, search)

    graph = geodesic._graph([(numbers, *edges)], 3000, n_edges, kind)

    _, peak = traced(lambda: geodesic._graph([(numbers, *edges)], 3000, n_edges, kind))

    n_bytes = graph.__sizeof__()
    assert n_bytes <= MemoryEstimate(cut).graph
    assert n_bytes >= 0.4 * MemoryEstimate(cut).graph
    given = sum(array.nbytes for array in (numbers, *edges))
    assert n_bytes < peak
    assert peak + given <= MemoryEstimate(cut).held - MemoryEstimate(cut).reference


def test_walk_rows__bound_what_a_walk_touches():
    """No walk to the twentieth row needs more room than is planned for it."""
    points = np.random.default_rng(0).random((2000, 3))
    distances, numbers = smallest(all_distances(points, points, exclude_self=True), 8)
    graph = neighbor_graph.directed_graph(numbers.astype(np.int32), distances)
    n_touched = []
    for i in range(200):
        near = graph.walk_from_rows(np.array([i]), most=20)[0][0]
        settled = [i, *reached(graph, i, near)]
        edges = [graph.targets[graph.starts[j] : graph.starts[j + 1]] for j in settled]
        n_touched.append(len(np.unique(np.concatenate(edges))))

    graph = NeighborGraphParams(8, "directed")
    assert max(n_touched) <= shape_of(2000, 3, 20, graph=graph).walk_rows == 168
    assert shape_of(2000, 3, None, graph=graph).walk_rows == 2000
    either_way = NeighborGraphParams(8, "union")
    assert shape_of(2000, 3, 20, graph=either_way).walk_rows == 2000


def reached(graph, start, radius):
    """Return the rows within a radius along a graph."""
    # The oldest scipy takes no other whole numbers.
    targets, starts = graph.targets.astype(np.int32), graph.starts.astype(np.int32)
    matrix = csr_array((graph.lengths, targets, starts), (graph.n_rows,) * 2)
    distances = dijkstra(matrix, indices=start, limit=radius)
    return np.flatnonzero((distances < radius) & (np.arange(graph.n_rows) != start))


@given(
    n_neighbors=st.integers(1, 3000),
    bound=st.floats(0, 1e300) | st.sampled_from([5e-324, 1e-310, 0.1, 0.3, 1.7e308]),
)
def test_sure_radius__bounds_the_mean_of_distances_within(n_neighbors, bound):
    radius = Statistic(
        n_neighbors, None, aggregation="mean", bound=bound
    ).sufficient_radius()

    if n_neighbors * bound == math.inf:
        assert radius is None
        return
    # A distance is 0, or the root of a number above 0.
    farthest = radius if radius >= math.sqrt(5e-324) else 0.0
    mean = definitions.mean_of_smallest([farthest] * n_neighbors, n_neighbors)
    assert mean <= bound
    assert radius >= bound * (1 - (n_neighbors + 3) * 2.0**-52)


def test_constants__are_those_of_the_kernels():
    """What a plan takes from the arrays of the kernels."""
    room = walks._empty_room(walks.INITIAL_CAPACITY)
    assert sum(array.nbytes for array in room) == WALK_ROW_BYTES * walks.INITIAL_CAPACITY
    assert ALIGNMENT == simd.LANES == 64


def test_plan_for__of_rows_in_memory_does_not_make_room_by_spooling_them():
    """What is held stays held, whatever is to be scored."""
    arguments = {"n_threads": 2, "threads": 1, "memory_limit": 4 * GIB}
    fitted = planned(10**6, 10, 20, **arguments)
    assert not fitted.is_spooled

    # With the partition beside nothing else it would fit.
    scored = {"partition_rows": 18 * 10**6}
    MemoryEstimate(planned(10**6, 10, 20, **arguments, **scored)).check(4 * GIB)
    scoring = planned(10**6, 10, 20, **arguments, **scored, is_spooled=False)

    with pytest.raises(MemoryError, match="of them the nominal rows"):
        MemoryEstimate(scoring).check(4 * GIB)


def test_check__counts_the_partitions_of_the_input():
    """They are as large as the user made them."""
    arguments = {"n_threads": 2, "threads": 2, "memory_limit": 4 * GIB}
    small = planned(10**6, 10, 500, **arguments, is_spooled=False)
    many = {"partition_rows": 2 * 10**7, "is_spooled": False}
    large, of_frame = (
        planned(10**6, 10, 500, **arguments, **many, reads_frame=reads_frame)
        for reads_frame in (False, True)
    )

    assert (
        MemoryEstimate(large).partition - MemoryEstimate(small).partition
        == 2 * 10**7 * 10 * 8
    )
    more = (FRAME_COPIES - ARRAY_COPIES) * 2 * 10**7 * 8 + DICTIONARY_BYTES
    assert (
        MemoryEstimate(of_frame).worker - MemoryEstimate(large).worker == 2 * 10 * more
    )  # in two threads
    with pytest.raises(MemoryError, match=r"1526 MiB a partition .*smaller partitions"):
        MemoryEstimate(large).check(4 * GIB)


def test_worker_bytes__count_what_p_values_compare_with():
    """10^8 rows x 3 columns: the rows are on disk, but each worker has all statistics."""
    arguments = {"n_threads": 16, "threads": 1, "memory_limit": 2 * GIB}
    cut = planned(10**8, 3, 20, **arguments)
    sampled = replace(cut, shape=replace(cut.shape, calibration_rows=10**5))

    assert MemoryEstimate(cut).calibration == 2 * 8 * 10**8
    assert MemoryEstimate(cut).calibration >= 8 * 10**8
    assert MemoryEstimate(cut).worker - MemoryEstimate(
        sampled
    ).worker == CALIBRATION_COPIES * 8 * (10**8 - 10**5)
    MemoryEstimate(sampled).check(2 * GIB)
    with pytest.raises(MemoryError, match=r"compare with 1526 MiB.*calibration_size="):
        MemoryEstimate(cut).check(2 * GIB)


@pytest.mark.parametrize("is_spooled", [False, True])
@pytest.mark.parametrize("graph", [None, NeighborGraphParams(5, "directed")])
def test_check__names_all_that_is_counted(is_spooled, graph):
    cut = planned(
        10**7, 3, 20, n_threads=2, threads=2, memory_limit=GIB, partition_rows=10**6,
        is_spooled=is_spooled, graph=graph, reads_frame=True,
    )  # fmt: skip

    with pytest.raises(MemoryError) as caught:
        MemoryEstimate(cut).check(GIB // 4)

    message = str(caught.value)
    estimate = MemoryEstimate(cut)
    counted = [
        estimate.worker, estimate.reference if is_spooled else estimate.held,
        estimate.calibration, estimate.process, estimate.task, estimate.partition,
    ]  # fmt: skip
    if graph is not None:
        counted += [MemoryEstimate(cut).graph, MemoryEstimate(cut).walk]
    for n_bytes in counted:
        assert f" {n_bytes / 2**20:.0f} MiB" in message
    for remedy in ("10000000 nominal rows x 3 columns", "--memory-limit", "(now 2)"):
        assert remedy in message


@given(
    n_partitions=st.integers(0, 1000),
    n_threads=st.integers(1, 100),
    largest=st.none() | st.integers(0, 10**6),
)
def test_query_shares__suit_threads_and_are_not_tiny(n_partitions, n_threads, largest):
    plan = planned(1000, 2, 3, n_threads=1, threads=1, memory_limit=GIB)

    shares = plan.query_shares(n_partitions, n_threads, largest)

    assert shares >= 1
    if largest is None:
        assert n_partitions <= 4 * n_threads or shares == 1
    elif shares > 1:
        assert 512 < largest / shares <= 32_768


@pytest.mark.parametrize(
    ("n_rows", "n_features", "memory_limit", "pass_rows"),
    [
        (10**6, 8, 4 * GIB, 131_072),
        (10**6, 16, 4 * GIB, 65_536),
        (10**6, 40, 4 * GIB, 32_768),
        (50_000, 8, 4 * GIB, 50_000),
        (20_000, 8, 4 * GIB, 32_768),
    ],
)
def test_plan__has_longer_passes_of_few_columns(
    n_rows, n_features, memory_limit, pass_rows
):
    """Of no more rows than are searched among, and where half of a pass may be enough."""
    given = {"n_threads": 2, "threads": 1}
    shape = ProblemSize(n_rows, n_features, Statistic(20, None))

    plan = plan_search(shape, memory_limit=memory_limit, **given)
    spooled = plan_search(
        replace(shape, is_spooled=True), memory_limit=memory_limit, is_tight=True, **given
    )
    little = plan_search(shape, memory_limit=GIB // 2, **given)

    assert plan.pass_rows == pass_rows - pass_rows % 64
    assert spooled.pass_rows <= 32_768
    assert little.pass_rows <= 32_768
