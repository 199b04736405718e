"""Cut Parquet files into partitions, and read these as they stand in Arrow.

    files --footers--> schema of all, RowGroups --one task each--> pyarrow.Table

A partition is some row groups of one file. Only footers are read before the tasks run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from io import BytesIO
from itertools import accumulate, pairwise
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from lpe_dask.storage import is_passing, retried
from lpe_dask.tables.column_names import check_distinct

#: Rows of a partition of a Parquet file, where its row groups are smaller.
PARTITION_ROWS = 2**17

#: Footers of files that are read at a time.
READERS = 16


@dataclass(frozen=True, slots=True)
class ParquetFile:
    """Where a file is, and what stands in the names of its folders.

    Attributes
    ----------
    name : str
    filesystem : pyarrow.fs.FileSystem
    folders : pyarrow.dataset.Expression
        What the names of folders say, such as ``year=2026``.
    keys : pyarrow.Schema
        The columns of these.
    token : str
        Tells its footer from others.
    """

    name: str
    filesystem: Any
    folders: ds.Expression
    keys: pa.Schema
    token: str


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Some row groups of a file, one after the other.

    Attributes
    ----------
    file : ParquetFile
    groups : range
        Their numbers.
    first, n_rows : int
        The rows, counted from the beginning of the table.
    """

    file: ParquetFile
    groups: range
    first: int
    n_rows: int

    @property
    def name(self) -> str:
        """What to call the file in messages."""
        return self.file.name

    @retried
    def read(self, names: list[str]) -> pa.Table:
        """Return some columns, of the types that they have in this file."""
        # Made here: a fragment keeps the footer of the whole file once it is looked at.
        fragment = ds.ParquetFileFormat().make_fragment(
            self.name, self.file.filesystem, self.file.folders, row_groups=self.groups
        )
        schema = fragment.physical_schema
        for key in self.file.keys:
            schema = schema.append(key)
        return fragment.to_table(schema=schema, columns=names, use_threads=False)

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return self.name, self.file.token, self.groups.start, self.groups.stop, self.first


def _footers(filesystem: Any, names: Sequence[str]) -> list[pq.FileMetaData]:
    """Return what stands at the ends of Parquet files."""
    with ThreadPoolExecutor(READERS) as readers:
        return list(readers.map(partial(_footer, filesystem), names))


@retried
def _footer(filesystem: Any, name: str) -> pq.FileMetaData:
    with filesystem.open(name) as file:
        try:
            return pq.read_metadata(file)
        except (pa.ArrowInvalid, OSError) as error:
            if is_passing(error):
                raise
            raise ValueError(f"{name} is not a readable Parquet file: {error}.") from error


