"""Print the table of docs/howto/index.md, as `lpe-dask plan` forecasts it here.

    python sizes.py

Each row is scored against all others. Rows are normal and their columns independent, which
leaves least to prune. The largest table takes 4 GB of the folder for temporary files.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import llvmlite.binding
import numpy as np
import pandas as pd

FILE_ROWS = 1_000_000

#: Rows, columns, and workers of one thread.
SIZES = [
    (100_000, 10, 4),
    (1_000_000, 10, 4),
    (1_000_000, 10, 16),
    (1_000_000, 50, 16),
    (10_000_000, 10, 16),
    (10_000_000, 10, 64),
    (10_000_000, 50, 64),
]
MEMORY_LIMIT = "4GiB"


def write_table(folder, n_rows, n_columns):
    """Write a table of normal rows in files of at most a million."""
    rng = np.random.default_rng(0)
    names = [f"x{k}" for k in range(n_columns)]
    for number, begin in enumerate(range(0, n_rows, FILE_ROWS)):
        rows = rng.standard_normal((min(n_rows - begin, FILE_ROWS), n_columns))
        path = folder / f"{number:02}.parquet"
        pd.DataFrame(rows, columns=names).to_parquet(path, row_group_size=100_000)


def forecast(table, n_workers):
    """Return K, memory and time of a forecast."""
    command = [sys.executable, "-m", "lpe_dask", "plan", table, "--workers", str(n_workers)]
    command += ["--memory-limit", MEMORY_LIMIT]
    plan = subprocess.run(command, check=False, capture_output=True, text=True)
    if plan.returncode != 0:
        sys.exit(plan.stderr)
    patterns = (r"K = (\d+)", r"memory +(.+?) a worker", r"time +about (.+?) on")
    return [re.search(pattern, plan.stdout)[1] for pattern in patterns]


def main(sizes=SIZES):
    """Write a table of each size, and print its forecast."""
    print(f"On {llvmlite.binding.get_host_cpu_name()}:\n")
    print("| rows | columns | K | workers | memory of each | time |")
    print("| --- | --- | --- | --- | --- | --- |")
    for n_rows, n_columns, n_workers in sizes:
        with tempfile.TemporaryDirectory() as folder:
            write_table(Path(folder), n_rows, n_columns)
            n_neighbors, memory, time = forecast(folder, n_workers)
        cells = [f"{n_rows:,}", n_columns, n_neighbors, n_workers, memory, time]
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main()
