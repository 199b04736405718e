"""Test the runs of a series for drift, all against one calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpe_dask.monitoring.bins import PValueBins
from lpe_dask.monitoring.config import DriftConfig
from lpe_dask.monitoring.new_values import NewValueCounts, NominalColumn
from lpe_dask.monitoring.result import Drift
from lpe_dask.monitoring.state import new_state
from lpe_dask.monitoring.verdict import update
from lpe_dask.monitoring.watched_groups import WatchedGroups
from lpe_dask.pvalues import Calibration


@dataclass(frozen=True, slots=True)
class DriftMonitor:
    """Tests the runs that are scored with one calibration.

    Attributes
    ----------
    model : str
        `Calibration.identifier`, with that of the groups where rows are divided into such.
    bins : PValueBins
        Of this calibration.
    config : DriftConfig
    columns : sequence of NominalColumn
        What nominal rows have in the columns that are measured.
    watched : WatchedGroups, optional
        The groups that are tested, where rows are divided into such.
    """

    model: str
    bins: PValueBins
    config: DriftConfig
    columns: Sequence[NominalColumn]
    watched: WatchedGroups | None = None

    @classmethod
    def of(
        cls,
        calibration: Calibration,
        bins: PValueBins,
        columns: Sequence[NominalColumn] = (),
        watched: WatchedGroups | None = None,
        **config: float,
    ) -> DriftMonitor:
        """Return the monitor for a calibration; ``config`` has fields of `DriftConfig`."""
        model = calibration.identifier
        if watched is not None:
            model = f"{model}-{watched.identifier}"
        return cls(model, bins, DriftConfig(**config), columns, watched)

    def update(
        self,
        state: Mapping[str, Any] | None,
        numbers: NDArray[np.int64],
        run: str = "",
        output: str = "",
        values: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
        groups: NDArray[np.int64] | None = None,
    ) -> Drift:
        """Return the drift of a run, with the state after it; changes no argument.

        Parameters
        ----------
        state : dict, optional
            After the run before; None: this is the first one.
        numbers, run, output
            As in `verdict.update`.
        values : tuple of ndarray of shape (n_columns,), optional
            Rows without a value, and with one that no nominal row has, in each column;
            None: that is not known.
        groups : ndarray of shape (n_watched, N_GROUP_BINS), optional
            Rows of each watched group, as `GroupBins.count` gives them.

        Raises
        ------
        ValueError
            As `verdict.update`.
        """
        if state is None:
            # Conformal calibration rows are measured as new rows are.
            is_exact = bool(self.bins.includes_self)
            state = new_state(
                self.model, self.bins, self.config.delta, is_exact=is_exact,
                watched=self.watched,
            )  # fmt: skip
        unseen = None if values is None else NewValueCounts(int(numbers[0]), *values)
        tested = None
        if self.watched is not None:
            assert groups is not None
            tested = self.watched, groups
        return update(
            state, self.bins, numbers, run, output, self.config, self.columns, unseen,
            tested,
        )  # fmt: skip
