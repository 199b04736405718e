"""Read tables from Parquet or CSV files as Dask DataFrames, lazily.

A path is a file, a folder or a glob, local or at any fsspec URL. Only names, metadata and a
sample of a CSV are read here.
"""

from __future__ import annotations

import csv
import glob
import json
import zlib
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import StringIO
from os import PathLike, fspath
from typing import Any

import fsspec
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from lpe_dask.retries import is_passing, retried

#: Rows of a partition of a Parquet file, where its row groups are smaller.
PARTITION_ROWS = 2**17

#: Bytes of a CSV file from which its separator and the types of its columns are settled.
CSV_SAMPLE_BYTES = 2**18

#: Bytes of a partition of a CSV file: the same on every machine, so that a run that was
#: interrupted may go on elsewhere.
CSV_BLOCK_BYTES = 2**25

#: Footers of files that are read at a time.
READERS = 16

#: Where storages say which version of a file they have, the surest first.
_CHANGED = ("ETag", "etag", "md5Hash", "mtime", "LastModified", "updated", "created")

#: Separators that are told apart in a CSV file.
CSV_SEPARATORS = ",;\t|"

_PARQUET = (".parquet", ".parq", ".pq")
_CSV = (".csv", ".tsv", ".txt")
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")


#: Where the files of a table are: one place, or several, whose rows follow each other.
Paths = str | PathLike[str] | Sequence[str | PathLike[str]]


def read_frame(path: Paths, columns: Sequence[Any] | None = None) -> Any:
    """Return the table at ``path`` as a Dask DataFrame.

    Parameters
    ----------
    path : str or path, or a sequence of them
        A file, a folder or a glob of Parquet (``.parquet``, ``.parq``, ``.pq``) or CSV
        files (``.csv``, ``.tsv``, ``.txt``, also compressed); local or an fsspec URL.
    columns : sequence of str, optional
        The columns that will be measured. All columns are returned; those of a CSV that are
        not measured come as text, exactly as they stand there.

    Raises
    ------
    FileNotFoundError
        If nothing is there.
    ValueError
        If the files are neither Parquet nor CSV, of both kinds, or cannot be read.
    """
    filesystem, names = _files_at_all(path)
    kinds = {_kind(name) for name in names}
    if kinds == {"parquet"}:
        return _read_parquet(path, filesystem, names)
    if kinds == {"csv"}:
        return _read_csv(filesystem, names, columns)
    raise ValueError(
        f"{shown_paths(path)} holds {_some(names)}. A table is made of Parquet files "
        f"({', '.join(_PARQUET)}) or of CSV files ({', '.join(_CSV)}), not of both or "
        f"others. Name the files, for example as a glob."
    )


