"""What scikit-learn checks of estimators, but for what `LPE` does otherwise by design."""

from sklearn.utils.estimator_checks import parametrize_with_checks

EXPECTED_FAILURES = {
    "check_estimators_nan_inf": "a scored row with NaN has p-value NaN, by design",
    "check_outliers_fit_predict": "fit_predict leaves each row out of its own neighborhood",
}


def checks_of(*estimators):
    """Return a decorator that gives a test each estimator with each check."""
    return parametrize_with_checks(
        estimators, expected_failed_checks=lambda estimator: EXPECTED_FAILURES
    )
