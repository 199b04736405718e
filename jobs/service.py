"""Answer requests with p-values and reasons: copy it, and change what your service needs.

    $ pip install ".[service]"
    $ export MODEL=models/flows
    $ gunicorn service:app --preload -w 4 -k uvicorn_worker.UvicornWorker

The model is one that was fitted on a table whose columns have names. It is read before the
server forks, and the workers share its memory. Each request is measured in the thread that
answers it.
"""

import os
from typing import Annotated, Any

import pandas as pd
from fastapi import Body, FastAPI, Request
from fastapi.responses import JSONResponse

import lpe_dask

lpe_dask.compile_kernels()
model = lpe_dask.load(os.environ["MODEL"])
names = [*model.feature_names_in_, *(model.by or [])]
model.explain(pd.DataFrame(index=[0], columns=names, dtype=float))  # reads all of it
app = FastAPI()
Rows = Annotated[list[dict[str, Any]], Body(min_length=1, max_length=100)]


@app.post("/score")
def score(rows: Rows) -> list[dict[str, Any]]:
    """Return the p-value of each row, and whether it is an anomaly."""
    return records(model.score_frame(rows)[["p_value", "is_anomaly", "p_value_status"]])


@app.post("/explain")
def explain(rows: Rows) -> list[dict[str, Any]]:
    """Return the three columns of each row with the largest shares in its distance."""
    lines = model.explain(rows, top=3).rename_axis("row").reset_index()
    return records(lines[["row", "p_value", "column", "value", "usual", "share"]])


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the lines of a table; what is missing is null."""
    return table.astype(object).where(table.notna(), None).to_dict("records")


@app.exception_handler(TypeError)
@app.exception_handler(ValueError)
def refuse(request: Request, error: Exception) -> JSONResponse:
    """Return why rows are not what the model was fitted on."""
    # The library raises these for its input. A mistake in this file would end here, too.
    return JSONResponse({"detail": str(error)}, 422)
