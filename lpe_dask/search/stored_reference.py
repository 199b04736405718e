"""The reference of a model on disk.

Reference --store--> files, rows of each block --StoredReference.load--> Reference
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lpe_dask.search.blocks.model_blocks import file_names, load_files
from lpe_dask.search.blocks.packing import Space
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
        has_graph = self.graph_params is not None
        return file_names(len(self.block_rows), self.space, has_graph=has_graph)

    def load(self, files: Mapping[str, StoredFile], calibration_rows: int) -> Reference:
        """Return the reference, whose blocks are read by the tasks that search them.

        Parameters
        ----------
        files : mapping of str to StoredFile
            By name; all of `file_names`.
        calibration_rows : int
            As in `ProblemSize`.
        """
        space = self.space
        largest = 1 if space.is_indexed else MAX_BLOCK_ROWS
        shape = ProblemSize(
            sum(self.block_rows), space.preparation.n_prepared(self.n_input_features),
            self.statistic, self.graph_params, calibration_rows,
            -(-max(self.block_rows) // largest), is_indexed=space.is_indexed,
            n_input_features=self.n_input_features,
        )  # fmt: skip
        parts = load_files(files, space, self.block_rows, shape.graph_neighbors)
        return Reference(shape, space, *parts)
