"""Decisions at a false discovery rate, from files to files."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import false_discovery_control

from choosing import mostly_full
from interrupting import N_PARTS
from lpe_dask.batch.api import score_files


@pytest.mark.parametrize("q", mostly_full([0.01, 0.1, 0.5], [0.1]))
def test_score_files__flags_at_a_false_discovery_rate(tables, tmp_path, q):
    summary = score_files(**tables, output=tmp_path / "out", n_neighbors=5, fdr=q)

    scored = pd.read_parquet(tmp_path / "out")
    known = scored[scored["p_value"].notna()]
    q_values = false_discovery_control(known["p_value"])
    np.testing.assert_array_equal(known["q_value"], q_values)
    np.testing.assert_array_equal(known["is_anomaly"].astype(bool), q_values <= q)
    unknown = scored.drop(known.index)
    assert unknown[["q_value", "is_anomaly"]].isna().all(axis=None)
    assert scored["is_anomaly"].dtype == "boolean"
    n_flagged = (q_values <= q).sum()
    assert (summary["fdr"], summary["flagged"]) == (q, n_flagged)
    cut_off = known["p_value"][q_values <= q].max() if n_flagged else None
    assert summary["fdr_cut_off"] == cut_off
    names = ["_metr", "_reas", "_repo", "_summ", *["part-"] * N_PARTS]
    assert sorted(path.name[:5] for path in (tmp_path / "out").iterdir()) == names


def test_score_files__q_value_stands_last_and_hides_no_column(tables, tmp_path):
    rows = pd.read_parquet(tables["data"]).assign(q_value="of the input")
    rows.to_parquet(tmp_path / "rows.parquet")
    given = {**tables, "data": tmp_path / "rows.parquet", "n_neighbors": 5}
    results = ["p_value", "statistic", "is_anomaly", "p_value_status"]

    with pytest.raises(ValueError, match=r"has \['q_value'\] already.*keep="):
        score_files(**given, output=tmp_path / "refused", fdr=0.1)
    score_files(**given, output=tmp_path / "decided", fdr=0.1, keep=["y"])
    score_files(**given, output=tmp_path / "carried", keep=["q_value"])

    decided, carried = (pd.read_parquet(tmp_path / n) for n in ("decided", "carried"))
    assert decided.columns.tolist() == ["y", *results, "q_value"]
    assert decided["q_value"].dtype == np.float64
    assert carried.columns.tolist() == ["q_value", *results]
    assert set(carried["q_value"]) == {"of the input"}


@pytest.mark.parametrize(
    ("nominal", "calibration", "said"),
    [
        ("rows", "loo", "no row can be flagged with fdr=0.2: p-values of rows scored"),
        ("few", "loo", "fdr=0.2 does not hold: about 4.81 of the 500 rows have p = 0"),
        ("few", "conformal", "fdr=0.2 flags nothing: with 50 calibration rows the small"),
    ],
)
def test_score_files__warns_once_of_a_rate_that_does_not_hold(
    tmp_path, caplog, nominal, calibration, said
):
    rng = np.random.default_rng(0)
    for name, n_rows in (("few", 100), ("rows", 500)):
        frame = pd.DataFrame(rng.standard_normal((n_rows, 2)), columns=["x", "y"])
        frame.iloc[:3] += 20.0 * (name == "rows")
        frame.to_parquet(tmp_path / f"{name}.parquet")
    given = {"calibration": calibration, "random_state": 0}
    if nominal != "rows":
        given["nominal"] = tmp_path / f"{nominal}.parquet"

    score_files(tmp_path / "rows.parquet", tmp_path / "out", fdr=0.2, **given)
    score_files(tmp_path / "rows.parquet", tmp_path / "by-alpha", **given)

    (warning,) = [r.getMessage() for r in caplog.records if "fdr" in r.getMessage()]
    assert said in warning
