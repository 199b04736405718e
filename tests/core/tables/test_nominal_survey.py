"""The survey of lazy rows is that of the same rows here, however they are divided."""

import itertools

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpe_dask.kernels import Moments
from lpe_dask.tables import group_facts
from lpe_dask.tables.group_facts import GroupFacts
from lpe_dask.tables.nominal_table import NominalTable
from lpe_dask.tables.row_survey import Sums

N_ROWS, DAY = 24, np.timedelta64(1, "D")


def table(rng):
    """Return rows with categories, groups, and gaps in all of these."""
    frame = pd.DataFrame(
        {
            "x": rng.standard_normal(N_ROWS),
            "text": pd.array(rng.choice(["b", "a", "é"], N_ROWS), "string"),
            "whole": pd.array(rng.integers(-2, 3, N_ROWS), "Int64"),
            "y": rng.integers(0, 9, N_ROWS).astype(float),
            "site": pd.array(rng.choice(["s", "r", "q"], N_ROWS), "string"),
            "day": pd.Timestamp("2026-01-01")
            + pd.to_timedelta(rng.integers(0, 2, N_ROWS), "D"),
        }
    )
    for name in frame.columns:
        frame.loc[rng.integers(1, N_ROWS), name] = pd.NA
    return frame


def divided(frame, cuts):
    edges = [0, *sorted(cuts), len(frame)]
    parts = [frame[a:b] for a, b in itertools.pairwise(edges)]
    return dd.from_map(lambda part: part, parts, meta=frame[:0])


@pytest.mark.parametrize("missing", ["drop", "measure"])
@pytest.mark.parametrize("by", [[], ["site"], ["day", "site"]])
@given(
    seed=st.integers(0, 999),
    cuts=st.lists(st.integers(0, N_ROWS), max_size=4),
    categorical=st.sampled_from([None, ["text"], ["whole", "text"]]),
    sums=st.sampled_from([None, Sums(), Sums(True), Sums(True, True)]),
)
def test_read__of_partitions_is_that_of_all_rows(
    missing, by, seed, cuts, categorical, sums
):
    frame = table(np.random.default_rng(seed))
    numbers = ["x", "y"]
    frame = frame[[*numbers, *(categorical or []), *by]]
    given_ = {"by": by, "sums": sums}

    with dask.config.set(scheduler="sync"):
        found = NominalTable.read(divided(frame, cuts), categorical, missing, **given_)
        expected = NominalTable.read(frame, categorical, missing, **given_)
        rows = [of.rows.again().compute() for of in (found, expected)]

    np.testing.assert_array_equal(*rows)
    assert found.places == expected.places
    first, second = found.table.categories, expected.table.categories
    assert (first is None) == (second is None)
    if first is not None:
        assert first.levels == second.levels
    if by:
        pd.testing.assert_frame_equal(first.groups.values, second.groups.values)
        np.testing.assert_array_equal(first.groups.n_rows, second.groups.n_rows)
    nominal, whole = found.rows, expected.rows
    assert nominal.ranges == whole.ranges
    assert nominal.moments == whole.moments
    for name in ("statuses", "groups"):
        values = getattr(nominal, name), getattr(whole, name)
        assert (values[0] is None) == (values[1] is None)
        np.testing.assert_array_equal(*values)
    np.testing.assert_array_equal(nominal.sample, whole.sample)
    if sums is not None and sums.by_group and by:
        facts = nominal.group_facts.of_groups, whole.group_facts.of_groups
        assert facts[0].keys() == facts[1].keys()
        for group, fact in facts[0].items():
            for a, b in zip(fact, facts[1][group], strict=True):
                np.testing.assert_array_equal(a, b)


def test_read__sees_that_a_level_became_another_one():
    """Also if rows differ where they did."""
    state = {"level": "a"}

    def part(number):
        text = [state["level"], "b", "b"] if number else ["a", "b", "c"]
        return pd.DataFrame({"x": [1.0, 2.0, 3.0], "text": text})

    meta = part(0)[:0].astype({"text": "string"})
    frame = dd.from_map(part, [0, 1], meta=meta)
    with dask.config.set(scheduler="sync"):
        rows = NominalTable.read(frame, ["text"], "error").rows
        np.testing.assert_array_equal(rows.again().compute()[:, 1], [0, 1, 2, 0, 1, 1])
        state["level"] = "c"
        with pytest.raises(ValueError, match="other rows in partition 1"):
            rows.again().compute()


def test_group_facts__of_too_many_groups_are_none(monkeypatch):
    monkeypatch.setattr(group_facts, "MAX_GROUP_SUMS", 8)
    rows = np.arange(12.0).reshape(6, 2)

    few = GroupFacts.of(rows, np.array([0, 1, 0, 1, 0, 1]), has_products=False)
    many = GroupFacts.of(rows, np.array([0, 1, 2, 1, 0, 1]), has_products=False)
    others = few.recoded(np.array([2, 3]))

    assert many.of_groups is None
    assert GroupFacts.add([few, others]).of_groups is None
    assert GroupFacts.add([few, many]).of_groups is None
    twice = GroupFacts.add([few, few.recoded(np.array([1, 0]))]).of_groups
    assert twice[0].moments == Moments.of(rows)
    np.testing.assert_array_equal(twice[1].first, rows[1])
