"""The share of nominal rows up to each level, and its band."""

import numpy as np
import pytest

import lpe_dask
from drawing import legend, lines


def test_plot_calibration__shows_the_share_up_to_each_level(ax):
    p_values = np.array([0.0, 0.2, 0.2, 0.6, np.nan])

    lpe_dask.plot_calibration(p_values, ax=ax)

    observed = lines(ax)["observed (4 rows)"]
    assert observed.get_drawstyle() == "steps-post"
    assert observed.get_xydata().tolist() == [
        *[[0.01, 0.25], [0.2, 0.75], [0.6, 1], [1, 1]]
    ]
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert "left out: NaN (1 row)" in legend(ax)


def test_plot_calibration__band_is_the_one_of_the_inequality(ax):
    lpe_dask.plot_calibration(np.linspace(0, 1, 200), ax=ax)

    (band,) = ax.collections
    corners = band.get_paths()[0].vertices
    half = np.sqrt(np.log(2 / 0.05) / 400)
    at_one = corners[corners[:, 0] == 1.0, 1]
    middle = corners[np.abs(corners[:, 0] - 0.5).argmin()]
    assert at_one.min() == pytest.approx(1 - half)
    assert abs(middle[1] - middle[0]) == pytest.approx(half)


def test_plot_calibration__reaches_down_to_one_row(ax):
    lpe_dask.plot_calibration(np.linspace(0, 1, 5000), ax=ax)

    assert ax.get_xlim() == (1e-4, 1)


def test_plot_calibration__of_real_p_values_stays_in_the_band(model, ax):
    """Left-out p-values of nominal rows are uniform, up to ties."""
    lpe_dask.plot_calibration(model.p_values_, ax=ax)

    alphas, shares = lines(ax)["observed (60 rows)"].get_xydata().T
    assert (np.abs(shares - alphas) <= np.sqrt(np.log(2 / 0.05) / 120)).all()
