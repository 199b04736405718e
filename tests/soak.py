"""Fit and score random tables again and again in one process, against the definitions.

    python tests/soak.py --hours 1 --seed 3
    python tests/soak.py --seed 3 --first 1200 --last 1234

Each case draws a table, the kind in which it comes, arguments, chunks, a scheduler and an
order of calls from the seed and its number, and compares every result with definitions.py,
bit for bit. Models of some cases before are scored again in between. A failure prints the
case and what redoes it, alone or after those before it. The soak goes on after it, up to
ten, and ends with 1 if there were any. Cases are counted, so that the last one is known if
the process itself dies. MALLOC_PERTURB_=165 in the environment fills memory that is freed.
"""

import argparse
import faulthandler
import itertools
import logging
import sys
import tempfile
import time
import traceback
import warnings
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd

import lpe_dask
from lpe_dask.model.calibration_split import split_calibration
from oracle import Oracle
from problems import SCALES, computed

#: What is compared, of rows or of the model.
RESULTS = ["calibration_", "p_values_", "statistic", "score_samples", "predict"]

#: Models of cases before that are kept, and scored again; failures that end a soak.
KEPT, MAX_FAILURES = 8, 10


def column_of_numbers(rng, n_rows):
    """Return a column as tables have them: mostly such that distances tie."""
    kinds = ("whole", "cents", "grid", "normal", "constant", "far", "microseconds", "flag")
    kind = rng.choice(kinds)
    whole = rng.integers(0, 6, n_rows)
    return {
        "whole": whole.astype(float),
        "cents": rng.integers(0, 2000, n_rows) / 100,
        "grid": whole * 0.1 + 5,
        "normal": rng.standard_normal(n_rows),
        "constant": np.full(n_rows, 0.1),
        "far": whole * 1e-3 + 1e7,
        "microseconds": 1.7637e15 + rng.integers(0, 10**7, n_rows),
        "flag": (whole == 0).astype(float),
    }[kind]


def column_of_categories(rng, n_rows):
    """Return a column of text, whole numbers or booleans."""
    levels = [["a", "b", "c"], [0, 1, 7], [False, True]][rng.integers(0, 3)]
    return pd.Series([levels[i] for i in rng.integers(0, len(levels), n_rows)])


