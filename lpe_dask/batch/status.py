"""Find from an output alone how far its run is: done, running, or interrupted."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from lpe_dask.batch.fingerprint import read_fingerprint
from lpe_dask.batch.output import PENDING, SUMMARY_NAME, has_content
from lpe_dask.batch.refit_policy import is_refit_pending
from lpe_dask.storage import Folder, Lock, child_url


@dataclass(frozen=True, slots=True)
class Status:
    """How far a run is.

    Attributes
    ----------
    state : {"done", "running", "interrupted"}
    text : str
        What is known about it, in a sentence.
    """

    state: Literal["done", "running", "interrupted"]
    text: str

    def __str__(self) -> str:
        return f"{self.state}: {self.text}"


def read_status(output: str) -> Status:
    """Return how far the run of an output is, which may be on any machine.

    Parameters
    ----------
    output : str
        Folder or URL that a run writes.

    Raises
    ------
    FileNotFoundError
        If there is no output of a run.
    """
    folder = Folder(output)
    if (who := Lock(output).owner()) is not None:
        return Status("running", f"{_progress(folder)} By {who}.")
    if (content := folder.read(SUMMARY_NAME)) is not None:
        summary = json.loads(content)
        text = (
            f"{summary['rows']} rows are scored, {summary['flagged']} of them flagged, in "
            f"{summary['seconds']:.1f} s."
        )
        if is_refit_pending(summary):
            more = "A new model is due: start the run of that day again to resume."
            return Status("interrupted", f"{text} {more}")
        return Status("done", text)
    if not folder.names() or (has_content(output) and read_fingerprint(output) is None):
        raise FileNotFoundError(
            f"there is no output of a run at {output}. Give the folder that was named by "
            f"--output, or by `output` in the job."
        )
    text = f"{_progress(folder)} Start the same run again to resume."
    return Status("interrupted", text)


def _progress(folder: Folder) -> str:
    """Return how many parts there are, in a sentence."""
    fingerprint = read_fingerprint(folder.url)
    if fingerprint is None:
        return "The model is being fitted, and no rows are scored yet."
    n_parts, fdr = fingerprint.settings["n_parts"], fingerprint.settings["fdr"]
    text = f"{len(folder.names('part-'))} of {n_parts} parts are written."
    if fdr is None:
        return text
    pending = Folder(child_url(folder.url, PENDING)).names("part-")
    return f"{len(pending)} of {n_parts} parts are measured. {text}"
