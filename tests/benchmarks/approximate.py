"""Approximate search beside the exact engine and beside other libraries' graphs.

Every row of a table is scored against all others, then 10,000 new rows, half of which have
a tenth of their columns redrawn. Each contender has a process of its own, compiles in it
what is not cached, and takes its turn after the other. hnswlib takes part where it is
installed; it has no wheels. By hand, as the large cells take most of an hour each:

    PYTHONPATH=tests python -m benchmarks.approximate --folder FOLDER \\
        --rows 100000 --columns 256 --kind embeddings

Results are added to those in the folder, cell by cell; a cell that is there is measured
again only with ``--again``, as a whole. Peers' p-values are those that their K-th distances
have by the exact calibration statistics, so that an error is one of the search alone.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from benchmarks import machine, results
from benchmarks.children import environment
from benchmarks.contract import N_THREADS, WARM_UP_ROWS
from benchmarks.data import SOURCES
from benchmarks.graphs import SEARCHES, Found

ALPHA = 0.05
NEW_ROWS = 10_000
REDRAWN_COLUMNS = 0.1

#: Kinds of rows, by their name in `data.SOURCES`.
KINDS = ("gaussian", "clusters-50", "embeddings")

#: An error of a p-value from here on is one that a certificate counts.
MAX_P_ERROR = 0.01

_HEADER = (
    "| rows | | build, s | own p, s | all, s | exact / it | audit | mean error | largest "
    "| off > .01 | alarms missed, invented | new, s | audit, s | mean error | largest "
    "| off > .01 | alarms missed, invented | peak, MiB |"
)


@dataclass(frozen=True, slots=True)
class Cell:
    """Rows of one kind.

    Attributes
    ----------
    kind : str
    n_rows, n_features : int
    n_new : int
    """

    kind: str
    n_rows: int
    n_features: int
    n_new: int = NEW_ROWS

    @property
    def name(self) -> str:
        asked = "" if self.n_new == NEW_ROWS else f", {self.n_new:,} new"
        return f"{self.kind}, {self.n_rows:,} x {self.n_features}{asked}"

    def rows(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the nominal rows and the new ones."""
        n_redrawn = self.n_new // 2
        n_all = self.n_rows + self.n_new + n_redrawn
        drawn = SOURCES[self.kind].rows(n_all, self.n_features).astype(np.float32)
        nominal, new, others = np.split(drawn, [self.n_rows, self.n_rows + self.n_new])
        rng = np.random.default_rng(0)
        is_redrawn = rng.random((n_redrawn, self.n_features)) < REDRAWN_COLUMNS
        new[:n_redrawn][is_redrawn] = others[is_redrawn]
        return nominal, new


def search(label: str, folder: Path) -> tuple[Found, int]:
    """Let a contender search the rows of a folder; for a process of its own.

    Returns
    -------
    found : Found
    peak_bytes : int
        Of the process.
    """
    nominal, new = np.load(folder / "nominal.npy"), np.load(folder / "new.npy")
    found = SEARCHES[label][1](nominal, new)
    return found, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _in_a_process(label: str, folder: Path) -> tuple[Found, int]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as executor:
        return executor.submit(search, label, folder).result()


def _is_installed(label: str) -> bool:
    try:
        version(SEARCHES[label][0])
    except PackageNotFoundError:
        return False
    return True


