"""When groups pay: what is found in tables of sites, and how often each site is flagged.

    PYTHONPATH=tests python -m benchmarks.sites [--sets 10] [--alpha 0.05]

Sites are alike, or differ in place, in width or in law. Each anomaly is 5 deviations of its
site out in one column. New rows are as many from each site, nominal ones are not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import dask
import numpy as np
from numpy.typing import NDArray

from benchmarks.report import markdown
from lpe_dask import LPE

N_SITES, N_FEATURES, N_NEW, N_ODD = 30, 4, 200, 50

#: Nominal rows of the sites.
N_ROWS = np.geomspace(100, 2000, N_SITES).round().astype(int)

Rng = np.random.Generator
Array = NDArray[np.float64]

#: How an anomaly is out, in deviations of its site.
ODD = 5.0


def _normal(rng: Rng, codes: NDArray[np.int64]) -> Array:
    return rng.standard_normal((len(codes), N_FEATURES))


def apart(deviations: float) -> Callable[..., Any]:
    """Return a function that gives the places of sites, so far apart, and their widths."""
    return lambda rng: (deviations * _normal(rng, np.arange(N_SITES)), np.ones(N_SITES))


def wide(rng: Rng) -> tuple[Array, Array]:
    """Return places that are one, and widths from 1/2 to 2 in no order."""
    return np.zeros((N_SITES, N_FEATURES)), rng.permutation(np.geomspace(0.5, 2, N_SITES))


def heavy_tailed(rng: Rng, codes: NDArray[np.int64]) -> Array:
    """Return rows that have heavy tails at the ten sites of fewest rows."""
    rows, tails = _normal(rng, codes), rng.standard_t(3, (len(codes), N_FEATURES))
    return np.where((codes < 10)[:, None], tails / np.sqrt(3), rows)


#: Sites -> their places and widths, and the law of rows.
SITES: dict[str, tuple[Callable[..., Any], Callable[..., Array]]] = {
    "alike": (apart(0), _normal),
    "1 deviation apart": (apart(1), _normal),
    "3 deviations apart": (apart(3), _normal),
    "10 deviations apart": (apart(10), _normal),
    "widths of 1/2 to 2": (wide, _normal),
    "ten small ones with heavy tails": (apart(0), heavy_tailed),
}

#: What is compared -> arguments of `LPE`.
MODELS: dict[str, dict[str, Any]] = {
    "no `by`": {},
    '`own=("scale", "neighbors")`': {"own": ("scale", "neighbors")},
    "`by`": {"own": ("scale", "neighbors", "calibration")},
}


def flagged(kind: str, n_sets: int, alpha: float) -> dict[str, tuple[float, float, float]]:
    """Return the shares that models flag, averages over sets.

    Of anomalies, of nominal rows, and of the nominal rows of the site with the largest.
    """
    learn, law = SITES[kind]
    found: dict[str, list[Array]] = {name: [] for name in MODELS}
    for seed in range(n_sets):
        rng = np.random.default_rng([20261129, seed])
        places, widths = learn(np.random.default_rng(0))

        of_sites = [np.repeat(np.arange(N_SITES), n) for n in (N_ROWS, N_NEW, N_ODD)]
        nominal, new, odd = (
            np.c_[places[codes] + widths[codes, None] * law(rng, codes), codes]
            for codes in of_sites
        )
        moved = rng.integers(N_FEATURES, size=len(odd))
        signs = rng.choice([-1, 1], len(odd))
        odd[np.arange(len(odd)), moved] += signs * ODD * widths[odd[:, -1].astype(int)]
        for name, given in MODELS.items():
            by = [N_FEATURES] if given else None
            kept = slice(None) if given else slice(-1)
            model = LPE(
                scale="standard", aggregation="mean", calibration="conformal",
                alpha=alpha, by=by, random_state=seed, **given,
            ).fit(nominal[:, kept])  # fmt: skip
            of_new, of_odd = (
                model.score_samples(of[:, kept]) <= alpha for of in (new, odd)
            )
            of_each = of_new.reshape(N_SITES, N_NEW).mean(axis=1)
            found[name].append(np.append(of_each, of_odd.mean()))
    means = {name: np.mean(of_sets, axis=0) for name, of_sets in found.items()}
    return {
        name: (float(of[-1]), float(of[:-1].mean()), float(of[:-1].max()))
        for name, of in means.items()
    }


@click.command()
@click.option("--sets", default=10, show_default=True, type=click.IntRange(min=1))
@click.option("--alpha", default=0.05, show_default=True)
def main(sets: int, alpha: float) -> None:
    """Print shares found, false alarms of all sites, and those of the worst site."""
    lines = []
    for kind in SITES:
        with dask.config.set(scheduler="sync"):
            shares = flagged(kind, sets, alpha)
        lines.append(
            [kind, *(f"{a:.2f} / {b:.3f} / {c:.3f}" for a, b, c in shares.values())]
        )
    click.echo(markdown(["sites", *MODELS], lines), nl=False)


if __name__ == "__main__":
    main()
