"""Whatever kind comes in: the same numbers, and back to the kind and index that came."""

import contextlib
import functools
import itertools

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

import lpe_dask
from lpe_dask import LPE
from lpe_dask.tables.errors import PrecisionError
from lpe_dask.tables.numeric import check_numeric, float_rows
from lpe_dask.tables.table import Table
from strategies import row_chunks

ROWS = np.array([[1, 0], [2, 1], [3, 1], [5, 0], [8, 1], [13, 0]])
NAMES = ["number", "flag"]
DAY = pd.Timestamp(0)


def frame_of(dtypes=None, index=None):
    frame = pd.DataFrame(ROWS, columns=NAMES, index=index)
    return frame if dtypes is None else frame.astype(dtypes)


def computed(table):
    return np.asarray(table.rows.compute(), dtype=float)


@pytest.mark.parametrize(
    "X",
    [
        ROWS.tolist(),
        ROWS.astype(np.uint8),
        ROWS.astype(np.float32),
        ROWS.astype(object),
        np.asfortranarray(ROWS.astype(float)),
        ROWS[::-1].astype(float)[::-1],
        da.from_array(ROWS, chunks=(4, 1)),
        frame_of(),
        frame_of({"number": "Int64", "flag": "boolean"}),
        frame_of({"number": "Float32", "flag": bool}),
        frame_of({"number": "double[pyarrow]", "flag": "bool[pyarrow]"}),
        dd.from_pandas(frame_of(), npartitions=3),
        dd.from_pandas(frame_of({"number": "Int16", "flag": "boolean"}), npartitions=2),
    ],
)
def test_table__gives_the_numbers(X):
    table = Table.of(X)

    np.testing.assert_array_equal(computed(table), ROWS)
    assert len(table.rows.chunks[1]) == 1


@pytest.mark.parametrize("scale", [None, "minmax", "standard"])
@pytest.mark.parametrize("kind", ["pandas", "dask"])
def test_frame__of_float32_stays_so_and_gives_the_same_bits(kind, scale):
    rows = np.random.default_rng(0).random((60, 2)).astype(np.float32)
    single = pd.DataFrame(rows, columns=NAMES)
    double = single.astype(np.float64)
    X = single if kind == "pandas" else dd.from_pandas(single, npartitions=3)

    blocks = Table.of(X).rows

    assert blocks.dtype == blocks.compute().dtype == np.float32
    actual = np.asarray(lpe_dask.score(X, n_neighbors=3, scale=scale))
    expected = lpe_dask.score(double, n_neighbors=3, scale=scale)
    np.testing.assert_array_equal(actual, expected)


def test_dask_frame__that_says_float64_gives_it():
    """Ranges of float32 would be rounded to float32 where Dask believes to have float64."""
    double = pd.DataFrame({"x": [0.1, 0.2]})
    frame = dd.from_map(
        lambda part: double.astype(np.float32), range(2), meta=double.iloc[:0]
    )

    rows = Table.of(frame).rows

    assert rows.dtype == rows.compute().dtype == np.float64


@pytest.mark.parametrize(
    "dtype", ["Int64", "Float64", "boolean", "int64[pyarrow]", "object"]
)
@pytest.mark.parametrize("values", [[1, None, 0], [None, None, None]])
def test_table__missing_values_are_nan(dtype, values):
    frame = pd.DataFrame({"x": pd.Series(values, dtype=dtype), "y": [1.0, 2.0, np.inf]})
    with dask.config.set({"dataframe.convert-string": False}):
        kinds = [frame, dd.from_pandas(frame, npartitions=2)]
    if dtype == "object":
        array = frame.to_numpy(object)
        kinds += [array, da.from_array(array, chunks=(2, 1))]

    expected = np.c_[np.array(values, float), frame["y"]]
    for X in kinds:
        np.testing.assert_array_equal(computed(Table.of(X)), expected)


def test_check_numeric__says_that_there_are_no_numbers_at_all():
    with pytest.raises(TypeError, match=r"'odd' .*There are no others: give a table"):
        check_numeric(pd.DataFrame({"odd": ["a", "b"]}))


