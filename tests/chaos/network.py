"""Hosts as network namespaces on one switch; no root is needed within a user namespace.

The switch is a bridge in the namespace of this process. A cut link is silence: no packet
says that the other side is gone.
"""

import os
import signal
import subprocess
from contextlib import suppress
from itertools import permutations
from pathlib import Path

#: The hosts and their addresses; this process has an address of its own.
HOSTS = {
    "scheduler": "10.88.0.1",
    "worker-1": "10.88.0.2",
    "worker-2": "10.88.0.3",
    "client": "10.88.0.4",
    "storage": "10.88.0.5",
}
OBSERVER = "10.88.0.9"

#: The hardware address of no host.
NOBODY = "02:00:00:00:00:99"

#: What a host of its own needs: user, network, mount and process namespaces. When this
#: process is killed, so is everything in them.
WRAPPER = (
    *("unshare", "--map-root-user", "--net", "--mount", "--pid", "--fork"),
    *("--mount-proc", "--kill-child"),
)


def why_not():
    """Return why there can be no such hosts on this machine; None if there can."""
    try:
        tried = subprocess.run(
            [*WRAPPER, "ip", "link", "add", "br0", "type", "bridge"],
            capture_output=True, text=True,
        )  # fmt: skip
    except FileNotFoundError as error:
        return f"{error.filename} is not installed"
    return tried.stderr.strip() or None if tried.returncode else None


class Network:
    """The switch and the hosts, as long as the context is open."""

    def __enter__(self):
        _ip("link", "set", "lo", "up")
        _ip("link", "add", "br0", "type", "bridge")
        _ip("addr", "add", f"{OBSERVER}/24", "dev", "br0")
        _ip("link", "set", "br0", "up")
        self._holders = {host: self._new_host(host) for host in HOSTS}
        return self

    def __exit__(self, *error):
        for host, holder in self._holders.items():
            # By name: with its namespace it would go at some later time.
            _ip("link", "delete", f"to-{host}")
            self.signal(host, signal.SIGKILL)
            holder.kill()
            holder.wait()
        _ip("link", "delete", "br0")

    def _new_host(self, host):
        # A process that sleeps holds the namespaces, so that they need no name.
        command = f"hostname {host} && echo && exec sleep infinity"
        holder = subprocess.Popen(
            ["unshare", "--net", "--uts", "sh", "-c", command], stdout=subprocess.PIPE
        )
        holder.stdout.readline()
        port, inside = f"to-{host}", str(holder.pid)
        cable = ("type", "veth", "peer", "name", "eth0", "netns", inside)
        _ip("link", "add", port, *cable)
        _ip("link", "set", port, "master", "br0", "up")
        enter = self._enter(holder.pid)
        _ip("addr", "add", f"{HOSTS[host]}/24", "dev", "eth0", before=enter)
        for device in ("lo", "eth0"):
            _ip("link", "set", device, "up", before=enter)
        return holder

    def _enter(self, pid):
        return ("nsenter", f"--net=/proc/{pid}/ns/net", f"--uts=/proc/{pid}/ns/uts")

    def on(self, host, *command):
        """Return the command that runs a command on a host."""
        return [*self._enter(self._holders[host].pid), *map(str, command)]

    # Processes

    def pids(self, host):
        """Return the processes of a host."""
        holder = self._holders[host].pid
        here = os.stat(f"/proc/{holder}/ns/net").st_ino
        found = []
        for path in Path("/proc").glob("[0-9]*/ns/net"):
            with suppress(OSError):  # it has ended
                if path.stat().st_ino == here:
                    found.append(int(path.parts[2]))
        return sorted({*found} - {holder})

    def signal(self, host, number, but=()):
        """Send a signal to all processes of a host; return whether there are any."""
        pids = {*self.pids(host)} - {*but}
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return bool(pids)

    # Links

    def cut(self, host):
        _ip("link", "set", f"to-{host}", "down")

    def heal(self, host):
        _ip("link", "set", f"to-{host}", "up")

    def divide(self, *hosts):
        """Let some hosts send to nobody what they mean for each other."""
        wrong = ("lladdr", NOBODY, "dev", "eth0", "nud", "permanent")
        for host, other in permutations(hosts, 2):
            _ip("neigh", "replace", HOSTS[other], *wrong, before=self.on(host))

    def unite(self, *hosts):
        for host, other in permutations(hosts, 2):
            _ip("neigh", "delete", HOSTS[other], "dev", "eth0", before=self.on(host))

    def drop(self, host, table, rule):
        """Let a host lose incoming packets, by a rule of nftables in a table of its own."""
        chain = f"type filter hook input priority 0\n{rule} drop\n"
        text = f"table ip {table} {{\nchain input {{\n{chain}}}\n}}\n"
        subprocess.run(self.on(host, "nft", "-f", "-"), input=text, text=True, check=True)

    def drop_nothing(self, host, table):
        subprocess.run(self.on(host, "nft", "delete", "table", "ip", table), check=True)

    def slow_down(self, host, rate):
        """Limit what a host sends, as in 2mbit."""
        limit = ("tbf", "rate", rate, "burst", "16kb", "latency", "400ms")
        queue = ("tc", "qdisc", "replace", "dev", "eth0", "root", *limit)
        subprocess.run(self.on(host, *queue), check=True)

    def speed_up(self, host):
        queue = ("tc", "qdisc", "delete", "dev", "eth0", "root")
        subprocess.run(self.on(host, *queue), check=True)


def _ip(*arguments, before=()):
    subprocess.run([*before, "ip", *arguments], check=True)
