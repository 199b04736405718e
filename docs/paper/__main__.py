"""Run all experiments, and write their output folder completely or not at all."""

from __future__ import annotations

import logging
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from os import PathLike
from pathlib import Path

import dask

from lpe_dask.paper import banana, clairvoyant, level_sets, real_data, theory
from lpe_dask.paper.claims import Experiment
from lpe_dask.paper.data import DataMissing
from lpe_dask.paper.page import check_installed, write_page

logger = logging.getLogger(__name__)

#: Names of the files that a run writes; only a folder of such files is replaced.
_OWN_NAME = re.compile(r"figure-[1-5]\.png|index\.html|table\.csv")

#: The fewest draws that have a standard error.
LEAST_DRAWS = 2


def run_paper(
    output: str | PathLike[str],
    data: str | PathLike[str] | None = None,
    *,
    overwrite: bool = False,
    draws: int | None = None,
) -> list[Experiment]:
    """Run the paper's experiments, write figures and a page, and return the experiments.

    Computes in this process. Experiments whose data are not available are left out; the log
    and the page say so.

    Parameters
    ----------
    output : path
        Folder to write: figure-1.png to figure-5.png, index.html and table.csv.
    data : path, optional
        Folder of banana.npz, wine.npz, ionosphere.npz and usps.npz. None: fetch them from
        OpenML and scikit-learn.
    overwrite : bool, default=False
        Replace ``output`` if an earlier run wrote it.
    draws : int, optional
        Draws of each average, at least 2. None: 100 to 1000, as each figure needs.

    Raises
    ------
    FileExistsError
        If ``output`` exists, and ``overwrite`` is False or it was not written by a run.
    FileNotFoundError
        If the folder ``data`` does not exist.
    ImportError
        If matplotlib or jinja2 is missing.
    ValueError
        For fewer than 2 draws.
    """
    check_installed()
    if draws is not None and draws < LEAST_DRAWS:
        raise ValueError(
            f"draws={draws} is too few for a standard error. Give at least {LEAST_DRAWS}."
        )
    folder = None if data is None else _checked_data(Path(data))
    place = _checked_output(Path(output), overwrite)
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{place.name}-", dir=place.parent) as parent:
        experiments, skipped = _run_all(folder, draws)
        complete = Path(parent) / "page"
        complete.mkdir()
        write_page(complete, experiments, skipped, draws)
        if place.exists():
            shutil.rmtree(place)
        complete.rename(place)
    return experiments


def _checked_data(folder: Path) -> Path:
    if not folder.is_dir():
        raise FileNotFoundError(
            f"there is no folder {folder}. Give the folder of banana.npz, wine.npz, "
            f"ionosphere.npz and usps.npz, or leave out --data to fetch them from OpenML."
        )
    return folder


def _checked_output(place: Path, overwrite: bool) -> Path:
    """Return the absolute path of the output, which does not exist or may be replaced."""
    place = place.resolve()
    if not place.exists():
        return place
    if not overwrite:
        raise FileExistsError(
            f"the output {place} exists. Give another folder, or replace it "
            f"(overwrite=True, --overwrite)."
        )
    if not place.is_dir():
        raise FileExistsError(f"the output {place} is a file. Give another name.")
    foreign = sorted(p.name for p in place.iterdir() if not _OWN_NAME.fullmatch(p.name))
    if foreign:
        raise FileExistsError(
            f"the output {place} contains files that are not the output of a run: "
            f"{', '.join(foreign[:3])}. Only output of an earlier run can be replaced. "
            f"Give another folder, or move those files away."
        )
    return place


def _run_all(folder: Path | None, draws: int | None) -> tuple[list[Experiment], list[str]]:
    """Return the experiments that could be run, and what was skipped and why."""
    given = {} if draws is None else {"n_draws": draws}
    runs: dict[int, Callable[..., Experiment]] = {
        1: level_sets.run,
        2: partial(banana.run, folder=folder),
        3: clairvoyant.run,
        4: partial(real_data.run, folder=folder),
        5: partial(theory.run, folder=folder),
    }
    experiments, skipped = [], []
    with _many_small_fits():
        for number, run in runs.items():
            began = time.perf_counter()
            try:
                experiment = run(**given)
            except DataMissing as error:
                skipped.append(f"Figure {number}: {error}")
                logger.warning("Figure %d is left out: %s", number, error)
                continue
            experiments.append(experiment)
            skipped += [f"Figure {number}, {what}" for what in experiment.skipped]
            for what in experiment.skipped:
                logger.warning("Figure %d, left out: %s", number, what)
            seconds = time.perf_counter() - began
            logger.info("Figure %d, %s: %.0f s", number, experiment.title, seconds)
    return experiments, skipped


@contextmanager
def _many_small_fits() -> Iterator[None]:
    """Compute in this thread, and log messages about experiments, but not about fits.

    Fits warn if no row can be flagged; the table gives the share of such splits.
    """
    package, own = logging.getLogger("lpe_dask"), logging.getLogger("lpe_dask.paper")
    levels = package.level, own.level
    own.setLevel(own.getEffectiveLevel())
    if not own.isEnabledFor(logging.DEBUG):
        package.setLevel(logging.ERROR)
    try:
        with dask.config.set(scheduler="synchronous"):
            yield
    finally:
        package.setLevel(levels[0])
        own.setLevel(levels[1])
