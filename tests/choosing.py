"""Which cases of a test are of `make test`, of `make test-full`, or slow."""

import itertools
import random

import pytest


def mostly_full(cases, core):
    """Return each case of a test once, marked full but for those that `make test` runs.

    A case is a value, or a tuple of values for as many arguments.
    """
    cases = list(cases)
    return mostly_slow(cases, cases, core)


def mostly_dealt(*lists):
    """Return all combinations, marked full but for a few with which each value occurs."""
    return mostly_full(itertools.product(*lists), dealt(*lists))


def mostly_paired(*lists):
    """Return all combinations, marked full but for some in which every two values meet."""
    return mostly_full(itertools.product(*lists), pairs(*lists))


def mostly_slow(cases, full, core=None):
    """Return each case once, marked slow but for those that `make test-full` runs.

    Of these, all but ``core`` are marked full; None: `make test` runs them all.
    """
    cases, full = list(cases), list(full)
    core = full if core is None else list(core)
    assert all(case in cases for case in full)
    assert all(case in full for case in core)
    marks = {True: [], False: [pytest.mark.full]}
    cases = [case for i, case in enumerate(cases) if case not in cases[:i]]
    return [
        _parameters(case, marks[case in core] if case in full else [pytest.mark.slow])
        for case in cases
    ]


def _parameters(case, marks):
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=marks)


def pairs(*lists, seed=0):
    """Return few combinations in which every two values of different lists meet."""
    combinations = list(itertools.product(*lists))
    random.Random(seed).shuffle(combinations)
    meetings = {
        some: set(itertools.combinations(enumerate(some), 2)) for some in combinations
    }
    wanted = set().union(*meetings.values())
    found = []
    while wanted:
        best = max(combinations, key=lambda some: len(meetings[some] & wanted))
        wanted -= meetings[best]
        found.append(best)
    return found


def dealt(*lists):
    """Return as few combinations as can be in which every value occurs."""

    def value(values, place, i):  # each round is shifted, or the same values would meet
        return values[(i + place * (i // len(values))) % len(values)]

    lists = [list(values) for values in lists]
    return [
        tuple(value(values, place, i) for place, values in enumerate(lists))
        for i in range(max(map(len, lists)))
    ]
