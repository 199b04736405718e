"""What comparing rows costs on a machine, in nanoseconds: measured once, then read.

    lpe-dask.costs, else a file beside the compiled kernels, else --timed--> Costs, file

"auto" decides by these and by numbers of pairs, so that it decides alike each time.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import dask
import llvmlite.binding
import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels import ALGORITHMS, KERNEL_STATE, kernel_folder
from lpe_dask.search.join import Search
from lpe_dask.search.packing import Space
from lpe_dask.search.plan import Statistic
from lpe_dask.search.preparation import Preparation
from lpe_dask.search.trial import SampledRows, Trial, fastest
from lpe_dask.tasks import active_client, compute, new_tasks

logger = logging.getLogger(__name__)

#: Features that costs are measured for: beyond, boxes leave out little.
BRUTE_FEATURES, PRUNED_FEATURES = (4, 16, 64, 256), (4, 16, 64)

#: Rows that are searched for it, and neighbors that are searched for.
MEASURED_ROWS, MEASURED_NEIGHBORS = (4096, 16_384), 20

#: Seconds for which each search is repeated: the fastest counts.
SECONDS = 0.03


@dataclass(frozen=True, slots=True)
class Costs:
    """Nanoseconds of one thread for a query, by columns d.

    Attributes
    ----------
    brute : tuple of 3 floats
        Of a query alone, of each row, and of each row and column.
    pruned : tuple of 6 floats
        Of a query alone, of each row that it is compared with, of each such row and column,
        of each cell whose box it is held against, of each cell and column, and, to rotate
        it, of each column's square.
    """

    brute: tuple[float, ...]
    pruned: tuple[float, ...]

    def of_brute(self, n_features: int, n_reference: float) -> float:
        """Return what a query costs that is compared with all rows."""
        query, row, column = self.brute
        return query + n_reference * (row + column * n_features)

    def of_pruned(self, n_features: int, n_pairs: float, n_cells: float) -> float:
        """Return what a query costs that meets so many rows, and cells.

        As many rows of the reference as queries are rotated.
        """
        query, row, column, cell, side, square = self.pruned
        rows = n_pairs * (row + column * n_features)
        cells = n_cells * (cell + side * n_features)
        return query + rows + cells + 2 * square * n_features**2


def machine_costs() -> Costs:
    """Return the costs of the workers: as configured, or as one of them tells.

    Raises
    ------
    ValueError
        If ``lpe-dask.costs`` is not as its default describes.
    """
    given = dask.config.get("lpe-dask.costs", None)
    if given is not None:
        return _checked(given)
    if active_client() is None:
        return Costs(**_costs_here())
    (told,) = compute(*new_tasks("costs", [(_costs_here,)], []))
    return Costs(**told)


def _checked(given: Any) -> Costs:
    try:
        costs = Costs(*(tuple(map(float, given[name])) for name in ("brute", "pruned")))
        sizes = len(costs.brute), len(costs.pruned)
        if sizes == (3, 6) and min(*costs.brute, *costs.pruned) >= 0:
            return costs
    except (KeyError, TypeError, ValueError):
        pass
    raise ValueError(
        f"the configuration key lpe-dask.costs is {given!r}; it must be null, or have the "
        "keys brute (3 numbers of nanoseconds, not negative) and pruned (6 of them)."
    )


# The functions below run inside a task, on a worker.


@cache
def _costs_here() -> dict[str, Any]:
    """Return the costs of this machine, from the file that an earlier process wrote."""
    processor = llvmlite.binding.get_host_cpu_name()
    folder = kernel_folder()
    path = (
        None if folder is None else Path(folder) / f"costs-{processor}-{KERNEL_STATE}.json"
    )
    if path is not None:
        try:
            told = json.loads(path.read_text("utf-8"))
            told.pop("processor")
            return asdict(_checked(told))
        except (OSError, ValueError, KeyError):
            pass
    costs = asdict(measured_costs())
    logger.info("costs of %s in nanoseconds: %s", processor, costs)
    if path is not None:
        _write(path, json.dumps({"processor": processor, **costs}, indent=1))
    return costs


def _write(path: Path, text: str) -> None:
    """Write a file as a whole or not at all: other processes may do the same."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, delete=False
        ) as file:
            file.write(text)
        os.chmod(file.name, 0o644)
        os.replace(file.name, path)
    except OSError as error:
        logger.info("each process measures costs anew: %s", error)


def measured_costs() -> Costs:
    """Time searches among made rows, for some seconds."""
    table = np.random.default_rng(0).standard_normal((MEASURED_ROWS[-1], 256), np.float32)
    few = table[: MEASURED_ROWS[0]]
    basis = ALGORITHMS["pruned"].basis(few)
    square = fastest(lambda: basis.points(few), SECONDS) / few.size / few.shape[1]
    brute = [
        _trial("brute", table[:n_rows, :n_features])
        for n_features in BRUTE_FEATURES
        for n_rows in MEASURED_ROWS
    ]
    pruned = []
    for n_features in PRUNED_FEATURES:
        rows = table[:, :n_features]
        # Rows along a line meet many cells and few rows, the others many of both.
        line = rows[:, :1] * rows[0] + np.float32(0.01) * rows
        for made in (rows[: MEASURED_ROWS[0]], rows, line):
            seconds, causes = _trial("pruned", made)
            pruned.append((max(0.0, seconds - square * n_features**2), causes))
    of_brute = [(seconds, causes[:3]) for seconds, causes in brute]
    return Costs(_prices(of_brute), (*_prices(pruned), square * 1e9))


def _trial(algorithm: str, rows: NDArray[np.float32]) -> tuple[float, list[float]]:
    """Return the seconds of a query, and the numbers that they are explained by."""
    search = Search(Statistic(MEASURED_NEIGHBORS, None), pass_rows=1)
    space = Space(algorithm, Preparation(), ALGORITHMS[algorithm].basis(rows))
    trial = Trial(SampledRows(rows, space, search), np.ascontiguousarray(rows), n_tiles=2)
    cost, d = trial.cost(1, SECONDS), rows.shape[1]
    return cost.seconds, [1.0, cost.pairs, cost.pairs * d, cost.cells, cost.cells * d]


def _prices(trials: list[tuple[float, list[float]]]) -> tuple[float, ...]:
    """Return the nanoseconds of each cause; errors are alike in proportion."""
    from scipy.optimize import nnls  # takes 15 MiB, for the worker that measures only

    seconds = np.array([seconds for seconds, _ in trials]).clip(1e-9)
    causes = np.array([causes for _, causes in trials])
    prices, _ = nnls(causes / seconds[:, None], np.ones(len(trials)))
    return tuple((prices * 1e9).tolist())
