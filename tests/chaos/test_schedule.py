"""Schedules follow from their seeds."""

import json

import pytest

from chaos.faults import FAULTS
from chaos.history import History, read_first
from chaos.schedule import draw

SEEDS = range(len(FAULTS))


@pytest.mark.parametrize("seed", SEEDS)
def test_draw__is_the_same_for_the_same_seed_and_after_reading(seed, tmp_path):
    with History(tmp_path / "history.jsonl") as history:
        history.add("schedule", schedule=draw(seed).as_json())

    assert read_first(tmp_path / "history.jsonl") == draw(seed)


def test_draw__has_every_fault_within_as_many_seeds():
    drawn = {planned.fault for seed in SEEDS for planned in draw(seed).faults}

    assert drawn == {*FAULTS}


def test_draw__has_a_hundred_faults_in_thirty_runs():
    assert sum(len(draw(seed).faults) for seed in range(30)) >= 100


@pytest.mark.parametrize("seed", SEEDS)
def test_draw__ends_with_what_is_for_good_on_a_storage_that_fits(seed):
    schedule = draw(seed)

    kinds = [FAULTS[planned.fault] for planned in schedule.faults]
    assert not any(kind.is_for_good for kind in kinds[:-1])
    assert {kind.storage for kind in kinds} <= {None, schedule.storage}


def test_draw__only_of_the_faults_asked_for():
    drawn = {planned.fault for planned in draw(3, ["link-*"]).faults}

    assert drawn <= {"link-cut", "link-cut-for-longer"}


def test_history__is_readable_while_it_is_written(tmp_path):
    with History(tmp_path / "history.jsonl") as history:
        history.add("injected", fault="link-cut")

        [line] = (tmp_path / "history.jsonl").read_text().splitlines()

    assert json.loads(line)["fault"] == "link-cut"
