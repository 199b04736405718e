"""Whole numbers beyond 2**53, and decimals: p-values are those of small differences."""

from decimal import Decimal

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lpe_dask
from choosing import mostly_dealt, mostly_full
from lpe_dask import LPE
from lpe_dask.tables import ColumnOffsets
from lpe_dask.tables.column_offsets import learn_offsets
from lpe_dask.tables.errors import PrecisionError

START = 1_700_000_000_000_000_000
SMALL = pd.DataFrame(
    {"at": [*range(0, 80, 2), 10_000], "size": np.arange(41) % 7, "kind": ["a"] * 41}
)
NUMBERS = SMALL[["at", "size"]]


def frame_of(dtype, start=START):
    values = [start + at for at in SMALL["at"].tolist()]
    return NUMBERS.assign(at=pd.array(values, dtype))


def decimals_of(scale, start=START):
    return NUMBERS.assign(at=[Decimal(start + at).scaleb(-scale) for at in SMALL["at"]])


def dask_objects():
    with dask.config.set({"dataframe.convert-string": False}):
        return dd.from_pandas(frame_of("object"), npartitions=4)


LARGE = frame_of("int64")
ARRAY = LARGE.to_numpy()
KINDS = {
    "pandas": LARGE,
    "unsigned": frame_of("uint64", 2**63 + 5),
    "negative": frame_of("int64", -START),
    "nullable": frame_of("Int64"),
    "Arrow": frame_of("int64[pyarrow]"),
    "objects": frame_of("object"),
    "objects beyond 64 bits": frame_of("object", 10**30),
    "decimals": decimals_of(0),
    "numpy": ARRAY,
    "numpy objects": ARRAY.astype(object),
    "lists beside floats": [[at, float(size)] for at, size in ARRAY.tolist()],
    "dask array": da.from_array(ARRAY, chunks=(9, 1)),
    "dask array of objects": da.from_array(ARRAY.astype(object), chunks=(9, 2)),
    "dask frame": dd.from_pandas(LARGE, npartitions=4),
    "dask frame of objects": dask_objects(),
}


def computed(values):
    return np.asarray(values.compute() if hasattr(values, "compute") else values)


FITS = KINDS, [{}, {"scale": "minmax"}, {"calibration": "split"}]


@pytest.mark.parametrize(("kind", "arguments"), mostly_dealt(*FITS))
def test_fit__of_large_numbers_is_that_of_their_differences(tmp_path, kind, arguments):
    X = KINDS[kind]
    expected = LPE(3, random_state=0, **arguments).fit(NUMBERS)

    model = LPE(3, random_state=0, **arguments).fit(X)
    model.save(tmp_path / "model")

    np.testing.assert_array_equal(computed(model.p_values_), expected.p_values_)
    for same in (model, lpe_dask.load(tmp_path / "model")):
        p_values = computed(same.score_samples(X))
        np.testing.assert_array_equal(p_values, expected.score_samples(NUMBERS))


@pytest.mark.parametrize("in_dask", [False, True])
def test_fit__of_large_numbers_beside_categories(in_dask):
    X, expected = SMALL.assign(at=LARGE["at"]), LPE(3, categorical="auto").fit(SMALL)
    X = dd.from_pandas(X, npartitions=3) if in_dask else X

    model = LPE(3, categorical="auto").fit(X)
    of_array = LPE(3, categorical=[2]).fit(SMALL.assign(at=LARGE["at"]).to_numpy(object))

    np.testing.assert_array_equal(computed(model.p_values_), expected.p_values_)
    np.testing.assert_array_equal(of_array.p_values_, expected.p_values_)


#: Types of the files of a table, digits after the point, and the start of its numbers.
FILES = {
    "int64": ([pa.int64(), pa.int64()], 0, START),
    "uint64": ([pa.uint64(), pa.uint64()], 0, 2**63 + 5),
    "short": ([pa.decimal128(9, 2)], 2, 0),
    "long": ([pa.decimal128(38, 18)], 18, 0),
    "longest": ([pa.decimal256(76, 3)], 3, START),
    "long, int64": ([pa.decimal128(38, 0), pa.int64()], 0, START),
    "short, int64": ([pa.decimal128(9, 2), pa.int64()], 0, 0),
    "int64, longest": ([pa.int64(), pa.decimal256(50, 3)], 0, START),
}
CSV = [("int64", "csv"), ("uint64", "csv")]
CORE = [("int64", "parquet"), ("longest", "parquet"), ("int64, longest", "parquet"), *CSV]


