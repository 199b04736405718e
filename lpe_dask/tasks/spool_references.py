"""Name entries of a spool in tasks, and ask schedulers which of them their tasks name."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from lpe_dask.storage import short_message
from lpe_dask.tasks.dask_internals import (
    clients_of_process,
    is_reading_graph,
    remembered_messages,
)

logger = logging.getLogger(__name__)

#: Seconds in which a running scheduler answers, however busy.
_ANSWER_SECONDS = 60.0


class EntryReference:
    """Names an entry in the tasks of a scheduler, of workers, or of a file.

    Attributes
    ----------
    url : str
    """

    def __init__(self, url: str) -> None:
        self.url = url
        _named.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return EntryReference, (self.url,)


_named: weakref.WeakSet[EntryReference] = weakref.WeakSet()


def open_clients() -> list[Any]:
    """Return the clients of `distributed` in this process that are connected."""
    while True:
        with suppress(RuntimeError):  # another thread has just made or lost one
            clients = clients_of_process()
            return [client for client in clients if client.status == "running"]


def references_on(client: Any, urls: set[str]) -> set[str]:
    """Return those of some entries that the scheduler of a client may still need."""
    try:
        return set(
            client.run_on_scheduler(
                _references_among, list(map(str, urls)), callback_timeout=_ANSWER_SECONDS
            )
        )
    except Exception as error:  # a scheduler that is busy, or without this package
        if client.status != "running":
            return set()
        logger.debug("the scheduler did not answer: %s", short_message(error))
        return set(urls)


# The functions below run on schedulers.


def _references_among(urls: Iterable[str], dask_scheduler: Any) -> list[str]:
    """Return those of some entries that tasks of this scheduler name, or are about to."""
    if is_reading_graph(dask_scheduler):
        return list(urls)
    try:
        named = {name.url for name in list(_named)}
        if not named.isdisjoint(urls):
            _forget_messages(dask_scheduler)
            named = {name.url for name in list(_named)}
    except RuntimeError:  # another thread has just added one: ask again later
        return list(urls)
    return [url for url in urls if url in named]


def _forget_messages(scheduler: Any) -> None:
    """Let a scheduler forget its messages to workers about tasks that it has forgotten.

    Its log, for people who look for faults in it, would keep those tasks for 1000 messages
    more, and with them the names of entries.
    """
    for messages in remembered_messages(scheduler):
        messages[:] = [
            message
            for message in messages
            if message.get("op") != "compute-task" or message["key"] in scheduler.tasks
        ]