def objects(value):
    """Return numbers as objects, and one that is perhaps no number."""
    rows = ROWS.astype(object)
    rows[3, 1] = value
    return rows


INVALID_INPUT = [
    (
        da.zeros((4, 2), chunks=2)[:, da.zeros(2, chunks=2) < 1],
        TypeError,
        r"unknown number of columns.*compute_chunk_sizes\(\)",
    ),
    *(
        (X, ValueError, r"Expected 2D array.* the shape \((4|n),\)\. Reshape your data")
        for X in (
            np.zeros(4),
            da.zeros(4),
            dd.from_pandas(frame_of(), npartitions=2)["flag"],
        )
    ),
    (da.zeros(4).sum(), ValueError, "Expected 2D array"),
    (da.zeros((4, 0)), ValueError, r"0 feature\(s\)"),
    (np.zeros((4, 0)), ValueError, r"0 feature\(s\)"),
    (pd.DataFrame(index=[1, 2]), ValueError, r"0 feature\(s\)"),
    (np.array([["a", "b"]]), TypeError, r"not: 0 \(\w+\), 1 .* categorical=\[0, 1\]"),
    (
        da.from_array(np.array([["a", "b"]])),
        TypeError,
        r"not: 0 \(string\), 1 .* categorical=\[0, 1\]",
    ),
    *((objects(value), TypeError, r"not: 1 \(") for value in ("a", "1", {"a": 1}, DAY)),
    *(
        (X, TypeError, "must be .* or booleans")
        for kind in ("datetime64[s]", "timedelta64[s]")
        for X in (np.zeros((4, 2), kind), da.zeros((4, 2), dtype=kind))
    ),
    (objects(1j), ValueError, "Complex data not supported"),
    (np.zeros((2, 2), complex), ValueError, "Complex data not supported"),
    (da.zeros((4, 2), dtype=complex), ValueError, "Complex"),
    *(
        (X, ValueError, r"Complex .* \['number', 'flag'\]")
        for X in (frame_of(complex), dd.from_pandas(frame_of(complex), npartitions=2))
    ),
    (scipy.sparse.csr_array(np.eye(3)), TypeError, "Sparse data was passed"),
    (
        da.ones((3, 3)).map_blocks(scipy.sparse.csr_matrix),
        TypeError,
        "Sparse data was passed",
    ),
    (
        frame_of().assign(odd=pd.Series([0.5] * 6, dtype="Sparse[float64]")),
        TypeError,
        r"'odd' \(Sparse.*columns=\['number', 'flag'\] \(--columns number,flag\)",
    ),
]


@pytest.mark.parametrize(
    ("X", "error", "message", "categorical"),
    [
        *((*case, None) for case in INVALID_INPUT),
        *((*case, "auto") for case in INVALID_INPUT if "not: " not in case[2]),
    ],
)
def test_fit__refuses(X, error, message, categorical, at_most_computes):
    """Before anything is computed, also where text and objects may be categories."""
    with at_most_computes(0), pytest.raises(error, match=message):
        LPE(2, categorical=categorical).fit(X)


def test_objects__in_a_dask_frame_are_refused_by_the_tasks_that_read_them():
    with dask.config.set({"dataframe.convert-string": False}):
        X = dd.from_pandas(pd.DataFrame(objects("a"), columns=NAMES), npartitions=2)

    with pytest.raises(TypeError, match=r"not: 'flag' \(object\).*columns=\['number'\]"):
        LPE(2).fit(X)


@pytest.mark.parametrize(("n_rows", "n_chunks"), [(0, 1), (100_000, 1), (2**21, 8)])
def test_numpy__is_cut_into_chunks_of_some_mebibytes(n_rows, n_chunks):
    """Each one costs tasks, and messages on a cluster."""
    rows = Table.of(np.zeros((n_rows, 8), np.float32)).rows

    assert rows.numblocks == (n_chunks, 1)
    assert sum(rows.chunks[0]) == n_rows


def of_unknown_chunks(rows, chunks=2):
    """Return the rows as an array that does not know how many there are."""
    padded = np.concatenate([np.full((chunks, rows.shape[1]), -1.0), rows])
    X = da.from_array(padded, chunks=(chunks, 1))
    return X[X[:, 0] > 0]


