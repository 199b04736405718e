"""A job on a storage that breaks, and what its files are before, meanwhile and after."""

import datetime
import json
import os
import re
import shutil
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import fsspec
import numpy as np
import pandas as pd
import pyarrow.parquet as pq

import lpe_dask
from lpe_dask.storage import folder as folders
from storages import BreakingFileSystem, Death

DAY = datetime.date(2026, 11, 20)
JOB = """
[nominal]
data = "{tables}/{nominal}"
[model]
{model}
n_neighbors = {n_neighbors}
[score]
data = "{tables}/{data}"
output = "{place}/{output}"
{level}
"""
DATED = {"data": "in/{date}", "output": "out/{date}"}
MODEL = 'path = "{place}/model"'

#: What a summary says that is not the same each time.
OF_THE_RUN = {
    "seconds", "seconds_by_step", "finished", "model_created", "peak_worker_bytes",
    "planned_worker_bytes",
}  # fmt: skip


@contextmanager
def breaking_storage(monkeypatch):
    """Let breaking:// begin the names of files, as long as the context is open."""
    monkeypatch.setattr(folders, "SETTLE_SECONDS", 0)  # where its probe fails
    fsspec.register_implementation("breaking", BreakingFileSystem, clobber=True)
    yield
    BreakingFileSystem.repair()


def write_tables(folder):
    """Write nominal rows and rows to score, now and earlier, on a grid."""
    rng = np.random.default_rng(0)
    write(rng.integers(0, 9, (150, 2)), folder / "nominal" / "a.parquet")
    write(rng.integers(0, 9, (30, 2)), folder / "earlier" / "a.parquet")
    for i in range(2):
        write(rng.integers(-3, 12, (5, 2)), folder / f"in/{DAY}/{i}.parquet")
    write(rng.integers(-3, 12, (8, 2)), folder / "in/earlier/0.parquet")


def write_job(path, said, tables, place):
    """Write the file of a job, with its model and output in a place."""
    said = {name: str(value).format(place=place) for name, value in said.items()}
    path.write_text(JOB.format(**DATED | said, tables=tables, place=place))


def write(rows, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows * 0.5, columns=["x", "y"]).to_parquet(path)


@dataclass
class Case:
    """A job, and what there was before it.

    Attributes
    ----------
    job : dict
        What its file says.
    before : dict
        What the file of a run said that was there before; empty: there was none.
    died_at : int, optional
        The change at which that run died; None: it ended.
    overwrite : bool
        Whether everything starts from scratch.
    """

    job: dict
    before: dict = field(default_factory=dict)
    died_at: int | None = None
    overwrite: bool = False


SAVED = {"model": MODEL, "level": "alpha = 0.1", "n_neighbors": 3, "nominal": "nominal"}
DECIDED = SAVED | {"level": "fdr = 0.4"}
TO_ACT_ON = {"level": 'fdr = 0.4\nrows = "flagged"\nformat = "csv"'}
UNDATED = SAVED | {"output": "out"}


class Place:
    """A folder with a model and an output, which are as before each time."""

    def __init__(self, folder, tables, case):
        self.folder, self.tables, self.case = folder / "place", tables, case
        output = (DATED | case.job)["output"]
        self.out = self.folder / output.format(date=DAY)
        self._job, self._before = folder / "job.toml", folder / "before"
        self.folder.mkdir()
        if case.before:
            BreakingFileSystem.repair(at(case.died_at, "dies"))
            self._write_job(case.before)
            with suppress(Death):
                lpe_dask.run(self._job, date=DAY)
            self.age_locks()
            if "refit" in case.job["model"]:
                shutil.rmtree(self.folder / "out")
        self.folder.rename(self._before)
        self._write_job(case.job)
        self.renew()
        self.earlier = parts_in(self.out)
        self.run()
        self.changes = [*BreakingFileSystem.changes]
        self.expected, self.names = parts_in(self.out), self.names_in()
        self.summary = self.summary_in()

    def _write_job(self, said):
        write_job(self._job, said, self.tables, f"breaking://{self.folder}")

    def renew(self, breaks=None):
        """Let everything be as it was before, and break as ``breaks`` says."""
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self._before, self.folder)
        BreakingFileSystem.repair(breaks)

    def run(self):
        return lpe_dask.run(self._job, date=DAY, overwrite=self.case.overwrite)

    def names_in(self):
        """Return the names of all that is there, but for the random part of names."""
        paths = (str(path.relative_to(self.folder)) for path in self.folder.rglob("*"))
        return sorted(re.sub("[0-9a-f]{12,}", "<hex>", path) for path in paths)

    def summary_in(self):
        said = json.loads((self.out / "_summary.json").read_text())
        return {name: value for name, value in said.items() if name not in OF_THE_RUN}

    def check_whole(self):
        """Demand that each file that has its name is whole, and a summary is the last."""
        for path in self.folder.rglob("[!.]*"):
            if path.parent.name.startswith("data-"):  # a model's, as soon as it is there
                continue
            if path.suffix == ".parquet":
                pq.read_table(path)
            elif path.suffix == ".json" and path.name != "_lock.json":
                json.loads(path.read_text())
        if (self.folder / "model" / "manifest.json").exists():
            lpe_dask.load(self.folder / "model")
        parts = parts_in(self.out)
        assert parts.items() <= self.expected.items() | self.earlier.items()
        if (self.out / "_summary.json").exists():
            assert parts in (self.expected, self.earlier)

    def age_locks(self):
        """Let a minute pass for the locks."""
        for path in self.folder.rglob("*_lock*"):
            os.utime(path, (path.stat().st_mtime - 100,) * 2)


def parts_in(out):
    paths = sorted([*out.glob("part-*"), *out.glob("_scores.*")])
    return {path.name: path.read_bytes() for path in paths}


def at(point, breaks):
    """Let one change break, by its number."""
    return lambda number, kind, path: breaks if number == point else None
