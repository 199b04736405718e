"""A month of a job that fits its model again on drift, with all that goes wrong in one.

    day 5    killed while it scores, and started again
    day 8    started twice at the same time
    day 12   rows have drifted, from now on; killed while it fits, and started again
    day 20   rows have drifted again, and the newest nominal rows are bad: a model of them
             would flag 40 % of the run
    day 21   killed when the model is replaced, and started again
    day 24   to 28 nothing runs; on day 29 these days are filled in
    day 3    is done again on day 30, with other rows

``python tests/month.py 20000`` prints what each day was, with so many rows a day.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd
from click.testing import CliRunner

from daily import day, rows
from lpe_dask.batch.summary import read_summary
from lpe_dask.cli.commands import cli
from processes import local_cluster

JOB = """
[nominal]
data = "nominal/{date-1d..date}.parquet"
[model]
path = "model"
refit = "on drift"
calibration = "conformal"
n_neighbors = 5
random_state = 0
[score]
data = "in/{date}.parquet"
output = "out/{date}"
alpha = 0.05
"""

#: The command, which is killed when it calls a function, or waits there for a file.
SCRIPT = """
import os, signal, sys, time
from importlib import import_module
from pathlib import Path
from unittest.mock import patch
from lpe_dask.cli import main
place, name, does, *sys.argv[1:] = sys.argv[1:]
module, _, of = place.partition(":")
owner = import_module(module)
owner = getattr(owner, of) if of else owner
function = getattr(owner, name)
def interrupted(*args, **kwargs):
    if does == "waits":
        Path("waits").touch()
        while not Path("goes on").exists():
            time.sleep(0.05)
        return function(*args, **kwargs)
    if does == "dies after":
        function(*args, **kwargs)
    os.kill(os.getpid(), signal.SIGKILL)
with patch.object(owner, name, interrupted):
    main()
"""

SCORING = ("lpe_dask.batch.scoring", "score_summary", "dies")
FITTING = ("lpe_dask.batch.fit:Fit", "_fit", "dies after")
REPLACING = ("lpe_dask.model:ModelFolder", "write", "dies after")
WAITING = ("lpe_dask.batch.scoring", "score_summary", "waits")

#: When the model is fitted, and when nothing runs.
DRIFTS, BAD, OUTAGE = (12, 20), range(18, 21), range(24, 29)


def shift(number):
    return float(sum(number >= first for first in DRIFTS))


def write_tables(n_rows):
    """Write the nominal rows and the rows to score of all days to the current folder."""
    for name in ("in", "nominal"):
        Path(name).mkdir()
    for number in range(31):
        rows(number, shift(number), n_rows).to_parquet(f"in/{day(number)}.parquet")
        is_bad = number in BAD
        nominal = rows([9, number], n_rows=2 * n_rows) * (0.4 if is_bad else 1.0)
        nominal += shift(DRIFTS[1] if is_bad else number)
        nominal.to_parquet(f"nominal/{day(number)}.parquet")
    Path("job.toml").write_text(JOB)


def run(date, address, *options):
    """Run the job in this process, and return the exit code."""
    command = ["run", "job.toml", "--date", f"{date}", "--scheduler", address, *options]
    done = CliRunner().invoke(cli, command)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.stderr
    return done.exit_code


def start(date, address, place):
    """Start it in another process that is interrupted."""
    command = [sys.executable, "-c", SCRIPT, *place, "run", "job.toml"]
    command += ["--date", f"{date}", "--scheduler", address]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)


def run_twice(date, address):
    """Start it while it is running, and return both exit codes."""
    first = start(date, address, WAITING)
    while not Path("waits").exists():
        assert first.poll() is None
        time.sleep(0.05)
    second = run(date, address)
    Path("goes on").touch()
    return [first.wait(60), second]


def month(address):
    """Do all of it in the current folder, and return the exit codes of each day."""
    codes = {}
    for number in range(1, 31):
        date = day(number)
        if number in OUTAGE:
            continue
        if number == 8:
            codes[number] = run_twice(date, address)
            continue
        killed = {5: SCORING, 12: FITTING, 21: REPLACING}.get(number)
        before = [] if killed is None else [start(date, address, killed).wait(60)]
        if number == OUTAGE.stop:
            code = run(f"{day(OUTAGE.start)}..{date}", address)
            codes |= {missing: [code] for missing in (*OUTAGE, number)}
            continue
        codes[number] = [*before, run(date, address)]
    rows(99, n_rows=len(pd.read_parquet(f"in/{day(3)}.parquet"))).to_parquet(
        f"in/{day(3)}.parquet"
    )
    codes[3] += [run(day(3), address), run(day(3), address, "--overwrite")]
    return codes


def table(codes):
    """Return a line for each day: what its summary says, and the exit codes."""
    lines = []
    for number in sorted(codes):
        summary = read_summary(f"out/{day(number)}")
        refit = summary["refit"] or {}
        lines.append(
            {
                "day": number, "verdict": summary["drift"]["verdict"],
                "run of the series": summary["drift"]["number"],
                "model": summary["model_checksum"][:8],
                "flagged": summary["flagged_share"], "refit": refit.get("outcome"),
                "new model flags": (refit.get("new") or {}).get("flagged_share"),
                "exit codes": codes[number],
            }
        )  # fmt: skip
    return pd.DataFrame(lines).astype(object)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, local_cluster() as cluster:
        os.chdir(folder)
        write_tables(int(sys.argv[1]))
        print(table(month(cluster.scheduler_address)).to_string(index=False))
