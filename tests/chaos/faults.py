"""The table of faults: how each is done, and how its cause goes away again.

Every function takes the cluster and a host. A fault returns False where there is nothing
to hit at the moment, because a process is about to be started; it is then tried again.
"""

import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from chaos.cluster import FAKETIME, HERE, WORKERS

ANYWHERE = ("everywhere",)
NODES = ("scheduler", *WORKERS, "client")


@dataclass(frozen=True)
class Fault:
    """One kind of fault.

    Attributes
    ----------
    do, heal : callable
        Without ``heal`` there is nothing to take back.
    hosts : tuple of str
        One of them is hit.
    seconds : tuple of float, optional
        How long it lasts, at least and at most. None: done in a moment, or for good.
    ends_within : float
        Seconds after its end in which the job has to be done.
    is_for_good : bool
        It is the last one of its run, and lasts until the job is done.
    is_before : bool
        It is there before the job starts, until the job has ended for it.
    storage : str, optional
        "local" or "s3" where it makes sense for one only.
    needs : str, optional
        A program or file without which it cannot be done.
    n_lost : int, default=0
        Workers that are lost in ways that their supervisor does not see.
    """

    do: Callable
    heal: Callable | None = None
    hosts: tuple[str, ...] = WORKERS
    seconds: tuple[float, float] | None = None
    ends_within: float = 120.0
    is_for_good: bool = False
    is_before: bool = False
    storage: str | None = None
    needs: str | None = None
    n_lost: int = 0

    def is_possible(self):
        return (
            not self.needs or bool(shutil.which(self.needs)) or os.path.exists(self.needs)
        )


# Processes


def kill_worker(cluster, host):
    """SIGKILL of the worker; its nanny lives."""
    nanny = cluster.services[host].process
    return _has_worker(cluster, host) and cluster.network.signal(
        host, signal.SIGKILL, but=[nanny.pid]
    )


def kill_host(cluster, host):
    """SIGKILL of all processes of a host; its supervisor starts them again."""
    return _service(cluster, host).is_up() and cluster.network.signal(host, signal.SIGKILL)


def terminate(cluster, host):
    """SIGTERM, as of a batch system."""
    if not _has_worker(cluster, host):
        return False
    cluster.services[host].process.terminate()
    return True


def stop(cluster, host):
    return _has_worker(cluster, host) and cluster.network.signal(host, signal.SIGSTOP)


def go_on(cluster, host):
    cluster.network.signal(host, signal.SIGCONT)


def exceed_memory(cluster, host):
    """Let a worker allocate more than its limit, once; its nanny restarts it."""
    if not _has_worker(cluster, host):
        return False
    (cluster.folder / f"take-{host}").touch()
    return True


def let_live_15_seconds(cluster, host):
    """From now on both workers are killed at that age, the first one at once."""
    for name, age in zip(WORKERS, (15.0, 7.5), strict=True):
        service = cluster.services[name]
        service.lifetime, service.ready = 15.0, time.monotonic() - age
    return True


def let_live(cluster, host):
    for name in WORKERS:
        cluster.services[name].lifetime = None


def _service(cluster, host):
    return cluster.services["job" if host == "client" else host]


def _has_worker(cluster, host):
    """Return whether the worker of a nanny has started."""
    return cluster.services[host].is_up() and len(cluster.network.pids(host)) > 1


# Hosts


def lose_host(cluster, host):
    """All its processes are gone, and its link is silent."""
    cluster.network.cut(host)
    cluster.network.signal(host, signal.SIGKILL)
    _service(cluster, host).is_held = True
    return True


def bring_host_back(cluster, host):
    cluster.network.heal(host)
    _service(cluster, host).is_held = False


def set_clock(offset):
    def set_it(cluster, host):
        """Start the host again with a wrong clock; files have the times of their server."""
        _service(cluster, host).environment |= {
            "LD_PRELOAD": str(FAKETIME),
            "FAKETIME": offset,
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }
        _service(cluster, host).paths.append(HERE / "clock")
        cluster.network.signal(host, signal.SIGKILL)
        return True

    return set_it


