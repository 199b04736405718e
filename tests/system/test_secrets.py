"""Passwords, users and signatures of URLs: in no file, message, page or plan."""

import base64
import functools
import http.server
import json
import logging
import threading
import traceback
from pathlib import Path
from urllib.parse import urlsplit

import dask
import numpy as np
import pandas as pd
import pytest

import lpe_dask
from calling import THREADS, invoke

#: What must not be seen anywhere.
USER, PASSWORD, TOKEN = "marked-user", "marked-word", "marked-token/x=1"
MARK = b"marked-"


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Gives files, and ranges of them, to those who know the password or a signature."""

    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self._answer(has_body=False)

    def do_GET(self):
        self._answer(has_body=True)

    def _answer(self, *, has_body):
        known = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        is_known = self.headers.get("Authorization") == f"Basic {known}"
        if not is_known and f"sig={TOKEN}" not in urlsplit(self.path).query:
            self.send_error(403)
            return
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            self.send_error(404)
            return
        content, given = path.read_bytes(), self.headers.get("Range")
        start, stop = 0, len(content)
        if given is not None:
            first, last = given.removeprefix("bytes=").split("-")
            start, stop = int(first), min(int(last or stop) + 1, stop)
        self.send_response(200 if given is None else 206)
        if given is not None:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(content)}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(stop - start))
        self.end_headers()
        if has_body:
            self.wfile.write(content[start:stop])


@pytest.fixture(scope="module")
def urls(tmp_path_factory):
    """Return URLs of one server: signed ones, and those with a password."""
    folder = tmp_path_factory.mktemp("served")
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.normal(size=(300, 3)), columns=list("abc"))
    rows.to_parquet(folder / "nominal.parquet")
    rows[:60].to_parquet(folder / "rows.parquet")
    rows[:60].to_csv(folder / "rows.csv.gz", index=False)
    (folder / "damaged.parquet").write_bytes(b"PAR1 no table")
    lpe_dask.LPE(5).fit(rows).save(str(folder / "model"))
    handler = functools.partial(_Handler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        yield {
            "folder": folder,
            "signed": lambda name: f"http://127.0.0.1:{port}/{name}?X=1&sig={TOKEN}",
            "password": lambda name: f"http://{USER}:{PASSWORD}@127.0.0.1:{port}/{name}",
        }
        server.shutdown()


@pytest.fixture(autouse=True)
def _few_attempts(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    pauses = {"attempts": 2, "first-pause": 0.01, "longest-pause": 0.01}
    with dask.config.set({f"lpe-dask.retries.{name}": of for name, of in pauses.items()}):
        yield


def command(*arguments):
    """Run a command, check all it says, and return exit code and text."""
    result = invoke(*arguments)
    assert MARK not in result.output.encode()
    return result.exit_code, result.output


def check_files(folder):
    """Raise if a file below a folder has a secret; return how many there are."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    found = [path for path in files if MARK in path.read_bytes()]
    assert not found
    return len(files)


@pytest.mark.parametrize("how", ["signed", "password"])
@pytest.mark.parametrize("name", ["rows.parquet", "rows.csv.gz"])
def test_score__of_urls(urls, how, name, tmp_path):
    out = tmp_path / "out"
    job = tmp_path / "job.toml"
    job.write_text(
        f"[nominal]\ndata = '{urls[how]('nominal.parquet')}'\n[model]\n"
        f"path = '{tmp_path / 'model'}'\n"
        f"[score]\ndata = '{urls[how](name)}'\noutput = '{out}'\n"
    )
    for name_of_command in ("plan", "run", "run", "explain"):
        place = out if name_of_command == "explain" else job
        code, text = command(name_of_command, place, *THREADS, "--debug")
        assert code == 0, text
    for name_of_command in ("status", "report"):
        assert command(name_of_command, out)[0] == 0
    job.unlink()  # of the user
    assert check_files(tmp_path) > 4
    stored = json.loads((out / "_summary.json").read_text())["fingerprint"]["data"]
    assert "***" in stored[0][0]


