"""Arrays that start where a line of a cache does, as vectors are loaded fastest."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

_Number = TypeVar("_Number", bound=np.generic)

#: Bytes that vectors are aligned to; a load across two cache lines takes twice as long.
ALIGNMENT = 64


def empty_aligned(shape: tuple[int, ...], dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """Return an array, not filled, that starts at a multiple of `ALIGNMENT`."""
    n_bytes = np.dtype(dtype).itemsize * int(np.prod(shape))
    buffer = np.empty(n_bytes + ALIGNMENT, np.uint8)
    first = -buffer.ctypes.data % ALIGNMENT
    return buffer[first : first + n_bytes].view(dtype).reshape(shape)


def aligned(array: NDArray[_Number]) -> NDArray[_Number]:
    """Return the array, or a copy of it, at a multiple of `ALIGNMENT`."""
    if array.ctypes.data % ALIGNMENT == 0:
        return array
    copy = empty_aligned(array.shape, array.dtype)
    copy[...] = array
    return copy
