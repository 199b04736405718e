"""Schedules follow from their seeds, and the page on reliability names each fault."""

import re
from pathlib import Path

import pytest

from chaos.faults import FAULTS
from chaos.history import History, read_first
from chaos.schedule import draw

SEEDS = range(len(FAULTS))

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "reliability.md"


@pytest.mark.parametrize("seed", SEEDS)
def test_draw__is_the_same_while_its_history_is_written(seed, tmp_path):
    schedule = draw(seed)
    with History(tmp_path / "history.jsonl") as history:
        history.add("schedule", schedule=schedule)

        assert read_first(tmp_path / "history.jsonl") == schedule == draw(seed)

    kinds = [FAULTS[planned.fault] for planned in schedule.faults]
    assert not any(kind.is_for_good for kind in kinds[:-1])
    assert {kind.storage for kind in kinds} <= {None, schedule.storage}


def test_draw__has_every_fault_and_a_hundred_in_thirty_runs():
    drawn = [planned.fault for seed in range(30) for planned in draw(seed).faults]

    assert {*drawn} == {*FAULTS}
    assert len(drawn) >= 100


def test_draw__only_of_the_faults_that_were_chosen():
    drawn = {planned.fault for planned in draw(3, ["link-*"]).faults}

    assert drawn <= {"link-cut", "link-cut-for-longer"}


def test_reliability__names_all_faults_and_no_others():
    proofs = [
        line.split("|")[-2]
        for line in PAGE.read_text().splitlines()
        if line.count("|") == 5
    ]

    named = {name for proof in proofs for name in re.findall("`([a-z0-9-]+)`", proof)}
    assert named == {*FAULTS}
