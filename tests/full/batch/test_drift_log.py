"""What the runs of a month say together, with kills: each follows the right ones."""

import bisect
import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import dask
import fsspec
import numpy as np
import pandas as pd
import pytest

import lpe_dask
from breaking import at
from daily import JOB, day, fit_model, prepare_folder, write_day
from lpe_dask.batch.summary import read_summary
from storages import BreakingFileSystem, Death


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="sync"):
        yield


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    prepare_folder()


@dataclass
class Month:
    """What a month of runs should say, by plain counting.

    Attributes
    ----------
    lines : dict of date to list
        The days that the output of a day counts, itself last, each with its counts in bulk
        bins and its number of rows.
    models : dict of date to int
        Which model has scored a day.
    """

    lines: dict = field(default_factory=dict)
    models: dict = field(default_factory=dict)

    def expect(self, of, model, counts):
        """Return the line of a run that is done now, and whether it is a second one."""
        earlier = [d for d in self.lines if d < of and self.models[d] == model]
        later = [d for d in self.lines if d > of and self.models[d] == model]
        line = [*(self.lines[max(earlier)] if earlier else []), (of, counts)]
        self.lines[of], self.models[of] = line, model
        is_second = bool(later) and not any(
            self.lines[min(later)][: i + 1] == line
            for i in range(len(self.lines[min(later)]))
        )
        return line, is_second


def counts_by_hand(output, edges, n_calibration):
    """Return the rows in each bulk bin, and all, from the p-values of the parts."""
    bins = [0] * (len(edges) - 1)
    p_values = pd.read_parquet(output)["p_value"].tolist()
    for p in p_values:
        rank = round(p * (n_calibration + 1)) - 1
        which = bisect.bisect_left(edges, rank)
        if which > 0:
            bins[which - 1] += 1
    return tuple(bins), len(p_values)


def age_locks():
    for path in Path().rglob("*_lock*"):
        os.utime(path, (1, 1))


def test_run__of_a_month_with_kills_replays_a_refit_and_a_backfill(caplog):
    """30 days; each state has the runs and rows that counting by hand gives."""
    fsspec.register_implementation("breaking", BreakingFileSystem, clobber=True)
    Path("job.toml").write_text(JOB.replace("out/", f"breaking://{os.getcwd()}/out/"))
    rng, month, model, n_killed, n_second = np.random.default_rng(0), Month(), 0, 0, 0
    for number in range(1, 31):
        write_day(number, n_rows=60 + number)
    replays, backfill, repair = [5, 14], [9, 10], [12]
    plan = [*range(1, 9), *range(11, 15), *replays, 15, *backfill, 16, *repair, 17]
    plan += [*replays, "refit", *range(18, 28), 8, 19, 27, 28, 29, 29, 30]
    for number in plan:
        if number == "refit":
            fit_model(1)
            model = 1
            continue
        is_done = day(number) in month.lines
        if is_done and number in repair:
            write_day(number, seed=77, n_rows=1000)
        for point in rng.integers(0, 30, 2):
            BreakingFileSystem.repair(at(point, "dies"))
            with suppress(Death):
                lpe_dask.run("job.toml", date=day(number), overwrite=is_done)
            n_killed += BreakingFileSystem.is_dead
            BreakingFileSystem.repair()
            age_locks()

        lpe_dask.run("job.toml", date=day(number), overwrite=is_done)

        output = f"out/{day(number)}"
        drift = read_summary(output)["drift"]
        state = drift["state"]
        counts = counts_by_hand(output, state["edges"], state["n_calibration"])
        line, is_second = month.expect(day(number), model, counts)
        n_second += is_second
        assert state["counted_runs"] == len(line)
        assert [known["rows"] for known in state["runs"]] == [n for _, (_, n) in line]
        ends = [known["output"][-10:] for known in state["runs"]]
        assert ends == [str(of) for of, _ in line]
        total = [sum(of) for of in zip(*(bins for _, (bins, _) in line), strict=True)]
        recent = [bulk for _, *bulk in state["recent"]]
        held = [sum(of) for of in zip(state["sums"], *recent, strict=True)]
        assert held == total
        assert (drift["fork_warning"] is not None) == is_second
        assert is_second == (drift["fork_warning"] in caplog.messages)
    assert n_killed > 20
    assert n_second == 4  # days 9, 10, 12, and 8 with the other model
    assert {day(n) for n in range(1, 31)} == set(month.lines)
