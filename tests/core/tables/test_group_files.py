"""Tables in files whose rows are divided into groups by columns that are not measured."""

import dask
import numpy as np
import pandas as pd
import pytest

import lpe_dask
from lpe_dask import LPE
from lpe_dask.tables import open_features

GIVEN = {"n_neighbors": 3, "alpha": 0.05}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A working directory with nominal and other rows in files of two formats."""
    monkeypatch.chdir(tmp_path)
    nominal, rows = table(0, 300), table(1, 40)
    rows.loc[3, "site"], rows.loc[5, "site"], rows.loc[7, "x"] = "zz", None, np.nan
    for name, frame in ("nominal", nominal), ("rows", rows):
        frame.to_parquet(f"{name}.parquet")
        frame.to_csv(f"{name}.csv", index=False)
    with dask.config.set(scheduler="sync"):
        yield


def table(seed, n_rows):
    """Rows of sites whose codes differ in leading zeros, and lie apart."""
    rng = np.random.default_rng(seed)
    site = rng.integers(0, 3, n_rows)
    return pd.DataFrame(
        {
            "x": rng.integers(0, 9, n_rows) / 2.0 + 5 * site,
            "site": np.array(["007", "7", "b"])[site],
            "y": rng.integers(0, 5, n_rows) / 4.0,
            "hour": rng.integers(0, 2, n_rows),
            "id": np.arange(n_rows) * 1000,
        }
    )


def frames():
    return pd.read_parquet("nominal.parquet"), pd.read_parquet("rows.parquet")


@pytest.mark.parametrize("ending", ["parquet", "csv"])
@pytest.mark.parametrize("by", ["site", ["site", "hour"]])
def test_score__of_files_is_that_of_their_frames(ending, by):
    nominal, rows = frames()
    unmeasured = ["id", "hour"] if by == "site" else ["id"]
    given = GIVEN | {"by": by}
    expected = lpe_dask.score(rows, nominal, columns=["x", "y"], **given)
    own = lpe_dask.score(nominal, columns=["x", "y"], **given)

    for chosen in {"columns": ["x", "y"]}, {"exclude": unmeasured}:
        found = lpe_dask.score(f"rows.{ending}", f"nominal.{ending}", **chosen, **given)
        np.testing.assert_array_equal(found.compute(), expected)
        found = lpe_dask.score(f"nominal.{ending}", **chosen, **given)
        np.testing.assert_array_equal(found.compute(), own)
    assert expected.isna().sum() == 3


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_fit__measures_all_columns_but_those_of_groups(ending):
    nominal, rows = frames()

    model = LPE(by=["site"], **GIVEN).fit(f"nominal.{ending}")

    assert model.feature_names_in_.tolist() == ["x", "y", "hour", "id"]
    assert model.groups_["site"].tolist() == ["007", "7", "b"]
    expected = LPE(by=["site"], **GIVEN).fit(nominal).score_samples(rows)
    found = model.score_samples(f"rows.{ending}").compute()
    np.testing.assert_array_equal(found, expected)


def test_new_rows__of_a_csv_are_read_as_the_types_of_the_nominal_ones():
    _, rows = frames()
    model = LPE(by=["hour", "site"], **GIVEN).fit("nominal.parquet")

    np.testing.assert_array_equal(
        model.score_samples("rows.csv").compute(), model.score_samples(rows)
    )


def test_whole_numbers__are_no_groups_of_text():
    _, rows = frames()
    model = LPE(by=["hour", "site"], **GIVEN).fit("nominal.csv")  # as text

    assert model.groups_["hour"].unique().tolist() == ["0", "1"]
    assert model.score_samples("rows.csv").compute().notna().sum() == len(rows) - 3
    with pytest.raises(TypeError, match=r"'hour' has whole numbers.* have text"):
        model.score_samples(rows)


def test_keys_of_folders__divide_rows(tmp_path):
    nominal, rows = frames()
    for site, of_site in nominal.groupby("site"):
        folder = tmp_path / "nominal" / f"site={site}"
        folder.mkdir(parents=True)
        of_site.drop(columns="site").to_parquet(folder / "0.parquet")

    model = LPE(by=["site"], **GIVEN).fit("nominal")

    assert model.feature_names_in_.tolist() == ["x", "y", "hour", "id"]
    expected = LPE(by=["site"], **GIVEN).fit(nominal).score_samples(rows)
    np.testing.assert_array_equal(model.score_samples(rows), expected)


def test_positions__of_a_fitted_array_are_those_of_columns_in_files():
    nominal, rows = frames()
    names = ["x", "hour", "y"]
    rows[names].to_parquet("few.parquet")
    model = LPE(by=[1], **GIVEN).fit(nominal[names].to_numpy())

    expected = model.score_samples(rows[names].to_numpy())
    for found in (
        model.score_samples("few.parquet").compute(),
        model.score_samples(rows[names]),
    ):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("given", [{}, {"columns": ["x"]}, {"exclude": ["id"]}])
def test_columns__that_are_not_there_are_named_by_their_argument(given):
    with pytest.raises(ValueError, match=r"by=\['zz'\] names \['zz'\].*'x', 'site', 'y'"):
        lpe_dask.score("nominal.csv", by="zz", **given)


def test_open_features__has_columns_of_groups_last():
    table, frame = open_features("rows.csv", None, by=["hour", "site"])

    assert list(frame.columns) == ["x", "y", "id", "hour", "site"]
    assert frame["hour"].compute().tolist()[:2] == list(map(str, frames()[1]["hour"][:2]))
    assert table.kinds(["hour", "site"]) == ["text", "text"]
    for read in open_features, lpe_dask.score:
        given = {"given": ["x", "y"]} if read is open_features else {"columns": ["x", "y"]}
        with pytest.raises(ValueError, match=r"both name \['x'\]"):
            read("rows.csv", by=["x"], **given)
