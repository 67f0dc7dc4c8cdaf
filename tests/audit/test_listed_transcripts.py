"""The epsilon of a pair by listing all transcripts: probabilities add up, promises hold, and twins break them."""

import math

import numpy as np
import pytest

from discreet import PrivateLinearSVC, PrivateLogisticRegression
from discreet.audit import attack as attacking
from discreet.audit import catalog, subjects, workflow
from discreet.audit.transcripts import exact_epsilon, pair_epsilon, transcript_laws
from discreet.mechanisms.recording import Recorder, next_answer, recorded_by
from discreet.mechanisms.samplers.entropy import fresh_entropy, insecure_noise
from discreet.privacy.accounting import accountants
from discreet.privacy.guarantee import Neighboring
from discreet.solvers.sampling.grid_walk import GridWalk, WalkEnd

DELTA = subjects.DELTA
LISTED = {
    subject.name: subject
    for part in (
        catalog.mechanisms,
        workflow.transfer,
        workflow._bounds,
        lambda: [workflow._walk()],
        catalog.streams,
    )
    for subject in part()
    if transcript_laws(subject.run, subject.first, subject.second, most=1000) is not None
}


def test_what_can_be_listed_is():
    expected = {
        "ExponentialMechanism",
        "StableRelease",
        "ConfidentPlurality",
        "private_quantiles",
        "private_domains",
    }
    assert expected | {"GridWalk, 1 coefficient", "PrivateFTRL, sampling"} <= set(LISTED)
    assert "GaussianMechanism" not in LISTED


@pytest.mark.parametrize("name", LISTED)
def test_probabilities_add_up_and_the_pair_keeps_the_promise(name):
    subject = LISTED[name]
    laws = transcript_laws(subject.run, subject.first, subject.second)
    assert [float(law.sum()) for law in laws] == pytest.approx([1.0, 1.0], abs=1e-6)
    claimed = accountants.epsilon(subject.event, DELTA, subject.relation)
    worth = pair_epsilon(subject.run, subject.first, subject.second, DELTA)
    assert claimed / 2 < worth <= claimed
    assert pair_epsilon(subject.run, subject.first, subject.second, DELTA, share=0.5) > claimed


def test_the_epsilon_of_two_laws():
    p, q = np.array([0.5, 0.5]), np.array([0.25, 0.75])
    assert exact_epsilon(p, q, 0.0) == pytest.approx(math.log(2))
    assert exact_epsilon(p, q, 0.25) == 0.0
    assert exact_epsilon(p, q, 0.1) == pytest.approx(math.log(0.4 / 0.25))
    assert exact_epsilon(np.array([1.0]), np.array([0.0]), 0.0) == 50.0


def test_listing_ends_at_numbers_and_at_too_many_transcripts():
    laplace, choice = (next(s for s in catalog.mechanisms() if s.name.startswith(n)) for n in ("Lap", "Exp"))
    assert pair_epsilon(laplace.run, laplace.first, laplace.second, DELTA) is None
    assert pair_epsilon(choice.run, choice.first, choice.second, DELTA, most=1) is None


def test_a_program_whose_questions_depend_on_more_than_answers_is_found_out():
    choice = next(s for s in catalog.mechanisms() if s.name == "ExponentialMechanism")

    def asks_twice(scores):
        choice.run(scores)
        return choice.run(scores) if scores[0] > 0 else 0.0

    with pytest.raises(ValueError, match="replay"):
        pair_epsilon(asks_twice, [1.0, 0.0], [0.0, 0.0], DELTA)


@pytest.mark.parametrize("estimator", [PrivateLinearSVC, PrivateLogisticRegression])
@pytest.mark.parametrize("relation", [Neighboring.REPLACE_ONE, Neighboring.ZERO_OUT])
def test_a_draw_from_a_ball_shows_more_than_half_of_its_claim(estimator, relation):
    model = estimator(
        1.0, DELTA, solver=subjects.brief("exponential"), classes=[0, 1], neighboring=relation.value
    )
    subject = subjects.of(model)
    sides = subject.first, subject.second
    claimed = accountants.epsilon(subject.event, DELTA, relation)
    assert claimed / 2 < pair_epsilon(subject.run, *sides, DELTA) < 0.75 * claimed
    assert pair_epsilon(subject.run, *sides, DELTA, share=0.5) > 1.2 * claimed


