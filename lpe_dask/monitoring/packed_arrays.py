"""Whole numbers of many groups as a short text: compressed, in the letters of base64."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: How numbers are written, whatever the machine.
_TYPE = np.dtype("<i8")


def pack(numbers: NDArray[np.integer]) -> str:
    """Return the text of some numbers; `unpack` knows their shape.

    The bytes of equal weight stand together, and small numbers take about one byte each.
    """
    content = np.ascontiguousarray(numbers, _TYPE).reshape(-1, 1).view(np.uint8)
    return base64.b64encode(zlib.compress(content.T.tobytes(), 6)).decode()


def unpack(text: Any, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the numbers of a text.

    Raises
    ------
    ValueError
        If it is none, or of another shape.

    Examples
    --------
    >>> unpack(pack(np.array([[3, 0], [-1, 2**40]])), (2, 2)).tolist()
    [[3, 0], [-1, 1099511627776]]
    """
    n_bytes = int(np.prod(shape)) * _TYPE.itemsize
    try:
        unpacker = zlib.decompressobj()
        # No more than there should be, whatever the text would become.
        content = unpacker.decompress(base64.b64decode(text, validate=True), n_bytes + 1)
    except (TypeError, ValueError, zlib.error) as error:
        raise ValueError(f"{str(text)[:20]!r} is no packed array: {error}") from None
    if len(content) != n_bytes:
        raise ValueError(f"a packed array is not of shape {shape}")
    by_weight = np.frombuffer(content, np.uint8).reshape(_TYPE.itemsize, -1)
    return np.ascontiguousarray(by_weight.T).view(_TYPE).reshape(shape).astype(np.int64)
