"""Each kind of bad input, and the error it gets.

Elsewhere: tables that differ between two readings (tables/test_changing_tables.py), full
disks (batch), lost schedulers and workers (cli/test_commands.py, system/test_cluster.py).
"""

import json
import re
import shutil
from pathlib import Path

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from click.testing import CliRunner

import lpe_dask
from lpe_dask import LPE
from lpe_dask.cli.commands import cli
from lpe_dask.model.persistence.manifest import FORMAT, MANIFEST_NAME

RNG = np.random.default_rng(0)
NOMINAL = RNG.integers(0, 9, (40, 2)) * 0.5
ROWS = RNG.integers(0, 12, (10, 2)) * 0.5
MODEL = LPE(3).fit(NOMINAL)
EXPECTED = MODEL.score_samples(ROWS)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with dask.config.set(scheduler="sync"):
        yield


def frame_of(rows):
    return rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(rows, columns=[*"xy"])


def as_dask_frame(rows):
    frame = frame_of(rows)
    # Dask would make text of objects as they come.
    is_object = all(map(pd.api.types.is_object_dtype, frame.dtypes))
    ddf = dd.from_pandas(frame.astype(float) if is_object else frame, npartitions=2)
    return ddf.astype(object) if is_object else ddf


def as_files(rows):
    """Two files of Parquet in a folder."""
    path = Path(f"table-{len(list(Path.cwd().iterdir()))}")
    path.mkdir()
    frame = frame_of(rows)
    frame.iloc[: len(frame) // 2].to_parquet(path / "0.parquet")
    frame.iloc[len(frame) // 2 :].to_parquet(path / "1.parquet")
    return str(path)


ARRAYS = {
    "numpy": np.asarray,
    "dask array": lambda rows: da.from_array(np.asarray(rows), chunks=(3, 1)),
}
FRAMES = {"pandas": frame_of, "dask frame": as_dask_frame}
FILES = {"files": as_files}
KINDS = ARRAYS | FRAMES | FILES


def kinds(table):
    return pytest.mark.parametrize("of_kind", table.values(), ids=table)


def command(*arguments):
    """Run a command in this process; what it says in the end if it is refused."""
    result = CliRunner().invoke(cli, [*map(str, arguments), "--scheduler", "threads"])
    assert result.stdout == ""
    return result.exit_code, result.stderr.splitlines()[-1]


# NaN or inf in a scored row


@pytest.mark.filterwarnings("ignore:.*, and no p-value:UserWarning")
@kinds(KINDS)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_scored_row_with_nan_or_inf__has_no_p_value_and_leaves_others_alone(of_kind, value):
    rows = ROWS.copy()
    rows[4, 1] = value

    p_values = np.asarray(MODEL.score_samples(of_kind(rows)))

    assert np.flatnonzero(np.isnan(p_values)).tolist() == [4]
    np.testing.assert_array_equal(np.delete(p_values, 4), np.delete(EXPECTED, 4))
    assert np.asarray(MODEL.predict(of_kind(rows)))[4] == 1


def test_scored_row_with_nan__is_null_in_files_and_counted():
    rows = ROWS.copy()
    rows[4, 1] = np.nan

    summary = lpe_dask.score_files(as_files(rows), "out", nominal=as_files(NOMINAL))

    flags = pd.read_parquet("out")["is_anomaly"]
    assert summary["rows_nan"] == 1
    assert np.flatnonzero(flags.isna()).tolist() == [4]


# NaN or inf in a nominal row


@kinds(KINDS)
@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_nominal_row_with_nan_or_inf__is_refused_or_dropped(of_kind, value, caplog):
    nominal = NOMINAL.copy()
    nominal[[7, 9], 1] = value

    with pytest.raises(ValueError, match=r"(y|column 1) \(2\).* missing='drop'"):
        LPE(3).fit(of_kind(nominal))
    model = LPE(3, missing="drop").fit(of_kind(nominal))

    assert (model.n_samples_, model.n_dropped_) == (38, 2)
    expected = LPE(3).fit(np.delete(NOMINAL, [7, 9], axis=0)).calibration_
    np.testing.assert_array_equal(model.calibration_, expected)


# Text, category, datetime


ODD = {
    "text": [*"ab"] * 20,
    "category": pd.Categorical([*"ab"] * 20),
    "datetime": pd.date_range("2026-01-01", periods=40),
}


@kinds(FRAMES | FILES)
@pytest.mark.parametrize("values", ODD.values(), ids=ODD)
def test_column_of_text_category_or_datetime__is_refused_by_name(of_kind, values):
    """What to measure is named, and what else can be done about text and categories."""
    table = of_kind(frame_of(NOMINAL).assign(odd=values))

    with pytest.raises(TypeError) as refused:
        LPE(3).fit(table)

    for words in ("'odd'", "columns=['x', 'y']", "--columns x,y"):
        assert words in str(refused.value)
    has_remedy = "categorical=['odd'] (--categorical odd)" in str(refused.value)
    assert has_remedy == (not isinstance(values, pd.DatetimeIndex))
    lpe_dask.score(table, columns=["x", "y"])


def test_column_of_text__is_refused_by_the_command():
    data = as_files(frame_of(NOMINAL).assign(odd="a"))

    code, said = command("score", data, "--output", "out")

    assert code == 2
    assert "'odd'" in said
    assert "--columns x,y" in said


@kinds(ARRAYS)
@pytest.mark.parametrize("dtype", ["str", "datetime64[s]", "timedelta64[s]"])
def test_array_of_text_or_times__is_refused(of_kind, dtype, at_most_computes):
    with at_most_computes(0), pytest.raises(TypeError, match=r"must be .* or booleans"):
        LPE(3).fit(of_kind(NOMINAL.astype(int).astype(dtype)))


# Other columns, or another order, than at fit


@kinds(FRAMES | FILES)
def test_columns__are_reordered_others_ignored_and_missing_ones_named(of_kind):
    model = LPE(3).fit(of_kind(NOMINAL))

    other = of_kind(frame_of(ROWS).assign(z="text")[["z", "y", "x"]])
    np.testing.assert_array_equal(np.asarray(model.score_samples(other)), EXPECTED)
    with pytest.raises(ValueError, match=r"lack the columns \['y'\]"):
        model.score_samples(of_kind(frame_of(ROWS).rename(columns={"y": "Y"})))


# Too few nominal rows


@kinds(KINDS)
def test_nominal_rows__that_are_too_few(of_kind):
    with pytest.raises(ValueError, match=r"n_neighbors=40 .* n_samples = 40"):
        LPE(40).fit(of_kind(NOMINAL))


# Empty frames and partitions


@kinds(KINDS)
def test_empty_table__has_an_empty_result_and_nothing_to_learn_from(of_kind):
    for method, dtype in (("score_samples", float), ("predict", np.int64)):
        result = getattr(MODEL, method)(of_kind(ROWS[:0]))
        values = np.asarray(result)
        assert (len(values), result.dtype, values.dtype) == (0, dtype, dtype)
    with pytest.raises(ValueError, match=r"no nominal rows .* 0 sample\(s\)"):
        LPE(3).fit(of_kind(NOMINAL[:0]))


def test_empty_partitions__are_passed_over():
    array = da.from_array(NOMINAL, chunks=((0, 15, 0, 25, 0), 2))
    frame = array.to_dask_dataframe(columns=["x", "y"])
    expected = LPE(3).fit(NOMINAL).p_values_

    for table in (array, frame):
        np.testing.assert_array_equal(
            np.asarray(lpe_dask.score(table, n_neighbors=3)), expected
        )


# Constant columns


@kinds(KINDS)
def test_constant_column__keeps_its_unit_and_starts_at_its_value(of_kind):
    nominal = np.column_stack([np.full(40, 5.0), np.linspace(0, 1, 40)])

    model = LPE(1, scale="minmax", calibration="loo").fit(of_kind(nominal))

    distances = np.asarray(model.statistic(of_kind(np.array([[5.0, 0.0], [8.0, 0.0]]))))
    np.testing.assert_array_equal(distances, [0.0, 3.0])


@kinds(KINDS)
def test_constant_column__makes_a_covariance_singular(of_kind):
    nominal = np.column_stack([np.full(40, 5.0), np.linspace(0, 1, 40)])

    with pytest.raises(
        ValueError, match=r"singular, because (x|column 0) is constant.*\. "
    ):
        LPE(1, metric="mahalanobis").fit(of_kind(nominal))


# One dimension, complex numbers, objects, sparse tables


ONE_DIMENSIONAL = {
    "numpy": NOMINAL[:, 0],
    "dask array": da.from_array(NOMINAL[:, 0]),
    "pandas": frame_of(NOMINAL)["x"],
    "dask frame": as_dask_frame(NOMINAL)["x"],
}


@pytest.mark.parametrize("X", ONE_DIMENSIONAL.values(), ids=ONE_DIMENSIONAL)
def test_one_dimension__is_refused_with_the_shape(X, at_most_computes):
    message = r"the shape \((40|n),\). Reshape your data"

    for method in (LPE(3).fit, MODEL.score_samples):
        with at_most_computes(0), pytest.raises(ValueError, match=message):
            method(X)


@kinds(ARRAYS | FRAMES)
def test_complex_numbers__are_refused(of_kind):
    with pytest.raises(ValueError, match="Complex data not supported"):
        LPE(3).fit(of_kind(NOMINAL.astype(complex)))


@kinds(ARRAYS | FRAMES)
def test_objects__are_converted_if_all_are_numbers(of_kind):
    nominal, rows = NOMINAL.astype(object), ROWS.astype(object)
    nominal[0, 0], rows[0, 0] = int(nominal[0, 0]), None
    expected = LPE(3).fit(nominal.astype(float)).score_samples(rows.astype(float))

    actual = LPE(3).fit(of_kind(nominal)).score_samples(of_kind(rows))

    np.testing.assert_array_equal(np.asarray(actual), expected)


@kinds(ARRAYS | {"pandas": frame_of})
@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        ("a", TypeError, "not: ('y'|1) "),
        ("1", TypeError, "not: ('y'|1) "),
        ({"a": 1}, TypeError, "not: ('y'|1) "),
        (pd.Timestamp(0), TypeError, "not: ('y'|1) "),
        (1j, ValueError, "Complex data not supported"),
    ],
)
def test_objects__that_are_no_numbers_are_refused(of_kind, value, error, words):
    nominal = NOMINAL.astype(object)
    nominal[3, 1] = value

    with pytest.raises(error, match=words):
        LPE(3).fit(of_kind(nominal))


