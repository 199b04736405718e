"""cluster/kubernetes/: manifests and what the image is made of, without a server.

The schemas need ``pip install kubernetes-validate dask-kubernetes``.
"""

import re
import tomllib

import pytest
import yaml
from dask.utils import parse_bytes
from packaging.requirements import Requirement

from lpe_dask.cli.outcome import (
    DRIFTED,
    FAILED,
    INVALID_INPUT,
    REFIT_REJECTED,
    TERMINATED,
    TRY_LATER,
)
from recipes import CLUSTER, ROOT, commands_of

RECIPE = CLUSTER / "kubernetes"


def text_of(name):
    return (RECIPE / f"{name}.yaml").read_text().replace("RUN-ID", "2026-11-20-1")


def manifest(name):
    return yaml.safe_load(text_of(name))


@pytest.fixture(scope="module")
def schemas():
    """The module manifests, which has them."""
    pytest.importorskip("kubernetes_validate")
    pytest.importorskip("dask_kubernetes")
    import manifests

    return manifests


RUN_OF_CRONJOB = ("spec", "jobTemplate", "spec", "template", "spec")
RUN_OF_DASKJOB = ("spec", "job", "spec")
WORKER = ("spec", "cluster", "spec", "worker", "spec")
SCHEDULER = ("spec", "cluster", "spec", "scheduler", "spec")

#: Manifest, where its pods are specified.
PODS = [
    ("cronjob", RUN_OF_CRONJOB),
    ("daskjob", RUN_OF_DASKJOB),
    ("daskjob", WORKER),
    ("daskjob", SCHEDULER),
]


def pod(name, path):
    found = manifest(name)
    for key in path:
        found = found[key]
    return found


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("cronjob", "", ""),
        ("daskjob", "", ""),
        ("cronjob", "schedule:", "shedule:"),
        ("cronjob", "backoffLimit: 8", "backofLimit: 8"),
        ("cronjob", "args: [lpe-dask, run,", "args: run #"),
        ("cronjob", "values: [2, 3, 4]", "values: [two]"),
        ("cronjob", "concurrencyPolicy", "concurencyPolicy"),
        ("daskjob", "containers:", "contaners:"),
        ("daskjob", "replicas: 4", "replicas: four"),
        ("daskjob", "restartPolicy: OnFailure", "restartPolicy: [1]"),
    ],
)
def test_manifests__are_valid_and_a_slip_is_found(schemas, name, right, wrong):
    assert right in text_of(name)

    problems = schemas.problems_of(yaml.safe_load(text_of(name).replace(right, wrong)))

    assert bool(problems) == bool(right), problems


def test_daskjob__run_finds_the_scheduler():
    """The operator gives the address of the service, and these labels to the scheduler."""
    [run] = pod("daskjob", RUN_OF_DASKJOB)["containers"]
    job = manifest("daskjob")
    service = job["spec"]["cluster"]["spec"]["scheduler"]["service"]

    assert run["args"][-2:] == ["--scheduler", "$(DASK_SCHEDULER_ADDRESS)"]
    assert service["selector"] == {
        "dask.org/cluster-name": job["metadata"]["name"],
        "dask.org/component": "scheduler",
    }
    assert {"tcp-comm": 8786}.items() <= {
        port["name"]: port["port"] for port in service["ports"]
    }.items()


def test_daskjob__is_refused_without_the_name_of_a_run():
    """Names of Kubernetes have no capitals."""
    allowed = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
    written = yaml.safe_load((RECIPE / "daskjob.yaml").read_text())["metadata"]["name"]

    assert not allowed.fullmatch(written)
    assert allowed.fullmatch(manifest("daskjob")["metadata"]["name"])


def test_cronjob__starts_again_what_may_pass():
    job = manifest("cronjob")["spec"]["jobTemplate"]["spec"]
    action = {
        code: rule["action"]
        for rule in job["podFailurePolicy"]["rules"]
        for code in rule.get("onExitCodes", {"values": []})["values"]
    }

    assert action == {
        INVALID_INPUT: "FailJob", DRIFTED: "FailJob", REFIT_REJECTED: "FailJob",
        FAILED: "Count", TRY_LATER: "Count", TERMINATED: "Count",
    }  # fmt: skip
    assert job["template"]["spec"]["restartPolicy"] == "Never"  # else no rule is valid


@pytest.mark.parametrize(("name", "path"), PODS)
def test_pods__have_few_rights_and_write_to_tmp_only(name, path):
    spec = pod(name, path)
    [container] = spec["containers"]

    assert spec["securityContext"]["runAsNonRoot"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    [tmp] = [volume for volume in spec["volumes"] if "emptyDir" in volume]
    assert {"name": tmp["name"], "mountPath": "/tmp"} in container["volumeMounts"]


@pytest.mark.parametrize(("name", "path"), PODS)
def test_pods__request_what_they_are_limited_to(name, path):
    """So that no other pod's need of memory ends them."""
    resources = pod(name, path)["containers"][0]["resources"]

    assert resources["requests"] == resources["limits"]


def options_of(container):
    return dict(re.findall(r"--([\w-]+)=(\S+)", " ".join(container["args"])))


def test_limits__are_those_of_dask():
    [worker] = pod("daskjob", WORKER)["containers"]
    [run] = pod("cronjob", RUN_OF_CRONJOB)["containers"]
    of_worker, of_run = options_of(worker), options_of(run)

    def left(container, used):
        return parse_bytes(container["resources"]["limits"]["memory"] + "B") - used

    assert of_worker["nthreads"] == worker["resources"]["limits"]["cpu"]
    assert left(worker, parse_bytes(of_worker["memory-limit"])) >= 2**29
    used = int(of_run["workers"]) * parse_bytes(of_run["memory-limit"])
    assert left(run, used) >= 2**30


# The image


def test_image__is_what_the_manifests_name():
    names = {pod(*of)["containers"][0]["image"] for of in PODS}

    assert len(names) == 1
    assert f"-t {names.pop()} ." in (RECIPE / "Containerfile").read_text()


def test_image__has_a_version_of_all_that_the_package_needs():
    lines = (RECIPE / "requirements.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert extras["kubernetes"] == ["lpe-dask[s3]"]
    for text in project["dependencies"] + extras["s3"]:
        needed = Requirement(text)
        assert needed.specifier.contains(pinned[needed.name.lower()]), text


def test_image__is_pinned_and_not_root():
    text = (RECIPE / "Containerfile").read_text()

    assert re.search(r"^FROM \S+:\d+\.\d+\.\d+\S*$", text, re.MULTILINE)
    assert re.findall(r"^USER (\d+)", text, re.MULTILINE)[-1] != "0"


# The page


def test_page__names_files_that_there_are():
    words = " ".join(commands_of("kubernetes")).replace("=", " ").split()
    files = [word for word in words if word.startswith("cluster/")]

    assert len(files) == 5
    assert all((ROOT / file).is_file() for file in files)


def test_variables__are_those_of_s3():
    exported = " ".join(c for c in commands_of("s3") if c.startswith("export")).split()

    assert (RECIPE / "s3.env").read_text().split() == [e for e in exported if "=" in e]
