"""The claim that geodesic distances converge faster where rows lie on a surface.

Rows are Gaussian on a sheet that is rolled up: on the sheet itself the exact p-value of a
row is known. How tightly it is rolled, and K', the paper does not say.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.integrate import cumulative_trapezoid

from paper import claims
from paper.claims import Judged, Row
from paper.fits import Floats, fit_and_score, generators

#: Nominal rows at which p-values are compared with the exact ones.
SIZES = (200, 3200)

#: Distances of the windings, and neighbors in the graph (K'); the first ones are chosen.
PITCHES = (2 * np.pi, 0.3 * np.pi)
ALL_N_LINKS = (5, 8)

#: Test rows of a draw.
N_TEST = 500

#: Standard deviations of rows along the sheet and across it, where along it they begin, and
#: how many deviations from the middle they end.
_ALONG, _ACROSS, _ENDS = 13.0, 3.0, 4.9


class Sheet:
    """A plane sheet, rolled up along its length into a spiral.

    Parameters
    ----------
    pitch : float
        Distance of the windings.
    """

    def __init__(self, pitch: float) -> None:
        self.growth = pitch / (2 * np.pi)
        length = 2 * _ENDS * _ALONG
        self.turns = np.linspace(0.0, np.sqrt(2 * length / self.growth) + 1.0, 20_001)
        speed = self.growth * np.hypot(1.0, self.turns)
        self.lengths = cumulative_trapezoid(speed, self.turns, initial=0.0)

    def draw(self, rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
        """Return n rows in space, and their exact p-values.

        The mass of a Gaussian of two columns farther than r standard deviations from its
        center is exp(-r^2 / 2).
        """
        on_sheet = rng.standard_normal((n, 2))
        on_sheet[:, 0] = on_sheet[:, 0].clip(-_ENDS, _ENDS)
        turn = np.interp(_ALONG * (on_sheet[:, 0] + _ENDS), self.lengths, self.turns)
        radius = self.growth * turn
        rows = np.stack(
            [radius * np.cos(turn), _ACROSS * on_sheet[:, 1], radius * np.sin(turn)], axis=1
        )
        return rows, np.exp(-(on_sheet**2).sum(axis=1) / 2)


#: K', or None for Euclidean distance -> by how much the logarithm of the error falls in one
#: draw, from few training rows to many.
_Falls = dict[int | None, float]


def faster_row(n_draws: int) -> Row:
    """Return the row on geodesic distances."""
    judged: dict[str, Judged] = {}
    for pitch in PITCHES:
        sheet = Sheet(pitch)
        falls = [_falls(rng, sheet) for rng in generators(6, n_draws)]
        for n_links in ALL_N_LINKS:
            judged[_named(pitch, n_links)] = _judge(falls, n_links)
    chosen = _named(PITCHES[0], ALL_N_LINKS[0])
    verdict = claims.over_choices(judged, chosen, "by the windings and K'")
    return Row(
        "geodesic-faster", "Sec. 3",
        "on a manifold geodesic distance converges faster: fall of the logarithm of the "
        "error beyond that with Euclidean distance",
        "faster", judged[chosen][0],
        f"{n_draws} draws: Gaussian rows on a sheet rolled up in three dimensions, "
        f"n={SIZES[0]} to {SIZES[1]}, K by the rule n^(2/5); error: mean distance of the "
        f"p-values of {N_TEST} nominal rows from the exact ones; {chosen}",
        *verdict,
    )  # fmt: skip


def _named(pitch: float, n_links: int) -> str:
    return f"windings {pitch:.2f} apart, K'={n_links}"


def _judge(falls: list[_Falls], n_links: int) -> Judged:
    beyond = claims.average(fall[n_links] - fall[None] for fall in falls)
    return beyond, claims.is_greater(beyond, "beyond Euclidean distance")


def _falls(rng: np.random.Generator, sheet: Sheet) -> _Falls:
    data = [(sheet.draw(rng, n), sheet.draw(rng, N_TEST)) for n in SIZES]
    falls = {}
    for n_links in (None, *ALL_N_LINKS):
        parameters: dict[str, Any] = {}
        if n_links is not None:
            parameters = {"metric": "geodesic", "metric_params": {"n_neighbors": n_links}}
        errors = []
        for (training, _), (test, exact) in data:
            scored = fit_and_score(training, test, test[:0], **parameters)
            errors.append(np.abs(scored.p_values - exact).mean())
        falls[n_links] = float(np.log(errors[0] / errors[1]))
    return falls
