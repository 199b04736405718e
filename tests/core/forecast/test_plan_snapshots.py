"""What is planned for a dozen shapes of data, so that no rule of a plan changes unseen.

plan_snapshots.json holds the algorithm, blocks, tasks and bytes of each case. They follow
from whole numbers and from samples that are the same everywhere: which algorithm is faster
depends on the processor, so the cases where both are tried name one. Pairs and seconds are
left out. Where a change is meant, write the file anew and read the difference:

    PYTHONPATH=tests python -m forecast.test_plan_snapshots
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import dask
import dask.array as da
import pytest

import lpe_dask
from choosing import mostly_full
from lpe_dask.forecast import estimate, sample
from lpe_dask.search import trial
from lpe_dask.tasks.worker_pool import Workers

GIB = 2**30
SNAPSHOTS = Path(__file__).with_name("plan_snapshots.json")


class Case(NamedTuple):
    """Some data, on some workers, with some arguments of `plan`."""

    data: Callable[[], Any]
    workers: Workers
    arguments: Mapping[str, Any] = MappingProxyType({})


class Chosen(NamedTuple):
    """Stands for the workers that are active."""

    workers: Workers

    def active(self, **_: Any) -> Workers:
        return self.workers


def normal(n_rows, n_columns, n_chunks=64):
    """Make a function that draws independent columns: many prune little."""
    chunks = (-(-n_rows // n_chunks), n_columns)
    return lambda: da.random.default_rng(0).standard_normal((n_rows, n_columns), chunks)


def clusters(n_rows, n_columns, n_chunks=64):
    """Make a function that draws rows around few centers: most can be pruned."""

    def rows():
        rng = da.random.default_rng(1)
        chunks = -(-n_rows // n_chunks)
        noise = rng.standard_normal((n_rows, n_columns), (chunks, n_columns))
        return noise + 100 * rng.integers(0, 9, (n_rows, 1), chunks=(chunks, 1))

    return rows


SIXTEEN = Workers(16, 1, 4 * GIB)
LAPTOP = Workers(8, 8, 16 * GIB)
SMALL = Workers(4, 2, 700 * 2**20)

CASES = {
    "ten million rows of 8 numbers on 16 workers": Case(
        normal(10**7, 8), SIXTEEN, {"algorithm": "pruned"}
    ),
    "a billion rows on a hundred workers": Case(
        normal(10**9, 8, 4096), Workers(400, 4, 16 * GIB), {"algorithm": "brute"}
    ),
    "ten million clustered rows": Case(
        clusters(10**7, 16), SIXTEEN, {"algorithm": "pruned"}
    ),
    "few wide rows": Case(normal(5000, 300, 4), LAPTOP),
    "rows for which there is too little memory": Case(
        normal(3 * 10**6, 40), SMALL, {"algorithm": "brute"}
    ),
    "a few rows in this process": Case(normal(300, 2, 1), LAPTOP),
    "large K": Case(
        clusters(400_000, 3), LAPTOP, {"n_neighbors": 2000, "algorithm": "pruned"}
    ),
    "radius": Case(
        clusters(10**6, 3), LAPTOP, {"graph": "radius", "radius": 0.3, "scale": "standard"}
    ),
    "geodesic": Case(clusters(200_000, 3), LAPTOP, {"metric": "geodesic"}),
    "split": Case(
        clusters(10**6, 5), LAPTOP, {"calibration": "split", "algorithm": "pruned"}
    ),
}


def planned(case):
    """Fields of a plan that a snapshot keeps."""
    forecast = lpe_dask.plan(case.data(), **case.arguments)
    cut, fits = forecast.plan, "fits" if forecast.fits else "does not fit"
    place = "a spool" if forecast.is_spooled else "memory"
    return {
        "search": f"{forecast.algorithm}, K={forecast.n_neighbors}",
        "cut": f"{cut.n_blocks} blocks of {cut.block_rows} rows in {place}, "
        f"tasks of {cut.task_rows}, passes of {cut.pass_rows}",
        "worker": f"{forecast.worker_bytes} bytes, {fits}",
        "tasks": ", ".join(f"{kind} {n}" for kind, n in sorted(forecast.tasks.items())),
    }


@pytest.fixture
def quick(monkeypatch):
    """What is timed is left out, and so need not be timed well."""
    be_quick(monkeypatch.setattr)


def be_quick(set_to):
    set_to(sample, "SAMPLE_ROWS", 8192)
    set_to(trial, "REPEAT_SECONDS", 0.0)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "name", mostly_full(CASES, [name for name in CASES if "billion" not in name])
)
def test_plan__is_as_it_was(name, monkeypatch):
    monkeypatch.setattr(estimate, "Workers", Chosen(CASES[name].workers))

    with dask.config.set(scheduler="threads", num_workers=2):
        assert planned(CASES[name]) == json.loads(SNAPSHOTS.read_text())[name]


def main():
    """Write the snapshots anew."""
    be_quick(setattr)
    snapshots = {}
    for name, case in CASES.items():
        estimate.Workers = Chosen(case.workers)
        snapshots[name] = planned(case)
    SNAPSHOTS.write_text(json.dumps(snapshots, indent=1) + "\n")


if __name__ == "__main__":
    main()
