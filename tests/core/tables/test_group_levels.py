"""The values of columns that divide rows into groups: what they may be, and their codes."""

import datetime
import pickle
import threading
import zoneinfo
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import lpe_dask
from lpe_dask import LPE
from lpe_dask.tables import GroupColumnError, group_index, open_features
from lpe_dask.tables.group_levels import learn_groups
from lpe_dask.tables.sources import open_source

UTC, BERLIN = datetime.UTC, zoneinfo.ZoneInfo("Europe/Berlin")
DAYS = pd.Series(pd.to_datetime(["2026-01-01", "2026-01-02"]))


@pytest.fixture(autouse=True)
def settings():
    with dask.config.set({"scheduler": "sync", "dataframe.convert-string": False}):
        yield


def learned(*parts):
    """Return the groups of a frame whose partitions have these keys; of one as it is."""
    frames = [part if isinstance(part, pd.DataFrame) else frame_of(part) for part in parts]
    if len(frames) > 1:
        frames = [dd.concat([dd.from_pandas(frame, npartitions=1) for frame in frames])]
    source = open_source(frames[0])
    return learn_groups(source, range(len(source.meta.columns)))


def frame_of(keys):
    return pd.DataFrame({"key": keys})


def codes(levels, keys):
    return levels.codes(frame_of(keys)).tolist()


# Dates


FINE = pd.Series(
    pd.to_datetime(["2026-01-01"] * 3).as_unit("ns") + pd.to_timedelta([1, 2, 0])
)
FAR = pd.Series(np.array(["300000-01-01", "2026-01-01"], "M8[s]"))


@pytest.mark.parametrize("n_parts", [1, 2])
@pytest.mark.parametrize(
    ("dates", "why"),
    [
        (FINE, r"'key' has 2026-01-01 00:00:00.000000001, but .* microseconds.*floor"),
        (FINE.astype(object), r"'key' has 2026-01-01 00:00:00.000000001, but"),
        (FAR, "'key' has dates that are too early or too late to be counted in micros"),
    ],
)
def test_dates__that_microseconds_do_not_hold(dates, why, n_parts):
    """Else groups would become one, silently."""
    with pytest.raises(ValueError, match=why):
        learned(*[dates] * n_parts)
    with pytest.raises(ValueError, match=why):
        codes(learned(DAYS), dates)


def test_dates__as_their_error_says_are_groups():
    assert len(learned(FINE.dt.floor("us"))) == 1
    for dates in (FINE, FAR):
        text = dates.map(str, na_action="ignore")
        assert codes(learned(text), text) == [*np.unique(text, return_inverse=True)[1]]


IN_UTC, IN_BERLIN = DAYS.dt.tz_localize("UTC"), DAYS.dt.tz_localize("Europe/Berlin")
MISSING = pd.Series([pd.NaT, pd.NaT])


@pytest.mark.parametrize(
    ("nominal", "other", "remedy"),
    [(DAYS, IN_UTC, "localize.None"), (IN_BERLIN, DAYS, "localize.'UTC'")],
)
def test_dates__with_a_time_zone_are_others_than_those_without(nominal, other, remedy):
    why = f"'key' has dates.*have dates.* column that divides rows into groups.*{remedy}"
    for given in (other, other.astype(object)):
        with pytest.raises(TypeError, match=why):
            codes(learned(nominal), given)
    assert codes(learned(nominal), MISSING)[:1] == pytest.approx([np.nan], nan_ok=True)


@pytest.mark.parametrize(
    "parts",
    [
        (DAYS, IN_UTC),
        (IN_UTC.astype(object), DAYS),
        (pd.Series([DAYS[0], IN_UTC[0]], dtype=object),),
    ],
)
def test_dates__with_and_without_a_time_zone_are_no_groups(parts):
    with pytest.raises(
        TypeError, match=r"'key' has dates and .*dates with a|'key' has .* and wi"
    ):
        learned(*parts)


