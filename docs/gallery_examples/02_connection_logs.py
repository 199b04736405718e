"""
Connection logs with categories
===============================

Network connections have numbers (bytes, seconds, rates) and categories (protocol, service,
flag). Normal traffic is learned from 10,000 connections. Attacks have labels here, which
are used only to see what was found.
"""

# %%
# The table is that of KDD Cup 1999, if a copy of it is in ``../shared/data`` beside the
# repository, or in the folder that ``LPE_DASK_DATA`` names. Otherwise it is made up, with
# some of its columns. This page was made with:

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import lpe_dask


def made_up_connections(rng, n_normal, n_attacks):
    """Return connections and labels: floods of refused ones, and large files sent."""
    n = n_normal + n_attacks
    services = rng.choice(
        ["http", "smtp", "domain_u", "ftp_data"], n, p=[0.6, 0.2, 0.15, 0.05]
    )
    table = pd.DataFrame(
        {
            "duration": rng.exponential(2, n).round(),
            "protocol_type": np.where(services == "domain_u", "udp", "tcp"),
            "service": services,
            "flag": rng.choice(["SF", "REJ"], n, p=[0.95, 0.05]),
            "src_bytes": rng.lognormal(6, 1, n).round(),
            "dst_bytes": rng.lognormal(8, 1.5, n).round(),
            "count": 1 + rng.poisson(8, n),
            "serror_rate": rng.choice([0, 0.01, 0.02], n, p=[0.9, 0.05, 0.05]),
        }
    )
    label = pd.Series("normal", range(n))
    flood, theft = range(n_normal, n - n_attacks // 4), range(n - n_attacks // 4, n)
    label[flood], label[theft] = "neptune", "warezclient"
    table.loc[flood, "flag"] = "REJ"
    table.loc[flood, "count"] = 1 + rng.poisson(20, len(flood))
    table.loc[flood, "serror_rate"] = rng.choice([0, 0.01, 0.02], len(flood))
    table.loc[theft, "service"] = "ftp_data"
    table.loc[theft, "src_bytes"] = rng.lognormal(9, 1, len(theft)).round()
    order = rng.permutation(n)
    return table.iloc[order].reset_index(drop=True), label[order].reset_index(drop=True)


path = Path(os.environ.get("LPE_DASK_DATA", "../../../shared/data"), "kdd99.parquet")
rng = np.random.default_rng(0)
if path.exists():
    table = pd.read_parquet(path).sample(120_000, random_state=0, ignore_index=True)
    label = table.pop("label")
    is_past = table.pop("part") == "train10pct"
    print(f"KDD Cup 1999: {table.shape[1]} columns")
else:
    table, label = made_up_connections(rng, 25_000, 5_000)
    is_past = pd.Series(rng.random(len(table)) < 0.5)
    print(f"made-up connections: {table.shape[1]} columns")
nominal = table[is_past & (label == "normal")][:5_000]
new = table[~is_past][:5_000]
is_attack = label[new.index] != "normal"
print(
    f"{len(nominal)} nominal connections, {len(new)} new, {is_attack.sum()} of them attacks"
)

# %%
# Most connections have the same few values, and a few have huge ones.
# ``scale="minmax+quantile"`` sees both what is far out and what is an unusual mix. All text
# columns are categories. With ``calibration="conformal"`` at most 1 % of new connections
# like the nominal ones are flagged on average, whatever is learned.

arguments = {"categorical": "auto", "aggregation": "mean", "calibration": "conformal"}
arguments |= {"alpha": 0.01, "random_state": 0}
model = lpe_dask.LPE(scale="minmax+quantile", **arguments).fit(nominal)
p_values = model.score_samples(new)
is_flagged = p_values <= model.alpha
found = pd.DataFrame({"kind": label[new.index], "flagged": is_flagged})
kinds = found.groupby("kind")["flagged"].agg(["size", "mean"]).nlargest(12, "size")
kinds.set_axis(["connections", "flagged"], axis=1).round(3)

# %%
# Left: p-values of the normal ones among the new connections. Their bars are in the band if
# these connections are like the nominal ones, as made-up ones are. Those of KDD Cup 1999
# are not: they were recorded later, and normal traffic had changed by then. Tests of
# :doc:`drift </guide/drift>` notice that without labels. Right: what is found with other
# scales. Without any scale, distances are those of the column with the largest numbers.

figure, (scores, roc) = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained")
n_calibration = len(model.calibration_)
lpe_dask.plot_scores(
    p_values[~is_attack], bins=10, n_calibration=n_calibration, alpha=0.01, ax=scores
)
scores.set_title("normal connections")
for scale in ("minmax+quantile", "quantile", "minmax", "standard", None):
    other = lpe_dask.LPE(scale=scale, **arguments).fit(nominal)
    lpe_dask.plot_roc(
        other.score_samples(new), is_attack, statistic=other.statistic(new),
        label=str(scale), ax=roc,
    )  # fmt: skip
roc.set_title("attacks among new connections")
plt.show()

# %%
# Which columns are the reasons? Here are those of the most frequent kind of attack, and of
# one connection.

most = label[new.index[is_attack]].value_counts().index[0]
attacks = new[is_flagged & (label[new.index] == most)]
figure, axes = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained")
lpe_dask.plot_reasons(model.explain(attacks[:200], top=8), top=8, ax=axes[0])
axes[0].set_title(f"flagged connections of the kind {most!r}")
lpe_dask.plot_reasons(model.explain(attacks[:1]), ax=axes[1])
axes[1].set_title("one of them")
plt.show()

# %%
# :doc:`/guide/choosing` says which scale finds what.
