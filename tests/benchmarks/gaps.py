"""Which rows with gaps are flagged too often, and how often all are: a simulation.

    PYTHONPATH=tests python -m benchmarks.gaps [--sets 60] [--alpha 0.05]

For three reasons why values are missing, the same in nominal and in new rows: conformal
p-values of rows that are measured with their gaps (``missing="measure"``).
"""

from __future__ import annotations

import click
import dask
import numpy as np
from numpy.typing import NDArray

from lpe_dask import LPE

N_NOMINAL, N_NEW = 1000, 4000


def complete(rng: np.random.Generator, n_rows: int) -> NDArray[np.float64]:
    """Return four normal columns with correlations of 0.36."""
    common = rng.standard_normal((n_rows, 1))
    return 0.6 * common + 0.8 * rng.standard_normal((n_rows, 4))


def _sigmoid(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1 / (1 + np.exp(-2 * values))


#: Why values are missing -> the probability that each value is.
REASONS = {
    "at random": lambda rows: np.full(rows.shape, 0.1),
    "by another column": lambda rows: 0.25 * _sigmoid(rows[:, :1]) * [0, 1, 1, 1],
    "by the value itself": lambda rows: 0.25 * _sigmoid(rows),
}


def with_gaps(rng: np.random.Generator, n_rows: int, reason: str) -> NDArray[np.float64]:
    """Return rows with gaps for a reason."""
    rows = complete(rng, n_rows)
    return np.where(rng.random(rows.shape) < REASONS[reason](rows), np.nan, rows)


@click.command()
@click.option("--sets", default=60, show_default=True, type=click.IntRange(min=1))
@click.option("--alpha", default=0.05, show_default=True)
def main(sets: int, alpha: float) -> None:
    """Print the share of rows that are flagged, of all and by how many gaps they have."""
    for reason in REASONS:
        found = []
        for seed in range(sets):
            rng = np.random.default_rng(seed)
            nominal, new = with_gaps(rng, N_NOMINAL, reason), with_gaps(rng, N_NEW, reason)
            model = LPE(
                missing="measure", scale="standard", aggregation="mean",
                calibration="conformal", random_state=seed,
            )  # fmt: skip
            with dask.config.set(scheduler="sync"):
                is_flagged = model.fit(nominal).score_samples(new) <= alpha
            found.append((np.isnan(new).sum(axis=1), is_flagged))
        n_gaps, is_flagged = (np.concatenate(of) for of in zip(*found, strict=True))
        shares = [f"all: {is_flagged.mean():.4f}"]
        for n in range(4):
            of = is_flagged[n_gaps == n]
            shares.append(f"{n} gaps ({len(of) / len(n_gaps):.3f}): {of.mean():.3f}")
        print(f"{reason}: {', '.join(shares)}")


if __name__ == "__main__":
    main()
