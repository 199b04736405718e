"""Small tables, and arguments of models that fit them, of every kind there is."""

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from hypothesis import strategies as st

from flows import CATEGORICAL, NAMES, table
from lpe_dask.model.calibration_split import split_calibration
from strategies import point_sets, row_chunks

SCALES = [None, "minmax", "standard", "quantile", "minmax+quantile"]
VI = np.array([[2.0, 0.3, 0.0], [0.3, 1.0, -0.2], [0.0, -0.2, 0.7]])
#: Arguments of each metric, for three columns; "categories" has columns of its own.
METRICS = {
    "euclidean": {},
    "weights": {"metric_params": {"w": [1.0, 0.3, 0.0]}},
    "seuclidean": {"metric": "seuclidean"},
    "variances": {"metric": "seuclidean", "metric_params": {"V": [0.1, 2.0, 3.0]}},
    "matrix": {"metric": "mahalanobis", "metric_params": {"VI": VI}},
    "categories": {},
    "directed": {"metric": "geodesic"},
    "union": {"metric": "geodesic"},
}


def metric_of(name, scale):
    """Return the arguments of a metric; V and VI have a number for each form."""
    arguments = METRICS[name]
    if scale != "minmax+quantile" or name not in ("variances", "matrix"):
        return arguments
    ((param, values),) = arguments["metric_params"].items()
    of_both = np.kron(np.eye(2), values) if param == "VI" else [*values, 1.5, 0.5, 1.0]
    return arguments | {"metric_params": {param: of_both}}


def lattice(n_rows, seed, low=0, high=10, n_features=3):
    """Rounded measurements: they tie everywhere, and not in binary."""
    rng = np.random.default_rng(seed)
    return rng.integers(low, high, (n_rows, n_features)) * 0.1 + 5.0


def log_bell(rows):
    """A density of anomalies: a Gaussian around 1, up to a constant; 0 beyond 3."""
    squares = ((rows - 1.0) ** 2).sum(axis=1)
    return np.where(squares > 9.0, -np.inf, -squares / 2)


#: Each algorithm, calibration, graph, metric, scale and kind of block.
ESTIMATORS = {
    "brute": {"algorithm": "brute"},
    "pruned": {"algorithm": "pruned"},
    "conformal part": {"calibration": "conformal", "calibration_size": 30},
    "part": {"calibration_size": 30, "alpha": 0.2},
    "radius by rule": {"graph": "radius", "scale": "minmax", "algorithm": "pruned"},
    "weights": {"metric_params": {"w": [1, 0.3, 0.0]}},
    "variances": {"metric": "seuclidean", "metric_params": {"V": [0.1, 2.0, 3.0]}},
    "mahalanobis": {"metric": "mahalanobis", "scale": "standard"},
    "geodesic": {"metric": "geodesic", "metric_params": {"n_neighbors": 4}},
    "union": {
        "metric": "geodesic", "metric_params": {"graph": "union"}, "graph": "radius",
        "radius": 1, "scale": "standard",
    },
    "geodesic split": {"metric": "geodesic", "calibration": "split", "n_neighbors": 9},
    "quantile": {"scale": "quantile", "algorithm": "pruned", "calibration": "loo"},
    "covariance of both": {
        "scale": "minmax+quantile", "metric": "mahalanobis", "calibration": "split",
    },
    "many": {"n_neighbors": 60},
    "mean": {"aggregation": "mean", "scale": "standard"},
    "many pruned": {"n_neighbors": 48, "algorithm": "pruned", "calibration": "loo"},
    "density radius": {
        "anomaly_log_density": log_bell, "calibration": "conformal", "graph": "radius",
        "radius": 0.3,
    },
    "density": {"anomaly_log_density": log_bell, "calibration": "split"},
}  # fmt: skip


