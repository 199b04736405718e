"""What learning adds to false alarms: against learning anew without each row."""

import numpy as np
import pytest

from lpe_dask import LPE
from lpe_dask.left_out import Asked, added_false_alarms
from lpe_dask.validity import what_is_learnt


def false_alarms_of_learning(nominal, arguments, alpha):
    """Each row against the others, scaled by the others, and by all: how many are flagged.

    Every row is fitted anew without itself, as a user could.
    """
    n, k = len(nominal), arguments["n_neighbors"]
    given = LPE(calibration="loo", **arguments).fit(nominal)
    alone = 0
    for i in range(n):
        model = LPE(calibration="loo", **arguments).fit(np.delete(nominal, i, axis=0))
        alone += model.score_samples(nominal[i : i + 1])[0] <= alpha
    assert k == given.n_neighbors_
    return alone / n, (given.p_values_ <= alpha).mean()


@pytest.mark.parametrize(
    "arguments",
    [
        {"scale": "minmax"},
        {"scale": "standard"},
        {"metric": "seuclidean"},
        {"metric": "mahalanobis"},
        {"scale": "minmax", "metric": "mahalanobis", "metric_params": {"VI": np.eye(8)}},
    ],
)
@pytest.mark.parametrize("tail", [3, 30])
def test_added_false_alarms__are_those_of_fits_without_each_row(arguments, tail):
    nominal = np.random.default_rng(1).standard_t(tail, (60, 8))
    arguments = {"n_neighbors": 4, "metric": "euclidean", "scale": None} | arguments
    alone, among = false_alarms_of_learning(nominal, arguments, 0.1)
    model = LPE(calibration="loo", **arguments).fit(nominal)
    learnt = what_is_learnt(
        arguments["scale"], arguments["metric"], arguments.get("metric_params")
    )

    ratio = added_false_alarms(
        nominal, model._reference.space.preparation, learnt, Asked(4, None), 60, 0.1
    )

    # The estimate is an average over near levels, and the other a count of single rows.
    assert abs(ratio - alone / among) <= 0.25 * ratio
