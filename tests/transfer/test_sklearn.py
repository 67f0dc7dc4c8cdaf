"""scikit-learn's own checks of the classifier, each expected failure with its reason.

The checks call ``fit(X, y)``. Without public rows that is a fit under label privacy, where the rows themselves are
public and serve as questions; with ``X_public`` everything after the votes is the same.
"""

import warnings

import pytest
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from discreet import PrivacyWarning, PrivateTransferClassifier

NOISE = "two fits draw different noise and split the records into different chunks, even on the same data"
EXPECTED_FAILURES = {
    "check_fit_idempotent": NOISE,
    "check_supervised_y_2d": NOISE,
    "check_classifier_data_not_an_array": NOISE,
}


# So much budget that noise does not decide whether a check passes; it is still drawn.
MODEL = PrivateTransferClassifier(
    DecisionTreeClassifier(), n_teachers=2, epsilon=1e4, delta=1e-3, aggregator="shares", label_private=True
)


@pytest.mark.filterwarnings("ignore::discreet.PrivacyWarning")
@parametrize_with_checks([MODEL], expected_failed_checks=lambda _: EXPECTED_FAILURES)
def test_scikit_learn_contract(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        check(estimator)
