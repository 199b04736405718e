"""`lpe_dask.drift`: p-values of any kind, of any model, run after run."""

import dataclasses
import json
import math

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from lpe_dask import LPE
from lpe_dask.model.detector import load
from lpe_dask.monitoring.api import drift


def log_bell(rows):
    return -((np.asarray(rows) - 0.5) ** 2).sum(axis=1)


MODELS = {
    "loo": {"calibration": "loo"},
    "loo part": {"calibration": "loo", "calibration_size": 100},
    "conformal": {"calibration": "conformal"},
    "split": {"calibration": "split", "n_neighbors": 4},
    "radius": {"calibration": "loo", "graph": "radius", "radius": 0.4},
    "radius split": {"calibration": "split", "graph": "radius", "radius": 0.4},
    "mean": {"calibration": "loo", "aggregation": "mean"},
    "density": {"calibration": "conformal", "anomaly_log_density": log_bell},
}


def rows_of(seed, n_rows, shift=0.0):
    return np.random.default_rng(seed).standard_normal((n_rows, 2)) + shift


def fitted(**arguments):
    given = {"alpha": 0.05, "random_state": 0, "calibration": "conformal"} | arguments
    return LPE(**given).fit(rows_of(0, 800))


@pytest.fixture(scope="module")
def model():
    return fitted()


@pytest.fixture(scope="module")
def found(model):
    """P-values of a run, some of them missing."""
    p_values = model.score_samples(rows_of(1, 300))
    p_values[[5, 17, 290]] = np.nan
    return p_values


# What is given


KINDS = {
    "list": lambda p: p.tolist(),
    "Series": lambda p: pd.Series(p, index=np.arange(len(p)) % 7),
    "nullable Series": lambda p: pd.Series(p).convert_dtypes(),
    "dask array": lambda p: da.from_array(p, chunks=70),
    "dask array with empty chunks": lambda p: da.from_array(p, chunks=((0, 1, 0, 299),)),
    "dask Series": lambda p: dd.from_pandas(pd.Series(p), npartitions=4),
    "nullable dask Series": lambda p: dd.from_pandas(
        pd.Series(p).astype("Float64"), npartitions=3
    ),
    "array of unknown chunks": lambda p: dd.from_pandas(
        pd.Series(p), npartitions=4
    ).to_dask_array(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_drift__is_the_same_for_any_kind_of_p_values(model, found, kind):
    expected = drift(found, model, run="a run")

    assert drift(KINDS[kind](found), model, run="a run") == expected
    assert (expected.rows, expected.rows_nan) == (300, 3)
    assert expected.flagged == (found <= 0.05).sum()


def test_drift__computes_once(model, found, at_most_computes):
    with at_most_computes(1):
        drift(da.from_array(found, chunks=50), model)
    with at_most_computes(0):
        drift(found, model)


@pytest.mark.parametrize("empty", [[], np.empty(0), da.from_array(np.empty(0))], ids=str)
def test_drift__of_no_rows_is_invalid_input(model, empty):
    said = drift(empty, model)

    assert (said.verdict, said.reason) == ("invalid input", "there are no rows")
    assert (said.rows, said.number) == (0, 0)


TWO_COLUMNS = pd.DataFrame({"p": [0.5], "q": [0.5]})
NO_P_VALUES = [
    *((wrong, r"were given, .*score_samples") for wrong in (
        0.5, None, np.full((3, 2), 0.5), np.full((3, 1), 0.5), TWO_COLUMNS[["p"]],
        da.from_array(np.full((3, 2), 0.5), chunks=(3, 1)),
        dd.from_pandas(TWO_COLUMNS, npartitions=1),
    )),
    *((wrong, "they are between 0 and 1") for wrong in (
        [0.5, 1.5], [-0.1], [math.inf], da.from_array([2.0])
    )),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "message"), NO_P_VALUES)
def test_drift__refuses_what_are_no_p_values(model, wrong, message):
    with pytest.raises(ValueError, match=message):
        drift(wrong, model)


# Models


@pytest.mark.parametrize("kind", MODELS)
def test_drift__tests_runs_of_any_kind_of_model(kind):
    """Where calibration rows are no reference, against the first runs with 1000 rows."""
    arguments = MODELS[kind]
    model = fitted(**arguments)
    is_exact = arguments["calibration"] == "conformal"
    state, verdicts = None, []
    for run in range(4):
        rows = rows_of(10 + run, 800)
        said = drift(model.score_samples(rows), model, state)
        verdicts.append(said.verdict)
        assert said.flagged == (model.predict(rows) == -1).sum()
        state = said.state
    far = drift(model.score_samples(rows_of(20, 800, shift=2.5)), model, state)

    first = "no drift" if is_exact else "calibrating"
    assert verdicts == [first] * 2 + ["no drift"] * 2
    assert said.reference_rows == (None if is_exact else 1600)
    assert far.verdict in {"drift", "invalid input"}
    assert said.n_calibration == state["n_calibration"] == len(model.calibration_)
    assert said.promised == 0.05


@pytest.mark.parametrize("kind", [kind for kind in MODELS if kind != "density"])
def test_drift__goes_on_with_a_model_from_disk(tmp_path, kind):
    model = fitted(**MODELS[kind])
    model.save(tmp_path / "model")
    stored = load(tmp_path / "model")
    first = drift(model.score_samples(rows_of(4, 300)), model, run="1")
    state = json.loads(json.dumps(first.state))

    p_values = model.score_samples(rows_of(5, 300))

    expected = drift(p_values, model, first.state, run="2")
    assert drift(p_values, stored, state, run="2") == expected
    assert expected.number == 2


def test_drift__goes_on_with_a_refit_of_the_same_rows(model, found):
    state = drift(found, model).state

    assert drift(found, fitted(), state).number == 2


OTHERS = {
    "rows": lambda: fitted().fit(rows_of(1, 800)),
    "number of rows": lambda: fitted().fit(rows_of(0, 600)),
    "calibration": lambda: fitted(calibration="loo"),
    "neighbors": lambda: fitted(n_neighbors=3),
}


@pytest.mark.parametrize("other", OTHERS)
def test_drift__refuses_the_state_of_another_model(model, found, other):
    state = drift(found, OTHERS[other]()).state

    with pytest.raises(ValueError, match=r"another model\. Start anew \(state=None\)"):
        drift(found, model, state)


def test_identifier__tells_calibrations_from_others(model):
    calibration = model._fitted.calibration
    nudged = calibration.values.copy()
    nudged[7] = np.nextafter(nudged[7], np.inf)
    others = [
        calibration.with_values(nudged), calibration.with_values(nudged[:-1]),
        dataclasses.replace(calibration, includes_self=0),
        dataclasses.replace(calibration, graph="radius"),
    ]  # fmt: skip

    ids = {one.identifier for one in [calibration, *others]}

    assert len(ids) == 5
    same = calibration.with_values(calibration.values.copy())
    assert calibration.identifier == same.identifier


def test_drift__before_a_fit(found):
    with pytest.raises(NotFittedError):
        drift(found, LPE())


# Levels


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.3, 0.6, 0.99])
def test_drift__at_another_level(model, alpha):
    p_values = model.score_samples(rows_of(6, 5000))

    said = drift(p_values, model, alpha=alpha)

    assert said.verdict == "no drift"
    assert said.promised == alpha
    assert said.flagged == (p_values <= alpha).sum()
    low, high = said.promised_between
    assert low < alpha < high
    assert said.state["edges"][0] >= min(1, max(0.1, 2 * alpha)) * 400
    if alpha > 0.5:
        assert said.state["edges"] == [400]
        assert "Too few distinct p-values" in str(said)
        # 1.25 times 99 % and more is never too much.
        verdict = "no drift" if alpha > 0.8 else "drift"
        assert drift(np.zeros(300), model, alpha=alpha).verdict == verdict


