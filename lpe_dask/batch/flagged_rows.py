"""Draw flagged rows of an output: all of them, or as many as are wanted.

counts of parts --seeded ranks--> one task a part with some of them --> part, place

The k-th flagged row is the same one however the table is cut.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lpe_dask.batch.output import RESULT_COLUMNS
from lpe_dask.batch.parts import PartFolder
from lpe_dask.storage import retried_until_visible
from lpe_dask.tasks import compute, new_tasks


def draw_flagged(folder: PartFolder, counts: Sequence[int], most: int) -> pd.DataFrame:
    """Return flagged rows in their order, with the columns of `top_anomalies`; computes.

    Parameters
    ----------
    folder : PartFolder
    counts : sequence of int
        Flagged rows of each part; there are some.
    most : int
        How many rows; of more a random sample is drawn, the same each time.
    """
    ends = np.cumsum(counts)
    n_drawn = min(ends[-1], most)
    ranks = np.sort(np.random.default_rng(0).choice(ends[-1], n_drawn, replace=False))
    parts = np.searchsorted(ends, ranks, side="right")
    ranks -= (ends - counts)[parts]
    tasks = (
        (_read_flagged, folder, i, ranks[parts == i]) for i in np.unique(parts).tolist()
    )
    return pd.concat(compute(*new_tasks("flagged", tasks)), ignore_index=True)


# The function below runs inside tasks.


@retried_until_visible  # another machine may have written it
def _read_flagged(
    folder: PartFolder, number: int, ranks: NDArray[np.int64]
) -> pd.DataFrame:
    """Return rows of a part by their ranks among its flagged ones."""
    with folder.open(number) as file:
        rows = pq.ParquetFile(file).read(columns=[*RESULT_COLUMNS])
    is_flagged = rows.column("is_anomaly").fill_null(False).to_numpy()
    places = np.flatnonzero(is_flagged)[ranks]
    values = {name: rows.column(name).to_numpy()[places] for name in RESULT_COLUMNS[:2]}
    return pd.DataFrame({"part": number, "place": places, **values})
