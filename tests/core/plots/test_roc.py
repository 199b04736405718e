"""ROC curves: their rates, how rows with equal p-values rank, and how curves differ."""

import numpy as np
import pytest
from matplotlib.colors import to_rgb

import lpe_dask
from drawing import legend, lines
from lpe_dask.plots.style import CURVE_STYLES

P_VALUES = np.array([0.0, 0.02, 0.4, np.nan, 0.8, 1.0])
IS_ANOMALY = np.array([True, True, False, False, False, True])


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