@pytest.mark.parametrize(
    "parts",
    [
        (IN_UTC, IN_BERLIN),
        (IN_BERLIN.astype(object), IN_UTC),
        (pd.Series([*IN_UTC, *IN_BERLIN], dtype=object),),
        (IN_UTC, MISSING, IN_BERLIN),
    ],
)
def test_dates__of_several_time_zones_are_instants(parts, tmp_path):
    levels = learned(*parts)

    assert levels.values[0].dtype == "datetime64[us, UTC]"
    assert levels.values[0].tolist() == sorted([*IN_UTC, *IN_BERLIN])
    for keys in parts:
        expected = [sorted([*IN_UTC, *IN_BERLIN]).index(key) for key in keys.dropna()]
        assert [code for code in codes(levels, keys) if code == code] == expected


def test_model__of_dates_in_several_time_zones_is_saved(tmp_path):
    frames = [
        pd.DataFrame({"x": np.arange(40.0), "key": [*keys] * 20})
        for keys in (IN_UTC, IN_BERLIN)
    ]
    rows = dd.concat([dd.from_pandas(frame, npartitions=1) for frame in frames])
    model = LPE(2, by=["key"], alpha=0.2, calibration="loo").fit(rows)
    model.save(tmp_path / "model")

    loaded = lpe_dask.load(tmp_path / "model")

    pd.testing.assert_frame_equal(loaded.groups_, model.groups_)
    for frame in frames:
        found = loaded.score_samples(frame)
        np.testing.assert_array_equal(found, model.score_samples(frame))
        assert found.notna().all()
        with pytest.raises(TypeError, match=r"'key' has dates, but .* with a time zone"):
            loaded.score_samples(frame.assign(key=DAYS[0]))


def test_dates__of_days_and_instants_are_the_same_at_midnight():
    days = [datetime.date(2026, 1, 1), datetime.datetime(2026, 1, 1), None]

    levels = learned(pd.Series(days, dtype=object))

    assert levels.n_rows.tolist() == [2]
    assert codes(levels, DAYS) == [0, -1]


def test_model__of_dates_scores_a_csv_as_its_error_says(tmp_path):
    """A CSV has text, so the nominal rows must have the same."""
    rows = pd.DataFrame({"x": np.arange(40.0), "key": [*DAYS] * 20})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    arguments = {"n_neighbors": 2, "by": ["key"], "alpha": 0.2, "calibration": "loo"}
    model = LPE(**arguments).fit(rows)

    why = (
        r"'key' has text, .* divides rows into groups.* never the same group.*A CSV has .*"
    )
    with pytest.raises(TypeError, match=why + r"strftime\('%Y-%m-%d'\)"):
        model.score_samples(str(tmp_path / "rows.csv")).compute()

    of_text = LPE(**arguments).fit(rows.assign(key=rows["key"].dt.strftime("%Y-%m-%d")))
    found = of_text.score_samples(str(tmp_path / "rows.csv")).compute()
    np.testing.assert_array_equal(found, model.score_samples(rows))
    assert found.notna().all()


def test_other_types__are_called_those_of_groups_before_any_task(tmp_path):
    path, kinds = str(tmp_path / "whole.parquet"), {0: "text", 1: "text"}
    pd.DataFrame({"c": [1, 2], "key": [1, 2]}).to_parquet(path)

    with pytest.raises(TypeError, match=r"'key' .* divides rows into groups.* same group"):
        open_features(path, None, ["c"], kinds={1: "text"}, by=["key"])
    with pytest.raises(TypeError, match=r"'c' .* categorical column.* same category"):
        open_features(path, None, ["c"], kinds=kinds, by=["key"])


# Whole numbers


def test_whole_numbers__that_an_int64_cannot_hold_are_unknown_groups():
    levels = learned(pd.Series([3, 1]))

    assert codes(levels, pd.Series([1, 2**63, 3, 2**70, -(2**64)], dtype=object)) == [
        0,
        -1,
        1,
        -1,
        -1,
    ]
    assert codes(levels, pd.Series([2**63, 3], dtype=np.uint64)) == [-1, 1]
    two = learned(pd.DataFrame({"a": [1, 2], "b": [5, 6]}))
    rows = pd.DataFrame({"a": pd.Series([2**63, 2, 1], dtype=object), "b": [5, 6, 6]})
    assert two.codes(rows).tolist() == [-1, 1, -1]


# The index of groups


