"""Pairs of columns: which rows and level sets they show, and what is refused."""

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from sklearn.exceptions import NotFittedError

import lpe_dask
from drawing import lines
from lpe_dask import LPE

SIZES = ["speed", "load", "heat"]
ARGUMENTS = {"n_neighbors": 4, "alpha": 0.1, "scale": "standard", "calibration": "loo"}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    sizes = pd.DataFrame(rng.standard_normal((80, 3)), columns=SIZES)
    return sizes.assign(kind=[*"ab"] * 40)


@pytest.fixture(scope="module")
def model(rows):
    return LPE(categorical=["kind"], **ARGUMENTS).fit(rows)


@pytest.fixture(scope="module")
def new(rows):
    return pd.concat([rows[:20], rows[:3].assign(heat=9.0)])


def drawn(model, nominal, X, **options):
    return lpe_dask.plot_pairs(model, nominal, X, resolution=12, figure=Figure(), **options)


@pytest.mark.parametrize("kind", [lambda rows: rows, lambda rows: dd.from_pandas(rows, 3)])
def test_plot_pairs__marks_the_rows_that_the_whole_model_flags(kind, model, rows, new):
    axes = drawn(model, kind(rows), kind(new), columns=SIZES)

    flagged = new[(model.predict(new) == -1).to_numpy()]
    assert len(flagged) == 3  # by their heat alone
    for j, i in [(1, 0), (2, 0), (2, 1)]:
        cross = lines(axes[j, i])["flagged (3 rows)"]
        expected = flagged[[SIZES[i], SIZES[j]]].to_numpy()
        assert cross.get_xydata().tolist() == expected.tolist()
        assert cross.get_marker() != lines(axes[j, i])["nominal (20 rows)"].get_marker()


def test_plot_pairs__level_set_is_that_of_a_model_of_the_pair(model, rows, new):
    axes = drawn(model, rows, new, columns=["heat", "speed"])

    of_pair = LPE(**ARGUMENTS).fit(rows[["heat", "speed"]])
    expected = lpe_dask.plot_level_set(
        of_pair, new[["heat", "speed"]], resolution=12, ax=Figure().subplots()
    )
    for found, other in zip(axes[1, 0].collections, expected.collections, strict=True):
        assert found.levels.tolist() == other.levels.tolist()
        for path, same in zip(found.get_paths(), other.get_paths(), strict=True):
            np.testing.assert_allclose(path.vertices, same.vertices)


def test_plot_pairs__fills_the_lower_triangle_and_the_diagonal(model, rows, new):
    axes = drawn(model, rows, new, columns=SIZES)

    assert axes.shape == (3, 3)
    assert [[ax.axison for ax in line] for line in axes] == np.tri(3, dtype=bool).tolist()
    assert [ax.get_xlabel() for ax in axes[-1]] == SIZES
    assert [ax.get_ylabel() for ax in axes[:, 0]] == ["density", "load", "heat"]
    has_numbers = [ax.yaxis.get_tick_params()["labelleft"] for ax in axes[2, :2]]
    assert has_numbers == [True, False]
    bars, others = axes[2, 2].patches
    assert bars.get_hatch() != others.get_hatch()
    names = [text.get_text() for text in axes[0, 1].get_legend().get_texts()]
    assert names == ["p = alpha = 0.1", "nominal (20 rows)", "flagged (3 rows)"]


def test_plot_pairs__makes_a_figure_of_its_own():
    from matplotlib import pyplot

    nominal = np.random.default_rng(0).random((30, 2))
    n_before = len(pyplot.get_fignums())

    axes = lpe_dask.plot_pairs(LPE(2).fit(nominal), nominal, nominal, resolution=5)

    assert len(pyplot.get_fignums()) == n_before + 1
    pyplot.close(axes[0, 0].figure)
    assert [ax.get_xlabel() for ax in axes[1]] == ["feature 1", "feature 2"]


def test_plot_pairs__leaves_out_rows_without_a_p_value(rows):
    nominal = rows[SIZES]
    X = nominal[:10].copy()
    X.iloc[0, 0] = np.nan

    axes = drawn(LPE(3).fit(nominal), nominal, X)

    assert axes[0, 1].get_legend().get_title().get_text() == "left out: NaN (1 row)"
    assert sum(len(of.get_xydata()) for of in lines(axes[1, 0]).values()) == 9


