"""Runs that break at each change of their storage in turn: started again, the same bits.

A first run only counts what it changes: folders it makes, files it writes, moves, removes.
Then one run breaks at each of these, in each of three ways: the process dies there, in the
middle of a file, so that nothing cleans up; or the change fails; or it is made, and its
answer is lost.
"""

import itertools
import re

import dask
import pytest

from breaking import (
    DECIDED,
    MODEL,
    SAVED,
    UNDATED,
    Case,
    Place,
    at,
    breaking_storage,
    parts_in,
    write_tables,
)  # fmt: skip
from choosing import mostly_slow
from lpe_dask.batch.errors import RunError
from lpe_dask.search import plan
from storages import BreakingFileSystem, Death

CASES = {
    "decided by a rate": Case(DECIDED),
    "by alpha": Case(SAVED),
    "without a model": Case(DECIDED | {"model": ""}),
    "refitted": Case(
        DECIDED | {"model": f"{MODEL}\nrefit = true"}, before=SAVED | {"nominal": "earlier"}
    ),
    "resumed in its fit": Case(DECIDED, before=DECIDED, died_at=14),
    "resumed later": Case(DECIDED, before=DECIDED, died_at=36),
    "overwritten": Case(DECIDED, before=SAVED | {"n_neighbors": 4}, overwrite=True),
    "replaced": Case(UNDATED, before=UNDATED | {"data": "in/earlier"}, overwrite=True),
    "replayed": Case(UNDATED, before=UNDATED, overwrite=True),
}
BREAKS = ["dies", "fails", "fails late"]


def some(step, replaced_step):
    """Return each way to break, and what is replaced, at one of so many changes."""
    return [
        *(("decided by a rate", breaks, step) for breaks in BREAKS),
        ("overwritten", "dies", replaced_step),
        ("replaced", "dies", replaced_step),
    ]


#: Of every three changes each way to break has another one; and a few of all kinds.
MANY, FEW = some(3, 3), some(8, 12)


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    monkeypatch.setattr(plan, "MIN_TASK_ROWS", 64)  # three blocks, measured one by one
    blocks = {"scheduler": "sync", "lpe-dask.block-rows": 64}
    with breaking_storage(monkeypatch), dask.config.set(blocks):
        yield


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    write_tables(folder)
    return folder


@pytest.mark.parametrize(
    ("name", "breaks", "step"),
    mostly_slow([*itertools.product(CASES, BREAKS, [1]), *MANY, *FEW], [*MANY, *FEW], FEW),
)
def test_run__that_broke_at_any_change_ends_alike_when_started_again(
    tables, tmp_path, name, breaks, step
):
    place = Place(tmp_path, tables, CASES[name])
    first = BREAKS.index(breaks) * step // len(BREAKS)
    points = range(first, len(place.changes), step)
    visited, said = [], []
    for point in points:
        change = place.changes[point]
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
        assert place.case.overwrite or place.run() is None
    assert visited == [kind_of(place.changes[point]) for point in points]
    assert {"write", "move", "remove"} <= {kind for kind, _ in visited}
    assert all(re.search("no (answer to )?[a-z]+ of", text) for text in said)
    assert bool(said) == (breaks != "dies")


def kind_of(change):
    kind, path = change
    return kind, re.sub("[0-9a-f]{12,}", "<hex>", path)
