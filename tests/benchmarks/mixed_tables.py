"""Tables of numbers, categories and flags with planted anomalies, each of one known cause.

    orders    amounts by region, discounts, items, days      ordinary tails
    traffic   bytes and seconds by protocol, loads           heavy tails

Nominal rows may have anomalies of the same cause among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
import pandas as pd

from benchmarks.finding import Problem

#: Share of the nominal rows that are anomalies.
CONTAMINATIONS = (0.0, 0.005, 0.02)

#: Anomalies among the rows to judge, as a share of the others.
JUDGED_ANOMALIES = 0.05

Rng = np.random.Generator


def orders(n: int, rng: Rng) -> pd.DataFrame:
    """Return orders: larger amounts in rarer regions, delivery in about 3 or 12 days."""
    region = rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    is_slow = rng.random(n) < 0.3
    return pd.DataFrame(
        {
            "region": np.array(["north", "south", "east", "west"])[region],
            "channel": rng.choice(["web", "app", "phone"], n, p=[0.6, 0.35, 0.05]),
            "amount": np.exp(rng.normal(3 + region, 0.5)),
            "items": 1 + rng.poisson(2, n),
            "discount": rng.beta(1.2, 8, n),
            "days": np.where(is_slow, rng.normal(12, 1, n), rng.normal(3, 0.7, n)),
            "is_gift": rng.random(n) < 0.1,
            "is_express": ~is_slow & (rng.random(n) < 0.3),
        }
    )


def traffic(n: int, rng: Rng) -> pd.DataFrame:
    """Return connections: bytes and seconds of Pareto's law, which rise together."""
    protocol = rng.choice(3, n, p=[0.8, 0.17, 0.03])
    seconds = 0.1 * (1 + rng.pareto(1.2, n))
    is_night = rng.random(n) < 0.25
    return pd.DataFrame(
        {
            "protocol": np.array(["tcp", "udp", "icmp"])[protocol],
            "service": rng.choice(["web", "mail", "dns"], n, p=[0.7, 0.25, 0.05]),
            "bytes": 1000 * seconds * np.exp(rng.normal(protocol, 0.3)),
            "seconds": seconds,
            "errors": rng.poisson(0.05, n),
            "load": np.where(is_night, rng.normal(0.2, 0.03, n), rng.normal(0.7, 0.05, n)),
            "delay": 20 + 5 * rng.standard_t(3, n),
            "is_encrypted": rng.random(n) < 0.9,
            "is_night": is_night,
        }
    )


def _tails(name: str, rows: pd.DataFrame, rng: Rng) -> None:
    is_first = rng.random(len(rows)) < 0.5  # one number is far out, or another
    if name == "orders":
        rows.loc[is_first, "amount"] *= 60
        rows.loc[~is_first, "items"] = rng.integers(25, 60, (~is_first).sum())
    else:
        rows.loc[is_first, "delay"] *= 8
        rows.loc[~is_first, "errors"] = rng.integers(5, 20, (~is_first).sum())


def _middle(name: str, rows: pd.DataFrame, rng: Rng) -> None:
    column, low, high = {"orders": ("days", 6, 9), "traffic": ("load", 0.32, 0.5)}[name]
    rows[column] = rng.uniform(low, high, len(rows))


def _combinations(name: str, rows: pd.DataFrame, rng: Rng) -> None:
    if name == "orders":  # the amounts of the rarest region in the most frequent one
        rows["region"], rows["amount"] = "north", np.exp(rng.normal(6, 0.5, len(rows)))
    else:
        rows["is_night"] = ~rows["is_night"]
        rows["bytes"] *= 10


def _categories(name: str, rows: pd.DataFrame, rng: Rng) -> None:
    column = {"orders": "channel", "traffic": "service"}[name]
    rows[column] = "never seen"


def _flags(name: str, rows: pd.DataFrame, rng: Rng) -> None:
    if name == "orders":  # express orders are never slow
        rows["days"], rows["is_express"] = rng.normal(12, 1, len(rows)), True
    else:  # none at night
        rows["protocol"], rows["is_encrypted"] = "icmp", False


TABLES = {"orders": orders, "traffic": traffic}
CAUSES: dict[str, Callable[[str, pd.DataFrame, Rng], None]] = {
    "tails": _tails,
    "middle": _middle,
    "combinations": _combinations,
    "categories": _categories,
    "flags": _flags,
}


def mixed_problems(n_rows: int, seed: int) -> Iterator[tuple[str, float, Problem]]:
    """Yield a cause, a contamination, and a problem of these, for each table."""
    for table, cause, share in product(TABLES, CAUSES, CONTAMINATIONS):
        rng = np.random.default_rng(seed)
        nominal = _planted(table, cause, n_rows, round(share * n_rows), rng)
        n_judged = round(JUDGED_ANOMALIES * n_rows)
        rows = _planted(table, cause, n_rows + n_judged, n_judged, rng)
        problem = Problem(
            f"{table}, {cause}, {share:.1%}", nominal, rows,
            np.arange(len(rows)) < n_judged, np.ones(len(rows), int),
            [*nominal.select_dtypes(exclude="number")],
        )  # fmt: skip
        yield cause, share, problem


def _planted(table: str, cause: str, n: int, n_odd: int, rng: Rng) -> pd.DataFrame:
    """Return n rows, the first of which are anomalies."""
    rows, odd = TABLES[table](n - n_odd, rng), TABLES[table](n_odd, rng)
    if n_odd == 0:
        return rows
    CAUSES[cause](table, odd, rng)
    return pd.concat([odd, rows], ignore_index=True)
