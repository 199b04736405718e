"""Free a run from workers that cannot work.

Those that are silent, and those that are cut off from others, where nothing moves: Dask
itself finds a silent worker after 5 to 10 minutes, and tries for ever where workers do not
reach each other. And those that join with another version of the package.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import dask

from lpe_dask.storage import brief
from lpe_dask.tasks import Look, misfits

logger = logging.getLogger(__name__)


def restart_silent(client: Any, look: Look, seconds: float) -> None:
    """Restart the workers that have tasks, but sent no heartbeat for so long.

    By their nannies; a worker without one is removed from the cluster.
    """
    silent = {address: silence for address, _, silence in look.holders if silence > seconds}
    if not silent:
        return
    for address, silence in silent.items():
        logger.warning(
            "worker %s sent no heartbeat for %.0f s: it is restarted, and its tasks go to "
            "other workers", address, silence,
        )  # fmt: skip
    patience = dask.config.get("lpe-dask.timeouts.restart")
    _attempt(client.run_on_scheduler, _restart, list(silent), patience)


def separate(client: Any) -> None:
    """Remove workers from the cluster until all others reach each other."""
    links = _broken_links(client)
    for address in cut_off(links):
        others = sorted({a for link in links if address in link for a in link} - {address})
        logger.warning(
            "worker %s and %s do not reach each other over the network: the first is "
            "removed from the cluster, and its tasks go to other workers",
            address, ", ".join(others),
        )  # fmt: skip
        _attempt(client.run_on_scheduler, _remove, address)


def remove_misfits(client: Any, joined: list[str]) -> None:
    """Remove workers from the cluster that have not this version of the package."""
    for address, told in misfits(client, joined).items():
        logger.warning(
            "worker %s is removed from the cluster, as it has not this version of "
            "lpe_dask: %s", address, told,
        )  # fmt: skip
        _attempt(client.run_on_scheduler, _remove, address)


def cut_off(links: list[tuple[str, str]]) -> list[str]:
    """Return few workers without which no broken link is left: always that with the most.

    Parameters
    ----------
    links : list of pair of str
        Addresses of workers, of which one does not reach the other.
    """
    removed: list[str] = []
    while links:
        counts = Counter(address for link in links for address in set(link))
        worst = max(counts, key=lambda address: (counts[address], address))
        removed.append(worst)
        links = [link for link in links if worst not in link]
    return removed


def _broken_links(client: Any) -> list[tuple[str, str]]:
    """Return pairs of workers of which the first does not reach the second."""
    addresses = list(client.scheduler_info(n_workers=-1)["workers"])
    patience = dask.config.get("lpe-dask.timeouts.reach")
    unreached = _attempt(client.run, _unreached, addresses, patience) or {}
    return [(here, there) for here, those in unreached.items() for there in those]


def _attempt(run: Callable[..., Any], function: Any, *args: Any) -> Any:
    """Return what a function gives elsewhere; None, and a line, if it fails."""
    given = dask.config.get("lpe-dask.timeouts")
    patience = 2 * (given["restart"] + given["reach"])
    try:
        return run(function, *args, callback_timeout=patience)
    except Exception as error:  # nothing moves anyway
        logger.info("could not look after the workers: %s", brief(error))
        return None


# The functions below run on schedulers and workers.


async def _restart(addresses: list[str], patience: float, dask_scheduler: Any) -> None:
    await dask_scheduler.restart_workers(
        addresses, timeout=patience, wait_for_workers=False, on_error="return",
        stimulus_id=f"lpe-silent-{uuid4().hex}",
    )  # fmt: skip


async def _remove(address: str, dask_scheduler: Any) -> None:
    # Its nanny ends as well: a worker started anew would be in the same place.
    stimulus = f"lpe-cut-off-{uuid4().hex}"
    await dask_scheduler.remove_worker(address, stimulus_id=stimulus, close=True)


async def _unreached(addresses: list[str], patience: float, dask_worker: Any) -> list[str]:
    """Return the addresses of workers that do not answer this one."""
    others = [address for address in addresses if address != dask_worker.address]
    questions = (
        asyncio.wait_for(dask_worker.rpc(address).identity(), patience)
        for address in others
    )
    results = await asyncio.gather(*questions, return_exceptions=True)
    pairs = zip(others, results, strict=True)
    return [address for address, result in pairs if isinstance(result, Exception)]
