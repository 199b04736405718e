"""Patterns: one cause is one of them, whatever chance does to the second columns."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpe_dask import LPE
from lpe_dask.model import (
    N_OTHER_TERMS,
    Explanation,
    RowTerms,
    Term,
    fitted_of,
    group_rows,
    leading_terms,
    value_term,
)

SENSORS = [f"sensor {i}" for i in range(8)]


def sensors(seed, n_rows):
    """Rows of sensors that measure the same, each with an error of its own."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((n_rows, 1)) + 0.3 * rng.standard_normal((n_rows, 8))
    return pd.DataFrame(values, columns=SENSORS)


@pytest.fixture(scope="module")
def model():
    start = {"scale": "standard", "aggregation": "mean", "alpha": 0.02}
    return LPE(**start).fit(sensors(0, 20_000))


def patterns_of(model, rows, shared=None):
    """The flagged rows, and their patterns: the text of each and the labels of its rows."""
    flagged = rows[model.predict(rows) == -1]
    explanation = Explanation.of(fitted_of(model), flagged[SENSORS])
    groups = [[]] * len(flagged)
    if shared is not None:
        place = len(SENSORS) + N_OTHER_TERMS
        groups = [[value_term(place, shared, value)] for value in flagged[shared]]
    found = group_rows(leading_terms(explanation), groups)
    return flagged, [(of.text, {*flagged.index[of.rows]}) for of in found]


def test_group_rows__makes_one_pattern_of_one_cause(model):
    rows = sensors(1, 5000)
    rows.loc[:299, "sensor 3"] += 3

    flagged, found = patterns_of(model, rows)

    text, first = found[0]
    assert text == "sensor 3 high"
    assert len(first & {*range(300)}) > 0.97 * (flagged.index < 300).sum() > 280
    assert sum(len(of) for _, of in found) == len(flagged) > 310  # with false alarms
    assert max(len(of) for _, of in found[1:]) < 40


@pytest.mark.parametrize("n_columns", [4, 6])
def test_group_rows__makes_one_pattern_of_a_cause_of_many_columns(n_columns):
    rng = np.random.default_rng(0)
    nominal, rows = (
        pd.DataFrame(rng.standard_normal((n, 8)), columns=SENSORS) for n in (5000, 3000)
    )
    rows.loc[:199, SENSORS[:n_columns]] += 8
    model = LPE(scale="standard", aggregation="mean", alpha=0.002).fit(nominal)

    _, found = patterns_of(model, rows)

    text, first = found[0]
    assert sorted(text.split(", ")) == [f"{name} high" for name in SENSORS[:n_columns]]
    assert len(first & {*range(200)}) >= 190


def test_group_rows__makes_two_patterns_of_two_causes(model):
    """Of one column, too, if it is too high in some rows and too low in others."""
    rows = sensors(2, 5000)
    rows.loc[:299, "sensor 3"] += 3
    rows.loc[1000:1199, "sensor 3"] -= 3
    rows.loc[2000:2099, "sensor 5"] += 3

    _, found = patterns_of(model, rows)

    causes = ["sensor 3 high", "sensor 3 low", "sensor 5 high"]
    assert [text for text, _ in found[:3]] == causes
    starts = [(0, 300), (1000, 200), (2000, 100)]
    for (_, of), (start, n_rows) in zip(found[:3], starts, strict=True):
        assert len(of & {*range(start, start + n_rows)}) > 0.9 * n_rows


def test_group_rows__names_the_group_that_has_the_cause(model):
    rows = sensors(3, 5000).assign(site=np.resize(["north", "south", "east"], 5000))
    is_north = rows["site"] == "north"
    rows.loc[is_north & (rows.index < 600), "sensor 1"] -= 3
    rows.loc[rows.index >= 4700, "sensor 6"] += 3

    _, found = patterns_of(model, rows, "site")

    texts = [text for text, _ in found]
    assert texts[:2] == ["sensor 6 high", "sensor 1 low, site = north"]
    assert not any("site" in text for text, of in found if len(of) < 5)


terms = st.builds(Term, st.integers(0, 3), st.just("x"), st.sampled_from(["high", "low"]))


@given(
    rows=st.lists(st.lists(terms, min_size=1, max_size=3, unique=True), max_size=40),
    random=st.randoms(),
)
def test_group_rows__is_a_greedy_cover_in_any_order_of_rows(rows, random):
    shared = [[Term(9, "site", "=", str(len(of)))] for of in rows]
    terms = [RowTerms(of, []) for of in rows]

    found = [*group_rows(terms, shared)]

    left = {*range(len(rows))}
    for pattern in found:
        counts = {
            term: sum(term in rows[i] for i in left) for i in left for term in rows[i]
        }
        most = max(counts.values())
        assert pattern.lead == min(term for term, n in counts.items() if n == most)
        assert pattern.rows == sorted(i for i in left if pattern.lead in rows[i])
        own = [{*rows[i], *(shared[i] if most >= 5 else ())} for i in pattern.rows]
        common = {t for of in own for t in of if sum(t in o for o in own) >= 0.8 * most}
        assert pattern.further == sorted(common - {pattern.lead})
        left -= {*pattern.rows}
    assert left == set()
    order = random.sample(range(len(rows)), len(rows))
    again = group_rows([terms[i] for i in order], [shared[i] for i in order])
    assert [(p.lead, p.further, {order[i] for i in p.rows}) for p in again] == [
        (p.lead, p.further, {*p.rows}) for p in found
    ]


