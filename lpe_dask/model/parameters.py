"""What the arguments of a detector may be.

Checks that need no data. A value that the public face names, but that this version has not
got, is refused like an unknown one, with what is there.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from decimal import Context, Decimal
from numbers import Integral, Real
from typing import Any

from lpe_dask.kernels import ALGORITHMS
from lpe_dask.model.metrics import METRIC_PARAMS, check_metric_params
from lpe_dask.pvalues import COUNTS_ITSELF, check_level

GRAPHS = ("knn", "radius")
SCALES = (None, "minmax", "standard")
MISSING = ("error", "drop")


def check_parameters(parameters: dict[str, Any]) -> None:
    """Raise ValueError if the arguments of `LPE`, by name, are out of range.

    Parameters
    ----------
    parameters : dict
        All arguments, as ``LPE.get_params()`` gives them.
    """
    _check_choice("graph", parameters, GRAPHS)
    _check_choice("metric", parameters, tuple(METRIC_PARAMS))
    _check_choice("scale", parameters, SCALES)
    _check_choice("algorithm", parameters, ("auto", *ALGORITHMS))
    _check_choice("calibration", parameters, ("auto", *COUNTS_ITSELF))
    _check_choice("missing", parameters, MISSING)
    check_metric_params(parameters["metric"], parameters["metric_params"])
    _check_calibration_size(parameters["calibration_size"])
    _check_log_density(parameters["anomaly_log_density"])
    _check_n_neighbors(parameters["n_neighbors"], parameters["graph"])
    _check_radius(parameters["radius"], parameters["graph"], parameters["scale"])
    check_level("alpha", parameters["alpha"])
    _check_random_state(parameters["random_state"])


def _check_choice(name: str, parameters: dict[str, Any], allowed: Collection[Any]) -> None:
    value = parameters[name]
    # Only plain values are compared: an array would compare element by element.
    if not (value is None or isinstance(value, str)) or value not in allowed:
        listed = ", ".join(map(repr, allowed))
        raise ValueError(
            f"{name}={value!r} is not available; this version has {name} in {listed}."
        )


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not _is_truth_value(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not _is_truth_value(value)


def _is_truth_value(value: Any) -> bool:
    return isinstance(value, bool)  # True is a number to Python, and a slip to us


def _check_n_neighbors(n_neighbors: Any, graph: str) -> None:
    if n_neighbors is None:
        return
    if not _is_whole(n_neighbors) or n_neighbors < 1:
        raise ValueError(
            f"n_neighbors={n_neighbors!r} must be a whole number of at least 1, or None "
            f"for the rule round(n**0.4)."
        )
    if graph != "knn":
        raise ValueError(
            f"n_neighbors={n_neighbors} is for graph='knn'; graph={graph!r} takes radius."
        )


def _check_radius(radius: Any, graph: str, scale: str | None) -> None:
    if radius is None:
        if graph == "radius" and scale != "minmax":
            raise ValueError(
                f"the rule for the radius holds for rows in [0, 1], but scale={scale!r}. "
                f"Set scale='minmax', or give radius."
            )
        return
    if not _is_number(radius) or not 0 <= radius < math.inf:
        raise ValueError(
            f"radius={radius!r} must be a finite number of at least 0, or None for the "
            f"rule."
        )
    if graph != "radius":
        raise ValueError(f"radius={radius} is for graph='radius', but graph={graph!r}.")


def _check_calibration_size(size: Any) -> None:
    if size is not None and (not _is_whole(size) or size < 1):
        raise ValueError(
            f"calibration_size={size!r} must be a whole number of at least 1, or None."
        )


def _check_log_density(log_density: Any) -> None:
    if log_density is not None and not callable(log_density):
        raise ValueError(
            f"anomaly_log_density={log_density!r} must be a function from rows, an array "
            f"of shape (n_rows, n_features), to the logarithm of the density at each, or "
            f"None."
        )


def _check_random_state(random_state: Any) -> None:
    if random_state is not None and not (_is_whole(random_state) and random_state >= 0):
        raise ValueError(
            f"random_state={random_state!r} must be None or a whole number of at least 0."
        )


def neighbors_by_rule(n_reference: int) -> int:
    """Return K = round(n**0.4), kept in [1, n - 1].

    Examples
    --------
    >>> neighbors_by_rule(2), neighbors_by_rule(1000), neighbors_by_rule(1_000_000)
    (1, 16, 251)
    """
    rounded = round(_power(n_reference, 0.4))
    return max(1, min(n_reference - 1, rounded))


def radius_by_rule(n_reference: int, n_features: int) -> float:
    r"""Return the paper's radius for n nominal rows in the unit cube of d dimensions.

    .. math:: \epsilon = m^{-3/(5d)} \sqrt{\frac{d}{2 \pi e}}

    with m = n: the lemma's m is the number of points that neighbors are counted among.

    Examples
    --------
    >>> round(radius_by_rule(1000, 2), 4)
    0.0431
    """
    return float(
        _power(n_reference, -3 / (5 * n_features))
        * math.sqrt(n_features / (2 * math.pi * math.e))
    )


def _power(base: int, exponent: float) -> float:
    """Return a power rounded once: that of a C library may differ between processors."""
    return float(Context(prec=40).power(Decimal(base), Decimal(exponent)))
