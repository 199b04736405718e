"""Digests of results: of what is learned and of p-values, and of the parts of an output.

python tests/digests.py prints those of some fits. Their rows lie on a lattice, where most
distances tie, so that one bit decides p-values.
"""

import hashlib
import json

import dask
import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

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


def parts_in(output):
    """Return the digest of each part of an output, by name."""
    filesystem, path = fsspec.url_to_fs(str(output), use_listings_cache=False)
    paths = sorted(filesystem.glob(f"{path}/part-*"))
    return {
        path.rpartition("/")[2]: digest_of_table(read_table(filesystem, path))
        for path in paths
    }


def read_table(filesystem, path):
    """Return a Parquet file without metadata, which name the run."""
    with filesystem.open(path) as file:
        return pq.ParquetFile(file).read().replace_schema_metadata(None)


def digest_of_table(table):
    """Return a digest of the bits of all columns."""
    table = table.combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return hashlib.sha256(sink.getvalue()).hexdigest()


if __name__ == "__main__":
    print(json.dumps(digests()))
