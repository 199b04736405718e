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

#: Malignant tumors among the new ones: one in twenty.
N_MALIGNANT = 6

#: The columns have no common unit: areas are hundreds, symmetries are tenths.
SCALE: Final = "standard"

#: Levels at which what is flagged is counted.
ALPHAS = (0.01, 0.05, 0.1)


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
    from lpe_dask.batch import score_files

    nominal, new = folder / "nominal.parquet", folder / "new.parquet"
    scores = folder / "scores"
    yield _write_tumors(nominal, new)
    # Workers would take longer to start; by its name, Dask would import `distributed`.
    with dask.config.set(scheduler=threaded.get):
        summary = score_files(new, scores, nominal=nominal, scale=SCALE, keep=["diagnosis"])
    yield _found(summary, scores)
    yield _reasons(summary["reasons"]["rows"][:2])
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


def _found(summary: dict[str, Any], scores: Path) -> str:
    """Return what was flagged, and how often that was right, at each level."""
    import pandas as pd

    table = pd.read_parquet(scores)
    is_benign = table["diagnosis"] == "benign"
    lines = [
        f"{summary['rows']} new rows were scored in {summary['seconds']:.1f} s: "
        f"{summary['flagged']} are flagged at alpha = {summary['alpha']:g}.",
        "",
        f"{'alpha':8}{'false alarms promised':25}{'observed':22}malignant tumors found",
    ]
    for alpha in ALPHAS:
        flagged = table["p_value"] <= alpha
        wrong, of = (flagged & is_benign).sum(), is_benign.sum()
        promised, observed = f"at most {alpha:.0%}", f"{wrong / of:.1%} ({wrong} of {of})"
        found = f"{(flagged & ~is_benign).sum()} of {(~is_benign).sum()}"
        lines.append(f"{alpha:<8g}{promised:25}{observed:22}{found}")
    lines.append(f"(Promised on average. Among {of} rows, chance adds or takes a few.)")
    return "\n".join(lines) + "\n"


def _reasons(rows: list[dict[str, Any]]) -> str:
    """Return why rows are anomalous, by the two columns that say most about each."""
    lines = ["Why the two most anomalous rows are flagged:"]
    for row in rows:
        kept = row["kept"]
        lines.append(f"row {kept['index']}, {kept['diagnosis']}, p = {row['p_value']:.2g}:")
        lines += [
            f"    its {of['column']} is {of['value']:.4g}; usual is {of['usual']}"
            for of in row["columns"][:2]
        ]
    return "\n".join(lines) + "\n"
