"""The judge of `make chaos` sees what is wrong."""

import io
import json
from types import SimpleNamespace

import pandas as pd
import pytest

from chaos import checker
from chaos.history import History
from chaos.job import Place, Undisturbed, model_in
from digests import parts_in


@pytest.fixture
def cluster(tmp_path):
    """Give what a run left that went well: two parts, and a model of two blocks."""
    out, data = tmp_path / "out", tmp_path / "model" / "data-1234"
    for folder in (out, data, tmp_path / "spool"):
        folder.mkdir(parents=True)
    for i in range(2):
        table = pd.DataFrame({"name": ["r", "s"], "p_value": [0.5, i / 4]})
        table.to_parquet(out / f"part-{i:05}.parquet")
        block = pd.DataFrame({"number": [i, i + 2], "x0": [1.0, 2.0]})
        block.to_parquet(data / f"block-{i:05}.parquet")
    pd.DataFrame({"statistic": [1.0]}).to_parquet(data / "calibration.parquet")
    (tmp_path / "model" / "manifest.json").write_text("{}")
    (out / "_summary.json").write_text("{}")
    return SimpleNamespace(
        folder=tmp_path,
        place=Place("", str(tmp_path)),
        writes=tmp_path / "writes.jsonl",
    )


@pytest.fixture
def undisturbed(cluster):
    return Undisturbed(
        parts_in(f"{cluster.folder}/out"), model_in(f"{cluster.folder}/model")
    )


@pytest.fixture
def history(tmp_path):
    with History(tmp_path / "history.jsonl") as history:
        yield history


def one_bit(content):
    table = pd.read_parquet(io.BytesIO(content))
    table.loc[1, "p_value"] += 2**-54
    return table.to_parquet()


def twice(content):
    table = pd.read_parquet(io.BytesIO(content))
    return pd.concat([table, table], ignore_index=True).to_parquet()


PART, BLOCK = "out/part-00001.parquet", "model/data-1234/block-00001.parquet"


@pytest.mark.parametrize(
    ("name", "change", "problem", "seen"),
    [
        (PART, one_bit, "parts have other bits", "has other bits when it is first seen"),
        (PART, lambda content: content[:-7], "bits of the result cannot", "cannot be read"),
        (PART, None, "parts have other bits", "a summary beside 1 parts"),
        (BLOCK, twice, "the model has other bits", None),
        ("out/_lock.json", bytes, "_lock.json", None),
        ("out/.part-00001.1a2b.tmp", bytes, "1a2b.tmp", None),
        ("model/data-5", bytes, "data-5", None),
    ],
)
def test_problems__are_those_of_a_change(
    cluster, undisturbed, history, name, change, problem, seen
):
    path = cluster.folder / name
    watcher = checker.Watcher(cluster.folder / "out", undisturbed, history)
    assert checker.problems_of_result(cluster, undisturbed) == []

    if change is None:
        path.unlink()
    else:
        path.write_bytes(change(path.read_bytes() if path.exists() else b""))
    watcher.look()

    [found] = checker.problems_of_result(cluster, undisturbed)
    assert problem in found
    assert [seen in found for found in watcher.problems] == [True] * (seen is not None)


def test_written_again__counts_writes_after_the_first(cluster):
    lines = [json.dumps({"part": part}) + "\n" for part in (0, 1, 0, 0)]
    cluster.writes.write_text("".join(lines))

    assert checker.written_again(cluster) == 2


def add_at(history, at, event, **said):
    history.add(event, **said)
    history.events[-1]["at"] = at


@pytest.mark.parametrize(
    ("host", "stopped_at", "n_parts"),
    [
        ("client", 25.0, 1 + 22),  # twice ten seconds after the cut, nobody had heard
        ("scheduler", 39.0, 1 + 22),
        ("client", 41.0, 1),
        ("worker-2", 25.0, 1),
    ],
)
def test_may_be_written_again__what_the_client_could_not_hear_of(
    history, host, stopped_at, n_parts
):
    add_at(history, 20.0, "injected", fault="link-cut", host=host, parts=7)
    add_at(history, 30.0, "healed", fault="link-cut", host=host)
    said = {"fault": "worker-stopped-for-good", "host": "worker-1", "parts": 29}
    add_at(history, stopped_at, "injected", **said)

    assert checker.may_be_written_again(history) == n_parts


@pytest.mark.parametrize(
    ("code", "said", "is_right"),
    [
        (0, "written to out", True),
        (1, "Error: no space left. Free some, and start it again.", True),
        (1, "Error: 'NoneType' object has no attribute 'key'", False),
        (1, "Traceback (most recent call last):\nOSError: start", False),
        (139, "Error: start again", False),
    ],
)
def test_ends__are_errors_that_say_what_to_do(history, code, said, is_right):
    history.add("job ended", code=code, said=said)

    assert (checker.problems_of_ends(history) == []) == is_right
