"""What is told of a run, beside its results: to whom, and after which earlier runs."""

from __future__ import annotations

from dataclasses import dataclass

from lpe_dask.batch.job import Job
from lpe_dask.batch.monitor import Watched
from lpe_dask.model import Fitted, calibration_id, model_url
from lpe_dask.pvalues import Cells, Tolerances, phi_of
from lpe_dask.storage import Folder


@dataclass(frozen=True, slots=True)
class Told:
    """What is told of a run.

    Attributes
    ----------
    folder : str, optional
        Beside the outputs of the job; None if there is none: the output is a bucket.
    job : str
        Tells the job from others there; "" where outputs do not have a day in their name.
    model : str, optional
        URL of the model, if it is saved.
    has_page : bool
        Whether a page is made.
    private : tuple of str
        Columns that are in no reasons.
    tolerances : Tolerances
        What counts as drift.
    """

    folder: str | None
    job: str
    model: str | None
    has_page: bool
    private: tuple[str, ...]
    tolerances: Tolerances

    @classmethod
    def of(cls, job: Job, url: str) -> Told:
        """Return what is told of a job that writes to a URL."""
        score, drift = job.score, job.drift
        assert score is not None
        folder, name = Folder(url).parent_url(), ""
        if job.today is not None:
            folder, name = job.today.folder, job.today.output
        tolerances = Tolerances(**({} if drift is None else drift.model_dump()))
        private = tuple(map(str, score.private or ()))
        path = None if job.model.path is None else model_url(job.model.path)
        return cls(folder, name, path, score.report, private, tolerances)

    def watched(self, model: Fitted, cells: Cells, run: str, output: str) -> Watched | None:
        """Return the series of runs that a run with this model belongs to, if any."""
        if self.folder is None:
            return None
        return Watched(
            self.folder, self.job,
            calibration_id(model.calibration),
            phi_of(model.calibration_kind, model.n_neighbors),
            cells, run, output, self.tolerances,
        )  # fmt: skip
