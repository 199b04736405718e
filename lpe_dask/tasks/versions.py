"""See to it that all machines of a cluster have this version of this package.

Another version may measure otherwise. All are asked when a fit or a run begins. Workers
that join later find the version in their tasks, and the tasks raise where it is another.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakSet

from lpe_dask import __version__
from lpe_dask.storage import short_message
from lpe_dask.tasks.timeouts import timeout

logger = logging.getLogger(__name__)

_PACKAGE = "lpe_dask"

#: Clients whose workers were asked, and had this version.
_checked: WeakSet[Any] = WeakSet()


@dataclass(frozen=True, slots=True)
class VersionedFunction:
    """A function of a task, which runs only where this package has the same version.

    Attributes
    ----------
    function : callable
    version : str
        That of the process which built the graph.
    """

    function: Callable[..., Any]
    version: str = __version__

    @property
    def __name__(self) -> str:
        """By which Dask names the tasks of frames."""
        return str(getattr(self.function, "__name__", "task"))

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The function: by its signature Dask decides whether to pass `partition_info`."""
        return self.function

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Call the function; ImportError if this is another version."""
        if self.version != __version__:
            raise ImportError(
                f"a worker has lpe_dask {__version__}, but this computation began with "
                f"{self.version}. Install lpe_dask=={self.version} there, or stop that "
                f"worker, and start the same again."
            )
        return self.function(*arguments, **keywords)


def is_checked(client: Any) -> bool:
    """Return whether the workers of a client have been asked, and nothing was wrong."""
    return client in _checked


def check_versions(client: Any) -> None:
    """Raise if the scheduler or a worker of a client has not this version of this package.

    Workers that do not answer are passed over; so are all if one of them hangs.

    Raises
    ------
    ImportError
        Names the machines, and what they have.
    """
    try:
        found = client.sync(
            client.get_versions, packages=[_PACKAGE], callback_timeout=timeout("look")
        )
    except Exception as error:  # a run may still go well: its tasks name their version
        logger.info("the versions of the workers are not known: %s", short_message(error))
        return
    here = found["client"]["packages"][_PACKAGE]
    asked = {f"the scheduler {client.scheduler.address}": found["scheduler"]}
    versions = {
        (urlsplit(machine).hostname or machine, answer["packages"].get(_PACKAGE))
        for machine, answer in (asked | found["workers"]).items()
    }
    others = [
        f"{machine} has {version or 'none'}"
        for machine, version in versions
        if version != here
    ]
    if others:
        _checked.discard(client)
        raise ImportError(
            f"this process has lpe_dask {here}, but not every machine of the cluster has "
            f"it: {', '.join(sorted(others))}. Install lpe_dask=={here} in the environment "
            f"of `dask scheduler` and `dask worker`, and start these again."
        )
    if found["workers"]:
        _checked.add(client)
