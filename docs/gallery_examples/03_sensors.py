"""
Sensors with gaps, in groups
============================

Three sites have sensors with different normal values, and 5 % of the values are missing.
Each site is compared with its own nominal rows (``by=``), and rows are measured with their
gaps (``missing="measure"``).
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import lpe_dask

rng = np.random.default_rng(0)
SITES = pd.DataFrame(
    {"heat": [20.0, 35.0, 28.0], "pressure": [3.0, 8.0, 5.0], "noise": [0.3, 1.5, 0.3]},
    index=["north", "south", "west"],
)


def readings(n_hours, start):
    """Return readings of all sites, with gaps."""
    parts = []
    for site, (heat, pressure, noise) in SITES.iterrows():
        load = rng.normal(0, 1, n_hours)  # moves all sensors of a site
        parts.append(
            pd.DataFrame(
                {
                    "site": site,
                    "heat": heat + 2 * load + rng.normal(0, noise, n_hours),
                    "pressure": pressure + load / 2 + rng.normal(0, noise / 4, n_hours),
                    "current": 10 + load + rng.normal(0, noise / 2, n_hours),
                },
                index=pd.date_range(start, periods=n_hours, freq="h", name="time"),
            )
        )
    table = pd.concat(parts)
    sensors = ["heat", "pressure", "current"]
    return table.assign(**table[sensors].mask(rng.random((len(table), 3)) < 0.05))


nominal = readings(2000, "2026-08-01")
new = readings(400, "2026-11-01")

# %%
# Two faults: in the north, the pressure sensor drifts away during the last days. In the
# west, it is stuck at a value that is usual by itself, but does not go with the load.

hours = pd.Series(new.groupby("site").cumcount().to_numpy(), new.index)
drifts = ((new["site"] == "north") & (hours >= 300)).to_numpy()
sticks = ((new["site"] == "west") & (hours >= 200) & (hours < 260)).to_numpy()
new.loc[drifts, "pressure"] += 0.02 * (hours[drifts] - 300)
new["pressure"] = new["pressure"].mask(sticks & new["pressure"].notna(), 5.4)
new.isna().mean().round(3)

# %%
# One model has a scale, neighbors and a calibration of each site. With
# ``calibration="conformal"`` at most 1 % of the rows of each site are false alarms, on
# average over nominal rows.

model = lpe_dask.LPE(
    by=["site"], missing="measure", scale="standard", aggregation="mean",
    calibration="conformal", alpha=0.01, random_state=0,
).fit(nominal)  # fmt: skip
p_values = model.score_samples(new)
model.groups_.iloc[:, :5]

# %%
# In the north p-values fall as the sensor drifts away; late rows that are not flagged have
# a gap there. In the west p-values are low while the sensor is stuck, except where the load
# happens to be about what it says.

figure, axes = plt.subplots(3, 1, figsize=(9, 7.5), sharex=True, layout="constrained")
for ax, site in zip(axes, SITES.index, strict=True):
    lpe_dask.plot_timeline(p_values[new["site"] == site], alpha=0.01, ax=ax)
    ax.set(title=site, ylabel="p-value", xlabel="")
plt.show()

# %%
# A model that ignores the sites takes the rows of all sites together as normal. It finds
# far less, as what is a fault in one site is usual in another.

one_for_all = lpe_dask.LPE(
    missing="measure", scale="standard", aggregation="mean",
    calibration="conformal", alpha=0.01, random_state=0,
).fit(nominal.drop(columns="site"))  # fmt: skip
flags = pd.DataFrame(
    {
        "a model with by": p_values.to_numpy() <= 0.01,
        "a model without": one_for_all.predict(new.drop(columns="site")) == -1,
        "rows": np.select(
            [drifts, sticks], ["drift in north", "stuck in west"], "no fault"
        ),
    }
)
flags.groupby("rows").mean().round(3)

# %%
# The reasons name the sensor. A row with a gap is explained as well.

figure, axes = plt.subplots(1, 2, figsize=(10, 3.2), layout="constrained")
flagged = (p_values <= 0.01).to_numpy()
for ax, (name, rows) in zip(axes, {"north": drifts, "west": sticks}.items(), strict=True):
    rows_of_site = new[rows & flagged].reset_index(drop=True)
    lpe_dask.plot_reasons(model.explain(rows_of_site), ax=ax)
    ax.set_title(name)
plt.show()

# %%
# More about :doc:`groups </guide/groups>` and :doc:`missing values
# </guide/missing_values>`.
