"""Keys of a storage, given for a call or in a job: they open all URLs, and show nowhere."""

import logging
import traceback
from contextlib import suppress

import dask
import dask.array as da
import fsspec
import numpy as np
import pandas as pd
import pytest
from distributed import Client

import lpe_dask
from calling import THREADS, invoke
from choosing import mostly_slow
from lpe_dask.batch import explain_output
from lpe_dask.model import measured_vectors
from lpe_dask.search import MemoryEstimate
from lpe_dask.storage import RefusedError, Url, redaction
from lpe_dask.tables.table_files import open_table
from lpe_dask.tasks import remove_spools, spool, transfer
from processes import local_cluster
from storages import s3_server_with_keys

pytestmark = pytest.mark.cluster

N_ROWS = 1500
GROUPS = np.resize(["x", "y"], N_ROWS)
SPOOL = {"lpe-dask.spool": "s3://bucket/spool"}

JOB = """
[nominal]
data = "s3://bucket/nominal.parquet"
columns = ["a", "b", "c"]
[model]
path = "s3://bucket/job/model"
[score]
data = "s3://bucket/rows.parquet"
output = "s3://bucket/job/out/{date}"
alpha = 0.01
[storage.s3]
key = "${MY_KEY}"
secret = "${MY_SECRET}"
client_kwargs = {endpoint_url = "${MY_ADDRESS}", region_name = "us-east-1"}
"""


@pytest.fixture(scope="module")
def server():
    with s3_server_with_keys() as (options, faults):
        filesystem = fsspec.filesystem("s3", **options)
        for seed, name in enumerate(("nominal", "rows")):
            values = np.random.default_rng(seed).normal(size=(N_ROWS, 3))
            table = pd.DataFrame(values, columns=list("abc")).assign(g=GROUPS)
            with filesystem.open(f"bucket/{name}.parquet", "wb") as file:
                table.to_parquet(file)
            with filesystem.open(f"bucket/{name}.csv", "wb") as file:
                table.to_csv(file, index=False)
        yield options, faults
        faults.repair()
        remove_spools()  # as long as there is a server


@pytest.fixture(scope="module")
def options(server):
    return server[0]


@pytest.fixture
def faults(server):
    yield server[1]
    server[1].repair()


@pytest.fixture(scope="module")
def client(server):
    with local_cluster() as cluster, Client(cluster) as client:
        yield client


@pytest.fixture(autouse=True)
def no_options_of_other_tests(monkeypatch):
    """The spool of a process keeps the options of an earlier call."""
    monkeypatch.setattr(spool, "_options", {})


@pytest.fixture
def run_command(options, capfd, caplog):
    """Run a command and return exit code and text; no key may show."""
    caplog.set_level(logging.DEBUG, "lpe_dask")

    def run_command(*arguments):
        result = invoke(*arguments, "--debug")
        check_text(options, result.output, *capfd.readouterr(), caplog.text)
        return result.exit_code, result.output

    return run_command


@pytest.fixture
def job(options, tmp_path, monkeypatch):
    monkeypatch.setenv("MY_KEY", options["key"])
    monkeypatch.setenv("MY_SECRET", options["secret"])
    monkeypatch.setenv("MY_ADDRESS", options["client_kwargs"]["endpoint_url"])
    file = tmp_path / "job.toml"
    file.write_text(JOB)
    return file


def check_text(options, *texts):
    for secret in (options["key"], options["secret"]):
        assert not [text for text in texts if secret in text]


