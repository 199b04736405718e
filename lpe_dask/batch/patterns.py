"""Group the flagged rows of a run by cause: `patterns` in _summary.json.

flagged rows --draw--> up to `MAX_ROWS` --explain--> leading terms --group--> patterns

A run never fails because of them.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lpe_dask.batch.column_values import PRIVATE
from lpe_dask.batch.explanations import (
    ALL_PRIVATE,
    ExplanationInput,
    column_label,
    id_columns,
    plain_value,
)
from lpe_dask.batch.pattern_history import PatternHistory
from lpe_dask.batch.row_times import possible_times, time_span, times_of
from lpe_dask.batch.summary import read_summary
from lpe_dask.model import (
    N_OTHER_TERMS,
    Fitted,
    Pattern,
    RowTerms,
    Term,
    group_rows,
    leading_terms,
    value_term,
    value_text,
)
from lpe_dask.storage import short_message

logger = logging.getLogger(__name__)

#: Flagged rows that are explained at most, and numbers in them, which fewer rows of many
#: columns have.
MAX_ROWS, MAX_NUMBERS = 2000, 200_000

#: Patterns that are listed.
N_LISTED = 20


def read_patterns(output: str) -> dict[str, Any]:
    """Return the patterns in the summary of a finished run.

    Raises
    ------
    FileNotFoundError
        If there is none.
    ValueError
        If it has no patterns.
    """
    found = read_summary(output).get("patterns")
    if not isinstance(found, dict) or not isinstance(found.get("listed"), list):
        raise ValueError(
            f"{output} has no patterns: an earlier version of lpe_dask wrote it, or its "
            f"summary is damaged. Score the rows again (overwrite=True, --overwrite)."
        )
    if found["reason"] is not None:
        raise ValueError(f"{output} has no patterns: {found['reason'].rstrip('.')}.")
    return found


def read_flagged(
    rows: ExplanationInput,
    model: Fitted,
    top: pd.DataFrame,
    n_flagged: int,
    draw: Callable[[int], pd.DataFrame],
) -> tuple[ExplanationInput, pd.DataFrame | str]:
    """Return flagged rows to explain, or why there are none; computes, and raises nothing.

    They are read at once with the rows that reasons are given for.

    Parameters
    ----------
    rows : ExplanationInput
    model : Fitted
    top : DataFrame
        Those that reasons are given for.
    n_flagged : int
        Flagged rows of the run.
    draw : callable
        Gives so many of them at most: `draw_flagged`.

    Returns
    -------
    rows : ExplanationInput
        With the rows that were read.
    drawn : DataFrame or str
    """
    if {*_measured(rows, model)} <= {*rows.private}:
        return rows, ALL_PRIVATE
    if n_flagged == 0:
        return rows, top[:0]
    try:
        drawn = draw(max(1, min(MAX_ROWS, MAX_NUMBERS // model.n_features)))
        both = pd.concat([top, drawn])[["part", "place"]].drop_duplicates(ignore_index=True)
        names = [*dict.fromkeys(chain(*_kept_names(rows, model)))]
        return rows.reading(model, both, names), drawn
    except Exception as error:
        return rows, short_message(error)


def pattern_section(
    rows: ExplanationInput,
    model: Fitted,
    n_flagged: int,
    drawn: pd.DataFrame | str,
    history: PatternHistory,
) -> dict[str, Any]:
    """Return the section of a summary about patterns; computes, and raises nothing.

    Parameters
    ----------
    rows, model, n_flagged, drawn
        As for `read_flagged`.
    history : PatternHistory
    """
    found: dict[str, Any] = {
        "reason": None, "flagged_rows": n_flagged, "explained_rows": 0, "is_sample": False,
        "listed_share": None, "time_column": None, "listed": [],
    }  # fmt: skip
    sizes: dict[Term, int] | None = {}
    try:
        if isinstance(drawn, str):
            found["reason"], sizes = drawn, None
        elif n_flagged > 0:
            explained = ExplainedRows.of(rows, model, drawn, n_flagged)
            found_first = islice(group_rows(explained.terms, explained.groups), N_LISTED)
            patterns = sorted(found_first, key=lambda of: -len(of.rows))
            sizes = {
                term: explained.flagged_rows(of)
                for of in reversed(patterns)  # the largest one with a term counts
                for term in (of.lead, *of.further)
            }
            found |= explained.section(patterns, history)
    except Exception as error:
        found["reason"], sizes = short_message(error), None
    if found["reason"] not in (None, ALL_PRIVATE):
        logger.warning("flagged rows cannot be grouped: %s", found["reason"])
    return found | history.section(sizes)


def _measured(rows: ExplanationInput, model: Fitted) -> list[str]:
    return [*map(str, rows.rows.columns[: model.n_features])]


def _kept_names(rows: ExplanationInput, model: Fitted) -> tuple[list[str], list[str]]:
    """Return the columns that identify rows, and those that may say when they were."""
    timed = possible_times(rows.kept, _measured(rows, model), rows.private)
    return rows.identifying_columns(model.n_features), timed


@dataclass(frozen=True, slots=True, eq=False)
class ExplainedRows:
    """Flagged rows that have been explained, in the order of the table.

    Attributes
    ----------
    examples : list of dict
        Where each row is, and what identifies it.
    terms : list of RowTerms
        What is odd about each row.
    groups : list of list of Term
        Its group.
    by : DataFrame
        The columns that divide rows.
    time_column : str, optional
        That has the times.
    times : list
        When the rows were, None where that is not known.
    ranks : ndarray of shape (n_rows,)
        The most anomalous row has rank 0.
    n_flagged : int
        Flagged rows of the run, of which these are all or a sample.
    private : collection of str
        Columns that are not shown.
    """

    examples: list[dict[str, Any]]
    terms: list[RowTerms]
    groups: list[list[Term]]
    by: pd.DataFrame
    time_column: str | None
    times: list[Any]
    ranks: NDArray[np.int64]
    n_flagged: int
    private: Collection[str]

    @classmethod
    def of(
        cls, rows: ExplanationInput, model: Fitted, drawn: pd.DataFrame, n_flagged: int
    ) -> ExplainedRows:
        """Return some flagged rows, explained; computes."""
        names, private = list(rows.rows.columns), rows.private
        identifying, timed = _kept_names(rows, model)
        kept_names = [*dict.fromkeys(identifying + timed)]
        explanation, values, kept = rows.explained(
            model, drawn, kept_names, with_typical=False
        )
        by = values.iloc[:, model.n_features :]
        places = () if model.categories is None else model.categories.places
        categorical = {(model.columns or names)[place] for place in places}
        time_column, times = times_of(kept, timed)
        examples = [
            {
                **rows.place(part, row),
                "id_columns": id_columns({name: of_row[name] for name in identifying}),
            }
            for part, row, of_row in zip(drawn["part"], drawn["row"], kept, strict=True)
        ]
        return cls(
            examples,
            leading_terms(explanation, categorical, private, PRIVATE),
            _group_terms(by, len(explanation.columns) + N_OTHER_TERMS, private),
            by, None if time_column is None else column_label(time_column), times,
            _ranks(drawn, model.calibration.graph), n_flagged, private,
        )  # fmt: skip

    def flagged_rows(self, pattern: Pattern) -> int:
        """Return about how many flagged rows are in a pattern."""
        return round(len(pattern.rows) * self.n_flagged / len(self.terms))

    def section(
        self, patterns: Sequence[Pattern], history: PatternHistory
    ) -> dict[str, Any]:
        """Return what a summary has of these rows and of the first patterns of them."""
        n_rows = len(self.terms)
        return {
            "explained_rows": n_rows, "is_sample": n_rows < self.n_flagged,
            "listed_share": sum(len(of.rows) for of in patterns) / n_rows,
            "time_column": self.time_column,
            "listed": [
                {
                    "text": of.text, "terms": [*map(_plain_term, (of.lead, *of.further))],
                    "rows": len(of.rows), "share": len(of.rows) / n_rows,
                    "flagged_rows": self.flagged_rows(of),
                    "example": self.examples[self._middle(of.rows)],
                    **time_span(self.times[row] for row in of.rows),
                    **_most_frequent(self.by.iloc[of.rows], self.private),
                    **history.seen(of.lead, self.flagged_rows(of)),
                }
                for of in patterns
            ],
        }  # fmt: skip

    def _middle(self, rows: Sequence[int]) -> int:
        """Return a common row: as many are more anomalous as are less.

        Of the group that most are of: p-values of others begin elsewhere.
        """
        if self.by.shape[1] > 0:
            of_rows = self.by.iloc[list(rows)]
            top, _ = _top_group(of_rows)
            groups = of_rows.itertuples(index=False)
            rows = [
                row for row, of in zip(rows, groups, strict=True) if _group_key(of) == top
            ]
        return sorted(rows, key=self.ranks.__getitem__)[len(rows) // 2]


def _plain_term(term: Term) -> dict[str, Any]:
    return {
        "column": plain_value(term.column or None), "direction": term.relation or None,
        "value": plain_value(term.value or None),
    }  # fmt: skip


def _ranks(drawn: pd.DataFrame, graph: str) -> NDArray[np.int64]:
    """Return the rank of each row in the order of `top_anomalies`."""
    statistic = drawn["statistic"] * (1 if graph == "radius" else -1)
    return np.argsort(np.lexsort((statistic, drawn["p_value"])))


def _group_terms(
    by: pd.DataFrame, first: int, private: Collection[str]
) -> list[list[Term]]:
    """Return what the group of each row is, as terms from a place on; none is private."""
    shown = [
        (first + i, str(name), list(by.iloc[:, i]))
        for i, name in enumerate(by.columns)
        if str(name) not in private
    ]
    return [
        [value_term(place, name, values[row]) for place, name, values in shown]
        for row in range(len(by))
    ]


def _most_frequent(groups: pd.DataFrame, private: Collection[str]) -> dict[str, Any]:
    """Return how many groups rows are of, and which has most of them."""
    if groups.shape[1] == 0:
        return {"n_groups": None, "top_group": None, "top_group_share": None}
    top, counts = _top_group(groups)
    shown = [
        PRIVATE if str(name) in private else plain_value(value)
        for name, value in zip(groups.columns, top, strict=True)
    ]
    share = counts[top] / len(groups)
    return {"n_groups": len(counts), "top_group": shown, "top_group_share": share}


def _top_group(groups: pd.DataFrame) -> tuple[tuple[str, ...], Counter[tuple[str, ...]]]:
    """Return the group that most rows are of, and how many are of each."""
    counts = Counter(map(_group_key, groups.itertuples(index=False)))
    return min(counts, key=lambda group: (-counts[group], group)), counts


def _group_key(values: Iterable[Any]) -> tuple[str, ...]:
    return tuple(map(value_text, values))
