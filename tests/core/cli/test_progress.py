"""What is shown of the rows that a run has measured or scored."""

import io
import logging
import time

import dask
import pytest
from rich.console import Console

from choosing import mostly_full
from lpe_dask.cli import progress
from lpe_dask.cli.progress import describe, show_progress
from lpe_dask.tasks import Computation, RowCount, compute, new_tasks


@pytest.mark.parametrize(
    ("total", "results", "seconds", "text"),
    [
        (1200, [], 5.0, "scored 0 of 1,200 rows"),
        (1200, [range(300)], 0.1, "scored 300 of 1,200 rows"),
        (1200, [range(300)], 5.0, "scored 300 of 1,200 rows, 60.0 rows/s, 0:00:15 left"),
        (1200, [range(300)] * 4, 3.0, "scored 1,200 of 1,200 rows, 400 rows/s"),
        (1200, [range(3)], 9.0, "scored 3 of 1,200 rows, 0.33 rows/s, 0:00:27 left"),
        (1200, [[]], 9.0, "scored 0 of 1,200 rows, 0:00:27 left"),
        (
            None,
            [range(900)],
            2.0,
            "scored 900 rows, 1 of 4 parts, 450 rows/s, 0:00:06 left",
        ),
    ],
)
def test_describe__says_rows_rate_and_time_left(total, results, seconds, text):
    computation = Computation(4, RowCount("scored", len, total))
    for result in results:
        computation.add(result)

    assert describe(computation, seconds) == text


@pytest.fixture
def records(caplog):
    """What is logged where there is no terminal."""
    caplog.set_level(logging.INFO, logger="lpe_dask.cli")
    return caplog


def score_four(console, seconds=0.0):
    """Compute four results of 300 rows, and one that is of no rows."""
    tasks = new_tasks("made", [(_made, 300, seconds) for _ in range(4)])
    rows = RowCount("scored", int, 1200)
    with show_progress(console) as show, Computation.observed(show):
        compute(*new_tasks("other", [(int, 7)]))
        compute(*tasks, rows=rows)


def _made(n_rows, seconds):
    time.sleep(seconds)
    return n_rows


@pytest.mark.cluster
@pytest.mark.parametrize("where", mostly_full(["threads", "cluster"], ["cluster"]))
def test_show_progress__keeps_a_line_up_to_date_on_a_terminal(where, client):
    terminal = Console(file=io.StringIO(), force_terminal=True, width=100)

    with dask.config.set(scheduler=client if where == "cluster" else where):
        score_four(terminal, seconds=0.3)

    text = terminal.file.getvalue()
    assert "scored 0 of 1,200 rows" in text
    assert "scored 1,200 of 1,200 rows" in text


@pytest.mark.parametrize(
    ("seconds", "logged"), [(0.0, ["0", "300", "600", "900", "1,200"]), (99.0, ["1,200"])]
)
def test_show_progress__logs_now_and_then_where_there_is_no_terminal(
    records, monkeypatch, seconds, logged
):
    monkeypatch.setattr(progress, "LOG_SECONDS", seconds)

    with dask.config.set(scheduler="sync"):
        score_four(Console(file=io.StringIO()))

    assert records.messages == [f"scored {n} of 1,200 rows" for n in logged]


def test_show_progress__does_not_take_what_failed_for_done(records):
    tasks = new_tasks("fails", [(int, 1), (divmod, 1, 0)])
    console = Console(file=io.StringIO())

    with (
        pytest.raises(ZeroDivisionError),
        show_progress(console) as show,
        Computation.observed(show),
        dask.config.set(scheduler="sync"),
    ):
        compute(*tasks, rows=RowCount("scored", int, 2))

    assert not any("scored 2" in message for message in records.messages)
