"""Reasons however rows come, of those that were fitted, and what is refused."""

import tempfile
from pathlib import Path

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.base import is_dask_collection
from dask.sizeof import sizeof
from sklearn.exceptions import NotFittedError

import lpe_dask
from flows import CATEGORICAL, table
from lpe_dask import LPE
from lpe_dask.model.detector import fitted_of
from lpe_dask.model.explanation import Explanation
from problems import lattice

LETTERS = ["a", "b", "c"]
NOMINAL = pd.DataFrame(lattice(150, 0), columns=LETTERS)
NEW = pd.DataFrame(lattice(40, 1, -3, 13), columns=LETTERS, index=np.arange(40) * 3)
NEW.iloc[7, 1] = np.nan


@pytest.fixture(scope="module")
def model():
    return LPE(4, alpha=0.1).fit(NOMINAL)


def both(model, rows):
    return model.explain(rows, top=3), model.nearest_nominal(rows)


def assert_same(found, right, **how):
    for frame, expected in zip(found, right, strict=True):
        pd.testing.assert_frame_equal(frame, expected, check_exact=True, **how)


def in_other_order(rows):
    return rows.assign(z="text")[["c", "z", "a", "b"]]


def in_files(rows):
    folder = Path(tempfile.mkdtemp())
    for i, part in enumerate(np.array_split(np.arange(len(rows)), 4)):
        rows.iloc[part].to_csv(folder / f"{i}.csv", index=False)
    return str(folder)


