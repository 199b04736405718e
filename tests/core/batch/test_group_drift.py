"""Runs of a job whose model divides rows into groups are tested group by group."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import lpe_dask
from lpe_dask.batch import parts
from lpe_dask.batch.watched_counts import WatchedCounts

JOB = """
[nominal]
data = "nominal.parquet"
columns = ["x", "y"]
[model]
path = "model"
by = ["site"]
calibration = "conformal"
random_state = 0
[score]
data = "in/{date}.parquet"
output = "out/{date}"
"""


def rows(seed, n_rows=1500, changed=False):
    """Rows of sites whose mix varies, and one of which may change."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.standard_normal((n_rows, 2)), columns=["x", "y"])
    mix = rng.dirichlet([2.0, 2, 2, 1])
    frame["site"] = rng.choice(["a", "b", "c", "d"], n_rows, p=mix)
    frame.loc[frame.site == "b", ["x", "y"]] *= 5
    if changed:
        frame.loc[frame.site == "c", ["x", "y"]] *= 0.4
    frame.loc[7, "site"], frame.loc[9, "site"], frame.loc[11, "x"] = None, "new", np.nan
    return frame


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    Path("job.toml").write_text(JOB)
    rows(0, 4000).dropna().to_parquet("nominal.parquet")


def run(number, job="job.toml", **given):
    date = f"2026-11-{number:02}"
    table = rows(number, **given)
    table.to_parquet(f"in/{date}.parquet", row_group_size=400)
    return lpe_dask.run(job, date=date)


def site_counts(output):
    """Rows with a p-value of each site in the parts of an output, and those up to alpha."""
    scored = pd.read_parquet(output)
    known = scored[scored.p_value.notna()]
    counts = known.assign(flagged=known.p_value <= 0.05).groupby("site")["flagged"]
    return {f"site={site}": (len(of), int(of.sum())) for site, of in counts}


@pytest.mark.parametrize("decision", ["", "fdr = 0.3\n"])
@pytest.mark.parametrize("own", ['["scale", "neighbors", "calibration"]', '["neighbors"]'])
def test_run__tests_each_group(own, decision):
    Path("job.toml").write_text(
        JOB.replace("random_state", f"own = {own}\nrandom_state") + decision
    )
    told = [run(number, changed=number > 3)["drift"] for number in range(1, 6)]

    assert [of["verdict"] for of in told[:3]] == ["no drift"] * 3
    assert "drift" in [of["verdict"] for of in told[3:]]
    assert told[-1]["groups"]["names"] == "site=c"
    assert [of["number"] for of in told] == [1, 2, 3, 4, 5]
    for number, of in enumerate(told, 1):
        found = {
            group["group"]: (group["rows"], group["flagged"])
            for group in of["groups"]["most_evidence"]
        }
        assert found == site_counts(f"out/2026-11-{number:02}")


@pytest.mark.parametrize("small_groups", ["nan", "pool"])
def test_run__says_how_many_rows_are_not_tested(small_groups):
    """Those that are compared with all nominal rows, as no group of theirs is tested."""
    nominal = pd.read_parquet("nominal.parquet")
    nominal.tail(3).assign(site="few").to_parquet("few.parquet")
    Path("job.toml").write_text(
        JOB.replace('"nominal.parquet"', '["nominal.parquet", "few.parquet"]').replace(
            "random_state", f'small_groups = "{small_groups}"\nrandom_state'
        )
    )
    table = rows(1)
    table.loc[20:25, "site"] = "few"
    table.to_parquet("in/2026-11-01.parquet")

    drift = lpe_dask.run("job.toml", date="2026-11-01")["drift"]

    n_pooled = table["site"].isin(["few", "new"]).sum() if small_groups == "pool" else 0
    assert drift["groups"]["rows_not_tested"] == n_pooled
    said = f". {n_pooled} rows of small or unknown groups are not tested." in drift["text"]
    assert said == (small_groups == "pool")


def test_run__that_resumes_counts_the_rows_of_all_parts(monkeypatch):
    Path("job.toml").write_text(JOB.replace("{date}.parquet", "{date}-*.parquet"))
    for part in range(4):
        rows(part, 500).to_parquet(f"in/2026-11-01-{part}.parquet")
    whole = lpe_dask.run("job.toml", date="2026-11-01")["drift"]
    write, n_left = parts._write_part, [2]

    def write_two(*given):
        n_left[0] -= 1
        if n_left[0] < 0:
            raise ValueError("the power is out")
        return write(*given)

    with monkeypatch.context() as patch:
        patch.setattr(parts, "_write_part", write_two)
        with pytest.raises(RuntimeError, match="the power is out"):
            lpe_dask.run("job.toml", date="2026-11-01", overwrite=True)

    resumed = lpe_dask.run("job.toml", date="2026-11-01")["drift"]

    assert len(list(Path("out/2026-11-01").glob("part-*"))) == 4
    assert resumed["groups"] == whole["groups"]
    assert resumed["state"]["groups"] == whole["state"]["groups"]


def test_run__names_no_values_of_private_groups():
    Path("job.toml").write_text(JOB + 'private = ["site"]\n')

    said = json.dumps(run(1)["drift"])

    assert '"group": "group 0"' in said
    assert "site" not in said


def test_run__among_nominal_rows_watches_no_groups():
    Path("alone.toml").write_text(
        '[model]\nby = ["site"]\nalpha = 0.1\n'
        '[score]\ndata = "nominal.parquet"\ncolumns = ["x", "y"]\noutput = "alone"\n'
    )

    drift = lpe_dask.run("alone.toml")["drift"]

    assert drift["verdict"] is None
    metadata = pq.read_metadata("alone/part-00000.parquet").metadata[b"lpe_dask"]
    assert json.loads(metadata)["watched"] is None


def test_watched_counts__add_up_and_are_read_again():
    rng = np.random.default_rng(0)
    some = [rng.integers(0, 10**6, (3, 18)) for _ in range(4)]

    merged = WatchedCounts.merge([WatchedCounts.of(of) for of in some])

    np.testing.assert_array_equal(merged.array(), np.sum(some, axis=0))
    assert WatchedCounts.from_json(json.loads(json.dumps(merged.as_json()))) == merged
    for wrong in (
        {"n_groups": 4},
        {"packed": "?"},
        {"packed": WatchedCounts.of(-some[0]).packed},
    ):
        with pytest.raises(ValueError, match=r"packed array|below 0"):
            WatchedCounts.from_json(merged.as_json() | wrong)
