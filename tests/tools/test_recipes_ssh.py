"""cluster/ssh and the commands of its page, with sshd on three addresses."""

import sys
from pathlib import Path

import pytest

from recipes import SHARED, commands_of, parts_of_site, run_at_site, skip_unless

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

SSHD = [sys.executable, str(Path(__file__).with_name("sshd.py")), f"{SHARED}/sshd"]

#: In place of ssh-copy-id, which needs a password and an answer about the keys of hosts.
COPY_KEY = f"""
cat ~/.ssh/id_ed25519.pub > {SHARED}/sshd/authorized_keys
ssh-keyscan 10.0.0.1 10.0.0.2 10.0.0.3 > ~/.ssh/known_hosts
"""

#: The command of the page, and what comes before it.
*BEFORE, RUN = commands_of("ssh")
KEYS = "\n".join(COPY_KEY if "ssh-copy-id" in line else line for line in BEFORE)

N_PARTS = "$(ls out 2> /dev/null | grep -c part-)"


@pytest.fixture(autouse=True, scope="module")
def _can_run():
    pytest.importorskip("asyncssh")
    skip_unless("/usr/sbin/sshd", "ssh-keygen", "ssh-keyscan", "ss")


def test_page__leads_to_the_bits_of_one_process(site, parts_of_threads):
    """And every process listens on the address that was given for it, and on no other."""
    observed = RUN.replace(
        " lpe-dask run",
        """ bash -c 'ss -ltnH > listening; exec lpe-dask "$@"' lpe-dask run""",
    )
    assert observed != RUN

    run_at_site(site, f"{KEYS}\n{observed}", 240, SSHD)

    assert parts_of_site(site) == parts_of_threads
    places = [
        line.split()[3] for line in (site / "lpe" / "listening").read_text().splitlines()
    ]
    hosts = {place.rpartition(":")[0] for place in places if not place.endswith(":22")}
    assert hosts == {"10.0.0.1", "10.0.0.2", "10.0.0.3"}


@pytest.mark.slow
def test_over_ssh__takes_ipv6(site, parts_of_threads):
    six = RUN.replace("10.0.0.1,10.0.0.2,10.0.0.3", "fd00::1")
    scan = "ssh-keyscan fd00::1 >> ~/.ssh/known_hosts"

    run_at_site(site, f"{KEYS}\n{scan}\n{six}", 240, SSHD)

    assert parts_of_site(site) == parts_of_threads


@pytest.mark.slow
def test_over_ssh__passes_sigterm_on_and_the_same_command_resumes(site, parts_of_threads):
    script = f"""
        {KEYS}
        {RUN} &
        until [ {N_PARTS} -ge 5 ]; do sleep 0.3; done
        kill -TERM $!
        wait $! && code=0 || code=$?
        echo "exit code $code, {N_PARTS} parts, lock: $(ls out | grep lock)"
        {RUN}
    """

    said = run_at_site(site, script, 240, SSHD, slow=0.7)

    assert "exit code 143" in said
    assert ", lock: \n" in said
    assert "parts exist already" in said
    assert parts_of_site(site) == parts_of_threads


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "sed -i /^10.0.0.2/d ~/.ssh/known_hosts",
            "Host key is not trusted for host 10.0.0.2",
        ),
        (f"rm {SHARED}/sshd/authorized_keys", "Permission denied"),
        ("ip address del 10.0.0.3/32 dev lo", "Network is unreachable"),
    ],
)
def test_over_ssh__says_in_a_line_why_there_is_no_cluster(site, change, message):
    script = f"{KEYS}\n{change}\n{RUN} 2> errors && exit 99 || echo exit code $?"

    said = run_at_site(site, script, 120, SSHD)

    assert "exit code 1" in said
    last = (site / "lpe" / "errors").read_text().splitlines()[-1]
    assert last.startswith("no cluster was started: ")
    assert message in last
