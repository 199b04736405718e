"""The output folder: pictures, table.csv and one self-contained index.html."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import pandas as pd

from lpe_dask.paper import claims
from lpe_dask.paper.claims import Experiment

#: Pixels per inch.
RESOLUTION = 110


def check_installed() -> None:
    """Raise ImportError if Matplotlib or Jinja2 is not installed."""
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
        Stated on the page if it is not the usual number.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    pictures = {}
    for experiment in experiments:
        path = folder / f"figure-{experiment.number}.png"
        experiment.figure.savefig(path, format="png", dpi=RESOLUTION)
        pictures[experiment.number] = base64.b64encode(path.read_bytes()).decode()
    table = _table(experiments)
    table.to_csv(folder / "table.csv", index=False, lineterminator="\n")
    environment = Environment(
        loader=PackageLoader("lpe_dask.paper", "."),
        autoescape=True,
        undefined=StrictUndefined,
    )
    page = environment.get_template("page.html.jinja").render(
        version=version("lpe-dask"),
        experiments=experiments,
        pictures=pictures,
        skipped=skipped,
        draws=n_draws,
        rules=claims,
        n_rows=len(table),
        counts=Counter(table["verdict"]),
    )
    (folder / "index.html").write_text(page, encoding="utf-8")


def _table(experiments: Sequence[Experiment]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "key": row.key, "figure": experiment.number, "place": row.place,
            "claim": row.claim, "paper": row.paper, "here": f"{row.here.mean:.6g}",
            "standard_error": f"{row.here.standard_error:.3g}", "draws": row.here.n_draws,
            "verdict": row.verdict, "reason": row.reason, "procedure": row.procedure,
        }
        for experiment in experiments
        for row in experiment.rows
    )  # fmt: skip
