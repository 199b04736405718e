"""Times to wait, as users write them."""

import math

import dask
import pytest

from lpe_dask.tasks import seconds_of, timeout


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90), ("30min", 1800), (" 5 min ", 300), ("1.5 h", 5400), ("2 hours", 7200),
        ("1 day", 86400), ("4 minutes", 240),
    ],
)  # fmt: skip
def test_seconds_of__reads_numbers_with_units(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "soon", "min", "30", "0s", "1e999s", "-1s", "30 parsecs", "1 h 2"]
)
def test_seconds_of__refuses_all_else(text):
    with pytest.raises(ValueError, match=r"is not a time above 0. Write it as 90s"):
        seconds_of(text)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(10, 10), (0.5, 0.5), ("30min", 1800), (None, math.inf), (math.inf, math.inf)],
)
def test_timeout__is_that_of_the_configuration(value, seconds):
    with dask.config.set({"lpe-dask.timeouts.look": value}):
        assert timeout("look") == seconds


@pytest.mark.parametrize("value", ["soon", 0, -1, "0s", [], math.nan, "s"])
def test_timeout__says_what_is_wrong_with_it(value):
    with (
        dask.config.set({"lpe-dask.timeouts.look": value}),
        pytest.raises(
            ValueError, match=r"lpe-dask.timeouts.look: .* is not a time above 0"
        ),
    ):
        timeout("look")
