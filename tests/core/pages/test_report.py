"""The page about a run: each number is that of the summary, and there is always a page."""

import json
import re
from html.parser import HTMLParser

import pytest

import lpe_dask.pages.report as report_module
import summaries
from choosing import mostly_full
from lpe_dask.pages import report_page
from lpe_dask.pages.rendering import cut, place, written
from lpe_dask.pages.report import MAX_BYTES, Content

KINDS = (
    "ordinary", "drifting", "invalid", "calibrating", "single", "with_fdr", "own", "old",
    "hostile",
)  # fmt: skip

#: What damaged summaries, and those of other versions, may have anywhere.
BAD = (
    None, "nan", "a text", True, -1, float("nan"), 10**400, [], {}, [None], [{}],
    {"0": {"b": []}},
)  # fmt: skip

VOID = {"meta", "wbr", "path", "use"}


class Page(HTMLParser):
    """What a page shows: numbers by key, cells of tables by section, and texts."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.attributes = [], [], []
        self.numbers, self.first, self.tables = [], set(), {}
        self.texts, self.section, self.times = [], "", []
        self.feed(page)
        self.close()
        assert self.open == []  # each element is closed

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        attributes = dict(attrs)
        if tag not in VOID:
            self.open.append((tag, attributes.get("class", "")))
        if tag == "data":
            self.numbers.append([attributes["data-key"], attributes["value"], ""])
            if ("section", "first") in self.open:
                self.first.add(attributes["data-key"])
        if tag == "time":
            self.times.append(attributes["datetime"])
        if tag == "table":
            self.tables.setdefault(self.section, []).append([])
        if tag == "tr":
            self.tables[self.section][-1].append([])
        if tag in ("td", "th"):
            self.tables[self.section][-1][-1].append("")
        if tag == "h2":
            self.section = ""

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop()[0] == tag

    def handle_data(self, data):
        inside = [tag for tag, _ in self.open]
        if "style" in inside:
            return
        self.texts.append(data)
        if "data" in inside:
            self.numbers[-1][2] += data
        if "h2" in inside:
            self.section += data
        if "td" in inside or "th" in inside:
            self.tables[self.section][-1][-1][-1] += data

    @property
    def text(self):
        return " ".join("".join(self.texts).split())


@pytest.fixture
def without_pictures(monkeypatch):
    monkeypatch.setattr(report_module, "has_pictures", lambda: False)


@pytest.fixture(scope="module")
def pages():
    """Each kind of summary, and the page about it without pictures."""
    given = {name: getattr(summaries, name)() for name in KINDS}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report_module, "has_pictures", lambda: False)
        return {name: (summary, report_page(summary)) for name, summary in given.items()}


@pytest.mark.parametrize("name", mostly_full(KINDS, ["drifting", "old", "hostile"]))
def test_report_page__is_small_and_loads_nothing(name):
    page = report_page(getattr(summaries, name)())
    assert len(page.encode(errors="replace")) <= MAX_BYTES
    parsed = Page(page)
    refused = {"script", "link", "img", "iframe", "object", "embed", "base", "form", "a"}
    assert not refused & set(parsed.tags)
    for attribute, value in parsed.attributes:
        assert attribute not in ("src", "srcset", "action", "data", "poster")
        assert not attribute.startswith("on")
        assert "href" not in attribute or value.startswith("#")
    assert re.findall(r"url\((?!#)|@import|https?://(?!example)", page) == []


@pytest.mark.parametrize("name", KINDS)
def test_report_page__has_each_number_as_the_summary_has_it(name, pages):
    summary, page = pages[name]
    numbers = Page(page).numbers
    assert len(numbers) > (10 if name == "old" else 30)
    forms = ("plain", "count", "percent", "seconds", "bytes")
    for key, value, text in numbers:
        exact = Content(summary).at(key)
        assert value == repr(exact)
        assert text in {written(exact, form) for form in forms}


@pytest.mark.parametrize("name", KINDS)
def test_report_page__begins_with_the_numbers_that_are_asked_for(name, pages):
    summary, page = pages[name]
    wanted = {"flagged", "seconds"}
    if name != "old":
        wanted |= {"flagged_share", "flagged_between.0", "flagged_between.1"}
        wanted |= {"peak_worker_bytes", "planned_worker_bytes"}
        wanted |= {"fdr", "fdr_cut_off"} if summary["fdr"] else {"alpha"}
        wanted |= {"reasons.flagged_rows", "reasons.top_columns.0.rows"}
    if summary["rows_nan"]:
        wanted.add("rows_nan")
        counts = enumerate(of["missing"] for of in summary["values"])
        wanted |= {f"values.{i}.missing" for i, n_missing in counts if n_missing}
    if name in ("single", "own", "old"):
        wanted.add("rows")
    if name == "drifting":
        wanted.add("drift.consecutive_excess_runs")
    parsed = Page(page)
    assert parsed.first == wanted
    assert {"rows"} <= {key for key, _, _ in parsed.numbers}


@pytest.mark.parametrize("name", ["ordinary", "drifting", "invalid", "with_fdr", "own"])
def test_report_page__has_the_reasons_of_the_summary(name, pages):
    summary, page = pages[name]
    parsed = Page(page)
    lines = [
        line for table in parsed.tables["The most anomalous rows, and why"]
        for line in table[1:]
    ]  # fmt: skip
    rows = summary["reasons"]["rows"]
    assert lines == [
        [
            cut(column["column"]), written(column["value"], "value"), column["usual"],
            written(column["share"], "percent"),
        ]
        for row in rows for column in row["columns"]
    ]  # fmt: skip
    for i, row in enumerate(rows):
        assert f"pump {i} site north_east {row['part']}, row {row['row']} p" in parsed.text
    assert parsed.text.count("flagged; spread over many columns") == 1
    assert parsed.text.count(", not flagged") == sum(not row["is_anomaly"] for row in rows)


@pytest.mark.parametrize("name", ["ordinary", "drifting", "invalid"])
def test_report_page__has_the_past_runs_and_the_parameters(name, pages):
    summary, page = pages[name]
    tables = Page(page).tables
    assert tables["Past runs"][0][1:] == [
        [
            place(run["run"]), run["verdict"], written(run["rows"], "count"),
            written(run["flagged_share"], "percent"), written(run["shift"], "percent"),
            written(run["recent_shift"], "percent"), written(run["log10_evidence"]),
        ]
        for run in reversed(summary["drift"]["state"]["runs"])
    ]  # fmt: skip
    parameters = summary["parameters"].items()
    assert tables["Model"][-1] == [[name, written(value)] for name, value in parameters]


@pytest.mark.parametrize("name", KINDS)
def test_report_page__says_its_verdict_once(name, pages):
    summary, page = pages[name]
    text = Page(page).text
    verdict = summary.get("drift", {}).get("verdict")
    assert (verdict.capitalize() if verdict else "Rows 100,000") + " " in text
    assert f"{verdict}: " not in text
    if name != "hostile":
        assert text.startswith("/out/2026-11-25: " + (verdict or "scored"))
        assert "file://" not in text


def test_report_page__tells_what_to_look_at(pages, without_pictures):
    looks = {}
    for name in KINDS:
        text = Page(pages[name][1]).text
        looks[name] = text.split("What to look at ")[1].split(" Cost ")[0]
    assert looks["old"] == "Nothing."
    assert looks["ordinary"].startswith("mean_of_sensor_0: the first reason for 3 of the 3")
    assert looks["drifting"].startswith("what has changed since run-4; then fit")
    assert looks["invalid"].startswith("the input of this run")
    failed = summaries.changed(summaries.ordinary(), ["calibration_check", "holds"], False)
    assert "more false alarms than promised" in report_page(failed)
    unknown = summaries.changed(summaries.drifting(), ["drift", "changed_since"], None)
    assert "what has changed since this run" in report_page(unknown)


def test_report_page__lists_the_groups_with_most_evidence(without_pictures):
    summary = summaries.drifting()
    summary["drift"]["groups"] = summaries.of_groups()

    text = Page(report_page(summary)).text

    looks = text.split("What to look at ")[1]
    assert looks.startswith("what has changed in site=north since run-4; then fit")
    listed = text.split("Groups with most evidence of a change ")[1]
    assert listed.startswith(
        "1,000 groups are tested, each against rows of its own; the other 234, which are "
        "smaller, are not. 56 rows of small or unknown groups are not tested."
    )
    assert "Changed, by Holm's method: 1." in listed
    assert "site=northchanged1,203178.10 %4.30 %8.1252.5e-06" in listed
    assert "site=south1,202184.05 %2.15 %7.1250.0025" in listed
    assert "in the run and in up to 8, against what is expected of as many rows" in text
    assert "Groups with most" not in Page(report_page(summaries.drifting())).text


def test_report_page__lists_the_patterns(pages):
    parsed = Page(pages["ordinary"][1])

    (table,) = parsed.tables["Patterns among the flagged rows"]
    assert table[0] == [
        "pattern", "about rows", "share", "groups", "most in", "time_of_day",
        "earlier runs", "example",
    ]  # fmt: skip
    assert table[1] == [
        "mean_of_sensor_0 high, site = north", "617", "50.00 %", "2", "north (80.00 %)",
        "2026-11-24 01:03:00 to 2026-11-24 01:04:00",
        "in 4 of the last 5",
        "pump 0, part-00007.parquet, row 77",
    ]  # fmt: skip
    assert table[3][6] == "new"
    assert (
        "1,000 of 1,234 flagged rows, drawn at random, are grouped by the columns with the "
        "largest shares of their distance; 87.50 % of them are in one of these patterns."
    ) in parsed.text
    assert "No p-value belongs to these groups, as the data chose them" in parsed.text


def test_report_page__of_patterns_without_groups_times_and_earlier_runs(without_pictures):
    summary = summaries.ordinary()
    found = summary["patterns"] | {
        "is_sample": False, "time_column": None, "n_earlier_runs": 0
    }  # fmt: skip
    nothing = dict.fromkeys(["n_groups", "top_group", "is_new", "seen_runs"])
    listed = [pattern | nothing for pattern in found["listed"]]

    parsed = Page(report_page(summary | {"patterns": found | {"listed": listed}}))

    (table,) = parsed.tables["Patterns among the flagged rows"]
    assert table[0] == ["pattern", "rows", "share", "example"]
    assert "All 1,000 flagged rows are grouped" in parsed.text
    assert "new if" not in parsed.text
    for changed, reason in [
        ({}, "no row is flagged."),
        ({"reason": "no memory."}, "no memory."),
    ]:
        none = summary | {"patterns": found | {"listed": []} | changed}
        assert f"There are no patterns: {reason} " in Page(report_page(none)).text
    assert "Patterns among" not in report_page(summaries.old())


@pytest.mark.parametrize(
    ("n_rows", "said"),
    [(0, "the input: there are no rows"), (100_000, "the input: no row has a p-value")],
)
def test_report_page__without_a_p_value_leads_to_the_input(
    n_rows, said, pages, without_pictures
):
    """Also of a single run, whose verdict does not say it."""
    unmeasured = summaries.single() | {"rows": n_rows, "rows_nan": n_rows}

    looks = Page(report_page(unmeasured)).text.split("What to look at ")[1]

    assert looks.startswith(said)
    assert said not in Page(pages["single"][1]).text  # which has p-values


def test_report_page__says_why_rows_have_no_p_value(without_pictures):
    """Of gaps that are measured it is not said that they are why."""
    counts = {"ok": 99_700, "missing value": 280, "infinite value": 20}
    missing = [{"column": "speed", "missing": 280, "unseen": 0}]
    summary = summaries.ordinary() | {"rows_nan": 300, "values": missing}
    summary |= {"p_value_status": counts}
    measured = summary | {"parameters": summary["parameters"] | {"missing": "measure"}}

    said = "300 rows have no p-value: 280 missing value, 20 infinite value"
    assert f"{said}; values are missing in speed (280)." in Page(report_page(summary)).text
    assert f"{said}." in Page(report_page(measured)).text


def test_report_page__of_rows_among_themselves_says_why_there_is_no_verdict(pages):
    text = Page(pages["own"][1]).text
    assert "Rows 100,000 Not tested for drift: rows were scored against each" in text
    assert "100,000 rows scored against each other, finished 25 November 2026" in text


def test_report_page__says_in_one_sentence_why_there_are_no_reasons(without_pictures):
    said = "RuntimeError: no memory."
    failed = summaries.changed(summaries.ordinary(), ["reasons", "rows"], [])
    failed = summaries.changed(failed, ["reasons", "reason"], said)

    text = Page(report_page(failed)).text

    assert f"There are no reasons: {said} " in text


def test_report_page__of_an_fdr_run_has_q(pages):
    parsed = Page(pages["with_fdr"][1])
    assert "False discovery rate: q up to 5.00 %, that is p up to 0.00034." in parsed.text
    assert "q = 0.001, statistic" in parsed.text
    fitted, finished = "2026-10-25T02:03:04+00:00", "2026-11-25T02:03:04+00:00"
    assert parsed.times == [finished, fitted]


def test_report_page__tells_which_distance_has_shares(without_pictures):
    summary = summaries.ordinary()
    change = summaries.changed
    said = "distance to the K nearest nominal rows comes from a column (K = 12). Usual"
    assert said in Page(report_page(summary)).text
    radius = change(summary, ["n_neighbors_"], None)
    said = "distance to the 20 nearest nominal rows comes from a column. Usual"
    assert said in Page(report_page(radius)).text
    exact = change(summary, ["certificate", "n_audited"], 0)
    assert "Every row was measured exactly." in Page(report_page(exact)).text


def test_report_page__without_matplotlib_has_tables_and_says_how_to_get_pictures(
    without_pictures,
):
    page = report_page(summaries.ordinary())
    assert "<svg" not in page
    assert page.count("<details open>") == 2
    assert 'pip install "lpe-dask[plot]"' in page


def test_report_page__with_matplotlib_has_pictures_of_ids_of_their_own():
    parsed = Page(report_page(summaries.ordinary()))
    ids = [value for name, value in parsed.attributes if name == "id"]
    assert len(ids) == len(set(ids)) > 2
    assert parsed.tags.count("svg") == 2
    assert "pip install" not in parsed.text


def test_report_page__of_the_largest_summary_is_small_and_has_all_columns():
    summary = summaries.ordinary(50, 5000, 200)
    page = report_page(summary | {"rows": 10**8, "flagged": 10**6})
    assert len(page.encode()) <= MAX_BYTES
    parsed = Page(page)
    tables = parsed.tables["The most anomalous rows, and why"]
    assert sum(len(table) - 1 for table in tables) == 50 * 20
    assert len(parsed.tables["Past runs"][0]) == 1 + 200


def test_report_page__has_fewer_columns_where_it_would_be_too_large(
    without_pictures, monkeypatch
):
    monkeypatch.setattr(report_module, "MAX_BYTES", 0)
    tables = Page(report_page(summaries.ordinary())).tables
    reasons = tables["The most anomalous rows, and why"]
    assert [len(table) for table in reasons] == [1 + 3] * 4


def test_report_page__of_more_than_it_shows_is_small(without_pictures):
    summary = summaries.hostile(300, 60, 1000)
    many = {f"{i}" + "&" * 500: "&" * 500 for i in range(1000)}
    summary |= {"parameters": many, "versions": many, "certificate": many}
    summary["seconds_by_step"] = dict.fromkeys(many, 10.0**300)
    summary["calibration_check"]["levels"] *= 1000
    summary["p_value_bins"] = {name: [0.5] * 1000 for name in ("upper", "promised", "rows")}
    assert len(report_page(summary).encode(errors="replace")) <= MAX_BYTES


@pytest.mark.parametrize(
    "bad", mostly_full(BAD, [None, "a text", 10**400]), ids=lambda bad: cut(repr(bad), 20)
)
def test_report_page__is_made_whatever_a_summary_holds(bad, without_pictures):
    start = summaries.ordinary(n_rows=1, n_columns=1, n_runs=1)
    start["drift"]["changed_since"] = {"run": "a", "output": "", "number": 1}
    start["drift"]["verdict"] = "drift"
    for path in summaries.paths(start):
        page = report_page(summaries.changed(start, path, bad))
        assert page.startswith("<!DOCTYPE html>"), path
        assert page.rstrip().endswith("</html>"), path


def test_report_page__is_made_whatever_a_summary_lacks(without_pictures):
    start = summaries.drifting()
    for name in start:
        Page(report_page({key: value for key, value in start.items() if key != name}))
        Page(report_page({name: start[name]}))
    assert "What to look at Nothing." in Page(report_page({})).text


def test_report_page__depends_on_the_values_of_json_alone(without_pictures):
    summary = summaries.drifting()
    assert report_page(json.loads(json.dumps(summary))) == report_page(summary)


def test_at__finds_names_with_dots_and_nothing_else():
    content = Content({"a.b": {"c": [1, {"d.e": 2}]}, "x": "text"})
    assert content.at("a.b") == {"c": [1, {"d.e": 2}]}
    assert content.at("x.0") is None
    assert content.at("y.0.z") is None
    assert Content({"steps": {"to.score": 2}}).at("steps.to.score") == 2
    assert Content({"a": [1, 2]}).at("a.-1") == 2
    assert Content({"a": [1, 2]}).at("a.2") is None
