"""Reasons: shares by their formulas, typical ones, and nearest nominal rows."""

import functools
import pickle
import re
import tempfile
from pathlib import Path

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.base import is_dask_collection
from dask.sizeof import sizeof
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError

import definitions
import lpe_dask
from choosing import dealt, mostly_dealt, mostly_full, mostly_slow
from flows import CATEGORICAL, NAMES, table
from indexes import right_lists
from lpe_dask import LPE
from lpe_dask.kernels import nn_descent
from lpe_dask.model.certificate import Certificate
from lpe_dask.model.detector import fitted_of
from lpe_dask.model.explanation import explain_rows
from strategies import point_sets

SCALES = [None, "minmax", "standard", "quantile", "minmax+quantile"]
VI = np.array([[2.0, 0.3, 0.0], [0.3, 1.0, -0.2], [0.0, -0.2, 0.7]])
METRICS = [
    ("euclidean", None),
    ("euclidean", {"w": [1.0, 0.3, 0.0]}),
    ("seuclidean", None),
    ("seuclidean", {"V": [0.1, 2.0, 3.0]}),
    ("mahalanobis", {"VI": VI}),
]
AGGREGATIONS = ["kth", "mean"]


def for_both_forms(params, scale):
    """V and VI have a number for each form of a column, w one for a column."""
    if scale != "minmax+quantile" or params is None or "w" in params:
        return params
    ((name, values),) = params.items()
    return {name: np.kron(np.eye(2), values) if name == "VI" else [*values, 1.5, 0.5, 1.0]}


@pytest.fixture(autouse=True)
def _quickly():
    with dask.config.set(scheduler="sync"):
        yield


class Plain:
    """Numeric nominal rows and a metric, by the definitions."""

    def __init__(self, nominal, scale=None, metric="euclidean", params=None):
        self.nominal, self.scale, self.metric = nominal, scale, metric
        self.scaled = definitions.scaled(nominal, nominal, scale)
        self.w = None
        if metric != "mahalanobis":
            self.w = definitions.weights_of_forms(nominal, scale, metric, params)
        if metric == "mahalanobis" and params is None:
            columns = self.scaled.T
            covariance = [
                [definitions.covariance(a, b, 1) for b in columns] for a in columns
            ]
            self.factor = definitions.cholesky_of_inverse(covariance)
        elif metric == "mahalanobis":
            self.factor = definitions.cholesky(params["VI"])
        self.reference = self.prepared(nominal)

    def prepared(self, rows):
        """What is subtracted."""
        if self.metric == "mahalanobis":
            rows = definitions.scaled(rows, self.nominal, self.scale)
            return definitions.mapped(rows, self.factor)
        return definitions.forms(rows, self.nominal, self.scale)

    def typical_shares(self, n_neighbors):
        numbers = definitions.typical_rows(len(self.nominal))
        rows = self.shares(self.nominal[numbers], n_neighbors, numbers)
        return definitions.typical_shares(rows, self.nominal.shape[1])

    def error(self, rows, statistic):
        """By how much shares may be off: what a matrix mixes is rounded before R is."""
        error = np.full((len(rows), 1), 1e-12)
        if self.metric == "mahalanobis":
            largest = np.abs(np.concatenate([self.prepared(rows), self.reference])).max()
            is_known = (statistic > 0) & np.isfinite(statistic)
            error[is_known, 0] += 1e-14 * largest / statistic[is_known]
        return error

    def shares(self, rows, n_neighbors, own=None):
        """Of each row, or None; ``own`` says which nominal row each is itself."""
        n_columns, found = self.nominal.shape[1], []
        scaled = definitions.scaled(rows, self.nominal, self.scale)
        for i, query in enumerate(self.prepared(rows)):
            nearest = definitions.nearest_rows(
                query, self.reference, n_neighbors, None if own is None else own[i],
                w=self.w,
            )  # fmt: skip
            if self.metric == "mahalanobis":
                factor = np.array(self.factor)
                parts = [
                    definitions.mahalanobis_parts(
                        scaled[i], self.scaled[j], factor @ factor.T, n_columns
                    )
                    for _, j in nearest
                ]
            else:
                parts = [
                    definitions.squared_parts(query, self.reference[j], n_columns, w=self.w)
                    for _, j in nearest
                ]
            distances = [d for d, _ in nearest]
            found.append(definitions.shares(distances, parts))
        return found


def known(of_rows, n_columns):
    """Shares as an array: NaN where there are none."""
    nothing = [np.nan] * n_columns
    rows = [nothing if of_row is None else of_row for of_row in of_rows]
    return np.array(rows).reshape(-1, n_columns)


def by_row(reasons, name, columns):
    """Values of all columns of each row, in the order of the columns."""
    numbers = reasons["column"].map({column: i for i, column in enumerate(columns)})
    values = reasons[name].to_numpy().reshape(-1, len(columns))
    places = numbers.to_numpy().reshape(-1, len(columns))
    ordered = np.empty_like(values)
    np.put_along_axis(ordered, places, values, axis=1)
    return ordered


def assert_in_order(reasons, columns):
    """The column with the largest share comes first; shares are those that are shown."""
    shares = by_row(reasons, "share", columns)
    shown = reasons["column"].to_numpy().reshape(-1, len(columns))
    for of_row, in_order in zip(shares, shown, strict=True):
        order = definitions.telling_order(np.nan_to_num(of_row))
        assert [columns[place] for place in order] == list(in_order)


def assert_sum_to_1(shares):
    is_known = ~np.isnan(shares).any(axis=1)
    total = shares[is_known].sum(axis=1)
    largest = np.abs(shares[is_known]).max(axis=1, initial=1)
    np.testing.assert_array_less(np.abs(total - 1), 1e-12 * largest)
    assert np.isnan(shares[~is_known]).all()


CASES = [(scale, *metric) for scale in SCALES for metric in METRICS]
ALWAYS = [(scale, *metric) for scale, metric in dealt(SCALES, METRICS)]


