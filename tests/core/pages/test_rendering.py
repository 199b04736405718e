"""How numbers, names, places and times are written, and the colors of the pages."""

import math
import re

import pytest

from lpe_dask.pages.rendering import cut, moment, parted, place, sentence, style, written
from summaries import NASTY


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        (None, "count", "none"), (True, "plain", "yes"), (False, "count", "no"),
        ("inf", "percent", "inf"), (math.inf, "percent", "inf"), (math.nan, "count", "nan"),
        (0, "count", "0"), (10**8, "count", "100,000,000"), (10**400, "count", "too large"),
        (10**20, "count", "1e+20"), (1e300, "bytes", "1e+300"),
        (-1e300, "percent", "-1e+300"),
        (0.5, "percent", "50.00 %"), (0, "percent", "0.00 %"), (1e-9, "percent", "0.00 %"),
        (0.0123, "seconds", "0.0123 s"), (119, "seconds", "119 s"),
        (120, "seconds", "2.0 minutes"),
        (7200, "seconds", "2.0 hours"), (200_000, "seconds", "2.3 days"),
        (1023, "bytes", "1,023 bytes"), (2**20, "bytes", "1.0 MiB"),
        (2**50, "bytes", "1.126e+15"),
        (5203179.0, "plain", "5,203,179"), (0.00012345, "plain", "0.0001234"),
        (-0.5, "plain", "-0.5"),
        ([], "plain", ""), ([1, "a", None], "plain", "1, a, none"),
        ([[[[1]]]], "plain", "…"), ({"a": {"b": 0.5}}, "plain", "a: b: 0.5"),
        (list(range(9)), "plain", "0, 1, 2, 3, 4 and 4 more"),
        ({str(i): i for i in range(7)}, "plain", "0: 0, 1: 1, 2: 2, 3: 3, 4: 4 and 2 more"),
    ],
)  # fmt: skip
def test_written__is_short_and_has_the_unit(value, form, text):
    assert written(value, form) == text


def test_written__of_deep_lists_ends():
    deep = []
    for _ in range(900):
        deep = [deep]
    assert written(deep) == "…"


@pytest.mark.parametrize("text", NASTY)
@pytest.mark.parametrize("most", [12, 40, 60])
@pytest.mark.parametrize("shorten", [cut, place])
def test_cut__takes_no_more_bytes_than_told(shorten, text, most):
    short = shorten(text, most)
    assert short.isprintable()
    escaped = short.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert len(escaped.replace('"', "&#34;").encode()) <= most + len("/")


def test_cut__leaves_short_names_as_they_are():
    for name in ("speed", "Größe [m²]", "ارتفاع", "高さ", "a & b"):
        assert cut(name) == name


def test_place__keeps_the_end_and_other_schemes():
    assert place("file:///out/night 1") == "/out/night 1"
    assert place("s3://bucket/out") == "s3://bucket/out"
    assert place("s3://bucket/" + "long/" * 30 + "2026-11-25", 40).endswith("/2026-11-25")
    assert place("x" * 100, 10) == "…" + "x" * 7


@pytest.mark.parametrize("text", NASTY)
def test_parted__adds_nothing_but_places_to_break(text):
    plain = parted(text).replace("<wbr>", "")
    assert re.search("[<>\"']", plain) is None
    assert parted("dst_host_rate") == "dst_<wbr>host_<wbr>rate"
    assert parted("1,234,567") == "1,<wbr>234,<wbr>567"
    assert parted("12.345") == "12.345"
    assert parted("a_b & c_d") == "a_b &amp; c_d"


def test_moment__is_readable_or_what_it_was():
    assert moment("2026-11-25T02:03:04+00:00") == "25 November 2026, 02:03 UTC"
    assert moment("2026-11-25T02:03:04+02:00") == "25 November 2026, 02:03 UTC+02:00"
    assert moment("2026-11-25T02:03:04") == "25 November 2026, 02:03"
    assert moment(None) == "None"
    assert moment("<b>") == "<b>"


def test_sentence__begins_with_a_capital_letter():
    assert [sentence(text) for text in ("", "a Bc", "É")] == ["", "A Bc", "É"]


def _luminance(color):
    digits = color[1:] if len(color) == 7 else "".join(2 * c for c in color[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    red, green, blue = (
        x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one, other):
    low, high = sorted([_luminance(one), _luminance(other)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_style__has_contrast_enough_for_text_and_pictures(mode):
    light, dark = style().split("@media (prefers-color-scheme: dark)")
    colors = dict(re.findall(r"--(\w+): (#[0-9a-f]+);", light if mode == "light" else dark))
    texts = {"ink", "soft", "good", "warn", "bad", "mark"}
    assert set(colors) == texts | {"back", "field", "line"}
    for name in texts:
        for under in ("back", "field"):
            assert _contrast(colors[name], colors[under]) >= 4.5, (name, under)
