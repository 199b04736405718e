"""Types of arguments say what the table of the arguments says."""

import inspect
from types import NoneType
from typing import get_args, get_type_hints

import numpy as np
import pandas as pd
import pytest

import definitions
from lpe_dask import LPE, score, score_files
from lpe_dask.kernels import ALGORITHMS
from lpe_dask.kernels.aggregation import AGGREGATIONS
from lpe_dask.kernels.neighbor_graph import GRAPHS as NEIGHBOR_GRAPHS
from lpe_dask.model.arguments import Arguments, FitArguments, ScoreArguments
from lpe_dask.model.lpe_parameters import (
    PARAMETERS,
    ParameterError,
    check_parameters,
    neighbors_by_rule,
    radius_by_rule,
)


def test_parameters__are_those_of_the_estimator():
    signature = inspect.signature(LPE).parameters

    assert {name: known.default for name, known in signature.items()} == {
        name: known.default for name, known in PARAMETERS.items()
    }
    assert list(signature) == list(PARAMETERS)


def test_parameters__name_what_the_kernels_have():
    assert PARAMETERS["algorithm"].choices == ("auto", *ALGORITHMS)
    assert PARAMETERS["aggregation"].choices == tuple(AGGREGATIONS)
    for graph in NEIGHBOR_GRAPHS:
        check_parameters(
            LPE(metric="geodesic", metric_params={"graph": graph}).get_params()
        )


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({"alpha": 2}, ("alpha",)),
        ({"radius": 1.0}, ("radius", "graph", "scale")),
        ({"metric_params": {"V": [1]}}, ("metric_params", "metric")),
        ({"n_neighbors": 3, "graph": "radius", "radius": 1.0}, ("n_neighbors", "graph")),
        (
            {"aggregation": "mean", "graph": "radius", "radius": 1.0},
            ("aggregation", "graph"),
        ),
        ({"categorical": "a"}, ("categorical",)),
        ({"categorical": [0], "metric": "mahalanobis"}, ("categorical", "metric")),
        ({"categorical": [0], "metric": "seuclidean"}, ("categorical", "metric")),
        ({"categorical": [0], "metric": "geodesic"}, ("categorical", "metric")),
        ({"categorical": "auto", "algorithm": "nn_descent"}, ("categorical", "algorithm")),
        (
            {"categorical": [0], "graph": "radius", "scale": "minmax"},
            ("categorical", "radius"),
        ),
        (
            {"categorical": [0], "anomaly_log_density": np.sum},
            ("categorical", "anomaly_log_density"),
        ),
        ({"by": [0], "algorithm": "nn_descent"}, ("by", "algorithm")),
        ({"by": [0], "metric": "geodesic"}, ("by", "metric")),
        ({"by": [0, 2], "categorical": [1, 2]}, ("by", "categorical")),
        ({"own": ["neighbors"]}, ("own", "by")),
        ({"small_groups": "pool"}, ("small_groups", "by")),
    ],
)
def test_check_parameters__names_the_arguments_that_it_refuses(arguments, names):
    with pytest.raises(ParameterError) as refusal:
        check_parameters(LPE(**arguments).get_params())

    assert refusal.value.names == names


