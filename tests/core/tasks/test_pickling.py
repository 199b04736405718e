"""Values in files: the keys of their URLs travel otherwise."""

import io

import cloudpickle
import fsspec
from pyarrow.fs import FSSpecHandler, PyFileSystem

from lpe_dask.storage import StoredFile, Url
from lpe_dask.tasks.pickling import dump_without_options, load_with_options

KEYS = {"s3": {"key": "marked-key"}}


def test_dump_without_options__brings_urls_back():
    urls = [Url("s3://bucket/a", KEYS), Url("s3://bucket/b", KEYS), Url("gs://c", {"t": 1})]
    filesystem = fsspec.filesystem("s3", key="marked-key")
    handler = PyFileSystem(FSSpecHandler(filesystem))  # as tasks that read Parquet have it
    value = {
        "opened": [handler, handler],
        "files": [StoredFile(url, 1, "") for url in urls],
        "f": lambda: urls[0],
    }
    file = io.BytesIO()
    credentials = dump_without_options(value, file)
    assert credentials == [filesystem, KEYS, {"t": 1}]
    assert b"marked" not in file.getvalue()
    assert b"marked" in cloudpickle.dumps(value)

    file.seek(0)
    found = load_with_options(credentials, file)
    assert found["opened"][1].handler.fs.key == "marked-key"
    of_files = [stored.url for stored in found["files"]]
    assert of_files == urls
    assert [url.options for url in of_files] == [KEYS, KEYS, {"t": 1}]
    assert found["f"]().options == KEYS
