"""What a model promises, and what of it holds, follows from how it was fitted."""

import dask
import numpy as np
import pandas as pd
import pytest

from indexes import right_lists
from lpe_dask import LPE
from lpe_dask.kernels import nn_descent
from lpe_dask.model.certificate import Certificate
from lpe_dask.model.detector import fitted_of
from lpe_dask.model.promises import promises_of
from lpe_dask.search import Approximation

ROWS = np.random.default_rng(0).standard_normal((600, 2))


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="sync"):
        yield


def promises(rows=ROWS, **arguments):
    model = LPE(**{"random_state": 0} | arguments).fit(rows)
    return {promise.name: promise for promise in promises_of(fitted_of(model))}


AVERAGE, THIS_SET = "false alarms on average", "false alarms of this set"


@pytest.mark.parametrize(
    ("arguments", "state", "bound"),
    [
        ({"calibration": "loo"}, "holds", 31 / 601),
        ({"calibration": "conformal", "scale": "standard"}, "holds", 15 / 301),
        ({"calibration": "loo", "scale": "standard"}, "about", 31 / 601),
        ({"calibration": "split"}, "about", 16 / 301),
        ({"calibration": "loo", "metric": "geodesic"}, "about", 31 / 601),
        ({"calibration": "loo", "scale": "quantile"}, "no", None),
        (
            {
                "calibration": "loo", "metric": "geodesic",
                "metric_params": {"graph": "union"},
            },
            "no", None,
        ),
    ],
)  # fmt: skip
def test_rate_on_average(arguments, state, bound):
    promise = promises(**arguments)[AVERAGE]

    assert promise.state == state
    assert promise.number == (None if bound is None else pytest.approx(bound))


@pytest.mark.parametrize(
    ("arguments", "conditions"),
    [
        (
            {"calibration": "loo"},
            ", or a tenth above: variances are learned from 600 rows, an",
        ),
        ({"calibration": "split"}, ", for many rows: variances are learned from 600 rows"),
        (
            {"calibration": "loo", "metric": "geodesic"},
            ", along a directed graph: variances are learned from 600 rows",
        ),
    ],
)
def test_rate_on_average__names_each_condition(arguments, conditions):
    assert conditions in promises(scale="standard", **arguments)[AVERAGE].text


def test_rate_on_average__bounds_that_of_other_rows():
    rng, alpha = np.random.default_rng(1), 0.1
    promise = promises(calibration="conformal", alpha=alpha)[AVERAGE]
    model = LPE(calibration="conformal", alpha=alpha, random_state=0)

    shares = [
        (model.fit(rng.standard_normal((99, 2))).predict(ROWS) == -1).mean()
        for _ in range(30)
    ]

    assert np.mean(shares) <= promise.number + 0.02


def test_few_rows_to_learn_from__are_counted():
    text = promises(calibration="loo", scale="quantile")[AVERAGE].text

    assert "quantiles are learned from 600 rows, and 2,829 are needed" in text


def test_confidence__is_a_promise_for_this_set():
    bounded = promises(calibration="conformal", alpha=0.05, confidence=0.95)
    average = promises(calibration="conformal", alpha=0.05)

    assert bounded[THIS_SET].state == "holds"
    assert bounded[THIS_SET].number == 0.05
    assert average[THIS_SET].state == "no"
    assert bounded[AVERAGE].number < average[AVERAGE].number


@pytest.mark.parametrize(
    ("calibration", "remedy"),
    [
        ("conformal", "by about 0.013 (confidence= would bound it)"),
        ("loo", "by at least about 0.0089 (confidence= with calibration='conformal' would"),
        (
            "split",
            "by at least about 0.013 (confidence= with calibration='conformal' would",
        ),
    ],
)
def test_rate_of_this_set__without_confidence(calibration, remedy):
    assert remedy in promises(calibration=calibration)[THIS_SET].text


@pytest.mark.filterwarnings("ignore:no row can be flagged")
@pytest.mark.parametrize(
    ("arguments", "least"),
    [
        ({"calibration": "loo"}, 0.0),
        ({"calibration": "conformal"}, 1 / 301),
        ({"calibration": "conformal", "confidence": 0.9}, 1 - 0.1 ** (1 / 300)),
    ],
)
def test_can_flag__names_the_least_level_that_can(arguments, least):
    """A model of that level flags a row that is as far out as can be, and no lower one."""
    promise = promises(**arguments)["can flag"]

    assert promise.number == pytest.approx(least)
    assert promise.state == "holds"
    for factor, label in [(1.0001, -1), (0.999, 1)]:
        alpha = max(promise.number * factor, 1e-9 * factor)
        model = LPE(random_state=0, alpha=alpha, **arguments).fit(ROWS)
        can_flag = {of.name: of for of in promises_of(fitted_of(model))}["can flag"].state
        is_any = least == 0  # every level above 0
        assert model.predict([[1e6, 1e6]])[0] == (-1 if is_any else label)
        assert can_flag == ("holds" if is_any or label == -1 else "no")


def test_calibration_sample__is_named_where_there_is_one():
    assert "calibration sample" not in promises(calibration="loo")

    promise = promises(calibration="loo", calibration_size=200)["calibration sample"]

    assert promise.state == "about"
    assert "compare with 200 of the nominal rows" in promise.text
    assert 0.05 < promise.number < 0.2


def test_groups__have_a_rate_each_or_together():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(ROWS, columns=["x", "y"]).assign(site=rng.choice(["a", "b"], 600))
    of_groups = {"rows": table, "by": ["site"], "calibration": "conformal"}

    assert "in each group" in promises(**of_groups)[AVERAGE].text
    assert "in each group" in promises(**of_groups, confidence=0.9)[THIS_SET].text
    together = promises(**of_groups, own=("scale",), scale="standard")[AVERAGE].text
    assert "if groups are as frequent as among nominal rows" in together
    table.loc[:2, "site"] = "c"
    pooled = promises(**of_groups, small_groups="pool")[AVERAGE].text
    assert pooled.endswith(
        "in each group; nothing is promised for small and unknown groups"
    )
    split = promises(**of_groups | {"calibration": "split"}, small_groups="pool")[AVERAGE]
    assert "in each group, for many rows; nothing is promised for small" in split.text


def test_groups__of_which_the_largest_can_flag():
    table = pd.DataFrame(ROWS, columns=["x", "y"]).assign(
        site=np.repeat([0, 1], [500, 100])
    )
    arguments = {"rows": table, "by": ["site"], "calibration": "conformal"}

    promise = promises(**arguments, alpha=0.03)["can flag"]

    assert "with 250 calibration rows in the largest group, an alpha of" in promise.text
    assert "in the largest group" not in promises()["can flag"].text


def test_neighbors__of_an_approximate_search_may_be_missed(monkeypatch):
    """Also where all nominal rows were measured exactly, being few."""
    assert promises()["neighbors"].state == "holds"
    monkeypatch.setattr(nn_descent, "neighbor_lists", right_lists)

    arguments = {"algorithm": "nn_descent", "calibration": "loo", "calibration_size": 50}
    few = promises(ROWS[:150], **arguments)["neighbors"]
    monkeypatch.setattr(Approximation, "AUDITED_ROWS", 20)
    monkeypatch.setattr(Certificate, "check", lambda of: None)  # of so few it fails
    many = promises(ROWS[:150], **arguments)["neighbors"]

    assert few.state == "about"
    assert few.number is None
    assert "larger ones of more than 3,000 new rows may be off" in few.text
    assert "of the nominal rows, with probability 1 - 0.0001" in many.text
    assert many.number > 0
