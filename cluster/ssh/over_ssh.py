"""Run a command of lpe-dask on a Dask cluster of machines that SSH reaches.

    python over_ssh.py 10.0.0.1,10.0.0.2,10.0.0.3 lpe-dask run job.toml

The scheduler and a worker run on the first machine, and a worker on each of the others,
with the Python that runs this script: it has to be at the same path everywhere. User, port
and key are those of ~/.ssh/config. The exit code is that of the command.
"""

import ipaddress
import signal
import subprocess
import sys

import asyncssh
import dask
from distributed import SpecCluster
from distributed.deploy.ssh import Scheduler, Worker

#: Options of each worker. By default it takes all cores and all memory of its machine.
WORKER = {}  # for example {"nthreads": 8, "memory_limit": "24GiB"}
#: Memory that workers keep, see docs/guide/cluster.md. They get Dask's configuration from
#: here.
ENVIRONMENT = {"MALLOC_TRIM_THRESHOLD_": 2**25, "MALLOC_MMAP_THRESHOLD_": 2**24}
#: If this script is killed, the scheduler ends when it was idle for so long.
SCHEDULER = {"port": 0, "idle_timeout": "10 minutes"}


def cluster_on(addresses):
    """Return a cluster; `SSHCluster` is the same, but has one `host` for all workers.

    Without `host` a process listens on the address towards the Internet, wherever ssh went.
    """
    return SpecCluster(
        scheduler=process(Scheduler, addresses[0], SCHEDULER),
        workers={address: process(Worker, address, WORKER) for address in addresses},
        name="SSHCluster",
    )


def process(kind, address, options):
    """Return what `SpecCluster` has to know of a process on a machine."""
    host = f"[{address}]" if ":" in address else address  # as in a URL
    options = {
        "address": address,
        "connect_options": {},
        "kwargs": {**options, "host": host},
        "remote_python": sys.executable,
    }
    return {"cls": kind, "options": options}


def run(command, address):
    """Return the exit code of a command that joins a scheduler; signals are for it."""
    child = subprocess.Popen([*command, "--scheduler", address])
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: child.send_signal(number))
    return child.wait()


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    try:
        # No names: that of a machine may be 127.0.1.1 on itself.
        addresses = [str(ipaddress.ip_address(word)) for word in sys.argv[1].split(",")]
        for name, value in ENVIRONMENT.items():
            dask.config.set({f"distributed.nanny.pre-spawn-environ.{name}": value})
        cluster = cluster_on(addresses)
    except (ValueError, OSError, RuntimeError, asyncssh.Error) as error:
        sys.exit(f"no cluster was started: {error}")
    with cluster:
        code = run(sys.argv[2:], cluster.scheduler_address)
    sys.exit(code)
