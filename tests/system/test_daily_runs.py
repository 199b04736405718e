"""Five daily runs on real connections, one of them broken, on a cluster of processes."""

import datetime

import numpy as np
import pandas as pd
import pytest
from distributed import get_task_stream

import lpe_dask
from lpe_dask.pages import report_page

pytestmark = pytest.mark.cluster

N_NORMAL = 8000


@pytest.fixture(autouse=True)
def real_page(monkeypatch):
    monkeypatch.setattr("lpe_dask.batch.page.report_page", report_page)


@pytest.fixture(scope="module")
def connections(data_folder):
    """Normal connections of the test file, in two halves, and attacks."""
    table = pd.read_parquet(data_folder / "kdd99.parquet")
    test = table[table["part"] == "test_corrected"].drop(columns="part")
    normal = test[test["label"] == "normal"]
    order = np.random.default_rng(19).permutation(len(normal))
    half = len(normal) // 2
    attacks = test[test["label"] != "normal"]
    return normal.iloc[np.sort(order[:half])], normal.iloc[order[half:]], attacks


def drawn(connections, day, share, factor):
    """Rows of a day: normal ones, a share of attacks, bytes times a factor."""
    _, normal, attacks = connections
    rng = np.random.default_rng(100 + day)
    rows = pd.concat(
        [
            normal.iloc[rng.choice(len(normal), N_NORMAL, replace=False)],
            attacks.iloc[rng.choice(len(attacks), round(share * N_NORMAL), replace=False)],
        ]
    )
    for name in ("src_bytes", "dst_bytes"):
        rows[name] = rows[name].astype(np.int64) * factor
    return rows.sample(frac=1, random_state=day).reset_index(drop=True)


def test_drift__finds_the_one_run_that_is_not_like_the_others(
    connections, tmp_path, client
):
    """1 % of attacks, 4 % on the last day; bytes in other units on the third."""
    fitted = connections[0].drop(columns="label")
    model = lpe_dask.LPE(
        scale="minmax+quantile", categorical="auto", alpha=0.01, random_state=0
    )
    model.fit(fitted).save(tmp_path / "model")
    job = tmp_path / "job.toml"
    job.write_text(
        f'[model]\npath = "{tmp_path}/model"\n[score]\n'
        f'data = "{tmp_path}/{{date}}.parquet"\noutput = "{tmp_path}/out/{{date}}"\n'
    )
    verdicts, flagged = [], []
    for number in range(1, 6):
        share, factor = (0.04 if number == 5 else 0.01), (1000 if number == 3 else 1)
        day = datetime.date(2026, 11, number)
        drawn(connections, number, share, factor).to_parquet(tmp_path / f"{day}.parquet")

        with get_task_stream(client) as stream:
            summary = lpe_dask.run(job, date=day)

        # Reasons find the nominal rows where scoring has left them.
        loads = [task["key"] for task in stream.data if "lpe-load" in str(task["key"])]
        assert len(loads) == len(set(loads)) > 0
        verdicts.append(summary["drift"]["verdict"])
        flagged.append(summary["flagged_share"])
        assert len(summary["reasons"]["rows"]) == 50
        page = (tmp_path / "out" / f"{day}" / "_report.html").read_text()
        assert 50_000 < len(page.encode()) < 300_000
        assert verdicts[-1].capitalize() in page
    print(verdicts)
    assert verdicts[2] in ("drift", "invalid input")
    assert [*verdicts[:2], *verdicts[3:]] == ["calibrating"] + ["no drift"] * 3
    assert flagged[4] > 0.03
    # A third of attacks is more than anomalies explain.
    day = datetime.date(2026, 11, 6)
    drawn(connections, 6, 0.3, 1).to_parquet(tmp_path / f"{day}.parquet")
    summary = lpe_dask.run(job, date=day)
    assert summary["drift"]["verdict"] == "drift"
    assert "of the rows have p <= 0.01" in summary["drift"]["reason"]
    assert summary["drift"]["number"] >= 5
    page = (tmp_path / "out" / f"{day}" / "_report.html").read_text()
    assert "of the rows have p &lt;= 0.01: false alarms and anomalies explain up to" in page
    assert "more rows flagged than in the first runs" in page
