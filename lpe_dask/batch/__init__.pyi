from .api import check_is_alone, fit_job, run, score_files, score_job
from .days import next_job
from .fit import open_measured
from .runs import Run, prepare
from .scoring import tables_to_score

__all__ = [
    "Run",
    "check_is_alone",
    "fit_job",
    "next_job",
    "open_measured",
    "prepare",
    "run",
    "score_files",
    "score_job",
    "tables_to_score",
]
