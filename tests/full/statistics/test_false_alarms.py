"""The simulation of false alarms: it tells what keeps the promise from what breaks it."""

import false_alarms


def test_cell__of_what_keeps_the_promise_and_what_breaks_it():
    kept = false_alarms.cell("normal", "variances", 200, 2, 4_000)
    broken = false_alarms.cell("normal", "covariance", 50, 20, 1_000)

    assert (kept["auto"], broken["auto"]) == ("loo", "conformal")
    assert abs(kept["loo_0.05"] - 1) <= 4 * kept["loo_0.05_error"] + 0.05
    assert broken["loo_0.05"] > 5
    assert broken["conformal_0.05"] <= 1 + 4 * broken["conformal_0.05_error"]
    assert false_alarms.cell("normal", "covariance", 50, 50, 1) is None
