"""Tasks that write the blocks of a model on disk, and that read them for a search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from dask.delayed import Delayed
from numpy.typing import NDArray

from lpe_dask.kernels import Index, NeighborGraph
from lpe_dask.search.blocks.packing import Space, each_block, pack_rows
from lpe_dask.search.blocks.spool_blocks import SpoolFolder, handles_of
from lpe_dask.storage import StoredFile
from lpe_dask.tasks import new_tasks, to_task


def load_blocks(
    files: Sequence[tuple[StoredFile, int]],
    n_reference: int,
    space: Space,
    folder: SpoolFolder | None = None,
) -> list[Delayed]:
    """Return one task for each file of prepared rows, which makes it a block.

    Parameters
    ----------
    files : sequence of (StoredFile, int)
        With the columns that `block_columns` names, and their rows.
    n_reference : int
        Rows in all of them.
    """
    entered = to_task(space, "lpe-space")
    tasks = (
        (_load, file, n_rows, n_reference, entered.key, folder) for file, n_rows in files
    )
    return new_tasks("load", tasks, [entered])


def block_columns(n_features: int) -> list[str]:
    """Return the columns of a file of prepared rows: their number, and coordinates."""
    return ["number", *(f"x{k}" for k in range(n_features))]


def load_graph(
    starts: StoredFile, edges: StoredFile, n_rows: int, folder: SpoolFolder | None = None
) -> list[Delayed]:
    """Return the task that reads a neighbor graph of ``n_rows`` rows, as the only one.

    A graph is never spooled, so there is no ``folder`` to put it into.
    """
    return new_tasks("load-graph", [(_load_graph, starts, edges, n_rows)])


def store_blocks(
    blocks: list[Delayed], n_features: int, urls: Sequence[str]
) -> list[Delayed]:
    """Return one task for each block, which writes its rows.

    A task gives the number of rows and the `StoredFile`.

    Parameters
    ----------
    blocks : list of Delayed
        One of each handle, or of all `Handles`.
    n_features : int
    urls : sequence of str
        Of the files to write, one for each.
    """
    names, given = block_columns(n_features), each_block(blocks, len(urls))
    tasks = ((_store_block, *of, names, url) for of, url in zip(given, urls, strict=True))
    return new_tasks("store", tasks, blocks)


def load_indexes(
    files: Sequence[tuple[StoredFile, StoredFile, int]],
    n_reference: int,
    space: Space,
    folder: SpoolFolder | None = None,
) -> list[Delayed]:
    """Return one task for each block, which reads its index.

    Parameters
    ----------
    files : sequence of (StoredFile, StoredFile, int)
        Of the rows of a block, of its index, and how many rows these are.
    n_reference : int
        Rows in all of them.
    """
    entered = to_task(space, "lpe-space")
    tasks = ((_load_index, *file, n_reference, entered.key, folder) for file in files)
    return new_tasks("load-index", tasks, [entered])


def store_indexes(indexes: list[Delayed], urls: Sequence[str]) -> list[Delayed]:
    """Return one task for each index, which writes it and gives the `StoredFile`.

    Parameters
    ----------
    indexes : list of Delayed
        One of each handle, or of all `Handles`.
    urls : sequence of str
        Of the files to write, one for each.
    """
    given = each_block(indexes, len(urls))
    tasks = ((_store_index, *index, url) for index, url in zip(given, urls, strict=True))
    return new_tasks("store-index", tasks, indexes)


def store_graph(graph: Delayed, starts_url: str, edges_url: str) -> Delayed:
    """Return the task that writes a neighbor graph and gives its two `StoredFile`."""
    task = (_store_graph, graph.key, starts_url, edges_url)
    return new_tasks("store-graph", [task], [graph])[0]


# The functions below run inside tasks: NumPy in, NumPy out.


def _store_block(
    blocks: list[Any], i: int, names: list[str], url: str
) -> tuple[int, StoredFile]:
    block = handles_of(blocks)[i].load()
    values = [block.numbers.astype(np.int64), *block.rows.T]
    return block.n_rows, StoredFile.write(url, dict(zip(names, values, strict=True)))


def _store_index(indexes: list[Any], i: int, url: str) -> StoredFile:
    graph = handles_of(indexes)[i].load().graph
    return StoredFile.write(url, dict(zip(_led_to(graph.shape[1]), graph.T, strict=True)))


def _led_to(n_led_to: int) -> list[str]:
    """Return the columns of the graph in a file: places in the file of the block."""
    return [f"to{k}" for k in range(n_led_to)]


def _store_graph(
    graph: NeighborGraph, starts_url: str, edges_url: str
) -> tuple[StoredFile, StoredFile]:
    starts = StoredFile.write(starts_url, {"start": graph.starts})
    edges = StoredFile.write(edges_url, {"target": graph.targets, "length": graph.lengths})
    return starts, edges


def _load(
    file: StoredFile,
    n_rows: int,
    n_reference: int,
    space: Space,
    folder: SpoolFolder | None,
) -> Any:
    return pack_rows(*_read_rows(file, n_rows, n_reference, space), space, folder)


def _read_rows(
    file: StoredFile, n_rows: int, n_reference: int, space: Space
) -> tuple[NDArray[np.floating], NDArray[np.int64]]:
    """Return the rows of a block and their numbers, as they are in its file."""
    name, *names = block_columns(space.basis.n_columns)
    columns = file.columns({name: np.int64} | dict.fromkeys(names, np.floating), n_rows)
    numbers = columns.pop(name)
    rows = np.empty((n_rows, len(names)), columns[names[0]].dtype)
    for k, column in enumerate(names):
        if columns[column].dtype != rows.dtype:
            raise ValueError(f"{file.url} contains numbers of more than one type")
        rows[:, k] = columns.pop(column)
    is_number = numbers.min() >= 0 and numbers.max() < n_reference
    if not is_number or len(np.unique(numbers)) < n_rows:
        raise ValueError(
            f"{file.url} contains a row twice, or numbers of rows that a reference of "
            f"{n_reference} lacks"
        )
    _check_values(rows, space, file.url)
    return rows, numbers


def _check_values(rows: NDArray[np.floating], space: Space, url: str) -> None:
    """Raise unless rows are finite, and of groups that there are.

    Rows of a group of which nothing was learned have no prepared numbers.
    """
    is_learned: Any = np.ones(len(rows), bool)
    if (n_groups := space.n_groups) is not None and not space.preparation.drops_group:
        preparation = space.preparation
        n_left = 0 if preparation.fill is None else len(preparation.fill)  # gaps
        place = -1 if preparation.separates else -1 - n_left
        codes = rows[:, place]
        is_there = (codes >= 0) & (codes < n_groups) & (codes == np.floor(codes))
        if not is_there.all():
            raise ValueError(f"{url} contains rows of groups that the model has not")
        if preparation.groups is not None:
            is_learned = preparation.groups.is_known[codes.astype(np.int64)]
    if np.isinf(rows).any() or np.isnan(rows[is_learned]).any():
        raise ValueError(f"{url} contains NaN or inf")


def _load_index(
    of_rows: StoredFile,
    file: StoredFile,
    n_rows: int,
    n_reference: int,
    space: Space,
    folder: SpoolFolder | None,
) -> Any:
    rows, numbers = _read_rows(of_rows, n_rows, n_reference, space)
    block = space.pack(rows, numbers).block
    names = _led_to(Index.DEGREE)
    columns = file.columns(dict.fromkeys(names, np.int32), n_rows)
    stored = np.column_stack([columns[name] for name in names])
    if stored.min() < -1 or stored.max() >= n_rows:
        raise ValueError(f"{file.url} contains no index of {n_rows} rows")
    # The rows were packed again, maybe in another order.
    order = np.argsort(block.numbers)
    places = order[np.searchsorted(block.numbers, numbers, sorter=order)]
    graph = np.empty_like(stored)
    graph[places] = np.where(stored < 0, -1, places[stored])
    held = space.linked(block, graph)
    return held if folder is None else folder.write_index(held)


def _load_graph(starts: StoredFile, edges: StoredFile, n_rows: int) -> NeighborGraph:
    firsts = starts.columns({"start": np.int64}, n_rows + 1)["start"]
    found = edges.columns({"target": np.int32, "length": np.float64})
    graph = NeighborGraph(firsts, found["target"], found["length"])
    _check_graph(graph, edges.url)
    return graph


def _check_graph(graph: NeighborGraph, url: str) -> None:
    """Raise if a walk along these edges could leave the graph: kernels trust it."""
    starts, targets = graph.starts, graph.targets
    is_run = starts[0] == 0 and starts[-1] == len(targets) and (np.diff(starts) >= 0).all()
    is_within = ((targets >= 0) & (targets < graph.n_rows)).all()
    if not (is_run and is_within and (graph.lengths >= 0).all()):
        raise ValueError(f"{url} contains no graph of {graph.n_rows} rows")
