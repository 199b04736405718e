"""Columns of numbers in files: bit for bit, or refused before anything large is made."""

import io
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from lpe_dask.storage import StoredFile, columns_of, parquet_of
from lpe_dask.storage.numeric_parquet import MAX_EXPANSION

TYPES = {of: of for of in (np.int32, np.int64, np.float64)} | {np.float32: np.floating}


@given(
    st.sampled_from(list(TYPES)).flatmap(lambda t: npst.arrays(t, st.integers(0, 50))),
    st.booleans(),
)
def test_columns__come_back_bit_for_bit(values, is_strided):
    values = np.repeat(values, 2)[::2] if is_strided else values
    content = bytes(parquet_of({"x": values}))

    found = columns_of(content, {"x": TYPES[values.dtype.type]}, "file", len(values))["x"]

    assert found.dtype == values.dtype
    assert found.tobytes() == values.tobytes()


def parquet(table, **options):
    file = io.BytesIO()
    pq.write_table(pa.table(table), file, **options)
    return file.getvalue()


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({"y": [1.0]}, r"has the columns \['y'\], not \['x'\]"),
        ({"x": [1.0], "y": [1.0]}, "has the columns"),
        ({"x": ["text"]}, "is of type string, not double"),
        ({"x": [b"bytes"]}, "is of type binary"),
        ({"x": [[1.0]]}, "is of type list"),
        ({"x": [{"y": 1.0}]}, "is of type struct"),
        ({"x": [True]}, "is of type bool"),
        ({"x": pa.array([1], pa.timestamp("s"))}, "is of type timestamp"),
        ({"x": pa.array(["a"]).dictionary_encode()}, "is of type dictionary"),
        ({"x": pa.array([1.0], pa.float32())}, "is of type float, not double"),
        ({"x": [1.0, None]}, "has missing values"),
    ],
)
def test_columns__of_another_kind_are_refused(table, why):
    with pytest.raises(ValueError, match=f"^file.*{why}"):
        columns_of(parquet(table), {"x": np.float64}, "file")


def test_columns__of_another_length_are_refused():
    content = bytes(parquet_of({"x": np.zeros(5)}))

    with pytest.raises(ValueError, match=r"^file holds 5 rows instead of 6$"):
        columns_of(content, {"x": np.float64}, "file", 6)


def test_columns__that_would_fill_the_memory_are_refused():
    """A few bytes that say "ten million times the same" are no measurements."""
    content = parquet({"x": np.zeros(10**7)}, compression="zstd")
    assert len(content) < 10**5

    tracemalloc.start()
    before = pa.total_allocated_bytes()
    with pytest.raises(ValueError, match="declares 10000000 rows, more than"):
        columns_of(content, {"x": np.float64}, "file")
    assert pa.total_allocated_bytes() - before < 10**6
    assert tracemalloc.get_traced_memory()[1] < 10**6
    tracemalloc.stop()


def test_columns__of_equal_numbers_are_read():
    content = bytes(parquet_of({"x": np.zeros(2 * 10**6)}))

    assert len(content) * MAX_EXPANSION / 2 > 16 * 10**6
    assert not columns_of(content, {"x": np.float64}, "file")["x"].any()


CONTENT = bytes(parquet_of({"number": np.arange(60), "x": np.linspace(0, 1, 60)}))


@settings(max_examples=300)
@given(
    st.lists(st.tuples(st.integers(0, len(CONTENT) - 1), st.integers(0, 255)), max_size=4)
)
def test_columns__of_any_bytes_are_numbers_or_refused(changes):
    content = bytearray(CONTENT)
    for place, byte in changes:
        content[place] = byte

    try:
        found = columns_of(
            bytes(content), {"number": np.int64, "x": np.float64}, "file", 60
        )
    except ValueError as error:
        assert str(error).startswith("file")  # noqa: PT017
    else:
        assert [values.dtype for values in found.values()] == [np.int64, np.float64]
        assert [len(values) for values in found.values()] == [60, 60]


def test_columns__of_different_lengths_are_refused():
    """60 is written as 120 where a file says how many numbers a column has."""
    reasons = set()
    for place in (i for i, byte in enumerate(CONTENT) if byte == 120):
        for byte in (119, 122):  # -60 and 61
            content = CONTENT[:place] + bytes([byte]) + CONTENT[place + 1 :]
            try:
                columns_of(content, {"number": np.int64, "x": np.float64}, "file")
            except ValueError as error:
                reasons.add(str(error))

    assert "file has columns of different lengths" in reasons


def test_stored_file__tells_when_it_was_changed(tmp_path):
    path = tmp_path / "file"
    stored = StoredFile.write(str(path), {"x": np.arange(3.0)})
    content = path.read_bytes()

    stored.check()
    stored.check_size()
    path.write_bytes(content[:-1])
    for check in (stored.check, stored.check_size):
        with pytest.raises(ValueError, match=f"has {len(content) - 1} bytes, but"):
            check()
    path.write_bytes(content[:-1] + b"?")
    stored.check_size()
    with pytest.raises(ValueError, match="was altered after it was written"):
        stored.check()
    path.unlink()
    for check in (stored.check, stored.check_size):
        with pytest.raises(FileNotFoundError, match="is missing"):
            check()


def test_stored_file__from_a_server_that_does_not_tell_its_size(tmp_path, monkeypatch):
    path = tmp_path / "file"
    stored = StoredFile.write(str(path), {"x": np.arange(3.0)})
    info = {"type": "file"}
    monkeypatch.setattr(LocalFileSystem, "info", lambda filesystem, path: info)

    stored.check_size()
    stored.check()
    path.write_bytes(b"short")
    stored.check_size()  # which knows no better
    with pytest.raises(ValueError, match="has 5 bytes"):
        stored.check()
