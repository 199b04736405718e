"""Free a run from workers that cannot work.

Those that are silent, and those that are cut off from others, where nothing moves: Dask
itself finds a silent worker after 5 to 10 minutes, and tries for ever where workers do not
reach each other.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from lpe_dask.storage import brief
from lpe_dask.tasks import Look, timeout

logger = logging.getLogger(__name__)

#: Most workers that are asked whom they reach: each asks all others.
MOST_ASKED = 5


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
    _attempt(client.run_on_scheduler, _restart, list(silent), timeout("restart"))


def separate(client: Any, look: Look) -> bool:
    """Remove workers from the cluster until those with tasks reach all others.

    Returns whether some were removed. Nothing is removed that answered at the second
    attempt, and never more than half of the workers: then it is not they that are cut off.
    """
    links = _broken_links(client, _broken_links(client, _all_links(client, look)))
    removed = cut_off(links)
    if 2 * len(removed) > look.n_workers:
        logger.warning(
            "workers do not reach each other over the network, and none is removed, as it "
            "would be most of them; open the ports between their machines: %s",
            ", ".join(f"{here} to {there}" for here, there in links[:MOST_ASKED]),
        )
        return False
    for address in removed:
        others = sorted({a for link in links if address in link for a in link} - {address})
        logger.warning(
            "worker %s and %s do not reach each other over the network: the first is "
            "removed from the cluster, and its tasks go to other workers",
            address, ", ".join(others),
        )  # fmt: skip
        _attempt(client.run_on_scheduler, _remove, address)
    return bool(removed)


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


def _all_links(client: Any, look: Look) -> list[tuple[str, str]]:
    """Return the links from some workers with tasks, which wait for data, to all others."""
    addresses = list(client.scheduler_info(n_workers=-1)["workers"])
    holders = [address for address, _, _ in look.holders if address in addresses]
    pairs = ((a, b) for a in holders[:MOST_ASKED] for b in addresses)
    return [(here, there) for here, there in pairs if here != there]


def _broken_links(client: Any, links: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return those of some links at which the first worker does not reach the second."""
    if not links:
        return []
    answers = _attempt(
        client.run, _unreached, links, timeout("reach"),
        workers=sorted({here for here, _ in links}), on_error="return",
    ) or {}  # fmt: skip
    return [
        (here, there)
        for here, unreached in answers.items()
        if not isinstance(unreached, Exception)
        for there in unreached
    ]


def _attempt(run: Callable[..., Any], function: Any, *args: Any, **options: Any) -> Any:
    """Return what a function gives elsewhere; None, and a line, if it fails."""
    patience = 2 * (timeout("restart") + timeout("reach"))  # what it waits for, and more
    try:
        return run(function, *args, callback_timeout=patience, **options)
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
    # The tasks are not to blame.
    await dask_scheduler.remove_worker(
        address, stimulus_id=f"lpe-cut-off-{uuid4().hex}", expected=True, close=True
    )


async def _unreached(
    links: list[tuple[str, str]], patience: float, dask_worker: Any
) -> list[str]:
    """Return the addresses of workers that this one should reach, but does not."""
    others = [there for here, there in links if here == dask_worker.address]
    questions = (
        asyncio.wait_for(dask_worker.rpc(address).identity(), patience)
        for address in others
    )
    results = await asyncio.gather(*questions, return_exceptions=True)
    pairs = zip(others, results, strict=True)
    return [address for address, result in pairs if isinstance(result, Exception)]
