"""The cluster that commands start: what other users of this machine can do with it."""

import json
import os
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
from distributed import LocalCluster, Worker

from lpe_dask.batch import ClusterSection
from lpe_dask.cli.cluster import WorkerChoice
from lpe_dask.tasks.worker_pool import active_client

#: A user who is nobody's friend.
NOBODY = 65534

#: Asks all ports in all ways, as another user if one is given, and prints what came back.
ATTACK = """
import asyncio, json, os, sys, urllib.request
from distributed import Security, rpc
import distributed.http, distributed.comm.tcp

user, ports = int(sys.argv[1]), json.loads(sys.argv[2])
ours = Security.temporary().get_connection_args("client")
ways = {"tcp": {}, "tls": ours}
if user:
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)

async def ask(way, port):
    address = f"{way}://127.0.0.1:{port}"
    async with rpc(address, connection_args=ways[way], timeout=3) as server:
        return (await server.identity())["type"]

async def ask_http(port):
    url = f"http://127.0.0.1:{port}/health"
    return (await asyncio.to_thread(urllib.request.urlopen, url, timeout=3)).status

async def main():
    asked = {(way, port): ask(way, port) for way in ways for port in ports}
    asked |= {("http", port): ask_http(port) for port in ports}
    answers = await asyncio.gather(
        *(asyncio.wait_for(each, 10) for each in asked.values()), return_exceptions=True
    )
    return {
        f"{way} {port}": answer
        for (way, port), answer in zip(asked, answers)
        if not isinstance(answer, Exception)
    }

print(json.dumps(asyncio.run(main())), flush=True)
os._exit(0)
"""


def answers(user, ports):
    """What a process of a user gets to know at these ports."""
    command = [sys.executable, "-c", ATTACK, str(user), json.dumps(ports)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def processes():
    return [psutil.Process(), *psutil.Process().children(recursive=True)]


def notifying():
    """The addresses at which this process and its children listen."""
    return {
        socket.laddr
        for process in processes()
        for socket in process.net_connections("inet")
        if socket.status == psutil.CONN_LISTEN
    }


def ports_of(addresses):
    return sorted(address.port for address in addresses)


def users():
    may = os.geteuid() == 0
    reason = "only root may start a process of another user"
    return [0, pytest.param(NOBODY, marks=pytest.mark.skipif(not may, reason=reason))]


@pytest.fixture(scope="module")
def before():
    return notifying()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A temporary directory in which another user was first, as may be in /tmp."""
    shared = tmp_path_factory.mktemp("shared")
    (shared / "dask-scratch-space").mkdir()
    (shared / "dask-scratch-space").chmod(0o777)
    (shared / "dask-scratch-space" / "planted.py").write_text("")
    return shared


@pytest.fixture(scope="module")
def client(before, shared):
    """A client of the cluster of a command, while tasks are at work."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(shared))
        with WorkerChoice(ClusterSection(workers=2)).open():
            client = active_client()
            work = client.map(time.sleep, [300, 301], pure=False)
            yield client
            assert {future.status for future in work} == {"pending"}
            client.cancel(work)


pytestmark = pytest.mark.cluster


@pytest.mark.full
def test_attack__succeeds_where_nothing_is_closed(before):
    """Otherwise the other tests here would show nothing."""
    with LocalCluster(
        processes=False, n_workers=1, protocol="tcp://", dashboard_address="127.0.0.1:0"
    ):
        found = answers(0, ports_of(notifying() - before))

    kinds = {(key.split()[0], str(answer)) for key, answer in found.items()}
    assert kinds == {("tcp", "Scheduler"), ("tcp", "Worker"), ("http", "200")}


@pytest.mark.parametrize("user", users())
def test_cluster__answers_only_who_has_its_certificate(client, before, user):
    opened = notifying() - before

    assert answers(user, ports_of(opened)) == {}
    assert {address.ip for address in opened} == {"127.0.0.1"}
    assert len(opened) == 5  # scheduler, two nannies, two workers, and no HTTP server


def test_cluster__keeps_its_key_in_memory(client, shared):
    secret = client.security.tls_worker_key.splitlines()[1]
    assert len(secret) > 50

    seen = [[*process.cmdline(), *process.environ().values()] for process in processes()]
    assert len(seen) >= 3
    assert secret not in str(seen)
    files = [path for path in shared.rglob("*") if path.is_file()]
    assert files
    assert [path for path in files if secret in path.read_text(errors="replace")] == []


def scratch_folder(dask_scheduler):
    return dask_scheduler.local_directory


def temporary_and_scratch(dask_worker: Worker):
    return tempfile.gettempdir(), dask_worker.local_directory


def test_cluster__writes_only_where_no_other_user_looks(client, shared):
    folders = {client.run_on_scheduler(scratch_folder)}
    folders.update(*client.run(temporary_and_scratch).values())

    assert len(folders) == 4  # both workers have one temporary folder
    for folder in folders:
        of_run = shared / Path(folder).relative_to(shared).parts[0]
        assert of_run.stat().st_mode & 0o777 == 0o700


def test_cluster__imports_nothing_that_another_user_wrote(client):
    found = [*client.run(find_spec, "planted").values(), find_spec("planted")]

    assert found == [None, None, None]


@pytest.mark.full
def test_dashboard__is_there_where_it_is_asked_for():
    before = notifying()
    with WorkerChoice(ClusterSection(workers=1, dashboard=True)).open():
        opened = notifying() - before
        found = answers(0, ports_of(opened))
        link = active_client().dashboard_link

    ((key, status),) = found.items()
    assert (key.split()[0], status) == ("http", 200)
    assert link == f"http://127.0.0.1:{key.split()[1]}/status"
    assert {address.ip for address in opened} == {"127.0.0.1"}
