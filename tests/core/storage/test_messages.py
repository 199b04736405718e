import pytest

from lpe_dask.storage import brief, one_line


@pytest.mark.parametrize("text", ["it ends", "it ends.", "it\nends.\n", " it  ends."])
def test_one_line__ends_without_a_full_stop(text):
    assert one_line(ValueError(text)) == "it ends"
    assert brief(ValueError(text)) == "ValueError: it ends."
