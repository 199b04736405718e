import pytest

from lpe_dask.storage import short_message, single_line


@pytest.mark.parametrize("text", ["it ends", "it ends.", "it\nends.\n", " it  ends."])
def test_one_line__ends_without_a_full_stop(text):
    assert single_line(ValueError(text)) == "it ends"
    assert short_message(ValueError(text)) == "ValueError: it ends."
