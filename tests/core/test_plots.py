"""The pictures: what they hold, how it is told apart, and what is refused."""

import builtins

import dask.array as da
import dask.dataframe as dd
import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import lpe_dask
from lpe_dask import LPE
from lpe_dask.plots import CURVE_STYLES

mpl.use("Agg")

P_VALUES = np.array([0.0, 0.02, 0.4, np.nan, 0.8, 1.0])
IS_ANOMALY = np.array([True, True, False, False, False, True])


@pytest.fixture
def ax():
    return Figure().subplots()


@pytest.fixture(scope="module")
def nominal():
    rows = np.random.default_rng(0).standard_normal((60, 2))
    return pd.DataFrame(rows, columns=["speed [m/s]", "load [kN]"])


@pytest.fixture(scope="module")
def model(nominal):
    return lpe_dask.LPE(n_neighbors=3, alpha=0.1, algorithm="brute").fit(nominal)


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def lines(ax):
    """The lines that the legend names, by their names."""
    return {line.get_label(): line for line in ax.get_lines() if line.get_label()[0] != "_"}


# All of them


def test_pictures__are_drawn_on_the_axes_given_or_on_some_of_their_own(model, nominal):
    from matplotlib import pyplot

    for draw, arguments in (
        (lpe_dask.plot_scores, (P_VALUES, IS_ANOMALY)),
        (lpe_dask.plot_level_set, (model, nominal)),
        (lpe_dask.plot_roc, (P_VALUES, IS_ANOMALY)),
        (lpe_dask.plot_calibration, (P_VALUES,)),
    ):
        given, before = Figure().subplots(), pyplot.get_fignums()

        drawn, own = draw(*arguments, ax=given), draw(*arguments)

        assert drawn is given
        assert len(pyplot.get_fignums()) == len(before) + 1
        pyplot.close(own.figure)
        for ax in (drawn, own):
            assert ax.get_xlabel()
            assert ax.get_ylabel()
            assert legend(ax)


@pytest.mark.parametrize(
    "kind",
    [
        list,
        pd.Series,
        lambda values: da.from_array(values, chunks=2),
        lambda values: dd.from_pandas(pd.Series(values), npartitions=2),
    ],
)
def test_pictures__take_any_kind_of_values(kind):
    drawn = lpe_dask.plot_roc(kind(P_VALUES), kind(IS_ANOMALY), ax=Figure().subplots())
    as_arrays = lpe_dask.plot_roc(P_VALUES, IS_ANOMALY, ax=Figure().subplots())

    (found,), (expected,) = lines(drawn).values(), lines(as_arrays).values()
    np.testing.assert_array_equal(found.get_xydata(), expected.get_xydata())


def test_pictures__say_how_to_install_what_is_missing(monkeypatch):
    real_import = builtins.__import__

    def without_matplotlib(name, *arguments):
        if name == "matplotlib":
            raise ImportError("no matplotlib")
        return real_import(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without_matplotlib)

    with pytest.raises(ImportError, match=r'pip install "lpe-dask\[plot\]"'):
        lpe_dask.plot_scores(P_VALUES)


TWO = pd.DataFrame({"speed [m/s]": [1.0, 2.0], "load [kN]": [0.0, 1.0]})
ROC = [0.1, 0.9]


