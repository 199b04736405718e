import pytest

from lpe_dask.search import spooled


def test_new_entry__says_once_that_a_storage_is_not_available(monkeypatch):
    def refuse(place):
        raise ConnectionError("the storage is not available. Start again.")

    monkeypatch.setattr(spooled, "spool_at", refuse)

    with pytest.raises(OSError, match=r"them: .* available\. Start again\. Name a folder"):
        spooled.new_entry()