def test_plot_pairs__shows_rows_with_gaps_where_both_values_are(rows):
    nominal = rows[SIZES]
    X = nominal[:10].copy()
    X.iloc[0, 0] = np.nan

    axes = drawn(LPE(3, missing="measure").fit(nominal), nominal, X)

    assert axes[0, 1].get_legend().get_title().get_text() == ""
    for ax, n_shown in [(axes[1, 0], 9), (axes[2, 1], 10)]:
        shown = np.concatenate([of.get_xydata() for of in lines(ax).values()])
        assert np.isfinite(shown).all(axis=1).sum() == n_shown


def test_plot_pairs__shows_flagged_rows_that_all_lack_a_value(rows):
    nominal = rows[SIZES]
    X = nominal[:10] / 10
    X.loc[8:, "heat"], X.loc[8:, "speed"] = np.nan, 99

    axes = drawn(LPE(3, missing="measure").fit(nominal), nominal, X)

    assert len(axes[0, 0].patches) == 2
    assert len(axes[2, 2].patches) == 1  # no bars of flagged rows
    assert np.isfinite(axes[2, 1].get_ylim()).all()


def test_plot_pairs__names_a_column_without_values(rows):
    nominal = rows[SIZES]
    X = nominal[:10].assign(heat=np.nan)
    model = LPE(3, missing="measure").fit(nominal)

    with pytest.raises(ValueError, match=r"value in 'heat'.* Leave it out of columns="):
        drawn(model, nominal, X)

    assert drawn(model, nominal, X, columns=["speed", "load"]).shape == (2, 2)


@pytest.mark.parametrize("kind", [lambda rows: rows, lambda rows: rows.to_dask_array()])
def test_plot_pairs__reads_lazy_rows_once(kind, rows):
    n_read = []

    def part(number):
        n_read.append(number)  # other rows at each reading
        return rows[SIZES] + 10.0 * len(n_read)

    lazy = dd.from_map(part, [0], meta=rows[SIZES])
    nominal = (
        rows[SIZES] if isinstance(kind(lazy), dd.DataFrame) else rows[SIZES].to_numpy()
    )

    axes = drawn(LPE(3).fit(nominal), nominal, kind(lazy))

    assert n_read == [0]
    assert min(lines(axes[1, 0])["flagged (80 rows)"].get_xdata()) > 5


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (None, "column 'kind' holds categories.* Leave it out of columns="),
        (["speed", "size"], r"the model has no \['size'\], but \['speed'"),
        (["speed"], "are 1 columns; pairs are drawn of 2 to 6"),
        (["speed", "speed"], "are 2 columns; .* different ones"),
    ],
)
def test_plot_pairs__refuses_columns_that_it_cannot_draw(columns, message, model, rows):
    with pytest.raises(ValueError, match=message):
        drawn(model, rows, rows, columns=columns)


def log_density(rows):
    return np.zeros(len(rows))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"metric_params": {"w": [1, 1, 2]}}, "the model has w of all its columns"),
        ({"metric": "mahalanobis", "metric_params": {"VI": np.eye(3)}}, "has VI of all"),
        ({"metric": "seuclidean", "metric_params": {"V": np.ones(3)}}, "has V of all"),
        ({"anomaly_log_density": log_density}, "has anomaly_log_density of all"),
    ],
)
def test_plot_pairs__refuses_a_model_with_sizes_of_all_columns(arguments, message, rows):
    nominal = rows[SIZES]
    with pytest.raises(ValueError, match=message):
        drawn(LPE(3, **arguments).fit(nominal), nominal, nominal)


def test_plot_pairs__refuses_other_models_and_rows(rows):
    nominal = rows[SIZES]
    with pytest.raises(NotFittedError):
        drawn(LPE(3), nominal, nominal)
    with pytest.raises(
        ValueError, match=r"by \['kind'\], .* without by= on the rows of one"
    ):
        drawn(LPE(3, by=["kind"], alpha=0.1).fit(rows), rows, rows)
    with pytest.raises(ValueError, match=r"resolution=1 must be .* at least 2"):
        lpe_dask.plot_pairs(LPE(3).fit(nominal), nominal, nominal, resolution=1)
    with pytest.raises(ValueError, match="5 rows, but none of them has a p-value"):
        drawn(LPE(3).fit(nominal), nominal, nominal[:5] * np.nan)
    wide = np.random.default_rng(0).random((20, 7))
    with pytest.raises(ValueError, match="are 7 columns; pairs are drawn of 2 to 6"):
        drawn(LPE(3).fit(wide), wide, wide)
    large = pd.DataFrame({"at": np.arange(50) * 10 + 2**60, "x": np.arange(50.0)})
    with pytest.raises(ValueError, match="'at' holds whole numbers beyond"):
        drawn(LPE(3).fit(large), large, large)
