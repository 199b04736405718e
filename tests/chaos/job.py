"""The tables, the job, and its parts where nothing disturbs it."""

import os
import subprocess
from dataclasses import dataclass

import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa

from calling import COMMAND
from digests import digest_of_table, parts_in, read_table

#: So many that what tasks read of the fit is above 1 MiB, and goes by the spool.
NOMINAL_ROWS = 150_000
N_PARTS, PART_ROWS = 40, 500

JOB = """
[nominal]
data = "{inputs}/nominal.parquet"
columns = ["a", "b", "c"]

[model]
path = "{outputs}/model"
n_neighbors = 10

[score]
data = "{inputs}/rows"
output = "{outputs}/out"
"""

#: A job that makes a spool of its own, and removes those of the dead.
NEXT = """
[nominal]
data = "{inputs}/nominal.parquet"

[model]
n_neighbors = 10

[score]
data = "{inputs}/rows/000.parquet"
output = "{outputs}/next"
"""


@dataclass
class Place:
    """Where a run reads and writes: folders or URLs."""

    inputs: str
    outputs: str

    def write_job(self, path, text=JOB):
        path.write_text(text.format(inputs=self.inputs, outputs=self.outputs))


def write_tables(folder):
    """Write rows on a grid, where distances tie, with a text and a missing value."""
    rng = np.random.default_rng(0)
    names = ["a", "b", "c"]
    nominal = rng.integers(0, 1000, (NOMINAL_ROWS, 3)) * 0.125
    pd.DataFrame(nominal, columns=names).to_parquet(folder / "nominal.parquet")
    (folder / "rows").mkdir()
    for i in range(N_PARTS):
        rows = rng.integers(-100, 1100, (PART_ROWS, 3)) * 0.125
        rows[i, 0] = np.nan
        part = pd.DataFrame(rows, columns=names)
        part["name"] = [f"{i}-{k}" for k in range(PART_ROWS)]
        part.to_parquet(folder / "rows" / f"{i:03}.parquet")


@dataclass
class Undisturbed:
    """What the job gives with ``--scheduler threads``: digests by name."""

    parts: dict
    model: dict

    @classmethod
    def of(cls, folder):
        place = Place(str(folder), str(folder / "undisturbed"))
        place.write_job(folder / "undisturbed.toml")
        command = [COMMAND, "run", folder / "undisturbed.toml", "--scheduler", "threads"]
        subprocess.run(command, check=True, capture_output=True, env=plain_environment())
        found = cls(parts_in(f"{place.outputs}/out"), model_in(f"{place.outputs}/model"))
        assert len(found.parts) == N_PARTS
        return found


def plain_environment():
    """Return the environment without what this package was started with."""
    left_out = ("PYTHONPATH", "OPENBLAS_NUM_THREADS")
    return {name: value for name, value in os.environ.items() if name not in left_out}


def model_in(url):
    """Return digests of a model: of its statistics, and of the rows in all of its blocks.

    How many blocks there are depends on the workers of the moment.
    """
    filesystem, path = fsspec.url_to_fs(url)
    names = sorted(filesystem.glob(f"{path}/data-*/*.parquet"))
    tables = {name.rpartition("/")[2]: read_table(filesystem, name) for name in names}
    blocks = [tables.pop(name) for name in list(tables) if name.startswith("block-")]
    tables["blocks"] = pa.concat_tables(blocks).sort_by("number")
    return {name: digest_of_table(table) for name, table in tables.items()}
