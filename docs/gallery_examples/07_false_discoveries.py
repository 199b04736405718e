"""
Few false alarms among what is flagged
======================================

Of 10,000 rows like the nominal ones, 100 have ``p <= 0.01``. If there are 50 anomalies, two
thirds of what is flagged are false alarms. `lpe_dask.false_discovery_control` keeps their
share, on average, at most at a level that you choose.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import lpe_dask

rng = np.random.default_rng(0)
times = pd.date_range("2026-11-01", periods=10_000, freq="min")


def rows(n):
    """Return nominal rows of two columns, or new rows like them."""
    return pd.DataFrame(rng.standard_normal((n, 2)), columns=["x", "y"])


model = lpe_dask.LPE(calibration="conformal", random_state=0).fit(rows(40_000))
table = rows(10_000).set_index(times)
is_anomaly = np.zeros(10_000, bool)
is_anomaly[7000:7400:8] = True  # 50, within hours
table.loc[is_anomaly, "x"] += 6
p_values = model.score_samples(table)
by_alpha = p_values <= 0.01
by_rate = lpe_dask.false_discovery_control(p_values, q=0.1)
pd.DataFrame(
    {
        name: {"flagged": flags.sum(), "false alarms": (flags & ~is_anomaly).sum()}
        for name, flags in {"p <= 0.01": by_alpha, "rate of 10 %": by_rate}.items()
    }
)

# %%
# Crosses are the flagged rows: above by alpha, below by the false discovery rate.

figure, axes = plt.subplots(2, 1, figsize=(9, 6), sharex=True, layout="constrained")
lpe_dask.plot_timeline(p_values, alpha=0.01, ax=axes[0])
lpe_dask.plot_timeline(p_values, is_flagged=by_rate, ax=axes[1])
axes[0].set_xlabel("")
plt.show()

# %%
# Either takes p-values that are right. Of new rows like the nominal ones, a share alpha has
# ``p <= alpha``, down to small alphas.

figure, ax = plt.subplots(figsize=(5.5, 4.2), layout="constrained")
lpe_dask.plot_calibration(p_values[~is_anomaly], ax=ax)
plt.show()

# %%
# This is how it works (Benjamini and Hochberg): p-values are sorted, and all up to the last
# one below the line ``q i / n`` are flagged. With more anomalies, the cut-off is higher;
# with none, mostly nothing is flagged.

figure, ax = plt.subplots(figsize=(6.5, 4.2), layout="constrained")
smallest = np.sort(p_values.to_numpy())[:120]
ranks = np.arange(1, 121)
n_flagged = int(by_rate.sum())
ax.plot(ranks, 0.1 * ranks / len(table), color="black", label="q i / n, for q = 0.1")
ax.plot(ranks[:n_flagged], smallest[:n_flagged], "X", color="#d55e00", label="flagged")
ax.plot(ranks[n_flagged:], smallest[n_flagged:], ".", color="0.4", label="not flagged")
ax.set(xlabel="rank i of the p-value", ylabel="p-value")
ax.legend()
plt.show()

# %%
# It holds on average. Here are 200 tables, each with other nominal rows: the share of false
# alarms among the flagged rows varies, and its mean is about 9.5 %, the share of normal
# rows times q. It takes enough nominal rows: with m of them in the calibration, no p-value
# is below 1 / (m + 1), and a single row of n is flagged only if that is at most q / n.

shares = []
for seed in range(200):
    rng = np.random.default_rng(seed)
    fitted = lpe_dask.LPE(5, calibration="conformal", random_state=seed).fit(
        rng.standard_normal((4000, 2))
    )
    tested = rng.standard_normal((500, 2))
    tested[:25] += 5
    flags = lpe_dask.false_discovery_control(fitted.score_samples(tested), q=0.1)
    shares.append(flags[25:].sum() / max(1, flags.sum()))
figure, ax = plt.subplots(figsize=(6.5, 3.6), layout="constrained")
ax.hist(shares, bins=np.arange(0, 0.4, 0.04), facecolor="0.82", edgecolor="black")
ax.axvline(
    np.mean(shares), color="#d55e00", linestyle="--", label=f"mean {np.mean(shares):.3f}"
)
ax.axvline(0.1, color="black", label="q = 0.1")
ax.set(xlabel="share of false alarms among flagged rows", ylabel="tables")
ax.legend()
plt.show()

# %%
# :doc:`/guide/decisions` says which level to take, and what holds for the nominal rows at
# hand.
