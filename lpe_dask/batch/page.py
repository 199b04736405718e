"""Make the page about a run, from the summary of its output alone."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from os import PathLike
from typing import Any

from lpe_dask.batch.output import REPORT_NAME
from lpe_dask.batch.summary import read_summary
from lpe_dask.pages import report_page
from lpe_dask.storage import (
    Folder,
    checked_options,
    redact_errors,
    short_message,
    with_options,
)

logger = logging.getLogger(__name__)


@redact_errors()
def report(
    output: str | PathLike[str], *, storage_options: Mapping[str, Any] | None = None
) -> str:
    """Write the page about a finished run into its output, and return the path of the page.

    One HTML file without scripts, which needs no network: what was found, why, whether the
    model still fits its input, and what the run has cost. All of it is in
    ``_summary.json``, too. Pictures need Matplotlib (``pip install "lpe-dask[plot]"``);
    without it there are tables in their place. Each run makes the page at its end, unless
    told not to; this makes it again.

    Parameters
    ----------
    output : str or path
        Folder or fsspec URL that a run has written.
    storage_options : dict, optional
        How the URL opens: see `score_files`.

    Returns
    -------
    path : str
        Of ``_report.html`` in that folder.

    Raises
    ------
    FileNotFoundError
        If there is no finished run.
    ValueError
        If its summary was cut short or altered.
    OSError
        If the page cannot be written.

    Examples
    --------
    >>> import lpe_dask
    >>> lpe_dask.report("out/2026-11-24")  # doctest: +SKIP
    'out/2026-11-24/_report.html'
    """
    url = with_options(output, checked_options(storage_options))
    page = report_page(read_summary(url))
    Folder(url).write(REPORT_NAME, page.encode(errors="replace"))
    return f"{url.rstrip('/')}/{REPORT_NAME}"


def make_page(output: str) -> None:
    """Write the page about a finished run; a warning says where that fails."""
    try:
        report(output)
    except Exception as error:  # the output is complete without
        logger.warning("the page about the run could not be made: %s", short_message(error))
