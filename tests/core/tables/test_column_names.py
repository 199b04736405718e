"""Columns are known by their names, whatever these are; by position if there are none."""

from pathlib import Path

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import lpe_dask
from choosing import mostly_dealt
from lpe_dask import LPE
from lpe_dask.cli import commands
from lpe_dask.tables.column_names import resolve_names
from lpe_dask.tables.columns import select_positions
from lpe_dask.tables.table import Table

RNG = np.random.default_rng(0)
NOMINAL = RNG.integers(0, 9, (60, 3)) * [1.0, 10.0, 100.0]
QUERIES = RNG.integers(0, 9, (20, 3)) * [1.0, 10.0, 100.0]
NAMES = {
    "text": ["a", "b", "c"],
    "numbers": [0, 1, 2],
    "numbers of few bits": pd.Index(np.array([0, 1, 2], np.uint8)),
    "numbers of NumPy": pd.Index([*np.arange(3)], dtype=object),
    "mixed": ["1", 1, 15],
    "categories": pd.CategoricalIndex(["u", "v", "w"]),
}

#: Names that are neither text nor whole numbers.
ODD = {
    "fractions": [0.5, 1.5, np.nan],
    "booleans": [True, False, "c"],
    "tuples": [("a", 1), ("a", 2), ("b", 1)],
    "timestamps": pd.date_range("2026-11-22", periods=3),
    "none": pd.Index([None, "a", "b"], dtype=object),
}


def named(rows, names, kind="pandas"):
    names = names if isinstance(names, pd.Index) else pd.Index(names)
    frame = pd.DataFrame(rows).set_axis(names, axis=1)
    return frame if kind == "pandas" else dd.from_pandas(frame, npartitions=3)


FRAMES = NAMES, ["pandas", "dask"]


@pytest.mark.parametrize(("names", "kind"), mostly_dealt(*FRAMES))
def test_columns__of_any_name_are_found_by_it(names, kind, tmp_path):
    names = NAMES[names]
    nominal, queries = named(NOMINAL, names, kind), named(QUERIES, names, kind)
    model = LPE(3).fit(nominal)
    model.save(tmp_path / "model")
    expected = LPE(3).fit(NOMINAL).score_samples(QUERIES)

    for fitted in (model, lpe_dask.load(tmp_path / "model")):
        for order in ([0, 1, 2], [2, 0, 1]):
            actual = fitted.score_samples(select_positions(queries, order))
            np.testing.assert_array_equal(actual, expected)
        with pytest.raises(ValueError, match=r"lack the columns \[.*; needed are \["):
            fitted.score_samples(select_positions(queries, [0, 1]))
        actual = fitted.score_samples(queries.assign(note="text"))
        np.testing.assert_array_equal(actual, expected)
    p_values = lpe_dask.score(nominal, n_neighbors=3)
    np.testing.assert_array_equal(p_values, lpe_dask.score(NOMINAL, n_neighbors=3))
    assert lpe_dask.plan(queries, nominal, n_neighbors=3).n_features == 3


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_feature_names_in__are_for_text_alone_as_in_scikit_learn(names, tmp_path):
    model = LPE(3).fit(named(NOMINAL, names))
    model.save(tmp_path / "model")

    is_text = all(isinstance(name, str) for name in names)
    assert hasattr(model, "feature_names_in_") == is_text
    assert hasattr(lpe_dask.load(tmp_path / "model"), "feature_names_in_") == is_text


@pytest.mark.parametrize("kind", ["pandas", "dask"])
def test_names__that_stand_for_two_columns_are_refused(kind):
    once, twice = named(NOMINAL, [*"abc"], kind), named(NOMINAL, [*"aba"], kind)

    for refused, words in (
        (lambda: LPE(3).fit(twice), "a"),
        (lambda: lpe_dask.score(twice, columns=["a", "b"]), "a"),
        (lambda: lpe_dask.score(once, columns=["a", "b", "b"]), "b"),
        (lambda: LPE(3).fit(once[["a", "b"]]).score_samples(twice), "a"),
    ):
        with pytest.raises(ValueError, match=rf"\['{words}'\] occur more than once"):
            refused()


