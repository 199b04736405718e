"""Lock files of this process and of others, of any age, on a local disk and in memory."""

import itertools
import json
import os
import time
from datetime import timedelta

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from lpe_dask.storage import Lock
from lpe_dask.storage.lock import STALE_SECONDS, LockedError


def content(folder, name=Lock.NAME):
    filesystem, root = fsspec.core.url_to_fs(folder)
    return filesystem.cat_file(f"{root}/{name}")


def values(folder):
    return json.loads(content(folder))


def names(folder):
    filesystem, root = fsspec.core.url_to_fs(folder)
    return sorted(name.rsplit("/", 1)[-1] for name in filesystem.ls(root, detail=False))


def write(folder, content, *, age=0, name=Lock.NAME):
    """Write a lock as if that had been ``age`` seconds ago."""
    filesystem, root = fsspec.core.url_to_fs(folder)
    path = f"{root}/{name}"
    filesystem.pipe_file(path, content)
    if isinstance(filesystem, LocalFileSystem):
        os.utime(path, (time.time() - age,) * 2)
    else:
        filesystem.store[path].modified -= timedelta(seconds=age)


def lock_of(folder, **changes):
    """Return the content of a lock of this process, but for the changes."""
    with Lock(folder).hold("score data.parquet"):
        return json.dumps(values(folder) | changes).encode()


def foreign(folder, **changes):
    """Return the content of a lock of another machine."""
    return lock_of(folder, **{"token": "theirs", "host": "elsewhere", "pid": 7} | changes)


def check_refused(folder, message, error=LockedError):
    """Nobody gets the lock of a folder, and the error says why; it is returned."""
    with pytest.raises(error, match=message) as refusal, Lock(folder).hold("score"):
        pass
    return refusal.value


def check_that_age_decides(folder, left, message="locked"):
    """A lock of a recent heartbeat is respected, and an old one is taken over."""
    for age in (0, STALE_SECONDS - 10):
        write(folder, left, age=age)
        check_refused(folder, rf"{message}.* {age} s ago")
        assert not Lock(folder).is_stale()
        assert content(folder) == left
        assert names(folder) == [Lock.NAME]

    write(folder, left, age=STALE_SECONDS + 1)
    assert Lock(folder).is_stale()
    with Lock(folder).hold("score") as lock:
        assert values(folder)["token"] == lock.token
        assert names(folder) == [Lock.NAME]
    assert names(folder) == []


def once(first, then):
    """Return a function that is ``first`` when it is called first, and later ``then``."""
    functions = itertools.chain([first], itertools.repeat(then))
    return lambda *arguments, **options: next(functions)(*arguments, **options)
