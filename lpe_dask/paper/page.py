"""The output folder: pictures, table.csv and one self-contained index.html."""

from __future__ import annotations

import base64
import io
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import pandas as pd

from lpe_dask.paper import claims
from lpe_dask.paper.claims import Experiment

#: Pixels an inch.
RESOLUTION = 110


def check_installed() -> None:
    """Raise ImportError if what draws the pictures and the page is not installed."""
    try:
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"the paper's figures need {error.name}, which is not installed: pip install "
            f'"lpe-dask[plot]"'
        ) from error


def write_page(
    folder: Path,
    experiments: Sequence[Experiment],
    skipped: Sequence[str],
    n_draws: int | None,
) -> None:
    """Write figure-N.png of each experiment, table.csv and index.html into a folder.

    Parameters
    ----------
    folder : Path
        Exists.
    experiments : sequence of Experiment
    skipped : sequence of str
        What could not be run, and why.
    n_draws : int, optional
        For the page, if it is not the usual number.
    """
    pictures = {}
    for experiment in experiments:
        picture = io.BytesIO()
        experiment.figure.savefig(picture, format="png", dpi=RESOLUTION)
        pictures[experiment.number] = base64.b64encode(picture.getvalue()).decode()
        path = folder / f"figure-{experiment.number}.png"
        path.write_bytes(picture.getvalue())
    _write_table(folder / "table.csv", experiments)
    page = _render(experiments, pictures, skipped, n_draws)
    (folder / "index.html").write_text(page, encoding="utf-8")


def _write_table(path: Path, experiments: Sequence[Experiment]) -> None:
    records = [
        {
            "key": row.key, "figure": experiment.number, "place": row.place,
            "claim": row.claim, "paper": row.paper, "here": f"{row.here.mean:.6g}",
            "standard_error": f"{row.here.standard_error:.3g}", "draws": row.here.n_draws,
            "verdict": row.verdict, "reason": row.reason, "procedure": row.procedure,
        }
        for experiment in experiments
        for row in experiment.rows
    ]  # fmt: skip
    pd.DataFrame(records).to_csv(path, index=False, lineterminator="\n")


def _render(
    experiments: Sequence[Experiment],
    pictures: dict[int, str],
    skipped: Sequence[str],
    n_draws: int | None,
) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("lpe_dask.paper", "."),
        autoescape=True,
        undefined=StrictUndefined,
    )
    rows = [row for experiment in experiments for row in experiment.rows]
    return environment.get_template("page.html.jinja").render(
        version=version("lpe-dask"),
        experiments=experiments,
        pictures=pictures,
        skipped=skipped,
        draws=n_draws,
        rules=claims,
        n_rows=len(rows),
        counts=Counter(row.verdict for row in rows),
    )
