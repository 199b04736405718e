"""The folder that a run writes: whole parts, in the order of the input.

    OUT/part-00000.parquet, ...   the rows, with p_value, statistic and is_anomaly
    OUT/_summary.json             what was done; written last

Every file is written under another name and then moved: whatever is visible is whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from os.path import realpath
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

from lpe_dask.inputs import tasks_of_frame
from lpe_dask.messages import brief

#: Columns that a run adds to those of the input.
RESULT_COLUMNS = ("p_value", "statistic", "is_anomaly")

#: Name of the file that a run writes last.
SUMMARY_NAME = "_summary.json"

#: Name of a file that is written and removed, to see that this is possible.
PROBE_NAME = ".part-probe.tmp"

#: Files of an output folder: parts, the summary, and what a killed run leaves of them.
_OWN_NAME = re.compile(r"part-\d{5,}\.parquet|_summary\.json|\.(part-|_summary).*\.tmp")


# The output folder


def check_output(output: str, inputs: list[str], overwrite: bool) -> str:
    """Return the URL of the output folder; it does not exist, or may be replaced."""
    filesystem, root = fsspec.core.url_to_fs(output)
    for path in inputs:
        _check_apart(output, path)
    if filesystem.exists(root):
        if not overwrite:
            raise FileExistsError(
                f"the output {output} exists. Give another folder, or replace it "
                f"(overwrite=True, --overwrite)."
            )
        _check_ours(filesystem, root, output)
    url: str = filesystem.unstrip_protocol(root)
    return url


def _check_apart(output: str, data: str) -> None:
    """Raise if the output is the input, holds it, or lies in an input folder."""
    filesystem, root = fsspec.core.url_to_fs(output)
    other, path = fsspec.core.url_to_fs(data)
    if filesystem.protocol != other.protocol:
        return
    places = other.glob(path) if any(sign in path for sign in "*?[") else [path]
    ends = [_resolved(filesystem, name) + "/" for name in [root, *places]]
    for end in ends[1:]:
        if end.startswith(ends[0]) or ends[0].startswith(end):
            raise ValueError(
                f"the output {output} and the input {data} are in each other's way: one of "
                f"them is, or lies in, the other. Give an output folder of its own."
            )


def _resolved(filesystem: Any, path: str) -> str:
    return realpath(path) if "file" in filesystem.protocol else path.rstrip("/")


def _check_ours(filesystem: Any, root: str, output: str) -> None:
    """Raise if what is to be replaced is not the output of a run."""
    if not filesystem.isdir(root):
        raise FileExistsError(
            f"the output {output} is a file; a run writes a folder. Give another name."
        )
    names = [name.rsplit("/", 1)[-1] for name in filesystem.ls(root, detail=False)]
    foreign = sorted(name for name in names if not _OWN_NAME.fullmatch(name))
    if not foreign and SUMMARY_NAME not in names:  # perhaps a run that was interrupted
        parts = [name for name in names if name.endswith(".parquet")]
        foreign = [name for name in parts[:1] if not _is_part(filesystem, f"{root}/{name}")]
    if foreign:
        raise FileExistsError(
            f"the output {output} holds files that no run wrote: {', '.join(foreign[:3])}. "
            f"Only the output of an earlier run is replaced. Give another folder, or move "
            f"those files away."
        )


def _is_part(filesystem: Any, path: str) -> bool:
    with filesystem.open(path) as file:
        try:
            names = pq.read_schema(file).names
        except pa.ArrowInvalid:
            return False
    return set(RESULT_COLUMNS) <= set(names)


@contextmanager
def reserved(url: str) -> Iterator[None]:
    """Make the output folder before the work, and take it away if that comes to nothing."""
    filesystem, root = fsspec.core.url_to_fs(url)
    existed = filesystem.exists(root)
    try:
        filesystem.makedirs(root, exist_ok=True)
        with whole_file(filesystem, root, PROBE_NAME) as file:
            file.write(b"")
        filesystem.rm_file(f"{root}/{PROBE_NAME}")
    except (OSError, NotImplementedError) as error:
        raise OSError(
            f"nothing can be written to the output {url}: {brief(error)} Give a folder "
            f"that may be written to."
        ) from error
    try:
        yield
    except BaseException:
        if not existed:
            with suppress(Exception):
                filesystem.rmdir(root)
        raise


def empty_folder(url: str) -> None:
    """Remove what an earlier run left in the output folder, its summary first."""
    filesystem, root = fsspec.core.url_to_fs(url)
    names = [name.rsplit("/", 1)[-1] for name in filesystem.ls(root, detail=False)]
    own = filter(_OWN_NAME.fullmatch, names)
    for name in sorted(own, key=lambda name: name != SUMMARY_NAME):
        filesystem.rm_file(f"{root}/{name}")


def check_parts(url: str, n_parts: int) -> None:
    """Raise if the parts that workers wrote are not to be seen from here."""
    filesystem, root = fsspec.core.url_to_fs(url)
    filesystem.invalidate_cache()
    names = {name.rsplit("/", 1)[-1] for name in filesystem.ls(root, detail=False)}
    unseen = {_part_name(i, n_parts) for i in range(n_parts)} - names
    if unseen:
        raise FileNotFoundError(
            f"the workers wrote {n_parts} parts, but {len(unseen)} of them are not to be "
            f"seen from here in {url}. Give an output that this machine and all workers "
            f"share: a shared folder, or a URL such as s3://bucket/folder."
        )


@contextmanager
def whole_file(filesystem: Any, folder: str, name: str) -> Iterator[Any]:
    """Give a file to write, which gets its name in ``folder`` only when it is complete."""
    temporary = f"{folder}/.{name}.{uuid4().hex}.tmp"
    try:
        with filesystem.open(temporary, "wb") as file:
            yield file
        filesystem.mv(temporary, f"{folder}/{name}")
    except BaseException:
        with suppress(Exception):
            filesystem.rm_file(temporary)
        raise


# Parts


def _part_name(number: int, n_parts: int) -> str:
    return f"part-{number:0{max(5, len(str(n_parts - 1)))}}.parquet"


def part_writes(
    kept: Any, statistic: da.Array, p_values: da.Array, offset: float, url: str
) -> list[Delayed]:
    """Return one task for each partition, which writes its part and returns its counts."""
    graph, keys = tasks_of_frame(kept)
    settings = (offset, PartLayout.of(kept), url)
    name = f"lpe-write-{uuid4().hex}"
    tasks = {
        f"{name}-{i}": (
            _write_part,
            key,
            (statistic.name, i),
            (p_values.name, i),
            *settings,
            _part_name(i, len(keys)),
        )
        for i, key in enumerate(keys)
    }
    whole = {**statistic.dask, **p_values.dask, **graph, **tasks}
    shared = HighLevelGraph.from_collections(name, whole)
    return [Delayed(key, shared, layer=name) for key in tasks]


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
        meta = kept._meta
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
    offset: float,
    layout: PartLayout,
    url: str,
    name: str,
) -> dict[str, int]:
    is_nan = np.isnan(p_value)
    is_anomaly = pd.arrays.BooleanArray(p_value < offset, is_nan)
    results = (p_value, statistic, is_anomaly)
    columns: dict[str, Any] = dict(zip(RESULT_COLUMNS, results, strict=True))
    filesystem, folder = fsspec.core.url_to_fs(url)
    with whole_file(filesystem, folder, name) as file:
        pq.write_table(layout.table(kept.assign(**columns)), file)
    return {
        "rows": len(kept),
        "rows_nan": int(is_nan.sum()),
        "flagged": int(np.sum(p_value < offset)),
    }
