"""scikit-learn's own checks for the sparse estimators, each expected failure with its reason."""

import warnings

from sklearn.utils.estimator_checks import parametrize_with_checks

from discreet import PrivacyWarning, PrivateLasso, PrivateSparseLogisticRegression
from discreet.solvers.vertices.frank_wolfe import FrankWolfe

NOISE = "two fits of a private model draw different noise, even on the same data"
SHAPE = "targets of shape (n, 1) are refused; for classes they are accepted, but the noise differs"
EXPECTED_FAILURES = dict.fromkeys(
    [
        "check_fit_idempotent",
        "check_regressors_int",
        "check_regressor_data_not_an_array",
        "check_classifier_data_not_an_array",
    ],
    NOISE,
) | {"check_supervised_y_2d": SHAPE}


def estimators():
    """So much budget that noise does not decide whether a check passes; it is still drawn."""
    solver = FrankWolfe(n_iterations=200, choice="vertices")
    yield PrivateLasso(1e4, 1e-6, target_bounds=(-5, 5), l1_radius=20.0, feature_bound=4.0, solver=solver)
    yield PrivateSparseLogisticRegression(1e4, 1e-6, feature_bound=4.0, l1_radius=60.0, solver=solver)


@parametrize_with_checks(list(estimators()), expected_failed_checks=lambda _: EXPECTED_FAILURES)
def test_scikit_learn_contract(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        check(estimator)
