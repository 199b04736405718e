"""Models from disks that fail, and from strangers: errors that name the file and say why.

What was altered by chance is told by the hashes. A stranger makes those anew, so what a
file says is checked as well: no walk may go on for ever, and nothing outside be read.
"""

import copy
import functools
import hashlib
import json
import os
import re
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from pydantic import TypeAdapter

import lpe_dask
from choosing import mostly_full
from indexes import right_lists
from lpe_dask import LPE
from lpe_dask.kernels import nn_descent
from lpe_dask.model.detector import fitted_of
from lpe_dask.model.persistence import loading
from lpe_dask.model.persistence.manifest import MANIFEST_NAME
from lpe_dask.model.persistence.model_folder import ModelFolder
from lpe_dask.search import Scaling, plan
from lpe_dask.storage.numeric_parquet import StoredFile

ONE_LINE = re.compile(r"no model can be loaded from (\S+): (\S+)( [^\n]+)\. [^.\n]+\.")
RNG = np.random.default_rng(0)
NOMINAL = RNG.integers(0, 10, (100, 2)) * 0.1
NOMINAL[17, 1] = np.nan
QUERIES = RNG.integers(-3, 13, (20, 2)) * 0.1
ARGUMENTS = {
    "scale": "standard", "missing": "drop", "algorithm": "pruned", "calibration": "loo"
}  # fmt: skip
#: Models by what they have; two have a column of whole numbers, too.
MODELS = {
    "straight": {},
    "geodesic": {"metric": "geodesic", "calibration_size": 50, "random_state": 0},
    "quantile": {"scale": "minmax+quantile"},
    "approximate": {"algorithm": "nn_descent"},
    "categorical": {"categorical": [1]},
    "grouped": {"by": [1], "alpha": 0.2},
}


def folder_of(model):
    """The files of a saved model, by their names in its folder."""
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model")
        root = Path(folder) / "model"
        files = [path for path in root.rglob("*") if path.is_file()]
        return {str(path.relative_to(root)): path.read_bytes() for path in files}


@functools.cache
def saved(name):
    """The files of a model of this module."""
    rows = pd.DataFrame(NOMINAL, columns=["a", "b"]) if name == "geodesic" else NOMINAL
    if name in ("categorical", "grouped"):
        rows = np.round(NOMINAL * [1, 10], 6)
    with (
        pytest.MonkeyPatch.context() as patch,
        dask.config.set({"lpe-dask.block-rows": 64}),
    ):
        patch.setattr(nn_descent, "neighbor_lists", right_lists)
        patch.setattr(plan, "MAX_INDEXED_ROWS", 64)
        return folder_of(LPE(3, **ARGUMENTS | MODELS[name]).fit(rows))


@pytest.fixture(scope="module", params=MODELS)
def files(request):
    return saved(request.param)


@pytest.fixture(scope="module")
def straight():
    return saved("straight")


@pytest.fixture(scope="module")
def geodesic():
    return saved("geodesic")


def put(files, folder):
    for name, content in files.items():
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def scored(files):
    with tempfile.TemporaryDirectory() as folder:
        put(files, folder)
        model = lpe_dask.load(folder)
        return model.score_samples(queries_of(model))


def assert_refused(files, names, kinds=(ValueError, FileNotFoundError)):
    """Loading fails with one line that names one of these files, why, and what to do."""
    with tempfile.TemporaryDirectory() as folder:
        put(files, folder)
        with pytest.raises(kinds) as caught:
            lpe_dask.load(folder)
        found = ONE_LINE.fullmatch(str(caught.value))
        assert found, str(caught.value)
        assert found[1] == f"{folder}:"[:-1]
        assert found[2].removesuffix(":").rpartition("/")[2] in names, str(caught.value)


# Altered by chance


@st.composite
def damaged(draw, files):
    """The files with one that is not as it was; its name."""
    name = draw(st.sampled_from(sorted(files)))
    content, others = files[name], {**files}
    place = draw(st.integers(0, len(content) - 1))
    way = draw(st.sampled_from(["cut", "alter", "empty", "remove", "swap", "longer"]))
    if way == "remove":
        del others[name]
    elif way == "swap":
        other = draw(st.sampled_from(sorted(set(files) - {name})))
        others[name], others[other] = files[other], content
    else:
        bit = 1 << draw(st.integers(0, 7))
        altered = content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :]
        results = {"cut": content[:place], "empty": b"", "longer": content + b"\0"}
        others[name] = results.get(way, altered)
    return others