@pytest.mark.lemma("exponential-sampling.md#theorem-9")
def test_a_walk_is_as_close_to_its_limit_as_promised():
    """Theorem 9 of docs/proofs/exponential-sampling.md, with the law of the walk computed."""
    walk = GridWalk(2, 2.0, rate=0.7, lipschitz=2.0, score_range=2.0, closeness=0.3)
    end = WalkEnd(walk, walk.certified_steps)
    exponents = walk.exponents(lambda point: 2.0 * float(np.abs(point).max()), end.places)
    limit = np.exp(-exponents) / np.exp(-exponents).sum()
    assert len(limit) == walk.points_per_axis**2 > 4
    assert np.abs(np.log(end.law(exponents) / limit)).max() <= 0.3
    short = WalkEnd(walk, 1).law(exponents)
    assert np.count_nonzero(short) <= 5  # one step reaches the neighbors only


def test_the_law_of_a_walk_is_what_the_walk_does():
    end = WalkEnd(GridWalk(1, 2.0, rate=1.0, lipschitz=2.5, score_range=2.0), 7)
    law = end.law(end.walk.exponents(lambda point: 2.5 * float(point[0]), end.places))
    entropy, n = fresh_entropy(), 3000
    ends = np.array([end.release(lambda point: 2.5 * float(point[0]), entropy)[0] for _ in range(n)])
    seen = np.array([np.isclose(ends, end.walk.point(place)[0]).mean() for place in end.places])
    # Bernstein: farther off with probability below 2 exp(-6.5^2 / 2) + 2 exp(-3 * 15 / 2), less than 1e-8 per cell.
    allowed = 6.5 * np.sqrt(law * (1 - law) / n) + 15 / n
    assert np.all(np.abs(seen - law) <= allowed)


def test_the_walk_of_a_huge_grid_records_its_corners():
    end = WalkEnd(GridWalk(20, 2.0, rate=1.0, lipschitz=3.0, score_range=2.0), 1)
    assert end.places.shape == (4096, 20)
    with pytest.raises(ValueError, match="4096"):
        end.law(np.zeros(4096))


@pytest.mark.lemma("selection.md#lemma-3")
def test_the_winner_of_a_secret_number_of_tries_has_the_stated_density():
    """The chance that the winner's score is below t is f(Phi(t)) by definition; the density is its derivative."""
    subject = next(s for s in workflow.workflow() if s.name == "PrivateSearchCV, tries")
    grid = np.linspace(-40.0, 42.0, 8201)
    weights = np.exp([[subject.log_density(side, [t], 1.0) for t in grid] for side in (0.0, 1.0)])
    totals = weights.sum(axis=1)
    assert totals[0] == pytest.approx(totals[1], rel=1e-6)  # up to one constant for all data
    shown = attacking.released(subject.run, 1.0, 1500, seed=11)[:, 0]
    expected = np.interp(np.sort(shown), grid, np.cumsum(weights[1]) / totals[1])
    gap = np.abs(expected - (np.arange(1500) + 0.5) / 1500).max()
    assert gap < 0.07  # Dvoretzky, Kiefer, Wolfowitz, Massart: larger with probability below 1e-6


def test_an_answer_that_is_foretold_need_not_be_drawn():
    class Told(Recorder):
        def next_answer(self):
            return np.array([1])

    end = WalkEnd(GridWalk(1, 2.0, rate=0.5, lipschitz=1.0, score_range=2.0), 10**9)  # would take an hour
    with insecure_noise(0), recorded_by(Told()):
        assert next_answer(fresh_entropy()).tolist() == [1]
        assert end.release(lambda point: float(point[0]), fresh_entropy()) == end.walk.point(np.array([1]))
    assert next_answer(fresh_entropy()) is None


@pytest.mark.lemma("audit.md#proposition-3")
def test_no_log_concave_density_shows_more_than_a_log_affine_one():
    """Proposition 3 of docs/proofs/audit.md, and the number that it gives for a linear change at epsilon 1."""
    x = np.linspace(-1, 1, 1001)

    def worth(log_density):
        q = np.exp(log_density - log_density.max())
        p = q * np.exp(x / 2)
        laws = p / p.sum(), q / q.sum()
        return max(exact_epsilon(*laws, DELTA), exact_epsilon(*laws[::-1], DELTA))

    best = max(worth(k * x) for k in np.linspace(-3, 3, 121))
    assert best == pytest.approx(0.4475, abs=1e-3)
    rng = np.random.default_rng(0)
    for _ in range(300):  # the least of a few lines, or a parabola: concave
        slopes, heights = rng.normal(0, 3, size=(2, 4))
        lines = np.min(np.outer(x, slopes) + heights, axis=1)
        assert worth(lines) <= best + 1e-3
        assert worth(-rng.exponential(2) * (x - rng.uniform(-2, 2)) ** 2) <= best + 1e-3
