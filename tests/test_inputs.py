"""Wrong arguments are explained alike, whoever is given them."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import Ridge

import discreet

RATINGS = sp.csr_matrix(np.ones((1000, 10)))
PLANS = {
    "ridge": lambda pair: discreet.PrivateRidge(target_bounds=pair).plan(1000, 2),
    "stream": lambda pair: discreet.PrivateOnlineLinearModel(2, 10, target_bounds=pair).plan(),
    "transfer": lambda pair: discreet.PrivateTransferRegressor(Ridge(), pair).plan(1000, 10),
    "ratings": lambda pair: discreet.PrivateMatrixCompletion("profile", rating_bounds=pair).fit(RATINGS),
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (3.0, r"bounds must be two numbers \(lowest, highest\), got 3.0"),
        ((1, 2, 3), r"bounds must be two numbers \(lowest, highest\), got \(1, 2, 3\)"),
        ((2, 1), "lowest < highest"),
        ((1, 1), "lowest < highest"),
        ((0, float("inf")), "bounds must be a finite number"),
        (("0", 1), "bounds must be a number"),
    ],
)
def test_a_range_is_two_numbers_in_order(plan, pair, message):
    with pytest.raises((ValueError, TypeError), match=message):
        plan(pair)
