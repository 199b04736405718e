"""What commands, and a program, import: modules are counted, as times differ by machine."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from choosing import mostly_full

#: What takes long to import, or much memory.
HEAVY = [
    "bokeh", "dask.array", "dask.dataframe", "dask_ml", "distributed", "fsspec",
    "matplotlib", "numba", "pandas", "pyarrow", "pyarrow.dataset", "pydantic",
    "pynndescent", "scipy.stats", "sklearn",
]  # fmt: skip

#: Files, and what Dask reads them with; jobs and summaries are checked by pydantic.
FILES = {"fsspec", "pandas", "pyarrow", "pyarrow.dataset", "pydantic"}
DASK, PAGE = {"dask.array", "dask.dataframe"}, {"matplotlib"}

SCORE = "score {folder}/table.parquet --output {folder}/new"

#: Commands, and what they may import.
COMMANDS = {
    "--help": set(),
    "score --help": set(),
    SCORE: FILES | DASK | PAGE,
    "score {folder}/table.parquet --output {folder}/no-page --no-report": FILES | DASK,
    "fit {folder}/table.parquet --model {folder}/model": FILES | DASK,
    "explain {folder}/out --top 2": FILES | DASK,
    "report {folder}/out": FILES | PAGE,
    "status {folder}/out": FILES,
    "inspect {folder}/saved": FILES,
    "schema": FILES,
    "plan {folder}/table.parquet": FILES | DASK | {"scipy.stats", "sklearn"},
}

PROGRAM = """
import sys
sys.modules["sparse"] = None  # Dask imports it where it is installed, and that numba
{body}
print("imported", *[name for name in {heavy} if name in sys.modules])
"""

RUN = """
from lpe_dask.cli.commands import cli
try:
    cli({arguments}, prog_name="lpe-dask")
except SystemExit as end:
    assert end.code == 0, end.code
"""


def imported(body):
    """Return which heavy modules a new process has imported."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(body=body, heavy=HEAVY)],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split()[1:])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A table of 300 rows, a run of it, and a model."""
    folder = tmp_path_factory.mktemp("imports")
    rows = np.random.default_rng(0).standard_normal((300, 3))
    pd.DataFrame(rows, columns=["a", "b", "c"]).to_parquet(folder / "table.parquet")
    table = str(folder / "table.parquet")
    for command in (["score", "--output", "out"], ["fit", "--model", "saved"]):
        name, option, target = command
        arguments = [name, table, option, str(folder / target)]
        subprocess.run([sys.executable, "-m", "lpe_dask", *arguments], check=True)
    return folder


def test_import__of_the_estimator():
    """It is there as soon as scikit-learn is; what opens files comes with a file."""
    may = {"pandas", "pyarrow", "sklearn", "scipy.stats"}

    assert imported("import lpe_dask; lpe_dask.LPE") <= may


@pytest.mark.parametrize(
    "command", mostly_full(COMMANDS, ["--help", "score --help", SCORE])
)
def test_import__of_commands(files, command):
    """No workers, no estimator, no compiler for what threads do at once."""
    arguments = command.format(folder=files).split()

    assert imported(RUN.format(arguments=arguments)) <= COMMANDS[command]


def test_import__of_what_a_worker_does():
    """A task of a search, before it needs compiled kernels."""
    modules = "search.join search.attribution batch.row_selection model.learning.scaling"
    body = "\n".join(f"import lpe_dask.{name}" for name in modules.split())

    assert imported(body) <= FILES - {"pydantic"}
