"""Arrays come back from a file as they were, however the file is read."""

import io

import numpy as np
import pytest

from lpe_dask.aligned_arrays import ALIGNMENT
from lpe_dask.storage import ArrayFile

ARRAYS = [
    np.arange(5.0),
    np.empty((0, 3), np.float32),
    np.arange(12, dtype=np.int16).reshape(3, 2, 2),
]


class Slow(io.BytesIO):
    """A file that gives a few bytes at a time, as one on a network may."""

    def readinto(self, buffer, /):
        return super().readinto(memoryview(buffer)[:3])


def written():
    file = io.BytesIO()
    ArrayFile.write(file, ARRAYS)
    return file.getvalue()


@pytest.mark.parametrize("kind", [io.BytesIO, Slow])
def test_arrays__come_back_where_vectors_start(kind):
    found = ArrayFile(kind(written())).arrays()

    for array, expected in zip(found, ARRAYS, strict=True):
        np.testing.assert_array_equal(array, expected)
        assert array.dtype == expected.dtype
        assert array.size == 0 or array.ctypes.data % ALIGNMENT == 0
        assert not array.flags.writeable


@pytest.mark.parametrize("kind", [io.BytesIO, Slow])
def test_part__is_some_rows(kind):
    part = ArrayFile(kind(written())).part(2, 1, 3)

    np.testing.assert_array_equal(part, ARRAYS[2][1:3])


def test_file__that_ends_early_says_so():
    file = ArrayFile(io.BytesIO(written()[:-3]))

    file.part(0)
    with pytest.raises(RuntimeError, match="ends 3 bytes early"):
        file.part(2)
