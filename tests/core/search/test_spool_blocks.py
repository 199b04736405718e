import pytest

from lpe_dask.search.blocks import spool_blocks


def test_new_entry__says_once_that_a_storage_is_not_available(monkeypatch):
    def refuse(place):
        raise ConnectionError("the storage is not available. Start again.")

    monkeypatch.setattr(spool_blocks, "spool_at", refuse)

    with pytest.raises(OSError, match=r"them: .* available\. Start again\. Name a folder"):
        spool_blocks.new_entry()