def test_unknown_chunks__are_scored_lazily_like_any_others(at_most_computes):
    model = LPE(2, alpha=0.3).fit(ROWS)
    X = of_unknown_chunks(ROWS)
    parts = [frame_of()[:4], pd.DataFrame(), frame_of()[4:]]
    frame = dd.from_map(lambda part: part, parts, meta=frame_of()[:0])
    as_array = frame.to_dask_array()

    for method in (model.score_samples, model.predict, model.decision_function):
        with at_most_computes(0):
            values, of_frame = method(X), method(as_array)
        assert np.isnan(values.shape[0])
        np.testing.assert_array_equal(values.compute(), method(ROWS))
        np.testing.assert_array_equal(of_frame.compute(), method(ROWS))


@pytest.mark.parametrize("calibration", ["loo", "split", "conformal"])
def test_unknown_chunks__of_nominal_rows_are_computed_by_fit(calibration, caplog):
    caplog.set_level("INFO", logger="lpe_dask")
    arguments = {"n_neighbors": 2, "calibration": calibration, "random_state": 0}

    model = LPE(**arguments).fit(of_unknown_chunks(ROWS))

    p_values = model.p_values_
    assert p_values.chunks == ((0, 2, 2, 2),)
    expected = LPE(**arguments).fit(ROWS.astype(float)).p_values_
    np.testing.assert_array_equal(p_values.compute(), expected)
    messages = [r.getMessage() for r in caplog.records if "lengths" in r.getMessage()]
    assert messages == [
        "the 4 chunks of the nominal rows had unknown lengths, which were computed: 6 rows"
    ]
    caplog.clear()
    for X in (ROWS, da.from_array(ROWS), dd.from_pandas(frame_of(), npartitions=2)):
        LPE(**arguments).fit(X)
    assert "lengths" not in caplog.text


KINDS_OF_FRAMES = {
    "split": lambda frame: pa.Table.from_pandas(frame).to_pandas(split_blocks=True),
    "gathered": lambda frame: pa.Table.from_pandas(frame).to_pandas(),
    "mixed": lambda frame: frame.astype({"a": "Int64", "b": "boolean", "c": np.float32}),
    "one array": lambda frame: pd.DataFrame(frame.to_numpy(float)),
}


