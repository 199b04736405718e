"""Tables in files whose columns are text, categories, booleans or whole numbers."""

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import lpe_dask
from choosing import mostly_full
from lpe_dask import LPE
from lpe_dask.batch.api import score_files

CATEGORICAL = ["zip", "flag", "port"]
#: In each form the same rows; those of the nominal ones tell that "zip" is text.
FORMS = {
    "csv": lambda frame, name: frame.to_csv(name, index=False),
    "text.parquet": lambda frame, name: frame.to_parquet(name),
    "dictionary.parquet": lambda frame, name: frame.astype(
        {"zip": "category", "port": "category"}
    ).to_parquet(name, row_group_size=7),
}


def rows(n_rows, seed, zips):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "id": np.arange(n_rows),
            "zip": rng.choice(zips, n_rows),
            "x": rng.integers(0, 5, n_rows) * 0.5,
            "flag": rng.integers(0, 2, n_rows) == 1,
            "port": rng.choice([80, 443], n_rows),
        }
    )


NOMINAL = rows(80, 0, ["007", "7", "a"])
#: Looks like numbers from beginning to end.
NEW = rows(20, 1, ["007", "7", "12"])
COLUMNS = ["zip", "x", "flag", "port"]


def expected(**arguments):
    return LPE(3, categorical=CATEGORICAL, **arguments).fit(NOMINAL[COLUMNS])


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for ending, write in FORMS.items():
        write(NOMINAL, f"nominal.{ending}")
        write(NEW, f"new.{ending}")
    return tmp_path


JOB = """
[nominal]
data = "nominal.{nominal}"
columns = ["zip", "x", "flag", "port"]
[model]
path = "model"
n_neighbors = 3
categorical = ["zip", "flag", "port"]
[score]
data = "new.{new}"
output = "scored"
"""


def run(nominal="csv", new="csv", change=("", "")):
    job = JOB.format(nominal=nominal, new=new).replace(*change)
    Path("job.toml").write_text(job)
    return lpe_dask.run("job.toml")


@pytest.mark.parametrize(
    ("nominal", "new"),
    mostly_full(
        itertools.product(FORMS, FORMS),
        [
            ("csv", "csv"),
            ("csv", "text.parquet"),
            ("text.parquet", "dictionary.parquet"),
            ("dictionary.parquet", "csv"),
        ],
    ),
)
def test_score_files__in_all_forms(nominal, new):
    arguments = {"columns": COLUMNS, "categorical": CATEGORICAL, "n_neighbors": 3}
    if nominal == "csv" != new:  # categories of a CSV are text
        with pytest.raises(TypeError, match=r"'port' has whole .* to text"):
            score_files(f"new.{new}", "out", nominal="nominal.csv", **arguments)
        return
    summary = score_files(f"new.{new}", "out", nominal=f"nominal.{nominal}", **arguments)

    written, model = pd.read_parquet("out"), expected()
    np.testing.assert_array_equal(written["p_value"], model.score_samples(NEW))
    np.testing.assert_array_equal(written["statistic"], model.statistic(NEW))
    assert written["zip"].tolist() == NEW["zip"].tolist()
    assert summary["parameters"]["categorical"] == CATEGORICAL
    assert run(nominal, new)["rows"] == 20  # with a model that was saved and loaded
    pd.testing.assert_frame_equal(pd.read_parquet("scored"), written)
    assert run(nominal, new) is None  # nothing to do
    with pytest.raises(ValueError, match=r"categorical=\['zip', 'flag', 'port'\] instead"):
        run(nominal, new, ('"flag", "port"]\n[score]', '"flag"]\n[score]'))


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ('["zip", "flag", "port"]\n[s', '"zip"\n[s', "job.toml, .*='zip' must be"),
        ('["zip", "flag", "port"]\n[s', "3\n[s", "job.toml, .* must be a list"),
        ("n_neighbors = 3", 'metric = "mahalanobis"', "job.toml, .model. categorical: "),
    ],
)
def test_job__says_what_is_wrong_with_its_categories(before, after, words):
    with pytest.raises(ValueError, match=words):
        run(change=(before, after))


def test_other_types__are_refused_with_the_name_of_the_file():
    NEW.assign(zip=5).to_parquet("whole.parquet")
    expected().save("model")

    words = r"whole.parquet: column 'zip' has whole numbers, but the nominal rows have text"
    learned = {"nominal": "nominal.csv", "columns": COLUMNS, "categorical": CATEGORICAL}
    for given in (learned, {"model": "model"}):
        with pytest.raises(TypeError, match=words):
            score_files("whole.parquet", "out", **given)


def test_missing_category__is_not_measured():
    NEW.assign(zip=[None, *NEW["zip"][1:]]).to_csv("holes.csv", index=False)

    summary = score_files(
        "holes.csv", "out", nominal="nominal.csv", columns=COLUMNS, categorical="auto"
    )

    assert summary["rows_nan"] == 1
    assert summary["parameters"]["categorical"] == "auto"
    assert pd.read_parquet("out")["p_value"].isna().tolist() == [True, *[False] * 19]
