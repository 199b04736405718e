"""Write a small job to try a cluster with, into this folder: tables, and job.toml.

    python example.py

40 tables of 500 rows are scored against 5,000 nominal rows. Some of the rows are unusual.
"""

from pathlib import Path

import numpy as np
import pandas as pd

JOB = """\
[nominal]
data = "nominal.parquet"

[model]
scale = "standard"
aggregation = "mean"
categorical = "auto"

[score]
data = "rows"
output = "out"
"""

rng = np.random.default_rng(0)


def rows(n_rows, high=100):
    """Return rows on a grid, where many distances are equal."""
    return pd.DataFrame(
        {name: rng.integers(0, high, n_rows) * 0.125 for name in ("x", "y", "z", "w")}
    )


if __name__ == "__main__":
    Path("rows").mkdir(exist_ok=True)
    rows(5000).to_parquet("nominal.parquet")
    for number in range(40):
        table = pd.concat([rows(490), rows(10, high=200)], ignore_index=True)
        table.to_parquet(f"rows/{number:02}.parquet")
    Path("job.toml").write_text(JOB)
