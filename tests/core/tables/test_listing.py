"""Places of tables: where a storage refuses to say what is there."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lpe_dask.storage import RefusedError, Url
from lpe_dask.tables.listing import list_files


@contextmanager
def server_that_answers(status):
    """Give the URL of a server, and the list of requests that it has had."""
    requests = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            requests.append(self.command)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", requests
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [
        (401, RefusedError, r"access to \S+/rows.parquet is refused: .*Check the keys"),
        (403, RefusedError, r"access to \S+/rows.parquet is refused: .*Check the keys"),
        (404, FileNotFoundError, r"there is no table at \S+/rows.parquet"),
    ],
)
def test_list_files__of_a_server_that_has_no_file(status, kind, message):
    with server_that_answers(status) as (place, requests):
        url = Url(f"{place}/rows.parquet", {"headers": {"Authorization": "marked-token"}})
        with pytest.raises(kind, match=message) as raised:
            list_files(url, lambda name: True)
    assert "marked" not in str(raised.value)
    assert len(requests) <= 6