@pytest.mark.parametrize(
    ("draw", "arguments", "options", "message"),
    [
        ("calibration", [[0.5, 1.5]], {}, "from 0.5 to 1.5 were given"),
        ("calibration", [[-0.5, 0.5]], {}, "between 0 and 1"),
        ("calibration", [[np.nan, np.nan]], {}, "2 rows, but none of them is a number"),
        ("calibration", [[]], {}, "0 rows, but none"),
        ("calibration", [[[0.1, 0.2]]], {}, r"p-values of shape \(1, 2\)"),
        ("scores", [ROC, [1, -1]], {}, "is_anomaly contains -1; .* give labels == -1"),
        ("scores", [ROC, [1]], {}, r"the shape \(1,\), and p_values \(2,\)"),
        ("scores", [ROC, pd.array([1, None], "boolean")], {}, "is_anomaly contains <NA>"),
        *(
            ("scores", [ROC], {"alpha": alpha}, r"alpha=.* between 0 and 1")
            for alpha in (-0.1, 1.1, np.nan, "x")
        ),
        *(
            ("roc", [ROC, labels], {}, "needs anomalies and nominal rows")
            for labels in (None, [0, 0], [1, 1])
        ),
        ("roc", [ROC, [1, 0]], {"statistic": ROC}, "contradicts p_values for graph='knn'"),
        ("roc", [ROC, [1, 0]], {"statistic": [1.0]}, r"statistic has the shape \(1,\)"),
        ("roc", [ROC, [1, 0]], {"statistic": [np.nan, 1]}, "NaN for 1 rows that have a p-"),
        ("roc", [ROC, [1, 0]], {"statistic": [2.0, 1], "graph": "x"}, "'x' is unknown"),
        ("level_set", [np.eye(3)], {}, "3 features|3 columns"),
        ("level_set", [TWO[["load [kN]"]]], {}, "lack the columns"),
        ("level_set", [None], {}, "Give rows as X, or box="),
    ],
)
def test_pictures__refuse_what_they_cannot_show(
    draw, arguments, options, message, ax, model
):
    if draw == "level_set":
        arguments = [model, *arguments]

    with pytest.raises(ValueError, match=message):
        getattr(lpe_dask, f"plot_{draw}")(*arguments, ax=ax, **options)


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


# Scores


def test_plot_scores__shows_the_density_of_each_kind(ax):
    lpe_dask.plot_scores(P_VALUES, IS_ANOMALY, bins=5, ax=ax)

    nominal, anomalies = ax.patches
    assert legend(ax) == [
        *["nominal (2 rows)", "anomalies (3 rows)", "uniform", "left out: NaN (1 row)"]
    ]
    # Half of the nominal rows are in each of two bars that are a fifth wide.
    assert sorted(set(nominal.get_xy()[:, 1].round(9))) == [0, 2.5]
    assert max(anomalies.get_xy()[:, 1]) == pytest.approx(2 / 3 * 5)


def test_plot_scores__needs_no_color(ax):
    lpe_dask.plot_scores(P_VALUES, IS_ANOMALY, ax=ax)

    nominal, anomalies = ax.patches
    assert (nominal.get_hatch(), anomalies.get_hatch()) == ("", "///")
    assert nominal.get_linestyle() != anomalies.get_linestyle()


@pytest.mark.parametrize(
    ("p_values", "labels", "names"),
    [
        (P_VALUES[:3], None, ["rows (3 rows)"]),
        ([0.5, 0.6], [0, 0], ["nominal (2 rows)"]),
        # A row without a p-value needs no label.
        ([0.5, np.nan], pd.array([0, None], "boolean"), ["nominal (1 row)"]),
    ],
)
def test_plot_scores__names_the_rows_that_there_are(p_values, labels, names, ax):
    lpe_dask.plot_scores(p_values, labels, ax=ax)

    assert legend(ax)[: len(names) + 1] == [*names, "uniform"]


def test_plot_scores__marks_alpha(ax):
    lpe_dask.plot_scores(P_VALUES, alpha=0.05, ax=ax)

    assert list(lines(ax)["alpha = 0.05"].get_xdata()) == [0.05, 0.05]
    assert list(lines(ax)["uniform"].get_ydata()) == [1, 1]


# Level sets


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


# ROC curves


def test_plot_roc__draws_the_rates_of_every_threshold(ax):
    lpe_dask.plot_roc(P_VALUES, IS_ANOMALY, ax=ax)

    (curve,) = lines(ax).values()
    assert curve.get_xydata().tolist() == [
        *[[0, 0], [0, pytest.approx(1 / 3)], [0, pytest.approx(2 / 3)]],
        *[[0.5, pytest.approx(2 / 3)], [1, pytest.approx(2 / 3)], [1, 1]],
    ]
    assert legend(ax) == ["LPE: AUC 0.667, 1 NaN left out"]


