r"""Run the pods of cluster/kubernetes/ as processes of the built image.

By hand, as root, and with what test_recipes_kubernetes.py needs:

    buildah inspect --type image IMAGE > image.json
    unshare -n -m -p -f --mount-proc --kill-child python tests/pods_of_image.py \
        daskjob image.json $(buildah mount $(buildah from IMAGE))

A pod has a network, mounts and processes of its own, no rights, and a root folder that it
cannot write to. An S3 server for tests has the logs. Not there are a Kubernetes server,
limits of memory and processors, probes and DNS.
"""

import json
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import fsspec
import yaml
from moto.server import ThreadedMotoServer

from manifests import pods_of
from recipe_pages import CLUSTER, DAY, hashes_by_threads, hashes_in, write_logs

#: Addresses of the pods begin with this; the machine, with the S3 server, is the last one.
NETWORK = "10.88.0"
MACHINE = f"{NETWORK}.254"

#: What the Secret of the manifests has, and what lets numba and Python say all at once.
VARIABLES = {
    "AWS_ENDPOINT_URL": f"http://{MACHINE}:5555",
    "AWS_ACCESS_KEY_ID": "somebody",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "LPE_BUCKET": "bucket",
    "DASK_LPE_DASK__SPOOL": "s3://bucket/spool",
    "NUMBA_DEBUG_CACHE": "1",
    "PYTHONUNBUFFERED": "1",
}

#: Prepares the root folder of a pod and becomes its first process.
START = r"""
mount --bind "$ROOT" "$ROOT"
mount -o remount,bind,ro "$ROOT"
mount -t proc proc "$ROOT/proc"
mount --rbind /dev "$ROOT/dev"
for name in tmp jobs etc/hosts; do mount --bind "$POD/$name" "$ROOT/$name"; done
exec chroot "$ROOT" setpriv --reuid 1000 --regid 1000 --clear-groups --no-new-privs \
    --bounding-set=-all --inh-caps=-all env -i -C /tmp "$@"
"""


def main(kind, image, root):
    manifest = (CLUSTER / "kubernetes" / f"{kind}.yaml").read_text()
    manifest = yaml.safe_load(manifest.replace("RUN-ID", "2026-11-20-1"))
    folder = Path(tempfile.mkdtemp())
    machine = Machine(folder, Path(root), json.loads(Path(image).read_text()))
    expected = fill_bucket(folder)

    if kind == "daskjob":
        manifest["spec"]["cluster"]["spec"]["worker"]["replicas"] = 2
        scheduler, _, run, workers = pods_of(manifest)
        for deployment in (scheduler, *workers):
            machine.start(deployment["spec"]["template"]["spec"])
        spec = run["spec"]
    else:
        spec = manifest["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    spec["containers"][0]["args"].append(f"--date={DAY}")
    for _ in range(5):
        process = machine.start(spec)
        code = process.wait()
        print(f"exit code {code}\n{without_cache_lines(process.log)}")
        if code in (0, 2):
            break
        time.sleep(10)  # then the run is started again

    found = hashes_in(f"s3://bucket/out/{DAY}")
    print(
        f"{len(found)} parts; the bits of threads: {found == expected}",
        *found.items(),
        sep="\n",
    )
    for log in sorted(folder.glob("pods/*/log")):
        text = log.read_text()
        loaded, saved = (text.count(f"[cache] data {word}") for word in ("loaded", "saved"))
        print(f"pod {log.parent.name}: {loaded} kernels loaded, {saved} compiled")
    os._exit(0)  # the namespace ends with this process, and everything in it


def fill_bucket(folder):
    """Put logs into a bucket, and return the hashes of what they give with threads."""
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    ThreadedMotoServer(MACHINE, 5555, verbose=False).start()
    os.environ.update(VARIABLES | {"NO_PROXY": MACHINE})
    write_logs(folder / "logs")
    bucket = fsspec.filesystem("s3")
    bucket.mkdir("bucket")
    for name in ("nominal", "in"):
        bucket.put(f"{folder}/logs/{name}", "bucket/", recursive=True)
    (folder / "expected").mkdir()
    local = {"s3://${LPE_BUCKET}": f"{folder}/logs"}
    return hashes_by_threads(CLUSTER / "s3" / "nightly.toml", folder / "expected", local)


def without_cache_lines(log):
    return re.sub(r"^\[cache\].*\n", "", log.read_text(), flags=re.MULTILINE)


class Machine:
    """A network for pods, and the files and settings of the image."""

    def __init__(self, folder, root, image):
        self.folder, self.root = folder, root
        self.config = image["OCIv1"]["config"]
        self.n_pods = 0
        (root / "jobs").mkdir(exist_ok=True)  # as a container runtime makes it
        Path("/run/netns").mkdir(exist_ok=True)
        do("mount -t tmpfs tmpfs /run/netns")
        do("ip link set lo up")
        do("ip link add bridge type bridge")
        do(f"ip address add {MACHINE}/24 dev bridge")
        do("ip link set bridge up")

    def start(self, spec):
        """Start the container of a pod as a kubelet would, and return its process."""
        self.n_pods += 1
        name, [container] = f"pod{self.n_pods}", spec["containers"]
        self._connect(name)
        pod = self._folder(name)
        variables = dict(variable.split("=", 1) for variable in self.config["Env"])
        variables |= VARIABLES
        variables |= {entry["name"]: entry["value"] for entry in container.get("env", [])}
        words = container.get("command", self.config["Entrypoint"]) + container["args"]
        words = [re.sub(r"\$\((\w+)\)", lambda m: variables[m[1]], word) for word in words]
        with open(pod / "log", "w") as log:
            process = subprocess.Popen(
                [
                    *["nsenter", f"--net=/run/netns/{name}"],
                    *["unshare", "-m", "-p", "-u", "-i", "-f", "--kill-child"],
                    *["sh", "-euc", START, "sh"],
                    *[f"{key}={value}" for key, value in variables.items()],
                    *words,
                ],
                env=os.environ | {"ROOT": str(self.root), "POD": str(pod)},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        process.log = pod / "log"
        return process

    def _connect(self, name):
        do(f"ip netns add {name}")
        do(f"ip link add {name} type veth peer name eth0 netns {name}")
        do(f"ip link set {name} master bridge up")
        do(f"ip -n {name} address add {NETWORK}.{self.n_pods}/24 dev eth0")
        do(f"ip -n {name} link set eth0 up")
        do(f"ip -n {name} link set lo up")
        do(f"ip -n {name} route add default via {MACHINE}")

    def _folder(self, name):
        """Return the folder of a pod, with what is mounted into it."""
        pod = self.folder / "pods" / name
        for place in ("tmp", "jobs", "etc"):
            (pod / place).mkdir(parents=True)
        (pod / "tmp").chmod(0o777)
        shutil.copy(CLUSTER / "s3" / "nightly.toml", pod / "jobs")
        service = "lpe-2026-11-20-1-scheduler.default.svc.cluster.local"
        (pod / "etc" / "hosts").write_text(f"127.0.0.1 localhost\n{NETWORK}.1 {service}\n")
        return pod


def do(command):
    subprocess.run(command.split(), check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