@dataclass
class Case:
    """A table, what is done with it, and what is right.

    Attributes
    ----------
    seed, number : int
        What it is drawn from.
    """

    seed: int
    number: int
    rng: np.random.Generator = field(init=False)

    def __post_init__(self):
        self.rng = rng = np.random.default_rng([self.seed, self.number])
        n_nominal, n_new = int(rng.integers(4, 40)), int(rng.integers(1, 15))
        n_categories = int(rng.choice([0, 0, 1, 2]))
        n_numbers = int(rng.integers(0 if n_categories else 1, 5))
        n_rows = n_nominal + n_new
        columns = {f"x{k}": column_of_numbers(rng, n_rows) for k in range(n_numbers)}
        columns |= {f"c{k}": column_of_categories(rng, n_rows) for k in range(n_categories)}
        names = rng.permutation(list(columns)).tolist()
        frame = pd.DataFrame(columns)[names]
        self.numeric = [name for name in names if name[0] == "x"]
        self.categorical = [name for name in names if name[0] == "c"]
        # Not slices: Dask gives those of text that are equally long the same name, and
        # takes one for the other.
        self.nominal = frame.take(range(n_nominal))
        self.new = frame.take(range(n_nominal, n_rows)).reset_index(drop=True)
        if self.numeric and rng.random() < 0.3:
            self.new.loc[rng.integers(0, n_new), self.numeric[0]] = np.nan
        self.kind = rng.choice(["frame", "dask frame"])
        if not self.categorical:
            self.kind = rng.choice(["array", "dask array", "frame", "dask frame"])
        self.scheduler = rng.choice(["sync", "threads", "cluster"], p=[0.5, 0.4, 0.1])
        self.block_rows = int(rng.choice([64, 128, 4096]))
        self.arguments = self._drawn_arguments()
        self._oracle, self._right = Oracle(self.nominal, **self.arguments), {}

    def _drawn_arguments(self):
        rng, n = self.rng, len(self.nominal)
        kind = str(rng.choice(["loo", "split", "conformal"]))
        most = {"loo": n, "split": (n + 1) // 2, "conformal": n - 1}[kind]
        size = int(rng.integers(1, most + 1)) if rng.random() < 0.5 else None
        seed = int(rng.integers(0, 5))
        division = split_calibration(kind, n, size, seed)
        chosen = {
            "calibration": kind, "calibration_size": size, "random_state": seed,
            "algorithm": str(rng.choice(["brute", "pruned", "auto"])),
            "alpha": float(rng.choice([0.05, 0.3])),
            "scale": SCALES[rng.integers(0, len(SCALES))],
        }  # fmt: skip
        if self.categorical:
            chosen["categorical"] = self.categorical
        draw = rng.random()
        if draw < 0.4:
            w = rng.choice([0.0, 0.3, 0.5, 1.0, 2.0, 3.0], len(self.nominal.columns))
            chosen["metric_params"] = {"w": w.tolist()}
        elif draw < 0.55 and not self.categorical:
            chosen["metric"] = "seuclidean"
        if division.max_neighbors >= 1 and rng.random() < 0.7:
            chosen["n_neighbors"] = int(rng.integers(1, division.max_neighbors + 1))
            chosen["aggregation"] = str(rng.choice(["kth", "mean"]))
        else:
            radius = float(rng.choice([0.0, 0.1, 0.5, 1.0]))
            chosen |= {"graph": "radius", "radius": radius}
        return chosen

    def __str__(self):
        return (
            f"case {self.number} of seed {self.seed}: {len(self.nominal)} nominal and "
            f"{len(self.new)} new rows of {self.nominal.columns.tolist()} as {self.kind}, "
            f"{self.scheduler}, block-rows {self.block_rows}, {self.arguments}"
        )

    def table(self, frame):
        """Return rows in the kind of the case, cut anyhow."""
        array = frame.to_numpy(float) if "array" in self.kind else None
        n_parts = int(self.rng.integers(1, min(4, len(frame)) + 1))
        if self.kind == "array":
            return array
        if self.kind == "dask array":
            return da.from_array(array, chunks=(-(-len(array) // n_parts), -1))
        if self.kind == "frame":
            return frame
        with dask.config.set({"dataframe.convert-string": False}):
            return dd.from_pandas(frame, npartitions=n_parts, sort=False)

    # What is done

    def fit(self):
        """Return a fitted model."""
        return lpe_dask.LPE(**self.arguments).fit(self.table(self.nominal))

    def check(self, model, names):
        """Raise AssertionError where a result is not what is right."""
        for name in names:
            found = getattr(model, name)
            if not name.endswith("_"):
                found = found(self.table(self.new))
            np.testing.assert_array_equal(computed(found), self.right(name), name)

    def right(self, name):
        """Expected value of a method or an attribute."""
        if name not in self._right:
            right = getattr(self._oracle, name)
            self._right[name] = right if name.endswith("_") else right(self.new)
        return self._right[name]

    def run(self):
        """Fit, and check all results in some order; return the model."""
        model = self.fit()
        names = self.rng.permutation([*RESULTS, "score_samples", "predict"]).tolist()
        self.check(model, names)
        if self.rng.random() < 0.2:
            with tempfile.TemporaryDirectory() as folder:
                model.save(f"{folder}/model")
                loaded = lpe_dask.load(f"{folder}/model")
                self.check(loaded, ["score_samples", "calibration_", "predict"])
        return model


class Schedulers:
    """Those that cases compute with; one cluster, in this process, for all of them."""

    def __init__(self):
        self._cluster = None

    @contextmanager
    def active(self, case):
        """Compute with the scheduler of a case, and with its blocks."""
        from distributed import Client, LocalCluster

        with dask.config.set({"lpe-dask.block-rows": case.block_rows}):
            if case.scheduler != "cluster":
                with dask.config.set(scheduler=case.scheduler):
                    yield
                return
            if self._cluster is None:
                self._cluster = LocalCluster(
                    n_workers=2, threads_per_worker=1, processes=False,
                    dashboard_address=None,
                )  # fmt: skip
            with Client(self._cluster):
                yield

    def close(self):
        """Close the cluster."""
        if self._cluster is not None:
            self._cluster.close()


def soak(seed, numbers, seconds):
    """Run cases until the time is over; return how many, and the numbers that failed."""
    end, schedulers, failed, n_cases = time.monotonic() + seconds, Schedulers(), [], 0
    kept, first = deque(maxlen=KEPT), None
    for number in numbers:
        if time.monotonic() > end or len(failed) == MAX_FAILURES:
            break
        first = number if first is None else first
        print(f"\rcase {number}", end="", file=sys.stderr, flush=True)
        case = Case(seed, number)
        n_cases += 1
        try:
            with schedulers.active(case):
                model = case.run()
            if kept and case.rng.random() < 0.3:
                case, before = kept[case.rng.integers(0, len(kept))]
                with schedulers.active(case):
                    case.check(before, ["statistic", "score_samples"])
        except Exception:
            failed.append(number)
            print(f"FAILED at {number}: {case}", flush=True)
            traceback.print_exc(file=sys.stdout)
            redo = f'make soak ARGS="--seed {seed} --first'
            print(f'alone: {redo} {number} --last {number}"', flush=True)
            print(f'as it was: {redo} {first} --last {number}"', flush=True)
        else:
            if case.number == number and case.scheduler != "cluster":
                kept.append((case, model))
    schedulers.close()
    return n_cases, failed


def main():
    """Read the arguments, and soak."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--last", type=int, help="number of the last case")
    given = parser.parse_args()
    faulthandler.enable()
    # Of too few rows, in nearly every case.
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    numbers = itertools.count(given.first)
    if given.last is not None:
        numbers = range(given.first, given.last + 1)
    n_cases, failed = soak(given.seed, numbers, 3600 * given.hours)
    print(f"{n_cases} cases of seed {given.seed}, {len(failed)} failed: {failed}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