@given(data=st.data())
def test_load__of_damaged_files_is_refused(files, data):
    others = data.draw(damaged(files))
    changed = {name for name in files if others.get(name) != files[name]}
    if changed == {MANIFEST_NAME} and is_same_text(others, files):
        np.testing.assert_array_equal(scored(others), scored(files))
        return
    assert_refused(others, {Path(name).name for name in changed})


def is_same_text(others, files):
    """Whether the manifest says the same, as where a space has become another one."""
    try:
        return json.loads(others[MANIFEST_NAME]) == json.loads(files[MANIFEST_NAME])
    except (KeyError, ValueError):
        return False


@given(data=st.data())
def test_scoring__with_files_damaged_after_loading_is_refused(files, data):
    """The task that reads a file names it."""
    lazily_read = sorted(name for name in files if re.search("block|graph|nominal", name))
    with tempfile.TemporaryDirectory() as folder, dask.config.set(scheduler="sync"):
        put(files, folder)
        model = lpe_dask.load(folder)
        lazy = model.score_samples(da.from_array(queries_of(model), chunks=(20, 2)))
        path = Path(folder) / data.draw(st.sampled_from(lazily_read))
        content = path.read_bytes()
        way = data.draw(st.sampled_from(["cut", "alter", "remove"]))
        path.write_bytes(content[:-1] + (b"" if way == "cut" else b"?"))
        if way == "remove":
            path.unlink()
        with pytest.raises((ValueError, FileNotFoundError), match=f"/{path.name} "):
            model.p_values_ if "nominal" in path.name else lazy.compute()


@given(text=st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_load__of_any_text_is_refused(straight, text):
    assert_refused({**straight, MANIFEST_NAME: text}, {MANIFEST_NAME}, ValueError)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "cut short or altered: it is no JSON"),
        (b"\xff\xfe{", "cut short or altered: it is no JSON"),
        (b"[" * 100_000, "cut short or altered: it is no JSON"),
        (b'{"a":' * 900 + b"1" + b"}" * 900, "is of format None|is no JSON"),
        (b"9" * 10_000, "cut short or altered: it is no JSON"),
        (b"[1]", "cut short or altered: it is no JSON"),
        (b"{}", "is of format None, .* reads format 1. Fit it again"),
        (b'{"format": 1}', "was altered after it was written"),
        (b'{"format": 1, "sha256": null}', "was altered after it was written"),
        (
            b'{"format": 2, "and": "more"}',
            "is of format 2, .* reads format 1. Fit it again",
        ),
    ],
)
def test_load__says_what_is_wrong_with_a_manifest(text, why, straight, tmp_path):
    put({**straight, MANIFEST_NAME: text}, tmp_path)

    with pytest.raises(ValueError, match=f"/{MANIFEST_NAME} .*{why}"):
        lpe_dask.load(tmp_path)


def test_load__of_what_is_no_folder_of_a_model(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder" / MANIFEST_NAME).mkdir(parents=True)

    for name in ("missing", "file"):
        with pytest.raises(FileNotFoundError, match=f"{name}/{MANIFEST_NAME} is missing"):
            lpe_dask.load(tmp_path / name)
    with pytest.raises(OSError, match=r"no model can be loaded .*Is a directory"):
        lpe_dask.load(tmp_path / "folder")


@pytest.mark.parametrize("name", ["block-00000.parquet", "graph-edges.parquet"])
def test_load__of_large_files_looks_at_their_sizes(name, geodesic, tmp_path, monkeypatch):
    monkeypatch.setattr(loading, "MAX_HASHED_BYTES", 100)
    put(geodesic, tmp_path)
    (path,) = tmp_path.glob(f"data-*/{name}")

    path.write_bytes(b"?" * len(path.read_bytes()))
    model = lpe_dask.load(tmp_path)
    with pytest.raises(ValueError, match=f"{name} was altered"):
        model.score_samples(QUERIES)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=rf"{name} has \d+ bytes, but \d+ were written"):
        lpe_dask.load(tmp_path)


