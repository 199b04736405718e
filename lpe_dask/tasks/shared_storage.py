"""Find out whether the workers of a client see the storage where this process writes."""

from __future__ import annotations

import logging
import weakref
from typing import Any
from uuid import uuid4

from lpe_dask.forks import ForkSafeLock
from lpe_dask.storage import Folder, opening_key, redact, short_message, single_line
from lpe_dask.tasks.spool import SpoolEntry, spool_at, spool_location
from lpe_dask.tasks.spool_cleanup import MARKER_NAME
from lpe_dask.tasks.timeouts import timeout
from lpe_dask.tasks.worker_pool import active_client

logger = logging.getLogger(__name__)


def is_shared() -> bool:
    """Return whether what is larger than a literal may go to storage when it is sent."""
    client = active_client()
    return client is None or is_storage_shared(client)


def shared_folder(kind: str) -> SpoolEntry:
    """Return a new folder in the spool, which the active workers see.

    Parameters
    ----------
    kind : str
        What it is, for people: the first word of its name.

    Raises
    ------
    OSError
        If nothing can be written there, or a worker does not see it.
    """
    place = spool_location()
    try:
        spool = spool_at(place)
        if not is_shared():
            raise OSError("not all workers see it")
        return spool.folder(kind)
    except (OSError, ValueError) as error:
        raise OSError(
            f"the spool {place} cannot store them: {single_line(error)}. Name a folder or "
            f"URL that all workers can write to (configuration key lpe-dask.spool, --spool)"
        ) from error


def is_storage_shared(client: Any) -> bool:
    """Return whether the workers of a client see the `spool_location` of this process.

    They are asked once for each client. While it has no workers, a guess is returned.
    """
    place = spool_location()
    key = opening_key(place)
    with _probing:
        seen = _seen.setdefault(client, {})
        if key not in seen and (answer := _is_shared(client, place)) is not None:
            seen[key] = answer
        return seen.get(key, _is_likely_shared(client, place))


_probing = ForkSafeLock()
_seen: weakref.WeakKeyDictionary[Any, dict[Any, bool]] = weakref.WeakKeyDictionary()


def _is_likely_shared(client: Any, place: str) -> bool:
    """Return whether workers are in this process, or on this machine and the place too."""
    address = getattr(client.scheduler, "address", "")
    if address.startswith("inproc:"):
        return True
    return not place.startswith("memory:") and ("//127." in address or "//[::1]" in address)


def _is_shared(client: Any, place: str) -> bool | None:
    """Return whether a spool can be shared; None if there was no worker to ask."""
    try:
        spool = spool_at(place)
    except (OSError, ValueError, ImportError, NotImplementedError) as error:
        logger.info("no spool at %s: %s", redact(place), short_message(error))
        return False
    # A worker that is lost during this has no answer.
    try:
        answers = client.run(
            _can_access, spool.url, on_error="ignore", callback_timeout=timeout("spool")
        )
    except TimeoutError:  # one of them hangs
        return None
    if not answers:
        return None
    blind = [worker for worker, sees in answers.items() if not sees]
    if blind:
        logger.info(
            "workers do not share the storage %s with this process (%s does not): data "
            "above 1 MiB are sent to them with each computation. Name a folder or URL that "
            "all of them can write to (configuration key lpe-dask.spool, --spool).",
            redact(place), blind[0],
        )  # fmt: skip
    return not blind


# The functions below run on workers.


def _can_access(url: str) -> bool:
    """Return whether this process can read and write in a spool."""
    folder, probe = Folder(url), f"probe-{uuid4().hex}"
    try:
        if folder.read(MARKER_NAME) is None:  # this is not the same storage
            return False
        folder.write(probe, b"\n")
        folder.remove_file(probe)
    except Exception:  # filesystems have errors of their own
        return False
    return True
