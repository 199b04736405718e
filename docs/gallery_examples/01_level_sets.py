"""
The method in one picture
=========================

How unusual is a row? That is measured by its distance to its K-th nearest nominal row. The
p-value is the share of nominal rows that are at least as far from theirs. ``p <= 0.05``
flags about 5 % of new rows like the nominal ones, whatever their shape, and rows where
there are hardly any.
"""

# sphinx_gallery_thumbnail_number = 2

# %%
# Nominal rows are rows that are known to be normal: here two curved groups, of different
# density.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import make_moons

import lpe_dask

upper = make_moons((300, 0), noise=0.09, random_state=0)[0]
lower = make_moons((0, 200), noise=0.13, random_state=1)[0]
nominal = pd.DataFrame(np.concatenate([upper, lower]), columns=["pressure", "flow"])
new = pd.DataFrame({"pressure": [0.5, 1.35], "flow": [-0.3, 0.8]}, index=["A", "B"])

model = lpe_dask.LPE(n_neighbors=8, alpha=0.05).fit(nominal)
result = pd.DataFrame({"distance": model.statistic(new), "p": model.score_samples(new)})
result.round(3)

# %%
# Left: the circle around a new row reaches its eighth nearest nominal row. That of A is
# small, that of B is large. The line bounds the region in which ``p > 0.05``: outside of
# it, rows are flagged. Right: all nominal rows by the same distance, each measured without
# itself. The share of those that are at least as far out as a new row is its p-value: 29 %
# for A, none for B.

figure, (plane, distances) = plt.subplots(
    1, 2, figsize=(11, 4.6), width_ratios=[1.7, 1], layout="constrained"
)
lpe_dask.plot_level_set(model, box=((-1.7, 2.6), (-1.25, 1.75)), ax=plane)
plane.plot(*nominal.to_numpy().T, ".", color="0.35", markersize=4, label="nominal rows")
neighbors = model.nearest_nominal(new, n=8)
for name, marker, color in [("A", "o", "#0072b2"), ("B", "X", "#d55e00")]:
    x, y = new.loc[name]
    for at in nominal.iloc[neighbors.loc[name, "nominal_row"]].to_numpy():
        plane.plot([x, at[0]], [y, at[1]], color=color, linewidth=0.9)
    radius, p = result.loc[name]
    plane.add_patch(plt.Circle((x, y), radius, fill=False, edgecolor=color, linewidth=2))
    look = {"color": color, "markeredgecolor": "black", "markersize": 10, "zorder": 5}
    plane.plot(x, y, marker, label=f"new row {name}: p = {p:.2g}", linestyle="", **look)
    height = (np.sort(model.calibration_) < radius).sum()
    distances.plot(radius, height, marker, label=name, **look)
    distances.hlines(height, 0, radius, color=color, linestyle=":")
plane.set_aspect("equal")
plane.legend(loc="lower left", fontsize="small")

n = len(nominal)
distances.step(model.calibration_, np.arange(n), color="black", where="pre")
distances.axhspan(0.95 * n, n, color="#d55e00", alpha=0.25, label="p <= 0.05: flagged")
distances.set(xlabel="distance to the 8th nearest nominal row", xlim=(0, None))
distances.set(ylabel="nominal rows with a smaller distance", ylim=(0, 1.03 * n))
distances.legend(loc="lower right")
plt.show()

# %%
# `lpe_dask.plot_level_set` alone draws rows as well. Here are 250 new rows like the nominal
# ones, of which about 5 % are flagged, and 20 from anywhere.

rng = np.random.default_rng(2)
similar = np.concatenate(
    [
        make_moons((150, 0), noise=0.09, random_state=3)[0],
        make_moons((0, 100), noise=0.13, random_state=4)[0],
    ]
)
anywhere = rng.uniform([-1.7, -1.25], [2.6, 1.75], (20, 2))
rows = pd.DataFrame(np.concatenate([similar, anywhere]), columns=nominal.columns)
figure, ax = plt.subplots(figsize=(7.5, 4.6), layout="compressed")
lpe_dask.plot_level_set(model, rows, ax=ax)
ax.set_aspect("equal")
plt.show()
print(f"{(model.predict(rows[:250]) == -1).mean():.1%} of the similar rows are flagged")

# %%
# :doc:`/guide/choosing` helps to choose K, scale and more, and :doc:`/guide/calibration`
# says what is promised.
