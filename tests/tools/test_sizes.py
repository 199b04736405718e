"""cluster/sizes.py, by small tables of several files."""

import os
import re
import runpy
import sys
from pathlib import Path

import pyarrow.dataset

from recipes import CLUSTER


def test_sizes__are_forecast_for_tables_of_several_files(tmp_path, monkeypatch):
    programs = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    sizes = runpy.run_path(str(CLUSTER / "sizes.py"))
    write_table, forecast = sizes["write_table"], sizes["forecast"]
    write_table.__globals__["FILE_ROWS"] = 400

    write_table(tmp_path, 1000, 3)
    n_neighbors, memory, time = forecast(str(tmp_path), 4)

    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["00.parquet", "01.parquet", "02.parquet"]
    assert pyarrow.dataset.dataset(files).count_rows() == 1000
    assert n_neighbors == "16"
    assert re.fullmatch(r"[\d,]+ MiB", memory)
    assert re.fullmatch(r"[\d.]+ s", time)
