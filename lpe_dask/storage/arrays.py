"""Files of arrays, one after another, of which tasks can read a part.

Not NumPy's own files: to read their headers it parses Python, which fails now and then in
several threads at once (SystemError, "AST constructor recursion depth mismatch", with
Python 3.11). Nor Arrow's tensors, of which no part can be read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from io import BufferedIOBase
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from lpe_dask.aligned_arrays import empty_aligned

#: Bytes of the number that says how long the header is.
HEADER_BYTES = 8


class ArrayFile:
    """A file that `ArrayFile.write` wrote, open to be read.

    Parameters
    ----------
    file : file
        At its beginning.
    """

    def __init__(self, file: BufferedIOBase) -> None:
        n_bytes = int.from_bytes(file.read(HEADER_BYTES), "little")
        header = json.loads(file.read(n_bytes))
        self._file, self._start = file, HEADER_BYTES + n_bytes
        self._kinds = [(np.dtype(name), shape) for name, shape in header]

    @staticmethod
    def write(file: BinaryIO, arrays: Sequence[NDArray[Any]]) -> None:
        """Write arrays one after another, behind a header with their types and shapes."""
        header = json.dumps([[array.dtype.str, array.shape] for array in arrays]).encode()
        file.write(len(header).to_bytes(HEADER_BYTES, "little"))
        file.write(header)
        file.writelines(np.ascontiguousarray(array).data for array in arrays)

    def arrays(self) -> list[NDArray[Any]]:
        """Return all arrays."""
        return [self.part(i) for i in range(len(self._kinds))]

    def part(self, i: int, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """Return rows ``start`` to ``stop`` of the ``i``-th array; reads no others."""
        before = [dtype.itemsize * math.prod(shape) for dtype, shape in self._kinds[:i]]
        dtype, (n_rows, *rest) = self._kinds[i]
        row_bytes = dtype.itemsize * math.prod(rest)
        start, stop, _ = slice(start, stop).indices(n_rows)
        self._file.seek(self._start + sum(before) + row_bytes * start)
        # Into an array of its own: bytes would be copied once more, to where vectors start.
        rows = empty_aligned((max(0, stop - start), *rest), dtype)
        n_read, wanted = 0, rows.reshape(-1).view(np.uint8).data
        while n_read < len(wanted):
            n_more = self._file.readinto(wanted[n_read:])
            if n_more == 0:
                name = getattr(self._file, "path", "a file of arrays")
                n_left = len(wanted) - n_read
                raise RuntimeError(
                    f"{name} ends {n_left} bytes early: it was changed, or not written to "
                    f"its end. Fit again, or compute the result again."
                )
            n_read += n_more
        rows.flags.writeable = False
        return rows