def test_objects__in_a_dask_frame_are_refused_by_the_tasks_that_read_them():
    frame = as_dask_frame(NOMINAL.astype(object))
    odd = frame.assign(y=frame["y"].replace(NOMINAL[0, 1], "a"))

    with pytest.raises(TypeError, match=r"not: 'y' \(object\).*columns=\['x'\]"):
        LPE(3).fit(odd)


SPARSE = {
    "scipy": scipy.sparse.csr_array(NOMINAL),
    "dask array": da.from_array(NOMINAL).map_blocks(scipy.sparse.csr_array),
    "pandas": frame_of(NOMINAL).astype("Sparse[float]"),
}


@pytest.mark.parametrize("X", SPARSE.values(), ids=SPARSE)
def test_sparse_tables__are_refused(X):
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        LPE(3).fit(X)


# Unknown chunk sizes


@pytest.mark.parametrize("kind", ["array", "frame"])
def test_unknown_chunk_sizes__are_counted_or_scored_lazily(kind, caplog, at_most_computes):
    caplog.set_level("INFO")
    nominal, rows = as_dask_frame(NOMINAL), as_dask_frame(ROWS)
    if kind == "array":
        nominal, rows = nominal.to_dask_array(), rows.to_dask_array()

    model = LPE(3).fit(nominal)
    with at_most_computes(0):
        p_values = model.score_samples(rows)

    np.testing.assert_array_equal(np.asarray(p_values), EXPECTED)
    assert ("unknown lengths, which were computed: 40 rows" in caplog.text) == (
        kind == "array"
    )


