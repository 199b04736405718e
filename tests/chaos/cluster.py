"""A scheduler, two workers and the job, each on its host, under a supervisor.

As systemd, SLURM or Kubernetes would do, the supervisor starts again whatever has ended:
the scheduler, the workers, and the job until its exit code is 0.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import fsspec
from s3fs import S3FileSystem

from calling import COMMAND
from chaos import s3
from chaos.job import NEXT, Place, plain_environment
from chaos.network import HOSTS
from storages import s3_environment
from waiting import eventually

HERE = Path(__file__).parent
WORKERS = ("worker-1", "worker-2")
SCHEDULER = f"tcp://{HOSTS['scheduler']}:8786"

#: Seconds from the end of a process to its next start.
PAUSE = 2.0

#: Seconds after which the scheduler restarts a silent worker: a third of what commands give
#: to their own clusters.
WORKER_TTL = 20

#: Seconds without a finished task after which the job ends, to be started again.
GIVE_UP_AFTER = 80

#: Memory of a worker, and of a disk.
MEMORY, DISK = "1GiB", "256m"

#: What a worker finds that has not the package: no version, and nothing to import.
STUBS = {
    "lpe_dask/__init__.py": "raise ModuleNotFoundError('lpe_dask')\n",
    "lpe_dask-0.dist-info/METADATA": "Metadata-Version: 2.1\nName: lpe-dask\n",
}

S3_ENVIRONMENT = s3_environment(HOSTS["storage"], s3.PORT)


@dataclass
class Service:
    """A process that is kept running."""

    host: str
    command: list
    environment: dict = field(default_factory=dict)
    paths: list = field(default_factory=list)  # where Python looks first
    process: subprocess.Popen | None = None
    ended: float | None = None
    ready: float | None = None  # when all was imported
    lifetime: float | None = None  # seconds from then after which it is killed
    is_held: bool = False  # its host is down: it cannot be started
    is_wanted: bool = True
    n_starts: int = 0

    def is_up(self):
        return self.process is not None and self.process.poll() is None


class Cluster:
    """The services of one run, in a folder of its own.

    Attributes
    ----------
    folder : Path
        Holds logs, scratch space, and the disks "output" and "spool".
    place : Place
        Where the job reads and writes.
    """

    def __init__(self, network, folder, inputs, history, schedule):
        self.network, self.folder, self.history = network, folder, history
        self.inputs, self.part_seconds = inputs, schedule.part_seconds
        self.is_s3 = schedule.storage == "s3"
        self.place = Place(str(inputs), str(folder / "output"))
        if self.is_s3:
            self.place = Place("s3://bucket/in", "s3://bucket/run")
        self.exit_code = None
        self.services = {}

    def __enter__(self):
        for name in ("logs", "output", "spool"):
            (self.folder / name).mkdir()
        for name, text in STUBS.items():
            stub = self.folder / "stub" / name
            stub.parent.mkdir(parents=True)
            stub.write_text(text)
        for disk in ("output", "spool"):
            _mount("-t", "tmpfs", "-o", f"size={DISK}", "chaos", self.folder / disk)
        self.place.write_job(self.folder / "job.toml")
        self.place.write_job(self.folder / "next.toml", NEXT)
        if self.is_s3:
            self._add_storage()
        self._add_cluster()
        return self

    def __exit__(self, *error):
        for host in HOSTS:
            self.network.signal(host, signal.SIGKILL)
        for service in self.services.values():
            if service.process is not None:
                service.process.wait()
        for disk in ("output", "spool"):
            subprocess.run(["umount", "--lazy", self.folder / disk], check=True)

    # What there is

    @property
    def s3_faults(self):
        """The file that tells the S3 server how to fail."""
        return self.folder / "s3-faults"

    @property
    def writes(self):
        """The file with a line for each part that was written."""
        return self.folder / "writes.jsonl"

    def _ready(self, name):
        return self.folder / f"ready-{name}"

    def log(self, name):
        return self.folder / "logs" / f"{name}.log"

    def job_log(self):
        """Return the log of the latest start of the job."""
        return self.log(f"job-{self.services['job'].n_starts}")

    def _add(self, name, command, host=None, **environment):
        self.services[name] = Service(host or name, command, environment)

    def _add_storage(self):
        server = [sys.executable, "-m", "chaos.s3", HOSTS["storage"], self.s3_faults]
        self._add("storage", server)
        self.services["storage"].paths.append(HERE.parent)
        self._start(self.services["storage"], "storage")
        self._fill_bucket()

    def _add_cluster(self):
        dask, at = COMMAND.with_name("dask"), HOSTS["scheduler"]
        self._add(
            "scheduler",
            [dask, "scheduler", "--host", at, "--port", "8786", "--no-dashboard"],
            DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL=f"{WORKER_TTL}s",
        )
        for name in WORKERS:
            self._add(
                name,
                [dask, "worker", SCHEDULER, "--host", HOSTS[name], "--name", name,
                 "--nthreads", "1", "--memory-limit", MEMORY, "--no-dashboard",
                 "--local-directory", self.folder / f"scratch-{name}",
                 "--preload", HERE / "preload.py"],
                CHAOS_SECONDS=str(self.part_seconds),
                CHAOS_WRITES=str(self.writes),
                CHAOS_READY=str(self._ready(name)),
                CHAOS_TAKE=str(self.folder / "take"),
            )  # fmt: skip
        command = [
            *[COMMAND, "run", self.folder / "job.toml", "--scheduler", SCHEDULER],
            *["--give-up-after", f"{GIVE_UP_AFTER}s"],
        ]
        self._add("job", command, "client", DASK_LPE_DASK__SPOOL=self.folder / "spool")

    # Starting

    def supervise(self):
        """Start what has ended some seconds ago; to be called all the time."""
        for name, service in self.services.items():
            if service.is_up():
                self._end_old(service)
                continue
            if service.process is not None and service.ended is None:
                service.ended = time.monotonic()
                self._tell_end(name, service)
            is_due = service.ended is None or time.monotonic() - service.ended >= PAUSE
            if service.is_wanted and not service.is_held and is_due:
                self._start(service, name)

    def _end_old(self, service):
        if service.ready is None and self._ready(service.host).exists():
            service.ready = time.monotonic()
        if None not in (service.ready, service.lifetime):
            age = time.monotonic() - service.ready
            if age > service.lifetime:
                self.network.signal(service.host, signal.SIGKILL)

    def _tell_end(self, name, service):
        code = service.process.returncode
        if name != "job":
            self.history.add("ended", service=name, code=code)
            return
        message = self.job_log().read_text().strip().splitlines()
        self.history.add("job ended", code=code, said="\n".join(message[-4:]))
        if code == 0:
            self.exit_code, service.is_wanted = 0, False

    def _start(self, service, name):
        service.n_starts += 1
        service.ended = service.ready = None
        self._ready(service.host).unlink(missing_ok=True)
        log = self.job_log() if name == "job" else self.log(name)
        variables = plain_environment() | (S3_ENVIRONMENT if self.is_s3 else {})
        variables |= {key: str(value) for key, value in service.environment.items()}
        if service.paths:
            variables["PYTHONPATH"] = os.pathsep.join(map(str, service.paths))
        with open(log, "a") as file:
            service.process = subprocess.Popen(
                self.network.on(service.host, *service.command),
                stdout=file, stderr=subprocess.STDOUT, env=variables, cwd=self.folder,
            )  # fmt: skip
        self.history.add("started", service=name)

    def run_once(self, name):
        """Run a job that nothing disturbs; return its exit code and what it says."""
        service = self.services["job"]
        service.command = [*service.command[:2], self.folder / name, *service.command[3:]]
        self._start(service, "job")
        code = None
        if eventually(lambda: self._is_over(service), 90):
            code = service.process.returncode
        return code, self.job_log().read_text().strip()

    def _is_over(self, service):
        is_over = not service.is_up()
        if not is_over:
            self.supervise()
        return is_over

    def _fill_bucket(self):
        os.environ.update(S3_ENVIRONMENT)  # this process reads from it as well
        assert eventually(_s3_answers, 60)
        S3FileSystem.clear_instance_cache()  # that of another run has its listings
        filesystem = fsspec.filesystem("s3")
        filesystem.mkdir("bucket")
        for path in [self.inputs / "nominal.parquet", *(self.inputs / "rows").iterdir()]:
            filesystem.put(str(path), f"bucket/in/{path.relative_to(self.inputs)}")

    # Disks

    def fill(self, disk):
        """Let a disk be full: it gets no larger than what is on it."""
        used = os.statvfs(self.folder / disk)
        n_bytes = (used.f_blocks - used.f_bfree) * used.f_frsize
        _mount("-o", f"remount,size={max(n_bytes, 4096)}", self.folder / disk)

    def grow(self, disk):
        _mount("-o", f"remount,size={DISK}", self.folder / disk)


def _s3_answers():
    try:
        socket.create_connection((HOSTS["storage"], s3.PORT), 1).close()
    except OSError:
        return False
    return True


def _mount(*arguments):
    subprocess.run(["mount", *arguments], check=True)
