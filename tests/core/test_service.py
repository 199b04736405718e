"""The example of a service in jobs/ answers as the model does."""

import asyncio
import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import lpe_dask
from lpe_dask import LPE

pytest.importorskip("fastapi", reason="the example needs FastAPI")
httpx = pytest.importorskip("httpx", reason="the example is asked by httpx")

SERVICE = Path(__file__).parents[2] / "jobs" / "service.py"


def table(n_rows, seed):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.standard_normal((n_rows, 2)), columns=["x", "y"])
    return frame.assign(
        kind=rng.choice(["tcp", "udp"], n_rows), site=rng.choice(["a", "b"], n_rows)
    )


NOMINAL, NEW = table(300, 0), table(100, 1)
MODEL = LPE(categorical=["kind"], by=["site"], scale="standard", random_state=0)


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("service") / "model"
    MODEL.fit(NOMINAL).save(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MODEL", str(folder))
        patch.setattr(lpe_dask, "compile_kernels", lambda: None)  # which may take a minute
        spec = importlib.util.spec_from_file_location("service", SERVICE)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def ask(service, *requests):
    """Answers to requests that are sent at the same time."""

    async def send():
        transport = httpx.ASGITransport(service.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as of:
            return await asyncio.gather(
                *(of.post(path, json=rows) for path, rows in requests)
            )

    return asyncio.run(send())


def records(rows):
    return rows.to_dict("records")


def test_score__is_that_of_the_model_for_requests_at_the_same_time(service):
    parts = [NEW.iloc[start : start + 5] for start in range(0, 100, 5)]

    answers = ask(service, *(("/score", records(part)) for part in parts))

    found = [line["p_value"] for answer in answers for line in answer.json()]
    assert found == MODEL.score_samples(NEW).tolist()


def test_score__of_a_row_without_a_value(service):
    row = records(NEW[:1])[0] | {"x": None}

    (answer,) = ask(service, ("/score", [row]))

    status = {"p_value": None, "is_anomaly": None, "p_value_status": "missing value"}
    assert answer.json() == [status]


def test_explain__names_columns(service):
    row = records(NEW[:1])[0] | {"y": 90.0}

    (answer,) = ask(service, ("/explain", [row]))

    lines = answer.json()
    assert [line["row"] for line in lines] == [0, 0, 0]
    assert lines[0]["column"] == "y"
    assert lines[0]["p_value"] == 0


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([{"x": 1.0}], "the rows lack the columns ['y', 'kind', 'site']"),
        ([records(NEW[:1])[0] | {"y": "far"}], "'y' (str)"),
        ([], "at least 1 item"),
        (records(NEW[:1]) * 101, "at most 100 items"),
    ],
)
def test_score__refuses_other_rows(service, rows, problem):
    (answer,) = ask(service, ("/score", rows))

    assert answer.status_code == 422
    assert problem in str(answer.json()["detail"])
