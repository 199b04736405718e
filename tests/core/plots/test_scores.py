"""The density of p-values, and the band of uniform ones."""

import numpy as np
import pandas as pd
import pytest

import lpe_dask
from drawing import legend, lines
from lpe_dask import LPE
from lpe_dask.pvalues import bar_densities, uniform_band

P_VALUES = np.array([0.0, 0.02, 0.4, np.nan, 0.8, 1.0])
IS_ANOMALY = np.array([True, True, False, False, False, True])


def test_plot_scores__shows_the_density_of_each_kind(ax):
    lpe_dask.plot_scores(P_VALUES, IS_ANOMALY, bins=5, ax=ax)

    nominal, anomalies = ax.patches
    assert legend(ax) == [
        *["nominal (2 rows)", "anomalies (3 rows)", "uniform", "95% band if uniform"],
        "left out: NaN (1 row)",
    ]
    # Half of the nominal rows are in each of two bars that are a fifth wide.
    assert sorted(set(nominal.get_xy()[:, 1].round(9))) == [0, 2.5]
    assert max(anomalies.get_xy()[:, 1]) == pytest.approx(2 / 3 * 5)


def test_plot_scores__needs_no_color(ax):
    lpe_dask.plot_scores(P_VALUES, IS_ANOMALY, ax=ax)

    nominal, anomalies = ax.patches
    assert (nominal.get_hatch(), anomalies.get_hatch()) == (None, "///")
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


def band(ax):
    """The lowest and the highest density of the band."""
    (band,) = ax.collections
    heights = band.get_paths()[0].vertices[:, 1]
    return heights.min(), heights.max()


def test_plot_scores__band_is_for_the_nominal_rows(ax):
    p_values = np.linspace(0, 1, 300)
    lpe_dask.plot_scores(p_values, p_values < 0.5, bins=10, ax=ax)

    low, high = uniform_band(150, 10)
    assert band(ax) == (low[0], high[0])


def test_plot_scores__band_is_wider_by_the_scatter_of_few_calibration_rows(ax):
    lpe_dask.plot_scores(np.linspace(0, 1, 300), bins=10, n_calibration=99, ax=ax)

    low, high = uniform_band(300, 10, 99)
    assert band(ax) == (low[0], high[0])
    assert high[0] > uniform_band(300, 10)[1][0]


@pytest.mark.parametrize(("calibration", "share"), [("conformal", 0.95), ("loo", 0.75)])
def test_band__holds_for_conformal_models_and_not_for_loo(calibration, share):
    draws, n_sets, is_inside = np.random.default_rng(0), 60, 0
    model = LPE(1, calibration=calibration, alpha=0.2, random_state=0)
    for _ in range(n_sets):
        model.fit(draws.standard_normal((200, 2)))
        p_values = model.score_samples(draws.standard_normal((2000, 2)))
        low, high = uniform_band(2000, 10, len(model.calibration_))
        bars = bar_densities(p_values, 10)
        is_inside += ((bars >= low - 1e-9) & (bars <= high + 1e-9)).all()

    error = np.sqrt(share * (1 - share) / n_sets)
    assert is_inside / n_sets == pytest.approx(share, abs=3 * error)


def test_plot_scores__legend_is_above_the_bars(ax):
    lpe_dask.plot_scores(np.linspace(0, 1, 300), bins=10, alpha=0.05, ax=ax)

    ax.figure.draw_without_rendering()
    to_pixels = ax.transData.transform
    highest = max([band(ax)[1], *ax.patches[0].get_xy()[:, 1]])
    assert to_pixels((0, highest))[1] < ax.get_legend().get_window_extent().y0


def test_plot_scores__draws_no_band_where_all_rows_are_anomalies(ax):
    lpe_dask.plot_scores([0.5, 0.6], [1, 1], ax=ax)

    assert legend(ax) == ["anomalies (2 rows)", "uniform"]
