"""Models from strangers: no file in their folders, and no server, hangs or fills memory."""

import functools
import hashlib
import http.server
import json
import re
import shutil
import threading
from contextlib import contextmanager

import dask
import numpy as np
import pandas as pd
import pytest

import lpe_dask
from hostile import ATTACKS, limited
from lpe_dask import LPE
from lpe_dask.model.persistence import manifest
from lpe_dask.model.persistence.manifest import MANIFEST_NAME

ROWS = np.random.default_rng(0).integers(0, 10, (60, 2)) * 0.1

LOAD = """
import sys, lpe_dask
for folder in sys.argv[1:]:
    try:
        lpe_dask.load(folder)
        print(folder, "loaded")
    except (OSError, ValueError) as error:
        print(folder, error)
"""

NAMES = [MANIFEST_NAME, "calibration.parquet", "groups.parquet"]

#: Files that are not to be larger than their rows.
LARGE = [
    "calibration.parquet", "graph-edges.parquet", "groups.parquet",
    "group-values-0.parquet", "group-reasons.parquet", "group-centers.parquet",
]  # fmt: skip

SAID = {
    "pipe": "is a named pipe, and only a regular file is read; remove it",
    "zeros": "is a device, and only a regular file is read; remove it",
    "nothing": "is missing",
    "folder": "Is a directory",
    "huge": "1099511627776 bytes",
    "listener": "is a socket, and only a regular file is read",
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    arguments = {"metric": "geodesic", "metric_params": {"n_neighbors": 4}}
    LPE(3, **arguments).fit(ROWS).save(folder)
    return folder


@pytest.fixture(scope="module")
def grouped(tmp_path_factory):
    folder = tmp_path_factory.mktemp("grouped") / "model"
    rows = pd.DataFrame(ROWS, columns=["x", "y"]).assign(site=["a", "b"] * 30)
    LPE(3, by=["site"], scale="standard", alpha=0.1).fit(rows).save(folder)
    return folder


@pytest.fixture
def model(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "model")


def file_of(model, name):
    [path] = model.rglob(name)
    return path


def forge(model, name, n_bytes):
    """Change what a manifest says of the size of a file, and sign it again."""
    content = json.loads((model / MANIFEST_NAME).read_bytes())
    del content["sha256"]
    content["files"][name]["n_bytes"] = n_bytes
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    signed = {"sha256": hashlib.sha256(text.encode()).hexdigest(), **content}
    (model / MANIFEST_NAME).write_text(json.dumps(signed))


@pytest.fixture(scope="module")
def refusals(saved, grouped, tmp_path_factory):
    """What is said of models with something else in the place of a file, by folder.

    One process loads all of them: to import the package takes longer.
    """
    around = tmp_path_factory.mktemp("strange")
    cases = [(name, attack, None) for name in NAMES for attack in ATTACKS]
    cases += [(NAMES[1], attack, 0) for attack in ("pipe", "zeros")]
    cases += [(name, "huge", 2**40) for name in LARGE]
    folders = {}
    for case in cases:
        name, attack, n_bytes = case
        whole = grouped if name.startswith("group") else saved
        model = shutil.copytree(whole, around / str(len(folders)))
        if n_bytes is not None:
            forge(model, name, n_bytes)
        path = file_of(model, name)
        path.unlink()
        ATTACKS[attack](path)
        folders[case] = model
    lines = limited(LOAD, *folders.values()).splitlines()
    return {
        case: line.removeprefix(f"{folder} no model can be loaded from {folder}: ")
        for (case, folder), line in zip(folders.items(), lines, strict=True)
    }


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("name", NAMES)
def test_load__neither_waits_nor_grows(refusals, name, attack):
    said = refusals[name, attack, None]

    assert name in said
    assert SAID[attack] in said
    assert said.endswith("or give the folder of a complete model.")


@pytest.mark.parametrize("attack", ["pipe", "zeros"])
def test_load__believes_no_manifest_that_such_a_file_is_empty(refusals, attack):
    """As their sizes are told: 0 bytes, which the manifest says, too."""
    assert SAID[attack] in refusals["calibration.parquet", attack, 0]


@pytest.mark.parametrize("name", LARGE)
def test_load__believes_no_manifest_that_a_file_is_huge(refusals, name):
    said = refusals[name, "huge", 2**40]

    assert re.search(rf"/{name} is to have 1099511627776 bytes, but \d+ rows have", said)


def test_load__of_links_to_files(model, saved, tmp_path):
    """As stores of models keep them."""
    linked = tmp_path / "linked"
    for path in (path for path in model.rglob("*") if path.is_file()):
        place = linked / path.relative_to(model)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(path)

    p_values = lpe_dask.load(linked).score_samples(ROWS)

    assert np.array_equal(p_values, lpe_dask.load(saved).score_samples(ROWS))


def test_save__writes_no_manifest_that_it_would_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(manifest, "MAX_BYTES", 1000)

    with pytest.raises(
        ValueError, match=r"of 2 columns is too much. Measure fewer columns"
    ):
        LPE(3).fit(ROWS).save(tmp_path / "model")

    assert not (tmp_path / "model").exists()


# Servers


class Silent(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, but for files of which a name is asked that it never answers."""

    unanswered = None
    is_over = threading.Event()

    def send_head(self):
        if self.unanswered is not None and self.path.endswith(self.unanswered):
            self.is_over.wait(30)
            return None
        return super().send_head()

    def log_message(self, *arguments):
        pass


@contextmanager
def server(folder, unanswered=None):
    kind = type("Some", (Silent,), {"unanswered": unanswered, "is_over": threading.Event()})
    handler = functools.partial(kind, directory=str(folder))
    patience = {"lpe-dask.retries.attempt-timeout": 0.5, "lpe-dask.retries.attempts": 2}
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as of_stranger:
        of_stranger.daemon_threads = True
        thread = threading.Thread(target=of_stranger.serve_forever)
        thread.start()
        try:
            with dask.config.set({**patience, "scheduler": "sync"}):
                yield f"http://127.0.0.1:{of_stranger.server_address[1]}"
        finally:
            kind.is_over.set()
            of_stranger.shutdown()
            thread.join()


def test_load__from_a_server(saved):
    with server(saved) as url:
        p_values = lpe_dask.load(url).score_samples(ROWS)

    assert np.array_equal(p_values, lpe_dask.load(saved).score_samples(ROWS))


@pytest.mark.parametrize("name", NAMES[:2])
def test_load__ends_where_a_server_does_not_answer(saved, name):
    with (
        server(saved, unanswered=name) as url,
        pytest.raises(OSError, match=rf"{name} has not answered in time. Fit it again"),
    ):
        lpe_dask.load(url)
