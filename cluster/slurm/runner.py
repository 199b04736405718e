"""Run a job in an allocation: task 0 is the scheduler, 1 the client, the others workers.

    salloc --ntasks=5 --cpus-per-task=2 --mem-per-cpu=1G
    srun --cpus-per-task=2 python runner.py job.toml

LPE_INTERFACE is the network interface of all. The exit code is that of `lpe-dask run`.
"""

import os
import subprocess
import sys

from dask_jobqueue.slurm import SLURMRunner

if __name__ == "__main__":  # workers of Dask import this file
    threads = int(os.environ["SLURM_CPUS_PER_TASK"])
    # The tenth that is left is for the nanny, which restarts a worker near its limit.
    memory = int(os.environ["SLURM_MEM_PER_CPU"]) * threads * 9 // 10
    # Memory that workers keep, see docs/guide/cluster.md.
    os.environ.setdefault("MALLOC_TRIM_THRESHOLD_", "33554432")
    os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", "16777216")
    interface = {"interface": os.environ.get("LPE_INTERFACE")}
    with SLURMRunner(
        scheduler_file="scheduler-{job_id}.json",
        scheduler_options={**interface, "dashboard": False},
        worker_class="distributed.Nanny",
        worker_options={**interface, "nthreads": threads, "memory_limit": f"{memory}MiB"},
    ) as runner:  # only the client gets here
        command = ["lpe-dask", "run", *sys.argv[1:]]
        code = subprocess.call([*command, "--scheduler", runner.scheduler_address])
    sys.exit(code)
