"""What `lpe-dask demo` does: find malignant tumors by a model of benign ones alone."""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import dask
from dask import threaded

from lpe_dask.cli.outcome import summary_lines

#: Malignant tumors among the new ones: one in twenty.
N_MALIGNANT = 6

#: The columns have no common unit: areas are hundreds, symmetries are tenths.
SCALE: Final = "standard"


@contextmanager
def demo_folder(output: str | None) -> Iterator[Path]:
    """Give a new folder, which is removed if the demo fails."""
    if output is not None and Path(output).exists():
        raise FileExistsError(f"the output {output} exists. Give a folder that does not.")
    folder = Path(output or tempfile.mkdtemp(prefix="lpe-dask-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield folder
    except BaseException:
        shutil.rmtree(folder)
        raise


def demo_texts(folder: Path) -> Iterator[str]:
    """Do the demo, and give what to print, as soon as it is known."""
    from lpe_dask.batch import explain_output, score_files

    nominal, new = folder / "nominal.parquet", folder / "new.parquet"
    scores = folder / "scores"
    yield _write_tumors(nominal, new)
    # Workers would take longer to start; by its name, Dask would import `distributed`.
    with dask.config.set(scheduler=threaded.get):
        summary = score_files(new, scores, nominal=nominal, scale=SCALE, keep=["diagnosis"])
    yield _count_flagged(summary, scores)
    reasons = explain_output(scores, top=2).groupby("row").head(2)
    shown = reasons[["id_columns", "column", "value", "usual"]].to_string(index=False)
    yield f"Why the two most anomalous rows are flagged:\n{shown}\n"
    page = (scores / "_report.html").absolute()
    tables = f"{shlex.quote(str(new))} --nominal {shlex.quote(str(nominal))}"
    again = shlex.quote(str(folder / "again"))
    is_found = shutil.which("lpe-dask") is not None
    program = "lpe-dask" if is_found else f"{shlex.quote(sys.executable)} -m lpe_dask"
    yield (
        f"All flagged rows, and why, are on a page, a file that needs no network.\n"
        f"Open it in a browser: {page.as_uri()}\n\n"
        f"The same by hand:\n"
        f"{program} score {tables} --scale {SCALE} --keep diagnosis --output {again}"
    )


def _write_tumors(nominal: Path, new: Path) -> str:
    """Write the tables, and return what they are."""
    from sklearn.datasets import load_breast_cancer

    tumors = load_breast_cancer(as_frame=True)
    names = dict(enumerate(tumors.target_names))
    table = tumors.data.assign(diagnosis=tumors.target.map(names))
    is_benign = table["diagnosis"] == "benign"
    is_held_out = is_benign & (is_benign.cumsum() % 3 == 0)
    is_anomaly = ~is_benign & ((~is_benign).cumsum() <= N_MALIGNANT)
    is_nominal, is_new = is_benign & ~is_held_out, is_held_out | is_anomaly
    table[is_nominal].drop(columns="diagnosis").to_parquet(nominal)
    table[is_new].to_parquet(new)
    return (
        f"The table: {len(table)} breast tumors, from scikit-learn. Its columns are the\n"
        f"  mean, the standard error and the worst of ten properties of their cells.\n"
        f"Nominal rows: {is_nominal.sum()} benign tumors. The model knows no others.\n"
        f"New rows: {is_held_out.sum()} benign tumors that were held out, and\n"
        f"  {N_MALIGNANT} malignant ones ({N_MALIGNANT / is_new.sum():.0%}).\n"
    )


def _count_flagged(summary: dict[str, Any], scores: Path) -> str:
    """Return the flagged rows, and how often that was right."""
    import pandas as pd

    flagged = pd.read_parquet(scores).groupby("diagnosis")["is_anomaly"].sum()
    n_benign = summary["rows"] - N_MALIGNANT
    return (
        f"{summary_lines(summary, str(scores))}\n\n"
        f"Found: {flagged['malignant']} of {N_MALIGNANT} malignant tumors.\n"
        f"False alarms: {flagged['benign']} of {n_benign} benign tumors, "
        f"{flagged['benign'] / n_benign:.1%}.\n"
        f"(Promised are at most {summary['alpha']:.0%}, on average: chance adds or takes "
        f"a few.)\n"
    )
