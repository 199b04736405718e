"""Run the commands of cluster/README.md, in namespaces that stand for a site."""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[1]
README = ROOT / "cluster" / "README.md"

#: What all machines share, in README: the folder of a test is mounted there.
SHARED = Path("/srv")

#: A preload of workers, with which a run lasts longer than its work.
SLOW_WORKER = """\
import time

import pyarrow.parquet as pq

write_table = pq.write_table


def write_slowly(*args, **kwargs):
    time.sleep({seconds})
    return write_table(*args, **kwargs)


def dask_setup(worker):
    pq.write_table = write_slowly
"""


def skip_unless(*programs):
    """Skip a test where it cannot run, and say why."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("only root can start these daemons, in namespaces")
    for program in ("unshare", "ip", "mount", *programs):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    if subprocess.run(["unshare", "-n", "-p", "-m", "-f", "true"], check=False).returncode:
        pytest.skip("this machine allows no namespaces")


def commands_of(section):
    """Return the commands of a section of README, each as one line."""
    [text] = re.findall(
        rf"^## {section}\n(.*?)(?=^## |\Z)", README.read_text(), re.MULTILINE | re.DOTALL
    )
    blocks = re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", "").splitlines()
    return [re.sub(r"\s+#.*", "", line[2:]) for line in lines if line.startswith("$ ")]


def make_site(folder):
    """Fill a folder as README says, with the environment of these tests."""
    (folder / "home" / ".ssh").mkdir(parents=True, mode=0o700)
    here = folder / "lpe"
    here.mkdir()
    (here / ".venv").symlink_to(sys.prefix)
    (here / "lpe-dask").symlink_to(ROOT)
    subprocess.run([sys.executable, ROOT / "cluster" / "example.py"], cwd=here, check=True)


def run_at_site(folder, script, seconds, program=(), slow=0.0):
    """Run a script in a site of its own network; return what it printed.

    Nothing that it starts survives it.

    Parameters
    ----------
    folder : Path
        Of `make_site`.
    script : str
        For bash; raises AssertionError if it fails.
    seconds : float
        After which all of it is killed.
    program : sequence of str
        Runs the script, as its last arguments.
    slow : float
        Seconds that each file takes which a worker writes.
    """
    (folder / "slow.py").write_text(SLOW_WORKER.format(seconds=slow))
    (folder / "script.sh").write_text(script)
    inner = shlex.join([*program, "bash", "-eu", f"{SHARED}/script.sh"])
    mount = shlex.join(["mount", "--bind", str(folder), str(SHARED)])
    # By KILL: unshare ignores the others, and takes all of its namespaces with it.
    command = ["timeout", "-s", "KILL", str(seconds), "unshare", "-n", "-p", "-m", "-f"]
    command += ["--mount-proc", "--kill-child"]
    command += ["bash", "-euc", f"{mount}; cd {SHARED}/lpe; {inner}"]
    environment = os.environ | {
        "HOME": f"{SHARED}/home",
        "PATH": f"{SHARED}/lpe/.venv/bin{os.pathsep}{os.environ['PATH']}",
        "DASK_DISTRIBUTED__WORKER__PRELOAD": f'["{SHARED}/slow.py"]',
    }

    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}"
    return done.stdout


def digest_of_one_process(folder):
    """Return the digest of the job of README with `--scheduler threads`."""
    make_site(folder)
    program = Path(sys.executable).with_name("lpe-dask")
    command = [program, "run", "job.toml", "--scheduler", "threads"]
    subprocess.run(command, cwd=folder / "lpe", check=True, capture_output=True)
    return digest(folder / "lpe" / "out")


def digest(output):
    """Return a hash of the names and values of all parts of a finished output."""
    assert (output / "_summary.json").exists()
    found = hashlib.sha256()
    for path in sorted(output.glob("part-*")):
        table = pq.read_table(path)
        found.update(path.name.encode())
        for name in table.column_names:
            found.update(f"{name} {table[name].to_pylist()!r}".encode())
    return found.hexdigest()[:16]