# Made by a stranger


def content_of(files):
    return json.loads(files[MANIFEST_NAME])


def signed(files, content):
    """The files with another manifest, whose hash is right."""
    content = {name: value for name, value in content.items() if name != "sha256"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    return {**files, MANIFEST_NAME: json.dumps({"sha256": digest, **content}).encode()}


def forged(files, *path, value):
    """The files of a model in whose manifest something else stands, as if it were meant."""
    content = content_of(files)
    section = content
    for key in path[:-1]:
        section = section[key]
    section[path[-1]] = value
    return signed(files, content)


def places(section, path=()):
    """All there is in a manifest, by its path."""
    items = section.items() if isinstance(section, dict) else enumerate(section)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


NUMBERS = (
    st.integers(-3, 200)
    | st.sampled_from([2**31 - 1, 2**31, 2**63, -(2**63), 10**400])
    | st.floats()
)
NAMES = st.sampled_from(
    ["", "knn", "radius", "brute", "pruned", "split", "minmax", "geodesic", "union",
     "data-000000000000", "../data", "/etc/passwd", "block-00001.parquet", "\ud800"],
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | NAMES,
    lambda values: (
        st.lists(values, max_size=4) | st.dictionaries(NAMES, values, max_size=3)
    ),
    max_leaves=8,
)


@st.composite
def manifests_of_strangers(draw, content):
    content = copy.deepcopy(content)
    for _ in range(draw(st.integers(1, 2))):
        *path, last = draw(st.sampled_from(list(places(content))))
        section = content
        for key in path:
            section = section[key]
        way = draw(st.sampled_from(["number", "value", "remove", "add"]))
        if way == "remove":
            del section[last]
        elif way == "add" and isinstance(section, list):
            section.insert(last, draw(VALUES | st.just(section[last])))
        elif way == "add":
            section[draw(st.text(max_size=5))] = draw(VALUES)
        else:
            section[last] = draw(NUMBERS if way == "number" else VALUES)
    return content


@pytest.mark.parametrize("files", mostly_full(MODELS, ["geodesic"]), indirect=True)
@settings(max_examples=150)
@given(data=st.data())
def test_load__of_a_strangers_manifest(files, data):
    """It is refused, or ends: nothing crashes, and nothing is read from anywhere else."""
    others = signed(files, data.draw(manifests_of_strangers(content_of(files))))
    opened = []
    open_file = os.open

    def recording(path, *arguments, **options):
        if threading.current_thread() is threading.main_thread():  # others keep locks
            opened.append(path)
        return open_file(path, *arguments, **options)

    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as patch,
        dask.config.set(scheduler="sync"),
    ):
        put(others, folder)
        patch.setattr(os, "open", recording)
        try:
            model = lpe_dask.load(folder)
        except (ValueError, FileNotFoundError) as error:
            is_clear = ONE_LINE.fullmatch(str(error)) or "fitted with" in str(error)
            assert is_clear, str(error)  # noqa: PT017
        else:
            with suppress(Exception):
                model.score_samples(queries_of(model))
    assert opened
    assert all(path.startswith(folder) for path in opened)


def queries_of(model):
    """Rows that a model may score: with whole numbers where it has categories."""
    has_categories = fitted_of(model).categories is not None
    return np.round(QUERIES * [1, 10]) if has_categories else QUERIES


FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(values=npst.arrays(np.float64, st.integers(0, 5), elements=FINITE))
def test_arrays__come_back_to_the_last_bit(values):
    scaling = TypeAdapter(Scaling)

    again = scaling.validate_json(scaling.dump_json(Scaling(factor=values)))

    assert again.factor.tobytes() == values.tobytes()
    assert (again.factor.dtype, again.divisor) == (np.float64, None)


PREPARATION, BASIS = ("space", "preparation"), ("space", "basis")
SCALING = (*PREPARATION, "scaling")
KNOTS = (*SCALING, "knots")


def minima(places, values):
    return {"places": places, "values": values, "digits": [0] * len(places)}


LEVELS, WHOLE = ("categories", "levels"), list(range(10))
COLUMN, LEARNED = ("groups", "columns", 0), ("groups", "learned")
HUGE = 10**400


