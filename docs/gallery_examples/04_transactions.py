"""
Transactions with heavy tails
=============================

Amounts of money have heavy tails: a few are a thousand times as large as most. Then a
distance is mostly one of amounts, and what is unusual in another way is hidden. This
example compares what can be done about that.
"""

# sphinx_gallery_thumbnail_number = 2

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import lpe_dask

rng = np.random.default_rng(0)
KINDS = pd.DataFrame(
    {"share": [0.5, 0.3, 0.2], "typical": [25, 60, 400], "hour": [17, 12, 20]},
    index=["grocery", "fuel", "travel"],
)


def payments(n):
    """Return payments, each with an amount and a time of day that depend on its kind."""
    kinds = rng.choice(KINDS.index, n, p=KINDS["share"])
    typical, hour = KINDS.loc[kinds, "typical"], KINDS.loc[kinds, "hour"]
    return pd.DataFrame(
        {
            "amount": typical.to_numpy()
            * rng.lognormal(0, 0.6, n)
            * (1 + rng.pareto(2.5, n)),
            "hour": (hour.to_numpy() + rng.normal(0, 2, n)).clip(0, 24),
            "days_since_last": rng.lognormal(0.5, 1.2, n),
            "kind": kinds,
        }
    )


nominal = payments(5000)
nominal.describe().round(1)

# %%
# New payments with three kinds of fraud: huge amounts, a grocery that costs as much as a
# journey, and payments in the small hours.

new = payments(2300)
cause = np.repeat(
    ["none", "huge amount", "costly grocery", "at night"], [2000, 100, 100, 100]
)
new.loc[cause == "huge amount", "amount"] *= 300
new.loc[cause == "costly grocery", "kind"] = "grocery"
new.loc[cause == "costly grocery", "amount"] = 900 * rng.lognormal(0, 0.3, 100)
new.loc[cause == "at night", "hour"] = rng.uniform(2, 5, 100)

# %%
# The share of each that has ``p <= 0.01``, for some scales. Without one amounts alone
# decide, and the standard deviation of amounts is mostly that of the largest ones.
# ``"quantile"`` spreads out what is usual, and finds the most of the unusual mixes; how far
# out a value is it hardly sees, but here it is enough. With logarithms, twice as much is as
# far away for small amounts as for large ones, which makes ``"standard"`` much better. No
# choice is the best for every cause, and none raises more false alarms (the column "none").


def logarithmic(rows):
    """Return payments with logarithms of what has a heavy tail."""
    heavy = ["amount", "days_since_last"]
    return rows.assign(**np.log10(rows[heavy]))


shared = {"categorical": ["kind"], "aggregation": "mean", "calibration": "conformal"}
shared |= {"alpha": 0.01, "random_state": 0}
choices = {
    "no scale": (None, None),
    "standard": ("standard", None),
    "minmax": ("minmax", None),
    "quantile": ("quantile", None),
    "minmax+quantile": ("minmax+quantile", None),
    "logarithms, standard": ("standard", logarithmic),
}
flagged, curves = {}, {}
for name, (scale, change) in choices.items():
    learned, rows = (nominal, new) if change is None else (change(nominal), change(new))
    model = lpe_dask.LPE(scale=scale, **shared).fit(learned)
    p_values = model.score_samples(rows)
    flagged[name] = (p_values <= 0.01).groupby(cause).mean()
    curves[name] = p_values, model.statistic(rows)
pd.DataFrame(flagged).T.round(2)[["none", "huge amount", "costly grocery", "at night"]]

# %%
# The same as ROC curves, for all frauds together and up to 10 % of false alarms.

fig, ax = plt.subplots(figsize=(6, 4.6), layout="constrained")
for name, (p_values, statistic) in curves.items():
    lpe_dask.plot_roc(p_values, cause != "none", statistic=statistic, label=name, ax=ax)
ax.set_xlim(-0.002, 0.1)
plt.show()

# %%
# The last model in pairs of columns, with every sixth payment. Crosses outside of a line
# are unusual in these two columns already: huge amounts and payments at night. Costly
# groceries are inside of all lines: their amounts are unusual only together with their
# kind.

columns = ["amount", "hour", "days_since_last"]
axes = lpe_dask.plot_pairs(
    model, logarithmic(nominal), logarithmic(new[::6]), columns=columns
)
for ax, name in [(axes[2, 0], "log10 of amount"), (axes[2, 2], "log10 of days since last")]:
    ax.set_xlabel(name)
plt.show()

# %%
# The reasons of costly groceries are their kind and their amount.

groceries = logarithmic(new[cause == "costly grocery"])
fig, ax = plt.subplots(figsize=(6, 2.8), layout="constrained")
lpe_dask.plot_reasons(model.explain(groceries), ax=ax)
plt.show()

# %%
# :doc:`/guide/choosing` has such a table for more data.
