"""The reference of a model on disk.

Reference --store--> files, rows of each block --StoredReference.load--> Reference
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from lpe_dask.search.blocks.model_blocks import (
    EDGES_NAME,
    STARTS_NAME,
    block_name,
    index_name,
    load_blocks,
    load_graph,
    load_indexes,
)
from lpe_dask.search.blocks.packing import Space
from lpe_dask.search.blocks.persisted import StoredBlocks
from lpe_dask.search.plan import (
    MAX_BLOCK_ROWS,
    NeighborGraphParams,
    ProblemSize,
    Statistic,
)
from lpe_dask.search.reference import Reference
from lpe_dask.storage import StoredFile


@dataclass(frozen=True, slots=True)
class StoredReference:
    """What is to be known of a reference beside its files.

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
        blocks = range(len(self.block_rows))
        names = set(map(block_name, blocks))
        if self.graph_params is not None:
            names |= {STARTS_NAME, EDGES_NAME}
        if self.space.is_indexed:
            names.update(map(index_name, blocks))
        return names

    def load(self, files: Mapping[str, StoredFile], calibration_rows: int) -> Reference:
        """Return the reference, whose blocks are read by the tasks that search them.

        Parameters
        ----------
        files : mapping of str to StoredFile
            By name; all of `file_names`.
        calibration_rows : int
            As in `ProblemSize`.
        """
        space, n_rows = self.space, sum(self.block_rows)
        blocks = [
            (files[block_name(i)], n_of_block)
            for i, n_of_block in enumerate(self.block_rows)
        ]
        load = partial(load_blocks, blocks, n_rows, space)
        graph = indexes = None
        if self.graph_params is not None:
            max_edges = 2 * n_rows * self.graph_params.n_neighbors
            files[EDGES_NAME].check_plausible(2, max_edges)
            edges = partial(load_graph, files[STARTS_NAME], files[EDGES_NAME], n_rows)
            graph = StoredBlocks(edges, 1)
        if space.is_indexed:
            pairs = [
                (file, files[index_name(i)], n_of_block)
                for i, (file, n_of_block) in enumerate(blocks)
            ]
            load_all = partial(load_indexes, pairs, n_rows, space)
            indexes = StoredBlocks(load_all, len(blocks))
        largest = 1 if space.is_indexed else MAX_BLOCK_ROWS
        shape = ProblemSize(
            n_rows, space.preparation.n_prepared(self.n_input_features), self.statistic,
            self.graph_params, calibration_rows, -(-max(self.block_rows) // largest),
            is_indexed=space.is_indexed, n_input_features=self.n_input_features,
        )  # fmt: skip
        return Reference(shape, space, StoredBlocks(load, len(blocks)), graph, indexes)
