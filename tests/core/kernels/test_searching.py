"""The judge of the kernels is itself judged."""

import numpy as np
import pytest

import definitions
from searching import HARD_POINTS, all_distances, smallest


@pytest.mark.parametrize("name", HARD_POINTS)
def test_all_distances__are_those_of_the_definition(name):
    points = HARD_POINTS[name]
    queries = np.concatenate([points[:7], points[-3:]])

    actual = all_distances(queries, points)

    expected = [[definitions.distance(x, y) for y in points] for x in queries]
    np.testing.assert_array_equal(actual, expected)


def test_all_distances__leave_out_the_row_itself():
    points = np.zeros((3, 1))

    actual = all_distances(points, points, exclude_self=True)

    np.testing.assert_array_equal(actual, np.diag([np.inf] * 3))


def test_smallest__are_in_the_order_of_distance_and_number():
    values, columns = smallest(np.array([[2.0, np.inf, 1.0, 1.0]]), 4)

    np.testing.assert_array_equal(values, [[1.0, 1.0, 2.0, np.inf]])
    np.testing.assert_array_equal(columns, [[2, 3, 0, -1]])
