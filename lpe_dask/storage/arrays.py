"""Files of arrays, one after another, of which tasks can read a part.

Not NumPy's own files: to read their headers it parses Python, which fails now and then in
several threads at once (SystemError, "AST constructor recursion depth mismatch", with
Python 3.11).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

#: Bytes of the number that says how long the header is.
HEADER_BYTES = 8


def write_arrays(file: BinaryIO, arrays: Sequence[NDArray[Any]]) -> None:
    """Write arrays one after another, behind a header with their types and shapes."""
    header = json.dumps([[array.dtype.str, array.shape] for array in arrays]).encode()
    file.write(len(header).to_bytes(HEADER_BYTES, "little"))
    file.write(header)
    file.writelines(np.ascontiguousarray(array).data for array in arrays)


def read_arrays(file: BinaryIO) -> Iterator[NDArray[Any]]:
    """Yield the arrays of a file that `write_arrays` wrote."""
    for dtype, shape in _read_header(file):
        numbers = file.read(dtype.itemsize * math.prod(shape))
        yield np.frombuffer(numbers, dtype).reshape(shape)


def read_array_part(file: BinaryIO, start: int, stop: int) -> NDArray[Any]:
    """Return rows ``start`` to ``stop`` of the first array of a file; reads no others."""
    (dtype, (n_rows, *rest)), *_ = _read_header(file)
    stop = min(stop, n_rows)
    row_bytes = dtype.itemsize * math.prod(rest)
    file.seek(row_bytes * start, 1)
    numbers = file.read(row_bytes * max(0, stop - start))
    return np.frombuffer(numbers, dtype).reshape(-1, *rest)


def _read_header(file: BinaryIO) -> list[tuple[np.dtype[Any], list[int]]]:
    n_bytes = int.from_bytes(file.read(HEADER_BYTES), "little")
    return [(np.dtype(name), shape) for name, shape in json.loads(file.read(n_bytes))]