@pytest.mark.parametrize("names", [["x", "y", "z"], [2, 1, 0]])
def test_names__are_nothing_beside_an_array(names):
    """Where an array was fitted, or is scored, columns are found by position."""
    of_array, of_frame = LPE(3).fit(NOMINAL), LPE(3).fit(named(NOMINAL, names))
    expected = of_array.score_samples(QUERIES)
    frames = [named(QUERIES, names, kind) for kind in ("pandas", "dask")]

    for X in (QUERIES, da.from_array(QUERIES, chunks=(7, 3))):
        np.testing.assert_array_equal(of_array.score_samples(X), expected)
        np.testing.assert_array_equal(of_frame.score_samples(X), expected)
    of_frame.fit(NOMINAL)
    for X in frames:
        np.testing.assert_array_equal(of_array.score_samples(X), expected)
        np.testing.assert_array_equal(of_frame.score_samples(X), expected)


@pytest.mark.parametrize("kind", ["pandas", "dask"])
@pytest.mark.parametrize("names", ODD.values(), ids=ODD)
def test_names__are_text_or_whole_numbers(names, kind, at_most_computes):
    frame = named(NOMINAL, names, kind)

    with at_most_computes(0), pytest.raises(TypeError, match=r"text or whole numbers.*map"):
        LPE(3).fit(frame)
    frame.columns = list(map(str, frame.columns))
    LPE(3).fit(frame)


def test_table__calls_columns_by_their_names_in_messages():
    assert Table.of(named(NOMINAL, [1, "b", 2])).labels == ["1", "b", "2"]


@pytest.mark.parametrize(
    ("given", "names", "meant"),
    [
        (["0", "1"], [0, 1, 2], [0, 1]),
        (["0"], [0, "0"], ["0"]),
        (["x"], [0, 1], ["x"]),
        ([0], ["0"], [0]),
    ],
)
def test_as_given__takes_text_for_the_one_name_written_so(given, names, meant):
    assert resolve_names(given, names) == meant


@pytest.fixture
def numbered(tmp_path, monkeypatch):
    """A file with the columns 0, 1, 2 and 3, the last of which is text."""
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame(np.random.default_rng(0).standard_normal((50, 3)))
    frame.assign(**{"3": "text"}).rename(columns={"3": 3}).to_parquet("a.parquet")


def command(*arguments):
    return CliRunner().invoke(commands.cli, [*arguments, "--scheduler", "threads"])


@pytest.mark.usefixtures("numbered")
def test_cli__takes_columns_with_numbers_for_names():
    """Also as an error advises."""
    refused = command("score", "a.parquet", "--output", "out")
    assert "--columns 0,1,2" in refused.stderr
    chosen = ["--columns", "0,2"]
    for arguments in (
        ["fit", "a.parquet", "--model", "model", *chosen],
        ["score", "a.parquet", "--model", "model", "--output", "out", "--keep", "3,0"],
        ["score", "a.parquet", "--output", "again", "--nominal", "a.parquet", *chosen],
        ["score", "a.parquet", "--output", "advised", "--columns", "0,1,2"],
        ["plan", "a.parquet", "--nominal", "a.parquet", *chosen],
        ["plan", "a.parquet", "--model", "model", *chosen],
    ):
        result = command(*arguments)
        assert result.exit_code == 0, result.stderr

    assert list(pd.read_parquet("out").columns)[:2] == ["3", "0"]
    refused = command("score", "a.parquet", "--output", "other", "--columns", "0,7")
    assert refused.exit_code == 2
    assert "lack the columns ['7']" in refused.stderr


@pytest.mark.usefixtures("numbered")
@pytest.mark.parametrize("columns", ["[0, 2]", '["0", "2"]', '[0, "2"]'])
def test_run_job__takes_columns_with_numbers_for_names(columns):
    job = f"""
        nominal = {{data = "a.parquet", columns = {columns}}}
        model = {{path = "model"}}
        score = {{data = "a.parquet", output = "out", keep = [3]}}
    """
    Path("job.toml").write_text(job)

    result = command("run", "job.toml")

    assert result.exit_code == 0, result.stderr
    assert pd.read_parquet("out")["3"].eq("text").all()
    assert lpe_dask.load("model").n_features_in_ == 2
    Path("job.toml").write_text(job.replace(columns, "[true]"))
    assert "a list of column names" in command("run", "job.toml").stderr
