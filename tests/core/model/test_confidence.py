"""Decisions that keep alpha for the nominal rows at hand, with a probability."""

import logging

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import lpe_dask
from lpe_dask import LPE
from lpe_dask.model.validity import confident_places, rows_for_confidence

MODELS = [
    {},
    {"scale": "standard", "aggregation": "mean"},
    {"graph": "radius", "radius": 1.0},
    {"calibration": "conformal", "calibration_size": 700},
    {"anomaly_log_density": lambda rows: np.zeros(len(rows))},
]


def rows(n, seed):
    return np.random.default_rng(seed).standard_normal((n, 2)).round(1)


def largest_places(alpha, m, confidence):
    """By definition: try every k."""
    ks = np.arange(1, m + 1)
    is_sure = stats.beta.ppf(confidence, ks, m + 1 - ks) <= alpha
    return int(ks[is_sure].max(initial=0))


@given(
    alpha=st.sampled_from([0.001, 0.01, 0.05, 0.1, 0.37, 0.9]),
    m=st.integers(1, 3000),
    confidence=st.sampled_from([0.51, 0.8, 0.9, 0.95, 0.999]),
)
def test_confident_places__is_the_largest_k_of_which_the_rate_is_surely_at_most_alpha(
    alpha, m, confidence
):
    expected = largest_places(alpha, m, confidence)

    assert confident_places(alpha, m, confidence) == expected
    sizes = np.array([0, m, 1])
    found = confident_places(alpha, sizes, confidence).tolist()
    assert found == [0, expected, largest_places(alpha, 1, confidence)]


@pytest.mark.parametrize("alpha", [0.001, 0.01, 0.05, 0.3])
@pytest.mark.parametrize("confidence", [0.6, 0.9, 0.95, 0.99])
def test_rows_for_confidence__are_the_fewest_with_which_a_row_can_be_flagged(
    alpha, confidence
):
    least = rows_for_confidence(alpha, confidence)

    assert stats.beta.ppf(confidence, 1, least) <= alpha
    assert least == 1 or stats.beta.ppf(confidence, 1, least - 1) > alpha


@pytest.mark.parametrize("arguments", MODELS, ids=lambda of: "-".join(of) or "plain")
def test_predict__flags_k_of_the_places(arguments):
    nominal, new = rows(1500, 0), rows(3000, 1) * 1.3
    model = LPE(alpha=0.05, confidence=0.9, random_state=0, **arguments).fit(nominal)
    m = len(model.calibration_)
    k = largest_places(0.05, m, 0.9)

    is_flagged = model.score_samples(new) <= k / (m + 1)

    assert model.calibration_kind_ == "conformal"
    assert np.nextafter(k / (m + 1), 1) == model.offset_ < 0.05
    assert 0 < is_flagged.sum() < (model.score_samples(new) <= 0.05).sum()
    np.testing.assert_array_equal(model.predict(new) == -1, is_flagged)
    np.testing.assert_array_equal(model.decision_function(new) < 0, is_flagged)
    np.testing.assert_array_equal(model.score_frame(new)["is_anomaly"], is_flagged)
    lazy = model.predict(da.from_array(new, chunks=(700, 2)))
    np.testing.assert_array_equal(lazy.compute() == -1, is_flagged)
    own = model.p_values_ < model.offset_
    np.testing.assert_array_equal(model.fit_predict(nominal) == -1, own)


@pytest.mark.filterwarnings("ignore:.*no p-value:UserWarning")
def test_groups__have_a_k_each():
    rng = np.random.default_rng(0)

    def table(n):
        frame = pd.DataFrame(rng.standard_normal((n, 2)), columns=["x", "y"])
        sites = rng.choice(["a", "b", "c", "d"], n, p=[0.6, 0.3, 0.09, 0.01])
        return frame.assign(site=sites)

    nominal, new = table(3000), table(2000)
    model = LPE(by=["site"], alpha=0.05, confidence=0.9, random_state=0).fit(nominal)
    groups = model.groups_.set_index("site")
    new.loc[0, "site"] = "unknown"

    m = groups["calibration_rows"].drop("d")
    places = [largest_places(0.05, size, 0.9) for size in m]
    assert groups["flagged_places"].drop("d").tolist() == places
    assert len(set(places)) == 3
    assert groups.loc["d", "why_small"] == (
        "too few calibration rows for alpha and confidence, which take 45"
    )
    assert pd.isna(groups.loc["d", "flagged_places"])
    rates = groups["largest_false_alarm_rate"].drop("d")
    np.testing.assert_array_equal(rates, np.array(places) / (m + 1))

    p_values = model.score_samples(new)
    is_flagged = p_values < new["site"].map(groups["offset"])
    assert set(new["site"][is_flagged]) == {"a", "b", "c"}
    pd.testing.assert_series_equal(model.predict(new) == -1, is_flagged, check_names=False)
    frame = model.score_frame(new)
    assert frame["is_anomaly"].fillna(value=False).tolist() == is_flagged.tolist()
    lazy = dd.from_pandas(new, npartitions=3)
    assert (model.predict(lazy).compute() == -1).tolist() == is_flagged.tolist()
    margins = model.decision_function(lazy).compute()
    assert (margins < 0).tolist() == is_flagged.tolist()
    assert margins.isna().tolist() == p_values.isna().tolist()
    lazy_frame = model.score_frame(lazy).compute()
    assert lazy_frame["is_anomaly"].fillna(value=False).tolist() == is_flagged.tolist()

    own = model.p_values_ < nominal["site"].map(groups["offset"])
    assert own.any()
    assert (model.fit_predict(nominal) == -1).tolist() == own.tolist()
    arguments = {"by": ["site"], "alpha": 0.05, "confidence": 0.9, "random_state": 0}
    scored = lpe_dask.score(nominal, output="frame", **arguments)
    assert scored["is_anomaly"].fillna(value=False).tolist() == own.tolist()


