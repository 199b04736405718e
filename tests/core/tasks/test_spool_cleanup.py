"""A place for spools where neighbours put what they like, and move what they can."""

import logging
import os
import re
import stat
import time

import pytest

from hostile import ATTACKS, as_nobody, limited
from lpe_dask.storage import Folder, Lock
from lpe_dask.storage.owner import Owner
from lpe_dask.tasks import spool
from lpe_dask.tasks.spool import Spool
from lpe_dask.tasks.spool_cleanup import remove_dead_spools

#: Of a process that is gone, and was seen for the last time long ago.
DEAD = Owner(
    token="t", host="elsewhere", boot="b", pid_namespace="n", pid=1, started=0.0,
    purpose="p", since="s",
).as_json()  # fmt: skip

MAKE = """
import logging, sys
logging.basicConfig(level=logging.DEBUG, stream=sys.stdout, format="%(name)s %(message)s")
from lpe_dask.tasks.spool import Spool
spool = Spool(sys.argv[1])
print("made", spool.url)
"""


@pytest.fixture
def place(tmp_path):
    """A folder such as /tmp."""
    place = tmp_path / "place"
    place.mkdir()
    place.chmod(0o1777)
    return place


@pytest.fixture
def own(place):
    """The spool of this process."""
    return Spool(str(place))


def dead_spool(place, name="lpe-spool-dead"):
    """Make what a process has left long ago."""
    folder = place / name
    folder.mkdir(0o700)
    for name, content in {Lock.NAME: DEAD, f"value-{'0' * 32}": b"1"}.items():
        (folder / name).write_bytes(content)
    blocks = folder / f"blocks-{'0' * 32}"
    blocks.mkdir()
    (blocks / "block").write_bytes(b"1")
    old = time.time() - 3600
    for path in (folder / Lock.NAME, folder):
        os.utime(path, (old, old))
    return folder


def collect(place, own):
    remove_dead_spools(Folder(place), own.url)


@pytest.mark.parametrize(
    ("of_place", "mode"), [(0o1777, 0o700), (0o3777, 0o700), (0o1777, 0o755)]
)
def test_spool__of_a_dead_process_is_removed_with_all_that_is_in_it(place, of_place, mode):
    """Also where new folders have the group of the place, or all the same permissions."""
    place.chmod(of_place)
    own, folder = Spool(str(place)), dead_spool(place)
    path = own.url.removeprefix("file://")
    assert stat.S_IMODE(os.stat(path).st_mode) & 0o777 == 0o700
    os.chmod(path, mode)
    os.chmod(folder, mode)

    collect(place, own)

    assert not folder.exists()


def test_spool__is_made_whatever_is_in_the_place(place):
    """Also where the same user has put it there, and nobody else may look into it."""
    names = []
    for attack, make in ATTACKS.items():
        make(place / f"lpe-spool-{attack}")
        folder = place / f"lpe-spool-with-{attack}"
        folder.mkdir(0o700)
        make(folder / Lock.NAME)
        names += [f"lpe-spool-{attack}", folder.name]

    said = limited(MAKE, place)

    assert "made file://" in said
    left = re.findall(rf"left file://{place}/(\S+) alone: ", said)
    assert sorted(left) == sorted(names), said
    assert sorted(os.listdir(place)) == sorted(names)


def give_away(folder):
    try:
        os.chown(folder, 65534, 65534)
    except PermissionError:
        pytest.skip("only root can give a folder to another user")


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: folder.chmod(0o777),
        lambda folder: folder.chmod(0o755),
        lambda folder: folder.chmod(0o710),
        give_away,
        lambda folder: (folder / "thesis.tex").touch(),  # it only got such a name
    ],
)
def test_spool__that_is_not_only_ours_is_left(place, own, change):
    folder = dead_spool(place)
    change(folder)

    collect(place, own)

    assert (folder / Lock.NAME).exists()


PLANTED = """
mkfifo lpe-spool-1
ln -s /dev/zero lpe-spool-2
ln -s / lpe-spool-3
mkdir lpe-spool-4 lpe-spool-5 lpe-spool-6
mkfifo lpe-spool-4/_lock.json
ln -s /dev/zero lpe-spool-5/_lock.json
chmod 700 lpe-spool-6
"""


def test_spool__is_made_beside_what_a_neighbour_has_put_there(place):
    as_nobody(PLANTED, place)

    said = limited(MAKE, place)

    assert "made file://" in said
    assert said.count(" alone: ") == 6
    assert said.count("alone: PermissionError: it is no folder of this user") == 3
    assert len(list(place.iterdir())) == 6


def test_spool__is_of_its_process_though_its_name_is_taken(place, monkeypatch):
    """The name is random, so this is theory; what is in the other folder stays."""

    class Known:
        hex = "1"

    monkeypatch.setattr(spool, "uuid4", Known)
    taken = place / "lpe-spool-1"
    taken.mkdir(0o777)
    (taken / "a").touch()

    with pytest.raises(FileExistsError):
        Spool(str(place))

    assert [path.name for path in taken.iterdir()] == ["a"]


def test_spool__leads_nowhere_through_links(place, own, tmp_path):
    kept = dead_spool(tmp_path, "kept")
    (place / "lpe-spool-1").symlink_to(kept)
    inner = dead_spool(place)
    (inner / f"blocks-{'1' * 32}").symlink_to(kept)

    collect(place, own)

    assert not inner.exists()
    assert len(list(kept.iterdir())) == 3


@pytest.mark.parametrize("is_link", [False, True])
def test_spool__that_is_swapped_during_a_look_is_left(
    place, own, tmp_path, monkeypatch, caplog, is_link
):
    folder, other = dead_spool(place), dead_spool(tmp_path, "other")

    def swap(lock):
        folder.rename(tmp_path / "moved")
        folder.symlink_to(other) if is_link else other.rename(folder)
        return True

    monkeypatch.setattr(Lock, "is_stale", swap)
    caplog.set_level(logging.DEBUG)

    collect(place, own)

    assert len(list(folder.iterdir())) == 3
    assert len(list((tmp_path / "moved").iterdir())) == 3
    assert "lpe-spool-dead alone" in caplog.text


def test_spool__of_a_dead_process_is_removed_where_there_are_no_owners(monkeypatch):
    place = Folder("memory://place-of-spools")
    dead = Folder(place.full_url("lpe-spool-dead"))
    dead.make()
    dead.write(Lock.NAME, DEAD)

    remove_dead_spools(place, place.full_url("lpe-spool-own"))
    assert dead.exists(Lock.NAME)  # its last heartbeat was a moment ago
    monkeypatch.setattr(Lock, "is_stale", lambda lock: True)
    remove_dead_spools(place, place.full_url("lpe-spool-own"))

    assert not dead.exists()
