"""A run whose part somebody has exchanged goes on."""

import numpy as np
import pandas as pd
import pytest

import lpe_dask
from hostile import ATTACKS, limited
from lpe_dask.batch.errors import RunError
from lpe_dask.batch.parts import PartFolder

RESUME = """
import sys, dask, lpe_dask
if __name__ == "__main__":
    with dask.config.set(scheduler="sync"):
        print(lpe_dask.score_files(sys.argv[1], sys.argv[2], report=False)["rows"])
"""


def test_run__writes_parts_in_the_place_of_something_else(tmp_path, monkeypatch):
    """Of an interrupted run, whose first part somebody has exchanged."""
    rows = pd.DataFrame(np.random.default_rng(0).integers(0, 9, (40, 2)) * 1.0)
    rows.columns = ["x", "y"]
    (tmp_path / "rows").mkdir()
    for i in range(2):
        rows[20 * i : 20 * i + 20].to_parquet(tmp_path / f"rows/{i}.parquet")
    lpe_dask.score_files(tmp_path / "rows", tmp_path / "out", report=False)
    expected = pd.read_parquet(tmp_path / "out")
    interrupted = tmp_path / "interrupted"
    with monkeypatch.context() as patch:
        patch.setattr(PartFolder, "wait_until_visible", lambda folder: 1 / 0)
        with pytest.raises(RunError, match="start the same run again"):
            lpe_dask.score_files(tmp_path / "rows", interrupted, report=False)
    part = interrupted / "part-00000.parquet"
    part.unlink()
    ATTACKS["pipe"](part)

    assert limited(RESUME, tmp_path / "rows", interrupted).endswith("40\n")

    pd.testing.assert_frame_equal(pd.read_parquet(interrupted), expected)
