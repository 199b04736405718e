import math
import os
import subprocess
import sys

import dask
import llvmlite.binding
import pytest
from distributed import get_worker

from lpe_dask.search import costs as module
from lpe_dask.search.costs import Costs, machine_costs, measured_costs

COSTS = Costs(brute=(5.0, 1.0, 0.5), pruned=(7.0, 2.0, 0.25, 30.0, 4.0, 0.125))


def test_costs__are_sums_over_what_a_query_meets():
    assert COSTS.of_brute(10, 100) == 5 + 100 * (1 + 0.5 * 10)
    expected = 7 + 20 * (2 + 0.25 * 10) + 3 * (30 + 4 * 10) + 2 * 0.125 * 10**2
    assert COSTS.of_pruned(10, n_pairs=20, n_cells=3) == expected


@pytest.mark.parametrize(
    "given",
    [
        7,
        {},
        {"brute": [1, 1, 1]},
        {"brute": [1, 1], "pruned": [1] * 6},
        {"brute": [1, 1, 1], "pruned": [1] * 5},
        {"brute": [1, 1, -1], "pruned": [1] * 6},
        {"brute": [1, 1, "slow"], "pruned": [1] * 6},
        {"brute": 1, "pruned": [1] * 6},
        {"brute": "123", "pruned": "123456"},
        {"brute": [1, 1, math.nan], "pruned": [1] * 6},
        {"brute": [1, 1, 1], "pruned": [math.inf] * 6},
        {"brute": [1, 0, 0], "pruned": [1] * 6},
    ],
)
def test_machine_costs__says_what_configured_ones_must_be(given):
    with (
        dask.config.set({"lpe-dask.costs": given}),
        pytest.raises(ValueError, match=r"lpe-dask.costs is .* must be null, or have the"),
    ):
        machine_costs()


def test_machine_costs__are_those_configured():
    given = {"brute": [5, 1, 0.5], "pruned": [7, 2, 0.25, 30, 4, 0.125]}

    with dask.config.set({"lpe-dask.costs": given}):
        assert machine_costs() == COSTS


def test_measured_costs__are_those_of_pairs():
    told = measured_costs()

    assert told.of_brute(64, 10_000) > 2 * told.of_brute(4, 10_000)
    assert told.of_pruned(64, 5000, 100) > 2 * told.of_pruned(4, 5000, 100)
    assert told.of_pruned(64, 10_000, 100) > 0.8 * told.of_brute(64, 10_000)
    assert Costs.model_validate_json(told.model_dump_json()) == told


PROGRAM = """
import dask
from lpe_dask.search import costs
dask.config.set({"lpe-dask.costs": None})
measured = costs.measured_costs
made = costs.Costs(brute=(1.5, 1, 1), pruned=(1,) * 6)
costs.measured_costs = lambda: print("measured") or made
print(costs.machine_costs().brute)
"""


def test_machine_costs__are_measured_once_a_machine(tmp_path):
    environment = {**os.environ, "DASK_LPE_DASK__CACHE_FOLDER": str(tmp_path)}
    environment.pop("NUMBA_CACHE_DIR", None)

    def told():
        run = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return run.stdout.split("\n")[:-1]

    assert told() == ["measured", "(1.5, 1.0, 1.0)"]
    assert told() == ["(1.5, 1.0, 1.0)"]
    (path,) = tmp_path.rglob("costs-*.json")
    assert llvmlite.binding.get_host_cpu_name() in path.name


@pytest.mark.parametrize(
    "text", ["{", "", "[]", "7", "{}", '{"brute": [1], "pruned": []}', "\xff"]
)
def test_costs_here__are_measured_where_the_file_is_damaged(text, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "kernel_folder", lambda: tmp_path)
    monkeypatch.setattr(module, "measured_costs", lambda: COSTS)
    costs_here = module._costs_here.__wrapped__  # what is not remembered
    costs_here()
    (path,) = tmp_path.iterdir()
    path.write_text(text, "latin-1")

    assert costs_here() == COSTS

    monkeypatch.setattr(module, "measured_costs", lambda: pytest.fail("written before"))
    assert costs_here() == COSTS


def test_costs_here__are_those_of_the_process_that_was_first(tmp_path, monkeypatch):
    first = Costs(brute=(0, 7, 0), pruned=(0, 1, 0, 0, 0, 0))

    def measured_meanwhile():
        (tmp_path / path.name).write_text(first.model_dump_json())
        return COSTS

    monkeypatch.setattr(module, "kernel_folder", lambda: tmp_path)
    monkeypatch.setattr(module, "measured_costs", lambda: COSTS)
    costs_here = module._costs_here.__wrapped__
    assert costs_here() == COSTS
    (path,) = tmp_path.iterdir()
    path.unlink()
    monkeypatch.setattr(module, "measured_costs", measured_meanwhile)

    assert costs_here() == first


def test_costs_here__are_measured_where_no_kernel_can_be_kept(monkeypatch):
    monkeypatch.setattr(module, "kernel_folder", lambda: None)
    monkeypatch.setattr(module, "measured_costs", lambda: COSTS)

    assert module._costs_here.__wrapped__() == COSTS


def test_machine_costs__are_told_by_a_worker(client, monkeypatch):
    def costs_here():
        get_worker()  # fails anywhere else
        return COSTS

    monkeypatch.setattr(module, "_costs_here", costs_here)

    with dask.config.set({"lpe-dask.costs": None}):
        assert machine_costs() == COSTS


def test_write__needs_no_folder_that_can_be_written(tmp_path, caplog):
    path = tmp_path / "file" / "costs.json"
    path.parent.write_text("no folder")

    with caplog.at_level("INFO"):
        module._write(path, "{}")

    assert "each process measures costs anew" in caplog.text
    assert list(tmp_path.iterdir()) == [path.parent]


def test_write__leaves_nothing_behind_where_it_fails(tmp_path):
    path = tmp_path / "costs.json"
    path.mkdir()

    module._write(path, "{}")

    assert list(tmp_path.iterdir()) == [path]
