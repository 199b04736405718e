"""The parts of an output: one file for each partition of the input.

    rows, statistic, p-value --one task each--> part-00000.parquet ...

A part says in its metadata which run it belongs to and what it counts, so that a run that
was interrupted finds the parts that are done, and needs no other record of them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import dask.array as da
import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from numpy.typing import NDArray

from lpe_dask.files import READERS
from lpe_dask.graphs import delayed_tasks
from lpe_dask.inputs import tasks_of_frame
from lpe_dask.locks import check_token
from lpe_dask.private_uses import meta_of
from lpe_dask.whole_files import whole_file

#: Columns that a run adds to those of the input.
RESULT_COLUMNS = ("p_value", "statistic", "is_anomaly")

#: Folder in an output for parts whose anomalies are not decided before all are measured;
#: readers of the output do not look into it.
UNDECIDED = "_undecided"

#: What parts count.
PART_COUNTS = ("rows", "rows_nan", "flagged")

#: Key of the metadata of a part.
_KEY = b"lpe_dask"


@dataclass(frozen=True, slots=True)
class PartFolder:
    """A folder of parts of one run.

    Attributes
    ----------
    url : str
    run : str
        Tells this run from others.
    n_parts : int
    lock_url, token : str
        Of the lock that the run holds.
    """

    url: str
    run: str
    n_parts: int
    lock_url: str
    token: str

    def name(self, number: int) -> str:
        """Return the name of a part; names sort like numbers."""
        return f"part-{number:0{max(5, len(str(self.n_parts - 1)))}}.parquet"

    def undecided(self) -> PartFolder:
        """Return the folder for parts whose anomalies are not decided yet."""
        return replace(self, url=f"{self.url}/{UNDECIDED}")

    def make(self) -> None:
        """Make the folder, if it is not there."""
        filesystem, root = fsspec.core.url_to_fs(self.url)
        filesystem.makedirs(root, exist_ok=True)

    def found(self) -> dict[int, dict[str, int]]:
        """Return the parts of this run that are there, and what they count."""
        filesystem, root = fsspec.core.url_to_fs(self.url)
        filesystem.invalidate_cache()
        if not filesystem.exists(root):
            return {}
        there = {path.rsplit("/", 1)[-1] for path in filesystem.ls(root, detail=False)}
        numbers = [i for i in range(self.n_parts) if self.name(i) in there]
        with ThreadPoolExecutor(READERS) as readers:
            counts = list(readers.map(self._counts_of, numbers))
        found = zip(numbers, counts, strict=True)
        return {i: of_part for i, of_part in found if of_part is not None}

    def _counts_of(self, number: int) -> dict[str, int] | None:
        """Return what a part counts; None if it is no part of this run, or damaged."""
        filesystem, root = fsspec.core.url_to_fs(self.url)
        try:
            with filesystem.open(f"{root}/{self.name(number)}", "rb") as file:
                metadata = pq.read_metadata(file).metadata or {}
            said = json.loads(metadata[_KEY])
            is_ours = (said["run"], said["part"]) == (self.run, number)
            return {name: int(n) for name, n in said["counts"].items()} if is_ours else None
        except (pa.ArrowException, OSError, KeyError, TypeError, ValueError):
            return None

    def publish(self, number: int, table: pa.Table, counts: dict[str, int]) -> None:
        """Write a part; it gets its name when it is whole, and the lock is still held."""
        said = {"run": self.run, "part": number, "counts": counts}
        metadata = {**(table.schema.metadata or {}), _KEY: json.dumps(said).encode()}
        filesystem, root = fsspec.core.url_to_fs(self.url)
        with whole_file(filesystem, root, self.name(number)) as file:
            pq.write_table(table.replace_schema_metadata(metadata), file)
            check_token(self.lock_url, self.token)


def part_writes(
    kept: Any,
    statistic: da.Array,
    p_values: da.Array,
    offset: float | None,
    folder: PartFolder,
    numbers: Sequence[int],
) -> list[Delayed]:
    """Return one task for each of some partitions, which writes its part and counts.

    Parameters
    ----------
    kept : dask DataFrame
        The columns to carry over.
    statistic, p_values : dask array of shape (n_rows,)
        In the same partitions.
    offset : float, optional
        A row is an anomaly if its p-value is below this; None: that is yet to be decided.
    folder : PartFolder
    numbers : sequence of int
        Of the partitions to write.
    """
    graph, keys = tasks_of_frame(kept)
    settings = (offset, PartLayout.of(kept), folder)
    name = f"lpe-write-{uuid4().hex}"
    tasks = {
        f"{name}-{i}": (
            _write_part, keys[i], (statistic.name, i), (p_values.name, i), *settings, i
        )
        for i in numbers
    }  # fmt: skip
    whole = {**statistic.dask, **p_values.dask, **graph, **tasks}
    shared = HighLevelGraph.from_collections(name, whole)
    return [Delayed(key, shared, layer=name) for key in tasks]


def decision_writes(
    cut_off: float, folder: PartFolder, numbers: Sequence[int]
) -> list[Delayed]:
    """Return one task for each of some undecided parts, which decides, writes and counts.

    Parameters
    ----------
    cut_off : float
        A row is an anomaly if its p-value is at most this.
    folder : PartFolder
        To write to; the undecided parts are in its `PartFolder.undecided`.
    numbers : sequence of int
    """
    name = f"lpe-decide-{uuid4().hex}"
    tasks = {f"{name}-{i}": (_decide_part, cut_off, folder, i) for i in numbers}
    return delayed_tasks(name, tasks, [])


def undecided_p_values(folder: PartFolder) -> da.Array:
    """Return the p-values in the undecided parts, as a dask array of unknown chunks."""
    name = f"lpe-undecided-{uuid4().hex}"
    tasks = {(name, i): (_read_p_values, folder, i) for i in range(folder.n_parts)}
    graph = HighLevelGraph.from_collections(name, tasks)
    chunks = ((np.nan,) * folder.n_parts,)
    return da.Array(graph, name, chunks, meta=np.empty(0))


@dataclass(frozen=True, slots=True)
class PartLayout:
    """What the parts have in common, so that they can be read as one table.

    A column that has missing values in one partition only, or other categories, would come
    out as another type there.

    Attributes
    ----------
    types : dict of str to pyarrow.DataType
        Types of the columns carried over, where they are known before reading.
    has_index : bool
        False where the index does nothing but count: each partition of a file begins again,
        and readers count the rows by themselves.
    """

    types: dict[str, pa.DataType]
    has_index: bool

    @classmethod
    def of(cls, kept: Any) -> PartLayout:
        """Return the layout of parts that carry over the columns of ``kept``."""
        meta = meta_of(kept)
        schema = pa.Schema.from_pandas(meta, preserve_index=False)
        types = {field.name: field.type for field in schema if not _is_open(field.type)}
        counts = isinstance(meta.index, pd.RangeIndex) and meta.index.name is None
        return cls(types, has_index=not counts)

    def table(self, part: pd.DataFrame) -> pa.Table:
        """Return a partition as an Arrow table of these types."""
        table = pa.Table.from_pandas(part, preserve_index=self.has_index)
        for position, field in enumerate(table.schema):
            column = self._typed(table.column(position), field)
            table = table.set_column(position, field.name, column)
        return table

    def _typed(self, column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
        wanted = self.types.get(field.name, field.type)
        if pa.types.is_dictionary(wanted):
            if pa.types.is_null(wanted.value_type):  # no category here: taken for text
                wanted = pa.dictionary(pa.int32(), pa.string())
                return pa.chunked_array([pa.nulls(len(column), wanted)])
            wanted = pa.dictionary(pa.int32(), wanted.value_type, wanted.ordered)
        return column if wanted == field.type else column.cast(wanted)


def _is_open(arrow_type: pa.DataType) -> bool:
    return pa.types.is_null(arrow_type) or pa.types.is_dictionary(arrow_type)


# The functions below run inside tasks.


def _write_part(
    kept: pd.DataFrame,
    statistic: NDArray[np.float64],
    p_value: NDArray[np.float64],
    offset: float | None,
    layout: PartLayout,
    folder: PartFolder,
    number: int,
) -> dict[str, int]:
    is_flagged = np.zeros(len(p_value), bool) if offset is None else p_value < offset
    is_nan = np.isnan(p_value)
    is_anomaly = pd.arrays.BooleanArray(is_flagged, is_nan)
    results = (p_value, statistic, is_anomaly)
    columns: dict[str, Any] = dict(zip(RESULT_COLUMNS, results, strict=True))
    table = layout.table(kept.assign(**columns))
    counts = _counts(is_nan, is_flagged)
    folder.publish(number, table, counts)
    return counts


def _counts(is_nan: NDArray[np.bool_], is_flagged: NDArray[np.bool_]) -> dict[str, int]:
    values = (len(is_nan), int(is_nan.sum()), int(is_flagged.sum()))
    return dict(zip(PART_COUNTS, values, strict=True))


def _decide_part(cut_off: float, folder: PartFolder, number: int) -> dict[str, int]:
    filesystem, root = fsspec.core.url_to_fs(folder.undecided().url)
    with filesystem.open(f"{root}/{folder.name(number)}", "rb") as file:
        table = pq.ParquetFile(file).read()
    p_value = table.column("p_value").to_numpy()
    is_nan, is_flagged = np.isnan(p_value), p_value <= cut_off
    place = table.schema.get_field_index("is_anomaly")
    decided = pa.array(is_flagged, mask=is_nan)
    table = table.set_column(place, table.schema.field(place), decided)
    counts = _counts(is_nan, is_flagged)
    folder.publish(number, table, counts)
    return counts


def _read_p_values(folder: PartFolder, number: int) -> NDArray[np.float64]:
    filesystem, root = fsspec.core.url_to_fs(folder.undecided().url)
    with filesystem.open(f"{root}/{folder.name(number)}", "rb") as file:
        table = pq.ParquetFile(file).read(columns=["p_value"])
    p_values: NDArray[np.float64] = table.column("p_value").to_numpy()
    return p_values
