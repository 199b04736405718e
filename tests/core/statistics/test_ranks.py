"""P-values of rows that are scored against each other are ranks, whatever the rows are."""

import numpy as np
import pytest

from lpe_dask import false_discovery_control, score


@pytest.mark.parametrize("aggregation", ["mean", "kth"])
def test_score__of_a_table_flags_the_share_alpha(aggregation):
    """Or less, where statistics tie, as of two rows of which each is the other's K-th."""
    rows = np.random.default_rng(0).standard_normal((200, 2)) ** 5

    p_values = np.sort(score(rows, n_neighbors=3, aggregation=aggregation))

    ranks = np.arange(1, 201) / 200
    assert (p_values >= ranks).all()
    assert (p_values == ranks).mean() == (1 if aggregation == "mean" else 0.9)


def test_score__of_few_rows_and_a_learned_scale_needs_loo_for_that():
    """By "conformal", which "auto" then is, rows are measured among half of the table."""
    rng, flagged, of_loo = np.random.default_rng(0), [], []
    for seed in range(20):
        rows = rng.standard_normal((100, 2))
        given = {"scale": "standard", "aggregation": "mean", "random_state": seed}
        p_values = score(rows, **given)
        flagged.append((p_values <= 0.05).sum())
        of_loo.append((score(rows, calibration="loo", **given) <= 0.05).sum())

    assert of_loo == [5] * 20
    assert min(flagged) < 4
    assert max(flagged) > 6
    assert false_discovery_control(p_values, 0.99).any()