@pytest.mark.parametrize(
    ("kind", "ending"), mostly_full([*((kind, "parquet") for kind in FILES), *CSV], CORE)
)
def test_score__of_large_numbers_and_decimals_in_files(tmp_path, kind, ending):
    types, scale, start = FILES[kind]
    frame = decimals_of(scale, start)
    (folder := tmp_path / "in").mkdir()
    edges = [0, 20, 41] if len(types) > 1 else [0, 41]
    for i, type_ in enumerate(types):
        part = frame[edges[i] : edges[i + 1]]
        values = map(int, part["at"]) if pa.types.is_integer(type_) else part["at"]
        table = pa.table({"at": pa.array(values, type_), "size": part["size"]})
        if ending == "csv":
            table.to_pandas().to_csv(folder / f"{i}.csv", index=False)
        else:
            pq.write_table(table, folder / f"{i}.parquet")
    expected = lpe_dask.score(NUMBERS if scale == 0 else frame, n_neighbors=3)

    found = lpe_dask.score(str(folder), n_neighbors=3).compute()
    lpe_dask.score_files(folder, tmp_path / "out", n_neighbors=3)

    np.testing.assert_array_equal(found, expected)
    out = pq.read_table(tmp_path / "out").to_pydict()
    np.testing.assert_array_equal(out["p_value"], expected)
    assert out["at"] == frame["at"].tolist()


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_score__of_decimals_beside_floats_is_refused(tmp_path, kind):
    for i, type_ in enumerate([pa.decimal128(9, 2), kind]):
        pq.write_table(pa.table({"at": pa.array([1, 2], type_)}), tmp_path / f"{i}.parquet")

    with pytest.raises(ValueError, match=r"differ in \['at \(decimal128\(9, 2\) and "):
        lpe_dask.score(str(tmp_path), n_neighbors=1)


def test_score__of_missing_large_numbers(tmp_path):
    X = frame_of("Int64")
    X.loc[40, "at"] = pd.NA
    X.to_parquet(tmp_path / "x.parquet")
    model = LPE(3).fit(LARGE)
    expected = LPE(3).fit(NUMBERS).score_samples(NUMBERS[:40])

    for rows in (X, str(tmp_path / "x.parquet"), frame_of("float64")[40:] * np.nan):
        found = computed(model.score_samples(rows))
        np.testing.assert_array_equal(found[:-1], expected[: len(found) - 1])
        assert np.isnan(found[-1])


def test_learn_minima__passes_over_what_is_missing_and_no_numbers():
    arrow = {"none": pa.null(), "at in Arrow": pa.int64()}
    frame = pd.DataFrame(
        {"at": pd.array([START + 1, None], "Int64"), "empty": [np.nan, np.inf], "word": "a"}
        | {
            name: pd.array([None, None], pd.ArrowDtype(kind))
            for name, kind in arrow.items()
        }
    )
    frame.loc[1, "at in Arrow"] = -START - 1

    expected = ColumnOffsets((0, 4), (START + 1, -START - 1), (0, 0))
    assert learn_offsets(frame, None) == expected


def test_fit__takes_the_least_value_of_rows_that_are_dropped():
    X = LARGE.astype({"size": float})
    X.loc[0, "size"] = np.nan

    model = LPE(3, missing="drop").fit(X)

    assert model.score_samples(X)[1:].notna().all()
    np.testing.assert_array_equal(model.p_values_[1:], LPE(3).fit(NUMBERS[1:]).p_values_)
    assert model._fitted.minima.values == (START,)


@pytest.mark.parametrize("X", [LARGE, decimals_of(2)])
def test_explain__shows_large_numbers_as_they_are(X):
    row = X[39:40].assign(at=X["at"][39] + (X["at"][39] - X["at"][14]))

    lines = LPE(1, scale="minmax", calibration="loo").fit(X).explain(row, top=1)

    assert lines["column"].tolist() == ["at"]
    assert lines["value"].tolist() == row["at"].tolist()
    assert lines["nominal_value"].tolist() == [X["at"][39]]


def test_fit__keeps_columns_within_2_53_as_they_are():
    X = frame_of("int64", -(2**53)).assign(size=2**53 - np.arange(41))

    model = LPE(3).fit(X)

    assert model._fitted.minima.places == ()


FAR = NUMBERS.assign(at=[*SMALL["at"][:40], 2**53 + 1])


