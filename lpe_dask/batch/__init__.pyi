from .fit import FitRun, measured_columns, prepare_new_fit
from .runs import JobRun, next_job, prepare_job, run
from .scoring import Run, check_is_alone, prepare_run, score_files, tables_to_score

__all__ = [
    "FitRun",
    "JobRun",
    "Run",
    "check_is_alone",
    "measured_columns",
    "next_job",
    "prepare_job",
    "prepare_new_fit",
    "prepare_run",
    "run",
    "score_files",
    "tables_to_score",
]
