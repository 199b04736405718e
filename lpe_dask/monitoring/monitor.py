"""What stays the same over the runs of a series, by which each of them is tested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lpe_dask.monitoring.bins import PValueBins
from lpe_dask.monitoring.config import DriftConfig
from lpe_dask.monitoring.new_values import NewValueCounts, NominalColumn
from lpe_dask.monitoring.result import Drift
from lpe_dask.monitoring.state import new_state
from lpe_dask.monitoring.verdict import update

if TYPE_CHECKING:
    from lpe_dask.pvalues import Calibration


@dataclass(frozen=True, slots=True)
class DriftMonitor:
    """Tests the runs that are scored with one calibration.

    Attributes
    ----------
    model : str
        Tells the calibration from others.
    bins : PValueBins
        Of it.
    config : DriftConfig
    columns : sequence of NominalColumn
        What nominal rows have in the columns that are measured.
    """

    model: str
    bins: PValueBins
    config: DriftConfig
    columns: Sequence[NominalColumn]

    @classmethod
    def of(
        cls,
        calibration: Calibration,
        bins: PValueBins,
        columns: Sequence[NominalColumn] = (),
        **limits: float,
    ) -> DriftMonitor:
        """Return the monitor for a calibration; ``limits`` are those of `DriftConfig`."""
        return cls(calibration.identifier, bins, DriftConfig(**limits), columns)

    def update(
        self,
        state: Mapping[str, Any] | None,
        numbers: NDArray[np.int64],
        run: str = "",
        output: str = "",
        values: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
    ) -> Drift:
        """Return the drift of a run, with the state after it; changes no argument.

        Parameters
        ----------
        state : dict, optional
            After the run before; None: this is the first one.
        numbers, run, output
            As in `verdict.update`, which says what it raises.
        values : tuple of ndarray of shape (n_columns,), optional
            Rows without a value, and with one that no nominal row has, in each column;
            None: that is not known.
        """
        if state is None:
            # Conformal calibration rows are measured as new rows are.
            is_exact = bool(self.bins.includes_self)
            state = new_state(self.model, self.bins, self.config.delta, is_exact=is_exact)
        unseen = None if values is None else NewValueCounts(int(numbers[0]), *values)
        return update(
            state, self.bins, numbers, run, output, self.config, self.columns, unseen
        )
