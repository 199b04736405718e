"""docs/guarantees.md: each promise has tests that run, and each page is in its tables."""

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GUARANTEES = DOCS / "guarantees.md"

#: Pages that promise nothing of their own, and why. (Nor do those that list other pages.)
WITHOUT = {
    "docs/changelog.md": "is the file of the root, of what has changed",
    "docs/contributing.md": "is the file of the root, for developers",
    "docs/reference/command_line.md": "is made from the commands",
}

#: Where pages are that are made from docstrings and examples.
MADE = ("gallery", "generated", "backreferences")

#: Marks of tests that are left out, whatever the machine, and of those that only
#: `make test-thorough` and `make lifetimes` run.
SKIPPED, SELDOM = "skip|xfail", "slow|lifetimes"

NAMED = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


def rows_of(section):
    """The cells of each row of the tables below a heading, without the heads."""
    text = GUARANTEES.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    lines = [line for table in tables for line in table.splitlines()[2:]]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]


FALSE_ALARMS, PROMISES = rows_of("False alarms"), rows_of("All promises and their tests")
TESTS = sorted({name for row in FALSE_ALARMS + PROMISES for name in NAMED.findall(row[-1])})


@functools.cache
def parsed(path):
    return ast.parse(path.read_text())


def has_mark(marks, tree, name):
    """Whether a test, or its whole file, has one of some marks of pytest."""
    of_file = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]
    found = [mark for value in of_file for mark in getattr(value, "elts", [value])]
    (function,) = [f for f in tree.body if getattr(f, "name", None) == name]
    found += function.decorator_list
    is_one = re.compile(rf"pytest\.mark\.({marks})\b").match
    return any(is_one(ast.unparse(mark)) for mark in found)


def pages_of(cell):
    """The pages that a cell names: by links, and README.md, which is not on the site."""
    pages = [(DOCS / link).resolve() for link in re.findall(r"\]\(([^)#]+)", cell)]
    return pages + [ROOT / "README.md"] * cell.count("`README.md`")


@pytest.mark.parametrize(
    ("rows", "n_cells"), [(FALSE_ALARMS, 4), (PROMISES, 3)], ids=["false alarms", "all"]
)
def test_rows__name_tests_and_nothing_else(rows, n_cells):
    assert len(rows) > 20
    for row in rows:
        assert len(row) == n_cells, row
        assert NAMED.sub("", row[-1]).replace(",", "").split() == [], row
        assert NAMED.search(row[-1]), row


@pytest.mark.parametrize(("path", "name"), TESTS)
def test_tests__are_there_and_run(path, name):
    tree = parsed(ROOT / "tests" / path)

    assert name in {getattr(node, "name", None) for node in tree.body}
    assert not has_mark(SKIPPED, tree, name)


def test_rows__have_a_test_that_is_not_slow():
    for row in FALSE_ALARMS + PROMISES:
        tests = [
            (parsed(ROOT / "tests" / path), name) for path, name in NAMED.findall(row[-1])
        ]
        assert not all(has_mark(SELDOM, *test) for test in tests), row


@pytest.mark.parametrize(
    ("text", "skipped"),
    [
        ("def test_a(): ...", False),
        ("@pytest.mark.skipif(IS_OLD, reason='')\ndef test_a(): ...", False),
        ("@pytest.mark.skip\ndef test_a(): ...", True),
        ("@pytest.mark.xfail(reason='')\ndef test_a(): ...", True),
        ("pytestmark = [pytest.mark.skip(reason='')]\ndef test_a(): ...", True),
        ("pytestmark = pytest.mark.skip\ndef test_a(): ...", True),
        (
            "@pytest.mark.parametrize('a', [1, pytest.param(2, marks=pytest.mark.skip)])\n"
            "def test_a(a): ...",
            False,
        ),
    ],
)
def test_has_mark__finds_each_form(text, skipped):
    assert has_mark(SKIPPED, ast.parse(text), "test_a") is skipped


def test_pages__are_named_or_say_why_they_promise_nothing():
    pages = [
        page
        for page in (*DOCS.rglob("*.md"), ROOT / "README.md")
        if page.name != "index.md" and not set(MADE) & set(page.relative_to(ROOT).parts)
    ]
    named = {page for row in PROMISES for page in pages_of(row[1])}

    assert all(pages_of(row[1]) for row in PROMISES)
    assert sorted(named - set(pages)) == [], "there are no such pages"
    without = {str(page.relative_to(ROOT)) for page in set(pages) - named}
    assert without == set(WITHOUT)