# Parameters out of range, unknown names


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        ({"alpha": 0}, "between 0 and 1"),
        ({"alpha": 1.0}, "between 0 and 1"),
        ({"alpha": "0.05"}, "between 0 and 1"),
        ({"n_neighbors": 0}, "at least 1"),
        ({"n_neighbors": 2.5}, "whole number"),
        ({"n_neighbors": True}, "whole number"),
        ({"graph": "radius", "radius": -1}, "at least 0"),
        ({"graph": "tree"}, "'knn', 'radius'"),
        ({"metric": "cosine"}, "'euclidean', 'seuclidean'"),
        ({"scale": "log"}, "None, 'minmax'"),
        ({"algorithm": "hnsw"}, "'auto', 'brute', 'pruned', 'nn_descent'"),
        ({"max_p_error": 0}, "between 0 and 1"),
        ({"recheck": 2}, "between 0 and 1"),
        ({"aggregation": "sum"}, "'kth', 'mean'"),
        ({"aggregation": "mean", "graph": "radius", "radius": 1.0}, "graph='knn'"),
        ({"calibration": "bootstrap"}, "'loo', 'split', 'conformal'"),
        ({"missing": "ignore"}, "'error', 'drop'"),
        ({"metric_params": {"p": 2}}, "'w'"),
    ],
)
def test_parameters__out_of_range_are_refused_with_what_is_allowed(arguments, allowed):
    with pytest.raises(ValueError, match=allowed):
        LPE(**arguments).fit(NOMINAL)


