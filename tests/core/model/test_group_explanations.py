"""Reasons and nearest rows of a model with groups are those of a model of each group."""

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import lpe_dask
from choosing import dealt, mostly_full
from lpe_dask import LPE
from lpe_dask.search import Preparation, attribution
from lpe_dask.search import reference as references


@pytest.fixture(autouse=True)
def _quickly():
    with dask.config.set(scheduler="sync"):
        yield


ALL = ("scale", "neighbors", "calibration")


def table(n_rows, seed, n_groups=6):
    """Groups of unequal sizes, each with another place and scale; columns that tie."""
    rng = np.random.default_rng(seed)
    groups = np.minimum(rng.integers(0, n_groups, n_rows), rng.integers(0, 9, n_rows))
    columns = {
        "x": rng.integers(0, 9, n_rows) / 2 * (1 + groups) + 1000 * groups,
        "site": np.array(list("abcdefghi"))[groups],
        "y": rng.integers(0, 5, n_rows) / 4,
        "kind": rng.integers(0, 3, n_rows),
        "hour": rng.integers(0, 2, n_rows),
    }
    return pd.DataFrame(columns)


def numbered_table(first, sizes):
    """Two columns, and groups of these sizes, whose values are successive numbers."""
    rows = np.random.default_rng(0).integers(0, 9, (sum(sizes), 2)) * 0.5
    sites = np.repeat(first + np.arange(len(sizes)), sizes)
    return pd.DataFrame(rows, columns=["x", "y"]).assign(site=sites)


def without_groups(arguments):
    return {k: v for k, v in arguments.items() if k not in ("by", "own", "small_groups")}


def of_groups(rows, by):
    """The labels and the measured columns of the rows of each group."""
    for key, of_group in rows.groupby(by):
        yield key, of_group.index, of_group.drop(columns=by)


def chosen(rows, by, key):
    return rows[(rows[by] == list(key)).all(axis=1)].drop(columns=by)


CASES = {
    "plain": {"scale": None},
    "standard": {"scale": "standard", "aggregation": "mean"},
    "both forms": {"scale": "minmax+quantile"},
    "quantile": {"scale": "quantile"},
    "covariance": {"metric": "mahalanobis", "scale": "standard"},
    "variances": {"metric": "seuclidean", "n_neighbors": 3},
    "radius": {"graph": "radius", "radius": 1.5},
    "categories": {"scale": "standard", "categorical": ["kind"]},
    "gaps": {"scale": "standard", "categorical": ["kind"], "missing": "measure"},
    "weights": {"scale": "minmax", "metric_params": {"w": [1, 0, 2]}},
}
CALIBRATIONS = ("loo", "split", "conformal")


@pytest.mark.parametrize(
    ("case", "calibration"),
    mostly_full(
        [(case, kind) for case in CASES for kind in CALIBRATIONS],
        dealt(CASES, CALIBRATIONS),
    ),
)
def test_explain__is_that_of_a_model_of_the_group(case, calibration):
    """All columns of it, bit for bit, of new rows and of those that were fitted."""
    by = ["site", "hour"]
    arguments = {"by": by, "calibration": calibration, "alpha": 0.1, "random_state": 3}
    arguments |= CASES[case]
    nominal, new = table(400, 0), table(40, 1)
    if case == "gaps":
        nominal.loc[::7, "y"] = np.nan
        new.loc[::5, "kind"] = np.nan
    model = LPE(**arguments).fit(nominal)

    found, nearest = model.explain(new), model.nearest_nominal(new)
    places = list(range(0, 400, 9))
    own, own_nearest = model.explain(rows=places), model.nearest_nominal(rows=places)

    n_compared = 0
    for key, index, rows in of_groups(nominal, by):
        is_small = (model.groups_[by] == list(key)).all(axis=1)
        if model.groups_[is_small]["why_small"].iloc[0]:
            continue
        alone, of_new = LPE(**without_groups(arguments)).fit(rows), chosen(new, by, key)
        labels = index.to_numpy()
        if len(of_new):
            check_same(found.loc[of_new.index], alone.explain(of_new))
            right = alone.nearest_nominal(of_new)
            check_same(nearest.loc[of_new.index], in_input(right, labels))
            n_compared += len(of_new)
        mine = [place for place in places if place in index]
        if mine:
            which = np.searchsorted(labels, mine).tolist()
            right = alone.explain(rows=which)
            check_same(own.loc[mine], right.set_axis(labels[right.index], axis=0))
            right = in_input(alone.nearest_nominal(rows=which), labels)
            right = right.set_axis(labels[right.index], axis=0)
            check_same(own_nearest.loc[mine], right)
    assert n_compared > 20


