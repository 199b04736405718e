"""
On a cluster, with its task stream
==================================

The same calls run on a cluster as soon as there is a ``distributed.Client``. This library
starts none by itself. Here are a scheduler and two workers, each a process with one thread,
on this machine.
"""

import dask.dataframe as dd
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from dask.utils import key_split
from distributed import Client, SubprocessCluster, get_task_stream

import lpe_dask

# %%
# The table is made by the workers, in eight partitions, and never is in one process as a
# whole. On a cluster it would be read from Parquet:
# ``dd.read_parquet("s3://bucket/table")``.


def partition(seed, n=6_000, n_anomalies=20):
    """Return rows of a partition: two kinds of usual rows, and a few anomalies."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, 6)) + 4 * rng.integers(0, 2, (n, 1))
    rows[:n_anomalies] += rng.uniform(3, 6, (n_anomalies, 6))
    return pd.DataFrame(rows, columns=[*"abcdef"])


cluster = SubprocessCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
client = Client(cluster)
table = dd.from_map(partition, range(8))
nominal = dd.from_map(partition, range(100, 102), n_anomalies=0)
print(f"{table.npartitions} partitions, {len(client.nthreads())} workers")

# %%
# `~lpe_dask.LPE.fit` computes. `~lpe_dask.LPE.score_samples` of a Dask table is lazy:
# nothing is computed before it is asked for. What is recorded meanwhile is which worker did
# which task, and when.

with get_task_stream() as stream:
    model = lpe_dask.LPE(
        scale="standard", aggregation="mean", calibration="conformal", random_state=0
    ).fit(nominal)  # fmt: skip
    p_values = model.score_samples(table)  # lazy
    flagged = (p_values <= 0.001).sum().compute()
print(f"{flagged} of {len(table)} rows are flagged")

# %%
# The task stream: a line for each worker, a bar for each task, by what the names of tasks
# begin with. The short tasks at the start learn the scale. ``lpe-join`` compares
# calibration rows with the rows that they are measured among, and ``join_frame`` does so
# for a partition of new rows, where it is: only nominal rows and results move between
# workers. The first tasks of a worker take longer, as it loads what is compiled.

tasks = pd.DataFrame(
    [
        (task["worker"], key_split(task["key"]), step["start"], step["stop"])
        for task in stream.data
        for step in task["startstops"]
        if step["action"] == "compute"
    ],
    columns=["worker", "kind", "start", "stop"],
)
tasks[["start", "stop"]] -= tasks["start"].min()
tasks["seconds"] = tasks["stop"] - tasks["start"]
longest = tasks.groupby("kind")["seconds"].sum().nlargest(3).index
tasks["kind"] = tasks["kind"].where(tasks["kind"].isin(longest), "others")

figure, ax = plt.subplots(figsize=(10, 2.8), layout="constrained")
looks = [("#0072b2", ""), ("#e69f00", "///"), ("#009e73", "..."), ("0.5", "")]
for kind, (color, hatch) in zip([*longest, "others"], looks, strict=True):
    of_kind = tasks[tasks["kind"] == kind]
    ax.barh(
        of_kind["worker"], of_kind["seconds"], left=of_kind["start"], height=0.7,
        color=color, hatch=hatch, edgecolor="white", linewidth=0.4,
        label=f"{kind} ({len(of_kind)} tasks)",
    )  # fmt: skip
ax.set_yticks(ax.get_yticks(), [f"worker {number + 1}" for number in ax.get_yticks()])
ax.set(xlabel="seconds", xlim=(0, None))
figure.legend(loc="outside upper center", ncols=4, fontsize="small")
plt.show()

# %%
# A p-value is the same to the last bit on any cluster, and without one.

here = model.score_samples(partition(0))
print("equal:", (here.to_numpy() == p_values.partitions[0].compute().to_numpy()).all())
client.close()
cluster.close()

# %%
# More about :doc:`clusters </guide/cluster>`, and :doc:`recipes for each kind of them
# </howto/index>`.
