"""What comparing rows costs on a machine, in nanoseconds: measured once, then read.

    lpe-dask.costs, else a file beside the compiled kernels, else --timed--> Costs, file

"auto" decides by these and by numbers of pairs, so that it decides alike each time.
"""

from __future__ import annotations

import logging
import math
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Self, cast

import dask
import llvmlite.binding
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

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

#: Seconds for which each search is repeated, and how often that is done to all of them:
#: the fastest counts, and what else a machine does lasts a while.
SECONDS, ROUNDS = 0.02, 2

#: Nanoseconds that everything takes: a clock may be too coarse to tell any.
LEAST_PRICE = 1e-6


#: Nanoseconds.
_Price = Annotated[float, Field(ge=0)]


class Costs(BaseModel):
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

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    brute: tuple[_Price, _Price, _Price]
    pruned: tuple[_Price, _Price, _Price, _Price, _Price, _Price]

    @model_validator(mode="after")
    def _compares(self) -> Self:
        if self.brute[1] + self.brute[2] == 0:
            raise ValueError("to compare rows costs something")
        return self

    def of_brute(self, n_features: int, n_reference: float) -> float:
        """Return what a query costs that is compared with all rows."""
        return self.brute[0] + self.of_rows(n_features, n_reference)

    def of_rows(self, n_features: int, n_rows: float) -> float:
        """Return what so many more rows cost a query that is compared with all."""
        _, row, column = self.brute
        return n_rows * (row + column * n_features)

    def of_pruned(self, n_features: int, n_pairs: float, n_cells: float) -> float:
        """Return what a query costs that meets so many rows, and cells."""
        query, row, column, cell, side, _ = self.pruned
        rows = n_pairs * (row + column * n_features)
        cells = n_cells * (cell + side * n_features)
        return query + rows + cells + self.of_rotation(n_features)

    def of_rotation(self, n_features: int) -> float:
        """Return what a query costs to be rotated, and as many rows of the reference."""
        return 2 * self.pruned[-1] * n_features**2


def machine_costs() -> Costs:
    """Return the costs of the workers: as configured, or as one of them tells.

    Raises
    ------
    ValueError
        If ``lpe-dask.costs`` is not as its default describes.
    """
    given = dask.config.get("lpe-dask.costs", None)
    if given is not None:
        return _configured(given)
    if active_client() is None:
        return _costs_here()
    (told,) = compute(*new_tasks("costs", [(_costs_here,)], []))
    return cast(Costs, told)


def _configured(given: Any) -> Costs:
    try:
        return Costs.model_validate(given)
    except ValidationError as error:
        raise ValueError(
            f"the configuration key lpe-dask.costs is {given!r}; it must be null, or have "
            "the keys brute (3 numbers of nanoseconds, finite and not negative, of which "
            "the second or the third is not 0) and pruned (6 of them)."
        ) from error


# The functions below run inside a task, on a worker.


@cache
def _costs_here() -> Costs:
    """Return the costs of this machine, from the file that an earlier process wrote."""
    processor = llvmlite.binding.get_host_cpu_name()
    folder = kernel_folder()
    if folder is None:
        return measured_costs()
    path = Path(folder) / f"costs-{processor}-{KERNEL_STATE}.json"
    costs = _read(path)
    if costs is not None:
        return costs
    costs = measured_costs()
    _write(path, costs.model_dump_json(indent=1))
    return _read(path) or costs  # of two processes at once, both take those of the first


def _read(path: Path) -> Costs | None:
    try:
        return Costs.model_validate_json(path.read_bytes())
    except OSError:
        return None
    except ValidationError:
        path.unlink(missing_ok=True)
        return None


def _write(path: Path, text: str) -> None:
    """Write a file as a whole, unless another process has done so or nothing can be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            written = Path(folder) / path.name
            written.write_text(text, "utf-8")
            with suppress(FileExistsError):
                path.hardlink_to(written)
    except OSError as error:
        logger.info("each process measures costs anew: %s", error)


def measured_costs() -> Costs:
    """Time searches among made rows, for one or two seconds."""
    table = np.random.default_rng(0).standard_normal((MEASURED_ROWS[-1], 256), np.float32)
    few = table[: MEASURED_ROWS[0]]
    basis = ALGORITHMS["pruned"].basis(few)
    square = math.inf
    best: dict[tuple[str, int, int], tuple[float, list[float]]] = {}
    for _ in range(ROUNDS):
        seconds = fastest(lambda: basis.points(few), SECONDS)
        square = min(square, seconds / few.size / few.shape[1])
        for n_features in BRUTE_FEATURES:
            examples = _examples(table[:, :n_features])
            for number, (algorithm, rows) in enumerate(examples):
                key = algorithm, n_features, number
                best[key] = min(best.get(key, (math.inf, [])), _trial(algorithm, rows))
    brute, pruned = [], []
    for (algorithm, n_features, _), (seconds, causes) in best.items():
        if algorithm == "brute":
            brute.append((seconds, causes[:3]))
        else:
            pruned.append((max(0.0, seconds - square * n_features**2), causes))
    costs = Costs(brute=_prices(brute), pruned=(*_prices(pruned), square * 1e9))
    logger.info("costs in nanoseconds: %s", costs)
    return costs


def _examples(table: NDArray[np.float32]) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Give algorithms, and rows to try them on."""
    few = table[: MEASURED_ROWS[0]]
    yield "brute", few
    yield "brute", table
    if table.shape[1] in PRUNED_FEATURES:
        yield "pruned", few
        yield "pruned", table
        # Rows along a line meet many cells and few rows, the others many of both.
        yield "pruned", table[:, :1] * table[0] + np.float32(0.01) * table


def _trial(algorithm: str, rows: NDArray[np.float32]) -> tuple[float, list[float]]:
    """Return the seconds of a query, and the numbers that they are explained by."""
    search = Search(Statistic(MEASURED_NEIGHBORS, None), pass_rows=1)
    space = Space(algorithm, Preparation(), ALGORITHMS[algorithm].basis(rows))
    trial = Trial(SampledRows(rows, space, search), np.ascontiguousarray(rows), n_tiles=2)
    cost, d = trial.cost(1, SECONDS), rows.shape[1]
    return cost.seconds, [1.0, cost.pairs, cost.pairs * d, cost.cells, cost.cells * d]


def _prices(trials: list[tuple[float, list[float]]]) -> Any:
    """Return the nanoseconds of each cause; errors are alike in proportion."""
    from scipy.optimize import nnls  # takes 15 MiB, for the worker that measures only

    seconds = np.array([seconds for seconds, _ in trials]).clip(1e-9)
    causes = np.array([causes for _, causes in trials])
    prices, _ = nnls(causes / seconds[:, None], np.ones(len(trials)))
    return tuple((prices * 1e9).clip(LEAST_PRICE).tolist())
