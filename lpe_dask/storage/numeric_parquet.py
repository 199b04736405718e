"""Parquet files of columns of numbers whose changes are detected.

    columns --StoredFile.write--> file, StoredFile (its size and hash)
    StoredFile --columns--> the same columns, or an error that names the file

Nothing but numbers is ever read: no text, no objects, no code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO, RawIOBase
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lpe_dask.storage.filesystems import filesystem_of, open_url
from lpe_dask.storage.folder import fsync_file
from lpe_dask.storage.messages import disk_full_context
from lpe_dask.storage.regular_files import read_regular, size_of
from lpe_dask.storage.retries import retried

#: Types of numbers -> those that a column in a file may have.
_TYPES: dict[type[np.number[Any]], tuple[pa.DataType, ...]] = {
    np.int32: (pa.int32(),),
    np.int64: (pa.int64(),),
    np.float64: (pa.float64(),),
    np.floating: (pa.float32(), pa.float64()),
}

#: Most bytes of numbers for each byte of a file. Snappy packs equal numbers 21 to 1; a file
#: that declares far more would only fill the memory.
MAX_EXPANSION = 64

#: Most bytes of the footer of a file; it has some hundred for each column and row group.
MAX_FOOTER = 2**26

#: Names of columns, and the type of the numbers of each, one of `_TYPES`.
Columns = Mapping[str, type[np.number[Any]]]


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as it was written.

    Attributes
    ----------
    url : str
    n_bytes : int
    sha256 : str
        Of its content, in hexadecimal digits.
    """

    url: str
    n_bytes: int
    sha256: str

    @classmethod
    @retried
    def write(cls, url: str, columns: Mapping[str, NDArray[Any]]) -> Self:
        """Write columns of numbers, all of one length, and return the file."""
        with (
            disk_full_context(url.rsplit("/", 1)[0]),
            open_url(url, "wb", makes_folder=True) as file,
        ):
            hashed = _HashedFile(file)
            _write_parquet(columns, hashed)
            fsync_file(file)
        return cls(url, hashed.n_bytes, hashed.sha256.hexdigest())

    def check(self) -> None:
        """Raise if the file is missing or was changed; reads it."""
        self._content()

    @retried
    def check_size(self) -> None:
        """Raise if the file is missing or of another size; does not read it."""
        filesystem, path = filesystem_of(self.url)
        filesystem.invalidate_cache(path)
        try:
            n_bytes = size_of(filesystem, path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise FileNotFoundError(f"{self.url} is missing") from error
        if n_bytes is not None:  # some servers do not say
            self._check_bytes(n_bytes)

    def columns(self, expected: Columns, n_rows: int | None = None) -> dict[str, Any]:
        """Return the columns of the file as arrays of shape (n_rows,).

        Parameters
        ----------
        expected : mapping from str to type
            All its columns, and the type of the numbers of each.
        n_rows : int, optional
            How long they are, where that is known.

        Raises
        ------
        FileNotFoundError
            If the file does not exist.
        ValueError
            If it was changed, or does not hold these columns.
        """
        if n_rows is not None:
            self.check_plausible(len(expected), n_rows)
        return columns_of(self._content(), expected, self.url, n_rows)

    def check_plausible(self, n_columns: int, n_rows: int) -> None:
        """Raise, before it is read, if it is larger than so many numbers can make it."""
        # At most 8 bytes each, and a footer: twice that is more than any file has.
        most = 2 * 8 * n_columns * n_rows + 2**12 * n_columns + 2**20
        if self.n_bytes > most:
            raise ValueError(
                f"{self.url} is to have {self.n_bytes} bytes, but {n_rows} rows have at "
                f"most {most}"
            )

    @retried
    def _content(self) -> bytes:
        self.check_size()  # a file that is far larger now is not read
        filesystem, path = filesystem_of(self.url)
        content = read_regular(filesystem, path, self.n_bytes)
        self._check_bytes(len(content))
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise ValueError(f"{self.url} was altered after it was written")
        return content

    def _check_bytes(self, n_bytes: int) -> None:
        if n_bytes != self.n_bytes:
            raise ValueError(
                f"{self.url} has {n_bytes} bytes, but {self.n_bytes} were written: it was "
                f"cut short or altered"
            )


def check_footer(file: Any) -> None:
    """Raise ValueError if a Parquet file has a footer that would only fill the memory.

    Parameters
    ----------
    file : file
        Its place is changed. About as much is read of it as Arrow reads at first.
    """
    file.seek(max(0, file.seek(0, 2) - 2**16))
    n_bytes = int.from_bytes(file.read()[-8:-4], "little")
    if n_bytes > MAX_FOOTER:
        raise ValueError(
            f"the footer of a Parquet file has {n_bytes} bytes, more than {MAX_FOOTER}"
        )


def parquet_of(columns: Mapping[str, NDArray[Any]]) -> memoryview:
    """Return columns of numbers, all of one length, as the content of a Parquet file."""
    buffer = BytesIO()
    _write_parquet(columns, buffer)
    return buffer.getbuffer()


class _HashedFile(RawIOBase):
    """Hashes and counts what is written to a file: the content is never held as a whole."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.n_bytes = 0
        self.sha256 = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self.sha256.update(content)
        self._file.write(content)
        n_bytes = memoryview(content).nbytes
        self.n_bytes += n_bytes
        return n_bytes


def _write_parquet(columns: Mapping[str, NDArray[Any]], file: Any) -> None:
    table = pa.table({name: np.ascontiguousarray(of) for name, of in columns.items()})
    schema = pa.schema([field.with_nullable(False) for field in table.schema])
    # Measurements hardly repeat: a dictionary of them would save nothing.
    pq.write_table(table.cast(schema), file, use_dictionary=False, compression="snappy")


def columns_of(
    content: bytes, expected: Columns, url: str, n_rows: int | None = None
) -> dict[str, Any]:
    """Return the columns of a Parquet file as arrays, none of them with missing values.

    Parameters
    ----------
    content : bytes
        Of the file.
    expected : mapping from str to type
        All its columns, and the type of the numbers of each.
    url : str
        What to call the file in an error.
    n_rows : int, optional
        How long the columns are, where that is known.

    Raises
    ------
    ValueError
        If it is not a Parquet file, or holds other columns.
    """
    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        _check_columns(file.schema_arrow, expected, url)
        _check_rows(file.metadata, len(content), url, n_rows)
        table = file.read(use_threads=False)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{url} is not a readable Parquet file: {error}") from error
    if any(column.null_count > 0 for column in table.columns):
        raise ValueError(f"{url} has missing values")
    return {name: table.column(name).to_numpy() for name in expected}


def _check_columns(schema: Any, expected: Columns, url: str) -> None:
    if schema.names != list(expected):
        raise ValueError(
            f"{url} has the columns {schema.names[:3]}, not {list(expected)[:3]} ..."
        )
    for name, found in zip(schema.names, schema.types, strict=True):
        types = _TYPES[expected[name]]
        if found not in types:
            wanted = " or ".join(map(str, types))
            raise ValueError(f"{url}: the column {name} is of type {found}, not {wanted}")


def _check_rows(metadata: Any, n_bytes: int, url: str, n_rows: int | None) -> None:
    """Raise unless a file holds as many numbers as it should, before memory is allocated.

    Memory is allocated for what the metadata of each column declares, not of the file.
    """
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    n_found = sum(max(0, group.num_rows) for group in groups)
    for group in groups:
        columns = [group.column(k) for k in range(metadata.num_columns)]
        if any(column.num_values != group.num_rows for column in columns):
            raise ValueError(f"{url} has columns of different lengths")
    if n_rows is not None and n_found != n_rows:
        raise ValueError(f"{url} holds {n_found} rows instead of {n_rows}")
    if 8 * n_found * metadata.num_columns > MAX_EXPANSION * n_bytes:
        raise ValueError(
            f"{url} declares {n_found} rows, more than its {n_bytes} bytes can hold"
        )
