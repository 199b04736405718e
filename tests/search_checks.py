"""What searches of kernels give, compared with the distances of all pairs."""

import numpy as np

import definitions
from lpe_dask.kernels import CountAccumulator, KNearestAccumulator
from searching import all_distances, folded, in_blocks, query_tiles, smallest


def with_codes(points, n_codes, seed=0, n_levels=3):
    """Return rows with codes after the numbers; queries may have a code of no row, -1."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, n_levels, (len(points), n_codes))
    rows, queries = np.hstack([points, codes]), np.hstack([points, codes])
    is_unknown = rng.random(codes.shape) < 0.1
    queries[:, points.shape[1] :][is_unknown] = -1
    return rows, queries


def fold_needed(state, reference):
    """Fold the blocks that may be needed; return how many were left out."""
    n_left_out = 0
    for block in reference.blocks:
        if state.may_need(*block.box()):
            state.fold(block)
        else:
            n_left_out += 1
    return n_left_out


def distances_of(queries, rows, numbers=None, weights=(), w=None):
    """Return the distances of all pairs, inf from a query to the row that it is itself.

    NaN for queries that are not finite, which are not measured.
    """
    distances = all_distances(queries, rows, weights=weights, w=w)
    if numbers is not None:
        distances[np.arange(len(queries)), numbers] = np.inf
    distances[~np.isfinite(queries).all(axis=1)] = np.nan
    return distances


def check_nearest(state, distances, n_neighbors, *, is_mean=False, with_numbers=False):
    """Compare what a state of the nearest rows says with the distances of all pairs."""
    is_measured = ~np.isnan(distances).any(axis=1)
    values, numbers = smallest(
        np.where(is_measured[:, None], distances, np.inf), n_neighbors
    )
    expected = values[:, -1]
    if is_mean:
        expected = [
            definitions.mean_of_smallest(row, n_neighbors) for row in values.tolist()
        ]
    np.testing.assert_array_equal(state.finish(), np.where(is_measured, expected, np.nan))
    if with_numbers:
        found = state.neighbors()
        np.testing.assert_array_equal(found[0], values)
        np.testing.assert_array_equal(found[1], numbers)


def check_counts(state, distances, radius, enough=None):
    """Compare what a state of counts says; those that are enough are alike."""
    is_measured = ~np.isnan(distances).any(axis=1)
    expected = np.where(is_measured, (distances <= radius).sum(axis=1), np.nan)
    most = np.inf if enough is None else enough
    np.testing.assert_array_equal(
        np.minimum(state.finish(), most), np.minimum(expected, most)
    )


def check_searches(
    algorithm, rows, queries=None, numbers=None, *, n_neighbors=(), radii=(),
    quantiles=(0.0, 0.1, 0.5, 1.0), enough=None, weights=(), w=None, fold=folded, **blocks,
):  # fmt: skip
    """Search blocks of rows for so many neighbors, and within radii, in each way.

    Without queries each row is one, and no neighbor of itself. ``quantiles`` are of the
    distances: radii that many pairs have, or that are just too small for them. Cells are
    groups of 64 rows, or three of them with a box each.
    """
    if queries is None:
        queries, numbers = rows, np.arange(len(rows))
    distances = distances_of(queries, rows, numbers, weights, w)
    finite = distances[np.isfinite(distances)]
    if len(finite) > 0:
        at = np.quantile(finite, quantiles, method="nearest")
        radii = [*radii, *at, *np.nextafter(at, 0)]
    for cell_rows in (64, 192) if len(rows) > 64 and algorithm == "pruned" else (64,):
        reference = in_blocks(
            algorithm, rows, weights=weights, w=w, **{"cell_rows": cell_rows, **blocks}
        )
        _check_searches(
            reference, queries, numbers, distances, n_neighbors, radii, enough, fold
        )


def _check_searches(
    reference, queries, numbers, distances, n_neighbors, radii, enough, fold
):
    tiles = query_tiles(reference, queries, numbers)
    for k in n_neighbors:
        for kind in ({}, {"with_numbers": True}, {"aggregation": "mean"}):
            state = KNearestAccumulator(tiles, reference.basis, k, **kind)
            fold(state, reference)
            check_nearest(
                state, distances, k, is_mean="aggregation" in kind,
                with_numbers="with_numbers" in kind,
            )  # fmt: skip
    for radius in map(float, radii):
        for most in {None, enough}:
            state = CountAccumulator(tiles, reference.basis, radius, most)
            fold(state, reference)
            check_counts(state, distances, radius, most)