def knots(*columns):
    """Those of a column with two knots, and those of other columns."""
    values, ranks = zip(([0.0, 1.0], [0, 10]), *columns, strict=True)
    return {"values": list(values), "ranks": list(ranks), "n_sampled": 5}


#: What stands at a path in the manifest of a model, and what is said about it.
NONSENSE = {
    "straight": [
        (("data",), "../../etc", "data: String should match pattern"),
        (("data",), "data-000000000000\n", "data: String should match pattern"),
        (("files", "block-00000.parquet"), {"n_bytes": -1, "sha256": "0" * 64}, "n_bytes"),
        (("files", "../secret.parquet"), {"n_bytes": 1, "sha256": "0" * 64}, "other files"),
        (("files",), {}, "names other files than needed"),
        (("source",), "../x", "source: String should match pattern"),
        (("parameters", "alpha"), 7.0, "alpha=7.0 must be"),
        (("parameters", "categorical"), [{"float": 1}], "is not a column name"),
        (("n_dropped",), -1, "n_dropped"),
        (("n_confirmed",), -1, "n_confirmed"),
        (("confirmed_digest",), "5", "confirmed_digest"),
        (("created",), "2026-11-20T05:00:00", "a time needs its zone"),
        (("run_date",), "2026-11-31", "run_date"),
        (("n_dropped",), True, "n_dropped: Input should be a valid integer"),
        (("n_features_in",), 3, "factor or matrix are of other columns"),
        (("feature_names_in",), ["a", "a"], "not as many different names"),
        (("feature_names_in",), [1, 1.0], "1.0 is not a column name"),
        (("feature_names_in",), ["a", {"timestamp": "now!"}], "feature_names_in|whole"),
        (("offset",), float("nan"), "offset"),
        (("offset",), "0.05", "offset: Input should be a valid number"),
        (("division", "kind"), "auto", "there is no such calibration"),
        (("division", "kind"), "split", "other rows than the division leaves"),
        (("division", "n_drawn"), 0, "draws no rows"),
        (("division", "n_drawn"), 100, "it draws no rows, or too many"),
        (("division", "n_rows"), 98, "other rows than the division leaves"),
        (("division", "n_rows"), 99.0, "n_rows: Input should be a valid integer"),
        (("statistic", "n_neighbors"), 100, "n_neighbors is out of range"),
        (("statistic", "n_neighbors"), 0, "n_neighbors is out of range"),
        (("statistic", "radius"), 1.0, "it needs n_neighbors or radius"),
        (("statistic", "aggregation"), "median", "there is no such aggregation"),
        (("statistic", "enough"), 3, "not the statistic itself"),
        (("block_rows",), [], "hold no rows, or too many"),
        (("block_rows",), [2**31], "hold no rows, or too many"),
        (("block_rows",), [99], "names other files than needed"),
        (("space", "algorithm"), "exec", "there is no such algorithm"),
        (("neighbor_graph",), {"n_neighbors": 99, "graph": "union"}, "no edges, or too"),
        (("neighbor_graph",), {"n_neighbors": 5, "graph": "union"}, "other files"),
        ((*SCALING, "has_both"), True, "both forms need knots"),
        ((*PREPARATION, "factor"), [1.0], "factor or matrix are of other columns"),
        ((*PREPARATION, "weights"), [1.0, -1.0], "weights .* too small"),
        ((*SCALING, "divisor"), ["1", "2"], "divisor.* valid number"),
        ((*SCALING, "divisor"), [1.0, True], "divisor.* valid number"),
        ((*SCALING, "divisor"), [[1.0], [1.0, 2.0]], "divisor: .*inhomogeneous shape"),
        ((*SCALING, "divisor"), [1.0, HUGE], "divisor.* finite number"),
        ((*BASIS, "center"), [], "the basis is of other columns"),
        ((*BASIS, "center"), [1e300, float("inf")], "center.* finite number"),
        (BASIS, {"center": [1e300, 0.0], "exponent": 900, "rotation": None,
                 "weights": None, "steps": []}, "moves points too far"),
        ((*BASIS, "exponent"), -1001, "moves points too far"),
        ((*BASIS, "rotation"), [[1e308, 0.0], [0.0, 1e308]], "moves points too far"),
        ((*BASIS, "weights"), [-1.0, 1.0], "weights .* too small"),
        ((*BASIS, "weights"), [0.5, 1.0], "weights .* too small"),
        ((*BASIS, "steps"), [0.5, 0.5], "the basis is of other columns"),
        ((*BASIS, "weights"), [4.0, 1.0], "a weight of numbers is 4 or more"),
        ((*SCALING, "divisor"), [1.0, 0.0], "a divisor is 0"),
        ((*PREPARATION, "factor"), [1.0, 3.0], "a factor is no power of 2"),
        (("minima",), minima([2], [5]), "the minima are of other columns"),
        (("minima",), minima([0], []), "the minima are of other columns"),
        (("minima",), minima([0, 0], [1, 1]), "the minima are of other columns"),
        (("minima",), minima([0], [5]) | {"digits": [10**8]}, "digits .* are too many"),
        (("ranges", "low"), [0.0], "the ranges are of other columns"),
        (("ranges", "high"), [1.0, float("inf")], "finite"),
        (("ranges",), {"low": [0.0], "high": [1.0], "rare": []}, "of other columns"),
    ],
    "categorical": [
        ((*BASIS, "steps"), [2.0**81], "moves points too far"),
        (("categories",), None, "the categories are of other columns"),
        (("minima",), minima([0], [0.5]), "minima"),
        (("minima",), minima([1], [5]), "the minima are of other columns"),
        (LEVELS, [[0.5, 1.5]], "levels"),
        (LEVELS, [WHOLE, WHOLE], "the categories are of other columns"),
        (LEVELS, [[]], "the levels of a column are none, or not ascending"),
        (LEVELS, [WHOLE[::-1]], "the levels of a column are none, or not ascending"),
        (LEVELS, [[0, True]], "the levels of a column are none, or not ascending"),
        ((*BASIS, "steps"), [0.3], "moves points too far"),
        ((*BASIS, "steps"), [0.0], "moves points too far"),
        ((*PREPARATION, "categorical"), [0], "the categories are of other columns"),
        (
            ("neighbor_graph",),
            {"n_neighbors": 5, "graph": "union"},
            "by Euclidean distance",
        ),
        (("parameters", "metric"), "mahalanobis", "does not go with metric"),
    ],
    "grouped": [
        (("groups",), None, "groups are divided, or there are none"),
        (("groups", "n_groups"), 0, "n_groups"),
        (("groups", "n_groups"), 2**24 + 1, "n_groups"),
        (("groups", "by"), [], "columns of groups have not as many different names"),
        (("groups", "by"), [1.5], "groups.by"),
        (("groups", "own"), ["all"], "groups.own"),
        (("groups", "own"), [], "groups have nothing of their own"),
        (("groups", "own"), ["scale", "calibration"], "searched each by itself, or not"),
        (("groups", "own"), ["neighbors"], "groups have no scale of their own"),
        ((*COLUMN, "kind"), "text", "of no known kind"),
        ((*COLUMN, "kind"), "objects", "of no known kind"),
        ((*COLUMN, "zone"), "UTC", "of no known kind"),
        (COLUMN, {"kind": "dates", "zone": "dateutil/../x", "n_words": None}, "no known"),
        (COLUMN, {"kind": "dates", "zone": "/etc/passwd", "n_words": None}, "no known"),
        (COLUMN, {"kind": "text", "zone": None, "n_words": 5}, "names other files"),
        (("groups", "learned"), None, "names other files than needed"),
        ((*LEARNED, "vectors"), ["shift"], "names other files than needed"),
        ((*LEARNED, "vectors"), ["powers", "powers"], "named twice"),
        ((*LEARNED, "vectors"), ["fill"], "gaps of groups are filled, or not"),
        ((*LEARNED, "has_matrix"), True, "a matrix and powers|names other files"),
        ((*SCALING, "has_both"), True, "both forms need knots"),
        ((*PREPARATION, "factor"), [2.0], "that of all rows, and of groups"),
        ((*PREPARATION, "separates"), False, "searched each by itself, or not"),
        ((*PREPARATION, "categorical"), [0], "the categories are of other columns"),
        (("categories",), {"places": [1], "levels": [[0]]}, "are of other columns"),
        (("division",), {"kind": "loo", "n_rows": 99, "n_drawn": None,
                         "random_state": None}, "groups are divided, or there are none"),
        (("division", "n_calibration"), 100, "draws no rows, or too many"),
        (("neighbor_graph",), {"n_neighbors": 5, "graph": "union"}, "by Euclid|straight"),
        (("parameters", "by"), [{"a": 1}], "is not a column name"),
    ],
    "quantile": [
        (KNOTS, [[0.0, 1.0]], "knots: Input should be"),
        (KNOTS, knots(), "the knots are of other columns"),
        (KNOTS, knots(([0.0], [5, 7])), "the knots are of other columns"),
        (KNOTS, knots(([], [])), "the knots are of other columns"),
        (KNOTS, knots(([0.0, 0.0], [1, 2])), "knots or ranks do not ascend"),
        (KNOTS, knots(([0.0, 1.0], [2, 2])), "knots or ranks do not ascend"),
        (KNOTS, knots(([0.0, 1.0], [-1, 2])), "or are out of range"),
        (KNOTS, knots(([0.0, 1.0], [1, 11])), "or are out of range"),
        (KNOTS, knots(([-1.7e308, 1.7e308], [1, 2])), "or are out of range"),
        (KNOTS, knots(([0.0, 5e-324], [1, 2])), "or are out of range"),
        ((*KNOTS, "n_sampled"), 0, "or are out of range"),
        (KNOTS, knots(([0.0, 1.0], [1.0, 2.0])), "knots.ranks.* valid integer"),
        (KNOTS, knots(([0.0, 1.0], [1, 2**63])), "knots.ranks.* should be less than"),
        (
            SCALING,
            {"shift": [0.0, 0.0], "factor": None, "divisor": [1.0, 1.0],
             "knots": knots(([0.0], [5])), "has_both": False},
            "the basis is of other columns",
        ),
        ((*SCALING, "has_both"), False, "the basis is of other columns"),
        (
            PREPARATION,
            {"scaling": {"shift": [0.0, 0.0], "factor": None, "divisor": [1.0, 1.0],
                         "knots": None, "has_both": False},
             "matrix": [[1.0]], "factor": None, "categorical": [], "weights": None},
            "factor or matrix are of other columns",
        ),
    ],
    "approximate": [
        (("certificate",), None, "nn_descent, and nothing else, has"),
        (("quality",), None, "nn_descent, and nothing else, has"),
        (
            ("neighbor_graph",),
            {"n_neighbors": 2, "graph": "directed"},
            "nn_descent is for K straight distances",
        ),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "path", "value", "why"),
    [(name, *case) for name, cases in NONSENSE.items() for case in cases],
)
def test_load__of_a_strangers_nonsense_says_why(name, path, value, why, tmp_path):
    put(forged(saved(name), *path, value=value), tmp_path)

    with pytest.raises(ValueError, match=f"/{MANIFEST_NAME}.*{why}") as caught:
        lpe_dask.load(tmp_path)

    assert ONE_LINE.fullmatch(str(caught.value))


