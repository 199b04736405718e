"""Benchmarks that the documents name and that are run by hand: they run, small."""

import re
from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from sklearn.datasets import load_breast_cancer

from benchmarks import (
    categories,
    coming_from,
    confirmed,
    first_minute,
    forecasts,
    forest,
    gaps,
    groups,
    large,
    service,
    sites,
)


def test_categories__are_timed_beside_numbers(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.random(300), "label": "normal", "part": "train"})
    table[categories.CATEGORICAL] = rng.choice(["a", "b"], (300, 3))
    table.to_parquet(tmp_path / "kdd99.parquet")
    monkeypatch.setenv("LPE_DASK_DATA", str(tmp_path))

    done = CliRunner().invoke(categories.main, ["--rows", "200", "--repeats", "1"])

    first, second = done.output.splitlines()
    assert first.startswith("38     columns, brute: ")
    assert first.endswith(" s, 1.00")
    assert second.startswith("38 + 3 columns, brute: ")


def test_coming_from__shows_what_each_library_flags(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    (tmp_path / "adbench").mkdir()
    rows = np.vstack([rng.standard_normal((800, 3)), rng.uniform(30, 60, (60, 3))])
    np.savez(tmp_path / "adbench" / "7_far.npz", X=rows, y=np.arange(860) >= 800)
    monkeypatch.setenv("LPE_DASK_DATA", str(tmp_path))
    monkeypatch.setattr(coming_from, "compile_kernels", lambda: None)
    nowhere = ("no-such-package",), coming_from.LIBRARIES["lpe_dask"][1]
    libraries = {
        label: library for label, library in coming_from.LIBRARIES.items() if not library[0]
    }
    monkeypatch.setattr(coming_from, "LIBRARIES", libraries | {"nowhere": nowhere})

    done = CliRunner().invoke(coming_from.main, ["--table", "far", "--draws", "2"])

    assert done.exit_code == 0, done.output
    assert done.stderr == "nowhere: left out, without no-such-package\n"
    lines = [line.strip("| ").split(" | ") for line in done.stdout.splitlines()[2:-1]]
    assert [line[0] for line in lines] == [*libraries]
    found = dict(zip([*libraries], lines, strict=True))
    assert found["lpe_dask"][1:3] == ["1.000", "1.000"]
    assert found["lpe_dask"][5] == "100.0%"
    assert all(float(line[3].strip("%")) < 10 for line in lines)


@pytest.mark.parametrize(("number", "needed"), [(0, ["pyod"]), (1, ["nonconform", "pyod"])])
def test_coming_from__code_of_others_prints_what_the_page_says(number, needed, capsys):
    """But for that of dqx, which needs a workspace."""
    for package in needed:
        pytest.importorskip(package)
    page = (Path(__file__).parents[2] / "docs" / "coming_from.md").read_text()
    table, labels = load_breast_cancer(as_frame=True, return_X_y=True)
    benign, malignant = table[labels == 1], table[labels == 0]
    given = {"nominal": benign[:250], "rows": pd.concat([benign[250:], malignant])}

    blocks = re.findall(
        r"^```{code-block} python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL
    )
    assert len(blocks) == 3
    exec(blocks[number], given)

    assert capsys.readouterr().out.strip() == blocks[number].rpartition("# ")[2].strip()


def test_confirmed__counts_what_is_found_and_left(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    (tmp_path / "adbench").mkdir()
    rows = np.vstack([rng.standard_normal((800, 3)), rng.uniform(6, 60, (60, 3))])
    np.savez(tmp_path / "adbench" / "7_far.npz", X=rows, y=np.arange(860) >= 800)
    monkeypatch.setenv("LPE_DASK_DATA", str(tmp_path))
    monkeypatch.setattr(confirmed, "N_NEW", 1000)

    done = CliRunner().invoke(confirmed.main, ["--draws", "1", "--top", "50"])

    assert done.exit_code == 0, done.output
    head, _, *lines = (line.split(" | ") for line in done.stdout.strip().splitlines())
    assert [line[0] for line in lines] == ["| made, scattered", "| made, group", "| far"]
    far = dict(zip(head, lines[-1], strict=True))
    assert float(far["found: as it is"]) < float(far["found: confirmed"]) == 1
    assert float(far["false: all"]) < float(far["false: trimmed"]) + 0.01
    lefts = [float(far[name].strip("| ")) for name in head[-3:]]
    assert lefts[0] > lefts[1] == 0


def test_first_minute__times_each_run_and_names_what_failed(monkeypatch):
    done = CliRunner().invoke(first_minute.main, ["--repeats", "1"])

    assert done.exit_code == 0, done.output
    lines = [line.split(" | ") for line in done.output.splitlines()[2:-1]]
    assert [line[0] for line in lines] == [f"| {label}" for label in first_minute.RUNS]
    assert lines[0][-1] == "1.00 |"
    broken = {"broken": ["-c", "raise OSError('no such thing')"]}
    monkeypatch.setattr(first_minute, "RUNS", broken)
    done = CliRunner().invoke(first_minute.main, ["--repeats", "1"])
    assert done.exit_code == 1
    assert "broken failed: " in done.output
    assert "no such thing" in done.output


@pytest.mark.slow
def test_forecasts__are_shown_beside_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(forecasts, "CASES", (("gaussian", "brute"),))
    monkeypatch.setattr(forecasts, "NEIGHBORS", (20,))

    given = ["--folder", tmp_path, "--rows", 1000, "--scheduler", "threads"]
    done = CliRunner().invoke(forecasts.main, list(map(str, given)))

    assert done.exit_code == 0, done.output
    assert "| one Gaussian | 1,000 | 20 | brute |" in done.output


@pytest.mark.parametrize("group", forest.GROUPS[:1] + forest.GROUPS[2:3])
def test_forest__is_shown_beside_ours(group, monkeypatch):
    monkeypatch.setattr(forest, "N_NOMINAL", 300)
    monkeypatch.setattr(forest, "N_NEW", 300)

    done = CliRunner().invoke(forest.main, ["--only", group, "--draws", "1"])

    assert done.exit_code == 0, done.output
    head, _, *lines = (
        line.strip("| ").split(" | ") for line in done.stdout.strip().splitlines()
    )
    assert len(head) == 1 + 2 * len(forest.CONTENDERS)
    kinds = [line[0] for line in lines]
    assert kinds == [kind for kind, _ in forest.problems(group, 0)]
    assert all(any(cell.startswith("**") for cell in line) for line in lines)


def test_forest__judges_what_it_has_not_fitted():
    made = forest.of_made(forest.GROUP, seed=0, n_nominal=50, n_mixed=20)

    assert made.is_anomaly.sum() == forest.N_ANOMALIES - 20
    assert (made.nominal[:20] > 1).all(axis=None)
    assert not (made.rows[~made.is_anomaly] > 1).all(axis=1).all()
    both = pd.concat([made.nominal, made.rows])
    assert not both.duplicated().any()


def test_gaps__are_counted_by_rows_and_reasons(monkeypatch):
    monkeypatch.setattr(gaps, "N_NOMINAL", 60)
    monkeypatch.setattr(gaps, "N_NEW", 2000)

    done = CliRunner().invoke(gaps.main, ["--sets", "2", "--alpha", "0.9"])

    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert [line.split(":")[0] for line in lines] == [*gaps.REASONS]
    assert all("all: 0." in line and "1 gaps" in line for line in lines)


def test_groups__of_one_size_are_timed_beside_a_loop():
    given = ["equal", "--rows", "600", "--groups", "6", "--applied", "3", "--repeats", "1"]

    done = CliRunner().invoke(groups.main, given)

    assert done.exit_code == 0, done.output
    names = ["plain loop", "kernel", "  with packing", "score", "apply"]
    assert [line.split(":")[0] for line in done.output.splitlines()[-5:]] == names
    assert done.output.count("the same bits") == 2


def test_groups__one_is_timed_beside_none():
    done = CliRunner().invoke(groups.main, ["one", "--rows", "300", "--repeats", "1"])

    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()[-2:]
    assert [line.split(",")[0] for line in lines] == ["one Gaussian", "20 clusters"]
    assert all(line.endswith("(at most 1.05); the same bits") for line in lines)


@pytest.mark.slow
def test_groups__by_zipf_are_scored_by_small_workers():
    given = ["zipf", "--rows", "4000", "--groups", "50", "--partitions", "2"]

    done = CliRunner().invoke(groups.main, given)

    assert done.exit_code == 0, done.output
    assert "4,000 rows x 5 in 50 groups" in done.output
    assert done.output.count("worker: peak") == 2


def test_zipf__makes_the_first_of_n_groups_about_n_times_the_last():
    frame = groups.drawn_by_zipf(0, 50_000, 2, 10)

    sizes = frame["group"].value_counts()

    assert sizes.index.tolist() == list(range(10))
    assert 9 < sizes[0] / sizes[9] < 11


def test_sites__are_flagged_by_kinds_and_models(monkeypatch):
    monkeypatch.setattr(sites, "N_NEW", 50)
    monkeypatch.setattr(sites, "N_ROWS", sites.N_ROWS // 4)

    done = CliRunner().invoke(sites.main, ["--sets", "1", "--alpha", "0.3"])

    assert done.exit_code == 0, done.output
    lines = [line.strip("| ").split(" | ") for line in done.output.splitlines()[2:]]
    assert [line[0] for line in lines] == [*sites.SITES]
    without, _, within = ([*map(float, cell.split(" / "))] for cell in lines[3][1:])
    assert within[0] > 0.8  # of the anomalies are found
    assert within[2] < without[2] - 0.2  # of the site that is flagged most


@pytest.mark.parametrize("where", large.WHERE)
def test_large__compares_rows_with_brute_force(tmp_path, where):
    given = ["--folder", str(tmp_path), "--rows", "3000", "--where", where]
    done = CliRunner().invoke(large.main, [*given, "--in-this-process"])

    assert done.exit_code == 0, done.output
    cells = done.output.strip(" |\n").split(" | ")
    assert len(cells) == len(large.HEAD)
    assert cells[0] == "3,000"
    assert cells[-1] == "50 of 50 equal"


def test_large__says_where_rows_are_not_equal(tmp_path):
    frame = dd.from_pandas(pd.DataFrame({"x": np.arange(100.0) ** 2}), npartitions=2)
    p_values = np.linspace(0, 1, 100)

    assert large.judged(frame, 20, np.sort(p_values), p_values) == "0 of 50 equal"


# Python 3.12 and later warn of forks while threads run.
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_service__times_each_call():
    arguments = ["--nominal", "200", "--columns", "2", "--repeats", "8"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lpe_dask.compile_kernels", lambda: None)
        done = CliRunner().invoke(service.main, arguments)

    lines = [line.split("|")[1:4] for line in done.output.strip().splitlines()[2:]]
    found = [tuple(part.strip() for part in line) for line in lines]
    places = ["1 thread", "8 threads", "a fork"]
    assert found == [
        (method, str(n_rows), place)
        for method in service.METHODS
        for n_rows in service.N_ROWS
        for place in places
    ]