def _cut(footers: Sequence[pq.FileMetaData]) -> list[tuple[int, range, int]]:
    """Return number of the file, row groups and rows of each partition."""
    sizes = [
        [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]
        for footer in footers
    ]
    step = max(1, PARTITION_ROWS // max([1, *(n for of_file in sizes for n in of_file)]))
    return [
        (number, range(len(of_file))[i : i + step], sum(of_file[i : i + step]))
        for number, of_file in enumerate(sizes)
        for i in range(0, max(1, len(of_file)), step)
    ]


def open_files(
    filesystem: Any, names: list[str]
) -> tuple[list[RowGroups], pa.Schema, pd.RangeIndex | None]:
    """Return the partitions of a table, its schema, and its index if that only counts.

    Raises
    ------
    ValueError
        If a file cannot be read, has two columns of one name, or others than the first.
    """
    footers = _footers(filesystem, names)
    schemas = [footer.schema.to_arrow_schema() for footer in footers]
    for name, of_file in zip(names, schemas, strict=True):
        _check_names(name, of_file)
    schema = _common_schema(names, schemas)
    files, keys = _files(filesystem, names, schema, footers)
    pieces = _cut(footers)
    firsts = accumulate((n_rows for _, _, n_rows in pieces), initial=0)
    parts = [
        RowGroups(files[number], groups, first, n_rows)
        for (number, groups, n_rows), first in zip(pieces, firsts, strict=False)
    ]
    index = None
    if not index_names(schema):
        sizes = [footer.num_rows for footer in footers]
        index = _joined(schemas, sizes)
    return parts, pa.schema([*schema, *keys], schema.metadata), index


def _check_names(name: str, schema: pa.Schema) -> None:
    try:
        check_distinct(schema.names)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


@retried
def _files(
    filesystem: Any, names: list[str], schema: pa.Schema, footers: list[pq.FileMetaData]
) -> tuple[list[ParquetFile], pa.Schema]:
    folders = [part for part in names[0].split("/")[:-1] if "=" in part]
    has_keys = any(part.split("=")[0] not in schema.names for part in folders)
    hive = ds.HivePartitioning.discover(infer_dictionary=True) if has_keys else None
    found = ds.dataset(
        names, None if has_keys else schema, format="parquet", filesystem=filesystem,
        partitioning=hive,
    )  # fmt: skip
    keys = pa.schema([field for field in found.schema if field.name not in schema.names])
    files = [
        ParquetFile(of.path, of.filesystem, of.partition_expression, keys, _token(footer))
        for of, footer in zip(found.get_fragments(), footers, strict=True)
    ]
    return files, keys


def _token(footer: pq.FileMetaData) -> str:
    content = BytesIO()
    footer.write_metadata_file(content)
    return sha256(content.getvalue()).hexdigest()


# Types


def _common_schema(names: list[str], schemas: list[pa.Schema]) -> pa.Schema:
    """Return a schema whose types hold the values of all files; ValueError if none does."""
    for name, schema in zip(names, schemas, strict=True):
        if differing := sorted(set(schema.names) ^ set(schemas[0].names)):
            raise _no_parts(name, names[0], differing)
    fields = [_common_field(field.name, names, schemas) for field in schemas[0]]
    return pa.schema(fields, _metadata_for(fields, schemas[0]))


def _metadata_for(fields: list[pa.Field], first: pa.Schema) -> dict[bytes, bytes] | None:
    """Return what pandas has written, but for columns that are of another type together."""
    said = first.pandas_metadata
    if said is None:
        return None
    kept = {f.name for f in fields if f.type == first.field(f.name).type}
    kept.update(index_names(first))
    columns = [of for of in said["columns"] if of["field_name"] in kept]
    is_range = [isinstance(index, dict) for index in said["index_columns"]]
    index = said["index_columns"] if any(is_range) else index_names(first)
    told = {**said, "columns": columns, "index_columns": index}
    return {b"pandas": json.dumps(told).encode()}


def _common_field(column: str, names: list[str], schemas: list[pa.Schema]) -> pa.Field:
    common = schemas[0].field(column)
    for name, schema in zip(names, schemas, strict=True):
        field = schema.field(column)
        if field != common:
            try:
                common = _wider(common, field)
            except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
                types = f"{column} ({field.type} and {common.type})"
                raise _no_parts(name, names[0], [types]) from error
    return common


def _wider(a: pa.Field, b: pa.Field) -> pa.Field:
    try:
        return _unified(a, b)
    except pa.ArrowTypeError:
        return _unified(_plain(a), _plain(b))


def _unified(*fields: pa.Field) -> pa.Field:
    schemas = [pa.schema([field]) for field in fields]
    return pa.unify_schemas(schemas, promote_options="permissive").field(0)


def _plain(field: pa.Field) -> pa.Field:
    """Return a type that holds the same values, and others beside them."""
    if pa.types.is_boolean(field.type):
        return field.with_type(pa.uint8())
    if pa.types.is_dictionary(field.type):
        return field.with_type(field.type.value_type)
    return field


def _no_parts(name: str, first: str, differing: Iterable[str]) -> ValueError:
    return ValueError(
        f"{name} and {first} are no parts of one table: they differ in "
        f"{list(differing)}. Name files with the same columns, for example as a glob."
    )


# Index


def index_names(schema: pa.Schema) -> list[str]:
    """Return the columns of a file that pandas takes for its index."""
    said = (schema.pandas_metadata or {}).get("index_columns", [])
    return [name for name in said if isinstance(name, str) and name in schema.names]


def _range_of(schema: pa.Schema, n_rows: int) -> pd.RangeIndex:
    """Return the range that pandas has written for so many rows, or one from 0."""
    for said in (schema.pandas_metadata or {}).get("index_columns", []):
        if isinstance(said, dict):
            index = pd.RangeIndex(said["start"], said["stop"], said["step"])
            if len(index) == n_rows:
                return index.rename(said["name"])
    return pd.RangeIndex(n_rows)


def _joined(schemas: list[pa.Schema], sizes: list[int]) -> pd.RangeIndex:
    """Return the range of all files: theirs if they follow each other, or as by pandas.

    Pandas takes that of the first file if it is as long as the table.
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
