"""Models of tables with categories, against the definitions: to the last bit."""

import math
import pickle

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import definitions
import lpe_dask
from lpe_dask import LPE
from searching import EXACT

LEVELS = {"text": ["a", "b", "", "1"], "flag": [False, True], "whole": [0, 7, -3]}


@st.composite
def mixed_tables(draw, min_rows, max_rows):
    """Columns of numbers on a coarse grid among columns of categories."""
    n_rows = draw(st.integers(min_rows, max_rows))
    rng = np.random.default_rng(draw(st.integers(0, 9999)))
    columns = {"x": rng.integers(-3, 4, n_rows) * 0.1, "y": rng.integers(0, 3, n_rows)}
    for name, levels in LEVELS.items():
        columns[name] = np.array(levels)[rng.integers(0, len(levels), n_rows)]
    names = draw(st.permutations([*columns]))
    n_columns = draw(st.integers(1, 5))
    return pd.DataFrame({name: columns[name] for name in names[:n_columns]})


def categories_of(frame):
    return [name for name in frame.columns if name in LEVELS]


def expected_statistic(new, reference, learned_from, model, own):
    """Return the statistic by the definitions, of the values as they came."""
    categorical = categories_of(reference)
    numbers = [name for name in reference.columns if name not in categorical]
    weights = dict(zip(reference.columns, model.metric_params["w"], strict=True))

    def rows_of(frame):
        of_numbers = np.zeros((len(frame), 0))
        if numbers:
            scaled = definitions.scaled(
                frame[numbers].to_numpy(float), learned_from[numbers].to_numpy(float),
                model.scale,
            )  # fmt: skip
            w = [weights[name] for name in numbers]
            forms = 2 if model.scale == "minmax+quantile" else 1
            of_numbers = definitions.weighted(scaled, w * forms)
        codes = frame[categorical].to_numpy(object)
        return [[*a, *b] for a, b in zip(of_numbers, codes, strict=True)]

    radii = {"kth": definitions.knn_radii, "mean": definitions.mean_radii}
    return radii[model.aggregation](
        rows_of(new), rows_of(reference), model.n_neighbors, own,
        [weights[name] for name in categorical],
    )  # fmt: skip


@pytest.mark.parametrize("algorithm", EXACT)
@given(
    nominal=mixed_tables(4, 12),
    data=st.data(),
    scale=st.sampled_from([None, "minmax", "standard", "quantile", "minmax+quantile"]),
    aggregation=st.sampled_from(["kth", "mean"]),
    n_neighbors=st.integers(1, 3),
    n_partitions=st.integers(1, 3),
)
def test_score_samples__equals_the_definition_for_categories(
    algorithm, nominal, data, scale, aggregation, n_neighbors, n_partitions
):
    w = data.draw(st.lists(st.sampled_from([1.0, 0.25, 0.1, 0.0]), min_size=5, max_size=5))
    model = LPE(
        n_neighbors, aggregation=aggregation, scale=scale, algorithm=algorithm,
        categorical=categories_of(nominal) or None, calibration="loo", alpha=0.3,
        metric_params={"w": w[: nominal.shape[1]]},
    )  # fmt: skip
    new = nominal.sample(frac=1, random_state=0).reset_index(drop=True)
    for name in categories_of(nominal):
        new.loc[0, name] = {"text": "unseen", "flag": True, "whole": 99}[name]

    model.fit(dd.from_pandas(nominal, npartitions=n_partitions))

    radii = expected_statistic(nominal, nominal, nominal, model, own=True)
    expected = expected_statistic(new, nominal, nominal, model, own=False)
    np.testing.assert_array_equal(model.calibration_, np.sort(radii))
    np.testing.assert_array_equal(model.statistic(new), expected)
    np.testing.assert_array_equal(model.statistic_.compute(), radii)
    p_values = [definitions.knn_p_value(value, radii) for value in expected]
    lazily = model.score_samples(dd.from_pandas(new, npartitions=n_partitions))
    np.testing.assert_array_equal(lazily.compute(scheduler="sync"), p_values)
    is_flagged = model.predict(new) == -1
    np.testing.assert_array_equal(is_flagged, np.array(p_values) <= 0.3)


@pytest.mark.parametrize("calibration", ["split", "conformal"])
def test_fit__measures_categories_for_each_calibration(calibration):
    """A level of calibration rows alone differs from all that they are measured among."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.random(300), "c": rng.permutation(np.arange(300) // 2)})
    options = {"categorical": ["c"], "scale": "minmax", "n_neighbors": 3}
    model = LPE(calibration=calibration, random_state=0, **options).fit(frame)
    as_text = frame.assign(c=frame.c.map("level {}".format))

    other = LPE(calibration=calibration, random_state=0, **options).fit(as_text)

    np.testing.assert_array_equal(other.calibration_, model.calibration_)
    assert (model.calibration_ > 1).any()
    assert other.check_calibration().holds in (True, False)


def test_load__gives_the_same_bits_for_categories(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "flag": rng.random(500) < 0.3,
            "x": rng.random(500),
            "t": rng.choice([*"abc"], 500),
        }
    )
    model = LPE(5, categorical="auto", scale="quantile", calibration="loo").fit(frame)
    new = frame.assign(t=frame.t.replace("a", "z"))

    model.save(tmp_path / "model")
    loaded = lpe_dask.load(tmp_path / "model")

    for other in (loaded, pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(other.statistic(new), model.statistic(new))
        np.testing.assert_array_equal(other.p_values_, model.p_values_)
    assert math.isclose(model.statistic(new)[frame.t == "a"].min() // 1, 1)
