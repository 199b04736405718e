"""Run all experiments: the figures, paper.csv, and paper.md from it."""

from __future__ import annotations

import argparse
import logging
import time
from collections import Counter
from pathlib import Path

import dask

from paper import banana, clairvoyant, level_sets, real_data, theory
from paper.page import write_page, write_table

#: Pixels per inch.
RESOLUTION = 110


def run_paper(output: Path, folder: Path | None, draws: int | None) -> None:
    """Run the experiments one after the other, and write what they give.

    Parameters
    ----------
    output : Path
        Folder to write: figure-1.png to figure-5.png, paper.csv and paper.md.
    folder : Path, optional
        Contains banana.npz, wine.npz, ionosphere.npz and usps.npz. None: OpenML and
        scikit-learn.
    draws : int, optional
        Draws of each average, at least 2. None: 100 to 1000, as each figure needs.
    """
    given = {} if draws is None else {"n_draws": draws}
    runs = {
        1: lambda: level_sets.run(**given),
        2: lambda: banana.run(folder=folder, **given),
        3: lambda: clairvoyant.run(**given),
        4: lambda: real_data.run(folder=folder, **given),
        5: lambda: theory.run(folder=folder, **given),
    }
    output.mkdir(parents=True, exist_ok=True)
    rows = {}
    for number, run in runs.items():
        began = time.perf_counter()
        experiment = run()
        experiment.figure.savefig(output / f"figure-{number}.png", dpi=RESOLUTION)
        rows[number] = experiment.rows
        print(f"Figure {number}: {time.perf_counter() - began:.0f} s", flush=True)
    write_table(output / "paper.csv", rows)
    write_page(output / "paper.md", output / "paper.csv")
    counts = Counter(row.verdict for of_figure in rows.values() for row in of_figure)
    print(", ".join(f"{verdict}: {count}" for verdict, count in counts.items()))


def main() -> None:
    """Read the arguments, and run the experiments in this thread."""
    parser = argparse.ArgumentParser(prog="python -m paper", description=__doc__)
    parser.add_argument("output", type=Path, help="folder to write")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="default: from OpenML")
    parser.add_argument("--draws", type=int, metavar="N", help="fewer, to try it")
    given = parser.parse_args()
    if given.draws is not None and given.draws < 2:
        parser.error(f"--draws {given.draws} is too few for a standard error: at least 2")
    # Fits warn if no row can be flagged; the table gives the share of such splits.
    logging.getLogger("lpe_dask").setLevel(logging.ERROR)
    with dask.config.set(scheduler="synchronous"):
        run_paper(given.output, given.data, given.draws)


if __name__ == "__main__":
    main()
