"""Tasks have the names by which the page about progress explains them."""

import re
from pathlib import Path

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.callbacks import Callback
from dask.utils import key_split

import lpe_dask

PAGE = Path(__file__).parents[3] / "docs" / "guide" / "progress.md"


def test_page__explains_prefixes_that_tasks_have(tmp_path):
    rng, seen = np.random.default_rng(0), set()
    nominal = pd.DataFrame(rng.standard_normal((600, 2)), columns=["a", "b"])
    (nominal + 1e-3).to_parquet(tmp_path / "rows.parquet")
    ddf = dd.from_pandas(nominal, npartitions=3)

    with (
        dask.config.set({"scheduler": "sync", "lpe-dask.block-rows": 200}),
        Callback(pretask=lambda key, *_: seen.add(key_split(key))),
    ):
        model = lpe_dask.LPE(scale="standard", algorithm="pruned").fit(ddf)
        dask.compute(model.p_values_)
        model.save(tmp_path / "model")
        lpe_dask.load(tmp_path / "model").score_samples(ddf + 1e-3).compute()
        lpe_dask.LPE(metric="geodesic", calibration="loo").fit(ddf)
        given = {"model": tmp_path / "model", "fdr": 0.1}
        lpe_dask.score_files(tmp_path / "rows.parquet", tmp_path / "out", **given)

    explained = re.findall(r"`(lpe-\w+|join_frame|look_up)`", PAGE.read_text())
    assert len(explained) > 8
    assert set(explained) <= seen
