"""
Drift over 30 runs, and the page of a run
=========================================

A job scores the rows of each day with a saved model, and tests whether they still are as
the nominal rows were. Here a sensor slowly loses its zero from day 18 on. The page of the
last run is below.
"""

# %%
# A job file says what a run does: ``{date}`` is the day. Usually the command ``lpe-dask run
# job.toml`` is started by a scheduler each day. Here are 30 days in a row.

import html
import logging
import tempfile
from pathlib import Path

import dask
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import lpe_dask

logging.getLogger("lpe_dask").setLevel(logging.ERROR)  # 30 runs say a lot
rng = np.random.default_rng(0)
temporary = tempfile.TemporaryDirectory()
folder = Path(temporary.name)
JOB = f"""
[nominal]
data = "{folder}/nominal.parquet"
[model]
path = "{folder}/model"
scale = "standard"
aggregation = "mean"
calibration = "conformal"
random_state = 0
[score]
data = "{folder}/in/{{date}}.parquet"
output = "{folder}/out/{{date}}"
alpha = 0.01
report = false  # a page of each run is what takes longest here
"""


def readings(n, start):
    """Return readings of four sensors."""
    load = rng.normal(0, 1, n)
    table = pd.DataFrame(
        {name: load + rng.normal(0, 0.5, n) for name in ("heat", "flow", "power")}
    )
    table["pressure"] = 5 + 0.3 * load + rng.normal(0, 0.2, n)
    return table.set_index(pd.date_range(start, periods=n, freq="min", name="time"))


days = pd.date_range("2026-11-01", periods=30)
(folder / "in").mkdir()
(folder / "job.toml").write_text(JOB)
readings(6000, "2026-09-01").to_parquet(folder / "nominal.parquet")
for number, day in enumerate(days, start=1):
    table = readings(1440, day)
    table["pressure"] += 0.03 * max(0, number - 17)
    table.loc[table.index[:3], "heat"] += 5  # three anomalies a day
    table.to_parquet(folder / f"in/{day:%Y-%m-%d}.parquet")

with dask.config.set(scheduler="threads"):
    runs = [lpe_dask.run(folder / "job.toml", date=f"{day:%Y-%m-%d}") for day in days]

# %%
# The verdict of each run is in its summary, and decides the exit code of the command with
# ``--fail-on-drift``. In a series without any change it is ever ``drift`` with a
# probability of at most 1 %, however many runs there are.

drift = pd.DataFrame(
    {
        "verdict": [run["drift"]["verdict"] for run in runs],
        "flagged": [run["flagged"] for run in runs],
        "evidence": [run["drift"]["log10_evidence"] for run in runs],
    },
    index=days.strftime("%d %b"),
)
first = (drift["verdict"] == "drift").to_numpy().argmax()
print(f"first drift on day {first + 1}: {runs[first]['drift']['reason']}")
drift.iloc[14:26]

# %%
# p-values of some days. The band is for one run: of 30 runs without a change, one or two
# have a bar out of it by chance. The verdict is for the series.

figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), sharey=True, layout="constrained")
for ax, number in zip(axes, [1, 22, 30], strict=True):
    output = pd.read_parquet(folder / f"out/2026-11-{number:02}")
    lpe_dask.plot_scores(output["p_value"], bins=10, n_calibration=3000, ax=ax)
    ax.set_title(f"day {number}")
plt.show()

# %%
# The page of the last run as people get it, ``_report.html``: what was found, why, whether
# the model is still right, and what the run has cost.


class Page:
    """A file of HTML in a frame."""

    def __init__(self, path):
        self.text = html.escape(path.read_text().replace(f"{folder}/", ""))

    def _repr_html_(self):
        look = "width: 100%; height: 44rem; border: 1px solid #888"
        return (
            f'<iframe title="page of a run" style="{look}" srcdoc="{self.text}"></iframe>'
        )


lpe_dask.report(folder / "out/2026-11-30")
page = Page(folder / "out/2026-11-30/_report.html")
temporary.cleanup()
page

# %%
# More about :doc:`drift </guide/drift>`, :doc:`the page </guide/report_page>` and
# :doc:`jobs </guide/jobs>`.
