"""The one-class SVM that the paper compares with: its ROC curve, by two procedures.

Swept: nu is varied at a fixed bandwidth, and each fit gives one point, as in the paper.
Ranked: rows are ranked by the decision function of one fit, as they are by p-values.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.svm import OneClassSVM

from paper.fits import Parts, join_test, rates
from paper.roc import Curve, ranked_curve

#: The kernel is exp(-|x - y|^2 / c) for these c. The paper's "c = 1.5" is one of them; if
#: its kernel was exp(-|x - y|^2 / (2 c^2)), that is 4.5 here, and 2/3 if it was
#: exp(-c |x - y|^2).
WIDTHS = (0.1, 0.25, 0.5, 2 / 3, 1.0, 1.5, 2.0, 3.0, 4.5, 8.0, 16.0)

#: Values of nu of the swept curve.
NUS: Sequence[float] = tuple(np.linspace(0.02, 0.98, 25).tolist())


def swept_curve(parts: Parts, width: float) -> Curve:
    """Return the ROC curve that varying nu gives, at one bandwidth.

    Points are joined in the order of their false-alarm rates. Where a point has more false
    alarms and fewer detections than one before it, the detection rate of the earlier one
    counts, in favor of the SVM.

    Parameters
    ----------
    parts : Parts
    width : float
        c of the kernel exp(-|x - y|^2 / c).
    """
    points = [(0.0, 0.0), (1.0, 1.0), *(svm_rates(parts, width, nu) for nu in NUS)]
    false_alarm, detection = np.array(sorted(points)).T
    return Curve(false_alarm, np.maximum.accumulate(detection))


def svm_rates(parts: Parts, width: float, nu: float) -> tuple[float, float]:
    """Return the shares of nominal rows and of anomalies that one fit flags."""
    training, nominal, anomalies = parts
    test, is_anomaly = join_test(nominal, anomalies)
    svm = OneClassSVM(gamma=1 / width, nu=nu).fit(training)
    return rates(svm.predict(test) == -1, is_anomaly)


def decision_curve(parts: Parts, width: float, nu: float) -> Curve:
    """Return the ROC curve of the decision function of one fit; see `swept_curve`."""
    training, nominal, anomalies = parts
    test, is_anomaly = join_test(nominal, anomalies)
    svm = OneClassSVM(gamma=1 / width, nu=nu).fit(training)
    return ranked_curve(svm.decision_function(test), ~is_anomaly, is_anomaly)