@pytest.mark.parametrize("levels", [[*WHOLE, 2**70], ["a", "b"], [False, True]])
def test_load__of_other_levels_takes_their_type(levels, tmp_path):
    put(forged(saved("categorical"), *LEVELS, value=[levels]), tmp_path)

    model = lpe_dask.load(tmp_path)

    try:
        p_values = model.score_samples(queries_of(model))
    except TypeError as error:
        assert "in this categorical column" in str(error)  # noqa: PT017
    else:
        assert ((p_values >= 0) & (p_values <= 1)).all()


def with_file(files, name, columns):
    """The files of a model with another one in the place of ``name``, and its hash."""
    content = content_of(files)
    with tempfile.TemporaryDirectory() as folder:
        file = StoredFile.write(f"{folder}/file", columns)
        files = {**files, f"{content['data']}/{name}": Path(f"{folder}/file").read_bytes()}
    content["files"][name] = {"n_bytes": file.n_bytes, "sha256": file.sha256}
    return signed(files, content)


def rows(n_rows=50, **columns):
    """The columns of a block, or others in their place."""
    numbers = {"number": np.arange(n_rows)}
    return numbers | dict.fromkeys(("x0", "x1"), np.linspace(0, 1, n_rows)) | columns


def index(**columns):
    """The columns of an index of 64 rows, or others in their place."""
    return {f"to{k}": np.full(64, -1, np.int32) for k in range(48)} | columns


