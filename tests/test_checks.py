"""Wrong arguments are explained alike, whoever is given them."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import Ridge

import discreet
from discreet import _checks

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


@pytest.mark.parametrize(
    ("check", "kind"),
    [
        (lambda: _checks.real("l2", "1"), _checks.ParameterTypeError),
        (lambda: _checks.real("l2", -1.0, above=0), _checks.ParameterError),
        (lambda: _checks.real("l2", 10**400), _checks.ParameterError),
        (lambda: _checks.count("l2", 1.5), _checks.ParameterTypeError),
        (lambda: _checks.count("l2", 0), _checks.ParameterError),
        (lambda: _checks.interval("l2", (1, 0)), _checks.ParameterError),
        (lambda: _checks.choice("l2", "much", ("little", "none")), _checks.ParameterError),
    ],
)
def test_errors_name_the_parameter_and_survive_a_pickle(check, kind):
    with pytest.raises((ValueError, TypeError)) as caught:
        check()
    error = pickle.loads(pickle.dumps(caught.value))
    assert type(error) is kind
    assert error.name == "l2"
    assert str(error) == str(caught.value)
    assert str(error).startswith("l2 must be ")


def test_hints_are_alternatives_that_survive_a_pickle():
    error = _checks.ParameterError("X", "has gaps", "fill them", _checks.Setting("bad_rows", "null"))
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) == "X has gaps; fill them or pass bad_rows='null'"
    assert [type(hint) for hint in again.hint] == [str, _checks.Setting]
