"""All plots: where they are drawn, what they take, and what is refused."""

import builtins

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import lpe_dask
from drawing import legend, lines
from lpe_dask import LPE

P_VALUES = np.array([0.0, 0.02, 0.4, np.nan, 0.8, 1.0])
IS_ANOMALY = np.array([True, True, False, False, False, True])


def test_pictures__are_drawn_on_the_axes_given_or_on_some_of_their_own(model, nominal):
    from matplotlib import pyplot

    for draw, arguments in (
        (lpe_dask.plot_scores, (P_VALUES, IS_ANOMALY)),
        (lpe_dask.plot_level_set, (model, nominal)),
        (lpe_dask.plot_roc, (P_VALUES, IS_ANOMALY)),
        (lpe_dask.plot_calibration, (P_VALUES,)),
        (lpe_dask.plot_timeline, (P_VALUES,)),
        (lpe_dask.plot_reasons, (model.explain(nominal[:2] + 4),)),
    ):
        given, before = Figure().subplots(), pyplot.get_fignums()

        drawn, own = draw(*arguments, ax=given), draw(*arguments)

        assert drawn is given
        assert len(pyplot.get_fignums()) == len(before) + 1
        pyplot.close(own.figure)
        for ax in (drawn, own):
            assert ax.get_xlabel()
            assert ax.get_ylabel() or draw is lpe_dask.plot_reasons  # names of columns
            assert legend(ax)


@pytest.mark.parametrize(
    ("name", "label", "value"),
    [
        ("cost [$] of {x$", "cost [$] of {x$", "cost [$] of {x$"),
        ("a_long_name_" * 9, "a_long_name_a_l…me_a_long_name_", "a_long_na…ong_name_"),
    ],
)
def test_pictures__show_names_and_values_as_they_are(name, label, value, ax):
    rng = np.random.default_rng(0)
    nominal = pd.DataFrame(rng.random((40, 2)), columns=[name, "$\\bad$"])
    model = LPE(2, alpha=0.1).fit(nominal)
    reasons = model.explain(nominal[:1] + 3).assign(value=name)
    times = pd.Series(np.arange(40), name=name)

    level_set = lpe_dask.plot_level_set(
        model, nominal, resolution=9, ax=Figure().subplots()
    )
    pairs = lpe_dask.plot_pairs(model, nominal, nominal, resolution=9, figure=Figure())
    timeline = lpe_dask.plot_timeline(model.p_values_, times, ax=Figure().subplots())
    lpe_dask.plot_reasons(reasons, ax=ax)

    shown = [
        *[level_set.xaxis.label, level_set.yaxis.label, timeline.xaxis.label],
        *[pairs[1, 0].xaxis.label, pairs[1, 0].yaxis.label, *ax.get_yticklabels()],
    ]
    for part in (level_set, pairs[0, 0], timeline, ax):
        part.figure.draw_without_rendering()  # raises for broken formulas
    texts = [text.get_text().replace(r"\$", "$") for text in shown]
    assert texts[:5] == [label, "$\\bad$", label, label, "$\\bad$"]
    assert set(texts[5:]) == {f"{label} = {value}", f"$\\bad$ = {value}"}


def test_pictures__of_their_own_have_room_for_labels(nominal):
    from matplotlib import pyplot

    names = [f"{end} of a sensor with a long name" for end in "ab"]
    rows = nominal.set_axis(names, axis=1)
    reasons = LPE(3).fit(rows).explain(rows[:2] + 4)

    ax = lpe_dask.plot_reasons(reasons)

    ax.figure.canvas.draw()
    assert min(text.get_window_extent().x0 for text in ax.get_yticklabels()) >= 0
    pyplot.close(ax.figure)


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
REASONS = pd.DataFrame(
    {"column": "b", "value": 1, "share": 0.5, "typical_share": 0.5, "statistic": 2.0},
    [0, 1],
)


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
        ("scores", [ROC], {"bins": 0}, "bins=0 must be a whole number, at least 1"),
        ("scores", [ROC], {"bins": True}, "bins=True must be"),
        ("scores", [ROC], {"n_calibration": 2.5}, "n_calibration=2.5 must be"),
        ("timeline", [ROC], {"alpha": 2}, "alpha=2 must be between"),
        ("timeline", [ROC], {"is_flagged": [1, 2]}, "is_flagged contains 2"),
        ("timeline", [ROC], {"is_flagged": [1]}, r"is_flagged has the shape \(1,\)"),
        ("timeline", [ROC, [1]], {}, r"time has the shape \(1,\), and p_values \(2,\)"),
        ("timeline", [ROC, ["a", "b"]], {}, "type (str|object); .* pandas.to_datetime"),
        ("timeline", [ROC, [True, False]], {}, "time has the type bool"),
        ("timeline", [ROC, pd.to_datetime(["2026-11-20", None])], {}, "missing for 1 rows"),
        ("timeline", [ROC, [np.nan, 1.0]], {}, "missing for 1 rows that have a p-value"),
        ("timeline", [[np.nan]], {}, "none of them is a number"),
        ("reasons", [TWO], {}, "a DataFrame without column, value, share, typical_share"),
        ("reasons", [REASONS.drop(columns="statistic")], {}, "DataFrame without statistic"),
        ("reasons", [None], {}, "a NoneType without column.* that model.explain"),
        ("reasons", [REASONS.set_axis(["x"] * 2)], {}, "several rows with the same label"),
        ("reasons", [REASONS.assign(share=np.nan)], {}, "2 rows, but no share"),
        ("reasons", [REASONS[:0]], {}, "0 rows, but no share"),
        ("reasons", [REASONS], {"top": 0}, "top=0 must be a whole number"),
        ("level_set", [np.eye(3)], {}, "3 features|3 columns"),
        ("level_set", [TWO[["load [kN]"]]], {}, "lack the columns"),
        ("level_set", [None], {}, "Give rows as X, or box="),
        ("level_set", [TWO], {"resolution": 1}, "resolution=1 must be .* at least 2"),
        ("level_set", [TWO], {"resolution": 9.0}, "resolution=9.0 must be a whole number"),
    ],
)
def test_pictures__refuse_what_they_cannot_show(
    draw, arguments, options, message, ax, model
):
    if draw == "level_set":
        arguments = [model, *arguments]

    with pytest.raises(ValueError, match=message):
        getattr(lpe_dask, f"plot_{draw}")(*arguments, ax=ax, **options)
