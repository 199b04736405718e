"""Run a command where SSH reaches three machines, all of which are this one.

    unshare -n -p -m -f --mount-proc --kill-child python sshd.py FOLDER COMMAND...

Within these namespaces only: in them each address is on loopback, and all that was started
ends with the command. The key that the command makes in ~/.ssh lets it in, once it is in
FOLDER/authorized_keys. The exit code is that of the command.
"""

import subprocess
import sys
import time
from pathlib import Path

ADDRESSES = ("10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1")

#: An absolute file of keys: sshd would look into the home of root, and not of the test.
CONFIGURATION = """\
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
PidFile none
MaxStartups 100
"""


def main(folder, *command):
    folder = Path(folder)
    folder.mkdir()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for address in ADDRESSES:
        subprocess.run(["ip", "address", "add", address, "dev", "lo"], check=True)
    key = ["-q", "-t", "ed25519", "-N", "", "-f", folder / "host_key"]
    subprocess.run(["ssh-keygen", *key], check=True)
    (folder / "sshd_config").write_text(CONFIGURATION.format(folder=folder))
    # Where sshd puts its helpers; no option moves it.
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    Path("/run/sshd").mkdir(mode=0o755)
    with open(folder / "sshd.log", "w") as log:
        subprocess.Popen(
            ["/usr/sbin/sshd", "-D", "-e", "-f", folder / "sshd_config"], stderr=log
        )
    wait_until_it_answers()
    return subprocess.call(command)


def wait_until_it_answers(seconds=20):
    end = time.monotonic() + seconds
    command = ["ssh-keyscan", "-T", "1", ADDRESSES[0]]
    while not subprocess.run(command, capture_output=True, check=False).stdout:
        assert time.monotonic() < end, "sshd does not answer"
        time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
