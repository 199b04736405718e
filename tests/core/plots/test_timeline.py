"""p-values along time: where rows are, which are flagged, and how times are read."""

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from matplotlib.dates import num2date
from matplotlib.figure import Figure

import lpe_dask
from drawing import legend, lines

P_VALUES = np.array([0.0, 0.02, 0.4, np.nan, 0.8, 1.0])
HOURS = pd.date_range("2026-11-20 06:00", periods=6, freq="h")


TOKYO = HOURS.tz_localize("UTC").tz_convert("Asia/Tokyo")
ARROW, UTC = pd.ArrowDtype, "time (UTC)"


def points(ax, name):
    (line,) = [of for of in ax.get_lines() if str(of.get_label()).startswith(name)]
    return line.get_xdata(orig=False).tolist(), line.get_ydata().tolist()


def test_plot_timeline__flags_rows_up_to_alpha(ax):
    lpe_dask.plot_timeline(P_VALUES, alpha=0.02, ax=ax)

    assert points(ax, "flagged") == ([0, 1], [0, 0.02])
    assert points(ax, "nominal") == ([2, 4, 5], [0.4, 0.8, 1])
    assert legend(ax) == [
        *["alpha = 0.02", "nominal (3 rows)", "flagged (2 rows)", "left out: NaN (1 row)"]
    ]
    assert list(lines(ax)["alpha = 0.02"].get_ydata()) == [0.02, 0.02]
    assert ax.get_xlabel() == "row"


def test_plot_timeline__needs_no_color(ax):
    lpe_dask.plot_timeline(P_VALUES, ax=ax)

    drawn = lines(ax)
    assert drawn["flagged (2 rows)"].get_marker() != drawn["nominal (3 rows)"].get_marker()


def test_plot_timeline__shows_rows_with_p_0_below_all_others(ax):
    lpe_dask.plot_timeline(P_VALUES, ax=ax)

    heights = ax.transData.transform([(0, p) for p in (0.0, 0.02, 0.4, 1.0)])[:, 1]
    bottom, top = ax.get_window_extent().intervaly
    assert (np.diff([bottom, *heights, top]) > 1).all()


@pytest.mark.parametrize("p_values", [[0.0], [0.0, 0.0], [1.0], [0.3]])
def test_plot_timeline__draws_p_values_without_a_range(p_values, ax):
    lpe_dask.plot_timeline(p_values, ax=ax)

    low, high = ax.get_ylim()
    assert low < min(p_values) <= max(p_values) < high


@pytest.mark.parametrize(("p_values", "least"), [([1.0], 0.5), ([0, 0.2, 1], 0.2)])
def test_plot_timeline__is_linear_below_the_least_p_value_above_0(p_values, least, ax):
    lpe_dask.plot_timeline(p_values, ax=ax)

    assert ax.yaxis.get_transform().linthresh == least
    assert ax.get_ylim()[0] == -0.1 * least


def test_plot_timeline__takes_other_decisions_than_alpha(ax):
    flags = pd.array([False, False, True, None, False, False], "boolean")

    lpe_dask.plot_timeline(P_VALUES, alpha=0.02, is_flagged=flags, ax=ax)

    assert points(ax, "flagged") == ([2], [0.4])
    assert legend(ax)[:2] == ["nominal (4 rows)", "flagged (1 row)"]