@pytest.mark.parametrize(("graph", "sign"), [("knn", 1), ("radius", -1)])
def test_plot_roc__ranks_by_the_statistic_where_p_ties(graph, sign, ax):
    p_values, labels = np.array([0.0, 0.0, np.nan, 0.7]), np.array([1, 0, 1, 0])
    statistic = sign * np.array([9.0, 8.0, np.nan, 2.0])

    lpe_dask.plot_roc(p_values, labels, ax=ax)
    lpe_dask.plot_roc(p_values, labels, statistic=statistic, graph=graph, ax=ax)

    areas = [float(text.split()[2].rstrip(",")) for text in legend(ax)]
    assert areas == [0.75, 1.0]


def test_plot_roc__tells_curves_apart_without_color(ax):
    for number in range(len(CURVE_STYLES) + 1):
        lpe_dask.plot_roc(P_VALUES, IS_ANOMALY, label=f"K = {number}", ax=ax)

    drawn = list(lines(ax).values())
    looks = [(line.get_marker(), line._dash_pattern[1]) for line in drawn]
    assert len({marker for marker, _ in looks[:-1]}) == len(CURVE_STYLES)
    assert len({str(dashes) for _, dashes in looks[:-1]}) == len(CURVE_STYLES)
    assert looks[-1] == looks[0]
    assert len(ax.get_lines()) == len(CURVE_STYLES) + 2  # the diagonal once
    assert all(to_rgb(line.get_color()) != (1, 1, 1) for line in drawn)


def test_plot_roc__agrees_with_a_model(model, nominal, ax):
    rows = np.concatenate([nominal.to_numpy() + 0.1, nominal.to_numpy() + 4])
    labels = np.arange(120) >= 60
    p_values, statistic = model.score_samples(rows), model.statistic(rows)

    lpe_dask.plot_roc(p_values, labels, statistic=statistic, ax=ax)

    (curve,) = lines(ax).values()
    expected = [[0.0, 0.0]] + [
        [(statistic[~labels] >= least).mean(), (statistic[labels] >= least).mean()]
        for least in np.unique(statistic)[::-1]
    ]
    np.testing.assert_array_equal(curve.get_xydata(), expected)


# Calibration


def test_plot_calibration__shows_the_share_up_to_each_level(ax):
    p_values = np.array([0.0, 0.2, 0.2, 0.6, np.nan])

    lpe_dask.plot_calibration(p_values, ax=ax)

    observed = lines(ax)["observed (4 rows)"]
    assert observed.get_drawstyle() == "steps-post"
    assert observed.get_xydata().tolist() == [
        *[[0.01, 0.25], [0.2, 0.75], [0.6, 1], [1, 1]]
    ]
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert "left out: NaN (1 row)" in legend(ax)


def test_plot_calibration__band_is_the_one_of_the_inequality(ax):
    lpe_dask.plot_calibration(np.linspace(0, 1, 200), ax=ax)

    (band,) = ax.collections
    corners = band.get_paths()[0].vertices
    half = np.sqrt(np.log(2 / 0.05) / 400)
    at_one = corners[corners[:, 0] == 1.0, 1]
    middle = corners[np.abs(corners[:, 0] - 0.5).argmin()]
    assert at_one.min() == pytest.approx(1 - half)
    assert abs(middle[1] - middle[0]) == pytest.approx(half)


def test_plot_calibration__reaches_down_to_one_row(ax):
    lpe_dask.plot_calibration(np.linspace(0, 1, 5000), ax=ax)

    assert ax.get_xlim() == (1e-4, 1)


def test_plot_calibration__of_real_p_values_stays_in_the_band(model, ax):
    """Left-out p-values of nominal rows are uniform, up to ties."""
    lpe_dask.plot_calibration(model.p_values_, ax=ax)

    alphas, shares = lines(ax)["observed (60 rows)"].get_xydata().T
    assert (np.abs(shares - alphas) <= np.sqrt(np.log(2 / 0.05) / 120)).all()
