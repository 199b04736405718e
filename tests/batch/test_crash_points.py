"""Runs that break at each change of their storage in turn: started again, the same bits.

A first run only counts what it changes: folders it makes, files it writes, moves, removes.
Then one run breaks at each of these, in each of three ways: the process dies there, in the
middle of a file, so that nothing cleans up; or the change fails; or it is made, and its
answer is lost.
"""

import datetime
import itertools
import json
import os
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass, field

import dask
import fsspec
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import lpe_dask
from choosing import mostly_slow
from lpe_dask.batch.fit import RunError
from lpe_dask.batch.output import is_begun
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
data = "{tables}/in/{{date}}"
output = "breaking://{place}/out/{{date}}"
{level}
"""
MODEL = 'path = "breaking://{place}/model"'

#: What a summary says that is not the same each time.
OF_THE_RUN = {"seconds", "peak_worker_bytes"}


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    monkeypatch.setattr(folders, "SETTLE_SECONDS", 0)  # where its probe fails
    fsspec.register_implementation("breaking", BreakingFileSystem, clobber=True)
    # Three blocks of nominal rows, which are measured by as many tasks.
    with dask.config.set({"scheduler": "sync", "lpe-dask.block-rows": 16}):
        yield
    BreakingFileSystem.repair()


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """A folder of nominal rows, now and earlier, and of rows to score, on a grid."""
    folder, rng = tmp_path_factory.mktemp("tables"), np.random.default_rng(0)
    write(rng.integers(0, 9, (48, 2)), folder / "nominal" / "a.parquet")
    write(rng.integers(0, 9, (30, 2)), folder / "earlier" / "a.parquet")
    for i in range(2):
        write(rng.integers(-3, 12, (5, 2)), folder / f"in/{DAY}/{i}.parquet")
    return folder


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
CASES = {
    "decided by a rate": Case(DECIDED),
    "by alpha": Case(SAVED),
    "without a model": Case(DECIDED | {"model": ""}),
    "refitted": Case(
        DECIDED | {"model": f"{MODEL}\nrefit = true"}, before=SAVED | {"nominal": "earlier"}
    ),
    "resumed in its fit": Case(DECIDED, before=DECIDED, died_at=13),
    "resumed later": Case(DECIDED, before=DECIDED, died_at=30),
    "overwritten": Case(DECIDED, before=SAVED | {"n_neighbors": 4}, overwrite=True),
}
BREAKS = ["dies", "fails", "fails late"]

#: What always runs: each way to break, and each case.
ALWAYS = [
    *(("decided by a rate", breaks) for breaks in BREAKS),
    ("resumed in its fit", "dies"), ("overwritten", "dies"),
]  # fmt: skip


class Place:
    """A folder with a model and an output, which are as before each time."""

    def __init__(self, folder, tables, case):
        self.folder, self.tables, self.case = folder / "place", tables, case
        self.out = self.folder / "out" / str(DAY)
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
        text = JOB.format(**said | {"tables": self.tables, "place": "{place}"})
        self._job.write_text(text.replace("{place}", str(self.folder)))

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
        # The folder of notes stays, whether a note could be written or not.
        return sorted(
            re.sub("[0-9a-f]{12,}", "<hex>", p) for p in paths if p != "out/_runs"
        )

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
        elif is_begun(self.out):
            assert list((self.folder / "out" / "_runs").glob("*.json"))

    def age_locks(self):
        """Let a minute pass for the locks."""
        for path in self.folder.rglob("*_lock*"):
            os.utime(path, (path.stat().st_mtime - 100,) * 2)


def parts_in(out):
    return {path.name: path.read_bytes() for path in sorted(out.glob("part-*"))}


@pytest.mark.parametrize(
    ("name", "breaks"), mostly_slow(itertools.product(CASES, BREAKS), ALWAYS)
)
def test_run__that_broke_at_any_change_ends_alike_when_started_again(
    tables, tmp_path, name, breaks
):
    place = Place(tmp_path, tables, CASES[name])
    visited, said = [], []
    for point, change in enumerate(place.changes):
        place.renew(at(point, breaks))
        try:
            place.run()
        except Death:
            assert breaks == "dies"
        except (RunError, OSError) as error:
            said.append(str(error))
        visited.append(kind_of(BreakingFileSystem.changes[point]))
        BreakingFileSystem.repair()
        place.check_whole()
        if breaks == "dies" or "_lock" in change[1]:
            place.age_locks()

        place.run()

        assert parts_in(place.out) == place.expected, point
        assert place.summary_in() == place.summary, point
        assert place.names_in() == place.names, point
        assert place.run() is None or place.case.overwrite
    assert visited == list(map(kind_of, place.changes))
    assert {"write", "move", "remove"} <= {kind for kind, _ in visited}
    assert all(re.search("no (answer to )?[a-z]+ of", text) for text in said)
    assert bool(said) == (breaks != "dies")


def at(point, breaks):
    return lambda number, kind, name: breaks if number == point else None


def kind_of(change):
    kind, name = change
    return kind, re.sub("[0-9a-f]{12,}", "<hex>", name)
