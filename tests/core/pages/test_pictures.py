"""The pictures of the page: valid, small, in the colors of the page, and never an error."""

import re
import sys
from xml.etree import ElementTree

import matplotlib as mpl
import pytest

from choosing import mostly_full
from lpe_dask.pages import report_page
from lpe_dask.pages.pictures import (
    _COLORS,
    has_pictures,
    p_value_figure,
    runs_figure,
)
from summaries import drifting, invalid, ordinary

BINS = ordinary()["p_value_bins"]
BAD = (None, "nan", "x", True, [], {}, float("nan"), float("inf"), -1, 0, 1e308, 10**400)


def runs_of(summary):
    drift = summary["drift"]
    promised = [drift["promised"], *drift["promised_between"]]
    return runs_figure(drift["state"]["runs"], promised, 0.01)


def texts_of(picture):
    return [text.text for text in ElementTree.fromstring(picture).iter("text")]


def test_picture_of_p_values__is_one_element_in_the_colors_of_the_page():
    picture = p_value_figure(BINS, 0.01)
    root = ElementTree.fromstring(picture)
    assert (root.tag, root.get("role")) == ("svg", "img")
    assert root.get("aria-label")
    assert len(picture) < 10_000
    assert re.findall("<style|<script|<metadata|<image|<!--", picture) == []
    assert all(color not in picture for color in _COLORS)
    assert {"var(--ink)", "var(--mark)"} <= set(re.findall(r"var\(--\w+\)", picture))
    assert re.findall("#(?!p-)[0-9a-z]+", picture) == []  # neither colors nor other ids


def test_picture_of_p_values__has_the_flagged_rows_on_their_own():
    assert {"flagged", "≤ 0.1", "0.2", "1.0", "rows / promised"} <= set(
        texts_of(p_value_figure(BINS, 0.01))
    )
    bins = {name: values[1:] for name, values in BINS.items()}  # no row can be flagged
    texts = texts_of(p_value_figure(bins, 0.01))
    assert "≤ 0.1" in texts
    assert "flagged" not in texts
    one = {name: values[:1] for name, values in BINS.items()}
    assert "flagged" in texts_of(p_value_figure(one, 0.01))


def test_picture_of_p_values__cuts_what_is_far_from_the_promise_and_names_it():
    many = BINS | {"rows": [90_000, 0, 0, 0, 0, 10_000]}
    texts = texts_of(p_value_figure(many, 0.01))
    assert {"90", "10", "0.1"} <= set(texts)
    assert "20" not in texts
    near = texts_of(p_value_figure(BINS, 0.01))
    assert {"0.5", "1", "2"} <= set(near)
    assert "5" not in near


@pytest.mark.parametrize("bad", mostly_full(BAD, [None, "x", 10**400]))
def test_picture_of_p_values__survives_what_is_no_number(bad):
    for name, values in BINS.items():
        for changed in (bad, [bad] * len(values), [bad, *values[1:]]):
            picture = p_value_figure(BINS | {name: changed}, 0.01)
            assert picture is None or picture.startswith("<svg")
    assert p_value_figure(bad, 0.01) is None


def test_picture_of_runs__tells_verdicts_apart_by_shape_and_color():
    for summary, word, color in (
        (ordinary(), "no drift", "mark"), (drifting(), "drift", "warn"),
        (invalid(), "invalid input", "bad"),
    ):  # fmt: skip
        picture = runs_of(summary)
        texts = [x.text for x in ElementTree.fromstring(picture).iter("text")]
        assert word in texts
        assert f"var(--{color})" in picture
        shares = [float(text[:-2]) for text in texts if text.endswith(" %")]
        assert shares == sorted(set(shares)) != []
    assert "#p-" not in picture  # ids are apart from those of the other picture


def test_picture_of_runs__is_the_same_each_time_and_small():
    assert len(runs_of(ordinary(n_runs=200))) < 75_000
    assert runs_of(ordinary(n_runs=9)) == runs_of(ordinary(n_runs=9))


def test_picture_of_runs__survives_what_is_no_run():
    run = ordinary()["drift"]["state"]["runs"][0]
    odd = [{**run, name: bad} for name in run for bad in BAD]
    odd += [{**run, "flagged_between": [bad, bad]} for bad in BAD]
    assert runs_figure([*odd, *BAD], [0.01, 0, 0.02], 0.01).startswith("<svg")
    assert runs_figure([None, {}], [10.0**300, 0.0, -1.0], -1.0).startswith("<svg")


def test_picture_of_runs__takes_two_runs_of():
    assert runs_of(ordinary(n_runs=1)) is None
    assert runs_of(ordinary(n_runs=0)) is None


def test_pictures__do_not_depend_on_the_style_that_is_set():
    plain = p_value_figure(BINS, 0.01)
    with mpl.rc_context({"axes.grid": True, "font.size": 30, "text.color": "red"}):
        assert p_value_figure(BINS, 0.01) == plain
        assert mpl.rcParams["font.size"] == 30


def test_has_pictures__is_false_without_matplotlib(monkeypatch):
    assert has_pictures()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert not has_pictures()
    assert "<svg" not in report_page(ordinary())
