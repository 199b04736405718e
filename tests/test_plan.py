import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpe_dask import neighbors
from lpe_dask.kernels import tiles
from lpe_dask.kernels.selection import reservoir_size
from lpe_dask.neighbors import Search
from lpe_dask.plan import JoinPlan, n_shares, plan_join, share_of
from lpe_dask.preparation import LinearMap, Preparation, Scaling

GIB = 2**30

sizes = {
    "n_reference": st.integers(1, 10**9),
    "n_features": st.integers(1, 1000),
    "n_places": st.integers(1, 10**6),
    "n_threads": st.integers(1, 1000),
    "memory_limit": st.integers(GIB // 4, 100 * GIB),
}


@given(**sizes)
def test_plan_join__cuts_so_that_tasks_are_small(
    n_reference, n_features, n_places, n_threads, memory_limit
):
    """What a task adds is a small part of its worker, if a single row can be."""
    plan = plan_join(
        n_reference,
        n_features,
        n_places,
        n_threads=n_threads,
        threads=1,
        memory_limit=memory_limit,
    )

    assert plan.block_rows % 64 == 0
    assert plan.pass_rows >= 1
    one_row = 8 * (n_places + 12 + 4 * n_features)
    one_group = 8 * 64 * 5 * n_features
    assert plan.join_bytes <= max(one_row, memory_limit / 4)
    assert plan.pack_bytes <= max(one_group, memory_limit / 4)


def test_plan_join__keeps_all_threads_busy():
    plan = plan_join(200_000, 8, 60, n_threads=8, threads=4, memory_limit=8 * GIB)

    assert 8 * 7 < plan.n_blocks <= 8 * 8


@pytest.mark.parametrize("n_features", [3, 40])
@pytest.mark.parametrize("n_neighbors", [None, 20, 400])
@pytest.mark.parametrize("kind", ["scaled", "all", "plain"])
def test_join_bytes__bounds_what_a_join_allocates(n_features, n_neighbors, kind):
    places = 1 if n_neighbors is None else reservoir_size(n_neighbors)
    plan = plan_join(4000, n_features, places, n_threads=1, threads=1, memory_limit=4 * GIB)
    search = Search("brute", n_neighbors, 1.0, plan.pass_rows)
    preparation = {
        "plain": Preparation(),
        "scaled": Preparation(Scaling(np.zeros(n_features), np.ones(n_features))),
        "all": Preparation(
            Scaling(np.zeros(n_features), None, np.ones(n_features)),
            LinearMap(matrix=np.eye(n_features)),
        ),
    }[kind]
    rng = np.random.default_rng(0)
    blocks = [tiles.pack(rng.random((2000, n_features))) for _ in range(2)]
    queries = rng.random((3 * plan.pass_rows, n_features), dtype=np.float32)
    neighbors._join(queries[:10], 0, 1, preparation, search, blocks)  # compiles

    tracemalloc.start()
    statistic = neighbors._join(queries, 0, 1, preparation, search, blocks)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak <= plan.join_bytes + statistic.nbytes
    if kind == "all":  # here the bound must be near
        assert peak >= 0.5 * plan.join_bytes


@pytest.mark.parametrize("n_features", [2, 50])
def test_pack_bytes__bounds_what_packing_allocates(n_features):
    plan = plan_join(20_000, n_features, 60, n_threads=1, threads=1, memory_limit=4 * GIB)
    rows = np.random.default_rng(0).random((plan.block_rows, n_features))
    preparation = Preparation(
        Scaling(np.zeros(n_features), None, np.ones(n_features)),
        LinearMap(matrix=np.eye(n_features)),
    )

    tracemalloc.start()
    block = neighbors._pack(rows, preparation, "brute")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak + rows.nbytes <= plan.pack_bytes
    assert block.groups.nbytes * plan.n_blocks == plan.reference_bytes


def test_check__says_what_to_do():
    plan = JoinPlan(10**8, 100, 500, 10**5, 1000, threads=4)

    with pytest.raises(
        MemoryError, match=r"100000000 nominal rows x 100 columns"
    ) as caught:
        plan.check(4 * GIB)

    message = str(caught.value)
    assert "4096 MiB" in message
    assert "--memory-limit" in message
    assert "fewer threads (now 4)" in message


def test_check__counts_the_partitions_of_the_input():
    """They are as large as the user made them."""
    small = plan_join(10**6, 10, 500, n_threads=2, threads=2, memory_limit=4 * GIB)
    large = plan_join(
        10**6,
        10,
        500,
        n_threads=2,
        threads=2,
        memory_limit=4 * GIB,
        partition_rows=2 * 10**7,
    )

    assert large.worker_bytes - small.worker_bytes == 2 * 2 * 10**7 * 10 * 8
    with pytest.raises(MemoryError, match=r"1526 MiB a partition .*smaller partitions"):
        large.check(4 * GIB)


def test_check__accepts_what_fits():
    plan_join(10**6, 10, 500, n_threads=2, threads=1, memory_limit=4 * GIB).check(4 * GIB)


@given(n_rows=st.integers(0, 1000), n_parts=st.integers(1, 50))
def test_share_of__every_row_once(n_rows, n_parts):
    rows = list(range(n_rows))

    shares = [rows[share_of(n_rows, i, n_parts)] for i in range(n_parts)]

    assert list(itertools.chain(*shares)) == rows
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@given(
    n_partitions=st.integers(0, 1000),
    n_threads=st.integers(1, 100),
    largest=st.none() | st.integers(0, 10**6),
)
def test_n_shares__enough_for_the_threads_and_not_tiny(n_partitions, n_threads, largest):
    shares = n_shares(n_partitions, n_threads, largest)

    assert shares >= 1
    if largest is None:
        assert n_partitions <= 8 * n_threads or shares == 1
    elif shares > 1:
        assert 512 < largest / shares <= 32_768
