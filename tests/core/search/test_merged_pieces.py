"""Pieces of many regions are merged first: the same blocks of fewer readings."""

from itertools import pairwise

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpe_dask.kernels.algorithms import ALGORITHMS
from lpe_dask.search.blocks import merged_pieces
from lpe_dask.search.blocks.merged_pieces import cut_pieces, run_edges
from lpe_dask.search.blocks.packing import Space, prepare_blocks
from lpe_dask.search.blocks.spool_blocks import SpooledPieces
from lpe_dask.search.locality import learn_regions
from lpe_dask.search.preparation import Preparation
from lpe_dask.tasks.spool import spool_at

RNG = np.random.default_rng(0)
ROWS = {
    "in no order": RNG.random((3000, 3)),
    "sorted": np.sort(RNG.random((3000, 3)), axis=0),
    "all equal": np.ones((3000, 3)),
}


@pytest.mark.parametrize("name", ROWS)
def test_blocks__are_the_same_of_merged_pieces(name, tmp_path, monkeypatch):
    """Also where all rows of a piece are in one run."""
    rows, counted = ROWS[name], []
    read, read_run = SpooledPieces.read, SpooledPieces.read_run

    def counted_read(*given):
        counted.append(1)
        return read(*given)

    def counted_run(*given):
        counted.append(1)
        return read_run(*given)

    monkeypatch.setattr(SpooledPieces, "read", counted_read)
    monkeypatch.setattr(SpooledPieces, "read_run", counted_run)
    space = Space("pruned", Preparation(), ALGORITHMS["pruned"].basis(rows))
    regions = learn_regions(space.basis.points(rows), 36)
    chunks = da.from_array(rows, chunks=(100, -1))
    found, n_read = [], []
    for most in (10**9, 0):
        monkeypatch.setattr(merged_pieces, "MAX_PIECE_READS", most)
        counted.clear()
        with dask.config.set(scheduler="sync"):
            entry = spool_at(str(tmp_path)).folder("blocks")
            blocks = prepare_blocks(lambda: chunks, space, entry, regions, 200)
            (handles,) = dask.compute(*blocks.tasks())
        found.append([handle.load() for handle in handles])
        n_read.append(len(counted))
        files = [path.name for path in tmp_path.glob("*/blocks-*/*")]
        assert all(name.startswith("block-") for name in files)

    for one, other in zip(*found, strict=True):
        for array, same in zip(one, other, strict=True):
            np.testing.assert_array_equal(array, same)
    n_regions = len(regions[0])
    assert n_read[0] >= 30 * n_regions  # a large region is several blocks
    if n_regions > 1:
        assert n_read[1] <= 0.5 * n_read[0]


@given(
    n_rows=st.lists(st.integers(0, 50), min_size=1, max_size=50),
    more=st.integers(0, 100),
)
def test_cut_pieces__are_few_and_not_too_large(n_rows, more):
    most = max(n_rows) + more

    cuts = cut_pieces(np.array(n_rows), most)

    parts = [sum(n_rows[i:j]) for i, j in pairwise(cuts)]
    assert cuts[0] == 0
    assert cuts[-1] == len(n_rows)
    assert max(parts) <= most
    assert len(parts) <= 2 * sum(n_rows) / max(most, 1) + 1


@given(n_regions=st.integers(1, 10_000))
def test_run_edges__are_those_of_runs_of_about_the_root(n_regions):
    edges = run_edges(n_regions)

    assert edges[0] == 0
    assert edges[-1] == n_regions
    assert min(np.diff(edges)) >= 1
    assert max(np.diff(edges)) ** 2 <= n_regions
    assert (len(edges) - 3) ** 2 <= 2 * n_regions