@pytest.mark.parametrize("n_rows", [0, 1, 2 * 2**14 + 7])
@pytest.mark.parametrize("kind", KINDS_OF_FRAMES)
def test_float_rows__are_the_numbers_row_by_row(kind, n_rows):
    rng = np.random.default_rng(0)
    rows = np.column_stack([*rng.integers(0, 2, (2, n_rows)), rng.random(n_rows) // 0.01])
    frame = pd.DataFrame(rows, columns=list("abc"))
    frame = KINDS_OF_FRAMES[kind](frame)
    if kind == "mixed" and n_rows > 0:
        frame.iloc[-1, 0] = pd.NA
        rows[-1, 0] = np.nan

    actual = float_rows(frame)

    assert actual.dtype == np.float64
    assert actual.flags.c_contiguous
    np.testing.assert_array_equal(actual, rows)


@pytest.mark.parametrize("dtype", ["Int64", "int64[pyarrow]", "UInt64", "object"])
def test_float_rows__rounds_no_whole_number(dtype):
    missing = np.nan if dtype == "object" else pd.NA
    column = pd.array([2**53, missing], dtype)

    rows = float_rows(pd.DataFrame({"x": column, "y": np.float32(0.1)}))

    np.testing.assert_array_equal(rows[:, 0], [2.0**53, np.nan])
    assert rows[0, 1] == np.float64(np.float32(0.1))
    column[0] = 2**53 + 1
    with pytest.raises(PrecisionError, match=r"'x' has 9007199254740993.*--columns"):
        float_rows(pd.DataFrame({"x": column, "y": np.float32(0.1)}))


@pytest.mark.parametrize(
    ("number", "fits"), [(0.5, True), (1e8 + 1, False), (1e300, False)]
)
def test_fit__refuses_a_partition_that_is_more_than_the_frame_says(number, fits):
    """The frame says float32, and a partition of it is float64."""

    def make(i):
        return pd.DataFrame(
            {"x": np.arange(9.0, dtype="f4" if i == 0 else "f8") + i * number}
        )

    frame = dd.from_map(make, [0, 1], meta=make(0).iloc[:0])
    message = r"'x': 'float64'.*says float32.*astype\('float64'\)"

    with contextlib.nullcontext() if fits else pytest.raises(ValueError, match=message):
        lpe_dask.LPE(1).fit(frame)
    rows = pd.concat([make(0).astype(float), make(1)])
    actual = lpe_dask.LPE(1).fit(frame.astype("float64")).statistic_.compute()
    np.testing.assert_array_equal(actual, lpe_dask.LPE(1).fit(rows).statistic_)


def test_float_rows__of_an_array_of_rows_are_no_copy():
    rows = np.random.default_rng(0).random((50, 3))

    assert np.shares_memory(float_rows(pd.DataFrame(rows, copy=False)), rows)


@functools.cache
def of_numpy(n_neighbors):
    """Return p-values of the rows among themselves, and of the same rows as new ones."""
    own = lpe_dask.score(ROWS, n_neighbors=n_neighbors)
    return own, lpe_dask.score(ROWS, ROWS, n_neighbors=n_neighbors)


INDEXES = {
    "repeated": pd.Index([7, 7, 3, 3, 3, 0]),
    "text": pd.Index(list("zyxabc"), name="who"),
    "time": pd.date_range("2026-01-01", periods=6),
    "two levels": pd.MultiIndex.from_product([[1, 2], list("abc")], names=["a", "b"]),
}


@pytest.mark.parametrize("index", INDEXES)
def test_frame__keeps_any_index(index):
    frame = frame_of(index=INDEXES[index])
    own, new = of_numpy(2)

    p_values = lpe_dask.score(frame, n_neighbors=2)

    pd.testing.assert_index_equal(p_values.index, frame.index)
    np.testing.assert_array_equal(p_values, own)
    if index == "two levels":  # which Dask does not have
        return
    ddf = dd.from_pandas(frame, npartitions=3, sort=False)
    for nominal, expected in ((None, own), (ROWS, new)):
        series = lpe_dask.score(ddf, nominal, n_neighbors=2)
        assert series.npartitions == ddf.npartitions
        assert series.compute().index.tolist() == frame.index.tolist()
        np.testing.assert_array_equal(series.compute(), expected)


@given(data=st.data(), chunks=row_chunks(6), n_neighbors=st.integers(1, 5))
def test_dask_frame__with_empty_partitions_is_like_numpy(data, chunks, n_neighbors):
    edges = np.cumsum([0, *chunks])
    parts = [frame_of().iloc[a:b] for a, b in itertools.pairwise(edges)]
    for position in data.draw(st.lists(st.integers(0, len(parts)), max_size=3)):
        parts.insert(position, frame_of().iloc[:0])
    ddf = dd.from_delayed(
        [dask.delayed(part) for part in parts], meta=frame_of(), verify_meta=False
    )

    own, new = dask.compute(
        lpe_dask.score(ddf, n_neighbors=n_neighbors),
        lpe_dask.score(ddf, nominal=ddf, n_neighbors=n_neighbors),
        scheduler="sync",
    )

    np.testing.assert_array_equal((own, new), of_numpy(n_neighbors))


@pytest.mark.parametrize("kind", [ROWS, da.from_array(ROWS)])
def test_select_columns__is_for_frames(kind):
    with pytest.raises(TypeError, match=r"X\[:, \[0, 1\]\]"):
        lpe_dask.score(kind, columns=["a"])


def test_number_of_columns__of_an_array_must_be_that_of_fit():
    model = LPE(2).fit(ROWS)

    with pytest.raises(
        ValueError, match="X has 3 features, but LPE is expecting 2 features"
    ):
        model.score_samples(da.zeros((5, 3)))


def test_number_of_columns__is_known_also_where_those_of_categories_are_missing():
    X = np.array([[0.5, "a"], [1.5, "b"]] * 9, dtype=object)
    model = LPE(2, categorical=[1]).fit(X)

    with pytest.raises(ValueError, match="X has 1 features, but LPE is expecting 2"):
        model.score_samples(X[:, :1])
