"""What notebooks show of a model and of a forecast."""

import html
import re

import numpy as np
import pandas as pd
import pytest

import lpe_dask
from lpe_dask import LPE

NOMINAL = np.random.default_rng(0).standard_normal((3000, 3))


def cells_of(shown):
    """The names and values of a card, as text."""
    cells = re.findall(r'<th scope="row">(.*?)</th><td>(.*?)</td>', shown)
    return {html.unescape(name): html.unescape(value) for name, value in cells}


def test_model__is_shown_by_what_was_learned_and_given():
    nominal = NOMINAL.copy()
    nominal[5, 1] = np.nan
    model = LPE(7, aggregation="mean", alpha=0.02, missing="drop", calibration="loo")

    shown = model.fit(nominal)._repr_html_()

    assert cells_of(shown) == {
        "nominal rows": "2,999, 1 more dropped", "measured": "3 columns",
        "distance": "K = 7, mean", "calibration": "loo, 2,999 rows",
        "algorithm": model.algorithm_, "alpha": "0.02", "n_neighbors": "7",
        "aggregation": "mean", "missing": "drop",
    }  # fmt: skip
    assert model._repr_mimebundle_() == {"text/plain": repr(model), "text/html": shown}


def test_model__of_a_radius_and_weights_is_shown():
    model = LPE(
        graph="radius", radius=0.5, calibration="conformal", random_state=0,
        metric_params={"w": np.array([1.0, 2.0, 0.5])},
    ).fit(NOMINAL)  # fmt: skip

    cells = cells_of(model._repr_html_())

    assert cells["distance"] == "radius 0.5"
    assert cells["calibration"] == "conformal, 1,500 rows"
    assert cells["metric_params"].startswith("w")


def test_model__with_hostile_names_is_shown_as_text():
    name = "</script><b>&"
    frame = pd.DataFrame(NOMINAL[:, :1], columns=["x"]).assign(
        **{name: ["a", "b", "c"] * 1000}
    )

    shown = LPE(3, categorical=[name], calibration="loo").fit(frame)._repr_html_()

    assert cells_of(shown)["measured"] == "2 columns, 1 of them categorical"
    assert name in cells_of(shown)["categorical"]
    assert "<b>" not in shown
    assert "<script" not in shown


def test_model__that_is_not_fitted_is_shown_by_its_parameters():
    shown = LPE(n_neighbors=7)._repr_html_()

    assert "n_neighbors" in shown
    assert "card" not in shown


@pytest.mark.parametrize("change", ["set", "fit"])
def test_model__is_shown_with_the_alpha_that_decides(change):
    model = LPE(7, calibration="loo", alpha=0.02).fit(NOMINAL)
    model.set_params(alpha=0.03)
    if change == "fit":
        model.fit(NOMINAL[:50])

    cells = cells_of(model._repr_html_())

    assert cells["alpha"] == ("0.03" if change == "fit" else "0.02")
    assert cells["nominal rows"] == ("50" if change == "fit" else "3,000")


def test_forecast__is_shown_as_it_is_printed():
    forecast = lpe_dask.plan(NOMINAL, NOMINAL)

    printed = str(forecast)

    for name, value in cells_of(forecast._repr_html_()).items():
        assert f"{name:<8}{value}" in printed
    assert list(cells_of(forecast._repr_html_())) == [
        line.split()[0] for line in printed.splitlines()
    ]
