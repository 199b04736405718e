"""Types of arguments say what the table of the arguments says."""

import inspect
from types import NoneType
from typing import get_args, get_type_hints

import pytest

from lpe_dask import LPE, score, score_files
from lpe_dask.model.arguments import Arguments, FitArguments, ScoreArguments
from lpe_dask.model.lpe_parameters import PARAMETERS

HINTS = get_type_hints(Arguments)


def values_of(hint):
    """Return the values that a type lists, and None if that is one of them."""
    parts = (value for part in get_args(hint) for value in get_args(part) or (part,))
    return {None if part is NoneType else part for part in parts}


def test_arguments__are_those_of_the_table_with_the_types_of_the_estimator():
    of_estimator = get_type_hints(LPE.__init__)
    del of_estimator["return"]

    assert set(HINTS) == set(PARAMETERS)
    assert of_estimator == HINTS


@pytest.mark.parametrize(
    "name", [name for name, known in PARAMETERS.items() if known.choices is not None]
)
def test_arguments__have_the_choices_of_the_table(name):
    assert values_of(HINTS[name]) == set(PARAMETERS[name].choices)


@pytest.mark.parametrize("name", PARAMETERS)
def test_arguments__may_be_none_where_that_is_the_default(name):
    assert (NoneType in get_args(HINTS[name])) == (PARAMETERS[name].default is None)


def test_arguments__of_a_fit_are_those_that_have_no_name_of_their_own_in_score_files():
    named = set(inspect.signature(score_files).parameters)

    assert set(HINTS) - set(get_type_hints(FitArguments)) == set(HINTS) & named == {"alpha"}


def test_arguments__of_score_are_all_that_it_takes_by_name():
    named = set(inspect.signature(score).parameters) - {"arguments"}

    more = set(get_type_hints(ScoreArguments)) - set(HINTS)
    assert more == named - {"data", "nominal", "csv"}
