"""A job whose client, workers and scheduler are killed at random moments."""

import pytest

from kill_and_restart import VICTIMS, kill_and_restart


@pytest.mark.cluster
@pytest.mark.timeout(600)  # six starts and a minute of work, on a machine that may stall
def test_job__gives_the_same_p_values_whatever_is_killed(tmp_path):
    lines = list(kill_and_restart(tmp_path, seed=1))

    assert sum(line.startswith("killed") for line in lines) == len(VICTIMS) == 5
    assert lines[-1].startswith("60 parts with the same p-values")
