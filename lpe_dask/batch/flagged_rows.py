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

from lpe_dask.batch.output import RESULT_COLUMNS, ROW_NUMBER
from lpe_dask.batch.part_stats import PartStats
from lpe_dask.batch.parts import PartFolder
from lpe_dask.storage import retried_until_visible
from lpe_dask.tasks import compute, new_tasks


def draw_flagged(
    folder: PartFolder, stats: Sequence[PartStats], most: int, *, only_flagged: bool
) -> pd.DataFrame:
    """Return flagged rows in their order, with the columns of `top_anomalies`; computes.

    Parameters
    ----------
    folder : PartFolder
    stats : sequence of PartStats
        Of each part; some row is flagged.
    most : int
        How many rows; of more a random sample is drawn, the same each time.
    only_flagged : bool
        Whether parts have flagged rows only, and those without a p-value.
    """
    counts, sizes = ([of.counts[name] for of in stats] for name in ("flagged", "rows"))
    ends, starts = np.cumsum(counts), np.cumsum([0, *sizes])
    n_drawn = min(ends[-1], most)
    ranks = np.sort(np.random.default_rng(0).choice(ends[-1], n_drawn, replace=False))
    parts = np.searchsorted(ends, ranks, side="right")
    ranks -= (ends - counts)[parts]
    tasks = (
        (_read_flagged, folder, i, ranks[parts == i], starts[i] if only_flagged else None)
        for i in np.unique(parts).tolist()
    )
    return pd.concat(compute(*new_tasks("flagged", tasks)), ignore_index=True)


# The function below runs inside tasks.


@retried_until_visible  # another machine may have written it
def _read_flagged(
    folder: PartFolder, number: int, ranks: NDArray[np.int64], first: int | None
) -> pd.DataFrame:
    """Return rows of a part by their ranks among its flagged ones.

    ``first`` is the number of the first row of its partition, where not all are there.
    """
    numbered = [] if first is None else [ROW_NUMBER]
    with folder.open(number) as file:
        table = pq.ParquetFile(file).read(columns=[*RESULT_COLUMNS, *numbered])
    is_flagged = table.column("is_anomaly").fill_null(False).to_numpy()
    rows = places = np.flatnonzero(is_flagged)[ranks]
    if first is not None:
        places = table.column(ROW_NUMBER).to_numpy()[rows] - first
    values = {name: table.column(name).to_numpy()[rows] for name in RESULT_COLUMNS[:2]}
    more = {"is_flagged": True, "row": rows}
    return pd.DataFrame({"part": number, "place": places, **values, **more})
