"""Cut Parquet files into partitions, and read these as tables of Arrow.

    files --footers--> schema of all, RowGroups --one task each--> pyarrow.Table

A partition is some row groups of one file. Only footers are read before the tasks run.
"""

from __future__ import annotations

import json
import pickle
import platform
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import pairwise
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from lpe_dask.storage import (
    is_transient,
    redact_errors,
    retried,
    retried_until_visible,
    single_line,
)
from lpe_dask.tables import hive_partitions
from lpe_dask.tables.column_names import check_names
from lpe_dask.tables.errors import TableError
from lpe_dask.tables.schema_diff import differ, differences

#: What a worker adds to the error of a file that it does not find.
_UNSEEN = (
    "If it is still there, {} does not see it: give files that all workers see, in a "
    "shared folder or at a URL."
)

#: Rows of a partition of a Parquet file, unless a row group has more.
PARTITION_ROWS = 2**17

#: Footers that are read at the same time.
N_READER_THREADS = 16


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Consecutive row groups of a file.

    Attributes
    ----------
    name : str
        Of the file.
    filesystem : pyarrow.fs.FileSystem
    keys : dict of str to str or None
        The values in the names of its folders, such as ``year=2026``: always text.
    token : str
        Hash of its footer.
    groups : range
        Numbers of the row groups.
    first, n_rows : int
        The rows, counted from the beginning of the table.
    """

    name: str
    filesystem: Any
    keys: dict[str, str | None]
    token: str
    groups: range
    first: int
    n_rows: int

    # Where a storage fails when it is asked for a file, Arrow says that there is none. But
    # there is one: its footer has been read.
    @redact_errors()
    @retried_until_visible
    def read(self, names: list[str]) -> pa.Table:
        """Return some columns, of the types that they have in this file.

        Raises
        ------
        TableError
            If the file is damaged.
        """
        try:
            return self._read(names)
        except FileNotFoundError as error:
            self._ask_storage()
            error.add_note(_UNSEEN.format(platform.node()))
            raise

    def _read(self, names: list[str]) -> pa.Table:
        own = [name for name in names if name not in self.keys]
        try:
            table = self._read_groups(own, self.groups)
        except (pa.ArrowInvalid, OSError) as error:
            if not _is_of_content(error):
                raise
            raise TableError(
                f"{self.name} is damaged{self._where(own)}: {single_line(error)}. Copy or "
                f"write it again."
            ) from error
        for place, name in enumerate(names):
            if name in self.keys:
                column = hive_partitions.column(self.keys[name], self.n_rows)
                table = table.add_column(place, name, column)
        return table

    def _ask_storage(self) -> None:
        """Raise what the storage says of the file, but for that it is absent."""
        if (handler := getattr(self.filesystem, "handler", None)) is not None:
            with suppress(FileNotFoundError):
                handler.fs.info(self.name)

    def _read_groups(self, names: list[str], groups: Sequence[int]) -> pa.Table:
        # Made here: a fragment that was read keeps the footer of the whole file.
        fragment = ds.ParquetFileFormat().make_fragment(
            self.name, self.filesystem, row_groups=groups
        )
        return fragment.to_table(columns=names, use_threads=False)

    def _where(self, names: list[str]) -> str:
        """Return which column cannot be read, and where; reads them one at a time."""
        for group in self.groups:
            for name in names:
                try:
                    self._read_groups([name], [group])
                except (pa.ArrowInvalid, OSError) as error:
                    if not _is_of_content(error):
                        raise
                    return f" in row group {group}, column {name!r}"
        return ""

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return self.name, self.token, self.groups.start, self.groups.stop, self.first


def _is_of_content(error: Exception) -> bool:
    """Return whether Arrow cannot decode what it has read; else the storage has failed."""
    if isinstance(error, OSError):  # Arrow's own has no number
        return type(error) is OSError and error.errno is None and not is_transient(error)
    return True


def _footers(filesystem: Any, names: Sequence[str]) -> list[pq.FileMetaData]:
    with ThreadPoolExecutor(N_READER_THREADS) as readers:
        return list(readers.map(partial(_footer, filesystem), names))


@retried
def _footer(filesystem: Any, name: str) -> pq.FileMetaData:
    with filesystem.open(name) as file:
        try:
            metadata = pq.read_metadata(file)
        except (pa.ArrowInvalid, OSError) as error:
            if is_transient(error):
                raise
            raise ValueError(
                f"{name} is not a readable Parquet file: {single_line(error)}."
            ) from error
    return metadata


def open_files(
    filesystem: Any, names: list[str]
) -> tuple[list[RowGroups], pa.Schema, pd.RangeIndex | None, dict[str, str]]:
    """Return the partitions of a table, its schema, and its index if that only counts.

    And the columns in which files differ, which are not in the schema: how they do.

    Raises
    ------
    ValueError
        If a file cannot be read, or has two columns of one name or another index than the
        first.
    """
    footers = _footers(filesystem, names)
    schemas = [footer.schema.to_arrow_schema() for footer in footers]
    schema, differing = _common_schema(names, schemas)
    keys, unlike = hive_partitions.of_files(names, {*schema.names, *differing})
    differing |= unlike
    fields = [(key, hive_partitions.TYPE) for key in keys[0]]
    arrow = ds.dataset(names[:1], schema, format="parquet", filesystem=filesystem)
    parts: list[RowGroups] = []
    first, step = 0, _groups_of_partition(footers)
    for name, of_file, footer in zip(names, keys, footers, strict=True):
        token = sha256(pickle.dumps(footer)).hexdigest()
        file = (name, arrow.filesystem, of_file, token)
        for start in range(0, max(1, footer.num_row_groups), step):
            groups = range(footer.num_row_groups)[start : start + step]
            n_rows = sum(footer.row_group(i).num_rows for i in groups)
            parts.append(RowGroups(*file, groups, first, n_rows))
            first += n_rows
    index = None
    if not index_names(schema):
        index = _joined(schemas, [footer.num_rows for footer in footers])
    return parts, pa.schema([*schema, *fields], schema.metadata), index, differing


def _groups_of_partition(footers: list[pq.FileMetaData]) -> int:
    """Return how many row groups make a partition, by the largest of all."""
    numbers = ((footer, i) for footer in footers for i in range(footer.num_row_groups))
    largest = max((footer.row_group(i).num_rows for footer, i in numbers), default=0)
    return max(1, PARTITION_ROWS // max(1, largest))


# Types


def _common_schema(
    names: list[str], schemas: list[pa.Schema]
) -> tuple[pa.Schema, dict[str, str]]:
    """Return a schema whose types hold the values of all files.

    And the columns that have none, or are not in all files: how these differ.
    """
    for name, schema in zip(names, schemas, strict=True):
        try:
            check_names(schema.names)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    differing = differences(names, [schema.names for schema in schemas])
    fields = []
    for column in [name for name in schemas[0].names if name not in differing]:
        by_type = {schema.field(column).type: schema.field(column) for schema in schemas}
        try:
            fields.append(_common_field([*by_type.values()]))
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            types = [schema.field(column).type for schema in schemas]
            other = names[types.index([*by_type][1])]
            what = f"{column} ({' and '.join(map(str, by_type))})"
            differing[column] = differ(other, names[0], [what])
    if of_index := differing.keys() & {*index_names(schemas[0])}:
        raise ValueError(differing[of_index.pop()])
    return pa.schema(fields, _metadata_for(fields, schemas[0])), differing


def _metadata_for(fields: list[pa.Field], first: pa.Schema) -> dict[bytes, bytes] | None:
    """Return the metadata of pandas, without the columns whose common type is another."""
    said = first.pandas_metadata
    if said is None:
        return None
    kept = {f.name for f in fields if f.type == first.field(f.name).type}
    kept.update(index_names(first))
    columns = [of for of in said["columns"] if of["field_name"] in kept]
    is_range = [isinstance(index, dict) for index in said["index_columns"]]
    index = said["index_columns"] if any(is_range) else index_names(first)
    metadata = {**said, "columns": columns, "index_columns": index}
    return {b"pandas": json.dumps(metadata).encode()}


def _common_field(fields: list[pa.Field]) -> pa.Field:
    """Return a field of the type that holds the values of others."""
    types = [field.type for field in fields]
    if any(map(pa.types.is_decimal, types)):
        # To Arrow, whole numbers of 64 bits have fewer digits.
        whole = pa.decimal128(20, 0)
        fields = [f.with_type(whole) if pa.types.is_integer(f.type) else f for f in fields]
    try:
        common = _unified(fields)
    except pa.ArrowTypeError:
        common = _unified(map(_plain, fields))
    if "decimal" in str(types) and "decimal" not in str(common.type):
        raise pa.ArrowTypeError("a float would round the decimals")
    return common


def _unified(fields: Iterable[pa.Field]) -> pa.Field:
    schemas = [pa.schema([field]) for field in fields]
    return pa.unify_schemas(schemas, promote_options="permissive").field(0)


def _plain(field: pa.Field) -> pa.Field:
    """Return the field as numbers instead of booleans, or without dictionary encoding."""
    if pa.types.is_boolean(field.type):
        return field.with_type(pa.uint8())
    if pa.types.is_dictionary(field.type):
        return field.with_type(field.type.value_type)
    return field


# Index


def index_names(schema: pa.Schema) -> list[str]:
    """Return the columns of a file that pandas takes for its index."""
    said = (schema.pandas_metadata or {}).get("index_columns", [])
    return [name for name in said if isinstance(name, str) and name in schema.names]


def _range_of(schema: pa.Schema, n_rows: int) -> pd.RangeIndex:
    """Return the range in the metadata of pandas if it has n_rows, else one from 0."""
    for said in (schema.pandas_metadata or {}).get("index_columns", []):
        if isinstance(said, dict):
            index = pd.RangeIndex(said["start"], said["stop"], said["step"])
            if len(index) == n_rows:
                return index.rename(said["name"])
    return pd.RangeIndex(n_rows)


def _joined(schemas: list[pa.Schema], sizes: list[int]) -> pd.RangeIndex:
    """Return the range of all files: their ranges joined, or else as pandas does.

    Pandas takes the range of the first file if it is as long as the table.
    """
    ranges = [_range_of(*file) for file in zip(schemas, sizes, strict=True) if file[1] > 0]
    follow = all(
        (b.start, b.step, b.name) == (a.start + a.step * len(a), a.step, a.name)
        for a, b in pairwise(ranges)
    )
    if not ranges or not follow:
        return _range_of(schemas[0], sum(sizes))
    start, step, name = ranges[0].start, ranges[0].step, ranges[0].name
    return pd.RangeIndex(start, start + step * sum(sizes), step, name=name)