def in_input(nearest, labels):
    """The places that a model of a group gives, in the rows of all groups."""
    places = [labels[place] for place in nearest["nominal_row"]]
    return nearest.assign(nominal_row=pd.array(places, "Int64"))


def check_same(found, right):
    pd.testing.assert_frame_equal(found, right, check_exact=True)


def test_typical__is_of_a_sample_of_the_group(monkeypatch):
    """Drawn as a model of the group draws it, for a few groups at a time."""
    monkeypatch.setattr(references, "TYPICAL_ROWS", 8)
    monkeypatch.setattr(references, "USUAL_ROWS", 20)
    monkeypatch.setattr(attribution, "GROUPS_AT_ONCE", 2)
    nominal, new = table(500, 2).drop(columns="hour"), table(60, 3).drop(columns="hour")
    model = LPE(by=["site"], scale="standard", calibration="loo").fit(nominal)

    first = model.explain(new.iloc[:9])  # what is known of their groups is kept
    found = model.explain(new)

    check_same(found.loc[:8], first)
    for key, _, rows in of_groups(nominal, ["site"]):
        of_new = chosen(new, ["site"], key)
        if len(of_new) and len(rows) >= 20:
            alone = LPE(scale="standard", calibration="loo").fit(rows)
            check_same(found.loc[of_new.index], alone.explain(of_new))


@pytest.mark.parametrize("kind", ["array", "array of objects", "dask array", "dask frame"])
def test_explain__of_all_kinds_of_tables(kind):
    """Columns of an array have numbers, which are those of the columns that are left."""
    nominal, new = table(300, 4), table(20, 5)
    if kind != "dask frame":
        site = {c: i for i, c in enumerate("abcdefghi")}
        by = nominal["site"] if kind == "array of objects" else nominal["site"].map(site)
        nominal["site"] = by
        new["site"] = new["site"] if kind == "array of objects" else new["site"].map(site)
    right = LPE(by=["site"], scale="standard").fit(nominal)
    as_given = {
        "array": np.asarray,
        "array of objects": lambda frame: frame.to_numpy(object),
        "dask array": lambda frame: da.from_array(frame.to_numpy(), chunks=(70, 5)),
        "dask frame": lambda frame: dd.from_pandas(frame, npartitions=3),
    }[kind]
    named = kind == "dask frame"
    model = LPE(by=["site"] if named else [1], scale="standard").fit(as_given(nominal))
    columns = {c: c if named else i for i, c in enumerate(["x", "y", "kind", "hour"])}

    for given, own in (((as_given(new),), (new,)), ((), ())):
        rows = {} if given else {"rows": [0, 7, 299]}
        found, expected = model.explain(*given, **rows), right.explain(*own, **rows)
        expected["column"] = expected["column"].map(columns)
        numbers = ["p_value", "statistic", "share", "typical_share", "is_spread", "column"]
        check_same(found[numbers], expected[numbers])
        for name in ("value", "nominal_value"):
            np.testing.assert_array_equal(
                found[name].astype(float), expected[name].astype(float)
            )
        check_same(
            model.nearest_nominal(*given, **rows), right.nearest_nominal(*own, **rows)
        )


