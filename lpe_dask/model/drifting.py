"""Judge by p-values of new rows whether a model is still right; see `pvalues.monitor`."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any, cast
from uuid import uuid4

import dask.array as da
import numpy as np
from dask.base import is_dask_collection
from numpy.typing import NDArray

from lpe_dask.model.detector import LPE, fitted_of
from lpe_dask.pvalues import (
    Calibration,
    Cells,
    Drift,
    Tolerances,
    check_level,
    new_state,
    phi_of,
    update,
)
from lpe_dask.tasks import compute, new_tasks


def drift(
    p_values: Any,
    model: LPE,
    state: Mapping[str, Any] | None = None,
    *,
    run: str | None = None,
    alpha: float | None = None,
    delta: float = 0.01,
    tolerance: float = 0.25,
    anomalies: float = 0.05,
    moved: float = 0.02,
    nan_limit: float = 0.1,
) -> Drift:
    r"""Return whether new rows still look like those that a model was fitted on; computes.

    Counts of p-values in cells are held against one fixed calibration set, night after
    night: if nothing changes, the verdict is ever "drifting" with a probability of at most
    ``delta``, however many nights there are and however many rows each has. Anomalies do
    not trip it: evidence comes from p-values above 0.1 (or 2 alpha) alone, and a share of
    flagged rows up to what is promised and ``anomalies`` more is taken for what it is. So
    rows that leave the nominal ones altogether, and let the others as they were, show as a
    flagged share, and drift that leaves p-values uniform shows nowhere.

    Parameters
    ----------
    p_values : array-like, Series, dask array or dask Series of shape (n,)
        Of the rows of a night, by ``model.score_samples``: independent draws, not the rows
        of the fit. NaN for rows that could not be measured.
    model : LPE
        That gave the p-values.
    state : dict, optional
        ``Drift.state`` of the night before; None: this is the first one.
    run : str, optional
        Names this night. None or empty: a name not seen before.
    alpha : float, optional
        The level of flagged rows. None: that of the model.
    delta : float, default=0.01
        The probability of a false alarm, over all nights together. With a ``state``, that
        of its first night holds.
    tolerance : float, default=0.25
        By which share more, or fewer, rows than promised may be flagged.
    anomalies : float, default=0.05
        Up to which share of the rows may be anomalies, beside false alarms.
    moved : float, default=0.02
        Up to which share of the ordinary rows may rank elsewhere.
    nan_limit : float, default=0.1
        Up to which share of the rows may have no p-value.

    Returns
    -------
    drift : Drift
        ``verdict`` is "fits", "drifting" or "broken input"; ``flagged_share`` and
        ``flagged_between`` are the realised share of flagged rows with its interval,
        ``promised`` and ``promised_between`` what the model promises; ``log10_evidence`` is
        that of a change; ``state`` is for the next night, values of JSON. As text, it is
        all of this in sentences.

    Raises
    ------
    ValueError
        For p-values that are not from 0 to 1, or not one for each row, a state that is
        damaged, of another model or level, or has this run already, or arguments out of
        range.
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
    >>> for night, shift in enumerate([0.0, 0.0, 1.0]):
    ...     rows = rng.standard_normal((2000, 2)) + shift
    ...     found = lpe_dask.drift(model.score_samples(rows), model, state)
    ...     print(night, found.verdict)
    ...     state = found.state
    0 fits
    1 fits
    2 drifting
    """
    if not isinstance(run, str | None):
        raise TypeError(f"run={run!r} must be a str, such as the date of the night.")
    fitted = fitted_of(model)
    # The largest level that flags what the model flags.
    level = math.nextafter(model.offset_, 0) if alpha is None else float(alpha)
    check_level("alpha", level)
    tolerances = Tolerances(delta, tolerance, anomalies, moved, nan_limit)
    calibration = fitted.calibration.with_values(model.calibration_)
    cells = calibration.cells(level)
    own, given = calibration_id(calibration), cast(Any, state)
    if given is None:
        phi = phi_of(fitted.calibration_kind, fitted.n_neighbors)
        given = new_state(own, cells, phi, delta)
    if isinstance(given, Mapping) and given.get("model", own) != own:
        raise ValueError(
            "the state belongs to another model. Start anew (state=None): what was seen of "
            "that model says nothing about this one."
        )
    counts = _counts(p_values, cells)
    judged = update(given, cells, counts, run or uuid4().hex, tolerances=tolerances)
    if sum(known["run"] == run for known in judged.state["runs"]) > 1:
        raise ValueError(
            f"run={run!r} is in the state already, and would count twice. Give the state "
            f"before it, or another name."
        )
    return judged


def calibration_id(calibration: Calibration) -> str:
    """Return what tells a calibration from others: a hash of its values."""
    content = hashlib.sha256(np.ascontiguousarray(calibration.values).data)
    content.update(f"{calibration.graph} {calibration.counts_itself}".encode())
    return content.hexdigest()[:16]


def _counts(p_values: Any, cells: Cells) -> NDArray[np.int64]:
    """Return the counts of p-values of any kind; those of partitions are added."""
    if not is_dask_collection(p_values):
        return cells.count(np.asarray(p_values, np.float64))
    if p_values.ndim != 1:
        raise ValueError(
            f"p-values with {p_values.ndim} dimensions were given, but it must be 1. Give "
            f"those of model.score_samples."
        )
    is_array = isinstance(p_values, da.Array)
    blocks = p_values if is_array else p_values.astype(np.float64).to_dask_array()
    tasks = ((cells.count, (blocks.name, i)) for i in range(blocks.numblocks[0]))
    return np.sum(compute(*new_tasks("count", tasks, [blocks])), axis=0)
