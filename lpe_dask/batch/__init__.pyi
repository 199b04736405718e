from .api import check_is_alone, fit_job, run, score_files, score_job
from .days import next_job
from .fit import Fit, measured_columns
from .runs import Run, prepare
from .scoring import Scoring, tables_to_score

__all__ = [
    "Fit",
    "Run",
    "Scoring",
    "check_is_alone",
    "fit_job",
    "measured_columns",
    "next_job",
    "prepare",
    "run",
    "score_files",
    "score_job",
    "tables_to_score",
]
