r"""The reference of a model on disk: written block by block, read by those who search it.

blocks, graph --store_blocks, store_graph--> files, one task each
files         --load_blocks, load_graph-->   blocks, graph: read when the tasks run
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import numpy as np
from dask.delayed import Delayed

from lpe_dask.kernels import NeighborGraph
from lpe_dask.search.handles import SpoolFolder, handles_of
from lpe_dask.search.packing import block_columns
from lpe_dask.storage import FLOAT64, INT32, INT64, StoredFile, write_columns
from lpe_dask.tasks import delayed_tasks


def load_graph(
    starts: StoredFile, edges: StoredFile, n_rows: int, folder: SpoolFolder | None = None
) -> list[Delayed]:
    """Return the task that reads a neighbor graph of ``n_rows`` rows, as the only one.

    A graph is never spooled, so there is no ``folder`` to put it into.
    """
    key = f"lpe-load-graph-{uuid4().hex}"
    return delayed_tasks(key, {key: (_load_graph, starts, edges, n_rows)}, [])


def store_blocks(
    blocks: list[Delayed], n_blocks: int, n_features: int, urls: Sequence[str]
) -> list[Delayed]:
    """Return one task for each block, which writes its rows.

    A task gives the number of rows and the `StoredFile`.

    Parameters
    ----------
    blocks : list of Delayed
        One of each handle, or of all `Handles`.
    n_blocks, n_features : int
    urls : sequence of str
        Of the files to write.
    """
    name, names = f"lpe-store-{uuid4().hex}", block_columns(n_features)
    keys = [block.key for block in blocks]
    is_single = len(keys) == n_blocks  # each task then needs its own block only
    tasks = {
        f"{name}-{i}": (
            (_store_block, [keys[i]], 0, names, url)
            if is_single
            else (_store_block, keys, i, names, url)
        )
        for i, url in enumerate(urls)
    }
    return delayed_tasks(name, tasks, blocks)


def store_graph(graph: Delayed, starts_url: str, edges_url: str) -> Delayed:
    """Return the task that writes a neighbor graph and gives its two `StoredFile`."""
    key = f"lpe-store-graph-{uuid4().hex}"
    tasks = {key: (_store_graph, graph.key, starts_url, edges_url)}
    return delayed_tasks(key, tasks, [graph])[0]


# The functions below run inside tasks: NumPy in, NumPy out.


def _store_block(
    blocks: list[Any], i: int, names: list[str], url: str
) -> tuple[int, StoredFile]:
    block = handles_of(blocks)[i].load()
    values = [block.numbers.astype(np.int64), *block.rows.T]
    return block.n_rows, write_columns(url, dict(zip(names, values, strict=True)))


def _store_graph(
    graph: NeighborGraph, starts_url: str, edges_url: str
) -> tuple[StoredFile, StoredFile]:
    starts = write_columns(starts_url, {"start": graph.starts})
    edges = write_columns(edges_url, {"target": graph.targets, "length": graph.lengths})
    return starts, edges


def _load_graph(starts: StoredFile, edges: StoredFile, n_rows: int) -> NeighborGraph:
    firsts = starts.columns({"start": INT64}, n_rows + 1)["start"]
    found = edges.columns({"target": INT32, "length": FLOAT64})
    graph = NeighborGraph(firsts, found["target"], found["length"])
    _check_graph(graph, edges.url)
    return graph


def _check_graph(graph: NeighborGraph, url: str) -> None:
    """Raise if a walk along these edges could leave the graph: kernels trust it."""
    starts, targets = graph.starts, graph.targets
    is_run = starts[0] == 0 and starts[-1] == len(targets) and (np.diff(starts) >= 0).all()
    is_within = ((targets >= 0) & (targets < graph.n_rows)).all()
    if not (is_run and is_within and (graph.lengths >= 0).all()):
        raise ValueError(f"{url} holds no graph of {graph.n_rows} rows")