def test_a_saved_model__decides_as_before(tmp_path):
    nominal, new = rows(1000, 0), rows(1000, 1)
    frame = pd.DataFrame(nominal, columns=["x", "y"]).assign(site=np.arange(1000) % 2)
    arrays = (LPE(confidence=0.95, random_state=0), nominal, new)
    groups = (LPE(confidence=0.95, by=["site"], random_state=0), frame, frame)
    for name, (model, fitted, scored) in {"plain": arrays, "groups": groups}.items():
        model.fit(fitted).save(tmp_path / name)
        loaded = lpe_dask.load(tmp_path / name)

        assert loaded.confidence == 0.95
        np.testing.assert_array_equal(loaded.predict(scored), model.predict(scored))
        assert (loaded.predict(scored) == -1).any()


def test_an_offset_that_is_set__decides_instead():
    model = LPE(confidence=0.95, random_state=0).fit(rows(1000, 0))
    new, p_values = rows(500, 1), model.score_samples(rows(500, 1))

    model.offset_ = 0.3

    np.testing.assert_array_equal(model.predict(new) == -1, p_values < 0.3)


def test_drift__counts_rows_up_to_alpha():
    model = LPE(alpha=0.05, confidence=0.95, random_state=0).fit(rows(2000, 0))
    few = LPE(alpha=0.05, confidence=0.95, random_state=0).fit(rows(60, 0))
    p_values = model.score_samples(rows(2000, 1))

    of_few = few.score_samples(rows(2000, 1))

    assert lpe_dask.drift(p_values, model).state["alpha"] == 0.05
    assert lpe_dask.drift(of_few, few).state["alpha"] == 0.05


def test_too_few_rows__is_said_with_the_rows_that_it_takes(caplog):
    with caplog.at_level(logging.WARNING, "lpe_dask"):
        model = LPE(alpha=0.011, confidence=0.95, random_state=0).fit(rows(400, 0))

    needed = rows_for_confidence(0.011, 0.95)
    assert caplog.messages == [
        f"no row can be flagged at alpha=0.011 with confidence=0.95: that takes {needed} "
        f"calibration rows, and of 400 nominal rows 200 are such. Give more nominal rows "
        f"({2 * needed}, as half of them are calibration rows by default) or a "
        f"calibration_size of at least {needed}, raise alpha, or lower confidence."
    ]
    assert model.offset_ == 0
    assert not (model.predict(rows(500, 1) * 9) == -1).any()
    remedy = LPE(alpha=0.011, confidence=0.95, calibration="conformal", random_state=0)
    for more in ({"calibration_size": needed}, {}):
        n_rows = 400 if more else 2 * needed
        cured = remedy.set_params(calibration_size=None).set_params(**more)
        assert (cured.fit(rows(n_rows, 0)).predict(rows(500, 1) * 9) == -1).any()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"confidence": 0.5}, "confidence=0.5 must be a number between 0.5 and 1"),
        ({"confidence": 1}, "confidence=1 must be"),
        ({"confidence": "0.95"}, "confidence='0.95' must be"),
        ({"confidence": True}, "confidence=True must be"),
        ({"calibration": "loo"}, "does not go with calibration='loo'"),
        ({"calibration": "split"}, "does not go with calibration='split'"),
        ({"by": ["x"], "own": ["scale", "neighbors"]}, r"does not go with own=\['scale'"),
        ({"by": ["x"], "small_groups": "pool"}, "does not go with small_groups='pool'"),
        ({"by": ["x"], "alpha": 0.001}, "which take 2995: 2"),
    ],
)
def test_what_cannot_be_promised__is_refused(arguments, text):
    table = pd.DataFrame({"x": [1, 2] * 50, "y": np.arange(100.0)})
    given = {"confidence": 0.95, "scale": "standard"} | arguments

    with pytest.raises(ValueError, match=text):
        LPE(**given).fit(table)


def test_auto__stays_as_it_is_without_a_confidence():
    nominal = rows(500, 0)
    assert LPE().fit(nominal).calibration_kind_ == "loo"
    assert LPE(confidence=0.9).fit(nominal).calibration_kind_ == "conformal"
