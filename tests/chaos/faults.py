"""The table of faults: how each is done, and how its cause goes away again.

Every function takes the cluster and a host. A fault returns False where there is nothing
to hit at the moment, because a process is about to be started; it is then tried again.
"""

import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from chaos.cluster import WORKERS

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
        A program without which it cannot be done.
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
        return not self.needs or bool(shutil.which(self.needs))


# Processes


def kill_worker(cluster, host):
    """SIGKILL of the worker; its nanny lives."""
    nanny = cluster.services[host].process
    return has_worker(cluster, host) and cluster.network.signal(
        host, signal.SIGKILL, but=[nanny.pid]
    )


def kill_host(cluster, host):
    """SIGKILL of all processes of a host; its supervisor starts them again."""
    return service(cluster, host).is_up() and cluster.network.signal(host, signal.SIGKILL)


def terminate(cluster, host):
    """SIGTERM, as of a batch system."""
    if not has_worker(cluster, host):
        return False
    cluster.services[host].process.terminate()
    return True


def exceed_memory(cluster, host):
    """Let a worker allocate more than its limit, once; its nanny restarts it."""
    if not has_worker(cluster, host):
        return False
    (cluster.folder / f"take-{host}").touch()
    return True


def let_live_15_seconds(cluster, host):
    """From now on both workers are killed at that age, the first one at once."""
    for name, age in zip(WORKERS, (15.0, 7.5), strict=True):
        worker = cluster.services[name]
        worker.lifetime, worker.ready = 15.0, time.monotonic() - age


def let_live(cluster, host):
    for name in WORKERS:
        cluster.services[name].lifetime = None


def service(cluster, host):
    return cluster.services["job" if host == "client" else host]


def has_worker(cluster, host):
    """Return whether the worker of a nanny has started."""
    return cluster.services[host].is_up() and len(cluster.network.pids(host)) > 1


def hide_package(cluster, host):
    """Workers that cannot import the package, nor the preload that needs it."""
    for name in WORKERS:
        worker = cluster.services[name]
        worker.paths.append(cluster.folder / "stub")
        worker.command, worker.whole_command = worker.command[:-2], worker.command


def install_package(cluster, host):
    for name in WORKERS:
        worker = cluster.services[name]
        worker.paths.remove(cluster.folder / "stub")
        worker.command = worker.whole_command
        cluster.network.signal(name, signal.SIGKILL)


# Hosts and links


def lose_host(cluster, host):
    """All its processes are gone, and its link is silent."""
    cluster.network.cut(host)
    cluster.network.signal(host, signal.SIGKILL)
    service(cluster, host).is_held = True


def bring_host_back(cluster, host):
    cluster.network.heal(host)
    service(cluster, host).is_held = False


def of_network(method, *arguments, hosts=None):
    """Return the function that calls a method of the network, for the host by default."""

    def act(cluster, host):
        for name in hosts or [host]:
            getattr(cluster.network, method)(name, *arguments)

    return act


def of_disk(method, disk):
    """Return the function that calls a method of the cluster for a disk."""
    return lambda cluster, host: getattr(cluster, method)(disk)


# Storage


def stop(cluster, host):
    return has_worker(cluster, host) and cluster.network.signal(host, signal.SIGSTOP)


def fill_spool(cluster, host):
    """A spool is written when a job starts: so it is started again as well."""
    cluster.fill("spool")
    return kill_host(cluster, "client")


def of_s3(kind):
    """Return the function that lets the S3 server fail in a way; in none if it is empty."""
    return lambda cluster, host: cluster.s3_faults.write_text(kind)


GO_ON = of_network("signal", signal.SIGCONT)
CUT, HEAL = of_network("cut"), of_network("heal")

FAULTS = {
    "worker-killed": Fault(kill_worker, n_lost=1),
    "worker-and-nanny-killed": Fault(kill_host),
    "worker-terminated": Fault(terminate),
    "worker-stopped": Fault(stop, GO_ON, seconds=(5, 25), n_lost=1),
    "worker-stopped-for-good": Fault(stop, GO_ON, is_for_good=True, n_lost=1),
    "workers-live-15-s": Fault(
        let_live_15_seconds, let_live, ANYWHERE, ends_within=240, is_for_good=True
    ),
    "memory-exceeded": Fault(exceed_memory, n_lost=1),
    "scheduler-killed": Fault(kill_host, hosts=("scheduler",)),
    "client-killed": Fault(kill_host, hosts=("client",)),
    "host-gone": Fault(lose_host, bring_host_back, NODES, (10, 40)),
    "link-cut": Fault(CUT, HEAL, NODES, (3, 10)),
    "link-cut-for-longer": Fault(CUT, HEAL, NODES, (32, 40), n_lost=1),
    # At times for longer than the job waits.
    "partition": Fault(
        of_network("divide", WORKERS[1], hosts=WORKERS[:1]),
        of_network("unite", WORKERS[1], hosts=WORKERS[:1]), ANYWHERE, (10, 100),
    ),
    "loss": Fault(
        of_network(
            "drop", "lossy", 'iifname "eth0" numgen random mod 100 < 10', hosts=NODES
        ),
        of_network("drop_nothing", "lossy", hosts=NODES), ANYWHERE, (15, 30), needs="nft",
    ),
    "slow-link": Fault(
        of_network("slow_down", "2mbit", hosts=NODES), of_network("speed_up", hosts=NODES),
        ANYWHERE, (15, 30), needs="tc",
    ),
    "output-disk-full": Fault(
        of_disk("fill", "output"), of_disk("grow", "output"), ANYWHERE, (8, 20),
        storage="local",
    ),
    "spool-disk-full": Fault(fill_spool, of_disk("grow", "spool"), ANYWHERE, (8, 20)),
    "s3-errors": Fault(of_s3("errors"), of_s3(""), ANYWHERE, (20, 40), storage="s3"),
    "s3-answers-lost": Fault(of_s3("lost"), of_s3(""), ANYWHERE, (20, 40), storage="s3"),
    "workers-without-package": Fault(
        hide_package, install_package, ANYWHERE, (60, 60), is_before=True
    ),
}  # fmt: skip
