"""What is public, and documented."""

import inspect

import dask
import pytest
import yaml

import lpe_dask


def test_all__is_exactly_what_is_built():
    assert lpe_dask.__all__ == [
        "LPE",
        "__version__",
        "compile_kernels",
        "drift",
        "false_discovery_control",
        "load",
        "plan",
        "plot_calibration",
        "plot_level_set",
        "plot_pairs",
        "plot_reasons",
        "plot_roc",
        "plot_scores",
        "plot_timeline",
        "report",
        "run",
        "score",
        "score_files",
    ]
    assert all(hasattr(lpe_dask, name) for name in lpe_dask.__all__)
    assert dir(lpe_dask) == lpe_dask.__all__


def test_package__has_no_other_names():
    with pytest.raises(AttributeError, match="lpe_dask attribute sore"):
        lpe_dask.sore  # noqa: B018


@pytest.mark.parametrize(
    "name",
    [
        *(name for name in lpe_dask.__all__ if name[0] != "_"),
        *(f"LPE.{name}" for name in vars(lpe_dask.LPE) if name[0] != "_"),
    ],
)
def test_docstrings__say_what_comes_back(name):
    owner, _, method = name.partition(".")
    documented = getattr(lpe_dask, owner)
    if method:
        documented = inspect.getattr_static(documented, method)

    assert inspect.getdoc(documented)
    if callable(documented):
        assert "Parameters\n----------" in inspect.getdoc(documented)


def test_signature__of_lpe():
    parameters = inspect.signature(lpe_dask.LPE).parameters
    defaults = [f"{name}={of.default!r}" for name, of in parameters.items()]

    assert ", ".join(defaults) == (
        "n_neighbors=None, graph='knn', radius=None, aggregation='kth', "
        "metric='euclidean', metric_params=None, scale=None, "
        "categorical=None, alpha=0.05, algorithm='auto', "
        "max_p_error=0.01, recheck=None, calibration='auto', calibration_size=None, "
        "anomaly_log_density=None, missing='error', by=None, "
        "own=('scale', 'neighbors', 'calibration'), small_groups='nan', confidence=None, "
        "random_state=None"
    )


def test_configuration__every_key_has_a_default():
    path = lpe_dask.__path__[0] + "/lpe-dask.yaml"
    with open(path, encoding="utf-8") as file:
        defaults = yaml.safe_load(file)["lpe-dask"]

    assert set(defaults) == {
        "memory-limit", "block-rows", "spool", "cache-folder", "vector-form",
        "retries", "statistics-in-memory", "timeouts",
    }  # fmt: skip
    for key in defaults:
        dask.config.get(f"lpe-dask.{key}")
