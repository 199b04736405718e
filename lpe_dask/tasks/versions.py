"""Compare this package with that of the scheduler and the workers of a cluster.

Tasks name functions of this package. A worker without it breaks at the first of them, and
Dask starts the task elsewhere, for ever; one with another version may measure otherwise.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection
from pydoc import locate
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import dask

from lpe_dask import __version__
from lpe_dask.storage import brief

logger = logging.getLogger(__name__)

#: What is asked for, by a function that is also there where this package is not.
_VERSION = "lpe_dask.__version__"

#: Workers of each client that were found to have this version.
_checked: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()


def check_versions(client: Any) -> None:
    """Raise if the scheduler or a worker of a client has not this version of this package.

    Each is asked once. One that does not answer is passed over.

    Raises
    ------
    ImportError
        Names the machines, and what they have.
    """
    is_first = client not in _checked
    checked = _checked.setdefault(client, set())
    workers = set(client.scheduler_info(n_workers=-1)["workers"]) - checked
    found = misfits(client, workers)
    checked |= workers - found.keys()
    machines = defaultdict(list)
    for address, told in found.items():
        machines[told].append(urlsplit(address).hostname or address)
    if is_first:
        answer = _answer(client.run_on_scheduler)
        if not _fits(answer):
            machines[_told(answer)].append(f"the scheduler {client.scheduler.address}")
    if machines:
        del _checked[client]
        said = [f"{', '.join(dict.fromkeys(on))}: {told}" for told, on in machines.items()]
        raise ImportError(
            f"this process has lpe_dask {__version__}, but not every machine of the "
            f"cluster has it: {'; '.join(said)}. Install lpe_dask=={__version__} in the "
            f"environment of `dask scheduler` and `dask worker`, and start these again."
        )


def misfits(client: Any, workers: Collection[str]) -> dict[str, str]:
    """Return those of some workers that have not this version, and what they have."""
    if not workers:
        return {}
    answers = _answer(client.run, workers=list(workers), on_error="return")
    if isinstance(answers, Exception):  # one of them hangs: nothing is known of any
        return {}
    found = {address: answer for address, answer in answers.items() if not _fits(answer)}
    return {address: _told(answer) for address, answer in found.items()}


def _answer(run: Callable[..., Any], **options: Any) -> Any:
    """Return the version that others have, or the error of asking for it."""
    patience = dask.config.get("lpe-dask.timeouts.versions")
    try:
        return run(locate, _VERSION, callback_timeout=patience, **options)
    except OSError as error:
        logger.info("the version of lpe_dask elsewhere is not known: %s", brief(error))
        return error
    except Exception as error:  # of the import, there
        return error


def _fits(answer: Any) -> bool:
    """Return whether a version is this one, or is not known because nobody answers."""
    return answer == __version__ or isinstance(answer, OSError)


def _told(answer: Any) -> str:
    if isinstance(answer, Exception):
        return f"it cannot be imported ({brief(answer).rstrip('.')})"
    return "it is not installed" if answer is None else f"has {answer}"
