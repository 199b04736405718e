"""The judge of `make chaos` sees what is wrong."""

import json
from types import SimpleNamespace

import pandas as pd
import pytest

from chaos import checker
from chaos.history import History
from chaos.job import Place, Undisturbed, model_in, parts_in


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


def test_problems__none_of_what_went_well(cluster, undisturbed):
    assert checker.problems_of_result(cluster, undisturbed) == []


def test_problems__one_bit_of_a_p_value(cluster, undisturbed):
    path = cluster.folder / "out" / "part-00001.parquet"
    table = pd.read_parquet(path)
    table.loc[1, "p_value"] += 2**-54
    table.to_parquet(path)

    assert checker.problems_of_result(cluster, undisturbed) == ["the parts have other bits"]


def test_problems__a_block_twice(cluster, undisturbed):
    data = cluster.folder / "model" / "data-1234"
    (data / "block-00002.parquet").write_bytes((data / "block-00001.parquet").read_bytes())

    assert checker.problems_of_result(cluster, undisturbed) == ["the model has other bits"]


@pytest.mark.parametrize(
    "name",
    ["out/_lock.json", "out/.part-00001.1a2b.tmp", "model/data-5"],
)
def test_problems__what_is_left(cluster, undisturbed, name):
    (cluster.folder / name).touch()

    [problem] = checker.problems_of_result(cluster, undisturbed)

    assert name.rpartition("/")[2] in problem


def test_watcher__half_a_part(cluster, undisturbed, history):
    path = cluster.folder / "out" / "part-00000.parquet"
    path.write_bytes(path.read_bytes()[:-7])
    watcher = checker.Watcher(cluster.folder / "out", undisturbed, history)

    watcher.look()

    [problem] = watcher.problems
    assert problem.startswith("part-00000.parquet cannot be read")


def test_watcher__a_summary_before_the_last_part(cluster, undisturbed, history):
    (cluster.folder / "out" / "part-00000.parquet").unlink()
    watcher = checker.Watcher(cluster.folder / "out", undisturbed, history)

    watcher.look()

    assert watcher.problems == ["a summary beside 1 parts"]


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
