"""Run a command of lpe-dask here, with workers that come and go as jobs of SLURM.

    python adaptive.py 8 lpe-dask run job.toml        # at most 8 workers

jobqueue.yaml describes a worker. The exit code is that of the command.
"""

import signal
import subprocess
import sys

from dask_jobqueue import SLURMCluster


def run(command, address):
    """Return the exit code of a command that joins a scheduler; signals are for it."""
    child = subprocess.Popen([*command, "--scheduler", address])
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: child.send_signal(number))
    return child.wait()


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    with SLURMCluster() as cluster:
        # At least two: while one ends, the other takes over what it holds. And without any
        # minimum Dask does not ask for a second worker while the first one mostly writes.
        cluster.adapt(minimum_jobs=2, maximum_jobs=int(sys.argv[1]))
        cluster.wait_for_workers(1)  # however long the queue is
        code = run(sys.argv[2:], cluster.scheduler_address)
    sys.exit(code)
