"""Print a digest of what is learned, and of the p-values: python tests/digests.py.

Rows lie on a lattice, where most distances tie, so that one bit decides p-values.
"""

import hashlib
import json

import dask
import numpy as np

from lpe_dask import LPE

FITS = {
    "euclidean": {},
    "standard": {"scale": "standard"},
    "mahalanobis": {"metric": "mahalanobis"},
    "mahalanobis of scaled rows": {"metric": "mahalanobis", "scale": "standard"},
    "given VI": {"metric": "mahalanobis", "metric_params": {"VI": np.eye(6) + 0.3}},
    "radius by the rule": {"graph": "radius", "scale": "minmax"},
    "both forms": {"scale": "minmax+quantile"},
    "geodesic": {"metric": "geodesic", "metric_params": {"n_neighbors": 3}},
    "mean": {"aggregation": "mean", "scale": "standard"},
    "geodesic mean": {
        "aggregation": "mean", "metric": "geodesic", "metric_params": {"n_neighbors": 3}
    },
}  # fmt: skip


def digest(*arrays):
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


def digests():
    rng = np.random.default_rng(0)
    nominal = rng.integers(0, 5, (1000, 6)) * 0.1
    rows = rng.integers(-1, 6, (200, 6)) * 0.1
    found = {}
    for name, arguments in FITS.items():
        n_neighbors = None if "graph" in arguments else 5
        for algorithm in ("brute", "pruned"):
            with dask.config.set(scheduler="sync"):
                model = LPE(n_neighbors, algorithm=algorithm, **arguments).fit(nominal)
                results = (
                    model.statistic_,
                    model.statistic(rows),
                    model.score_samples(rows),
                )
            found[f"{name}, {algorithm}"] = digest(*results)
    return found


if __name__ == "__main__":
    print(json.dumps(digests()))