def check_files(options, folder=None):
    """Raise if a file in the bucket, or on this machine, has a key; return how many."""
    filesystem = fsspec.filesystem("s3", **options)
    filesystem.invalidate_cache()
    contents = []
    for name in filesystem.find("bucket"):
        with suppress(FileNotFoundError):  # a spool is emptied at any moment
            contents.append(filesystem.cat_file(name))
    if folder is not None:
        contents += [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    for secret in (options["key"], options["secret"]):
        assert not [content for content in contents if secret.encode() in content]
    return len(contents)


def is_summary(method, path):
    """Whether a request writes a summary."""
    return method == "PUT" and "_summary" in path


# All URLs, here and on workers


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_score_files__every_url(options, client, ending, monkeypatch, capfd):
    monkeypatch.setattr(transfer, "LITERAL_BYTES", 1000)  # so that the spool has some
    out, s3 = f"s3://bucket/{ending}/out", fsspec.filesystem("s3", **options)
    with dask.config.set(SPOOL):
        given = {
            "nominal": f"s3://bucket/nominal.{ending}", "exclude": ["g"],
            "storage_options": options,
        }  # fmt: skip
        summary = lpe_dask.score_files(f"s3://bucket/rows.{ending}", out, **given)
    assert summary["rows"] == N_ROWS
    page = lpe_dask.report(out, storage_options=options)
    assert page == f"{out}/_report.html"
    reasons = explain_output(out, confirm="s3://bucket/list.csv", storage_options=options)
    assert len(reasons) == 150
    given["without_rows"] = "s3://bucket/list.csv"
    again = lpe_dask.score_files(f"s3://bucket/rows.{ending}", f"{out}-again", **given)
    assert again["flagged"] == summary["flagged"]
    s3.rm("bucket/list.csv")
    check_text(options, *map(str, (summary, page)), *capfd.readouterr())
    assert check_files(options) > 8


def test_explain_output__on_this_machine_with_the_keys_of_what_it_names(options, tmp_path):
    out, listed = tmp_path / "out", tmp_path / "list.csv"
    keys = {"storage_options": options}
    save_model("s3://bucket/near", options)
    rows = "s3://bucket/rows.parquet"
    lpe_dask.score_files(rows, out, model="s3://bucket/near", **keys)

    reasons = explain_output(out, 160, **keys)

    assert reasons.groupby(["part", "row"]).ngroups == 160
    explain_output(out, confirm=listed, **keys)
    assert len(pd.read_csv(listed)) == 50
    check_files(options, tmp_path)


def test_score_files__names_urls_whatever_words_are_secret(options, monkeypatch):
    """What masks them in messages must not change, in files, the path of an output."""
    monkeypatch.setattr(redaction, "_secrets", frozenset())
    out, model = "s3://bucket/hidden/out", "s3://bucket/hidden/model"
    rows, keys = "s3://bucket/rows.parquet", {"storage_options": options}
    save_model(model, options)
    Url(rows, {"password": "hidden"})

    summary = lpe_dask.score_files(rows, out, model=model, **keys)

    assert [summary[of] for of in ("output", "model", "inputs")] == [out, model, [rows]]
    reasons = explain_output(out, 160, **keys)
    assert reasons.groupby(["part", "row"]).ngroups == 160


def save_model(url, options):
    rows = np.random.default_rng(6).normal(size=(N_ROWS, 3))
    nominal = pd.DataFrame(rows, columns=list("abc"))
    lpe_dask.LPE(5).fit(nominal).save(url, storage_options=options)


def test_load__lazy_results_by_others_and_later_workers(options, client, monkeypatch):
    monkeypatch.setattr(transfer, "LITERAL_BYTES", 1000)
    rows = np.random.default_rng(5).normal(size=(N_ROWS, 3))
    fitted, model = lpe_dask.LPE(5).fit(rows), "s3://bucket/saved"
    fitted.save(model, storage_options={"s3": options})
    with dask.config.set(SPOOL):
        loaded = lpe_dask.load(model, storage_options=options)
        lazy = loaded.score_samples(da.from_array(rows, chunks=(500, 3)))
        read = loaded.score_samples(
            dask.dataframe.from_array(da.from_array(rows, chunks=(500, 3)))
        )
        check_text(options, *map(str, lazy.__dask_graph__()), repr(lazy), repr(loaded))
        expected = fitted.score_samples(rows)
        client.restart()  # other processes than those that were asked about the spool
        with Client(client.scheduler.address) as other:
            assert (other.compute(lazy).result() == expected).all()
        assert (read.compute() == expected).all()
    check_files(options)


@pytest.mark.parametrize("path", ["s3://bucket/rows.parquet", "s3://bucket/rows.csv"])
def test_open_table__names_tasks_whatever_the_keys(options, path):
    """So that a run resumes with new ones, and nobody guesses them from a name."""
    tables = [open_table(Url(path, of)) for of in (options, {"s3": options})]
    assert len({str(table.partition_tokens()) for table in tables}) == 1
    assert len({str(table.frame().__dask_keys__()) for table in tables}) == 1
    graph = dict(tables[0].frame().__dask_graph__())
    check_text(options, str(graph), repr(tables[0]))


def test_score__of_urls(options):
    given = "s3://bucket/rows.parquet", "s3://bucket/nominal.csv"
    columns = list("abc")
    p_values = lpe_dask.score(*given, columns=columns, storage_options=options)
    assert len(p_values.compute()) == N_ROWS
    forecast = lpe_dask.plan(*given, columns=columns, storage_options={"s3": options})
    assert forecast.n_rows == N_ROWS
    check_text(options, str(forecast), repr(forecast))


# Jobs and commands


def test_job__runs_resumes_and_is_looked_at(
    options, faults, job, run_command, tmp_path, monkeypatch
):
    day, out = ("--date", "2026-11-20"), "s3://bucket/job/out/2026-11-20"
    workers = ("--workers", "1", "--spool", "s3://bucket/spool")
    code, text = run_command("plan", job, *day, *THREADS)
    assert (code, text.count("to score against")) == (0, 1)
    faults.answer = lambda method, path: (
        403 if "_summary" in path and method == "PUT" else None
    )
    code, text = run_command("run", job, *day, *workers)
    assert code == 1
    assert f"access to {out} is refused" in text
    filesystem = fsspec.filesystem("s3", **options)
    part = filesystem.info(f"{out}/part-00000.parquet")
    faults.repair()
    code, text = run_command("run", job, *day, *THREADS)
    assert (code, text.count("written to")) == (0, 1), text
    filesystem.invalidate_cache()
    assert filesystem.info(f"{out}/part-00000.parquet") == part
    code, text = run_command("run", job, *day, *THREADS)
    assert (code, text.count("nothing to do")) == (0, 1)

    # Commands without a job know the keys as all programs with fsspec do.
    for command in ("status", "report", "explain"):
        code, text = run_command(command, out)
        assert code == 2
        assert f"access to {out} is refused" in text
    monkeypatch.setitem(fsspec.config.conf, "s3", options)
    for command, asked in (("status", ()), ("report", ()), ("explain", ("--top", "60"))):
        code, text = run_command(command, out, *asked)
        assert code == 0, text
    job.write_text("")  # of the user
    assert check_files(options, tmp_path) > 8


FORMS = {
    "groups": "by = ['g']\nown = ['neighbors', 'calibration']\nsmall_groups = 'pool'",
    "geodesic": "metric = 'geodesic'\ncalibration = 'split'",
    "approximate": "algorithm = 'nn_descent'\nmax_p_error = 0.5",
}


@pytest.mark.parametrize("name", mostly_slow(FORMS, ["groups", "geodesic"]))
def test_run__of_a_model_that_no_memory_holds(options, job, client, name, monkeypatch):
    """Blocks, indexes, statistics, checkpoints and the model itself: all in the bucket."""
    monkeypatch.setattr(MemoryEstimate, "fits", lambda needs, limit: needs.plan.is_spooled)
    monkeypatch.setattr(measured_vectors, "are_many", lambda n_rows: True)
    monkeypatch.setattr(transfer, "LITERAL_BYTES", 1000)
    text = JOB.replace("/job/", f"/{name}/").replace('/model"', f'/model"\n{FORMS[name]}')
    job.write_text(text)
    with dask.config.set(SPOOL):
        summary = lpe_dask.run(job, date="2026-11-20")
        scored = lpe_dask.run(job, date="2026-11-21")  # by the model that is saved
    assert summary["rows"] == N_ROWS
    assert (scored["flagged"], scored["model"]) == (summary["flagged"], summary["model"])
    assert check_files(options) > 8


@pytest.mark.parametrize("wrong", ["MY_KEY", "MY_SECRET"])
def test_job__wrong_keys(options, job, run_command, wrong, monkeypatch, caplog):
    monkeypatch.setenv(wrong, "AKIAMARKEDMARKED")
    for command in ("run", "plan"):
        code, text = run_command(command, job, *THREADS)
        assert code == 2
        assert "Error: access to s3://bucket/job/out/" in text
        assert "AKIAMARKED" not in text
    assert "Retrying" not in caplog.text


def test_job__wrong_keys_are_notified_of(job, run_command, tmp_path, monkeypatch):
    """Also where the run of yesterday, which may have to be finished, is looked for."""
    monkeypatch.setenv("MY_SECRET", "AKIAMARKEDMARKED")
    monkeypatch.chdir(tmp_path)
    job.write_text(
        f"{JOB}[notify]\ncommand = ['sh', '-c', 'echo $LPE_DASK_EVENT > notified']\n"
    )
    assert run_command("run", job, *THREADS)[0] == 2
    assert (tmp_path / "notified").read_text() == "failure\n"


def test_calls__wrong_keys(options, client, caplog, capfd):
    wrong = options | {"secret": "marked-and-wrong"}
    rows, out = "s3://bucket/rows.parquet", "s3://bucket/wrong"
    calls = [
        lambda of: lpe_dask.score_files(rows, out, nominal=rows, **of),
        lambda of: lpe_dask.score_files(rows, out, model="s3://bucket/wrong", **of),
        lambda of: lpe_dask.LPE(5).fit(np.eye(9)).save("s3://bucket/wrong", **of),
        lambda of: lpe_dask.load("s3://bucket/saved", **of),
        lambda of: lpe_dask.plan(rows, **of),
        lambda of: lpe_dask.score(rows, **of),
        lambda of: lpe_dask.report(out, **of),
        lambda of: explain_output(out, **of),
    ]
    for call in calls:
        for of in ({"storage_options": wrong}, {}):
            with pytest.raises(
                PermissionError, match=r"access to s3://bucket/\S+ is"
            ) as raised:
                call(of)
            text = "".join(traceback.format_exception(raised.value))
            assert "Check the keys" in text
            assert "marked" not in text
    check_text(options, caplog.text, *capfd.readouterr())
    assert "Retrying" not in caplog.text
    assert "marked" not in caplog.text


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_score__rights_that_end(options, faults, client, ending, capfd):
    """The client has read what workers then may not: a task raises what the user sees."""
    nominal = pd.DataFrame(np.eye(3).repeat(20, axis=0), columns=list("abc"))
    url = f"s3://bucket/rows.{ending}"
    p_values = lpe_dask.score(url, nominal, columns=list("abc"), storage_options=options)
    faults.given.clear()
    faults.answer = lambda method, path: 403 if "rows" in path else None
    with pytest.raises(RefusedError, match=f"bucket/rows.{ending} is refused"):
        p_values.compute()
    assert 1 <= len(faults.given) <= 4
    check_text(options, *capfd.readouterr())
