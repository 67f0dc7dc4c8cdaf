"""Pairs for draws from balls and for mixtures: distances as declared, and twins that are caught."""

import dataclasses

import numpy as np
import pytest

from discreet import PrivateLinearSVC, PrivateSimplexClassifier, PrivateSimplexRegressor
from discreet.audit import attack as attacking
from discreet.audit import catalog, subjects
from discreet.audit.attack import prepared
from discreet.audit.replay import replay
from discreet.audit.trace import fitting
from discreet.audit.transcripts import pair_epsilon
from discreet.audit.worst_pairs import ball_cases, draws_from_ball
from discreet.mechanisms.samplers.entropy import fresh_entropy, insecure_noise
from discreet.privacy.guarantee import Neighboring
from discreet.solvers.sampling.envelopes import Energy


@pytest.mark.parametrize("relation", list(Neighboring))
@pytest.mark.parametrize("solver", ["exponential", "localized"])
def test_a_record_in_a_ball_changes_the_energy_by_its_whole_range(solver, relation):
    model = PrivateLinearSVC(
        0.5, 1e-2, solver=subjects.brief(solver), neighboring=relation.value, feature_bound=3.0
    )
    assert draws_from_ball(model)
    assert not draws_from_ball(PrivateLinearSVC())
    for case, pair in ball_cases(model):
        found = replay(fitting(case), pair.first, pair.second)
        assert found.passed, str(found)
        assert 0.99 < found.worst_input_ratio <= 1.0


@pytest.mark.nightly
def test_half_the_noise_around_a_noisy_minimizer_is_caught():
    model = PrivateLinearSVC(1.0, 1e-2, solver=subjects.brief("localized"), classes=[0, 1])
    subject = subjects.of(model)
    assert not attacking.attacked(subject, 20, seed=2).refuted
    assert attacking.attacked(subject, 130, seed=3, share=0.5).refuted


def test_a_prepared_draw_is_the_draw_of_a_run():
    model = PrivateLinearSVC(1.0, 1e-2, solver=subjects.brief("exponential"), classes=[0, 1])
    planned = subjects.of(model).first
    with insecure_noise(5):
        run = planned.plan.run(planned.records, fresh_entropy()).theta
    draws = planned.plan.prepared(planned.records)
    for _ in range(2):  # what was prepared keeps nothing of an earlier draw
        with insecure_noise(5):
            entropy = fresh_entropy()
            assert np.array_equal(np.array([draw(entropy) for draw in draws]), run)


@pytest.mark.parametrize("intercept", [True, False])
def test_energies_at_many_points_are_those_at_each(intercept):
    X = np.random.default_rng(0).normal(size=(6, 3))
    X[2] = np.nan  # a null record
    model = PrivateLinearSVC(
        1.0,
        1e-2,
        solver=subjects.brief("exponential"),
        classes=[0, 1],
        fit_intercept=intercept,
        bad_rows="null",
    )
    planned = prepared(model, (X, np.array([0, 1, 0, 1, 1, 0])))
    energy = Energy(planned.records[0], planned.plan.problem.loss, 0.7, 0.3)
    points = np.random.default_rng(1).normal(size=(20, 3 + intercept))
    each = np.array([energy(point) for point in points])
    assert np.ptp(energy.at(points) - each) < 1e-12 * np.abs(each).max()


@pytest.mark.parametrize("kind", [PrivateSimplexClassifier, PrivateSimplexRegressor])
def test_mixtures_show_half_of_their_claim_and_break_it_with_half_the_noise(kind):
    options = {"classes": [0, 1]} if kind is PrivateSimplexClassifier else {"target_bounds": (-1.0, 1.0)}
    subject = subjects.of(kind(1.0, 1e-2, **options))
    sides = subject.first, subject.second
    assert 0.5 < pair_epsilon(subject.run, *sides, subjects.DELTA) < 1.0
    assert pair_epsilon(subject.run, *sides, subjects.DELTA, share=0.5) > 1.1
    assert replay(subject.program, *subject.strained).worst_input_ratio > 0.95


def test_one_of_several_pairs_is_chosen_by_what_it_is_worth():
    """A lead of none hides what a lead of five shows; one of thirty is never overcome."""
    vote = next(s for s in catalog.mechanisms() if s.name == "NoisyPlurality")
    tried = [dataclasses.replace(vote, first=[20 + lead, 20], second=[19 + lead, 21]) for lead in (0, 5, 30)]
    assert subjects.most_different(tried).first == [25, 20]
