"""How the progress of a search is counted and told."""

import pytest

from lpe_dask.cli.progress import Tally, search_of, tiles_of


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def shown(clock):
    """A tally and the list of what it has shown."""
    lines = []
    return Tally(lambda search, now: lines.append(search.describe(now)), clock), lines


# Counting


def test_tally__shows_rate_and_time_left(shown, clock):
    tally, lines = shown

    tally.put("a", 0, 40)
    clock.now += 5
    tally.put("a", 10, 40)

    assert lines == ["0 of 40 tiles", "10 of 40 tiles, 2.00/s, 0:00:15 left"]


def test_tally__shows_rows_where_they_are_known(shown, clock):
    tally, lines = shown

    tally.expect(2_000_000)
    tally.put("a", 0, 40)
    clock.now += 5
    tally.put("a", 10, 40)
    tally.expect(None)
    tally.put("b", 1, 3)

    assert lines == [
        "0 of 40 tiles, 0 of 2,000,000 rows",
        "10 of 40 tiles, 500,000 of 2,000,000 rows, 100,000 rows/s, 0:00:15 left",
        "1 of 3 tiles",
    ]


def test_tally__shows_no_rate_before_it_means_something(shown, clock):
    tally, lines = shown

    tally.put("a", 0, 4)
    clock.now += 0.1
    tally.put("a", 3, 4)

    assert lines[-1] == "3 of 4 tiles"


def test_tally__lets_the_time_left_run_between_tiles(clock):
    searches = []
    tally = Tally(lambda search, now: searches.append(search), clock)
    tally.put("a", 0, 4)
    clock.now += 10
    tally.put("a", 2, 4)

    later = [searches[-1].describe(clock.now + seconds) for seconds in (0, 4, 400)]

    assert [text.split(", ")[-1] for text in later] == [
        "0:00:10 left",
        "0:00:06 left",
        "0:00:00 left",
    ]


def test_tally__shows_only_what_moved(shown):
    tally, lines = shown

    for done in (0, 0, 1, 1):
        tally.put("a", done, 2)

    assert len(lines) == 2


def test_tally__counts_forgotten_tiles_as_done(shown):
    """A scheduler lets go of results that have been used, then of the whole search."""
    tally, lines = shown

    tally.put_open({"a": (4, 4)})
    tally.put_open({"a": (2, 3)})
    tally.put_open({"b": (1, 1)})

    assert lines == ["0 of 4 tiles", "2 of 4 tiles", "4 of 4 tiles", "0 of 1 tiles"]


@pytest.mark.parametrize(
    ("key", "search"),
    [
        (("lpe-join-0a1b", 3, 0), "0a1b"),
        ("lpe-join-0a1b-3", "0a1b"),
        ("lpe-walk-0a1b-300", "0a1b"),
        ("lpe-join", ""),
        ("lpe-joiner-0a1b", None),
        (("lpe-pack-0a1b", 3), None),
        (7, None),
    ],
)
def test_search_of__tells_tiles_from_other_tasks(key, search):
    assert search_of(key) == search


def test_tiles_of__adds_the_groups_of_a_search():
    groups = {"lpe-join-0a1b": (1, 5), "lpe-walk-0a1b": (2, 3), "lpe-joiner-0a1b": (7, 7)}

    assert tiles_of(groups) == {"0a1b": (3, 8)}
    assert tiles_of({}) == {}
