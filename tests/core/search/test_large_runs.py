"""What a fit of 1e7 to 1e9 rows would make of tasks, graphs and files; nothing is read."""

import pickle
from itertools import pairwise

import numpy as np
import pytest
from dask._task_spec import convert_legacy_graph

from choosing import mostly_full
from lpe_dask.kernels.algorithms import ALGORITHMS
from lpe_dask.model import measured_vectors
from lpe_dask.search.blocks import merged_pieces
from lpe_dask.search.blocks.merged_pieces import Run, cut_pieces, run_edges
from lpe_dask.search.blocks.packing import Space, build_region_blocks, split_chunks
from lpe_dask.search.blocks.spool_blocks import (
    Handles,
    SpooledBlock,
    SpooledPieces,
    SpoolFolder,
)
from lpe_dask.search.join import JoinInputs, JoinSpec, join, self_join
from lpe_dask.search.locality import learn_regions
from lpe_dask.search.memory import MemoryEstimate
from lpe_dask.search.plan import MAX_HELD_BLOCKS, ProblemSize, Statistic
from lpe_dask.search.preparation import Preparation
from lpe_dask.search.reference import _chunks
from lpe_dask.storage import vectors
from lpe_dask.tasks import Workers, new_array, new_tasks, to_task

GIB = 2**30
URL = f"s3://bucket/dask-worker-space/lpe-spool-{'0' * 32}/blocks-{'0' * 32}"

#: Rows of a partition of the table.
PARTITION_ROWS = 500_000

#: Of one thread each.
WORKERS = {"2 x 2 GiB": (2, 2), "64 x 8 GiB": (64, 8), "1024 x 8 GiB": (1024, 8)}


def read_part(url):
    """Stand for what reads a partition."""


class Counts:
    """Tasks of the graphs that are sent, each of which has to be small."""

    def __init__(self):
        self.n_tasks = 0

    def add(self, collections):
        """Demand that a graph is small, and count its tasks."""
        layers = {}
        for collection in collections:
            layers |= collection.dask.layers
        graph = {key: task for layer in layers.values() for key, task in layer.items()}
        n_edges = sum(len(of.dependencies) for of in convert_legacy_graph(graph).values())
        assert len(graph) <= 5e4
        assert n_edges <= (MAX_HELD_BLOCKS + 4) * len(graph)
        assert len(pickle.dumps(graph)) <= 10 * 2**20
        self.n_tasks += len(graph)


