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
from functools import cached_property

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd

import definitions
import lpe_dask
from lpe_dask.model.calibration_split import split_calibration

SCALES = [None, "minmax", "standard", "quantile", "minmax+quantile"]

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
        self.is_missing = np.zeros(n_new, bool)
        if self.numeric and rng.random() < 0.3:
            self.is_missing[rng.integers(0, n_new)] = True
            self.new.loc[self.is_missing, self.numeric[0]] = np.nan
        self.kind = rng.choice(["frame", "dask frame"])
        if not self.categorical:
            self.kind = rng.choice(["array", "dask array", "frame", "dask frame"])
        self.scheduler = rng.choice(["sync", "threads", "cluster"], p=[0.5, 0.4, 0.1])
        self.block_rows = int(rng.choice([64, 128, 4096]))
        self.arguments = self._drawn_arguments()

    def _drawn_arguments(self):
        rng, n = self.rng, len(self.nominal)
        kind = str(rng.choice(["loo", "split", "conformal"]))
        most = {"loo": n, "split": (n + 1) // 2, "conformal": n - 1}[kind]
        size = int(rng.integers(1, most + 1)) if rng.random() < 0.5 else None
        seed = int(rng.integers(0, 5))
        self.division = split_calibration(kind, n, size, seed)
        chosen = {
            "calibration": kind, "calibration_size": size, "random_state": seed,
            "algorithm": str(rng.choice(["brute", "pruned", "auto"])),
            "alpha": float(rng.choice([0.05, 0.3])),
            "scale": SCALES[rng.integers(0, len(SCALES))],
        }  # fmt: skip
        if self.categorical:
            chosen["categorical"] = self.categorical
        self.metric, self.w = "euclidean", np.ones(len(self.nominal.columns))
        draw = rng.random()
        if draw < 0.4:
            self.w = rng.choice([0.0, 0.3, 0.5, 1.0, 2.0, 3.0], len(self.w))
            chosen["metric_params"] = {"w": self.w.tolist()}
        elif draw < 0.55 and not self.categorical:
            self.metric = chosen["metric"] = "seuclidean"
        if self.division.max_neighbors >= 1 and rng.random() < 0.7:
            chosen["n_neighbors"] = int(rng.integers(1, self.division.max_neighbors + 1))
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

    # What is right

    @cached_property
    def _rows(self):
        """Nominal and new rows as the definitions take them, and both kinds of weights."""
        nominal, new = (f[self.numeric].to_numpy(float) for f in (self.nominal, self.new))
        learned, of_numbers = nominal, []
        if self.arguments["calibration"] == "conformal":
            learned = nominal[self.division.reference]
        of = dict(zip(self.nominal.columns, self.w, strict=True))
        scale = self.arguments["scale"]
        if self.numeric:
            params = None
            if self.metric == "euclidean":
                params = {"w": [of[name] for name in self.numeric]}
            of_numbers = definitions.weights_of_forms(learned, scale, self.metric, params)
            nominal, new = (definitions.forms(r, learned, scale) for r in (nominal, new))
        both = []
        for numbers, frame in ((nominal, self.nominal), (new, self.new)):
            codes = frame[self.categorical].to_numpy(object)
            both.append([[*a, *b] for a, b in zip(numbers, codes, strict=True)])
        return *both, [of[name] for name in self.categorical], of_numbers

    def _statistic(self, queries, reference, exclude_self=False):
        *_, of_codes, of_numbers = self._rows
        if (radius := self.arguments.get("radius")) is not None:
            function, asked = definitions.neighbor_counts, radius
        else:
            is_mean = self.arguments["aggregation"] == "mean"
            function = definitions.mean_radii if is_mean else definitions.knn_radii
            asked = self.arguments["n_neighbors"]
        return function(queries, reference, asked, exclude_self, of_codes, of_numbers)

    @cached_property
    def right(self):
        """The results of each call, by its name."""
        nominal, new, *_ = self._rows
        division, everything = self.division, np.arange(len(nominal))
        is_conformal = division.kind == "conformal"

        def among(numbers):
            return nominal if numbers is None else [nominal[i] for i in numbers]

        reference = among(division.reference)
        chosen = everything if division.calibration is None else division.calibration
        if is_conformal:
            measured = self._statistic(among(chosen), reference)
        else:
            part = (
                everything
                if division.calibration_pool is None
                else division.calibration_pool
            )
            of_part = self._statistic(among(part), among(part), exclude_self=True)
            measured = of_part[np.searchsorted(part, chosen)]
        is_count = "radius" in self.arguments

        def p_value(value, scores_nominal_rows=False):
            n = sum(bool(m <= value if is_count else m >= value) for m in measured)
            if is_conformal:
                return definitions.conformal_p_value(n - scores_nominal_rows, len(measured))
            return n / len(measured)

        own = self._statistic(nominal, reference)
        searched = everything if division.reference is None else division.reference
        own[searched] = self._statistic(reference, reference, exclude_self=True)
        p_own = np.array([p_value(value) for value in own])
        p_own[chosen] = [p_value(value, scores_nominal_rows=True) for value in measured]
        statistic = self._statistic(new, reference)
        p_new = np.array([p_value(value) for value in statistic])
        statistic[self.is_missing] = p_new[self.is_missing] = np.nan
        return {
            "calibration_": np.sort(measured), "p_values_": p_own, "statistic": statistic,
            "score_samples": p_new,
            "predict": np.where(p_new <= self.arguments["alpha"], -1, 1),
        }  # fmt: skip

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
            if hasattr(found, "compute"):
                found = found.compute()
            np.testing.assert_array_equal(np.asarray(found), self.right[name], name)

    def run(self):
        """Fit, and check all results in some order; return the model."""
        model = self.fit()
        names = self.rng.permutation([*self.right, "score_samples", "predict"]).tolist()
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
