"""scikit-learn's own checks of both additive models."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from discreet import PrivateAdditiveClassifier, PrivateAdditiveRegressor

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # few rows, labels read from them
NOISE = "two fits of a private model draw different noise, even on the same data"
EXPECTED_FAILURES = {
    "check_fit_idempotent": NOISE,
    "check_regressors_int": NOISE,
    "check_classifier_data_not_an_array": NOISE,
    "check_regressor_data_not_an_array": NOISE,
    "check_supervised_y_2d": "targets of two dimensions are refused; labels of two fits differ by noise",
    "check_dtype_object": "the error names the place of the cell in words of this library",
}
SETTINGS = {"feature_bounds": (-10.0, 10.0), "n_iterations": 5, "max_bins": 4}


@parametrize_with_checks(
    [
        PrivateAdditiveClassifier(1e5, 1e-3, **SETTINGS),
        PrivateAdditiveRegressor(1e5, 1e-3, target_bounds=(-500.0, 500.0), **SETTINGS),
    ],
    expected_failed_checks=lambda _: EXPECTED_FAILURES,
)
def test_scikit_learn_accepts_both_models(estimator, check):
    check(estimator)
