"""The noise printed by Talwar, Thakurta and Zhang: as printed, sound, and far more than is needed."""

import math

import numpy as np
import pytest

from discreet.losses import HuberHinge, Logistic
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.accounting import accountants
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.sets import L1Ball, L2Ball
from discreet.solvers import base
from discreet.solvers.gradients.mirror_descent import MirrorDescent
from discreet.solvers.papers import TalwarFrankWolfe, TalwarMirrorDescent

N = 10_000


def problem(loss, n_models=1):
    return Problem(loss, Bounds(1.0, False), N, 5, n_models, geometry=L2Ball(2.0, 5))


@pytest.mark.parametrize("relation", list(Neighboring))
@pytest.mark.parametrize(
    ("rule", "inside"), [(TalwarMirrorDescent(20), 20), (TalwarFrankWolfe(20), N)], ids=["mirror", "FW"]
)
def test_the_noise_is_the_printed_one_under_every_relation(rule, inside, relation):
    """The Huber hinge has slope 1 and rows have norm 1: L = 1, but for rounding, and noise is on a grid."""
    plan = rule.plan(problem(HuberHinge()), Guarantee(0.5, 1e-6, relation))
    printed = math.sqrt(32 * 20) * math.log(inside / 1e-6) / 0.5
    assert plan.release.stddev == pytest.approx(printed, rel=1e-5)


@pytest.mark.parametrize("rule", [TalwarMirrorDescent(20), TalwarFrankWolfe(20)], ids=["mirror", "FW"])
@pytest.mark.parametrize(("epsilon", "least"), [(0.1, 12.0), (1.0, 11.0)])
def test_it_is_sound_and_loose(rule, epsilon, least):
    guarantee = Guarantee(epsilon, 1e-6)
    loose = rule.plan(problem(HuberHinge()), guarantee)
    assert accountants.delta(loose.event, epsilon, guarantee.neighboring) <= 1e-6
    tight = MirrorDescent(n_iterations=20).plan(problem(HuberHinge()), guarantee)
    assert loose.release.stddev / tight.release.stddev > least


def test_several_models_are_as_many_steps():
    guarantee = Guarantee(1.0, 1e-6)
    one, three = (TalwarMirrorDescent(20).plan(problem(Logistic(), k), guarantee) for k in (1, 3))
    ratio = math.sqrt(3) * math.log(60 / 1e-6) / math.log(20 / 1e-6)
    assert three.release.stddev / one.release.stddev == pytest.approx(ratio, rel=1e-6)


@pytest.mark.parametrize("name", ["mirror-descent-talwar", "frank-wolfe-talwar"])
def test_by_name_it_fits_and_stays_in_the_set(name):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(N, 5))
    inside = L1Ball(2.0, 5)
    task = Problem(Logistic(), Bounds(1.0, False), N, 5, geometry=inside)
    plan = base.resolve(name).plan(task, Guarantee(10.0, 1e-6))
    records = ArrayRecords(rows, np.sign(rows[:, 0]), task.bounds)
    release = plan.run([records], fresh_entropy())
    assert inside.gauge(release.theta[0]) <= 1 + 1e-9
    assert release.theta[0, 0] > 0.5
    assert release.certificate.expected > 0


def test_delta_must_not_be_zero():
    for rule in (TalwarMirrorDescent(5), TalwarFrankWolfe(5)):
        with pytest.raises(ValueError, match="delta"):
            rule.plan(problem(Logistic()), Guarantee(1.0, 0.0))
