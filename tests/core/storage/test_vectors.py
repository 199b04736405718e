"""Vectors in files: the same numbers and places as in an array, and no more is read."""

import numpy as np
import pytest

from lpe_dask.storage import (
    SortedVector,
    SpooledNumbers,
    StoredFile,
    StoredNumbers,
    StoredVector,
    VectorPart,
    vectors,
)

ASCENDING = np.sort(np.random.default_rng(0).integers(0, 9, 50)).astype(float)
SOUGHT = np.array([4.0, np.nan, -1.0, 0.0, 3.5, 9.0, np.inf, 4.0, -np.inf, 8.0])


@pytest.fixture(autouse=True)
def small_files(monkeypatch):
    monkeypatch.setattr(vectors, "FILE_NUMBERS", 7)


def spooled(values, folder, kind=StoredVector):
    return kind.of(VectorPart.write(values, str(folder)))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("values", [ASCENDING, np.r_[ASCENDING, np.inf], np.zeros(20)])
def test_places__are_those_in_an_array(values, side, tmp_path):
    vector = spooled(values, tmp_path, SortedVector)

    np.testing.assert_array_equal(
        vector.searchsorted(SOUGHT, side), np.searchsorted(values, SOUGHT, side)
    )
    assert vector.searchsorted(np.empty(0), side).shape == (0,)


def test_parts__are_those_of_an_array(tmp_path):
    values = np.random.default_rng(1).normal(size=50)
    vector = spooled(values, tmp_path)

    for start, stop in [(0, 50), (3, 4), (6, 8), (7, 14), (10, 10), (48, 60), (-5, 50)]:
        np.testing.assert_array_equal(vector[start:stop], values[start:stop])
    assert [vector[0], vector[-1], vector[49]] == [values[0], values[-1], values[-1]]
    np.testing.assert_array_equal(np.asarray(vector), values)
    assert (len(vector), vector.shape, vector.dtype) == (50, (50,), values.dtype)
    with pytest.raises(IndexError):
        vector[50]


def test_no_more_is_read__than_is_needed(tmp_path, monkeypatch):
    reads, read = [], SpooledNumbers.read

    def recorded(file, *bounds):
        reads.append(bounds)
        return read(file, *bounds)

    monkeypatch.setattr(SpooledNumbers, "read", recorded)
    vector = spooled(np.arange(50.0), tmp_path, SortedVector)

    vector.searchsorted(np.array([22.0, 21.5, 23.0, np.nan, -3.0]))
    assert reads == [()]
    reads.clear()
    vector[15]
    assert reads == [(1, 2)]


def test_a_file_of_a_model__is_checked_when_it_is_read(tmp_path):
    url = f"{tmp_path}/of_model.parquet"
    right = StoredFile.write(url, {"statistic": np.array([1.0, 3.0, 2.0])})

    assert StoredNumbers(right, "statistic", 3, is_sorted=False).read(1).tolist() == [3, 2]
    with pytest.raises(ValueError, match="is not sorted"):
        StoredNumbers(right, "statistic", 3, is_sorted=True).read()
    with pytest.raises(ValueError, match="holds 3 rows instead of 4"):
        StoredNumbers(right, "statistic", 4, is_sorted=False).read()
    StoredFile.write(url, {"statistic": np.array([1.0, 3.0, 4.0])})
    with pytest.raises(ValueError, match="altered"):
        StoredNumbers(right, "statistic", 3, is_sorted=True).read()


def test_a_file_that_is_gone__is_an_error_that_says_what_to_do(tmp_path):
    vector = spooled(np.arange(5.0), tmp_path)
    (tmp_path / vector.files[0].url.rsplit("/", 1)[-1]).unlink()

    with pytest.raises(RuntimeError, match=r"does not exist.*model\.save"):
        vector.part(0, 1)