def merged(pieces, n_pieces, n_regions, n_rows):
    """Return tasks that merge pieces of rows in no order, and the runs of `merged_pieces`.

    No tasks where these are not worth it.
    """
    if n_pieces * n_regions <= merged_pieces.MAX_PIECE_READS:
        return [], [Run(0, n_regions, slice(None))]
    edges, (keys, folder) = run_edges(n_regions), ([pieces[0].key], SpoolFolder(URL))
    of_runs = np.full(n_pieces, n_rows // n_pieces // (len(edges) - 1))
    cuts = cut_pieces(of_runs, n_rows // n_pieces)
    merges = (
        (merged_pieces._merge, keys, *some, *run, folder)
        for run in pairwise(edges)
        for some in pairwise(cuts)
    )
    places = np.arange(len(edges)) * (len(cuts) - 1)
    runs = [
        Run(*run, slice(*of_pieces))
        for run, of_pieces in zip(pairwise(edges), pairwise(places.tolist()), strict=True)
    ]
    return new_tasks("merge-pieces", merges, pieces), runs


@pytest.mark.parametrize(
    ("n_rows", "n_features", "workers"),
    mostly_full(
        [(n, d, name) for n in (10**7, 10**8, 10**9) for d in (8, 16) for name in WORKERS],
        [(10**9, 16, "2 x 2 GiB"), (10**7, 8, "1024 x 8 GiB"), (10**8, 16, "64 x 8 GiB")],
    ),
)
def test_fit_and_score__of_many_rows_take_few_tasks_and_files(
    n_rows, n_features, workers, at_most_computes
):
    n_workers, gib = WORKERS[workers]
    n_parts, are_many = n_rows // PARTITION_ROWS, n_rows > 2 * 10**7
    shape = ProblemSize(
        n_rows, n_features, Statistic(20, None), partition_rows=PARTITION_ROWS,
        reads_frame=True,
        ordered_rows=measured_vectors.TASK_NUMBERS if are_many else None,
    )  # fmt: skip
    estimate = MemoryEstimate.of(shape, Workers(n_workers, 1, gib * GIB))
    cut, counts, n_files = estimate.plan, Counts(), []
    sample = np.random.default_rng(0).standard_normal((16 * 2000, n_features))
    space = Space("pruned", Preparation(), ALGORITHMS["pruned"].basis(sample[:4000]))
    regions = learn_regions(space.basis.points(sample), cut.n_blocks)
    folder = SpoolFolder(URL) if cut.is_spooled else None
    names = ((read_part, f"s3://bucket/table/part-{i:05}.parquet") for i in range(n_parts))
    chunks = (PARTITION_ROWS,) * n_parts, (n_features,)

    with at_most_computes(0):
        table = new_array("read", names, [], chunks, np.empty((0, 0), np.float32))
        splits = split_chunks(
            _chunks(lambda: table, cut.block_rows), space, regions, folder
        )
        counts.add(splits)
        n_pieces, n_regions, pieces, runs = len(splits), len(regions[0]), splits, None
        n_reads = n_pieces * n_regions
        if cut.is_spooled:
            handles = Handles([SpooledPieces(f"{URL}/{'0' * 40}")] * n_pieces, None)
            pieces = [to_task(handles, "lpe-pieces")]
            merges, runs = merged(pieces, n_pieces, n_regions, n_rows)
            n_files += [n_pieces + len(merges), len(merges) + n_regions]
            if merges:
                counts.add(merges)
                n_reads = n_pieces * len(runs) + sum(
                    (run.stop - run.first) * (run.pieces.stop - run.pieces.start)
                    for run in runs
                )
        sizes = np.full(n_regions, -(-n_rows // n_regions))
        blocks = build_region_blocks(
            pieces, sizes, space, folder, cut.largest_block_rows, runs
        )
        n_blocks = len(blocks)
        if cut.is_spooled:
            counts.add(blocks)
            corner = np.zeros(n_features)
            handle = SpooledBlock(f"{URL}/{'0' * 40}", corner, corner)
            blocks = [to_task(Handles([handle] * n_blocks, None), "lpe-blocks")]
        searched = JoinInputs(blocks, space, JoinSpec(Statistic(20, None), cut.pass_rows))
        joins = self_join(n_blocks, searched, cut.nominal_shares(n_rows))
        if are_many:
            measured = ((measured_vectors._write_measured, of.key, URL) for of in joins)
            joins = new_tasks("write-measured", measured, joins)
            n_ordered = -(-n_rows // measured_vectors.TASK_NUMBERS)
            n_files.append(n_blocks + len(joins) + n_ordered)
            n_files.append(n_blocks + n_ordered + 2 * -(-n_rows // vectors.FILE_NUMBERS))
            counts.n_tasks += 4 * n_ordered  # test_statistics_on_storage.py
        counts.add(joins)
        n_shares = cut.query_shares(n_parts, n_workers, PARTITION_ROWS)
        scored = Counts()
        scored.add([join(table, searched, n_shares)])

    estimate.check(gib * GIB)
    assert n_blocks <= 1.01 * cut.n_blocks
    assert counts.n_tasks <= 5e4
    assert max(n_files, default=0) <= 1e5
    assert n_reads <= merged_pieces.MAX_PIECE_READS + 2.2 * n_blocks**1.5
    # All threads have tasks, also at the end.
    assert len(joins) >= min(3 * n_workers, n_blocks)
