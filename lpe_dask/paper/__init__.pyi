from .run import run_paper as run_paper