@pytest.mark.parametrize("q", [0, 1, -0.1, "0.1"])
def test_false_discovery_rate__out_of_range_is_refused(q):
    with pytest.raises(ValueError, match="between 0 and 1"):
        lpe_dask.false_discovery_control(EXPECTED, q)
    if isinstance(q, str):
        return
    code, said = command("score", as_files(ROWS), "--output", "out", "--fdr", q)
    assert (code, "between 0 and 1" in said) == (2, True)


# Models on disk


def cut_short(manifest):
    manifest.write_text(manifest.read_text()[:-20])


def altered(manifest):
    manifest.write_text(manifest.read_text().replace('"n_rows": 40', '"n_rows": 41'))


def of_a_newer_format(manifest):
    content = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(content | {"format": FORMAT + 1}))


def without_a_file(manifest):
    next(manifest.parent.glob("data-*/calibration.parquet")).unlink()


def absent(manifest):
    shutil.rmtree(manifest.parent)


@pytest.mark.parametrize(
    ("change", "file", "why"),
    [
        (absent, MANIFEST_NAME, "is missing"),
        (cut_short, MANIFEST_NAME, "cut short"),
        (altered, MANIFEST_NAME, "was altered"),
        (of_a_newer_format, MANIFEST_NAME, f"of format {FORMAT + 1}"),
        (without_a_file, "calibration.parquet", "is missing"),
    ],
)
def test_model_on_disk__that_is_not_whole_is_refused(change, file, why):
    MODEL.save("model")
    change(Path("model") / MANIFEST_NAME)

    with pytest.raises((ValueError, FileNotFoundError), match=f"{file} .*{why}"):
        lpe_dask.load("model")
    code, said = command("score", as_files(ROWS), "--model", "model", "--output", "out")
    assert (code, why in said) == (2, True)


# Outputs


def test_output__that_exists_is_refused_unless_it_may_be_replaced():
    arguments = ["score", as_files(ROWS), "--output", "out", "--n-neighbors", 3]
    first = command(*arguments)
    before = Path("out/_summary.json").read_bytes()

    again = command(*arguments)
    other = command(*arguments, "--alpha", 0.1)
    assert Path("out/_summary.json").read_bytes() == before
    replaced = command(*arguments, "--overwrite")

    assert [code for code, _ in (first, again, other, replaced)] == [0, 2, 2, 0]
    assert re.search("the output .*/out exists", again[1])
    assert "--overwrite" in other[1]