MANY = {
    "text": pd.DataFrame({"a": [f"group {i}" for i in range(20_000)]}),
    "whole numbers": pd.DataFrame({"a": np.arange(20_000) * 7}),
    "two columns": pd.DataFrame(
        {"a": np.arange(20_000) // 100, "b": np.arange(20_000) % 100}
    ),
    "dates": pd.DataFrame({"a": pd.date_range("2026-01-01", periods=20_000, freq="s")}),
}


@pytest.mark.parametrize("name", MANY)
def test_codes__make_one_index_a_process(name, monkeypatch):
    """Not one a partition, nor one a thread; and no copy comes with another's."""
    rows, levels = MANY[name], learned(MANY[name])
    order = np.random.default_rng(0).permutation(len(rows))
    expected = levels.codes(rows)[order]
    made, make = [], group_index._Index
    monkeypatch.setattr(
        group_index, "_Index", lambda values: made.append(0) or make(values)
    )

    for copy in (pickle.loads(pickle.dumps(levels)), replace(levels, refuses_unknown=True)):
        made.clear()
        start = threading.Barrier(8)

        def coded(i, copy=copy, start=start):
            start.wait()
            return copy.codes(rows.iloc[order[i * 100 :]])

        with ThreadPoolExecutor(8) as threads:
            for i, found in enumerate(threads.map(coded, range(8))):
                np.testing.assert_array_equal(found, expected[i * 100 :])
        assert len(made) == 1
    assert len(pickle.dumps(levels)) < 1.5 * len(
        pickle.dumps((levels.values, levels.n_rows))
    )


COLUMNS = {
    "text": ["a", "b", "c", "d", "e"],
    "whole": [-3, 0, 2**62, 5, 7],
    "large": [2**70, -(2**64), 3, 5, 7],
    "flag": [True, False],
    "date": list(pd.date_range("2026-01-01", periods=5)),
    "zone": list(pd.date_range("2026-01-01", periods=5, tz="Europe/Berlin")),
}


@pytest.mark.parametrize("seed", range(6))
def test_codes__are_the_definition(seed):
    """A loop over groups, some of which are other combinations of the same values."""
    rng = np.random.default_rng(seed)
    names = rng.permutation([*COLUMNS])[: 1 + seed]

    def drawn(n_rows, n_values):
        which = rng.integers(0, n_values, (n_rows, len(names)))
        values = {
            name: [COLUMNS[name][i % len(COLUMNS[name])] for i in which[:, c]]
            for c, name in enumerate(names)
        }
        types = {"large": object, "whole": object if seed % 2 else np.int64}
        return pd.DataFrame({n: pd.Series(values[n], dtype=types.get(n)) for n in names})

    nominal, rows = drawn(60, 4), drawn(90, 5)
    levels = learned(nominal)
    groups = sorted({*nominal.itertuples(index=False, name=None)})
    rows = pd.concat([rows, nominal], ignore_index=True)

    expected = [
        groups.index(row) if row in groups else -1
        for row in rows.itertuples(index=False, name=None)
    ]
    assert levels.codes(rows).tolist() == expected
    assert (-1 in expected) == ([*names] != ["flag"])
    chosen = rng.permutation(len(groups))[:7]
    few = levels.only(chosen)
    in_few = {number: i for i, number in enumerate(chosen)}
    assert few.codes(rows).tolist() == [in_few.get(code, -1) for code in expected]
    assert levels.only(chosen[:0]).codes(rows).tolist() == [-1] * len(rows)


# Names


ARRAY = np.column_stack([np.arange(40.0), np.arange(40) % 2, np.arange(40) % 3])


@pytest.mark.parametrize("by", [1.0, 1.5, True, np.True_, None, (1,), np.float64(1)])
@pytest.mark.parametrize("kind", [np.asarray, da.from_array, pd.DataFrame])
def test_by__is_text_or_whole_numbers(by, kind):
    """Of which True and 1.0 are none, though they are equal to 1."""
    with pytest.raises(
        GroupColumnError, match=r"by=\[.*\] names \[.*whole numbers such as 1"
    ):
        LPE(2, by=[by], alpha=0.2).fit(kind(ARRAY))


def test_by__of_an_array_is_no_text():
    with pytest.raises(GroupColumnError, match=r"by=\['1'\] has text.*whole.*\[0, 1, 2\]"):
        LPE(2, by=["1"], alpha=0.2).fit(ARRAY)
    for by in (1, np.int64(1), np.uint8(1)):
        assert len(LPE(2, by=[by], alpha=0.2).fit(ARRAY).groups_) == 2
