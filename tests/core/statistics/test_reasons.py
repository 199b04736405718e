"""Reasons name the column that is wrong, where we know which one that is."""

import numpy as np
import pandas as pd
import pytest

from choosing import mostly_slow
from lpe_dask import LPE

#: Of the rows with one column shifted, the least of which it has to come first.
N_ROWS, LEAST = 200, 195

#: Standard deviations by which it is shifted, by the number of columns.
SHIFTS = {10: 8, 50: 8, 200: 12}


def correlated(rng, n_rows, n_features):
    """Normal rows, all pairs of columns with a correlation of one half."""
    common = rng.standard_normal((n_rows, 1))
    return np.sqrt(0.5) * (common + rng.standard_normal((n_rows, n_features)))


def planted(n_features, seed):
    """Nominal rows, rows with one column shifted, and which one that is.

    A tenth of the columns is 100 times as wide.
    """
    rng = np.random.default_rng(seed)
    widths = np.where(rng.permutation(n_features) < n_features // 10, 100.0, 1.0)
    nominal, rows = (correlated(rng, n, n_features) for n in (10_000, N_ROWS))
    columns = rng.integers(0, n_features, N_ROWS)
    rows[np.arange(N_ROWS), columns] += SHIFTS[n_features]
    names = [f"c{i}" for i in range(n_features)]
    frames = (pd.DataFrame(some * widths, columns=names) for some in (nominal, rows))
    return *frames, np.array(names)[columns]


CASES = [(d, kind, seed) for d in SHIFTS for kind in ("kth", "mean") for seed in range(5)]
ALWAYS = [(d, kind, 0) for d in SHIFTS for kind in ("kth", "mean")]


@pytest.mark.parametrize(
    ("n_features", "aggregation", "seed"), mostly_slow(CASES, ALWAYS, ALWAYS[:1])
)
def test_explain__names_the_column_that_is_shifted(n_features, aggregation, seed):
    """A row that is not flagged counts as missed."""
    nominal, rows, columns = planted(n_features, seed)
    model = LPE(scale="standard", aggregation=aggregation).fit(nominal)

    first = model.explain(rows, top=1)

    is_flagged = (first["p_value"] <= model.alpha).to_numpy()
    is_named = is_flagged & (first["column"].to_numpy() == columns)
    assert is_named.sum() >= LEAST


# Mixed tables

KINDS = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "amount": lambda rng, n: np.exp(rng.normal(3.5, 0.8, n)).round(2),
    "flag": lambda rng, n: rng.random(n) < 0.1,
    "category": lambda rng, n: rng.choice([*"abcde"], n, p=[0.5, 0.3, 0.1, 0.07, 0.03]),
    "count": lambda rng, n: 1 + rng.poisson(2, n),
    "heavy": lambda rng, n: rng.standard_t(3, n),
    "constant": lambda rng, n: np.full(n, 3.0),
    "even flag": lambda rng, n: rng.random(n) < 0.5,
    "share": lambda rng, n: rng.beta(1.2, 8, n).round(3),
}
NUMBERS = ("normal", "amount", "count", "heavy", "share")


def mixed(n_features, rng, n_rows):
    """A table with columns of all kinds in turn."""
    kinds = [list(KINDS)[i % len(KINDS)] for i in range(n_features)]
    return pd.DataFrame({f"{k} {i}": KINDS[k](rng, n_rows) for i, k in enumerate(kinds)})


def with_cause(rows, column, nominal, size):
    """Rows with a column that is so many standard deviations above its median."""
    value = nominal[column].median() + size * nominal[column].std()
    whole = nominal[column].dtype.kind == "i"
    return rows.assign(**{column: round(value) if whole else value})


def needed(model, nominal, column, rng):
    """The size of a cause with which 95 of 100 rows are flagged."""
    rows, low, high = mixed(nominal.shape[1], rng, 100), 0.0, 1.0

    def n_flagged(size):
        p_values = model.score_samples(with_cause(rows, column, nominal, size))
        return (p_values <= model.alpha).sum()

    while n_flagged(high) < 95:
        low, high = high, 2 * high
    for _ in range(6):
        middle = (low + high) / 2
        low, high = (middle, high) if n_flagged(middle) < 95 else (low, middle)
    return high


MIXED = [
    (d, n_causes, scale, aggregation)
    for d in (2, 5, 20, 60, 200)
    for n_causes in (1, 2, 3)
    for scale in ("standard", "minmax", "minmax+quantile")
    for aggregation in ("kth", "mean")
]
FEW_MIXED = [
    (2, 1, "standard", "kth"), (20, 3, "minmax", "mean"), (20, 2, "standard", "kth"),
    (200, 1, "minmax+quantile", "kth"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("n_features", "n_causes", "scale", "aggregation"),
    mostly_slow(MIXED, FEW_MIXED, FEW_MIXED[:1]),
)
def test_explain__has_the_causes_first_in_mixed_tables(
    n_features, n_causes, scale, aggregation
):
    """Each cause is 1.5 times as large as it takes to be flagged in 95 of 100 rows."""
    rng = np.random.default_rng(n_features + n_causes)
    nominal, rows = (mixed(n_features, rng, n) for n in (2000, N_ROWS))
    numbers = [name for name in nominal if name.rsplit(" ", 1)[0] in NUMBERS]
    categorical = [name for name in nominal if name.startswith("category")] or None
    chosen = list(rng.permutation(numbers)[:6])
    n_causes = min(n_causes, len(chosen))
    model = LPE(
        scale=scale, aggregation=aggregation, categorical=categorical, alpha=0.01
    ).fit(nominal)
    sizes = {name: 1.5 * needed(model, nominal, name, rng) for name in chosen}
    causes = [set(rng.permutation(chosen)[:n_causes]) for _ in range(N_ROWS)]
    for name in chosen:
        is_cause = np.array([name in of_row for of_row in causes])
        rows[name] = rows[name].where(
            ~is_cause, with_cause(rows, name, nominal, sizes[name])[name]
        )

    reasons = model.explain(rows, top=n_causes)

    first = reasons["column"].to_numpy().reshape(N_ROWS, n_causes)
    n_found = sum({*of_row} == of for of_row, of in zip(first, causes, strict=True))
    assert n_found >= LEAST