@pytest.mark.parametrize(
    ("p_values", "time", "label"),
    [
        (pd.Series(P_VALUES, HOURS), None, "time"),
        (dd.from_pandas(pd.Series(P_VALUES, HOURS), npartitions=2), None, "time"),
        (P_VALUES, HOURS, "time"),
        (P_VALUES, HOURS.tolist(), "time"),
        (P_VALUES, HOURS.to_numpy(), "time"),
        (P_VALUES, HOURS.rename("seen"), "seen"),
        (P_VALUES, TOKYO, "time (UTC)"),
        (P_VALUES, pd.Series(HOURS, dtype=ARROW(pa.timestamp("us"))), "time"),
        (P_VALUES, pd.Series(TOKYO, dtype=ARROW(pa.timestamp("us", "Asia/Tokyo"))), UTC),
        (
            pd.Series(P_VALUES, pd.Index(HOURS, dtype=ARROW(pa.timestamp("us")))),
            None,
            "time",
        ),
        (P_VALUES, HOURS.to_period("h"), "time"),
        (pd.Series(P_VALUES, HOURS.to_period("h")), None, "time"),
        (P_VALUES, pd.Series(HOURS).dt.to_period("h"), "time"),
        (P_VALUES, dd.from_pandas(pd.Series(HOURS, name="at"), npartitions=2), "at"),
    ],
)
def test_plot_timeline__takes_times_of_any_kind(p_values, time, label, ax):
    lpe_dask.plot_timeline(p_values, time, ax=ax)

    (first, second), _ = points(ax, "flagged")
    drawn = [num2date(at).replace(tzinfo=None) for at in (first, second)]
    assert drawn == [HOURS[0], HOURS[1]]
    assert ax.get_xlabel() == label


@pytest.mark.parametrize(
    ("p_values", "time"),
    [
        (P_VALUES, HOURS - HOURS[0]),
        (pd.Series(P_VALUES, HOURS - HOURS[0]), None),
        (P_VALUES, pd.Series(HOURS - HOURS[0], dtype=ARROW(pa.duration("us")))),
    ],
)
def test_plot_timeline__draws_durations_in_seconds(p_values, time, ax):
    lpe_dask.plot_timeline(p_values, time, ax=ax)

    assert points(ax, "flagged")[0] == [0, 3600]
    assert ax.get_xlabel() == "time [s]"


def test_plot_timeline__takes_days_of_arrow(ax):
    days = pd.Series(HOURS + pd.Timedelta(days=3), dtype=ARROW(pa.date32()))

    lpe_dask.plot_timeline(P_VALUES, days, ax=ax)

    assert num2date(points(ax, "flagged")[0][0]).strftime("%F %T") == "2026-11-23 00:00:00"


@pytest.mark.parametrize(
    "time",
    [
        HOURS.astype(str),
        [hour.date() for hour in HOURS],
        [*TOKYO[:3], *HOURS[3:].tz_localize("UTC")],
    ],
)
def test_plot_timeline__refuses_other_times_with_a_remedy_that_works(time, ax):
    with pytest.raises(ValueError, match=r"with pandas.to_datetime\(time, utc=True\)"):
        lpe_dask.plot_timeline(P_VALUES, time, ax=ax)

    lpe_dask.plot_timeline(P_VALUES, pd.to_datetime(time, utc=True), ax=ax)
    assert ax.get_xlabel() == "time (UTC)"


def test_plot_timeline__takes_numbers_in_any_order(ax):
    lpe_dask.plot_timeline(P_VALUES, pd.Series([9.5, 3, 2, np.nan, 1, 0], name="km"), ax=ax)

    assert points(ax, "flagged") == ([9.5, 3], [0, 0.02])
    assert ax.get_xlabel() == "km"


def test_plot_timeline__draws_many_rows_small_and_as_an_image(ax):
    lpe_dask.plot_timeline(np.arange(2000) / 2000, alpha=0.5, ax=ax)

    flagged, nominal = lines(ax)["flagged (1001 rows)"], lines(ax)["nominal (999 rows)"]
    assert all(line.get_rasterized() for line in (flagged, nominal))
    assert (flagged.get_marker(), nominal.get_marker()) == ("X", "o")
    few = lines(lpe_dask.plot_timeline(P_VALUES, ax=Figure().subplots()))[
        "nominal (3 rows)"
    ]
    assert nominal.get_markersize() < few.get_markersize()
    assert not few.get_rasterized()