#: How many rows, and calibration rows, the groups of "grouped" have.
SIZES = np.unique(np.round(NOMINAL[~np.isnan(NOMINAL[:, 1]), 1] * 10), return_counts=True)[
    1
]


def groups(**columns):
    """The columns of the file of groups, or others in their place."""
    counts = dict.fromkeys(("n_nominal", "n_rows", "n_calibration"), SIZES)
    whole = np.ones(10, int)
    numbers = {
        "by0": np.arange(10),
        **counts,
        "reason": 0 * whole,
        "n_neighbors": 3 * whole,
    }
    return numbers | {"n_statistics": SIZES, "is_known": whole} | columns


STARTS, EDGES = np.arange(100), {"target": np.zeros(99, np.int32), "length": np.ones(99)}
LACKING = "numbers of rows that a reference of 99 lacks"
#: What a file of a model holds, and what is said about it.
FILES = {
    ("straight", "calibration"): [
        ({"statistic": np.empty(0)}, "holds 0 of 99 statistics"),
        ({"statistic": np.arange(100.0)}, "holds 100 of 99 statistics"),
        ({"statistic": np.arange(99)}, "is of type int64, not double"),
        ({"statistic": np.arange(99.0)[::-1].copy()}, "is not sorted or contains NaN"),
        ({"statistic": np.append(np.arange(98.0), np.nan)}, "is not sorted or contains"),
    ],
    ("straight", "block-00000"): [
        (rows(49), "holds 49 rows instead of 50"),
        (rows(x1=np.full(50, np.nan)), "contains NaN or inf"),
        (rows(x1=np.full(50, np.inf)), "contains NaN or inf"),
        (rows(x1=np.zeros(50, np.float32)), "numbers of more than one type"),
        (rows(x1=np.zeros(50, int)), "x1 is of type int64, not float or double"),
        (rows(number=np.arange(50) - 1), LACKING),
        (rows(number=np.arange(50) + 50), LACKING),
        (rows(number=np.zeros(50, int)), "contains a row twice"),
        (rows(number=np.arange(50.0)), "number is of type double, not int64"),
        (rows(x2=np.zeros(50)), "has the columns"),
    ],
    ("approximate", "index-00000"): [
        (index(to3=np.full(64, 64, np.int32)), "contains no index of 64 rows"),
        (index(to3=np.full(64, -2, np.int32)), "contains no index of 64 rows"),
        (index(to0=np.zeros(64)), "to0 is of type double, not int32"),
        (index(to48=np.zeros(64, np.int32)), "has the columns"),
        ({name: values[:63] for name, values in index().items()}, "holds 63 rows"),
    ],
    ("grouped", "groups"): [
        (groups(by0=np.arange(10)[::-1].copy()), "groups that are not ascending"),
        (groups(by0=np.zeros(10, int)), "groups that are not ascending"),
        (groups(by0=np.arange(10.0)), "by0 is of type double, not int64"),
        (groups(n_nominal=SIZES - 1), "groups of no rows, or of more than there are"),
        (groups(n_rows=SIZES - 1), "other rows than the division"),
        (groups(n_calibration=SIZES + 1), "more calibration rows than there are"),
        (groups(n_calibration=-SIZES), "more calibration rows than there are"),
        (groups(reason=np.arange(10)), "reasons that .*reasons.parquet does not list"),
        (groups(reason=np.arange(10) - 10), "does not list"),
        (groups(n_neighbors=np.full(10, 4)), "an n_neighbors that is out of range"),
        (groups(n_neighbors=np.full(10, -1)), "an n_neighbors that is out of range"),
        (groups(n_statistics=SIZES * 2), "more statistics than rows"),
        (groups(n_statistics=-SIZES), "more statistics than rows"),
        (groups(is_known=np.full(10, 2)), "numbers that are no truth values"),
        (groups(n_sampled=SIZES), "has the columns"),
        ({name: of[:9] for name, of in groups().items()}, "holds 9 rows instead of 10"),
    ],
    ("grouped", "group-reasons"): [
        ({"word": np.zeros(1, int)}, "contains no list of values"),
        ({"word": np.frombuffer(b"[0]     ", int)}, "else than a list of values of one"),
        ({"word": np.frombuffer(b"[]      ", int)}, "does not list"),
    ],
    ("grouped", "group-weights"): [
        ({"value": np.full(10, 0.5)}, "weights that are not from 1 to 4"),
        ({"value": np.full(10, 4.0)}, "weights that are not from 1 to 4"),
        ({"value": np.full(10, np.nan)}, "numbers that are not finite"),
        ({"value": np.ones(11)}, "holds 11 rows instead of 10"),
    ],
    ("grouped", "group-powers"): [
        ({"value": np.full(10, 3.0)}, "factors of no powers of 2"),
        ({"value": np.zeros(10)}, "columns left out of some groups alone"),
    ],
    ("grouped", "group-centers"): [
        ({"value": np.full(10, np.inf)}, "numbers that are not finite"),
    ],
    ("grouped", "calibration"): [
        ({"statistic": np.arange(99.0)[::-1].copy()}, "is not sorted or contains NaN"),
        ({"statistic": np.full(99, np.nan)}, "is not sorted or contains NaN"),
        ({"statistic": np.arange(98.0)}, "holds 98 statistics instead of 99"),
    ],
    ("grouped", "block-00000"): [
        ({**rows(), "x1": np.full(50, 10.0)}, "rows of groups that the model has not"),
        ({**rows(), "x1": np.full(50, -1.0)}, "rows of groups that the model has not"),
        ({**rows(), "x1": np.full(50, 0.5)}, "rows of groups that the model has not"),
        ({**rows(), "x0": np.full(50, np.nan), "x1": np.zeros(50)}, "contains NaN or inf"),
    ],
    ("geodesic", "graph-starts"): [
        ({"start": STARTS + 1}, "no graph of 99 rows"),
        ({"start": STARTS[:-1]}, "99 rows instead of 100"),
        ({"start": STARTS[::-1].copy()}, "no graph of 99 rows"),
    ],
    ("geodesic", "graph-edges"): [
        (EDGES | {"target": EDGES["target"] + 99}, "no graph"),
        (EDGES | {"target": EDGES["target"] - 1}, "no graph"),
        (EDGES | {"length": -EDGES["length"]}, "no graph"),
        (EDGES | {"length": np.full(99, np.nan)}, "no graph"),
        (EDGES | {"length": np.ones(99, int)}, "of type int64"),
    ],
}


