"""ROC arithmetic against the definitions, in plain loops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpe_dask.pvalues.roc import Curve, area, detection_at, ranked_curve

labeled_ranks = st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=2).filter(
    lambda rows: {label for _, label in rows} == {False, True}
)


def as_curve(rows):
    ranks, labels = (np.array(column) for column in zip(*rows, strict=True))
    return ranked_curve(ranks, ~labels, labels)


@given(labeled_ranks)
def test_ranked_curve__flags_one_rank_after_the_other(rows):
    curve = as_curve(rows)

    nominal = [rank for rank, is_anomaly in rows if not is_anomaly]
    anomalies = [rank for rank, is_anomaly in rows if is_anomaly]
    expected = [(0.0, 0.0)]
    for threshold in sorted({rank for rank, _ in rows}):
        false_alarm = sum(rank <= threshold for rank in nominal) / len(nominal)
        expected.append(
            (false_alarm, sum(r <= threshold for r in anomalies) / len(anomalies))
        )
    assert list(zip(*curve, strict=True)) == expected


@given(labeled_ranks)
def test_area__is_how_often_an_anomaly_ranks_first(rows):
    nominal = [rank for rank, is_anomaly in rows if not is_anomaly]
    anomalies = [rank for rank, is_anomaly in rows if is_anomaly]
    wins = sum((a < b) + (a == b) / 2 for a in anomalies for b in nominal)

    assert area(as_curve(rows)) == pytest.approx(wins / len(nominal) / len(anomalies))


@given(labeled_ranks, st.lists(st.floats(0, 1), min_size=1))
def test_detection_at__is_the_straight_line_between_points(rows, levels):
    curve = as_curve(rows)
    points = list(zip(*curve, strict=True))

    expected = []
    for level in levels:
        at_level = [detection for false_alarm, detection in points if false_alarm == level]
        if at_level:
            expected.append(max(at_level))
            continue
        x0, y0 = max(point for point in points if point[0] < level)
        x1, y1 = min(point for point in points if point[0] > level)
        expected.append(y0 + (level - x0) / (x1 - x0) * (y1 - y0))
    found = detection_at(curve, np.array(levels))
    assert found == pytest.approx(np.array(expected))


def test_detection_at__is_the_upper_end_of_an_upright_piece():
    upright = Curve(np.array([0.0, 0.0, 1.0, 1.0]), np.array([0.0, 0.4, 0.6, 1.0]))

    assert detection_at(upright, np.array([0.0, 0.5, 1.0])).tolist() == [0.4, 0.5, 1.0]