@pytest.mark.parametrize(
    ("nominal", "rows", "said"),
    [
        (FAR, None, r"'at' has 9007199254740993, .* least nominal value, 0"),
        (dd.from_pandas(FAR, npartitions=3), None, "'at' has 9007199254740993"),
        (FAR.to_numpy(), None, "column 0 has 9007199254740993"),
        (decimals_of(19), None, r"'at' has 0\.1700000000.* least nominal value, 0.*round"),
        (NUMBERS, LARGE, rf"'at' has {START}.* from 0"),
        (NUMBERS, dd.from_pandas(LARGE, npartitions=3), "'at' has 17000"),
        (NUMBERS, da.from_array(ARRAY, chunks=(9, 2)), "column 0 has 17000"),
        (LARGE, NUMBERS, rf"'at' has 0.* least nominal value, {START}"),
        (LARGE, LARGE.astype(float), r"'at' has the float 1.7e\+18.*Int64"),
    ],
)
def test_large_numbers__too_far_apart_are_refused(nominal, rows, said):
    def p_values():
        return computed(LPE(3).fit(nominal).score_samples(rows))

    with pytest.raises(PrecisionError, match=said):
        p_values()


def test_large_numbers__remedies_of_the_error_work():
    X = pd.concat([NUMBERS, LARGE])
    with pytest.raises(ValueError, match=r"subtract a start.*coarser unit.*columns="):
        lpe_dask.score(X)
    coarser = X.assign(at=(X["at"] - X["at"].min()) // 1000)
    assert lpe_dask.score(coarser).notna().all()
    assert lpe_dask.score(X, columns=["size"]).notna().all()
    thirds = NUMBERS.assign(at=[at / Decimal(3) for at in SMALL["at"]])
    with pytest.raises(ValueError, match="round it to fewer digits"):
        lpe_dask.score(thirds)
    assert lpe_dask.score(thirds.astype({"at": float})).notna().all()


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_fit__says_that_all_values_of_a_column_are_missing(tmp_path, ending):
    path = str(tmp_path / f"x.{ending}")
    if ending == "csv":
        NUMBERS.assign(down=None).to_csv(path, index=False)
    else:
        pq.write_table(pa.table({**NUMBERS, "down": pa.nulls(41)}), path)

    with pytest.raises(ValueError, match=r"down \(all 41 values are missing\)"):
        LPE(3).fit(path)
    with pytest.raises(ValueError, match=r"missing in these columns: down\. Leave"):
        LPE(3, missing="drop").fit(path)
    assert lpe_dask.score(path, columns=["at", "size"]).compute().notna().all()


def test_score__of_floats_in_a_csv_that_are_written_as_digits(tmp_path):
    """As JavaScript writes them: with a fraction among them, they are floats."""
    values = ["0.5", "100000000000000000000", "3", "12345678901234567000", "7"]
    (tmp_path / "x.csv").write_text("\n".join(["at", *values]))
    frame = pd.DataFrame({"at": list(map(float, values))})

    found = lpe_dask.score(str(tmp_path / "x.csv"), n_neighbors=1).compute()

    np.testing.assert_array_equal(found, lpe_dask.score(frame, n_neighbors=1))


@pytest.mark.parametrize("other", ["0.5", "1.7e18", "inf"])
def test_score__refuses_whole_numbers_of_a_csv_whose_digits_floats_lose(tmp_path, other):
    path = tmp_path / "x.csv"
    path.write_text("\n".join(["at", *(str(2**60 + i) for i in range(9)), other]))

    with pytest.raises(ValueError, match=r"x\.csv, line 2: column 'at' has 11529"):
        lpe_dask.score(path, n_neighbors=1).compute()


def test_score__of_nulls_of_arrow_in_pandas():
    X = NUMBERS.assign(down=pd.array([None] * 41, pd.ArrowDtype(pa.null())))

    assert LPE(3).fit(NUMBERS.assign(down=1)).score_samples(X).isna().all()


def test_score__of_nulls_beside_files_with_values(tmp_path):
    pq.write_table(pa.table({**NUMBERS, "down": pa.nulls(41)}), tmp_path / "0.parquet")
    pq.write_table(pa.table({**NUMBERS, "down": np.ones(41)}), tmp_path / "1.parquet")

    model = LPE(3).fit(str(tmp_path / "1.parquet"))

    found = model.score_samples(str(tmp_path)).compute()
    assert found.isna().tolist() == [True] * 41 + [False] * 41


def test_plan__of_large_numbers_is_that_of_their_differences():
    for X in (LARGE, KINDS["dask frame"]):
        assert lpe_dask.plan(X, n_neighbors=3).pairs == 41 * 41
        assert lpe_dask.plan(X, X, n_neighbors=3).fits


def test_original__leaves_what_is_missing_or_infinite_as_it_is():
    offsets = ColumnOffsets((1,), (START,), (2,))
    rows = np.array([[0, 5], [0, np.nan], [0, np.inf]])

    value, missing, infinite = offsets.original(rows)[1]

    assert value == START + 5
    assert np.isnan(missing)
    assert infinite == np.inf
