"""The tables, the job, and its parts where nothing disturbs it."""

import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

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

COMMAND = Path(sys.executable).with_name("lpe-dask")


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


def parts_in(url):
    """Return the digest of each part."""
    filesystem, path = fsspec.url_to_fs(url)
    names = sorted(filesystem.glob(f"{path}/part-*.parquet"))
    return {name.rpartition("/")[2]: digest(filesystem, name) for name in names}


def model_in(url):
    """Return digests of a model: of its statistics, and of the rows in all of its blocks.

    How many blocks there are depends on the workers of the moment.
    """
    filesystem, path = fsspec.url_to_fs(url)
    names = sorted(filesystem.glob(f"{path}/data-*/*.parquet"))
    blocks = [name for name in names if "/block-" in name]
    rows = pa.concat_tables(_read(filesystem, name) for name in blocks).sort_by("number")
    others = {*names} - {*blocks}
    found = {name.rpartition("/")[2]: digest(filesystem, name) for name in others}
    return found | {"blocks": _digest(rows)}


def digest(filesystem, path):
    """Return a digest of the bits of all columns, without metadata, which name the run."""
    return _digest(_read(filesystem, path))


def _read(filesystem, path):
    with filesystem.open(path) as file:
        return pq.ParquetFile(file).read().replace_schema_metadata(None)


def _digest(table):
    table = table.combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return hashlib.sha256(sink.getvalue()).hexdigest()
