"""A folder on a local disk, and one in memory."""

from uuid import uuid4

import fsspec
import pytest


@pytest.fixture(params=["local", "memory"])
def folder(request, tmp_path):
    """The URL of an empty folder."""
    url = str(tmp_path) if request.param == "local" else f"memory://{uuid4().hex}"
    filesystem, root = fsspec.core.url_to_fs(url)
    filesystem.makedirs(root, exist_ok=True)
    yield url
    if request.param == "memory":
        filesystem.rm(root, recursive=True)