def test_drift__takes_the_level_of_the_model_for_what_it_is(model, found):
    state = drift(found, model, run="1").state

    same = drift(found, model, state, run="2", alpha=0.05)

    assert same == drift(found, model, state, run="2")
    with pytest.raises(ValueError, match=r"400 calibration rows and alpha=0\.05, but"):
        drift(found, model, state, alpha=0.01)


# Runs and states


def test_drift__counts_no_run_twice(model, found):
    first = drift(found, model, run="2026-11-25")
    unnamed = drift(found, model, first.state)
    twice = drift(found, model, unnamed.state)

    with pytest.raises(ValueError, match="run='2026-11-25' is in the state already"):
        drift(found, model, twice.state, run="2026-11-25")
    assert [said.number for said in (first, unnamed, twice)] == [1, 2, 3]
    assert [said.run for said in (unnamed, twice)] == ["run 2", "run 3"]
    assert len({run["run"] for run in twice.state["runs"]}) == 3


@pytest.mark.parametrize("run", [3, 0, 2.5, b"run", ["run"]], ids=str)
def test_drift__refuses_a_run_that_is_no_text(model, found, run):
    with pytest.raises(TypeError, match="must be a str, such as the date"):
        drift(found, model, run=run)


@pytest.mark.parametrize(
    "given",
    [
        {"alpha": 0}, {"alpha": 1}, {"alpha": math.nan}, {"delta": 0}, {"delta": 1},
        {"tolerance": -0.1}, {"anomalies": 1}, {"shift": -0.1}, {"shift": 1},
        {"delta": "1 %"}, {"shift": None},
    ],
    ids=str,
)  # fmt: skip
def test_drift__refuses_arguments_out_of_range(model, found, given):
    [name] = given

    with pytest.raises(ValueError, match=f"^{name}=.* must be a number"):
        drift(found, model, **given)


def test_drift__passes_on_what_is_tolerated(model):
    p_values = model.score_samples(rows_of(9, 5000, shift=1.5))

    assert drift(p_values, model).verdict == "drift"
    tolerant = drift(p_values, model, shift=0.9, anomalies=0.9)
    assert (tolerant.verdict, tolerant.changed_since is None) == ("no drift", False)
    assert drift(p_values, model, shift=0.9, tolerance=99).verdict == "no drift"
    assert drift(p_values, model, shift=0.9, delta=1e-300).changed_since is None


def test_drift__tells_all_of_it_in_sentences(model):
    said = drift(np.floor(np.linspace(1, 401.9, 2000)) / 401, model)

    low, high = said.promised_between
    assert str(said) == (
        f"no drift: {said.flagged_share:.2%} have p <= 0.05 (95% interval: "
        f"{said.flagged_between[0]:.2%} to {said.flagged_between[1]:.2%}), 5.00% promised "
        f"(95% interval by 400 calibration rows: {low:.2%} to {high:.2%}). The "
        f"distribution of p-values of non-anomalous rows differs by {said.shift:.2%} in "
        f"this run. No evidence of a change."
    )