@pytest.mark.parametrize(
    ("scale", "metric", "params"), mostly_slow(CASES, ALWAYS, ALWAYS[::2])
)
@given(data=st.data())
def test_explain__shares_are_the_definition(scale, metric, params, data):
    nominal = data.draw(point_sets(min_rows=2, n_features=3))
    rows = data.draw(point_sets(n_features=3))
    if metric == "mahalanobis":  # a matrix mixes columns: what is far out rounds the others
        nominal, rows = nominal - nominal[0], rows - nominal[0]
    n_neighbors = data.draw(st.integers(1, len(nominal) - 1))
    aggregation = data.draw(st.sampled_from(AGGREGATIONS))
    params = for_both_forms(params, scale)
    plain = Plain(nominal, scale, metric, params)

    model = LPE(
        n_neighbors, scale=scale, metric=metric, metric_params=params,
        aggregation=aggregation, calibration="loo", alpha=0.3,
    ).fit(nominal)  # fmt: skip
    reasons = model.explain(rows, top=3)

    shown = np.flatnonzero([1, 1, 1] if plain.w is None else np.array(plain.w[:3]) > 0)
    statistic = reasons["statistic"].to_numpy()[:: len(shown)]
    shares = by_row(reasons, "share", shown)
    right = known(plain.shares(rows, n_neighbors), 3)[:, shown]
    assert (np.abs(shares - right) <= plain.error(rows, statistic)).all(
        where=~np.isnan(right)
    )
    assert_sum_to_1(shares)
    typical = np.array(plain.typical_shares(n_neighbors))[shown]
    error = plain.error(nominal, model.calibration_).max()
    np.testing.assert_allclose(
        by_row(reasons, "typical_share", shown),
        [typical] * len(rows),
        rtol=0,
        atol=error,
    )
    assert_in_order(reasons, shown)
    np.testing.assert_array_equal(by_row(reasons, "value", shown), rows[:, shown])
    _check_nominal_values(by_row(reasons, "nominal_value", shown), rows, plain, shown)


def _check_nominal_values(values, rows, plain, shown):
    """They are those of the nearest nominal row, or what becomes the same."""
    for query, of_row in zip(plain.prepared(rows), values, strict=True):
        ((_, number),) = definitions.nearest_rows(query, plain.reference, 1, w=plain.w)
        whole = plain.nominal[number].copy()
        if plain.metric == "mahalanobis":
            largest = np.abs(plain.nominal).max()
            np.testing.assert_allclose(of_row, whole, rtol=1e-9, atol=1e-9 * largest)
            continue
        whole[shown] = of_row
        (restored,) = plain.prepared(whole[None, :])
        np.testing.assert_array_equal(restored, plain.reference[number])


FEW_SCALES = [None, "standard", "minmax+quantile"]


@pytest.mark.parametrize(
    ("scale", "aggregation"),
    mostly_dealt(FEW_SCALES, AGGREGATIONS),
)
def test_explain__shares_of_a_learned_covariance(scale, aggregation):
    """They are those of both forms together, and negative where columns make up."""
    rng = np.random.default_rng(0)
    nominal = rng.standard_normal((30, 3)) @ [[1, 0.8, 0], [0, 0.6, 0], [0, 0.5, 1]]
    rows = np.concatenate([nominal[:5] + np.array([0, 3, 0]), 4 * nominal[5:15]])
    arguments = {"scale": scale, "metric": "mahalanobis", "aggregation": aggregation}

    reasons = LPE(4, **arguments, calibration="loo").fit(nominal).explain(rows)

    plain = Plain(nominal, scale, "mahalanobis")
    shares = by_row(reasons, "share", range(3))
    right = known(plain.shares(rows, 4), 3)
    np.testing.assert_allclose(shares, right, rtol=1e-11, atol=1e-11)
    assert_sum_to_1(shares)
    assert (shares < -0.01).any()
    np.testing.assert_allclose(
        by_row(reasons, "typical_share", range(3))[0],
        plain.typical_shares(4), atol=1e-11,
    )  # fmt: skip
    assert_in_order(reasons, range(3))


# Categories


def plain_shares(rows, nominal, weights, scale, n_neighbors, *, are_own=False):
    """Shares of each row, in the order of the columns, and its nearest nominal row."""
    numeric = [name for name in nominal.columns if name not in CATEGORICAL]
    categorical = [name for name in nominal.columns if name in CATEGORICAL]
    of = dict(zip(nominal.columns, weights, strict=True))
    learned_from, of_numbers = nominal[numeric].to_numpy(float), []
    if numeric:
        params = {"w": [of[name] for name in numeric]}
        of_numbers = definitions.weights_of_forms(learned_from, scale, params=params)

    def prepared(frame):
        numbers = np.zeros((len(frame), 0))
        if numeric:
            numbers = definitions.forms(frame[numeric].to_numpy(float), learned_from, scale)
        codes = frame[categorical].to_numpy(object)
        return [[*a, *b] for a, b in zip(numbers, codes, strict=True)]

    w, reference, found = [of[name] for name in categorical], prepared(nominal), []
    places = [[*numeric, *categorical].index(name) for name in nominal.columns]
    for i, query in enumerate(prepared(rows)):
        left_out = i if are_own else None
        nearest = definitions.nearest_rows(
            query, reference, n_neighbors, left_out, w, of_numbers
        )
        parts = [
            definitions.squared_parts(query, reference[j], len(numeric), w, of_numbers)
            for _, j in nearest
        ]
        distances = [d for d, _ in nearest]
        shares = definitions.shares(distances, parts)
        shares = None if shares is None else [shares[place] for place in places]
        found.append((shares, nearest[0][1]))
    return found


