"""A model that an earlier release has saved is loaded, and gives the same bits."""

import json
import shutil

import dask
import numpy as np
import pytest

import lpe_dask
from compiling import WAYS, taking
from lpe_dask.model.persistence import manifest
from lpe_dask.model.persistence.manifest import Manifest
from saved_models import ARGUMENTS, FOLDER, outcome, read_expected, write_models

MODELS = sorted(path.parent for path in FOLDER.glob("*/*/manifest.json"))
REMEDY = "Models of a release that is out must be read. Else: python tests/saved_models.py"


def check(folder):
    rows, expected = read_expected(folder)
    with dask.config.set(scheduler="sync"):
        actual = outcome(lpe_dask.load(folder), rows)
    assert actual.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(actual[name], values, err_msg=f"{name}. {REMEDY}")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("folder", MODELS, ids=lambda path: "-".join(path.parts[-2:]))
def test_load__of_a_model_of_a_release_gives_its_bits(folder, way):
    with taking(way):
        check(folder)


def test_models__have_all_kinds_of_files():
    names = {
        path.stem.rstrip("0123456789-") for path in FOLDER.glob("*/*/data-*/*.parquet")
    }

    assert names == {
        "block", "index", "calibration", "calibration-index", "nominal", "nominal-index",
        "graph-starts", "graph-edges", "groups", "group-values", "group-reasons",
        "group-codes", "group-fill", "group-powers", "group-weights", "group-centers",
        "group-knots", "group-knot-starts", "group-shift", "group-divisor",
    }  # fmt: skip


def test_write_models__writes_them_again(tmp_path):
    write_models(tmp_path)

    written = sorted(tmp_path.iterdir())
    assert [folder.name for folder in written] == sorted(ARGUMENTS)
    for folder in written:
        check(folder)


def test_models__of_this_version_have_each_key():
    keys = {"sha256", *Manifest.model_fields} - {"checksum"}

    for folder in MODELS:
        if folder.parent.name == lpe_dask.__version__:
            content = json.loads((folder / "manifest.json").read_text())
            assert content.keys() == keys, REMEDY


@pytest.mark.parametrize("name", ARGUMENTS)
def test_load__of_a_model_from_before_there_was_a_key(name, tmp_path):
    """An addition to the format has a default, which says what earlier models are."""
    folder = tmp_path / name
    shutil.copytree(FOLDER / lpe_dask.__version__ / name, folder)
    content = json.loads((folder / "manifest.json").read_text())
    del content["sha256"]
    for key, of in Manifest.model_fields.items():
        if key != "format" and (key == "created" or content.get(key) == of.default):
            content.pop(key, None)
    content["sha256"] = manifest._digest(content)
    (folder / "manifest.json").write_text(json.dumps(content))

    check(folder)


def test_models__are_there_for_this_version():
    stored = {
        folder.name for folder in MODELS if folder.parent.name == lpe_dask.__version__
    }

    assert stored == set(ARGUMENTS), REMEDY