@st.composite
def _tables(draw, metric):
    """Nominal rows, new ones, and what is given about their columns."""
    if metric == "categories":
        names = draw(st.permutations(NAMES))[: draw(st.integers(1, 6))]
        seeds, sizes = st.integers(0, 10**6), st.integers(6, 30)
        nominal = table(draw(sizes), draw(seeds))[names]
        new = table(draw(st.integers(1, 8)), draw(seeds), ("7", "new", "tcp"))[names]
        weight = st.sampled_from([0.0, 0.3, 1.0, 4.0])
        w = draw(st.lists(weight, min_size=len(names), max_size=len(names)).filter(any))
        categorical = [name for name in CATEGORICAL if name in names] or None
        return nominal, new, {"categorical": categorical, "metric_params": {"w": w}}
    nominal, new = (draw(point_sets(min_rows, n_features=3)) for min_rows in (3, 1))
    if metric == "matrix":  # it mixes columns: what is far out rounds the others
        nominal, new = nominal - nominal[0], new - nominal[0]
    missing = st.sampled_from([np.nan, np.inf, -np.inf])
    if draw(st.booleans()):
        place = draw(st.integers(0, len(nominal)))
        nominal = np.insert(nominal, place, [0.0, draw(missing), 1.0], axis=0)
        new[0, 2] = draw(missing)
    tables = (pd.DataFrame(rows, columns=list("abc")) for rows in (nominal, new))
    return *tables, {"missing": "drop"}


@st.composite
def problems(draw, metric, scale):
    """Nominal rows, new ones, and arguments."""
    nominal, new, given = draw(_tables(metric))
    n = len(nominal)
    if metric != "categories":
        n = int(np.isfinite(nominal.to_numpy()).all(axis=1).sum())
    calibration = draw(st.sampled_from(["loo", "split", "conformal"]))
    most = {"loo": n, "split": (n + 1) // 2, "conformal": n - 1}[calibration]
    arguments = metric_of(metric, scale) | given | {
        "scale": scale, "calibration": calibration,
        "calibration_size": draw(st.none() | st.integers(1, most)),
        "random_state": draw(st.integers(0, 5)),
        "algorithm": draw(st.sampled_from(["brute", "pruned", "auto"])),
        "alpha": draw(st.sampled_from([0.01, 0.25, 0.5, 0.9])),
    }  # fmt: skip
    division = split_calibration(calibration, n, arguments["calibration_size"], 0)
    if division.max_neighbors >= 1 and draw(st.booleans()):
        arguments["n_neighbors"] = draw(st.integers(1, division.max_neighbors))
        arguments["aggregation"] = draw(st.sampled_from(["kth", "mean"]))
    else:
        radius = draw(st.sampled_from([0.0, 0.1, 0.30000000000000004, 1.0, 3e-9]))
        arguments |= {"graph": "radius", "radius": radius}
    if metric in ("directed", "union"):
        n_linked = max(0, division.max_neighbors)
        n_edges = draw(st.integers(1, min(3, n_linked))) if n_linked else None
        arguments["metric_params"] = {"graph": metric, "n_neighbors": n_edges}
        if n_edges is None:
            arguments |= {"metric": "euclidean", "metric_params": None}
    if metric != "categories" and scale in (None, "minmax") and draw(st.booleans()):
        arguments["anomaly_log_density"] = log_bell
    return nominal, new, arguments


@st.composite
def cut(draw, rows):
    """Rows in any kind that has them, and in any chunks."""
    kinds = ["frame", "dask frame"]
    if all(dtype.kind == "f" for dtype in rows.dtypes):
        kinds += ["array", "dask array"]
    kind = draw(st.sampled_from(kinds))
    if kind == "dask frame":
        n_parts = draw(st.integers(1, 3))
        return dd.from_pandas(rows, npartitions=n_parts, sort=False)
    if kind == "dask array":
        return da.from_array(rows.to_numpy(), chunks=(draw(row_chunks(len(rows))), -1))
    return rows if kind == "frame" else rows.to_numpy()


def computed(values):
    """Return values of any kind as an array."""
    return np.asarray(values.compute() if hasattr(values, "compute") else values)
