"""Missing values of the columns that a run measures, and values that no nominal row has.

rows --a task a partition--> counts of each part --added up--> summary, drift test
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from dask.delayed import Delayed

from lpe_dask.batch.part_stats import PartStats
from lpe_dask.model import Fitted
from lpe_dask.monitoring import NominalColumn
from lpe_dask.storage import short_message
from lpe_dask.tables import Table
from lpe_dask.tasks import compute

logger = logging.getLogger(__name__)

#: What columns are called that are not to be shown.
PRIVATE = "a private column"


@dataclass(frozen=True, slots=True)
class ColumnValues:
    """The columns of the rows of a run, beside those of the nominal rows.

    Attributes
    ----------
    model : Fitted
    frame : dask DataFrame
        The columns to measure of the rows to score; after them those that divide rows.
    private : collection of str
        Columns whose names and values are not shown.
    scores_nominal_rows : bool
        Whether the rows are the nominal ones.
    """

    model: Fitted
    frame: Any
    private: Collection[str]
    scores_nominal_rows: bool

    def tasks(self, table: Table | None) -> list[Delayed] | None:
        """Return tasks that count values in each partition; None if none can be odd.

        ``table`` has the rows to score; None where these are the nominal ones.
        """
        model = self.model
        is_odd = model.n_dropped > 0 or model.measures_gaps or model.has_groups
        if table is None and is_odd:
            table = model.table(self.frame)
        if table is None:
            return None
        return model.count_new(table.rows)

    def nominal(self) -> list[NominalColumn]:
        """Return the values of nominal rows in each column."""
        categories, ranges = self.model.categories, self.model.ranges
        places = () if categories is None else categories.places
        rare = dict(zip(places, ranges.rare, strict=True))
        return [
            NominalColumn(self._name(name), self.model.n_samples, rare.get(place))
            for place, name in enumerate(self.frame.columns[: self.model.n_features])
        ]

    def section(self, stats: PartStats) -> list[dict[str, Any]]:
        """Return the section of a summary: columns with odd values, most of them first."""
        unseen = (stats.unseen * (not self.scores_nominal_rows)).tolist()
        counts = zip(self.nominal(), stats.missing.tolist(), unseen, strict=False)
        values = [
            {"column": column.name, "missing": missing, "unseen": unseen}
            for column, missing, unseen in counts
            if missing or unseen
        ]
        return sorted(values, key=lambda of: -of["missing"] - of["unseen"])

    def new_categories(self, stats: Sequence[PartStats], column: str) -> list[str]:
        """Return some categories of a column that no nominal row has; computes.

        They are those of the first part that has some, by the statistics of all parts.
        """
        categories = self.model.categories
        if column == PRIVATE or categories is None:
            return []
        place = list(map(str, self.frame.columns)).index(column)
        first = next(number for number, of in enumerate(stats) if of.unseen[place])
        task = categories.new_levels(self.frame, first, place)
        try:
            (examples,) = compute(task)
        except Exception as error:  # a run does not fail for want of examples
            logger.warning(
                "no new values of %s can be shown: %s", column, short_message(error)
            )
            return []
        return list(examples)

    def _name(self, name: Any) -> str:
        return PRIVATE if str(name) in self.private else str(name)
