"""Find tables in Parquet or CSV files, and read them lazily.

    path --> TableFiles --row_groups or csv_tables--> FileTable
    FileTable --> Dask DataFrame, to measure its columns
        +-------> parts, to read columns to carry over as Arrow
        +-------> rows of each part, and stamps of the files

A path is a file, a folder or a glob, local or at any fsspec URL. Only names, metadata and a
sample of a CSV are read here.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from os import PathLike, fspath
from typing import Any

import dask
import numpy as np
import pandas as pd
import pyarrow as pa
from dask.base import tokenize
from dask.utils import natural_sort_key
from numpy.typing import NDArray

from lpe_dask.storage import (
    Url,
    check_regular,
    like,
    redact,
    redact_and_hash,
    retried,
    with_options,
)
from lpe_dask.tables import csv_tables, parquet_files
from lpe_dask.tables.categorical_columns import possible_places
from lpe_dask.tables.column_names import resolve_by, resolve_names, with_last
from lpe_dask.tables.column_selection import ExcludedColumns
from lpe_dask.tables.compressed import COMPRESSED
from lpe_dask.tables.csv_blocks import CsvBlock
from lpe_dask.tables.interop import frame_of_arrow
from lpe_dask.tables.layout_checks import check_layout
from lpe_dask.tables.listing import is_local, list_files, path_of
from lpe_dask.tables.parquet_files import N_READER_THREADS, index_names
from lpe_dask.tables.row_status import RowStatus
from lpe_dask.tables.value_types import BOOLEAN, LEVEL_TYPES, TEXT, kind_of_arrow

logger = logging.getLogger(__name__)

#: Keys under which storages give the version of a file, the most reliable first.
_CHANGED = ("ETag", "etag", "md5Hash", "mtime", "LastModified", "updated", "created")

_PARQUET = (".parquet", ".parq", ".pq")
_CSV = (".csv", ".tsv", ".txt")

_ALL = ExcludedColumns(())

#: Where the files of a table are: one place, or several whose rows follow each other.
Paths = str | PathLike[str] | Sequence[str | PathLike[str]]


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The files of a table, listed once.

    Attributes
    ----------
    paths : list of str
        As they were given, as text.
    filesystem : fsspec filesystem
    names : list of str
        In the order of the rows.
    stamps : list
        Name, bytes and modification time of each file; instead of the time a hash or
        version, where the storage has one.
    """

    paths: list[str]
    filesystem: Any
    names: list[str]
    stamps: list[list[Any]]

    def again(self) -> TableFiles:
        """Return the files that are there now."""
        return find_files(self.paths)


@dataclass(frozen=True, slots=True)
class PartWithout:
    """A partition without some of its rows.

    Attributes
    ----------
    part : RowGroups or CsvBlock
    places : ndarray of int
        Of the rows in it that are left out.
    """

    part: Any
    places: NDArray[np.int64]

    @property
    def first(self) -> int:
        """The number of its first row in the table, where that is known."""
        return int(self.part.first)

    def read(self, names: list[str]) -> pa.Table:
        """Return some columns of the other rows."""
        table = self.part.read(names)
        is_kept = np.ones(table.num_rows, bool)
        is_kept[self.places] = False
        return table.filter(pa.array(is_kept))