def p_values(
    radii: NDArray[np.generic], calibration: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the share of calibration statistics that are at least as large."""
    n_smaller = np.searchsorted(calibration, radii.astype(np.float64), side="left")
    return (len(calibration) - n_smaller) / len(calibration)


def compared(
    actual: NDArray[np.float64], exact: NDArray[np.float64]
) -> dict[str, float | int]:
    """Return how far p-values are off, and whose alarms differ."""
    errors = np.abs(actual - exact)
    alarms, due = actual <= ALPHA, exact <= ALPHA
    return {
        "mean": float(errors.mean()),
        "largest": float(errors.max()),
        "off": float((errors > MAX_P_ERROR).mean()),
        "missed": int((due & ~alarms).sum()),
        "invented": int((alarms & ~due).sum()),
    }


def measure(cell: Cell, folder: Path, labels: tuple[str, ...]) -> dict[str, Any]:
    """Let contenders take their turns, and return what is to be saved of a cell."""
    nominal, new = cell.rows()
    np.save(folder / "nominal.npy", nominal)
    np.save(folder / "new.npy", new)
    del nominal, new
    record: dict[str, Any] = {"machine": machine.describe(), "runs": {}}
    exact: Found | None = None
    for label in labels:
        if not _is_installed(label):
            record["runs"][label] = {"missing": f"{SEARCHES[label][0]} is not installed"}
            continue
        found, peak_bytes = _in_a_process(label, folder)
        told: dict[str, Any] = {"seconds": found.seconds, "peak_bytes": peak_bytes}
        told |= found.told
        if exact is None:
            exact = found
        assert exact.calibration is not None
        if len(found.own):
            for name in ("own", "new"):
                values = getattr(found, name)
                if found.is_radii:
                    values = p_values(values, exact.calibration)
                told[name] = compared(values, getattr(exact, name))
        record["runs"][label] = told
        click.echo(f"{cell.name}, {label}: {told}")
    return record


def table(saved: dict[str, Any]) -> str:
    """Return all cells as Markdown."""
    lines = [_HEADER, "| --- " * _HEADER.count(" |") + "|"]
    for name, record in saved["cells"].items():
        runs = record["runs"]
        exact = _whole(runs["exact"])
        lines += [_line(name, label, told, exact) for label, told in runs.items()]
    return "\n".join(lines)


def _whole(told: dict[str, Any]) -> float:
    return told["seconds"]["build"] + told["seconds"].get("own", 0.0)


def _line(name: str, label: str, told: dict[str, Any], exact: float) -> str:
    if "missing" in told:
        return f"| {name} | {label}: {told['missing']} |" + " |" * 16
    seconds = told["seconds"]
    if "own" not in told:
        chosen = f"{label} takes {told['algorithm']}"
        return f"| {name} | {chosen} | {seconds['build']:.1f} |" + " |" * 15
    cells = [
        name, label, f"{seconds['build']:.1f}", f"{seconds['own']:.1f}",
        f"{_whole(told):.1f}", f"{exact / _whole(told):.2f}",
        f"{seconds.get('audit', 0) / _whole(told):.1%}",
        *_errors(told["own"]), f"{seconds['new']:.1f}",
        f"{seconds.get('audit of new', 0):.1f}", *_errors(told["new"]),
        f"{told['peak_bytes'] / 2**20:,.0f}",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _errors(told: dict[str, float | int]) -> list[str]:
    return [
        f"{told['mean']:.1e}",
        f"{told['largest']:.3f}",
        f"{told['off']:.3%}",
        f"{told['missed']}, {told['invented']}",
    ]


@click.command()
@click.option("--folder", type=click.Path(path_type=Path), required=True)
@click.option("--kind", "kinds", multiple=True, type=click.Choice(KINDS), default=KINDS)
@click.option("--rows", "sizes", multiple=True, type=int, default=[100_000, 400_000])
@click.option("--columns", "widths", multiple=True, type=int, default=[64, 256, 768])
@click.option("--new", "n_new", type=int, default=NEW_ROWS, show_default=True)
@click.option("--contender", "labels", multiple=True, type=click.Choice(list(SEARCHES)))
@click.option("--again", is_flag=True, help="Also the cells that are in the folder.")
def main(
    folder: Path,
    kinds: tuple[str, ...],
    sizes: tuple[int, ...],
    widths: tuple[int, ...],
    n_new: int,
    labels: tuple[str, ...],
    again: bool,
) -> None:
    """Measure cells that are not in the folder yet, and print all as a table."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.update(environment(N_THREADS))  # of the processes to come
    labels = tuple(dict.fromkeys(["exact", *(labels or SEARCHES)]))
    path = folder / "approximate.json"
    saved = results.load(path)
    saved.setdefault("cells", {})
    shapes = product(sizes, widths, kinds)
    cells = [Cell(kind, *shape, n_new) for *shape, kind in shapes]
    left = [cell for cell in cells if again or cell.name not in saved["cells"]]
    with TemporaryDirectory(dir=folder) as rows_folder:
        if left:  # what can be compiled once and kept is compiled now
            warm_up = Cell("gaussian", WARM_UP_ROWS, 64, 100)
            measure(warm_up, Path(rows_folder), ("exact", "nn_descent"))
        for cell in left:
            saved["cells"][cell.name] = measure(cell, Path(rows_folder), labels)
            results.save(saved, path)
    click.echo(table(saved))


if __name__ == "__main__":
    main()
