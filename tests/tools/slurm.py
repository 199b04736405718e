"""Run a command on a SLURM of its own: three nodes, all on this machine.

    unshare -n -p -m -f --mount-proc --kill-child python slurm.py FOLDER COMMAND...

Within these namespaces only: its daemons listen on all addresses, and end with the
namespaces. The exit code is that of the command.
"""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

NODES = ("n1", "n2", "n3")

#: Jobs of the second partition take nodes from jobs of the first, which SLURM then starts
#: again: not after 120 seconds, but after ``cred_expire``.
CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}({address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/completed.txt
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ReturnToService=2
KillWait=15
SlurmdTimeout=10
PartitionName=normal Nodes=ALL Default=YES PriorityTier=1
PartitionName=urgent Nodes=ALL PriorityTier=2
"""
NODE = """\
NodeName={name} NodeHostname={host} NodeAddr={address} Port={port} CPUs=4 RealMemory=6000
"""

#: Of the one interface; where there is only loopback the daemons find no address at all.
ADDRESS = "10.88.9.1"


def main(folder, *command):
    folder = Path(folder)
    make_interface()
    write_configuration(folder)
    os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
    with open(folder / "daemons.log", "w") as log:
        start(
            log,
            "munged",
            "-F",
            "--force",
            "--num-threads=1",
            *munge_files(folder / "munge"),
        )
        wait_for(folder / "munge" / "socket")
        start(log, "slurmctld", "-D")
        for name in NODES:
            start(log, "slurmd", "-D", "-N", name)
    wait_for_nodes()
    return subprocess.call(command)


def make_interface():
    for arguments in (
        "link set lo up",
        "link add eth0 type veth peer name eth1",
        f"addr add {ADDRESS}/24 dev eth0",
        "link set eth0 up",
        "link set eth1 up",
    ):
        subprocess.run(["ip", *arguments.split()], check=True)


def write_configuration(folder):
    for name in ("munge", "state", *(f"spool-{name}" for name in NODES)):
        (folder / name).mkdir(parents=True)
    key = folder / "munge" / "key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(128))
    values = {"folder": folder, "host": socket.gethostname(), "address": ADDRESS}
    text = CONFIGURATION.format(**values)
    for port, name in enumerate(NODES, 17001):
        text += NODE.format(name=name, port=port, **values)
    (folder / "slurm.conf").write_text(text)


def munge_files(folder):
    kinds = {"key": "key-file", "socket": "socket", "pid": "pid-file", "log": "log-file"}
    return [f"--{option}={folder}/{name}" for name, option in kinds.items()] + [
        f"--seed-file={folder}/seed"
    ]


def start(log, *command):
    subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)


def wait_for(path, seconds=20):
    end = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < end, f"{path} does not appear"
        time.sleep(0.1)


def wait_for_nodes(seconds=60):
    command = ["sinfo", "--noheader", "--partition=normal", "--states=idle", "--format=%D"]
    end = time.monotonic() + seconds
    while subprocess.run(command, capture_output=True, text=True).stdout.strip() != "3":
        assert time.monotonic() < end, "the nodes do not become idle"
        time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