@pytest.mark.parametrize("own", [ALL, ("neighbors",), ("calibration",)])
def test_explain__of_rows_without_a_p_value(own):
    """It says why in the place of what is usual, where a row has no others of its group."""
    nominal = table(300, 6).drop(columns="hour")
    nominal.loc[[3, 200], "site"] = "few"
    new = nominal.iloc[[0, 0, 0, 3, 0]].reset_index(drop=True)
    new.loc[1, "site"], new.loc[2, "site"] = "never seen", None
    new["x"] += [0.25, 0.25, 0.25, 0.25, np.nan]
    model = LPE(by=["site"], own=own, missing="drop", n_neighbors=2).fit(nominal)
    status = model.status(new).tolist()
    assert status == [
        "ok", "unknown group", "no group", "small group", "missing value"
    ]  # fmt: skip

    found, nearest = model.explain(new), model.nearest_nominal(new)

    p_values = found["p_value"].to_numpy().reshape(5, 3)
    np.testing.assert_array_equal(p_values, np.tile(model.score_samples(new), (3, 1)).T)
    usual = found["usual"].to_numpy().reshape(5, 3).tolist()
    has_none = "neighbors" in own
    assert [usual[i] == [status[i]] * 3 for i in (1, 2, 3)] == [has_none] * 3
    assert sorted(usual[4]) == sorted(usual[0])
    assert found.loc[1:3, "typical_share"].isna().all() == has_none
    assert found.loc[[2, 4], "share"].isna().all()
    assert found.loc[[1, 3], "share"].isna().all() == has_none
    assert set(found["column"]) == {"x", "y", "kind"}
    assert nearest.loc[1:, ["distance", "nominal_row"]].isna().all(axis=None)
    assert nearest.loc[0].notna().all(axis=None)


def test_is_weighted__tells_gaps_from_the_code_of_the_group():
    """In prepared rows gaps, here without weight, are between categories and the group."""
    weights = np.array([1.0, 1.0, 0.0, 1.0])  # a number, a category, a gap, the group
    prepared = Preparation(
        categorical=(1, 2), weights=weights, fill=np.zeros(1), separates=True
    )

    assert prepared.is_weighted(3).tolist() == [True, True, True]
    assert prepared.group_codes(np.array([[0.5, 7.0, 1.0, 4.0]])).tolist() == [4.0]


def test_explain__of_rows_that_are_scaled_by_their_groups():
    """As of the rows of a table that is scaled before."""
    rng = np.random.default_rng(0)
    numbers = rng.standard_normal((90, 3)) * [1, 10, 100]
    frame = pd.DataFrame(numbers, columns=["x", "y", "z"]).assign(site=np.arange(90) % 3)
    frame.loc[frame["site"] == 1, "x"] *= 1000
    by_site = frame.groupby("site")[["x", "y", "z"]]
    scaled = (frame[["x", "y", "z"]] - by_site.transform("mean")) / by_site.transform(
        "std", ddof=0
    )
    given = {"n_neighbors": 3, "calibration": "loo", "metric_params": {"w": [1, 2, 0.5]}}
    model = LPE(by=["site"], own=("scale", "calibration"), scale="standard", **given)
    plain = LPE(**given).fit(scaled)

    found = model.fit(frame).explain(rows=[4, 7, 80], top=3)

    expected = plain.explain(rows=[4, 7, 80], top=3)
    assert found["column"].tolist() == expected["column"].tolist()
    np.testing.assert_allclose(
        found["share"].astype(float), expected["share"].astype(float), rtol=1e-9
    )
    nearest = model.nearest_nominal(rows=[4, 7, 80], n=1)["nominal_row"]
    places = nearest.astype(int).repeat(3).to_numpy()
    values = [frame[c].iloc[p] for c, p in zip(found["column"], places, strict=True)]
    np.testing.assert_allclose(found["nominal_value"].astype(float), values, rtol=1e-9)


