"""Runs whose storage breaks at any change, or is full: started again, the same bits.

A first run only counts what it changes: folders it makes, files it writes, moves, removes.
Then one run breaks at each of these, in each of three ways: the process dies there, in the
middle of a file, so that nothing cleans up; or the change fails; or it is made, and its
answer is lost.
"""

import gc
import itertools
import re

import dask
import pytest

from breaking import (
    DECIDED,
    MODEL,
    SAVED,
    TO_ACT_ON,
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
from lpe_dask.search.memory import MemoryEstimate
from lpe_dask.tasks import remove_spools
from storages import BreakingFileSystem, Death
from waiting import eventually

CASES = {
    "decided by a rate": Case(DECIDED),
    "by alpha": Case(SAVED),
    "without a model": Case(DECIDED | {"model": ""}),
    "refitted": Case(
        DECIDED | {"model": f"{MODEL}\nrefit = true"}, before=SAVED | {"nominal": "earlier"}
    ),
    "resumed in its fit": Case(DECIDED, before=DECIDED, died_at=14),
    "resumed later": Case(DECIDED, before=DECIDED, died_at=36),
    "overwritten": Case(
        DECIDED | TO_ACT_ON, before=SAVED | {"n_neighbors": 4}, overwrite=True
    ),
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
def storage(monkeypatch):
    with breaking_storage(monkeypatch):
        yield


@pytest.fixture
def three_blocks(monkeypatch):
    """Nominal rows are measured in three blocks, one by one."""
    monkeypatch.setattr(plan, "MIN_TASK_ROWS", 64)
    with dask.config.set({"lpe-dask.block-rows": 64}):
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
    tables, tmp_path, three_blocks, name, breaks, step
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
        check_resumed(place, is_locked=breaks == "dies" or "_lock" in change[1])
        assert place.case.overwrite or place.run() is None
    assert visited == [kind_of(place.changes[point]) for point in points]
    assert {"write", "move", "remove"} <= {kind for kind, _ in visited}
    assert all(re.search("no (answer to )?[a-z]+ of", text) for text in said)
    assert bool(said) == (breaks != "dies")


def check_resumed(place, *, is_locked=False):
    """Demand that what is there is whole, and that a run ends alike after a repair."""
    BreakingFileSystem.repair()
    place.check_whole()
    if is_locked:
        place.age_locks()

    place.run()

    assert parts_in(place.out) == place.expected
    assert place.summary_in() == place.summary
    assert place.names_in() == place.names


def kind_of(change):
    kind, path = change
    return kind, re.sub("[0-9a-f]{12,}", "<hex>", path)


# Full disks


#: What takes space on a disk.
TAKES_SPACE = {"make", "write"}

#: A case in which nothing is there before.
NEW = "decided by a rate"


def taking_space(changes, folder=""):
    """Return the paths in a folder of those of some changes that take space, in order."""
    return [
        path
        for kind, path in changes
        if kind in TAKES_SPACE and path.startswith(str(folder))
    ]


def full_from(point, folder=""):
    """Let nothing that takes space in a folder be written any more, from some point on.

    Others change the folder meanwhile: what takes space is counted, and nothing else.
    """
    points = itertools.count()

    def breaks(number, kind, path):
        is_counted = taking_space([(kind, path)], folder)
        return "full" if is_counted and next(points) >= point else None

    return breaks


@pytest.mark.parametrize(
    ("name", "step"),
    mostly_slow(
        [(NEW, 6), *((name, 1) for name in [NEW, "without a model", "overwritten"])],
        [(NEW, 6), (NEW, 1)],
        [(NEW, 6)],
    ),
)
def test_run__on_a_disk_that_is_full_says_so_and_is_resumed(
    tables, tmp_path, name, step, caplog
):
    place = Place(tmp_path, tables, CASES[name])
    paths = taking_space(place.changes)
    for point, path in [*enumerate(paths)][::step]:
        place.renew(full_from(point))

        if re.search(r"/\.monitor\.json|_report|_metrics", path):
            place.run()  # what is told beside the output is not worth a run
            said = caplog.text
        else:
            with pytest.raises((RunError, OSError)) as raised:
                place.run()
            said = str(raised.value)
        where = rf"Make room on the disk of breaking://{place.folder}/\S+, and start again"
        assert re.search(rf"No space left on device\. {where}", said), point
        assert not [
            name for name in place.names_in() if name.endswith((".tmp", "_lock.json"))
        ]
        check_resumed(place)
    assert len(paths) > 10


@pytest.fixture
def spool(tmp_path, monkeypatch):
    """The folder of the spools of runs whose nominal rows do not fit into memory."""
    monkeypatch.setattr(MemoryEstimate, "fits", lambda needs, limit: needs.plan.is_spooled)
    with dask.config.set({"lpe-dask.spool": f"breaking://{tmp_path}/spool"}):
        yield tmp_path / "spool"
    remove_spools()


def test_run__whose_spool_is_full_says_so_and_is_resumed(tables, tmp_path, spool):
    place = Place(tmp_path, tables, CASES[NEW])
    paths = taking_space(place.changes, spool)
    for point, path in enumerate(paths):
        place.renew(full_from(point, spool))

        with pytest.raises(RunError) as raised:
            place.run()

        assert "No space left on device" in str(raised.value)
        assert f"breaking://{spool}" in str(raised.value), path
        assert "lpe-dask.spool" in str(raised.value)
        del raised
        gc.collect()
        assert eventually(lambda: list(spool.iterdir()) == [])
        check_resumed(place)
    assert len(paths) >= 4
