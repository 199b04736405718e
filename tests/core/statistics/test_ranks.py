"""P-values of rows that are scored against each other are ranks, whatever the rows are."""

import numpy as np
import pytest

from lpe_dask import score


@pytest.mark.parametrize("aggregation", ["mean", "kth"])
def test_score__of_a_table_flags_the_share_alpha(aggregation):
    """Or less, where statistics tie, as of two rows of which each is the other's K-th."""
    rows = np.random.default_rng(0).standard_normal((200, 2)) ** 5

    p_values = np.sort(score(rows, n_neighbors=3, aggregation=aggregation))

    ranks = np.arange(1, 201) / 200
    assert (p_values >= ranks).all()
    assert (p_values == ranks).mean() == (1 if aggregation == "mean" else 0.9)