def rows_of_partitions(path: Paths, n_partitions: int) -> tuple[list[int], bool]:
    """Return the rows of each partition of `read_frame`, and whether that is exact.

    Those of Parquet files stand in their metadata. Those of CSV files are worked out from
    the bytes of all files and of the first rows of one.

    Parameters
    ----------
    path : str or path, or a sequence of them
    n_partitions : int
        Of the frame.
    """
    filesystem, names = _files_at_all(path)
    if _kind(names[0]) == "csv":
        n_rows = _rows_of_csv(filesystem, names)
        return [n_rows // n_partitions] * n_partitions, False
    footers = [_footer(filesystem, name) for name in names]
    step = _row_groups_a_partition(footers)
    groups = [
        [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]
        for footer in footers
    ]
    counts = [
        sum(of_file[i : i + step])
        for of_file in groups
        for i in range(0, max(1, len(of_file)), step)
    ]
    if len(counts) == n_partitions:
        return counts, True
    n_rows = sum(counts)  # Dask has cut the files in another way
    return [n_rows // n_partitions] * n_partitions, False


def is_paths(X: Any) -> bool:
    """Return whether ``X`` is `Paths`, rather than rows."""
    parts = X if isinstance(X, list | tuple) and len(X) > 0 else [X]
    return all(isinstance(part, str | PathLike) for part in parts)


def shown_paths(path: Paths) -> str:
    """Return what to call the places of a table in a message."""
    return " and ".join(paths_in(path))


def is_there(path: str | PathLike[str]) -> bool:
    """Return whether there is a file of a table at ``path``."""
    try:
        _files_at(fspath(path))
    except FileNotFoundError:
        return False
    return True


def paths_in(path: Paths) -> list[str]:
    """Return the places of a table as texts."""
    return [fspath(p) for p in ([path] if isinstance(path, str | PathLike) else path)]


def stamp_files(path: Paths) -> list[list[Any]]:
    """Return name, bytes and time of change of each file of a table, in its order.

    Where a storage has a hash or a version of its files, this stands for the time.

    Raises
    ------
    FileNotFoundError
        If nothing is there.
    """
    for place in paths_in(path):
        fsspec.core.url_to_fs(place)[0].invalidate_cache()  # also what files there are
    filesystem, names = _files_at_all(path)
    return [_stamp(filesystem, name) for name in names]


def count_rows(path: Paths) -> int | None:
    """Return the rows of a table, as the footers of its files say; None for CSV."""
    filesystem, names = _files_at_all(path)
    if {_kind(name) for name in names} != {"parquet"}:
        return None
    with ThreadPoolExecutor(READERS) as readers:
        footers = readers.map(partial(_footer, filesystem), names)
        return sum(footer.num_rows for footer in footers)


@retried
def _stamp(filesystem: Any, name: str) -> list[Any]:
    info = filesystem.info(name)
    changed = next((info[key] for key in _CHANGED if info.get(key) is not None), None)
    return [filesystem.unstrip_protocol(name), info.get("size"), str(changed)]


def _files_at_all(path: Paths) -> tuple[Any, list[str]]:
    found = [_files_at(one) for one in paths_in(path)]
    if not found:
        raise FileNotFoundError(
            "no files are named. Give at least one file, folder or glob."
        )
    if len({filesystem.protocol for filesystem, _ in found}) > 1:
        raise ValueError(
            f"{shown_paths(path)} are on different storages. Give files of one of them."
        )
    names = [name for _, of_place in found for name in of_place]
    if twice := sorted(name for name, n in Counter(names).items() if n > 1):
        raise ValueError(
            f"{shown_paths(path)} name {_some(twice)} more than once, and its rows would "
            f"count as often. Name each file once."
        )
    return found[0][0], names


@retried
def _files_at(path: str) -> tuple[Any, list[str]]:
    filesystem, root = fsspec.core.url_to_fs(path)
    filesystem.invalidate_cache()  # there may be others than at the last look
    if filesystem.isdir(root):
        found = [
            name
            for name in filesystem.find(root)
            if _kind(name) is not None and not _is_hidden(name[len(root) :])
        ]
    elif filesystem.exists(root):
        found = [root]
    else:
        is_glob = any(sign in root for sign in "*?[")
        found = filesystem.glob(root) if is_glob else []
    names = [name for name in sorted(found) if not _is_hidden(name.rsplit("/", 1)[-1])]
    if not names:
        raise FileNotFoundError(
            f"there is no table at {path}. Give a Parquet or CSV file, a folder of them, "
            f"or a glob; relative paths start from the current folder."
        )
    return filesystem, names


def _is_hidden(path: str) -> bool:
    """Return whether readers of folders pass over a path: what runs are at work on."""
    return any(name.startswith(("_", ".")) for name in path.split("/"))


def _kind(name: str) -> str | None:
    name = name.lower()
    for ending in _COMPRESSED:
        name = name.removesuffix(ending)
    if name.endswith(_PARQUET):
        return "parquet"
    return "csv" if name.endswith(_CSV) else None


def _some(names: list[str]) -> str:
    shown = ", ".join(name.rsplit("/", 1)[-1] for name in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more files"


def _full(filesystem: Any, names: list[str]) -> list[str]:
    """Return names as URLs that Dask does not take for patterns."""
    return [glob.escape(filesystem.unstrip_protocol(name)) for name in names]


def _read_parquet(path: Paths, filesystem: Any, names: list[str]) -> Any:
    import dask.dataframe as dd

    with ThreadPoolExecutor(READERS) as readers:
        footers = list(readers.map(partial(_footer, filesystem), names))
    schemas = [footer.schema.to_arrow_schema() for footer in footers]
    _check_same_columns(names, schemas)
    _check_index(names[0], schemas[0])
    n_groups = _row_groups_a_partition(footers)
    # Dask sorts the files that it is given, but the places are to follow each other.
    frames = [
        dd.read_parquet(_full(*_files_at(place)), split_row_groups=n_groups)
        for place in paths_in(path)
    ]
    return frames[0] if len(frames) == 1 else dd.concat(frames)


@retried
def _footer(filesystem: Any, name: str) -> pq.FileMetaData:
    with filesystem.open(name) as file:
        try:
            return pq.read_metadata(file)
        except (pa.ArrowInvalid, OSError) as error:
            if is_passing(error):
                raise
            raise ValueError(f"{name} is not a readable Parquet file: {error}.") from error


def _check_same_columns(names: list[str], schemas: list[pa.Schema]) -> None:
    """Raise ValueError if files have other columns than the first, or of other kinds."""
    first = _kinds_of_columns(schemas[0])
    for name, schema in zip(names, schemas, strict=True):
        kinds = _kinds_of_columns(schema)
        differing = sorted(
            column
            for column in first.keys() | kinds.keys()
            if column not in first
            or column not in kinds
            or len({first[column], kinds[column], None}) > 2
        )
        if differing:
            raise ValueError(
                f"{name} and {names[0]} are no parts of one table: they differ in "
                f"{differing}. Name files with the same columns, for example as a glob."
            )


def _check_index(name: str, schema: pa.Schema) -> None:
    """Raise ValueError for an index that Dask finds in no column of the file."""
    of_pandas = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))
    for index in of_pandas.get("index_columns", []):
        if isinstance(index, dict) and index.get("name") is not None:
            raise ValueError(
                f"{name} has an index, {index['name']!r}, that is a range and not a "
                f"column, which Dask cannot read. Write the table with "
                f"frame.reset_index(), or name the index None."
            )


def _kinds_of_columns(schema: pa.Schema) -> dict[str, str | None]:
    """Return which columns hold numbers and which others; None where all is missing."""
    return {field.name: _kind_of_type(field.type) for field in schema}


def _kind_of_type(arrow_type: pa.DataType) -> str | None:
    types = pa.types
    if types.is_null(arrow_type):
        return None
    is_number = types.is_integer(arrow_type) or types.is_floating(arrow_type)
    return "number" if is_number or types.is_boolean(arrow_type) else "other"


def _row_groups_a_partition(footers: list[pq.FileMetaData]) -> int:
    sizes = [
        footer.row_group(i).num_rows
        for footer in footers
        for i in range(footer.num_row_groups)
    ]
    return max(1, PARTITION_ROWS // max([1, *sizes]))


def _read_csv(filesystem: Any, names: list[str], columns: Sequence[Any] | None) -> Any:
    import dask.dataframe as dd

    for name in names:
        separator, sample = _sample_of_csv(filesystem, name)
        if len(sample) > 0:
            break
    measured = sample.columns if columns is None else columns
    # A column may look whole in one block and not in the next: all numbers are float64.
    # Without a row, what is measured has no reason to be anything else.
    is_empty = len(sample) == 0
    types = {
        name: "float64"
        if name in measured and (is_empty or _is_number(sample[name]))
        else "string"
        for name in sample.columns
    }
    is_compressed = any(name.lower().endswith(_COMPRESSED) for name in names)
    return dd.read_csv(
        _full(filesystem, names),
        sep=separator,
        dtype=types,
        compression="infer",
        blocksize=None if is_compressed else CSV_BLOCK_BYTES,  # such files cannot be cut
    )


def _rows_of_csv(filesystem: Any, names: list[str]) -> int:
    """Return about how many rows the files have together."""
    name = names[0]
    with filesystem.open(name, compression="infer") as file:
        content = file.read(CSV_SAMPLE_BYTES)
        is_whole = not file.read(1)
    lines = content.splitlines(keepends=True)
    n_bytes = sum(int(filesystem.size(name)) for name in names)
    if is_whole and len(names) == 1:
        return max(0, len(lines) - 1)
    if name.lower().endswith(_COMPRESSED):
        # Other formats come out about as small.
        n_bytes = n_bytes * len(content) // len(zlib.compress(content))
    rows = lines[1 : None if is_whole else -1]  # without the names; the last may be cut
    return n_bytes * len(rows) // max(1, sum(map(len, rows)))


def _is_number(values: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(values.dtype)


def _sample_of_csv(filesystem: Any, name: str) -> tuple[str, pd.DataFrame]:
    with filesystem.open(name, mode="rt", compression="infer", newline="") as file:
        text = file.read(CSV_SAMPLE_BYTES)
        complete = not file.read(1)
    lines = text.splitlines(keepends=True)
    if not complete and len(lines) > 1:
        lines.pop()  # it may be cut
    if not lines:
        raise ValueError(f"{name} is empty; a CSV file starts with a line of column names.")
    try:
        separator = csv.Sniffer().sniff(lines[0], CSV_SEPARATORS).delimiter
    except csv.Error:  # a single column
        separator = ","
    try:
        return separator, pd.read_csv(StringIO("".join(lines)), sep=separator)
    except pd.errors.ParserError as error:
        raise ValueError(f"{name} is not a readable CSV file: {error}.") from error