KINDS = {
    "array": lambda rows: rows.to_numpy(),
    "unknown lengths": lambda rows: dd.from_pandas(rows, npartitions=3).to_dask_array(),
    "nullable": lambda rows: rows.convert_dtypes(),
    "dask frame": lambda rows: dd.from_pandas(in_other_order(rows), npartitions=3),
    "labels": lambda rows: rows.set_axis(
        pd.MultiIndex.from_arrays([rows.index % 7, ["x"] * len(rows)], names=["day", None])
    ),
    "files": lambda rows: in_files(in_other_order(rows)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_reasons__of_rows_of_any_kind(model, kind):
    X = KINDS[kind](NEW)

    found = both(model, X)

    scored = model.score_samples(X)
    scored = scored.compute() if hasattr(scored, "compute") else scored
    index = getattr(scored, "index", pd.RangeIndex(len(NEW)))
    right = [frame.set_axis(index.repeat(3)) for frame in both(model, NEW)]
    assert_same(found, right, check_dtype=False, check_index_type=False, check_names=False)


@pytest.mark.parametrize("names", [None, [1, 2, 3], ["b", 1, "1"]])
def test_reasons__of_columns_of_any_name(model, names):
    nominal, rows = NOMINAL.to_numpy(), NEW.to_numpy()
    if names is not None:
        names = pd.Index(names, dtype=object, tupleize_cols=False)
        nominal, rows = NOMINAL.set_axis(names, axis=1), NEW.set_axis(names, axis=1)
        rows = rows.iloc[:, [2, 0, 1]]

    reasons = LPE(4, alpha=0.1).fit(nominal).explain(rows, top=3)

    right = model.explain(NEW, top=3)
    of = dict(zip(LETTERS, range(3) if names is None else names, strict=True))
    assert reasons["column"].tolist() == [of[letter] for letter in right["column"]]
    for name in ("p_value", "share", "typical_share", "value", "nominal_value"):
        np.testing.assert_array_equal(reasons[name], right[name])


OF_CATEGORIES = {
    "array": lambda rows: rows.to_numpy(object),
    "dask array": lambda rows: da.from_array(rows.to_numpy(object), chunks=(7, 2)),
    "other types": lambda rows: rows.astype(
        {"port": float, "flag": "boolean", "protocol": "category"}
    ),
}


@pytest.mark.parametrize("kind", OF_CATEGORIES)
def test_reasons__of_categories_of_any_kind(kind):
    rows = table(25, 1, protocols=("tcp", "icmp"), ports=(80, 22))
    model = LPE(4, categorical=CATEGORICAL, alpha=0.2).fit(table(90, 0))

    assert_same(
        both(model, OF_CATEGORIES[kind](rows)), both(model, rows), check_dtype=False
    )


def test_explain__shows_values_of_the_types_in_which_they_came():
    """Of new rows and of fitted ones, also where all columns are numbers to pandas."""
    nominal = table(60, 0)[["x", "flag", "port"]].assign(n=[*range(59), 2**40 + 1])
    nominal["whole"] = np.arange(60.0)
    model = LPE(3, categorical=["port"]).fit(nominal)
    new = nominal.iloc[[3]].assign(x=9.0, n=2**40 + 2)

    for lines, right in (
        (model.explain(new), new.iloc[0]),
        (model.explain(rows=[7]), nominal.iloc[7]),
    ):
        lines = lines.set_index("column")
        for name in ("value", "nominal_value"):
            types = {column: type(lines.loc[column, name]) for column in nominal}
            assert types == {
                "x": float,
                "flag": bool,
                "port": int,
                "n": int,
                "whole": float,
            }
        assert lines["value"].to_dict() == right.to_dict()


def test_explain__of_rows_of_a_frame_with_empty_partitions():
    """Of many partitions most are empty, or hold no row that is asked for."""
    few, rows = NOMINAL.head(6), [4, 0, 5]
    parts = [few[:0], *(few[i : i + 1] for i in range(6)), few[:0]]
    frame = dd.from_map(lambda part: part, parts, meta=few[:0])

    model = LPE(1).fit(frame)

    expected = LPE(1).fit(few).explain(rows=rows)
    pd.testing.assert_frame_equal(model.explain(rows=rows), expected, check_exact=True)


@pytest.mark.parametrize("method", ["explain", "nearest_nominal"])
def test_reasons__say_that_rows_are_compared_with_themselves(method, caplog):
    model = LPE(2).fit(NOMINAL)

    getattr(model, method)(NOMINAL.iloc[[3, 5]])
    assert "each of these rows is equal to a nominal one" in caplog.text
    caplog.clear()
    getattr(model, method)(NEW)
    getattr(model, method)(rows=np.array([3, 5]))
    assert caplog.text == ""


# Numbers of lines, and errors


@pytest.mark.parametrize("top", [1, 2, np.int64(2), 3, 100])
def test_explain__returns_so_many_lines_for_each_row(model, top):
    reasons = model.explain(NEW, top=top)

    whole = model.explain(NEW)
    first = np.tile(np.arange(3) < top, len(NEW))
    pd.testing.assert_frame_equal(reasons, whole[first], check_exact=True)
    assert list(reasons.columns) == [
        "p_value", "statistic", "column", "value", "usual", "nominal_value", "share",
        "typical_share", "is_spread",
    ]  # fmt: skip


def test_reasons__have_five_lines_and_three_if_not_asked_for_more():
    model = LPE(3).fit(np.random.default_rng(0).random((50, 8)))

    assert len(model.explain(np.zeros((2, 8)))) == 10
    assert len(model.nearest_nominal(np.zeros((2, 8)))) == 6


@pytest.mark.parametrize("kind", ["array", "unknown lengths", "dask frame"])
def test_reasons__of_no_rows_have_no_lines(model, kind):
    found, right = both(model, KINDS[kind](NEW.iloc[:0])), both(model, NEW)

    for frame, expected in zip(found, right, strict=True):
        assert len(frame) == 0
        assert list(frame.columns) == list(expected.columns)


INVALID_INPUT = [
    *(({"rows": rows}, r"rows=.* 0 to 149") for rows in ([], [-1], [150], [0.5], [[1]])),
    *(({"rows": rows}, r"rows=.* 0 to 149") for rows in (["a"], [True], 3, "a")),
    ({}, r"there are no rows. Give .* \(rows=\)"),
    ({"X": NEW, "rows": [1]}, "both given"),
    ({"X": NEW[["a", "b"]]}, "lack the columns"),
    ({"X": NEW["a"]}, "1D array"),
]


@pytest.mark.parametrize(("arguments", "message"), INVALID_INPUT)
@pytest.mark.parametrize("method", ["explain", "nearest_nominal"])
def test_reasons__of_wrong_rows(model, method, arguments, message, at_most_computes):
    with at_most_computes(0), pytest.raises(ValueError, match=message):
        getattr(model, method)(**arguments)


@pytest.mark.parametrize("count", [0, True, 2.5, "2", None, np.float64(1)])
@pytest.mark.parametrize(("method", "name"), [("explain", "top"), ("nearest_nominal", "n")])
def test_reasons__of_a_wrong_number_of_lines(model, method, name, count):
    with pytest.raises(ValueError, match=rf"^{name}=.* whole number of at least 1"):
        getattr(model, method)(NEW, **{name: count})


def test_reasons__of_no_fitted_rows(model, tmp_path):
    model.save(tmp_path / "model")

    for method in ("explain", "nearest_nominal"):
        with pytest.raises(NotFittedError):
            getattr(LPE(), method)(NEW)
        with pytest.raises(ValueError, match="loaded or copied"):
            getattr(lpe_dask.load(tmp_path / "model"), method)(rows=[1])


@pytest.mark.parametrize(
    ("arguments", "most"),
    [({}, 150), ({"calibration": "split"}, 75), ({"calibration_size": 20}, 150)],
)
def test_nearest_nominal__of_more_rows_than_there_are(arguments, most, at_most_computes):
    model = LPE(3, **arguments).fit(NOMINAL)

    with at_most_computes(0), pytest.raises(ValueError, match=rf"n={most + 1} .* {most}"):
        model.nearest_nominal(NEW, n=most + 1)
    with pytest.raises(ValueError, match=rf"{most - 1} nominal rows"):
        model.nearest_nominal(rows=[1], n=most)


def test_explain__uses_calibration_as_it_is_now():
    model = LPE(4, alpha=0.1).fit(NOMINAL)
    model.calibration_ = np.array([0.05, 0.1, 0.15])

    p_values = model.explain(NEW)["p_value"][::3]

    np.testing.assert_array_equal(p_values, model.score_samples(NEW))
    assert set(p_values.dropna()) <= {0, 1 / 3, 2 / 3, 1}


class Weighed:
    """A scheduler that notes how large the tasks are that it is given."""

    def __init__(self):
        self.largest = 0

    def __call__(self, graph, keys, **options):
        tasks = dict(graph.__dask_graph__() if is_dask_collection(graph) else graph)
        self.largest = max(self.largest, *map(sizeof, tasks.values()))
        return dask.get(graph, keys, **options)


def test_reasons__put_nothing_large_into_tasks():
    """Neither rows nor their numbers; 2**17 numbers are 1 MiB."""
    rng = np.random.default_rng(0)
    nominal, rows = rng.standard_normal((100, 1)), rng.standard_normal((140_000, 1))
    model = LPE(2, alpha=0.02).fit(nominal)
    weighed = Weighed()

    with dask.config.set(scheduler=weighed):
        model.explain(rows)
        model.nearest_nominal(rows, n=1)

    assert 0 < weighed.largest < 2**20


def test_explanation__puts_no_numbers_into_tasks():
    nominal, n_rows = np.arange(60.0)[:, None], 200_000
    model = LPE(2, alpha=0.01).fit(nominal)
    numbers = np.full(n_rows, -1)
    numbers[::3000] = np.arange(67) % 60
    values = pd.DataFrame(nominal[np.maximum(numbers, 0)] + (numbers < 0)[:, None] / 4)
    weighed = Weighed()

    with dask.config.set(scheduler=weighed):
        found = Explanation.of(fitted_of(model), values, places=numbers)

    assert 0 < weighed.largest < 2**20
    np.testing.assert_array_equal(found.distances, np.where(numbers < 0, 0.25, 1.0))


# Rows that were fitted


FITTED_KINDS = {
    "array": lambda rows: rows.to_numpy(),
    "dask frame": lambda rows: dd.from_pandas(rows, npartitions=4),
    "files": in_files,
}


@pytest.mark.parametrize("kind", FITTED_KINDS)
@pytest.mark.parametrize("calibration", ["loo", "split", "conformal"])
def test_reasons__of_rows_that_were_fitted(kind, calibration):
    """They are the same however these came; one that was dropped has none."""
    nominal, places = NOMINAL.copy(), [3, 149, 3, 20, 5]
    nominal.iloc[5, 1] = np.nan
    arguments = {"calibration": calibration, "random_state": 0, "missing": "drop"}
    models = [
        LPE(20, scale="minmax", **arguments).fit(rows)
        for rows in (nominal, FITTED_KINDS[kind](nominal))
    ]

    right, found = (
        (
            some.explain(rows=places).drop(columns="column"),
            some.nearest_nominal(rows=places),
        )
        for some in models
    )

    assert_same(found, right, check_dtype=False)
    assert found[0].index.tolist() == np.repeat(places, 3).tolist()
    assert (found[0]["share"].isna() == (found[0].index == 5)).all()


def test_explain__of_nominal_rows_that_have_changed_since():
    rows = NOMINAL.to_numpy(copy=True)
    model = LPE(4).fit(rows)
    rows[7, 1] += 1

    with pytest.raises(ValueError, match="changed"):
        model.explain(rows=[7])


def test_explanation__takes_what_is_known(model):
    known = model.score_samples(NEW).to_numpy(), model.statistic(NEW).to_numpy()

    found = Explanation.of(fitted_of(model), NEW, known)

    right = model.explain(NEW, top=3)
    pd.testing.assert_frame_equal(found.table(3), right, check_exact=True)
