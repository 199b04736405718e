"""Tell what a run has found, once all of its parts are there: sections of its summary.

    statistics of parts, flagged rows --> reasons, patterns, false alarms, drift, groups

A run never fails for want of reasons, patterns, or what earlier runs say.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from lpe_dask.batch import output
from lpe_dask.batch.column_values import ColumnValues
from lpe_dask.batch.drift_log import RunSeries
from lpe_dask.batch.explanations import ALL_PRIVATE, ExplanationInput, empty_section
from lpe_dask.batch.false_alarms import false_alarm_section
from lpe_dask.batch.flagged_rows import draw_flagged
from lpe_dask.batch.group_counts import GroupCounts
from lpe_dask.batch.group_summary import group_section
from lpe_dask.batch.part_stats import PartStats
from lpe_dask.batch.parts import PartFolder
from lpe_dask.batch.pattern_history import PatternHistory
from lpe_dask.batch.patterns import pattern_section, read_flagged
from lpe_dask.batch.scoring_plan import Scoring
from lpe_dask.batch.timing import Steps
from lpe_dask.model import Fitted
from lpe_dask.monitoring import PValueBins
from lpe_dask.pvalues import Adjustment
from lpe_dask.storage import Folder, short_message

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Findings:
    """What has been measured and written.

    Attributes
    ----------
    scoring : Scoring
    model : Fitted
        With the level that decides.
    folder : PartFolder
        With all parts.
    stats : sequence of PartStats
        Of each part.
    total : PartStats
        Of all of them.
    adjusted : Adjustment, optional
        Of all p-values, where a false discovery rate decides.
    bins : PValueBins
    columns : ColumnValues
    series : RunSeries, optional
        That the run belongs to; None: it is not tested for drift.
    """

    scoring: Scoring
    model: Fitted
    folder: PartFolder
    stats: Sequence[PartStats]
    total: PartStats
    adjusted: Adjustment | None
    bins: PValueBins
    columns: ColumnValues
    series: RunSeries | None

    @property
    def n_measured(self) -> int:
        """Rows with a p-value."""
        return self.total.counts["rows"] - self.total.counts["rows_nan"]

    @property
    def cut_off(self) -> float | None:
        """The largest p-value that a false discovery rate flags; None: none, or no rate."""
        largest = math.nan
        if self.adjusted is not None:
            largest = self.adjusted.cut_off(self.scoring.fdr)
        return None if math.isnan(largest) else largest

    def sections(self, steps: Steps) -> dict[str, Any]:
        """Return the sections of the summary; computes.

        Parameters
        ----------
        steps : Steps
            Of the run.
        """
        scoring, counts, groups = self.scoring, self.total.counts, self._group_counts()
        reasons, patterns = self._explained(steps)
        scores_nominal_rows, alpha = (
            scoring.made_from.settings[name] for name in ("scores_nominal_rows", "alpha")
        )
        written = ("flagged", "rows_nan") if scoring.only_flagged else ("rows",)
        return {
            "output_rows": scoring.given.rows, "output_format": scoring.given.format,
            "written_rows": sum(counts[name] for name in written),
            "fdr_cut_off": self.cut_off,
            "false_alarms": false_alarm_section(
                self.model, self.n_measured, counts["flagged"], groups, scoring.fdr,
                self.cut_off, scoring.confidence, scores_nominal_rows=scores_nominal_rows,
            ),
            "p_value_bins": self.bins.histogram(self.total.bins),
            "reasons": reasons, "patterns": patterns, "drift": self._drift(),
            "values": self.columns.section(self.total),
            "groups": group_section(
                self.model, groups, alpha, scoring.private,
                scores_nominal_rows=scores_nominal_rows,
            ),
        }  # fmt: skip

    def warn_if_fdr_unreliable(self) -> None:
        """Warn where a false discovery rate does not hold, or flags nothing."""
        scoring, model = self.scoring, self.model
        is_ranked = scoring.scores_nominal_rows and not model.calibration.includes_self
        if scoring.fdr is None or is_ranked:  # of the latter, `prepare_scoring` has warned
            return
        n_flagged = self.total.counts["flagged"]
        given = scoring.fdr, self.n_measured, n_flagged, self.total.statuses
        if (doubt := model.fdr_caveat(*given)) is not None:
            logger.warning("%s", doubt)

    def _group_counts(self) -> GroupCounts | None:
        groups = self.model.groups
        return None if groups is None else self.folder.group_counts(len(groups.n_rows))

    def _drift(self) -> dict[str, Any]:
        """Return the section that says whether the rows drift, or why not."""
        if self.series is not None:
            examples = partial(self.columns.new_categories, self.stats)
            return self.series.section(self.total, examples)
        why = self.scoring.job.drift_test_obstacle
        return {"verdict": None, "reason": why, "text": why}

    def _explained(self, steps: Steps) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the sections about reasons and patterns, whose rows are read at once."""
        scoring, model, folder = self.scoring, self.model, self.folder
        sizes = np.array([of.counts["rows"] for of in self.stats])
        labels = [(folder.name(i), 0) for i in range(folder.n_parts)]
        rows = ExplanationInput(
            scoring.rows, scoring.kept, labels,
            sizes.tolist() if scoring.scores_nominal_rows else None, scoring.private,
        )  # fmt: skip
        draw = partial(draw_flagged, folder, self.stats, only_flagged=scoring.only_flagged)
        n_flagged = self.total.counts["flagged"]
        with steps.timed("explain"):
            rows, drawn = read_flagged(rows, model, self.total.top, n_flagged, draw)
            reasons = self._reasons(rows)
        with steps.timed("patterns"):
            history = PatternHistory.of(self.series, scoring.private)
            return reasons, pattern_section(rows, model, n_flagged, drawn, history)

    def _reasons(self, rows: ExplanationInput) -> dict[str, Any]:
        """Return the section about reasons."""
        scoring, folder, top = self.scoring, self.folder, self.total.top
        model, private = self.model, scoring.private
        folder.lock.verify()
        Folder(folder.url).remove_file(output.REASONS_NAME)  # of an interrupted run
        if top.empty:
            what = "is flagged, and others are not written" if scoring.only_flagged else ""
            return empty_section(model, private, f"no row {what or 'has a p-value'}")
        if {*scoring.made_from.settings["columns"]} <= {*private}:
            return empty_section(model, private, ALL_PRIVATE)
        q_values = None
        if self.adjusted is not None:
            q_values = self.adjusted.q_values(top["p_value"].to_numpy())
        try:
            section, file = rows.explain(model, top, q_values)
        except Exception as error:
            logger.warning("no reasons can be given: %s", short_message(error))
            return empty_section(model, private, short_message(error))
        folder.lock.verify()
        Folder(folder.url).write(output.REASONS_NAME, file)
        return section
