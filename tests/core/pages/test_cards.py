"""The small cards in notebooks."""

import re

import pytest

from lpe_dask.pages import card
from summaries import NASTY


@pytest.mark.parametrize("text", NASTY)
def test_card__escapes_and_cuts_whatever_it_is_given(text):
    made = card(text, {text: text})
    tags = {"div", "style", "h3", "table", "tr", "th", "td"}
    assert set(re.findall(r"</?(\w+)", made)) == tags
    assert "url(" not in made
    assert len(card(text, {text: text})) < 4000


def test_card__writes_values_as_pages_do():
    made = card("A model", {"rows": 2000, "alpha": 0.01, "radius": None, "p": [1, 2]})
    cells = dict(re.findall(r'<th scope="row">(.*?)</th><td>(.*?)</td>', made))
    assert cells == {"rows": "2,000", "alpha": "0.01", "radius": "none", "p": "1, 2"}