@pytest.mark.parametrize(("n_between", "n_patterns"), [(0, 2), (9, 2), (11, 1)])
def test_group_rows__parts_causes_with_the_same_leading_column(n_between, n_patterns):
    """Unless rows between them say that chance varies the second column."""
    count, errors = Term(0, "count", "high"), Term(1, "errors", "high")
    both, one = RowTerms([errors, count], []), RowTerms([count], [])
    rows = [both] * 30 + [RowTerms([count], [errors])] * n_between
    rows += [one] * (100 - len(rows))

    found = [*group_rows(rows, [[]] * 100)]

    assert len(found) == n_patterns
    assert [of.text for of in found] == ["count high, errors high", "count high"][
        -n_patterns:
    ]
    assert [len(of.rows) for of in found] == ([30, 70] if n_patterns == 2 else [100])
    few = [*group_rows([both] * 15 + [one] * 30, [[]] * 45)]
    assert [len(of.rows) for of in few] == [45]


def explained(values, nominal, shares, directions, is_spread=None):
    """An explanation of rows of three columns; 0 where nothing depends on it."""
    shares, nothing = np.array(shares), np.zeros(len(shares))
    columns, usual = ["bytes", "service", "load"], np.empty(shares.shape, object)
    order = np.argsort(-np.nan_to_num(shares), axis=1, kind="stable")
    spread = np.zeros(len(shares), bool) if is_spread is None else np.array(is_spread)
    frames = (pd.DataFrame(of, columns=columns, dtype=object) for of in (values, nominal))
    return Explanation(
        columns, *frames, usual, nothing, nothing, shares,
        np.array(directions, float), nothing + np.inf, shares,
        order, spread,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("values", "nominal", "shares", "directions", "texts"),
    [
        ([5, "ftp", 1], [1, "ssh", 1], [0.9, 0.1, 0], [1, 0, 0], ["bytes high"]),
        ([5, "ftp", 1], [9, "ftp", 1], [0.9, 0.1, 0], [-0.6, 0, 0], ["bytes low"]),
        ([5, "ftp", 1], [9, "ftp", 1], [0.9, 0.1, 0], [0.4, 0, 0], ["bytes between"]),
        (
            [5, "ftp", 1], [1, "ftp", 1], [0.4, 0.4, 0.2], [1, 0, -1],
            ["bytes high", "service = ftp", "load low"],
        ),
        ([None, "ftp", 1], [1, "ftp", 1], [0.6, 0.1, 0.3], [1, 0, 1],
         ["bytes missing", "load high"]),
        ([5, "ftp", 1], [None, "ftp", 1], [0.9, 0.1, 0], [0, 0, 0], ["bytes present"]),
        ([5, None, 1], [5, "ftp", 1], [0, 1, 0], [0, 0, 0], ["service missing"]),
        ([5, "ftp", True], [5, "ftp", False], [0, 0, 1], [0, 0, 1], ["load = True"]),
        (
            [5, "f" * 99, 1], [5, "ftp", 1], [0, 1, 0], [0, 0, 0],
            [f"service = {'f' * 39}\N{HORIZONTAL ELLIPSIS}"],
        ),
        ([5, "ftp", 1], [5, "ftp", 1], [np.nan] * 3, [np.nan] * 3,
         ["no shares: the distance is inf"]),
    ],
)  # fmt: skip
def test_leading_terms__say_what_is_odd(values, nominal, shares, directions, texts):
    explanation = explained([values], [nominal], [shares], [directions])

    (found,) = leading_terms(explanation, categorical={"service"})

    assert [term.text for term in found.leading] == texts


def test_leading_terms__of_many_columns_and_of_private_ones():
    rows = [[5, "ftp", 1]] * 2
    directions, shares = [[1, 0, 1]] * 2, [[0.5, 0.5, 0.0], [0.04, 0.03, 0.03]]
    explanation = explained(rows, rows, shares, directions, [False, True])

    found = leading_terms(explanation, {"service"}, {"bytes", "service"}, "hidden")

    assert [[of.text for of in row.leading] for row in found] == [
        ["hidden"], ["spread over many columns"]
    ]  # fmt: skip
    assert [row.weak for row in found] == [[], []]


def test_value_term__of_equal_numbers_is_the_same():
    """A whole number beside a missing one is a float in some partitions only."""
    assert (
        value_term(0, "x", 7) == value_term(0, "x", 7.0) == value_term(0, "x", np.int8(7))
    )
    assert value_term(0, "x", pd.Timestamp("2026-11-01")).value == "2026-11-01T00:00:00"
    assert value_term(0, "x", "\ud800").value == "?"