@given(data=st.data())
def test_explain__shares_of_categories_are_the_definition(data):
    seeds = st.integers(0, 10**6)
    names = data.draw(st.permutations(NAMES))[: data.draw(st.integers(1, 6))]
    nominal = table(data.draw(st.integers(6, 25)), data.draw(seeds))[names]
    rows = table(data.draw(st.integers(1, 8)), data.draw(seeds), ("7", "new", "tcp"))[names]
    weight = st.sampled_from([0.0, 0.3, 1.0, 4.0])
    weights = data.draw(st.lists(weight, min_size=len(names), max_size=len(names)))
    n_neighbors = data.draw(st.integers(1, len(nominal) - 1))
    scale = data.draw(st.sampled_from(SCALES))
    aggregation = data.draw(st.sampled_from(AGGREGATIONS))
    arguments = weights, scale, n_neighbors
    shown = [name for name, weight in zip(names, weights, strict=True) if weight > 0]
    assume(shown)

    model = LPE(
        n_neighbors, categorical=[c for c in CATEGORICAL if c in names] or None,
        metric_params={"w": weights}, scale=scale, aggregation=aggregation,
        calibration="loo", alpha=0.3,
    )  # fmt: skip
    reasons = model.fit(nominal).explain(rows, top=6)

    found = plain_shares(rows, nominal, *arguments)
    shares, places = by_row(reasons, "share", shown), list(map(names.index, shown))
    right = known([of_row for of_row, _ in found], len(names))[:, places]
    np.testing.assert_allclose(shares, right, rtol=0, atol=1e-12)
    assert_sum_to_1(shares)
    own = plain_shares(nominal, nominal, *arguments, are_own=True)
    typical = definitions.typical_shares([of_row for of_row, _ in own], len(names))
    np.testing.assert_allclose(
        by_row(reasons, "typical_share", shown),
        [[typical[place] for place in places]] * len(rows), atol=1e-12,
    )  # fmt: skip
    assert_in_order(reasons, shown)
    values = pd.DataFrame(by_row(reasons, "value", shown), columns=shown)
    assert values.to_numpy(object).tolist() == rows[shown].to_numpy(object).tolist()
    nominal_values = pd.DataFrame(by_row(reasons, "nominal_value", shown), columns=shown)
    nearest = nominal[shown].iloc[[number for _, number in found]].to_numpy(object)
    for name, right in zip(shown, nearest.T, strict=True):
        if name in CATEGORICAL:
            assert nominal_values[name].tolist() == right.tolist()
        else:
            np.testing.assert_allclose(
                nominal_values[name].astype(float), right.astype(float)
            )


def test_explain__shows_flags_and_whole_numbers_as_they_came():
    """Also where all columns are numbers to pandas."""
    nominal = table(60, 0)[["x", "flag", "port"]]
    model = LPE(3, categorical=["flag", "port"]).fit(nominal)

    lines = model.explain(nominal.iloc[:1].assign(x=9.0, flag=True, port=443), top=3)

    shown = lines.set_index("column")[["value", "nominal_value"]]
    assert shown.loc["flag"].map(type).tolist() == [bool, bool]
    assert shown.loc["port"].map(type).tolist() == [int, int]
    assert shown.loc["x"].map(type).tolist() == [float, float]


def test_explain__of_missing_and_unknown_categories():
    nominal, rows = table(60, 0), table(4, 1).astype(object)
    rows.iloc[0, 0], rows.iloc[1, 5], rows.iloc[2, 1] = None, 22, np.nan
    model = LPE(3, categorical=CATEGORICAL).fit(nominal)

    reasons = model.explain(rows, top=6)

    shares = by_row(reasons, "share", NAMES)
    assert np.isnan(shares).any(axis=1).tolist() == [True, False, True, False]
    assert_sum_to_1(shares)
    assert reasons["p_value"].isna().tolist() == np.isnan(shares[:, 0]).repeat(6).tolist()
    shown = by_row(reasons, "nominal_value", NAMES)
    assert pd.isna(shown[[0, 2]]).all()
    assert not pd.isna(shown[[1, 3]]).any()
    assert shown[1, 5] in (80, 443)
    values = by_row(reasons, "value", NAMES)
    assert pd.isna(values).sum() == 2
    assert values[1, 5] == 22


# Counts and walks


@pytest.mark.parametrize(
    "arguments",
    [
        {"graph": "radius", "radius": 0.3},
        {"metric": "geodesic", "metric_params": {"n_neighbors": 2}, "n_neighbors": 4},
        {
            "metric": "geodesic", "metric_params": {"n_neighbors": 2}, "n_neighbors": 4,
            "aggregation": "mean",
        },
        {"metric": "geodesic", "graph": "radius", "radius": 0.5, "scale": "minmax"},
    ],
    ids=["radius", "geodesic", "mean", "geodesic radius"],
)  # fmt: skip
def test_explain__of_counts_and_walks_has_the_shares_to_the_nearest_rows(arguments):
    rng = np.random.default_rng(0)
    nominal = rng.integers(0, 10, (80, 3)) * 0.1
    rows = np.concatenate([rng.integers(-5, 15, (30, 3)) * 0.1, nominal[:5]])
    model = LPE(**arguments, calibration="loo", alpha=0.2).fit(nominal)

    reasons = model.explain(rows)

    plain = Plain(nominal, arguments.get("scale"))
    n_neighbors = arguments.get("n_neighbors", 20)
    shares = by_row(reasons, "share", range(3))
    right = known(plain.shares(rows, n_neighbors), 3)
    np.testing.assert_allclose(shares, right, rtol=0, atol=1e-12)
    assert_sum_to_1(shares)
    typical = by_row(reasons, "typical_share", range(3))[0]
    np.testing.assert_allclose(typical, plain.typical_shares(n_neighbors))
    assert_in_order(reasons, range(3))
    np.testing.assert_array_equal(reasons["p_value"][::3], model.score_samples(rows))
    np.testing.assert_array_equal(reasons["statistic"][::3], model.statistic(rows))
    # A row that no nominal one is within the radius of has distances all the same.
    assert not np.isnan(shares).any()


