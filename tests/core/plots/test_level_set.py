"""Level sets of models of two features."""

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import lpe_dask
from drawing import legend, lines
from lpe_dask import LPE


def test_plot_level_set__needs_a_model_that_is_fitted_on_two_features():
    with pytest.raises(ValueError, match=r"3 features; .* Fit an LPE on two"):
        lpe_dask.plot_level_set(LPE(1).fit(np.eye(3)), np.eye(3))
    rows = pd.DataFrame(np.random.default_rng(0).random((60, 2)), columns=["x", "y"])
    of_groups = LPE(2, by=["site"], alpha=0.1).fit(rows.assign(site="a"))
    for given in ({"X": rows.assign(site="a")}, {"box": ((0, 1), (0, 1))}):
        with pytest.raises(
            ValueError, match=r"by \['site'\], .* Fit an LPE without by= on"
        ):
            lpe_dask.plot_level_set(of_groups, **given)
    with pytest.raises(NotFittedError):
        lpe_dask.plot_level_set(LPE(2), box=((0, 1), (0, 1)))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.arange(60) * 10 + 2**60, "'at' holds whole numbers beyond 2"),
        ([*"ab"] * 30, "'at' holds categories, .* Fit an LPE on two columns of other"),
    ],
)
def test_plot_level_set__refuses_columns_without_an_axis(values, message):
    rows = pd.DataFrame({"at": values, "x": np.arange(60.0)})
    model = LPE(3, categorical="auto").fit(rows)

    with pytest.raises(ValueError, match=message):
        lpe_dask.plot_level_set(model, rows)


def test_plot_level_set__bounds_what_predict_finds_nominal(model, nominal, ax):
    lpe_dask.plot_level_set(model, nominal, resolution=80, ax=ax)

    (*_, boundary) = [c for c in ax.collections if list(c.levels) == [model.offset_]]
    is_inside = np.zeros(len(nominal), bool)
    for polygon in boundary.get_paths()[0].to_polygons():
        from matplotlib.path import Path

        is_inside ^= Path(polygon).contains_points(nominal)
    # The line is between points of a grid, so that rows beside it may lie on either side.
    assert (is_inside == (model.predict(nominal).to_numpy() == 1)).mean() > 0.9


def test_plot_level_set__tells_flagged_rows_by_their_marker(model, nominal, ax):
    rows = pd.concat([nominal, pd.DataFrame([[9.0, 9.0]], columns=nominal.columns)])

    lpe_dask.plot_level_set(model, rows, resolution=10, ax=ax)

    n_flagged = int((model.predict(rows) == -1).sum())
    drawn = lines(ax)
    flagged = drawn[f"flagged ({n_flagged} rows)"]
    others = drawn[f"nominal ({61 - n_flagged} rows)"]
    assert [9.0, 9.0] in flagged.get_xydata().tolist()
    assert len(others.get_xydata()) == 61 - n_flagged
    assert flagged.get_marker() != others.get_marker()
    assert "p = alpha = 0.1" in drawn


def test_plot_level_set__takes_columns_by_name(model, nominal, ax):
    turned = nominal[["load [kN]", "speed [m/s]"]].assign(name="row")

    lpe_dask.plot_level_set(model, turned, resolution=10, ax=ax)
    same = lpe_dask.plot_level_set(model, nominal, resolution=10, ax=Figure().subplots())

    assert (ax.get_xlabel(), ax.get_ylabel()) == ("speed [m/s]", "load [kN]")
    assert ax.get_xlim() == same.get_xlim()


def test_plot_level_set__takes_dask_rows_and_leaves_nan_out(model, nominal, ax):
    rows = nominal.to_numpy().copy()
    rows[:2, 0] = np.nan

    lpe_dask.plot_level_set(model, da.from_array(rows, chunks=20), resolution=10, ax=ax)

    assert "left out: NaN (2 rows)" in legend(ax)


def test_plot_level_set__shows_the_box_asked_for(model, ax):
    fitted = clone(model).fit(np.random.default_rng(0).random((60, 2)))
    fitted.set_params(alpha=0.5)  # the level is that of the fit
    lpe_dask.plot_level_set(fitted, box=((50, 60), (-1, 1)), resolution=5, ax=ax)
    single = lpe_dask.plot_level_set(
        fitted, [[0.0, 2.0]], resolution=5, ax=Figure().subplots()
    )

    assert (ax.get_xlim(), ax.get_ylim()) == ((50, 60), (-1, 1))
    assert legend(ax) == ["p = alpha = 0.1"]
    assert (single.get_xlim(), single.get_ylim()) == ((-1, 1), (1, 3))  # a margin
    assert single.get_ylabel() == "feature 2"


def test_plot_level_set__with_a_confidence_names_the_cut_off():
    rows = np.random.default_rng(0).standard_normal((400, 2))
    model = LPE(confidence=0.95, alpha=0.05, random_state=0).fit(rows)

    ax = lpe_dask.plot_level_set(model, rows, resolution=9, ax=Figure().subplots())

    assert legend(ax)[0] == f"p = cut-off = {model.offset_:g}"
    assert model.offset_ < 0.05
