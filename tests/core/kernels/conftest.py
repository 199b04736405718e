"""Tests that take an algorithm are of all that have to give the bits of the definition."""

import pytest

from searching import EXACT


@pytest.fixture(scope="module", params=EXACT)
def algorithm(request):
    return request.param
