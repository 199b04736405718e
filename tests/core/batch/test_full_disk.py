"""Full disks, from some write on: a clear end, and the same bits once there is room."""

import gc
import itertools
import re

import dask
import pytest

from breaking import DECIDED, Case, Place, breaking_storage, parts_in, write_tables
from choosing import mostly_slow
from lpe_dask.batch.errors import RunError
from lpe_dask.search.memory import MemoryEstimate
from lpe_dask.tasks import remove_spools
from storages import BreakingFileSystem
from waiting import eventually

#: What takes space on a disk.
TAKES_SPACE = {"make", "write"}

CASES = {
    "new": Case(DECIDED),
    "without a model": Case(DECIDED | {"model": ""}),
    "overwritten": Case(DECIDED, before=DECIDED | {"n_neighbors": 4}, overwrite=True),
}


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    with breaking_storage(monkeypatch), dask.config.set(scheduler="sync"):
        yield


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    write_tables(folder)
    return folder


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
        [("new", 6), *((name, 1) for name in CASES)], [("new", 6), ("new", 1)], [("new", 6)]
    ),
)
def test_run__on_a_disk_that_is_full_says_so_and_is_resumed(
    tables, tmp_path, name, step, caplog
):
    place = Place(tmp_path, tables, CASES[name])
    paths = taking_space(place.changes)
    for point, path in [*enumerate(paths)][::step]:
        place.renew(full_from(point))

        if re.search(r"/\.monitor\.json|_report", path):
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
        BreakingFileSystem.repair()
        place.check_whole()
        place.run()
        assert parts_in(place.out) == place.expected, point
        assert place.summary_in() == place.summary, point
        assert place.names_in() == place.names, point
    assert len(paths) > 10


@pytest.fixture
def spool(tmp_path, monkeypatch):
    """The folder of the spools of runs whose nominal rows do not fit into memory."""
    monkeypatch.setattr(MemoryEstimate, "fits", lambda needs, limit: needs.plan.is_spooled)
    with dask.config.set({"lpe-dask.spool": f"breaking://{tmp_path}/spool"}):
        yield tmp_path / "spool"
    remove_spools()


def test_run__whose_spool_is_full_says_so_and_is_resumed(tables, tmp_path, spool):
    place = Place(tmp_path, tables, CASES["new"])
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
        BreakingFileSystem.repair()
        place.run()
        assert parts_in(place.out) == place.expected
        assert place.names_in() == place.names
    assert len(paths) >= 4
