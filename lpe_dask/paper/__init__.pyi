from .run import run_paper

__all__ = [
    "run_paper",
]
