r"""The reference of a model on disk: written block by block, read by those who search it.

    blocks, graph --store_blocks, store_graph--> files, one task each
    StoredResults --tasks--> blocks, graph       nothing is read before the tasks run
                  --hold-->                      computed, kept in memory or in a spool

Rows that are read at each use cost their reading each time, so whoever computes at once
holds them first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

import numpy as np
from dask.delayed import Delayed

from lpe_dask.graphs import delayed_tasks
from lpe_dask.handles import handles_of
from lpe_dask.kernels.paths import NeighborGraph
from lpe_dask.packing import block_columns
from lpe_dask.resources import active_client
from lpe_dask.spool import HeldResults, Spool, spool_place
from lpe_dask.stored_files import FLOAT64, INT32, INT64, StoredFile, write_columns


class StoredResults:
    """Blocks, or a neighbor graph, in the files of a model; offers what `HeldResults` does.

    Parameters
    ----------
    load : callable
        Without an argument, or with a `Spool` to put them into: the tasks that read them.
        It can be pickled.
    n_results : int
        Blocks, or 1 for a graph.
    """

    def __init__(self, load: Callable[..., list[Delayed]], n_results: int) -> None:
        self._load = load
        self._n_results = n_results
        self._held: HeldResults | None = None
        self._holder: Any = None

    def __len__(self) -> int:
        """Return the number of blocks."""
        return self._n_results

    @property
    def is_spooled(self) -> bool | None:
        """Whether the blocks are in a spool; None where they are not held."""
        held = self._reachable()
        return None if held is None else held.is_spooled

    def hold(self, *, in_spool: bool = False) -> None:
        """Read the files and keep what they hold, if it is not kept already; computes."""
        if self._reachable() is None:
            spool = Spool(spool_place()) if in_spool else None
            tasks = self._load() if spool is None else self._load(spool)
            self._held = HeldResults(tasks, spool)
            self._holder = active_client()

    def tasks(self) -> list[Delayed]:
        """Return tasks that give a handle each, or all `Handles`, or the graph."""
        held = self._reachable()
        return self._load() if held is None else held.tasks()

    def _reachable(self) -> HeldResults | None:
        """Return what is held, unless that is with the workers of another cluster."""
        if self._held is not None and self._holder is not active_client():
            self._held = self._holder = None
        return self._held

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind what is held: a copy of a model reads the files by itself."""
        return self.__dict__ | {"_held": None, "_holder": None}


def load_graph(starts: StoredFile, edges: StoredFile, n_rows: int) -> list[Delayed]:
    """Return the task that reads a neighbor graph of ``n_rows`` rows, as the only one."""
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
