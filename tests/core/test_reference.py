"""docs/reference has what the code has: configuration, columns and files, exit codes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import dask
import numpy as np
import pandas as pd
import pytest
import yaml

import lpe_dask
from lpe_dask.batch.api import score_files
from lpe_dask.cli import outcome
from lpe_dask.tables.row_status import RowStatus

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
DEFAULTS = yaml.safe_load((Path(lpe_dask.__path__[0]) / "lpe-dask.yaml").read_text())


def tables(page):
    """Return the tables of a page: rows of cells, without those of the heading."""
    lines = (REFERENCE / page).read_text().splitlines()
    text = "\n".join(line if line.startswith("|") else "" for line in lines)
    for table in re.split(r"\n{2,}", text.strip()):
        rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in table.splitlines()]
        yield [[cell.strip() for cell in row] for row in rows[2:]]


def flat(values, above=""):
    for name, value in values.items():
        if isinstance(value, dict):
            yield from flat(value, f"{above}{name}.")
        else:
            yield f"`{above}{name}`", f"`{'null' if value is None else value}`"


# Configuration


def test_configuration__page_has_each_key_with_its_default():
    (rows,) = tables("configuration.md")

    assert sorted(row[:2] for row in rows) == sorted(map(list, flat(DEFAULTS["lpe-dask"])))
    assert {row[2] for row in rows} == {"the client", "each process"}
    assert all(row[3] for row in rows)


def test_configuration__variables_of_the_page_set_keys():
    text = (REFERENCE / "configuration.md").read_text()
    variables = dict(re.findall(r"^ *(DASK_LPE_\w+)=(\S+)$", text, re.MULTILINE))
    code = "import dask, lpe_dask; print(dask.config.get('lpe-dask'))"

    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | variables,
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert "'spool': '/shared/spool'" in done.stdout
    assert "'attempts': 12" in done.stdout


def test_configuration__file_of_the_page_sets_keys():
    text = (REFERENCE / "configuration.md").read_text()
    (file,) = re.findall(r"^```text\n(lpe-dask:.*?)^```", text, re.MULTILINE | re.DOTALL)
    given = yaml.safe_load(file)["lpe-dask"]

    known = {key.strip("`") for key, _ in flat(DEFAULTS["lpe-dask"])}
    assert {key.strip("`") for key, _ in flat(given)} <= known


# Columns


@pytest.fixture
def scored(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.standard_normal((50, 2)), columns=["x", "y"])
    rows.to_parquet("nominal.parquet")
    rows.loc[3, "x"] = np.nan
    rows.to_parquet("rows.parquet")
    with dask.config.set(scheduler="sync"):
        score_files(
            "rows.parquet", "out", nominal="nominal.parquet", fdr=0.5, rows="flagged",
            keep=[], calibration="conformal", format="csv",
        )  # fmt: skip
    return Path("out")


def test_output__page_has_each_column_and_type_in_order(scored):
    columns, *_ = tables("output.md")

    found = pd.read_parquet(scored).dtypes

    assert [(row[0], row[1]) for row in columns] == [
        (f"`{name}`", str(dtype)) for name, dtype in found.items()
    ]


def test_output__page_has_each_status():
    _, statuses, *_ = tables("output.md")

    assert tuple(row[0].strip("`") for row in statuses) == RowStatus.NAMES


def test_output__page_has_each_file(scored):
    _, _, files, *_ = tables("output.md")
    named = " ".join(row[0] for row in files)

    assert [path.name for path in scored.iterdir() if f"`{path.name}`" not in named] == []


# Exit codes


def test_exit_codes__page_has_each():
    codes, commands = tables("exit_codes.md")
    known = {
        0, outcome.FAILED, outcome.INVALID_INPUT, outcome.DRIFTED,
        outcome.REFIT_REJECTED, outcome.TRY_LATER, outcome.INTERRUPTED, outcome.TERMINATED,
    }  # fmt: skip

    assert [int(row[0]) for row in codes] == sorted(known)
    for row in commands:
        assert {int(code) for code in re.findall(r"\b\d+\b", row[1])} <= known
