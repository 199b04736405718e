"""The library finds a client and makes none: whoever calls it chooses the scheduler."""

import ast
from pathlib import Path

import lpe_dask

FOLDER = Path(lpe_dask.__file__).parent
STARTS = {"Client", "LocalCluster", "SSHCluster", "SpecCluster"}


def starts_in(text):
    """Return what a file calls that starts a client or a cluster."""
    calls = [node.func for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    names = {getattr(call, "id", getattr(call, "attr", None)) for call in calls}
    return names & STARTS


def test_package__starts_clients_and_clusters_for_commands_alone():
    starting = {
        path.relative_to(FOLDER).parts[0]
        for path in FOLDER.rglob("*.py")
        if starts_in(path.read_text())
    }

    assert starting == {"cli"}


def test_starts_in__finds_each_form():
    assert starts_in("with distributed.Client(): ...") == {"Client"}
    assert starts_in("c = LocalCluster(n_workers=2)") == {"LocalCluster"}
    assert starts_in("def f(client: Client) -> Client: ...") == set()
