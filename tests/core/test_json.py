"""JSON files: schemas describe what real runs write, and readers ignore other keys."""

import copy
import json
import shutil
from pathlib import Path

import dask
import jsonschema
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import lpe_dask
from indexes import right_lists
from lpe_dask.batch.api import score_files
from lpe_dask.batch.explanations import explain_output
from lpe_dask.batch.fingerprint import read_fingerprint
from lpe_dask.batch.inspection import inspect_model
from lpe_dask.batch.part_stats import PartStats
from lpe_dask.batch.parts import PartFolder
from lpe_dask.batch.status import read_status
from lpe_dask.kernels import nn_descent
from lpe_dask.model.persistence import manifest
from lpe_dask.storage.lock import Lock

DOCS = Path(__file__).parents[2] / "docs"
SCHEMAS = {  # job.json is that of a file that is read: batch/test_json_schema.py
    path.stem: json.loads(path.read_text())
    for path in DOCS.glob("schemas/*.json")
    if path.stem != "job"
}
DAYS = ("2026-11-01", "2026-11-02")
JOB = """
[nominal]
data = "nominal.parquet"
columns = ["x", "y", "kind", "secret"]
missing = "drop"
[model]
path = "model"
check_calibration = true
scale = "standard"
categorical = ["kind"]
calibration = "conformal"
random_state = 0
[score]
data = "{date}.parquet"
output = "full/{date}"
fdr = 0.5
private = ["secret"]
rows = "flagged"
format = "jsonl"
[drift]
"""


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="sync"):
        yield


def table(seed, n_rows=150):
    rng = np.random.default_rng(seed)
    numbers = rng.standard_normal((n_rows, 3)).round(2)
    frame = pd.DataFrame(numbers, columns=["x", "y", "secret"])
    frame["kind"] = rng.choice(["a", "b"], n_rows)
    frame["id"] = [f"row {i}" for i in range(n_rows)]
    frame.loc[3, "x"], frame.loc[7, "y"] = np.nan, 99.0
    return frame


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder with the runs of a job of all options, the plainest run, and models."""
    folder = tmp_path_factory.mktemp("json")
    with pytest.MonkeyPatch.context() as patch, dask.config.set(scheduler="sync"):
        patch.chdir(folder)
        patch.setattr(nn_descent, "neighbor_lists", right_lists)
        table(0, 900).to_parquet("nominal.parquet")
        Path("job.toml").write_text(JOB)
        for seed, day in enumerate(DAYS, 1):
            frame = table(seed)
            frame.loc[9:50, "kind"] = "new"
            frame.to_parquet(f"{day}.parquet")
            lpe_dask.run("job.toml", date=day)
        Path("first.toml").write_text(
            JOB.replace("full/", "first/")
            .replace("conformal", "loo")
            .replace('path = "model"', 'path = "loo"')
        )
        for day in reversed(DAYS):  # the earlier day forks the series of the later one
            lpe_dask.run("first.toml", date=day)
        Path("refit.toml").write_text(
            JOB.replace("full/", "refit/")
            .replace('"nominal.parquet"', '["nominal.parquet", "{date}.parquet"]')
            .replace('path = "model"', 'path = "renewed"\nrefit = "every 1 day"')
        )
        outcomes = [lpe_dask.run("refit.toml", date=day)["refit"] for day in DAYS]
        assert outcomes[0] is None
        assert outcomes[1]["outcome"] == "swapped"
        rows = table(1).drop(columns=["kind", "id"]).dropna()
        rows.to_csv("rows.csv", index=False, sep=";")
        score_files("rows.csv", "plain", csv={"separator": ";"})
        of_groups = {"nominal": "nominal.parquet", "columns": ["x", "y"], "by": "kind"}
        of_groups["missing"] = "drop"
        score_files(f"{DAYS[0]}.parquet", "grouped", **of_groups, calibration="conformal")
        score_files(f"{DAYS[0]}.parquet", "found", **of_groups, own=("neighbors",), fdr=0.9)
        models = {
            "quantile": {"scale": "minmax+quantile", "metric_params": {"w": [1, 2, 1]}},
            "geodesic": {"metric": "geodesic"},
            "mahalanobis": {"metric": "mahalanobis", "graph": "radius", "radius": 1.0},
            "approximate": {"algorithm": "nn_descent"},
            "gaps": {"missing": "measure", "metric_params": {"w_missing": 2.0}},
            "groups": {"by": ["kind"], "scale": "minmax+quantile", "alpha": 0.2},
        }
        for name, arguments in models.items():
            kind = np.where(np.arange(len(rows)) % 2, "a", "b")
            given = rows.assign(kind=kind) if name == "groups" else rows
            lpe_dask.LPE(**arguments).fit(given).save(name)
        score_files("rows.csv", "approximated", model="approximate", csv={"separator": ";"})
    return folder


def metadata_of(part):
    return json.loads(pq.read_metadata(part).metadata[b"lpe_dask"])


def contents(folder):
    """All that there is, with the name of its schema."""
    summaries = [json.loads(path.read_text()) for path in folder.glob("**/_summary.json")]
    yield from (("summary", summary) for summary in summaries)
    yield from (
        ("drift_state", summary["drift"]["state"])
        for summary in summaries
        if "state" in summary["drift"]
    )
    for path in folder.glob("*/manifest.json"):
        yield "manifest", json.loads(path.read_text())
        content = inspect_model(str(path.parent)).content
        yield "inspection", json.loads(json.dumps(content, allow_nan=False))
    for path in folder.glob("**/part-*"):
        yield "part_metadata", metadata_of(path)


def closed(schema):
    """A schema that allows no keys but those that it describes."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    inside = {name: closed(value) for name, value in schema.items()}
    is_object = isinstance(schema.get("properties"), dict)
    return inside | ({"additionalProperties": False} if is_object else {})


