"""Group rows by why they are far from nominal ones, so that one cause is one pattern.

    explanation --leading columns of a row--> `bytes high`, `service = ftp`
                --greedy cover--> patterns: such a term, its rows, what else they share

The data chose these groups: no p-value belongs to them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from datetime import date
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from lpe_dask.model.explanation import Explanation

#: A column leads in a row if it has this part of the largest share; it is weak if it has
#: this part, and does not lead.
LEADING, WEAK = 0.5, 0.2

#: Columns of a row that are looked at.
_MAX_TERMS = 10

#: Rows with one leading term that may have two causes, and which share of them may be
#: between these.
MIN_ROWS_OF_CAUSES, MAX_BETWEEN = 50, 0.1

#: A number is high or low if its direction is at least this: three quarters of its share
#: come from nominal rows on one side.
ONE_SIDED = 0.5

#: A pattern is described by what this share of its rows have in common; by their group
#: if they are so many at least.
COMMON, MIN_ROWS_OF_GROUP = 0.8, 5

#: Terms that are about no single column: their places come after those of columns.
N_OTHER_TERMS = 2

#: Characters of a value in a text.
_MAX_CHARACTERS = 40


class Term(NamedTuple):
    """What is odd about rows, or what they have in common; terms sort by their columns.

    Attributes
    ----------
    place : int
        Of the column among those of the explanation; others come after these.
    column : str
        "" if the term is about no column.
    relation : str
        "high", "low" or "between": beside the nearest nominal rows; "=": to ``value``;
        "missing"; "present", where the nearest nominal row has none. Without a column a
        text.
    value : str
    """

    place: int
    column: str
    relation: str
    value: str = ""

    @property
    def text(self) -> str:
        """The term as people read it, with the beginning of a long value."""
        value = self.value
        if len(value) > _MAX_CHARACTERS:
            value = f"{value[: _MAX_CHARACTERS - 1]}\N{HORIZONTAL ELLIPSIS}"
        return " ".join(filter(None, (self.column, self.relation, value)))


class RowTerms(NamedTuple):
    """What is odd about a row, the largest share first.

    Attributes
    ----------
    leading : list of Term
        Of the columns that lead, at least one.
    weak : list of Term
        Of other columns that have a part of the largest share.
    """

    leading: list[Term]
    weak: list[Term]


class Pattern(NamedTuple):
    """Rows that are odd for the same reason.

    Attributes
    ----------
    lead : Term
        That all of them have.
    further : list of Term
        That most of them have, too.
    rows : list of int
        Which rows, ascending.
    """

    lead: Term
    further: list[Term]
    rows: list[int]

    @property
    def text(self) -> str:
        """The pattern as people read it."""
        return ", ".join(term.text for term in (self.lead, *self.further))


def leading_terms(
    explanation: Explanation,
    categorical: Collection[Any] = (),
    private: Collection[str] = (),
    called: str = "a private column",
) -> list[RowTerms]:
    """Return the terms that lead in each row, and those that nearly do.

    Parameters
    ----------
    explanation : Explanation
    categorical : collection
        Columns of categories, whose values are named.
    private : collection of str
        Columns whose names and values are not.
    called : str
        What such columns are called.
    """
    n_columns, found = len(explanation.columns), []
    for row, shares in enumerate(explanation.shares):
        if (note := explanation.note(row)) is not None:
            found.append(RowTerms([Term(n_columns + 1, "", note)], []))
            continue
        first = explanation.order[row, :_MAX_TERMS]
        first = first[shares[first] >= WEAK * shares[first[0]]]
        n_leading = int(np.sum(shares[first] >= LEADING * shares[first[0]]))
        terms = [
            Term(n_columns, called, "")
            if str(explanation.columns[place]) in private
            else _term(explanation, row, place, explanation.columns[place] in categorical)
            for place in first.tolist()
        ]
        leading = [*dict.fromkeys(terms[:n_leading])]
        found.append(RowTerms(leading, [term for term in terms if term not in leading]))
    return found


def group_rows(
    rows: Sequence[RowTerms], shared: Sequence[Sequence[Term]]
) -> Iterator[Pattern]:
    """Yield the patterns of rows, each of which is in one; large ones come first, mostly.

    What leads in most of the rows begins a pattern of these, and so on with those that are
    left: chance varies the second column of rows of one cause.

    Parameters
    ----------
    rows : sequence of n RowTerms
    shared : sequence of n sequences of Term
        Further terms of each row, which begin no pattern, but describe it.
    """
    left = dict(enumerate(rows))
    while left:
        counts = Counter(term for of in left.values() for term in of.leading)
        lead = min(counts, key=lambda term: (-counts[term], term))
        chosen = [row for row, of in left.items() if lead in of.leading]
        chosen = _of_one_cause(chosen, lead, rows)
        left = {row: left[row] for row in sorted(left.keys() - chosen)}
        terms = Counter(term for row in chosen for term in rows[row].leading)
        if len(chosen) >= MIN_ROWS_OF_GROUP:
            terms.update(term for row in chosen for term in shared[row])
        further = (term for term, n_rows in terms.items() if n_rows >= COMMON * len(chosen))
        yield Pattern(lead, sorted({*further} - {lead}), chosen)


def _of_one_cause(chosen: list[int], lead: Term, rows: Sequence[RowTerms]) -> list[int]:
    """Return rows with one leading term without those that seem to have another cause.

    Where another term leads in some of them, and is far from that in almost all others,
    these are two causes; chance would put many rows between. The rows with it are returned.
    """
    if len(chosen) < MIN_ROWS_OF_CAUSES:
        return chosen
    n_rows, leading = len(chosen), Counter(t for row in chosen for t in rows[row].leading)
    weak = Counter(term for row in chosen for term in rows[row].weak)
    parting = [
        term
        for term, n_leading in leading.items()
        if (1 - COMMON) * n_rows <= n_leading < COMMON * n_rows
        and weak[term] <= MAX_BETWEEN * n_rows
    ]
    if not parting:
        return chosen
    other = min(parting, key=lambda term: (-leading[term], term))
    return [row for row in chosen if other in rows[row].leading]


def value_term(place: int, column: str, value: Any) -> Term:
    """Return what a column is, or that it is missing."""
    if pd.isna(value):
        return Term(place, column, "missing")
    return Term(place, column, "=", value_text(value))


def value_text(value: Any) -> str:
    """Return a value as a term has it: equal numbers are equal texts of any type."""
    if isinstance(value, float | np.floating):
        return f"{value:.15g}"
    if isinstance(value, date):
        return value.isoformat()
    return str(value).encode(errors="replace").decode()  # a lone surrogate is in no file


def _term(explanation: Explanation, row: int, place: int, is_category: bool) -> Term:
    """Return what is odd about the value of a row in a column."""
    value: Any = explanation.values.iat[row, place]
    nominal: Any = explanation.nominal_values.iat[row, place]
    column = str(explanation.columns[place])
    if is_category or isinstance(value, bool | np.bool_) or pd.isna(value):
        return value_term(place, column, value)
    if pd.isna(nominal):
        return Term(place, column, "present")
    direction = explanation.directions[row, place]
    if abs(direction) < ONE_SIDED:
        return Term(place, column, "between")
    return Term(place, column, "high" if direction > 0 else "low")