def test_score__another_signature_is_another_input(urls, tmp_path):
    data, out = urls["signed"]("rows.parquet"), tmp_path / "out"
    arguments = ("--model", urls["password"]("model"), "--output", out)
    assert command("score", data, *arguments, *THREADS)[0] == 0
    code, text = command("score", f"{data}&more=1", *arguments, *THREADS)
    assert code == 2
    assert "differs in: the input (http://127.0.0.1:" in text
    check_files(tmp_path)
    code, text = command("explain", out, "--top", "60", *THREADS)
    assert code == 2
    assert "at a URL with a password" in text


@pytest.mark.parametrize("how", ["signed", "password"])
@pytest.mark.parametrize(
    ("data", "model"),
    [("absent.parquet", "model"), ("rows.parquet", "absent"), ("damaged.parquet", "model")],
)
def test_errors__of_urls(urls, how, data, model, tmp_path, caplog):
    data, model = urls[how](data), urls["password"](model)
    out = tmp_path / "out"
    given = ("--output", out, *THREADS, "--debug")
    code, text = command("score", data, "--model", model, *given)
    assert code != 0
    assert "127.0.0.1" in text
    with pytest.raises(Exception) as caught, caplog.at_level(logging.DEBUG):  # noqa: PT011
        lpe_dask.score(data, lpe_dask.load(model))
    assert MARK not in "".join(traceback.format_exception(caught.value)).encode()
    own = [r.getMessage() for r in caplog.records if r.name.startswith("lpe_dask")]
    assert MARK not in "".join(own).encode()  # fsspec logs whole URLs at this level
    check_files(tmp_path)


@pytest.mark.parametrize("how", ["signed", "password"])
@pytest.mark.parametrize("name", ["rows.parquet", "rows.csv.gz"])
def test_errors__of_results_that_are_computed_later(urls, how, name, tmp_path):
    """No public function is left then: a task raises what the user sees."""
    file = urls["folder"] / f"{how}-{name}"
    file.write_bytes((urls["folder"] / name).read_bytes())
    scored = (
        lpe_dask.LPE(5)
        .fit(np.arange(60.0).reshape(20, 3))
        .score_samples(urls[how](file.name))
    )
    file.unlink()

    with pytest.raises(Exception) as caught:  # noqa: PT011
        scored.compute()

    said = "".join(traceback.format_exception(caught.value))
    assert file.name in said
    assert MARK not in said.encode()


@pytest.mark.parametrize(
    "url",
    [
        f"http://{USER}:{PASSWORD}@127.0.0.1:9/x.parquet",
        f"http://127.0.0.1:9/x.parquet?sig={TOKEN}",
        f"ftp://{USER}:{PASSWORD}@127.0.0.1:9/x.parquet",
        f"sftp://{USER}:{PASSWORD}@127.0.0.1:9/x.parquet",
        f"s3://{USER}:{PASSWORD}@bucket/x.parquet",
        f"s3://A:{PASSWORD}/{PASSWORD}@bucket/x.parquet",
        f"simplecache::gs://{USER}:{PASSWORD}/{PASSWORD}@bucket/x.parquet",
        f"filecache::http://{USER}:{PASSWORD}@127.0.0.1:9/x.parquet",
        f"nowhere://{USER}:{PASSWORD}@host/x.parquet?sig={TOKEN}",
    ],
)
def test_errors__of_servers_that_do_not_answer(url, tmp_path):
    given = (*THREADS, "--debug")
    nominal = ("--nominal", url, *given)
    assert command("score", url, "--output", tmp_path / "out", *nominal)[0] != 0
    assert command("score", tmp_path, "--output", url, *nominal)[0] != 0
    assert command("plan", url, *nominal)[0] != 0
    assert command("fit", url, "--model", url, *given)[0] != 0
    assert command("status", url)[0] != 0
    assert command("explain", url)[0] != 0
    check_files(tmp_path)
