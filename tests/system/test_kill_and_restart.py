"""A job whose client, workers and scheduler are killed at random moments."""

import pytest

from kill_and_restart import LONG, SHORT, kill_and_restart


@pytest.mark.cluster
@pytest.mark.timeout(600)  # starts of processes, on a machine that may stall
@pytest.mark.parametrize(
    ("victims", "n_parts"), [SHORT, pytest.param(*LONG, marks=pytest.mark.slow)]
)
def test_job__gives_the_same_p_values_whatever_is_killed(tmp_path, victims, n_parts):
    lines = list(kill_and_restart(tmp_path, 1, victims, n_parts))

    assert sum(line.startswith("killed") for line in lines) == len(victims)
    assert lines[-1].startswith(f"{n_parts} parts with the same p-values")
