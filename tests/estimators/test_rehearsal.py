"""Forecasts read no data, rank budgets rightly, and warn where everything is noise."""

import warnings

import numpy as np
import pytest

from discreet import BudgetExceeded, Ledger, PrivateLogisticRegression, PrivateRidge
from discreet.cli import main
from discreet.estimators.linear import HOPELESS, NoiseWarning, warn_if_noise
from discreet.estimators.rehearsal import simulate
from discreet.privacy.accounting.gaussian import gaussian_mu
from discreet.problem import noise_over_signal


def ratio(n, p, epsilon, delta=None):
    plan = PrivateLogisticRegression(epsilon, delta).plan(n, p)
    return noise_over_signal(plan.problem, plan.guarantee), plan


def test_ratio_grows_with_columns_and_falls_with_records_and_epsilon():
    base = ratio(1000, 10, 1.0)[0]
    assert ratio(1000, 40, 1.0)[0] > base > ratio(4000, 10, 1.0)[0]
    assert ratio(1000, 10, 3.0)[0] < base
    assert ratio(1000, 9, 1.0, 1e-6)[0] == pytest.approx(2 * np.sqrt(10) / 1000 / gaussian_mu(1.0, 1e-6))


def test_warning_speaks_of_public_facts_only():
    plan = ratio(200, 50, 0.3)[1]
    with pytest.warns(NoiseWarning, match=r"200 records and 51 coefficients"):
        warn_if_noise(plan.problem, plan.guarantee)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan = ratio(20_000, 10, 1.0)[1]
        warn_if_noise(plan.problem, plan.guarantee)


def test_a_fit_warns_before_it_charges(tmp_path):
    ledger = Ledger(tmp_path / "budget", epsilon=0.01, delta=1e-6)
    model = PrivateLogisticRegression(0.1, 1e-6, classes=[0, 1], ledger=ledger)
    with pytest.warns(NoiseWarning, match="mostly noise"), pytest.raises(BudgetExceeded):
        model.fit(np.eye(8), np.arange(8) % 2)


def test_hopeless_fits_are_guesses_and_others_are_not():
    model = PrivateLogisticRegression(feature_bound=2.0)
    hopeless, good = simulate(model, 500, 20, epsilons=(0.03, 10.0), repeats=4, random_state=0)
    assert ratio(500, 20, 0.03)[0] > HOPELESS > ratio(500, 20, 10.0)[0]
    assert hopeless.mean < 0.7 < good.mean
    (ridge,) = simulate(
        PrivateRidge(target_bounds=(0, 1), feature_bound=2.0), 20_000, 5, epsilons=(3.0,), random_state=0
    )
    assert 0.7 < ridge.mean < 0.95
    (three,) = simulate(model, 20_000, 5, 3, epsilons=(5.0,), repeats=1, random_state=0)
    assert 0.6 < three.mean < 0.9


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match="attainable"):
        simulate(PrivateLogisticRegression(), 100, 2, attainable=0.4)


def test_command_line(capsys):
    assert (
        main(
            [
                "plan",
                "--rows",
                "3000",
                "--columns",
                "4",
                "--epsilon",
                "1",
                "--simulate",
                "--seed",
                "0",
                "--repeats",
                "1",
            ]
        )
        == 0
    )
    out = capsys.readouterr().out
    assert "0.85 for the best model" in out
    assert out.count("epsilon ") >= 4
    assert main(["plan", "--rows", "100", "--columns", "40", "--epsilon", "0.2"]) == 0
    assert "mostly noise" in capsys.readouterr().err