def hide_package(cluster, host):
    """Workers that cannot import the package, nor the preloads that need it."""
    for name in WORKERS:
        service = cluster.services[name]
        service.paths.append(cluster.folder / "stub")
        service.command, service.whole_command = service.command[:-4], service.command
    return True


def install_package(cluster, host):
    for name in WORKERS:
        service = cluster.services[name]
        service.paths.remove(cluster.folder / "stub")
        service.command = service.whole_command
        cluster.network.signal(name, signal.SIGKILL)


# Links


def cut(cluster, host):
    cluster.network.cut(host)
    return True


def heal(cluster, host):
    cluster.network.heal(host)


def divide_workers(cluster, host):
    """The two workers do not hear each other; all else is as it was."""
    cluster.network.divide(*WORKERS)
    return True


def unite_workers(cluster, host):
    cluster.network.unite(*WORKERS)


def lose_packets(cluster, host):
    for name in NODES:
        cluster.network.drop(name, "lossy", 'iifname "eth0" numgen random mod 100 < 10')
    return True


def lose_nothing(cluster, host):
    for name in NODES:
        cluster.network.drop_nothing(name, "lossy")


def slow_down(cluster, host):
    for name in NODES:
        cluster.network.slow_down(name, "2mbit")
    return True


def speed_up(cluster, host):
    for name in NODES:
        cluster.network.speed_up(name)


# Storage


def fill_output(cluster, host):
    cluster.fill("output")
    return True


def grow_output(cluster, host):
    cluster.grow("output")


def fill_spool(cluster, host):
    """A spool is written when a job starts: so it is started again as well."""
    cluster.fill("spool")
    return kill_host(cluster, "client")


def grow_spool(cluster, host):
    cluster.grow("spool")


def answer(kind):
    def fail(cluster, host):
        cluster.s3_faults.write_text(kind)
        return True

    return fail


def answer_all(cluster, host):
    cluster.s3_faults.write_text("")


FAULTS = {
    "worker-killed": Fault(kill_worker, n_lost=1),
    "worker-and-nanny-killed": Fault(kill_host),
    "worker-terminated": Fault(terminate),
    "worker-stopped": Fault(stop, go_on, seconds=(5, 25), n_lost=1),
    "worker-stopped-for-good": Fault(stop, go_on, is_for_good=True, n_lost=1),
    "workers-live-15-s": Fault(
        let_live_15_seconds, let_live, ANYWHERE, ends_within=240, is_for_good=True
    ),
    "memory-exceeded": Fault(exceed_memory, n_lost=1),
    "scheduler-killed": Fault(kill_host, hosts=("scheduler",)),
    "client-killed": Fault(kill_host, hosts=("client",)),
    "host-gone": Fault(lose_host, bring_host_back, NODES, (10, 40)),
    "link-cut": Fault(cut, heal, NODES, (3, 10)),
    "link-cut-for-longer": Fault(cut, heal, NODES, (32, 40), n_lost=1),
    # At times for longer than the job waits.
    "partition": Fault(divide_workers, unite_workers, ANYWHERE, (10, 100)),
    "loss": Fault(lose_packets, lose_nothing, ANYWHERE, (15, 30), needs="nft"),
    "slow-link": Fault(slow_down, speed_up, ANYWHERE, (15, 30), needs="tc"),
    "output-disk-full": Fault(fill_output, grow_output, ANYWHERE, (8, 20), storage="local"),
    "spool-disk-full": Fault(fill_spool, grow_spool, ANYWHERE, (8, 20)),
    "clock-ahead": Fault(set_clock("+1h"), hosts=(*WORKERS, "client"), needs=str(FAKETIME)),
    "clock-behind": Fault(
        set_clock("-1h"), hosts=(*WORKERS, "client"), needs=str(FAKETIME)
    ),
    "s3-errors": Fault(answer("errors"), answer_all, ANYWHERE, (20, 40), storage="s3"),
    "s3-answers-lost": Fault(answer("lost"), answer_all, ANYWHERE, (20, 40), storage="s3"),
    "workers-without-package": Fault(
        hide_package, install_package, ANYWHERE, (60, 60), is_before=True
    ),
}
