"""cluster/sizes.py prints forecasts of tables of one file and of several."""

import runpy
from pathlib import Path

import pyarrow.dataset

ROOT = Path(__file__).parents[3]
SCRIPT = runpy.run_path(str(ROOT / "cluster" / "sizes.py"))


def test_tables__have_the_rows_that_are_asked_for(tmp_path, monkeypatch):
    monkeypatch.setitem(SCRIPT["write_table"].__globals__, "FILE_ROWS", 500)

    SCRIPT["write_table"](tmp_path, 1500, 3)

    assert len(list(tmp_path.iterdir())) == 3
    table = pyarrow.dataset.dataset(tmp_path)
    assert (table.count_rows(), len(table.schema)) == (1500, 3)


def test_sizes__are_forecast(capfd, monkeypatch):
    monkeypatch.setitem(SCRIPT["main"].__globals__, "FILE_ROWS", 500)

    SCRIPT["main"]([(1000, 3, 2)])

    *_, line = capfd.readouterr().out.splitlines()
    n_rows, n_columns, _, n_workers, memory, time = line.strip("| ").split(" | ")
    assert (n_rows, n_columns, n_workers) == ("1,000", "3", "2")
    assert memory.endswith(" MiB")
    assert float(time.split()[0]) > 0