def test_explain__of_fitted_rows_some_of_which_have_no_group():
    """Groups whose numbers no float holds stay what they are."""
    frame = numbered_table(2**53 + 1, [20, 20])
    frame["site"] = frame["site"].astype("Int64")
    frame.loc[[3, 30], "site"] = None
    model = LPE(1, by=["site"], calibration="loo", alpha=0.1).fit(frame)
    rows = [2, 3, 25]

    explained = model.explain(rows=rows, top=2)
    nearest = model.nearest_nominal(rows=rows, n=1)

    known = frame[frame["site"].notna()]
    apart = LPE(1, by=["site"], calibration="loo", alpha=0.1).fit(known)
    places = known.index.get_indexer([2, 25])
    expected = apart.explain(rows=places, top=2)
    np.testing.assert_array_equal(explained["column"][[2, 25]], expected["column"])
    assert nearest["nominal_row"][[2, 25]].notna().all()
    assert pd.isna(nearest["nominal_row"][3])


@pytest.mark.parametrize(
    ("calibration", "most"), [("loo", 41), ("split", 20), ("conformal", 20)]
)
def test_nearest_nominal__is_of_at_most_the_rows_of_the_largest_group(
    calibration, most, tmp_path
):
    """Of these it is measured among; of a small group there are none."""
    frame = numbered_table(0, [30, 41, 60])
    frame.loc[frame["site"] == 2, "y"] = 3.0  # no covariance can be learned
    given = {"calibration": calibration, "metric": "mahalanobis", "random_state": 0}
    model = LPE(1, by=["site"], alpha=0.1, **given).fit(frame)
    assert (model.groups_["why_small"] != "").tolist() == [False, False, True]
    model.save(tmp_path / "model")
    new = frame[frame["site"] == 1].head(2).add([0.25, 0.25, 0])

    for of in (model, lpe_dask.load(tmp_path / "model")):
        found = of.nearest_nominal(new, n=most)
        with pytest.raises(ValueError, match=f"more than the {most} nominal rows of the l"):
            of.nearest_nominal(new, n=most + 1)

        assert np.isfinite(found["distance"]).all()


@pytest.mark.parametrize("rows", [None, [0, 3, 40, 41]])
def test_explain__of_pooled_rows_is_by_the_model_of_all_rows(rows):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.integers(0, 9, (60, 3)) * 0.5, columns=["x", "y", "z"])
    sites = np.repeat(["a", "b", "c"], [25, 32, 3])
    frame = frame.assign(site=rng.permutation(sites))
    frame.loc[[3, 40], "site"] = "c"
    new = frame.head(8).assign(x=lambda of: of["x"] + 0.25)
    new.loc[[1, 2], "site"] = ["d", None]
    given = {"n_neighbors": 3, "calibration": "loo", "alpha": 0.1, "scale": "standard"}
    pooled = LPE(by=["site"], small_groups="pool", **given).fit(frame)
    apart, plain = (
        LPE(by=["site"], **given).fit(frame),
        LPE(**given).fit(frame[["x", "y", "z"]]),
    )
    status = pooled.status(new if rows is None else frame.iloc[rows])
    is_pooled = status.isin(["small group", "unknown group"]).to_numpy()
    assert is_pooled.any()

    def found(model, method, **of):
        X = new[["x", "y", "z"]] if model is plain else new
        of |= {"rows": rows} if rows else {"X": X}
        return getattr(model, method)(**of)

    for method, of, n in (("explain", {"top": 3}, 3), ("nearest_nominal", {"n": 2}, 2)):
        which = np.repeat(is_pooled, n)
        actual = found(pooled, method, **of)
        expected = found(plain, method, **of)
        pd.testing.assert_frame_equal(actual[which], expected[which], check_exact=True)
        expected = found(apart, method, **of)
        pd.testing.assert_frame_equal(actual[~which], expected[~which], check_exact=True)
