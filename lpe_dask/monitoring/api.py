"""Judge by p-values of new rows whether a model is still right: `lpe_dask.drift`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from dask.base import is_dask_collection
from numpy.typing import NDArray

from lpe_dask import dask_array as da
from lpe_dask.monitoring.bins import PValueBins
from lpe_dask.monitoring.monitor import DriftMonitor
from lpe_dask.monitoring.result import Drift
from lpe_dask.monitoring.watched_groups import GroupBins, WatchedGroups
from lpe_dask.pvalues import check_level
from lpe_dask.tables import ConvertedTable, GroupLevels, as_table
from lpe_dask.tasks import compute, frame_tasks, new_tasks

if TYPE_CHECKING:
    from lpe_dask.model import LPE


def drift(
    p_values: Any,
    model: LPE,
    state: Mapping[str, Any] | None = None,
    *,
    groups: Any = None,
    run: str | None = None,
    alpha: float | None = None,
    delta: float = 0.01,
    tolerance: float = 0.25,
    anomalies: float = 0.05,
    shift: float = 0.02,
) -> Drift:
    r"""Return whether new rows still look like those that a model was fitted on; computes.

    Counts of p-values in bins are held against one fixed reference, run after run: if
    nothing changes, the verdict is ever "drift" with a probability of at most ``delta``,
    however many runs there are and however many rows each has. With
    ``calibration="conformal"`` the reference are the calibration rows. With "loo" and
    "split" these are not measured as new rows are, and the first runs are the reference,
    until they have 1000 rows together: what has changed before is not seen, but if most of
    the rows have small p-values.

    Anomalies do not trip it: evidence comes from p-values above 0.1 (or 2 alpha) alone, and
    a share of smaller ones up to what is promised and ``anomalies`` more is taken for what
    it is. So rows that leave the nominal ones altogether, and let the others as they were,
    show as a flagged share, and drift that leaves p-values uniform shows nowhere.

    A model with groups (``by``) has each group tested against rows of its own, so that runs
    may have any number of rows of each. Evidence is the mean of that of the groups, of
    which the 1000 with most nominal rows are tested.

    Parameters
    ----------
    p_values : array-like, Series, dask array or dask Series of shape (n,)
        Of the rows of a run, by ``model.score_samples``: independent draws, not the rows of
        the fit. NaN for rows that could not be measured.
    model : LPE
        That gave the p-values.
    state : dict, optional
        ``Drift.state`` of the run before; None: this is the first one.
    groups : array-like, Series, DataFrame, dask array or dask frame, optional
        For a model with ``by``, the columns of the same rows that divide them into groups,
        in that order, or a frame that has them; of shape (n,) or (n, n_columns), and in the
        partitions of ``p_values`` if these are lazy.
    run : str, optional
        Names this run, such as its date. None or empty: by its number.
    alpha : float, optional
        The level of flagged rows. None: that of the model.
    delta : float, default=0.01
        The probability of a false alarm, over all runs together. With a ``state``, that
        of its first run holds.
    tolerance : float, default=0.25
        By which share more, or fewer, rows than promised may have small p-values.
    anomalies : float, default=0.05
        Up to which share of the rows may be anomalies, beside false alarms.
    shift : float, default=0.02
        By how much the distribution of the p-values of other rows may shift.

    Returns
    -------
    drift : Drift
        ``verdict`` is "no drift", "drift", "invalid input" (no rows, none with a p-value,
        or most where hardly any of earlier runs were), "too few rows to test" (fewer than
        100 in up to 7 runs) or "calibrating" (a run that later ones are tested against);
        ``flagged_share`` and ``flagged_between`` are the realised share of flagged rows
        with its interval, ``promised`` and ``promised_between`` what the reference
        promises; ``shift`` and ``recent_shift`` how much the distribution of the other
        p-values differs in this run, and in the last 7; ``log10_evidence`` is that of a
        change; ``groups`` has the groups with most evidence; ``state`` is for the next run,
        values of JSON. As text, it is all of this in sentences.

    Raises
    ------
    ValueError
        For p-values that are not from 0 to 1, or not one for each row, groups that are not
        given for a model that has some, a state that is damaged, of another model or level,
        or has this run already, or arguments out of range.
    TypeError
        For a ``run`` that is no text.

    References
    ----------
    .. [1] J. Ville, "Etude critique de la notion de collectif", 1939: a martingale that
       begins at 1 ever reaches 1 / delta with a probability of at most delta.

    Examples
    --------
    >>> import numpy as np
    >>> import lpe_dask
    >>> rng = np.random.default_rng(0)
    >>> model = lpe_dask.LPE(alpha=0.01).fit(rng.standard_normal((5000, 2)))
    >>> state = None
    >>> for day, mean in [("Mon", 0.0), ("Tue", 0.0), ("Wed", 0.7)]:
    ...     rows = rng.standard_normal((2000, 2)) + mean
    ...     found = lpe_dask.drift(model.score_samples(rows), model, state, run=day)
    ...     print(day, found.verdict)
    ...     state = found.state
    Mon calibrating
    Tue no drift
    Wed drift
    """
    if not isinstance(run, str | None):
        raise TypeError(f"run={run!r} must be a str, such as the date of the run.")
    from lpe_dask.model import fitted_of  # scikit-learn comes with it

    fitted = fitted_of(model)
    # The largest level that flags what the model flags; alpha with a confidence, too.
    is_set = not fitted.has_groups and model.offset_ != fitted.limit
    offset = model.offset_ if is_set else fitted.offset
    level = math.nextafter(offset, 0) if alpha is None else float(alpha)
    check_level("alpha", level)
    calibration = fitted.calibration.with_values(model.calibration_)
    bins = PValueBins.of_calibration(calibration, level)
    watched = WatchedGroups.of_model(fitted, level)
    monitor = DriftMonitor.of(
        calibration, bins, watched=watched, delta=delta, tolerance=tolerance,
        anomalies=anomalies, shift=shift,
    )  # fmt: skip
    if isinstance(state, Mapping) and state.get("model", monitor.model) != monitor.model:
        raise ValueError(
            "the state belongs to another model. Start anew (state=None): what was seen of "
            "that model says nothing about this one."
        )
    if watched is None and groups is not None:
        raise ValueError(
            "groups are given, but the model does not divide rows into groups (by=None). "
            "Leave them out, or fit the model with by=."
        )
    if watched is not None and groups is None:
        raise ValueError(
            f"the model divides rows into groups by {fitted.by}, but groups=None. Give "
            f"these columns of the rows (groups=frame[{fitted.by}])."
        )
    counter = _Counter(bins)
    if watched is not None:
        assert fitted.categories is not None
        assert fitted.categories.groups is not None
        levels = fitted.categories.groups.only(watched.bins.codes)
        counter = _Counter(bins, watched.bins, levels, tuple(fitted.by))
    table = None if groups is None else as_table(groups)
    if isinstance(table, ConvertedTable):
        table = table.frame
    counts, of_groups = _counts(p_values, table, counter)
    result = monitor.update(state, counts, run or "", groups=of_groups)
    if sum(known["run"] == run for known in result.state["runs"]) > 1:
        raise ValueError(
            f"run={run!r} is in the state already, and would count twice. Give the state "
            f"before it, or another name."
        )
    return result


def _counts(
    p_values: Any, groups: Any, counter: _Counter
) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
    """Return the counts of p-values of any kind; those of partitions are added."""
    is_lazy = is_dask_collection(p_values)
    if groups is not None and is_dask_collection(groups) != is_lazy:
        raise ValueError(
            "only one of p_values and groups is a dask collection. Give both as such, in "
            "the same partitions, or compute both."
        )
    if not is_lazy:
        return counter(np.asarray(p_values, np.float64), groups)
    if p_values.ndim != 1:
        raise ValueError(
            f"p-values with {p_values.ndim} dimensions were given, but it must be 1. Give "
            f"those of model.score_samples."
        )
    is_array = isinstance(p_values, da.Array)
    blocks = p_values if is_array else p_values.astype(np.float64).to_dask_array()
    n_blocks, dependencies = blocks.numblocks[0], [blocks]
    keys: list[Any] = [None] * n_blocks
    if groups is not None:
        keys, entered = _blocks_of(groups)
        dependencies.append(entered)
        if len(keys) != n_blocks:
            raise ValueError(
                f"groups have {len(keys)} partitions, but the p-values {n_blocks}. Give "
                f"those of the same rows, in the same partitions."
            )
    tasks = ((counter, (blocks.name, i), key) for i, key in enumerate(keys))
    found = compute(*new_tasks("count", tasks, dependencies))
    counts, of_groups = zip(*found, strict=True)
    return np.sum(counts, axis=0), None if groups is None else np.sum(of_groups, axis=0)


def _blocks_of(groups: Any) -> tuple[list[Any], Any]:
    """Return the keys of the partitions of columns, and what they depend on."""
    if not isinstance(groups, da.Array):
        return frame_tasks(groups.to_frame() if groups.ndim == 1 else groups)
    if groups.ndim == 2:
        groups = groups.rechunk({1: -1})
    further = (0,) * (groups.ndim - 1)
    return [(groups.name, i, *further) for i in range(groups.numblocks[0])], groups


@dataclass(frozen=True, slots=True, eq=False)
class _Counter:
    """Counts p-values of a partition, also in the groups that are watched.

    Attributes
    ----------
    bins : PValueBins
    of_groups : GroupBins, optional
    levels : GroupLevels, optional
        The watched groups.
    by : tuple
        Names of the columns that divide rows.
    """

    bins: PValueBins
    of_groups: GroupBins | None = None
    levels: GroupLevels | None = None
    by: tuple[Any, ...] = ()

    def __call__(
        self, p_values: NDArray[np.float64], groups: Any
    ) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
        """Return the counts of all rows, and of watched groups."""
        counts = self.bins.count(p_values)
        if self.of_groups is None or self.levels is None:
            return counts, None
        frame = pd.DataFrame(groups)
        if {*self.by} <= {*frame.columns}:
            frame = frame[[*self.by]]
        if frame.shape != (len(p_values), len(self.by)):
            raise ValueError(
                f"groups are of shape {frame.shape}, but must be of shape "
                f"({len(p_values)}, {len(self.by)}). Give the columns {list(self.by)} of "
                f"the rows that have the p-values."
            )
        places = self.levels.codes(frame.set_axis(list(self.by), axis=1))
        codes = np.where(places >= 0, places, -1).astype(np.int64)
        codes = np.append(self.of_groups.codes, -1)[codes]
        return counts, self.of_groups.count(p_values, codes)
