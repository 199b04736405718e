"""Search in every way once, so that the compiled kernels are in the image."""

import numpy as np

from lpe_dask import LPE

rows = np.random.default_rng(0).standard_normal((4000, 4))
for algorithm in ("brute", "pruned", "nn_descent"):
    for n_neighbors in (1, 5):
        LPE(n_neighbors, algorithm=algorithm).fit(rows).score_samples(rows)
