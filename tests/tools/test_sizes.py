"""cluster/sizes.py, by small tables of several files."""

import re
import runpy

import pyarrow.dataset
import pytest

from recipes import CLUSTER


@pytest.fixture
def script():
    names = runpy.run_path(str(CLUSTER / "sizes.py"))
    names["main"].__globals__["FILE_ROWS"] = 400
    return names


def test_tables__are_several_files(script, tmp_path):
    script["write_table"](tmp_path, 1000, 3)

    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["00.parquet", "01.parquet", "02.parquet"]
    assert pyarrow.dataset.dataset(files).count_rows() == 1000


def test_sizes__are_forecast(script, capsys):
    script["main"]([(1000, 3, 4)])

    *_, line = capsys.readouterr().out.splitlines()
    *given, n_neighbors, n_workers, memory, time = line.strip("| ").split(" | ")
    assert given == ["1,000", "3"]
    assert (n_neighbors, n_workers) == ("16", "4")
    assert re.fullmatch(r"[\d,]+ MiB", memory)
    assert re.fullmatch(r"[\d.]+ s", time)