@pytest.mark.parametrize(
    "arguments",
    [
        {"own": ["calibration", "neighbors", "scale"]},  # as JSON has the default
        {"by": ["a"], "own": ("scale",), "scale": "minmax", "small_groups": "error"},
        {"by": ["a"], "categorical": "auto"},
        {"by": ["a"], "categorical": ["b"]},
        {"by": ["a"], "anomaly_log_density": np.sum},
    ],
)
def test_check_parameters__takes_what_goes_with_groups(arguments):
    check_parameters(LPE(**arguments).get_params())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"by": "site"}, "by='site' must be a list"),
        ({"by": [0], "algorithm": "nn_descent"}, r"Give an exact algorithm \('auto'\)"),
        ({"by": [0], "metric": "geodesic"}, "Give another metric"),
        ({"by": [0, 1], "categorical": [1]}, r"both name \[1\].* are not measured"),
        ({"own": ("scale",)}, r"Name the columns .* or leave out own"),
        ({"n_neighbors": 0}, "n_neighbors=0 must be a whole number of at least 1"),
        ({"n_neighbors": 2.5}, "n_neighbors=2.5"),
        ({"n_neighbors": True}, "n_neighbors=True"),
        ({"n_neighbors": 5, "graph": "radius", "radius": 1.0}, "takes radius"),
        ({"graph": "kn"}, "'knn', 'radius'"),
        (
            {"aggregation": "mean", "graph": "radius", "radius": 1.0},
            "aggregation='mean' is for the distances of graph='knn'; graph='radius' counts",
        ),
        ({"aggregation": "median"}, "this version has aggregation in 'kth', 'mean'"),
        ({"graph": "radius", "radius": -0.5}, "radius=-0.5 must be a finite number"),
        ({"graph": "radius", "radius": np.inf}, "radius=inf"),
        ({"graph": "radius"}, "scale='minmax'"),
        ({"graph": "radius", "scale": "standard"}, "scale='minmax'"),
        ({"radius": 0.5}, "radius=0.5 is for graph='radius'"),
        ({"metric": "cosine"}, "'euclidean', 'seuclidean', 'mahalanobis'"),
        ({"metric": "geodesic", "metric_params": {"w": [1, 1]}}, r"\['w'\].*'n_neighbors'"),
        ({"metric": "geodesic", "metric_params": {"n_neighbors": 0}}, "=0 must be a whole"),
        ({"metric": "geodesic", "metric_params": {"n_neighbors": 2.0}}, "=2.0 must be"),
        (
            {"metric": "geodesic", "metric_params": {"n_neighbors": 10}},
            "at least 11 nominal",
        ),
        ({"metric": "geodesic", "metric_params": {"graph": "both"}}, "'directed', 'union'"),
        (
            {"metric": "geodesic", "metric_params": [5]},
            r"metric_params=\[5\] must be a dict",
        ),
        ({"scale": "robust"}, "None, 'minmax', 'standard'"),
        ({"scale": np.ones(2)}, "None, 'minmax', 'standard'"),
        ({"categorical": "protocol"}, r"'protocol' must be a list .* \['protocol'\]"),
        ({"categorical": [0, 0]}, r"\[0, 0\] must be a list of column names, none twice"),
        ({"categorical": [[0]]}, r"\[\[0\]\] must be a list"),
        ({"categorical": pd.Index(["a"])}, r"Index.* must be a list .* list\("),
        ({"categorical": np.array([0])}, r"array.* must be a list .* list\("),
        ({"categorical": [2]}, r"names \[2\], but the .* are \[0, 1\]"),
        ({"categorical": ["x"]}, r"names \['x'\], but the .* are \[0, 1\]"),
        ({"alpha": 0}, "alpha=0 must be a number between 0 and 1"),
        ({"alpha": "0.1"}, "alpha='0.1'"),
        ({"algorithm": "kd"}, "this version has algorithm in 'auto', 'brute', 'pruned'"),
        *(
            ({"algorithm": "nn_descent", **other}, "'nn_descent' is for distances")
            for other in ({"graph": "radius", "radius": 1.0}, {"metric": "geodesic"})
        ),
        ({"recheck": 0}, "recheck=0 must be a number between 0 and 1"),
        ({"calibration": "cv"}, "has calibration in 'auto', 'loo', 'split', 'conformal'"),
        ({"calibration_size": 0}, "calibration_size=0 must be a whole number"),
        ({"calibration_size": 11}, "more than the 10 rows that calibration='loo' can draw"),
        ({"calibration_size": 6, "calibration": "split"}, "more than the 5 rows"),
        ({"calibration_size": 10, "calibration": "conformal"}, "more than the 9 rows"),
        ({"n_neighbors": 10}, "n_neighbors=10 needs at least 11 nominal rows"),
        (
            {"n_neighbors": 5, "calibration": "split"},
            "Lower n_neighbors to 4 or less",
        ),
        (
            {"n_neighbors": 6, "calibration": "conformal"},
            "Lower n_neighbors to 4 or less",
        ),
        (
            {"anomaly_log_density": np.sum, "scale": "quantile"},
            "scale='quantile'. Set scale",
        ),
        ({"anomaly_log_density": 1.0}, "anomaly_log_density=1.0 must be a function"),
        ({"missing": "ignore"}, "'error', 'drop'"),
        ({"random_state": -1}, "random_state=-1"),
        ({"random_state": np.random.default_rng(0)}, "whole number"),
    ],
)
def test_fit__says_what_is_allowed(arguments, message):
    with pytest.raises(ValueError, match=message):
        LPE(**arguments).fit(np.zeros((10, 2)))