def test_schemas__describe_each_key_of_real_runs(written):
    validators = {
        name: jsonschema.Draft202012Validator(closed(schema))
        for name, schema in SCHEMAS.items()
    }
    found = list(contents(written))

    for name, content in found:
        problems = [
            f"{e.json_path}: {e.message}" for e in validators[name].iter_errors(content)
        ]
        assert problems == [], name
    assert {name for name, _ in found} == set(SCHEMAS)


def properties_of(schema):
    """All properties of a schema, by name."""
    if isinstance(schema, dict):
        for name, value in schema.items():
            if name == "properties":
                yield from value.items()
            yield from properties_of(value)


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas__say_what_each_key_is(name):
    schema = SCHEMAS[name]

    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["properties"]["format"]["const"] == 1
    assert [
        key for key, value in properties_of(schema) if not value.get("description")
    ] == []
    text = (DOCS / "reference" / "output.md").read_text()
    assert [key for key in schema["properties"] if f"`{key}`" not in text] == []
    assert f"(../schemas/{name}.json)" in text


# Additions


def with_more(content, schema):
    """Content with a key more in each object that a schema describes."""
    if isinstance(content, list):
        return [with_more(item, schema.get("items", {})) for item in content]
    if not isinstance(content, dict) or "properties" not in schema:
        return content
    known = {
        name: with_more(value, schema["properties"].get(name, {}))
        for name, value in content.items()
    }
    return known | {"more": {"than": ["known"]}}


def add_to_summary(output):
    path = Path(output, "_summary.json")
    schema = copy.deepcopy(SCHEMAS["summary"])
    del schema["properties"]["fingerprint"]["properties"]["settings"]["properties"]
    schema["properties"]["drift"]["properties"]["state"] = SCHEMAS["drift_state"]
    content = with_more(json.loads(path.read_text()), schema)
    assert "more" in content["drift"]["state"]["runs"][0]
    path.write_text(json.dumps(content))


@pytest.fixture
def runs(written, tmp_path, monkeypatch):
    """A copy of the runs with all options, in the current folder."""
    shutil.copytree(written, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")


def test_additions_to_a_summary__are_ignored(runs, caplog):
    first, second = (f"full/{day}" for day in DAYS)
    before = lpe_dask.run("job.toml", date=DAYS[1], overwrite=True)["drift"]
    told = str(read_status(second))
    page = Path(lpe_dask.report(second)).read_text()
    reasons = explain_output(second)
    fingerprint = read_fingerprint(second)
    for output in (first, second):
        add_to_summary(output)

    assert str(read_status(second)) == told
    assert Path(lpe_dask.report(second)).read_text() == page
    pd.testing.assert_frame_equal(explain_output(second), reasons)
    assert read_fingerprint(second) == fingerprint
    after = lpe_dask.run("job.toml", date=DAYS[1], overwrite=True)["drift"]
    assert after == before
    assert after["predecessor"]["date"] == DAYS[0]
    assert "passed over" not in caplog.text


def test_additions_to_a_manifest__are_ignored(runs):
    for path in Path().glob("*/manifest.json"):
        model = lpe_dask.load(path.parent)
        content = with_more(json.loads(path.read_text()), SCHEMAS["manifest"])
        content["parameters"]["more"] = 1
        del content["sha256"], content["parameters"]["aggregation"]  # it has a default
        content["sha256"] = manifest._digest(content)
        path.write_text(json.dumps(content))

        loaded = lpe_dask.load(path.parent)

        rows = table(2)[[*model.feature_names_in_, *(model.by or [])]]
        expected = model.score_samples(rows)
        pd.testing.assert_series_equal(
            loaded.score_samples(rows), expected, check_exact=True
        )
        assert loaded.get_params() == model.get_params()


def test_additions_to_a_part__are_ignored(runs):
    output = f"full/{DAYS[0]}"
    (part,) = Path(output).glob("part-*")
    stored, content = pq.read_table(part), metadata_of(part)
    more = with_more(content, SCHEMAS["part_metadata"])
    changed = stored.schema.metadata | {b"lpe_dask": json.dumps(more).encode()}
    pq.write_table(stored.replace_schema_metadata(changed), part)

    folder = PartFolder(output, 1, Lock(output))
    known = folder.read_stats([content["fingerprint"]])

    total = PartStats.merge([known[0], PartStats.from_json(content)], "knn")
    twice = PartStats.merge([PartStats.from_json(content)] * 2, "knn")
    assert total.as_json() == twice.as_json()
    assert known[0].as_json().keys() == content.keys() - {"format", "fingerprint", "part"}


def test_additions_to_a_lock__are_ignored(tmp_path):
    with Lock(tmp_path).hold("score a table"):
        path = tmp_path / Lock.NAME
        who = Lock(tmp_path).owner()
        path.write_text(json.dumps(json.loads(path.read_text()) | {"more": 1}))

        assert "score a table" in who
        assert Lock(tmp_path).owner().partition(";")[0] == who.partition(";")[0]
