"""Frames of Dask as tasks: their graphs agree with those of the frames themselves."""

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from lpe_dask.tasks import frame_tasks, map_partitions, new_array, to_task
from lpe_dask.tasks.dask_internals import dependencies_of, task_specs


def added(part, values):
    return part + values.sum()


@pytest.mark.parametrize("n_partitions", [1, 3])
def test_frame_tasks__differ_from_no_task_of_the_frame(n_partitions):
    """An array fuses its tasks: one of the same key and other content stays for ever."""
    read = dd.from_pandas(pd.DataFrame({"a": range(6)}), npartitions=n_partitions)
    frame = map_partitions(read, added, to_task(np.arange(3), "values"), meta=read._meta)

    keys, graph = frame_tasks(frame)
    chunks = ((np.nan,) * n_partitions, (1,))
    rows = new_array(
        "rows", ((np.asarray, k) for k in keys), [graph], chunks, np.empty((0, 0))
    )

    (optimized,) = dask.optimize(rows)
    of_array = task_specs(optimized.dask)
    of_frame = task_specs(frame.optimize(fuse=False).__dask_graph__())
    both = of_array.keys() & of_frame.keys()
    assert both
    for key in both:
        assert dependencies_of(of_array[key]) == dependencies_of(of_frame[key]), key
    np.testing.assert_array_equal(rows.compute().ravel(), np.arange(6) + 3)