@pytest.mark.parametrize(
    ("model", "name", "columns", "why"),
    [(*place, *case) for place, cases in FILES.items() for case in cases],
)
def test_scoring__with_a_strangers_file(model, name, columns, why):
    others = saved(model)
    if model == "geodesic":  # a graph that its rows may have
        others = with_file(others, "graph-starts.parquet", {"start": STARTS})
        others = with_file(others, "graph-edges.parquet", EDGES)
        assert len(scored(others)) == len(QUERIES)
    others = with_file(others, f"{name}.parquet", columns)

    with pytest.raises(ValueError, match=rf"{name[:5]}.*\.parquet.*{why}"):
        scored(others)
    if name == "calibration":  # which is read at once
        assert_refused(others, {"calibration.parquet"}, ValueError)


def test_p_values__of_a_stranger(straight, tmp_path):
    """As many as there were rows, with those that were dropped."""
    put(with_file(straight, "nominal.parquet", {"statistic": np.ones(99)}), tmp_path)
    model = lpe_dask.load(tmp_path)

    with pytest.raises(ValueError, match=r"nominal.parquet holds 99 rows instead of 100"):
        model.p_values_  # noqa: B018


def test_load__runs_no_code(geodesic, tmp_path, monkeypatch):
    """Nothing is unpickled on the way."""

    def refuse(*arguments, **options):
        raise AssertionError("something was unpickled")

    put(geodesic, tmp_path)
    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(f"pickle.{name}", refuse)
    reference = ModelFolder(tmp_path).load().reference
    for results in (reference.blocks, reference.graph):
        for task in results.tasks():  # computed without Dask's names, which are pickles
            dask.get(dict(task.dask), task.key)

    assert {path.suffix for path in tmp_path.rglob("*.*")} == {".json", ".parquet"}
