"""cluster/s3/: input, model, output, lock and spool in a bucket, on a server for tests."""

import re
import threading

import fsspec
import pytest

from digests import parts_in
from lpe_dask.cli.outcome import TRY_LATER
from recipes import CLUSTER, DAY, commands_of, local_places, parts_by_threads, terminal
from storages import s3_server
from waiting import eventually

OUT = f"s3://bucket/out/{DAY}"

#: What tells about a run, in its output.
ABOUT = ("_metrics.prom", "_reasons.pqt", "_report.html", "_summary.json")


@pytest.fixture
def expected(logs, tmp_path):
    """Digests of the parts that ``--scheduler threads`` writes from local files."""
    places = {"s3://${LPE_BUCKET}": str(logs)}
    return parts_by_threads(CLUSTER / "s3/nightly.toml", tmp_path / "expected", places)


@pytest.fixture
def server(logs, expected):
    """Give what answers requests, the places of the page, and the bucket with the logs."""
    environment = {}
    with s3_server(environment) as faults:
        for part in ("nominal", "in"):
            fsspec.filesystem("s3").put(f"{logs / part}", "bucket/", recursive=True)
        url = environment["AWS_ENDPOINT_URL"]
        places = {"https://s3.example": url, "my-bucket": "bucket"}
        yield faults, places | local_places()


def names_in(folder):
    filesystem = fsspec.filesystem("s3", use_listings_cache=False)
    return {path.removeprefix(f"{folder}/") for path in filesystem.find(folder)}


@pytest.mark.cluster
def test_page__gives_the_bits_of_threads(server, expected, tmp_path):
    faults, places = server
    asked = set()
    faults.answer = lambda method, path: asked.add((method, path))

    with terminal(tmp_path, places) as opened:
        opened.type_all("s3")

    assert parts_in(OUT) == expected
    assert names_in("bucket/out") == {f"{DAY}/{name}" for name in (*ABOUT, *expected)}
    assert "manifest.json" in names_in("bucket/model")
    assert any(path.startswith("/bucket/spool/") for _, path in asked)
    assert names_in("bucket/spool") == set()


@pytest.mark.slow
@pytest.mark.cluster
def test_run__that_was_killed_is_continued_and_a_second_one_refused(
    server, expected, tmp_path
):
    """The server holds some parts back until both have happened."""
    faults, places = server
    may_go_on = threading.Event()

    def hold(method, path):
        if method == "PUT" and re.search(r"part-0000[4-7]", path):
            may_go_on.wait(60)

    faults.answer = hold
    *before, run = commands_of("s3")
    with terminal(tmp_path, places) as opened:
        try:
            assert before[-1].startswith("dask worker")
            for command in [*before, before[-1]]:  # two of them
                opened.type(command)
            killed = opened.start(run)
            assert eventually(lambda: parts_in(OUT), 60), killed.log.read_text()
            second = opened.type(run)
            killed.kill()
            killed.wait()
        finally:
            may_go_on.set()
        third = opened.type(run)

    assert second.returncode == TRY_LATER, second.stderr
    assert "locked" in second.stderr
    assert third.returncode == 0, third.stderr
    assert re.search(r"^[1-8] of 8 ", third.stderr, re.MULTILINE)
    assert parts_in(OUT) == expected
    assert names_in("bucket/out") == {f"{DAY}/{name}" for name in (*ABOUT, *expected)}