def test_explain__of_unreachable_rows_has_shares():
    """A walk to four others ends in a group of three: R is inf, the way to it is not."""
    groups = np.repeat([0.0, 100.0, 200.0], 3) + np.tile([0.0, 1.0, 2.0], 3)
    nominal = np.c_[groups, groups % 100]
    model = LPE(4, metric="geodesic", metric_params={"n_neighbors": 2}).fit(nominal)

    reasons = model.explain(np.array([[103.0, 4.0]]))

    assert np.isinf(reasons["statistic"]).all()
    distances = np.hypot([1, 2, 3, 97], [2, 3, 4, 4])
    down = (np.array([2, 3, 4, 4]) ** 2 / distances).sum() / distances.sum()
    np.testing.assert_allclose(by_row(reasons, "share", [0, 1]), [[1 - down, down]])


# Where nothing has a share


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_explain__of_0_inf_and_nan_has_no_shares(aggregation):
    nominal = np.array([[1.0, 2.0]] * 5 + [[4.0, 6.0]] * 3)
    rows = np.array([[1.0, 2.0], [1e300, 0], [np.nan, 1], [np.inf, 1], [4, 7], [1, 3]])
    model = LPE(3, aggregation=aggregation, alpha=0.2).fit(nominal)

    reasons = model.explain(pd.DataFrame(rows, index=list("abcdef")))

    assert reasons.index.tolist() == list("aabbccddeeff")
    first = reasons[::2]
    np.testing.assert_array_equal(first["statistic"], [0, np.inf, np.nan, np.nan, 1, 1])
    np.testing.assert_array_equal(first["p_value"], [1, 0, np.nan, np.nan, 0.375, 0.375])
    shares = by_row(reasons, "share", [0, 1])
    np.testing.assert_array_equal(shares, [[np.nan] * 2] * 4 + [[0, 1]] * 2)
    assert first["column"].tolist() == [0, 0, 0, 0, 1, 1]
    nominal_values = by_row(reasons, "nominal_value", [0, 1])
    np.testing.assert_array_equal(
        nominal_values, [[1, 2]] + [[np.nan] * 2] * 3 + [[4, 6], [1, 2]]
    )


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_explain__of_a_row_of_which_some_neighbors_are_too_far(aggregation):
    """The distance to the nearest is finite, that to the third is not."""
    nominal = np.array([[1.3e154, 0.0], [1.31e154, 0], [-1.3e154, 0], [-1.31e154, 0]])
    model = LPE(3, aggregation=aggregation).fit(nominal)

    reasons = model.explain(np.array([[1.3e154, 2e153]]))

    assert np.isinf(reasons["statistic"]).all()
    parts, distances = [[0, 4e306], [1e304, 4e306]], np.hypot([0, 1e152], 2e153)
    right = definitions.shares([*distances, np.inf], [*parts, [np.inf, 0]])
    np.testing.assert_allclose(by_row(reasons, "share", [0, 1]), [right], rtol=1e-9)
    assert by_row(reasons, "nominal_value", [0, 1]).tolist() == [[1.3e154, 0]]


@given(rows=point_sets(n_features=2))
def test_typical_share__is_even_where_all_rows_are_the_same(rows):
    model = LPE(2, alpha=0.3).fit(np.full((5, 2), 0.1))

    reasons = model.explain(rows)

    assert (reasons["typical_share"] == 0.5).all()


@pytest.mark.parametrize(
    ("n_rows", "n_neighbors"), mostly_full([(256, 1), (512, 3)], [(512, 3)])
)
def test_typical_share__is_the_mean_of_256_rows(n_rows, n_neighbors):
    rng = np.random.default_rng(0)
    nominal = rng.integers(0, 20, (n_rows, 2)) * [0.1, 10.0]
    model = LPE(n_neighbors, aggregation="mean").fit(nominal)

    reasons = model.explain(nominal[:1])

    right = Plain(nominal).typical_shares(n_neighbors)
    np.testing.assert_allclose(by_row(reasons, "typical_share", [0, 1])[0], right)
    assert right[0] > 0.9
    assert len(definitions.typical_rows(n_rows)) == 256


@pytest.mark.parametrize("calibration", ["split", "conformal"])
def test_typical_share__is_that_among_the_rows_that_new_ones_are_measured_among(
    calibration,
):
    nominal = np.random.default_rng(0).integers(0, 20, (80, 2)) * [0.1, 1.0]
    model = LPE(2, calibration=calibration, random_state=3).fit(nominal)

    reasons = model.explain(nominal[:1])

    order = np.random.default_rng(3).permutation(80)
    right = Plain(nominal[np.sort(order[40:])]).typical_shares(2)
    np.testing.assert_allclose(by_row(reasons, "typical_share", [0, 1])[0], right)


# However rows come


def lattice(n_rows, seed, low=0, high=10):
    """Rounded measurements: they tie everywhere, and not in binary."""
    return np.random.default_rng(seed).integers(low, high, (n_rows, 3)) * 0.1 + 5.0


LETTERS = ["a", "b", "c"]
NOMINAL = pd.DataFrame(lattice(150, 0), columns=LETTERS)
NEW = pd.DataFrame(lattice(40, 1, -3, 13), columns=LETTERS, index=np.arange(40) * 3)
NEW.iloc[7, 1] = np.nan


@functools.cache
def fitted():
    """Return a model that no test may change."""
    return fitted_to(NOMINAL)


def fitted_to(nominal):
    return LPE(4, alpha=0.1).fit(nominal)


def both(model, rows):
    return model.explain(rows, top=3), model.nearest_nominal(rows)


def assert_same(found, right):
    for frame, expected in zip(found, right, strict=True):
        pd.testing.assert_frame_equal(frame, expected, check_exact=True)


SAVED = {
    "plain": {"n_neighbors": 4},
    "mean": {"aggregation": "mean", "scale": "standard", "n_neighbors": 50},
    "both forms": {"scale": "minmax+quantile", "metric_params": {"w": [1, 0.3, 2]}},
    "mahalanobis": {"metric": "mahalanobis", "calibration": "split"},
    "radius": {"graph": "radius", "radius": 0.2, "calibration": "conformal"},
    "geodesic": {"metric": "geodesic", "metric_params": {"n_neighbors": 4}},
}


