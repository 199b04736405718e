"""Other estimators than that of tests/core/model/test_detector.py."""

from estimator_checks import checks_of
from lpe_dask import LPE


@checks_of(LPE(metric="geodesic"), LPE(calibration="conformal", random_state=0))
def test_lpe__is_an_estimator(estimator, check):
    check(estimator)