@dataclass(frozen=True, slots=True)
class FileTable:
    """A table in files, cut into partitions; no rows are read yet.

    Attributes
    ----------
    files : TableFiles
    parts : list of RowGroups or CsvBlock
        The partitions.
    schema : pyarrow.Schema
        Of types that hold the values of all files, with the metadata of pandas.
    index : RangeIndex, optional
        Of the whole table, if it is a range and the number of rows is known.
    differing : dict of str to str
        The columns that are not in the schema, as files differ in them: how they do.
    """

    files: TableFiles
    parts: list[Any]
    schema: pa.Schema
    index: pd.RangeIndex | None
    differing: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def exists_at(path: str | PathLike[str]) -> bool:
        """Return whether there is a file of a table at a path."""
        try:
            _files_at(fspath(path))
        except FileNotFoundError:
            return False
        return True

    @property
    def place(self) -> str:
        """Where it is, as a message has it."""
        return format_paths(self.files.paths)

    @property
    def keys(self) -> list[str]:
        """Columns whose values are in the names of folders."""
        return list(getattr(self.parts[0], "keys", ()))

    def check_same(self, columns: Sequence[Any] | None) -> None:
        """Raise ValueError if files differ in one of some columns; None: in any."""
        for name in self.differing if columns is None else map(str, columns):
            if name in self.differing:
                raise ValueError(self.differing[name])

    def default_columns(
        self,
        categorical: str | Sequence[Any] | None,
        but: ExcludedColumns = _ALL,
        by: Sequence[Any] = (),
    ) -> list[Any]:
        """Return the columns to measure where none are named; a log line says others.

        Keys of folders are measured only if they are named. The columns that divide rows
        into groups, ``by``, are none of them.
        """
        of_groups = resolve_names(by, self.columns)
        chosen = but.of([*self.columns, *self.differing])
        if self._is_status_of_output(chosen):
            chosen.remove(RowStatus.COLUMN)
            logger.info("%s of an earlier output is not measured", RowStatus.COLUMN)
        chosen = [name for name in chosen if name not in of_groups]
        self.check_same(chosen)
        named = () if categorical is None or categorical == "auto" else categorical
        named = resolve_names(named, self.schema.names)
        left_out = [
            key for key in self.keys if key in chosen and key not in map(str, named)
        ]
        if left_out:
            logger.warning(
                "keys in names of folders are not measured, unless columns= (--columns) "
                "names them: %s", ", ".join(left_out),
            )  # fmt: skip
        return [name for name in chosen if name not in left_out]

    def _is_status_of_output(self, names: Sequence[Any]) -> bool:
        """Return whether one of some columns is what runs say of rows; no result is input.

        Also where only some files have it, as earlier versions did not write it.
        """
        place = self.schema.get_field_index(RowStatus.COLUMN)
        is_dictionary = place >= 0 and pa.types.is_dictionary(self.schema.types[place])
        return RowStatus.COLUMN in names and (
            is_dictionary or RowStatus.COLUMN in self.differing
        )

    @property
    def columns(self) -> list[Any]:
        """Names of the columns, as pandas has them, without an index."""
        return list(self._empty().columns)

    @property
    def index_columns(self) -> list[str]:
        """Columns that pandas takes for the index."""
        return index_names(self.schema)

    @property
    def n_rows(self) -> int | None:
        """Number of rows according to the footers of the files; None for CSV."""
        if isinstance(self.parts[0], CsvBlock):
            return None
        return sum(part.n_rows for part in self.parts)

    @property
    def known_sizes(self) -> list[int] | None:
        """The rows of the partitions; None where files do not say them."""
        return None if self.n_rows is None else [part.n_rows for part in self.parts]

    def rows_of_parts(self) -> tuple[list[int], bool]:
        """Return the numbers of rows of the partitions, and whether they are exact.

        Those of CSV files are estimated from the bytes of all files and of the first rows
        of one.
        """
        if (sizes := self.known_sizes) is not None:
            return sizes, True
        files, form = self.files, self.parts[0].form
        n_rows = csv_tables.count_rows(files.filesystem, files.names, form)
        return [n_rows // len(self.parts)] * len(self.parts), False

    def part_labels(self) -> list[tuple[str, int]]:
        """Return the file of each partition, and which of its rows comes first."""
        starts: dict[str, int] = {}
        for part in self.parts:
            starts.setdefault(part.name, part.first)
        return [
            (path_of(part.name).rsplit("/", 1)[-1], part.first - starts[part.name])
            for part in self.parts
        ]

    def partition_tokens(self) -> list[str]:
        """Return identifiers of the partitions, others where a file has changed."""
        stamps = self.files.stamps
        of_file = dict(zip(self.files.names, stamps, strict=True))
        for name, stamp in zip(self.files.names, stamps, strict=True):
            of_file[self.files.filesystem.unstrip_protocol(name)] = stamp  # that of a CSV
        return [tokenize(of_file[part.name], part) for part in self.parts]

    def select(self, columns: Sequence[Any]) -> FileTable:
        """Return the same partitions with some columns, and the index."""
        names = [*map(str, columns), *self.index_columns]
        fields = [self.schema.field(name) for name in names]
        return replace(self, schema=pa.schema(fields, self.schema.metadata))

    def kinds(self, columns: Sequence[Any]) -> list[str | None]:
        """Return the types of values of columns, as `value_types.kind_of_arrow`."""
        return [kind_of_arrow(self.schema.field(str(name)).type) for name in columns]

    def categorical_kinds(
        self, frame: Any, categorical: str | Sequence[Any] | None, n_by: int = 0
    ) -> dict[int, str | None]:
        """Return what the categorical columns of nominal rows have, by position.

        And those that divide rows into groups. None where only rows show it; none are read.

        Parameters
        ----------
        frame : dask DataFrame
            Some columns of the table, in which positions count.
        categorical : as for `levels.learn_categories`
        n_by : int, default=0
            How many of the last columns divide rows into groups.
        """
        kinds, n_measured = self.kinds(list(frame.columns)), len(frame.columns) - n_by
        measured = frame[list(frame.columns[:n_measured])] if n_by else frame
        places = [] if categorical is None else possible_places(measured, categorical)
        if isinstance(categorical, str):
            is_category = [isinstance(of, pd.CategoricalDtype) for of in frame.dtypes]
            is_known = [kind in (TEXT, BOOLEAN) for kind in kinds]
            places = [i for i in places if is_category[i] or is_known[i]]
        places = [*places, *range(n_measured, len(kinds))]
        return {i: kinds[i] if kinds[i] in LEVEL_TYPES else None for i in places}

    def frame(self) -> Any:
        """Return the table as a Dask DataFrame, which reads what is selected from it.

        Numbers come in the types that they have in each file, which may be narrower than
        those that the frame says.
        """
        import dask.dataframe as dd  # not for workers

        # Other objects than text stay as they are.
        with dask.config.set({"dataframe.convert-string": False}):
            return dd.from_map(
                _read_rows,
                self.parts,
                index_columns=self.index_columns,
                index=self.index,
                meta=self._empty(),
                label="lpe-read",
            )

    def _empty(self) -> pd.DataFrame:
        frame = frame_of_arrow(self.schema.empty_table(), self.index_columns)
        return frame if self.index is None else frame.set_index(self.index[:0])


def open_table(
    path: Paths,
    columns: Sequence[Any] | None = None,
    kinds: Mapping[int, str | None] | None = None,
    categorical: str | Sequence[Any] | None = None,
    by: Sequence[Any] = (),
) -> FileTable:
    """Return the table at ``path``; reads footers of Parquet, or the beginning of a CSV.

    Parameters
    ----------
    path : str or path, or a sequence of them
        A file, a folder or a glob of Parquet (``.parquet``, ``.parq``, ``.pq``) or CSV
        files (``.csv``, ``.tsv``, ``.txt``, also compressed); local or an fsspec URL.
        Options of `csv_paths.with_csv` hold for CSV.
    columns : sequence of str, optional
        The columns that will be measured. All others of a CSV are read as text, exactly as
        it is in the file; only empty values are missing.
    kinds : mapping of int to str or None, optional
        What some of these are (`value_types.TEXT`, `BOOLEAN`), by their position among
        them, whatever the beginning of a CSV looks like; see `Categories.kinds`.
    categorical : {None, "auto"} or sequence, optional
        Categorical columns of nominal rows: those of a CSV that are named are text, but
        for booleans.
    by : sequence, optional
        Columns that divide nominal rows into groups: likewise.

    Raises
    ------
    FileNotFoundError
        If there are no files.
    ValueError
        If the files are neither Parquet nor CSV, of both kinds, or cannot be read.
    """
    files = find_files(path)
    filesystem, names = files.filesystem, files.names
    formats = {_kind(name) for name in names}
    if formats == {"parquet"}:
        parts, *others = parquet_files.open_files(filesystem, names)
        return FileTable(files, _with_options_of(files, parts), *others)
    if formats == {"csv"}:
        given = getattr(path, "csv", {})
        blocks, schema, differing = csv_tables.open_files(
            filesystem, names, columns, kinds or {}, categorical, by, given
        )
        return FileTable(files, _with_options_of(files, blocks), schema, None, differing)
    raise ValueError(
        f"{format_paths(path)} holds {_some(names)}. A table consists of Parquet files "
        f"({', '.join(_PARQUET)}) or of CSV files ({', '.join(_CSV)}), not of both or "
        f"others. Name the files, for example as a glob."
    )


def _with_options_of(files: TableFiles, parts: list[Any]) -> list[Any]:
    """Return partitions whose names open as the paths of the table do, also on workers."""
    if not isinstance(files.paths[0], Url):
        return parts
    return [replace(part, name=like(files.paths[0], part.name)) for part in parts]


def read_frame(
    path: Paths,
    columns: Sequence[Any] | ExcludedColumns | None = None,
    kinds: Mapping[int, str | None] | None = None,
    categorical: str | Sequence[Any] | None = None,
    by: Sequence[Any] = (),
) -> Any:
    """Return the table at ``path`` as a Dask DataFrame; as `open_table`.

    See `read_sized_frame`.
    """
    return read_sized_frame(path, columns, kinds, categorical, by)[0]


def read_sized_frame(
    path: Paths,
    columns: Sequence[Any] | ExcludedColumns | None = None,
    kinds: Mapping[int, str | None] | None = None,
    categorical: str | Sequence[Any] | None = None,
    by: Sequence[Any] = (),
) -> tuple[Any, list[int] | None]:
    """Return the table at ``path``, and the rows of its partitions, if footers say them.

    Without ``columns``, keys in names of folders only if they are ``categorical``. The
    columns that divide rows into groups, ``by``, are there besides.
    """
    columns = resolve_columns(path, columns, categorical, by)
    if columns is not None:
        columns = with_last(columns, by)
    table = open_table(path, columns, kinds, categorical, by)
    sizes = table.known_sizes
    of_groups = resolve_by(by, [*table.columns, *table.differing])
    if columns is not None:
        table.check_same([*columns, *of_groups])
        return table.frame(), sizes
    table.check_same(of_groups)
    chosen, frame = table.default_columns(categorical, by=by), table.frame()
    chosen += of_groups
    return frame if chosen == table.columns else frame[chosen], sizes


def resolve_columns(
    path: Paths,
    columns: Sequence[Any] | ExcludedColumns | None,
    categorical: str | Sequence[Any] | None,
    by: Sequence[Any] = (),
) -> Sequence[Any] | None:
    """Return columns of the table at ``path`` by their names; None: all.

    Of a CSV they are named before the table is opened, as all others of it are text.
    """
    if not isinstance(columns, ExcludedColumns):
        return columns
    return open_table(path, ()).default_columns(categorical, columns, by)


def is_path_like(X: Any) -> bool:
    """Return whether ``X`` is `Paths`, rather than rows."""
    parts = X if isinstance(X, list | tuple) and len(X) > 0 else [X]
    return all(isinstance(part, str | PathLike) for part in parts)


def with_storage_options(X: Any, options: Mapping[str, Any]) -> Any:
    """Return paths of a table that open with options of storages; rows as they are."""
    if not options or not is_path_like(X):
        return X
    opened = [with_options(path, options) for path in as_paths(X)]
    return opened[0] if isinstance(X, str | PathLike) else opened


def format_paths(path: Paths) -> str:
    """Return the paths of a table as a message has them."""
    return redact(" and ".join(as_paths(path)))


def as_paths(path: Paths) -> list[str]:
    """Return the places of a table as strings."""
    return [fspath(p) for p in ([path] if isinstance(path, str | PathLike) else path)]


def find_files(path: Paths) -> TableFiles:
    """Return the files of a table that are at ``path`` now.

    Raises
    ------
    FileNotFoundError
        If there are no files.
    ValueError
        If they are on different storages, or a file is named more than once.
    """
    found = [_files_at(one) for one in as_paths(path)]
    if not found:
        raise FileNotFoundError(
            "no files are named. Give at least one file, folder or glob."
        )
    if len({filesystem.protocol for filesystem, _ in found}) > 1:
        raise ValueError(
            f"{format_paths(path)} are on different storages. Give files of one of them."
        )
    filesystem, names = found[0][0], [name for _, of_place in found for name in of_place]
    check_layout(filesystem, [of_place for _, of_place in found])
    with ThreadPoolExecutor(
        N_READER_THREADS
    ) as readers:  # a request each, where files were named
        stamps = list(readers.map(partial(_stamp, filesystem), names))
    known: dict[Any, str] = {}
    for name, (file, _) in zip(names, stamps, strict=True):
        if file in known:
            raise ValueError(
                redact(
                    f"{known[file]} and {name} are the same file, so its rows would count "
                    f"more than once. Name each file once."
                )
            )
        known[file] = name
    return TableFiles(as_paths(path), filesystem, names, [stamp for _, stamp in stamps])


@retried
def _stamp(filesystem: Any, name: str) -> tuple[Any, list[Any]]:
    """Return an identifier of a file, whatever its name, and its stamp."""
    check_regular(filesystem, name)
    # Of a link, the file that it leads to.
    info = filesystem.info(os.path.realpath(name) if is_local(filesystem) else name)
    changed = next((info[key] for key in _CHANGED if info.get(key) is not None), None)
    stamp = [info.get("size"), str(changed)]
    url = redact_and_hash(filesystem.unstrip_protocol(name))
    return (info.get("ino") or name, *stamp), [url, *stamp]


def _files_at(path: str) -> tuple[Any, list[str]]:
    filesystem, names = list_files(path, lambda name: _kind(name) is not None)
    # In the order of Dask: part.2.parquet before part.10.parquet, but 10.csv before 2.csv.
    is_parquet = any(_kind(name) == "parquet" for name in names)
    names = sorted(names)  # k=007 and k=7 are equal to the other order
    return filesystem, sorted(names, key=natural_sort_key) if is_parquet else names


def _kind(name: str) -> str | None:
    name = path_of(name).lower()
    for ending in COMPRESSED:
        name = name.removesuffix(ending)
    if name.endswith(_PARQUET):
        return "parquet"
    return "csv" if name.endswith(_CSV) else None


def _some(names: list[str]) -> str:
    shown = ", ".join(path_of(name).rsplit("/", 1)[-1] for name in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more files"


def _read_rows(
    part: Any,
    columns: list[Any],
    index_columns: list[str],
    index: pd.RangeIndex | None,
) -> pd.DataFrame:
    """Return some columns of a partition with its index; runs inside a task."""
    frame = frame_of_arrow(part.read([*map(str, columns), *index_columns]), index_columns)
    if index is not None:  # of Parquet
        frame.index = index[part.first : part.first + len(frame)]
    return frame