@pytest.mark.parametrize("name", mostly_full(SAVED, ["mean", "mahalanobis", "geodesic"]))
def test_reasons__of_a_model_that_was_loaded_or_copied(name, tmp_path):
    model = LPE(random_state=0, alpha=0.1, **SAVED[name]).fit(NOMINAL)
    right = both(model, NEW)
    model.save(tmp_path / "model")

    assert_same(both(lpe_dask.load(tmp_path / "model"), NEW), right)
    assert_same(both(pickle.loads(pickle.dumps(model)), NEW), right)


def in_files(frame, ending):
    folder = Path(tempfile.mkdtemp()) / "table"
    folder.mkdir()
    for i, start in enumerate(range(0, len(frame), 15)):
        part = frame.iloc[start : start + 15]
        if ending == "csv":
            part.to_csv(folder / f"{i}.csv", index=False)
        else:
            part.to_parquet(folder / f"{i}.parquet")
    return str(folder)


KINDS = {
    "array": lambda frame: frame.to_numpy(),
    "dask array of unknown lengths": lambda frame: dd.from_pandas(
        frame, npartitions=3
    ).to_dask_array(),
    "nullable": lambda frame: frame.convert_dtypes(),
    "dask frame of other columns": lambda frame: dd.from_pandas(
        frame.assign(z="text")[["c", "z", "a", "b"]], npartitions=3
    ),
    "csv": lambda frame: in_files(frame.assign(z="text")[["c", "z", "a", "b"]], "csv"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_reasons__of_rows_of_any_kind(kind):
    model = fitted()
    X = KINDS[kind](NEW)

    found = both(model, X)

    scored = model.score_samples(X)
    scored = scored.compute() if hasattr(scored, "compute") else scored
    index = getattr(scored, "index", pd.RangeIndex(len(NEW)))
    for frame, right in zip(found, both(model, NEW), strict=True):
        assert frame.index.tolist() == index.repeat(3).tolist()
        pd.testing.assert_frame_equal(
            frame.reset_index(drop=True), right.reset_index(drop=True),
            check_exact=True, check_dtype=False,
        )  # fmt: skip


@pytest.mark.parametrize("kind", ["array", "nullable", "dask array of unknown lengths"])
def test_explain__of_a_model_without_names_has_numbers(kind):
    model = fitted_to(NOMINAL.to_numpy())
    X = KINDS[kind](NEW)

    reasons = model.explain(X)

    assert reasons["column"].dtype == np.int64
    right = fitted().explain(NEW)
    assert reasons["column"].map(dict(enumerate(LETTERS))).tolist() == list(right["column"])
    for name in ("p_value", "share", "typical_share", "value", "nominal_value"):
        np.testing.assert_array_equal(
            reasons[name].astype(float), right[name].astype(float)
        )


WITH_CATEGORIES = {
    "array": lambda frame: frame.to_numpy(object),
    "dask array": lambda frame: da.from_array(frame.to_numpy(object), chunks=(7, 2)),
    "other types": lambda frame: frame.astype(
        {"port": float, "flag": "boolean", "protocol": "category"}
    ),
    "parquet": lambda frame: in_files(frame, "parquet"),
    "csv": lambda frame: in_files(frame, "csv"),
}


@pytest.mark.parametrize("kind", mostly_full(WITH_CATEGORIES, ["other types", "csv"]))
def test_reasons__of_categories_of_any_kind(kind, tmp_path):
    given = WITH_CATEGORIES[kind]
    rows = table(25, 1, protocols=("tcp", "icmp"), ports=(80, 22))
    model = LPE(4, categorical=CATEGORICAL, alpha=0.2).fit(table(90, 0))
    right = both(model, rows)

    found = both(model, given(rows))
    model.save(tmp_path / "model")
    of_loaded = both(lpe_dask.load(tmp_path / "model"), given(rows))

    for some in (found, of_loaded):
        for frame, expected in zip(some, right, strict=True):
            pd.testing.assert_frame_equal(
                frame.reset_index(drop=True), expected.reset_index(drop=True),
                check_exact=True, check_dtype=False,
            )  # fmt: skip


# Labels


INDEXES = {
    "repeated": pd.Index([7, 7, 1, 7]),
    "text": pd.Index(["x", "y", "x", "z"], name="id"),
    "several": pd.MultiIndex.from_tuples(
        [("a", 1), ("a", 2), ("b", 1), ("a", 1)], names=["group", None]
    ),
    "times": pd.date_range("2026-01-01", periods=4, freq="h"),
    "floats": pd.Index([0.5, np.nan, 2.0, np.nan]),
}


@pytest.mark.parametrize("name", INDEXES)
def test_reasons__are_under_the_label_of_their_row(name):
    rows = NEW.iloc[:4].set_axis(INDEXES[name])
    model = fitted()

    reasons, nearest = model.explain(rows, top=2), model.nearest_nominal(rows, n=2)

    for frame in (reasons, nearest):
        pd.testing.assert_index_equal(frame.index, INDEXES[name].repeat(2), exact=True)
    np.testing.assert_array_equal(reasons["p_value"][::2], model.score_samples(rows))


SOME_NAMES = [[1, 2, 3], ["b", 1, "1"]]
ORDERS = [[0, 1, 2], [2, 0, 1]]


@pytest.mark.parametrize(
    ("names", "order"),
    mostly_dealt(SOME_NAMES, ORDERS),
    ids=str,
)
def test_reasons__of_columns_of_any_name(names, order, tmp_path):
    names = pd.Index(names, dtype=object, tupleize_cols=False)
    right = fitted().explain(NEW, top=3)
    model = fitted_to(NOMINAL.set_axis(names, axis=1))
    rows = NEW.set_axis(names, axis=1).iloc[:, order]

    for X in (rows, dd.from_pandas(rows, npartitions=2)):
        reasons = model.explain(X, top=3)

        shown = [names[LETTERS.index(letter)] for letter in right["column"]]
        assert all(a is b or a == b for a, b in zip(reasons["column"], shown, strict=True))
        pd.testing.assert_frame_equal(
            reasons.drop(columns="column"), right.drop(columns="column"), check_exact=True
        )


@pytest.mark.parametrize("scale", [None, "standard", "minmax+quantile"])
def test_usual__is_said_as_users_write_it(scale):
    rng = np.random.default_rng(2)
    nominal = pd.DataFrame(
        {
            "amount": np.arange(1000) * 10.0,
            "items": rng.permutation(np.arange(1000) % 50),
            "is_gift": np.arange(1000) % 4 == 0,
            "errors": (np.arange(1000) == 500) * 2,
            "plan": pd.Series(["a", "b"] * 500).where(np.arange(1000) > 2, "rare"),
            "constant": 7,
        }
    )
    model = LPE(5, scale=scale, categorical=["plan"], calibration="loo").fit(nominal)

    found = model.explain(nominal.iloc[:1], top=6).set_index("column")["usual"]

    assert found.to_dict() == {
        "amount": "90 to 9890, median 4990",
        "items": "0 to 49, median 24",
        "is_gift": "False 75%, True 25%",
        "errors": "0 >99%, 2 <1%",
        "plan": "b 50%, a 50%, rare <1%",
        "constant": "7 100%",
    }


NARROW = {
    (1013.25, 0.05): r"1013\.1\d* to 1013\.[34]\d*, median 1013\.2[45]\d*",
    (0.0, 1.0): r"-2\.\d{1,3} to 2\.\d{1,3}, median -?0\.0\d+",
    (1e6, 3e4): r"9\d{5}(\.\d)? to 10\d{5}, median (9|10)\d{5}(\.\d)?",
    (1767226814.0, 1e5): r"17\d{8} to 17\d{8}, median 17\d{8}",
    (1e-7, 1e-9): r"9\.\d+e-08 to 1\.0\d+e-07, median (9\.\d+e-08|1(\.0\d+)?e-07)",
}


@pytest.mark.parametrize(("law", "text"), NARROW.items())
def test_usual__has_as_many_digits_as_differ(law, text):
    nominal = np.random.default_rng(3).normal(*law, (2000, 1))

    usual = LPE(5).fit(nominal).explain(nominal[:1] + law[1])["usual"].item()

    assert re.fullmatch(text, usual), usual
    low, high = (float(part) for part in usual.split(",")[0].split(" to "))
    assert low < high


def test_usual__of_long_categories_is_shortened():
    kinds = pd.Series(["a" * 500, "b" * 500] * 20)

    frame = pd.DataFrame({"kind": kinds, "x": 1.0})
    found = LPE(5, categorical=["kind"]).fit(frame).explain(frame.iloc[:1])

    usual = found.set_index("column")["usual"]["kind"]
    assert usual == f"{'a' * 39}… 50%, {'b' * 39}… 50%"


def test_values__keep_their_types_beside_others():
    nominal = pd.DataFrame({"x": [0.5, 1.5, 2.5, 9.0] * 5, "n": [1, 2, 3, 2**40 + 1] * 5})

    found = LPE(2).fit(nominal).explain(nominal.iloc[[3]] + 1).set_index("column")

    assert found["value"].to_dict() == {"x": 10.0, "n": 2**40 + 2}
    assert isinstance(found["value"]["n"], int)


def test_categories__of_weight_0_are_no_reasons():
    nominal = pd.DataFrame({"x": np.arange(40.0), "k": ["a", "b"] * 20, "l": "c"})
    model = LPE(3, categorical=["k", "l"], metric_params={"w": [1, 0, 1]}).fit(nominal)

    found = model.explain(pd.DataFrame({"x": [50.0], "k": ["new"], "l": ["new"]}))

    assert found["column"].tolist() == ["x", "l"]


def test_explain__says_whether_a_row_is_spread_over_many_columns():
    rng = np.random.default_rng(8)
    nominal, new = rng.normal(size=(500, 100)), np.full((2, 100), 3.0)
    new[1, 3] = 1000.0

    found = LPE(5).fit(nominal).explain(new, top=2)

    assert found["is_spread"].tolist() == [True, True, False, False]


@pytest.mark.parametrize("method", ["explain", "nearest_nominal"])
def test_reasons__say_that_rows_are_compared_with_themselves(method, caplog):
    model = LPE(2).fit(NOMINAL)

    getattr(model, method)(NOMINAL.iloc[[3, 5]])
    assert "each of these rows is equal to a nominal one" in caplog.text
    caplog.clear()
    getattr(model, method)(NEW)
    getattr(model, method)(rows=np.array([3, 5]))
    assert caplog.text == ""


# How many lines


@pytest.mark.parametrize("top", [1, 2, np.int64(2), 3, 4, 100])
def test_explain__returns_so_many_lines_for_each_row(top):
    model = fitted()

    reasons = model.explain(NEW, top=top)

    n_lines = min(top, 3)
    whole = model.explain(NEW)
    pd.testing.assert_frame_equal(
        reasons, whole[np.tile(np.arange(3) < n_lines, len(NEW))], check_exact=True
    )
    assert list(reasons.columns) == [
        "p_value", "statistic", "column", "value", "usual", "nominal_value", "share",
        "typical_share", "is_spread",
    ]  # fmt: skip


def test_explain__returns_five_lines_if_not_asked_for_more():
    model = LPE(3).fit(np.random.default_rng(0).random((50, 8)))

    assert len(model.explain(np.zeros((2, 8)))) == 10
    assert len(model.nearest_nominal(np.zeros((2, 8)))) == 6


@pytest.mark.parametrize("kind", ["array", "dask array", "frame", "dask frame"])
def test_reasons__of_no_rows_have_no_lines(kind):
    none = NEW.iloc[:0]
    X = none if kind == "frame" else none.to_numpy()
    if kind == "dask array":
        X = da.from_array(X)
    if kind == "dask frame":
        X = dd.from_pandas(none, npartitions=1)

    found, right = both(fitted(), X), both(fitted(), NEW)

    for frame, expected in zip(found, right, strict=True):
        assert len(frame) == 0
        assert list(frame.columns) == list(expected.columns)


# Errors


@pytest.mark.parametrize("count", [0, -1, True, False, 2.5, 2.0, "2", None, np.float64(1)])
@pytest.mark.parametrize(("method", "name"), [("explain", "top"), ("nearest_nominal", "n")])
def test_reasons__of_a_wrong_number_of_lines(method, name, count, at_most_computes):
    model = fitted()

    with (
        at_most_computes(0),
        pytest.raises(ValueError, match=rf"^{name}=.* whole number of at least 1"),
    ):
        getattr(model, method)(NEW, **{name: count})


@pytest.mark.parametrize(
    ("arguments", "most"),
    [({}, 150), ({"calibration": "split"}, 75), ({"calibration_size": 20}, 150)],
)
def test_nearest_nominal__of_more_rows_than_there_are(arguments, most, at_most_computes):
    model = LPE(3, **arguments).fit(NOMINAL)

    with at_most_computes(0), pytest.raises(ValueError, match=rf"n={most + 1} .* {most}"):
        model.nearest_nominal(NEW, n=most + 1)
    assert len(model.nearest_nominal(NEW, n=most)) == most * len(NEW)


@pytest.mark.parametrize("method", ["explain", "nearest_nominal"])
def test_reasons__of_wrong_rows_raise_what_score_samples_does(method, at_most_computes):
    model = fitted()
    cases = [
        (NEW[["a", "b"]], ValueError, "lack the columns"),
        (dd.from_pandas(NEW[["a", "b"]], npartitions=2), ValueError, "lack the columns"),
        (NEW.to_numpy()[:, :2], ValueError, "X has 2 features"),
        (NEW["a"], ValueError, "1D array"),
        (NEW["a"].to_numpy(), ValueError, "1D array"),
        (NEW.assign(b="text"), TypeError, "'b'"),
        (NEW.assign(b="text").to_numpy(object), TypeError, r"not: 1 \("),
        (NEW.assign(b=1j), ValueError, "[Cc]omplex"),
    ]

    for X, error, match in cases:
        with at_most_computes(0):
            with pytest.raises(error, match=match):
                model.score_samples(X)
            with pytest.raises(error, match=match):
                getattr(model, method)(X)
    with pytest.raises(NotFittedError):
        getattr(LPE(), method)(NEW)
    with pytest.raises(FileNotFoundError):
        getattr(model, method)("no such folder")


# Nearest nominal rows of categories: all others are in test_numbering.py


def test_nearest_nominal__of_categories_is_the_definition():
    nominal, rows = table(60, 0), table(10, 1, protocols=("tcp", "new"))
    weights = [0.3, 1.0, 4.0, 0.0, 2.0, 1.0]
    model = LPE(3, categorical=CATEGORICAL, metric_params={"w": weights}).fit(nominal)

    nearest = model.nearest_nominal(rows, n=60)

    right = plain_shares(rows, nominal, weights, None, 1)
    assert nearest["nominal_row"][::60].tolist() == [number for _, number in right]
    statistic = [LPE(k, **_without_k(model)).fit(nominal).statistic(rows) for k in (1, 9)]
    by_rank = nearest["distance"].to_numpy().reshape(10, 60)
    np.testing.assert_array_equal(by_rank[:, [0, 8]].T, statistic)
    numbers = nearest["nominal_row"].to_numpy(int).reshape(10, 60)
    for distances, places in zip(by_rank, numbers, strict=True):
        assert sorted(places) == list(range(60))
        pairs = list(zip(distances, places, strict=True))
        assert pairs == sorted(pairs)


def _without_k(model):
    return {k: v for k, v in model.get_params().items() if k != "n_neighbors"}


# Approximate models, other levels, and graphs


@pytest.fixture
def lists(monkeypatch):
    """Lists of near rows that lead nowhere: an approximate search misses most."""

    def first_rows(points, seed):
        return np.minimum(right_lists(points), 40)

    monkeypatch.setattr(nn_descent, "neighbor_lists", first_rows)
    monkeypatch.setattr(Certificate, "check", lambda certificate: None)


def test_reasons__of_an_approximate_model_are_exact(lists):
    rng = np.random.default_rng(0)
    nominal = rng.standard_normal((3500, 6))
    rows = np.concatenate([rng.standard_normal((30, 6)), rng.standard_normal((30, 6)) * 2])
    arguments = {"n_neighbors": 5, "calibration_size": 300, "random_state": 0, "alpha": 0.1}
    with dask.config.set({"scheduler": "sync"}):
        model, exact = (
            LPE(algorithm=algorithm, **arguments).fit(nominal)
            for algorithm in ("nn_descent", "brute")
        )

        found, right = both(model, rows), both(exact, rows)

    assert model.algorithm_ == "nn_descent"
    np.testing.assert_array_equal(found[0]["p_value"][::3], exact.score_samples(rows))
    assert_same(found, right)


def test_explain__uses_calibration_as_it_is_now():
    model = fitted_to(NOMINAL)
    model.calibration_ = np.array([0.05, 0.1, 0.15])

    p_values = model.explain(NEW)["p_value"][::3]

    np.testing.assert_array_equal(p_values, model.score_samples(NEW))
    assert set(p_values.dropna()) <= {0, 1 / 3, 2 / 3, 1}


class Weighed:
    """A scheduler that notes how large the tasks are that it is given."""

    def __init__(self):
        self.largest = 0

    def __call__(self, graph, keys, **options):
        tasks = dict(graph.__dask_graph__() if is_dask_collection(graph) else graph)
        self.largest = max(self.largest, *map(sizeof, tasks.values()))
        return dask.get(graph, keys, **options)


def test_reasons__put_nothing_large_into_tasks():
    """Neither rows nor their numbers; 2**17 numbers are 1 MiB."""
    rng = np.random.default_rng(0)
    nominal, rows = rng.standard_normal((100, 1)), rng.standard_normal((140_000, 1))
    model = LPE(2, alpha=0.02).fit(nominal)
    weighed = Weighed()

    with dask.config.set(scheduler=weighed):
        model.explain(rows)
        model.nearest_nominal(rows, n=1)

    assert 0 < weighed.largest < 2**20


def test_explain_rows__puts_no_numbers_into_tasks():
    nominal, n_rows = np.arange(60.0)[:, None], 200_000
    model = LPE(2, alpha=0.01).fit(nominal)
    numbers = np.full(n_rows, -1)
    numbers[::3000] = np.arange(67) % 60
    values = pd.DataFrame(nominal[np.maximum(numbers, 0)] + (numbers < 0)[:, None] / 4)
    weighed = Weighed()

    with dask.config.set(scheduler=weighed):
        found = explain_rows(fitted_of(model), values, numbers=numbers)

    assert 0 < weighed.largest < 2**20
    np.testing.assert_array_equal(found.distances, np.where(numbers < 0, 0.25, 1.0))


# Rows that were fitted


OWN = {
    "array": lambda frame: frame.to_numpy(),
    "frame": lambda frame: frame,
    "dask array": lambda frame: da.from_array(frame.to_numpy(), chunks=(40, 2)),
    "dask frame": lambda frame: dd.from_pandas(frame, npartitions=4),
    "parquet": lambda frame: in_files(frame, "parquet"),
    "csv": lambda frame: in_files(frame, "csv"),
}


CALIBRATIONS = ["loo", "split", "conformal"]


@pytest.mark.parametrize(
    ("kind", "calibration"),
    mostly_dealt(OWN, CALIBRATIONS),
)
def test_explain__of_rows_that_were_fitted_leaves_them_out(kind, calibration):
    nominal = NOMINAL.copy()
    nominal.iloc[5, 1] = np.nan
    arguments = {"calibration": calibration, "random_state": 0, "missing": "drop"}
    model = LPE(20, scale="minmax", **arguments).fit(OWN[kind](nominal))
    places = [3, 149, 3, 20, 5]

    reasons = model.explain(rows=places)

    assert reasons.index.tolist() == np.repeat(places, 3).tolist()
    p_values, statistic = model.p_values_, model.statistic_
    if is_dask_collection(p_values):
        p_values, statistic = dask.compute(p_values, statistic)
    np.testing.assert_array_equal(reasons["p_value"][::3], np.asarray(p_values)[places])
    np.testing.assert_array_equal(reasons["statistic"][::3], np.asarray(statistic)[places])
    columns = LETTERS if kind != "array" and kind != "dask array" else range(3)
    values = by_row(reasons, "value", columns)
    np.testing.assert_array_equal(values, nominal.iloc[places])
    kept = nominal.dropna()
    numbers = fitted_of(model).division.reference
    numbers = np.arange(149) if numbers is None else numbers
    searched = kept.iloc[numbers]
    own = [
        searched.index.get_loc(place) if place in searched.index else None
        for place in places
    ]
    plain = Plain(searched.to_numpy(), "minmax")
    if calibration == "loo":
        right = known(plain.shares(nominal.to_numpy()[places[:4]], 20, own), 3)
        shares = by_row(reasons, "share", columns)
        np.testing.assert_allclose(shares[:4], right, rtol=0, atol=1e-12)
        assert np.isnan(shares[4]).all()
    nearest = model.nearest_nominal(rows=places[:4], n=1)
    assert (nearest["nominal_row"] != places[:4]).all()


def test_explain__of_rows_that_were_fitted_has_their_types():
    nominal = table(60, 0)[["x", "flag", "port"]].assign(n=np.arange(60))
    model = LPE(3, categorical=["port"]).fit(nominal)

    lines = model.explain(rows=[7]).set_index("column")

    for name in ("value", "nominal_value"):
        types = {column: type(lines.loc[column, name]) for column in nominal}
        assert types == {"x": float, "flag": bool, "port": int, "n": int}
    assert lines["value"].to_dict() == nominal.iloc[7].to_dict()


@pytest.mark.parametrize("rows", [[], [-1], [150], [0.5], [[1]], ["a"], [True], 3, "a"])
def test_explain__of_places_that_are_none(rows, at_most_computes):
    model = fitted()

    for method in (model.explain, model.nearest_nominal):
        with at_most_computes(0), pytest.raises(ValueError, match=r"rows=.* 0 to 149"):
            method(rows=rows)


def test_explain__of_no_rows_or_two_kinds(tmp_path):
    model = fitted()
    model.save(tmp_path / "model")

    for method in ("explain", "nearest_nominal"):
        with pytest.raises(ValueError, match=r"there are no rows. Give .* \(rows=\)"):
            getattr(model, method)()
        with pytest.raises(ValueError, match="both given"):
            getattr(model, method)(NEW, rows=[1])
        with pytest.raises(ValueError, match="loaded or copied"):
            getattr(lpe_dask.load(tmp_path / "model"), method)(rows=[1])
    with pytest.raises(ValueError, match="149 nominal rows"):
        model.nearest_nominal(rows=[1], n=150)


def test_explain__of_nominal_rows_that_have_changed_since():
    rows = NOMINAL.to_numpy(copy=True)
    model = fitted_to(rows)
    rows[7, 1] += 1

    with pytest.raises(ValueError, match="changed"):
        model.explain(rows=[7])


def test_explain_rows__takes_what_is_known():
    model = fitted()
    known_already = model.score_samples(NEW).to_numpy(), model.statistic(NEW).to_numpy()

    found = explain_rows(fitted_of(model), NEW, known_already)

    right = model.explain(NEW, top=3)
    pd.testing.assert_frame_equal(found.table(3), right, check_exact=True)
