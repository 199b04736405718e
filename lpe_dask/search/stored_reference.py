"""The reference of a model on disk: written block by block, read by the tasks of searches.

Reference --store_reference--> files, rows of each block --StoredReference.load--> Reference
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from lpe_dask.search.blocks.model_blocks import (
    load_blocks,
    load_graph,
    load_indexes,
    store_blocks,
    store_graph,
    store_indexes,
)
from lpe_dask.search.blocks.packing import Space
from lpe_dask.search.blocks.persisted import StoredBlocks
from lpe_dask.search.plan import (
    MAX_BLOCK_RATIO,
    NeighborGraphParams,
    ProblemSize,
    Statistic,
)
from lpe_dask.search.reference import Reference
from lpe_dask.storage import StoredFile, child_url
from lpe_dask.tasks import compute

#: Names of the files of a neighbor graph.
_STARTS, _EDGES = "graph-starts.parquet", "graph-edges.parquet"


@dataclass(frozen=True, slots=True)
class StoredReference:
    """The shape and space of a reference whose rows are in files.

    Attributes
    ----------
    space : Space
    statistic : Statistic
    graph_params : NeighborGraphParams, optional
    block_rows : sequence of int
        Rows of each block.
    n_input_features : int
        Columns of the input.
    """

    space: Space
    statistic: Statistic
    graph_params: NeighborGraphParams | None
    block_rows: Sequence[int]
    n_input_features: int

    def file_names(self) -> set[str]:
        """Return the names of all files."""
        n_blocks = len(self.block_rows)
        names = {_block_name(i) for i in range(n_blocks)}
        if self.graph_params is not None:
            names |= {_STARTS, _EDGES}
        if self.space.is_indexed:
            names |= {_index_name(i) for i in range(n_blocks)}
        return names

    def load(self, files: Mapping[str, StoredFile], calibration_rows: int) -> Reference:
        """Return the reference, whose blocks are read by the tasks that search them.

        Parameters
        ----------
        files : mapping of str to StoredFile
            By name; all of `file_names`.
        calibration_rows : int
            As in `ProblemSize`.

        Raises
        ------
        ValueError
            If the file of a neighbor graph is larger than it can be.
        """
        space, n_rows, graph, indexes = self.space, sum(self.block_rows), None, None
        largest = 1 if space.is_indexed else MAX_BLOCK_RATIO
        shape = ProblemSize(
            n_rows, space.preparation.n_prepared(self.n_input_features), self.statistic,
            self.graph_params, calibration_rows, -(-max(self.block_rows) // largest),
            is_indexed=space.is_indexed, n_input_features=self.n_input_features,
            n_codes=space.preparation.n_codes,
        )  # fmt: skip
        blocks = [(files[_block_name(i)], n) for i, n in enumerate(self.block_rows)]
        if shape.graph_neighbors > 0:
            files[_EDGES].check_plausible(2, 2 * n_rows * shape.graph_neighbors)
            edges = partial(load_graph, files[_STARTS], files[_EDGES], n_rows)
            graph = StoredBlocks(edges, 1)
        if space.is_indexed:
            pairs = [
                (of_rows, files[_index_name(i)], n) for i, (of_rows, n) in enumerate(blocks)
            ]
            load_all = partial(load_indexes, pairs, n_rows, space)
            indexes = StoredBlocks(load_all, len(blocks))
        load = partial(load_blocks, blocks, n_rows, space)
        return Reference(shape, space, StoredBlocks(load, len(blocks)), graph, indexes)


def store_reference(
    reference: Reference, url: str
) -> tuple[dict[str, StoredFile], list[int]]:
    """Write a reference to files in a folder; computes.

    Returns
    -------
    files : dict of str to StoredFile
        By name.
    block_rows : list of int
        Rows of each block.
    """
    blocks, graph, indexes = reference.blocks, reference.graph, reference.indexes
    names = [_block_name(i) for i in range(len(blocks))]
    urls = [child_url(url, name) for name in names]
    n_features = reference.shape.n_features
    stored = compute(*store_blocks(blocks.tasks(), n_features, urls))
    files = {name: file for name, (_, file) in zip(names, stored, strict=True)}
    if graph is not None:
        (made,) = graph.tasks()
        task = store_graph(made, child_url(url, _STARTS), child_url(url, _EDGES))
        ((files[_STARTS], files[_EDGES]),) = compute(task)
    if indexes is not None:
        names = [_index_name(i) for i in range(len(indexes))]
        urls = [child_url(url, name) for name in names]
        of_indexes = compute(*store_indexes(indexes.tasks(), urls))
        files |= dict(zip(names, of_indexes, strict=True))
    return files, [n_rows for n_rows, _ in stored]


def _block_name(i: int) -> str:
    return f"block-{i:05}.parquet"


def _index_name(i: int) -> str:
    return f"index-{i:05}.parquet"