def test_fit__of_two_rows_has_no_two_parts_to_measure_in():
    with pytest.raises(
        ValueError, match=r"among 1 of n_samples = 2 nominal rows\. Give more"
    ):
        LPE(1, calibration="split").fit(np.zeros((2, 2)))


@pytest.mark.parametrize(
    "arguments",
    [
        {"n_neighbors": np.int64(3), "alpha": np.float32(0.1), "random_state": np.int8(1)},
        {"graph": "radius", "radius": 0},
        {"graph": "radius", "radius": np.float64(0.5)},
        {"graph": "radius", "scale": "minmax"},
        {"categorical": [np.int64(3)], "scale": "minmax"},
        {"categorical": ("a", 1), "graph": "radius", "radius": 1},
        {"categorical": [], "metric": "mahalanobis", "algorithm": "nn_descent"},
    ],
)
def test_check_parameters__takes_the_numbers_of_numpy(arguments):
    check_parameters(LPE(**arguments).get_params())


@pytest.mark.parametrize("n", [1, 2, 3, 10, 99, 1000, 10**6])
def test_rules__are_those_of_the_paper(n):
    assert neighbors_by_rule(n) == definitions.neighbors_rule(n)
    for d in (1, 2, 30):
        assert radius_by_rule(n, d) == pytest.approx(
            definitions.radius_rule(n, d), rel=1e-15
        )


def test_fit__takes_the_rules():
    rows = np.random.default_rng(0).random((250, 2))

    knn = LPE().fit(rows)
    radius = LPE(graph="radius", scale="minmax", calibration="loo").fit(rows)

    assert (knn.n_neighbors_, knn.radius_) == (neighbors_by_rule(250), None)
    assert radius.radius_ == radius_by_rule(250, 2)


HINTS = get_type_hints(Arguments)


def values_of(hint):
    """Return the values that a type lists, and None if that is one of them."""
    parts = (value for part in get_args(hint) for value in get_args(part) or (part,))
    return {None if part is NoneType else part for part in parts}


def test_arguments__are_those_of_the_table_with_the_types_of_the_estimator():
    of_estimator = get_type_hints(LPE.__init__)
    del of_estimator["return"]

    assert set(HINTS) == set(PARAMETERS)
    assert of_estimator == HINTS


@pytest.mark.parametrize(
    "name", [name for name, known in PARAMETERS.items() if known.choices is not None]
)
def test_arguments__have_the_choices_of_the_table(name):
    assert values_of(HINTS[name]) == set(PARAMETERS[name].choices)


@pytest.mark.parametrize("name", PARAMETERS)
def test_arguments__may_be_none_where_that_is_the_default(name):
    assert (NoneType in get_args(HINTS[name])) == (PARAMETERS[name].default is None)


def test_arguments__of_a_fit_are_those_that_have_no_name_of_their_own_in_score_files():
    named = set(inspect.signature(score_files).parameters)

    levels = {"alpha", "confidence"}
    assert set(HINTS) - set(get_type_hints(FitArguments)) == set(HINTS) & named == levels


def test_arguments__of_score_are_all_that_it_takes_by_name():
    named = set(inspect.signature(score).parameters) - {"arguments"}

    more = set(get_type_hints(ScoreArguments)) - set(HINTS)
    of_paths = {"csv", "storage_options"}
    assert more == named - {"data", "nominal", "output"} - of_paths
