"""Files of columns of numbers, in Parquet, that tell when they were changed.

    columns --write_columns--> file, StoredFile (its size and hash)
    StoredFile --columns--> the same columns, or an error that names the file

Nothing but numbers is ever read: no text, no objects, no code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray


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

    def check(self) -> None:
        """Raise if the file is not there as it was written; reads it."""
        self._content()

    def check_size(self) -> None:
        """Raise if the file is not there, or of another size; does not read it."""
        filesystem, path = fsspec.core.url_to_fs(self.url)
        try:
            n_bytes = filesystem.size(path)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{self.url} is missing") from error
        self._check_bytes(n_bytes)

    def columns(self, names: list[str]) -> dict[str, NDArray[Any]]:
        """Return the columns of the file, which are numbers without missing values.

        Parameters
        ----------
        names : list of str
            Of all its columns.

        Raises
        ------
        FileNotFoundError
            If the file is not there.
        ValueError
            If it is not what was written, or does not hold these columns.
        """
        return columns_of(self._content(), names, self.url)

    def _content(self) -> bytes:
        try:
            with fsspec.open(self.url, "rb") as file:
                content: bytes = file.read()
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{self.url} is missing") from error
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


def write_columns(url: str, columns: Mapping[str, NDArray[Any]]) -> StoredFile:
    """Write columns of numbers, all of one length, and return what tells if they change."""
    content = parquet_of(columns)
    with fsspec.open(url, "wb") as file:
        file.write(content)
    return StoredFile(url, len(content), hashlib.sha256(content).hexdigest())


def parquet_of(columns: Mapping[str, NDArray[Any]]) -> memoryview:
    """Return columns of numbers, all of one length, as the content of a Parquet file."""
    arrays = [pa.array(np.ascontiguousarray(values)) for values in columns.values()]
    fields = [
        pa.field(name, array.type, nullable=False)
        for name, array in zip(columns, arrays, strict=True)
    ]
    table = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
    buffer = BytesIO()
    # Measurements hardly repeat: a dictionary of them would be built in vain.
    pq.write_table(table, buffer, use_dictionary=False)
    return buffer.getbuffer()


def columns_of(content: bytes, names: list[str], url: str) -> dict[str, NDArray[Any]]:
    """Return the columns of a Parquet file, which are numbers without missing values.

    Parameters
    ----------
    content : bytes
        Of the file.
    names : list of str
        Of all its columns.
    url : str
        What to call the file in an error.

    Raises
    ------
    ValueError
        If it is no such file, or holds other columns.
    """
    try:
        table = pq.ParquetFile(pa.BufferReader(content)).read(use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{url} is no readable Parquet file: {error}") from error
    if table.column_names != names:
        raise ValueError(
            f"{url} has the columns {table.column_names[:3]}, not {names[:3]} ..."
        )
    return {name: _numbers(table.column(name), name, url) for name in names}


def _numbers(column: pa.ChunkedArray, name: str, url: str) -> NDArray[Any]:
    is_number = pa.types.is_floating(column.type) or pa.types.is_integer(column.type)
    if not is_number or column.null_count > 0:
        raise ValueError(
            f"{url}: the column {name} is of type {column.type}, not numbers without "
            f"missing values"
        )
    numbers: NDArray[Any] = column.to_numpy()
    return numbers
