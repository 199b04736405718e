"""Compare this package with that of the scheduler and the workers of a cluster.

Tasks name functions of this package. A worker without it breaks at the first of them, and
Dask starts the task elsewhere, for ever; one with another version may measure otherwise.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection
from pydoc import ErrorDuringImport, locate
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from lpe_dask import __version__
from lpe_dask.storage import brief
from lpe_dask.tasks.timeouts import timeout

logger = logging.getLogger(__name__)

#: What is asked for, by a function that is also there where this package is not.
_VERSION = "lpe_dask.__version__"

#: Errors of an import; any other comes from asking.
_NOT_IMPORTED = (ImportError, ErrorDuringImport)

#: Workers of each client that were found to have this version.
_checked: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()


def is_checked(client: Any) -> bool:
    """Return whether some worker of a client has been asked, and nothing was wrong."""
    return bool(_checked.get(client))


def check_versions(client: Any) -> None:
    """Raise if the scheduler or a worker of a client has not this version of this package.

    Each is asked once. One that does not answer, or runs no functions, is passed over.

    Raises
    ------
    ImportError
        Names the machines, and what they have.
    """
    checked = _checked.get(client, set())
    workers = set(client.scheduler_info(n_workers=-1)["workers"]) - checked
    answers = _answers(client, sorted(workers))
    found = {address: _told(answer) for address, answer in answers.items()}
    machines = defaultdict(list)
    for address, told in found.items():
        if told is not None:
            machines[told].append(urlsplit(address).hostname or address)
    if not is_checked(client):
        told = _told(_answer(client.run_on_scheduler))
        if told is not None:
            machines[told].append(f"the scheduler {client.scheduler.address}")
    if machines:
        _checked.pop(client, None)
        said = [f"{', '.join(dict.fromkeys(on))}: {told}" for told, on in machines.items()]
        raise ImportError(
            f"this process has lpe_dask {__version__}, but not every machine of the "
            f"cluster has it: {'; '.join(said)}. Install lpe_dask=={__version__} in the "
            f"environment of `dask scheduler` and `dask worker`, and start these again."
        )
    _checked[client] = checked | answers.keys()


def _answers(client: Any, workers: Collection[str]) -> dict[str, Any]:
    """Return what workers answer, by address; nothing if one of them hangs."""
    if not workers:
        return {}
    answers = _answer(client.run, workers=list(workers), on_error="return")
    return {} if isinstance(answers, Exception) else answers


def _answer(run: Callable[..., Any], **options: Any) -> Any:
    """Return the version that others have, or the error of asking for it."""
    try:
        return run(locate, _VERSION, callback_timeout=timeout("versions"), **options)
    except Exception as error:
        if not isinstance(error, _NOT_IMPORTED):
            logger.info("the version elsewhere is not known: %s", brief(error))
        return error


def _told(answer: Any) -> str | None:
    """Return what is wrong with a version; None: nothing, or it is not known."""
    if answer is None:
        return "it is not installed"
    if isinstance(answer, _NOT_IMPORTED):
        return f"it cannot be imported ({brief(answer).rstrip('.')})"
    is_unknown = isinstance(answer, Exception)
    return None if is_unknown or answer == __version__ else f"has {answer}"
