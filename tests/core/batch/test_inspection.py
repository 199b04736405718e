"""`lpe-dask inspect`: what a saved model is, from its manifest."""

import json
from pathlib import Path

import dask
import numpy as np
import pandas as pd
import pytest

import lpe_dask
from calling import invoke
from lpe_dask import LPE
from lpe_dask.batch.inspection import inspect_model
from lpe_dask.storage import StoredFile

SECRET = "Smith"


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="sync"):
        yield


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A folder with a model of every kind of column, in groups."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.standard_normal((90, 2)), columns=["x", "y"])
    table["name"] = rng.choice([SECRET, "Jones", "Doe"], 90)
    table["site"] = rng.choice([f"at {SECRET}", "b"], 90)
    table.loc[4, "x"] = np.nan
    table.loc[5, "site"] = "rare"
    arguments = {"categorical": ["name"], "by": ["site"], "missing": "drop"}
    model = LPE(3, calibration="conformal", random_state=0, **arguments).fit(table)
    model.save("model")
    return model


def content_of(path="model"):
    done = invoke("inspect", path, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_inspect__says_what_was_fitted(model):
    content = content_of()

    assert content["rows"] == {
        "nominal": 89, "dropped": 1, "confirmed_anomalies": 0,
        "calibration": len(model.calibration_),
        "reference": 89 - len(model.calibration_) - 1,
    }  # fmt: skip
    assert content["columns"] == [
        {"name": "x", "categories": None}, {"name": "y", "categories": None},
        {"name": "name", "categories": 3},
    ]  # fmt: skip
    groups = content["groups"]
    assert (groups["by"], groups["count"], groups["small"]) == (["site"], 3, 1)
    of_groups = model.groups_["nominal_rows"]
    assert (groups["least_rows"], groups["most_rows"]) == (1, of_groups.max())
    assert {*content["changed_parameters"]} == {
        "n_neighbors", "categorical", "by", "missing", "calibration", "random_state",
    }  # fmt: skip
    manifest = json.loads(Path("model/manifest.json").read_text())
    assert content["files"]["count"] == len(manifest["files"])
    on_storage = [path.stat().st_size for path in Path("model").glob("data-*/*")]
    assert content["files"]["bytes"] == sum(on_storage)
    assert content["created"] == manifest["created"]
    assert content["versions"] == manifest["versions"]
    assert [of["name"] for of in content["promises"]] == [
        "false alarms on average", "false alarms of this set", "can flag", "neighbors",
    ]  # fmt: skip


def test_inspect__of_a_model_of_a_run_has_what_its_summary_has(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = pd.DataFrame(
        np.random.default_rng(0).standard_normal((60, 2)), columns=["x", "y"]
    )
    rows.to_parquet("rows.parquet")
    Path("job.toml").write_text(
        '[nominal]\ndata = "rows.parquet"\n[model]\npath = "model"\n'
        '[score]\ndata = "rows.parquet"\noutput = "out/{date}"\n'
    )

    summary = lpe_dask.run("job.toml", date="2026-11-20")

    content = content_of()
    assert content["checksum"] == summary["model_checksum"]
    assert content["created"] == summary["model_created"]
    assert content["run_date"] == "2026-11-20"
    assert content["source"] is not None


def test_inspect__shows_no_values_of_categories_and_groups(model):
    texts = [invoke("inspect", "model", *more).output for more in ([], ["--json"])]

    assert "3 categories" in texts[0]
    assert "3 by site" in texts[0]
    assert all(SECRET not in text for text in texts)


def test_inspect__is_a_page_of_lines(model):
    lines = invoke("inspect", "model").stdout.splitlines()

    assert [line.split()[0] for line in lines if line[0] != " "] == [
        "model", "fitted", "checksum", "rows", "columns", "groups", "arguments", "search",
        "calibration", "decision", "storage", "promises",
    ]  # fmt: skip
    assert "rows         89 nominal, 1 dropped" in lines
    assert max(map(len, lines)) < 200


def test_inspect__names_some_of_many_columns(tmp_path):
    rows = np.random.default_rng(0).standard_normal((30, 30))
    LPE(3, scale="standard").fit(rows).save(tmp_path / "model")

    (line,) = (
        line
        for line in invoke("inspect", tmp_path / "model").stdout.splitlines()
        if line.startswith("columns")
    )

    assert line.endswith("18, 19, and 10 more")


def test_inspect__keeps_names_on_their_lines(tmp_path):
    rng = np.random.default_rng(0)
    names = ["a\nchecksum     00", "b\x1b[2J\u2028c", "d" * 50]
    table = pd.DataFrame(rng.standard_normal((40, 3)), columns=names)
    table["s\npromises " + "e" * 50] = 1
    LPE(3, by=[table.columns[-1]]).fit(table).save(tmp_path / "model")

    lines = invoke("inspect", tmp_path / "model").stdout.splitlines()

    first = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert first.count("checksum") == first.count("promises") == 1
    of = {line.split()[0]: line for line in lines}
    assert of["columns"] == f"columns      a checksum 00, b?[2J c, {'d' * 39}…"
    assert of["groups"].startswith(f"groups       1 by s promises {'e' * 28}…, of 40 to")


def test_inspect__shortens_values_of_arguments_but_in_json(tmp_path):
    rows = np.random.default_rng(0).standard_normal((300, 100))
    w = np.linspace(1, 2, 100).tolist()
    model = LPE(3, metric_params={"w": w}, random_state=5).fit(rows)
    model.save(tmp_path / "model")

    (line,) = (
        line
        for line in invoke("inspect", tmp_path / "model").stdout.splitlines()
        if line.startswith("arguments")
    )

    assert "metric_params={'w': [1.0, 1.01" in line
    assert line.endswith("…, random_state=5")
    assert len(line) < 120
    content = content_of(tmp_path / "model")
    assert content["parameters"]["metric_params"] == {"w": w}


def test_inspect__reads_no_blocks(model, monkeypatch):
    read = []
    content = StoredFile._content
    monkeypatch.setattr(
        StoredFile, "_content", lambda file: read.append(file.url) or content(file)
    )

    inspect_model("model")

    assert read
    assert [url for url in read if "/block-" in url] == []


def test_inspect__may_be_tried_later_if_a_storage_fails(model, monkeypatch):
    def refuse(*args, **kwargs):
        raise ConnectionError("reset by peer")

    monkeypatch.setattr("lpe_dask.storage.folder.read_regular", refuse)
    done = invoke("inspect", "model")

    assert done.exit_code == 75
    assert "reset by peer" in done.stderr


def remove_a_block():
    next(Path("model").glob("data-*/block-*")).unlink()


def cut_a_block():
    path = next(Path("model").glob("data-*/block-*"))
    path.write_bytes(path.read_bytes()[:-1])


def alter_the_manifest():
    path = Path("model/manifest.json")
    path.write_text(path.read_text().replace('"offset": 0.0', '"offset": 0.1'))


def remove_the_manifest():
    Path("model/manifest.json").unlink()


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (remove_a_block, "is missing"), (cut_a_block, "bytes"),
        (alter_the_manifest, "altered"), (remove_the_manifest, "there is no model"),
    ],
)  # fmt: skip
def test_inspect__refuses_a_damaged_model(damage, problem, model):
    damage()

    done = invoke("inspect", "model")

    assert done.exit_code == 2
    assert done.stdout == ""
    assert "no model can be loaded from model" in done.stderr
    assert problem in done.stderr
