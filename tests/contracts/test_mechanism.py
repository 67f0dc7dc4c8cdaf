"""The contract of mechanisms: the noise that is added is the noise that the event says, and one call is one record.

The law of each answer is computed here from the event and the declared sensitivity alone, so that a mechanism cannot
agree with itself by mistake. Scales 2/3 and 3/2 of the stated one, and the twin with half the noise, are rejected.
"""

import dataclasses
import importlib
import inspect
import math
import pickle
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from scipy import stats

from discreet import mechanisms
from discreet.mechanisms.additive import (
    AdditiveMechanism,
    GaussianMechanism,
    LaplaceMechanism,
    PureMechanism,
    SymmetricGaussianMechanism,
)
from discreet.mechanisms.gamma_norm import GammaNormMechanism
from discreet.mechanisms.gibbs import Ball, Envelope, GibbsMechanism, LatticeGaussian
from discreet.mechanisms.level_selection import LeveledSelection, LeveledTotals, largest_range
from discreet.mechanisms.noisy_vector import NoisyVectorPlan
from discreet.mechanisms.recording import Recorder, recorded_by
from discreet.mechanisms.samplers.entropy import fresh_entropy, insecure_noise
from discreet.mechanisms.selection import ExponentialMechanism, LaplaceNoisyMax
from discreet.mechanisms.sparse_vector import SparseVector, StableRelease
from discreet.mechanisms.tree import TreeMechanism
from discreet.mechanisms.voting import ABSTAINED, ConfidentPlurality, NoisyPlurality
from discreet.privacy import events
from discreet.privacy.accounting import accountants
from discreet.privacy.guarantee import Neighboring, Sensitivity

LIKELY, UNLIKELY = 1e-3, 1e-9
N_NUMBERS, N_CHOICES = 2000, 3000
#: What the noise of a mechanism follows from, and the factor that halves the noise.
NOISE = {
    "noise_multiplier": 0.5, "check_multiplier": 0.5, "vote_multiplier": 0.5, "threshold_scale": 0.5,
    "query_scale": 0.5, "epsilon": 2.0,
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A mechanism, one question to it, and the law of the answer.

    Attributes
    ----------
    ask : makes one release and returns numbers or the index of an outcome.
    law : of the answer if the noise is so many times what the event says: a continuous law, or chances of outcomes.
    calls : how many calls a recorder hears of one question.
    declared : the distance between neighbors' inputs for which the event is stated; None where it is built in.
    """

    mechanism: Any
    ask: Callable[[Any, Any], Any]
    law: Callable[[Any, float], Any]
    calls: int = 1
    declared: float | None = None


def multipliers(event):
    """Noise multipliers of all Gaussian releases in an event, in order."""
    return [
        leaf.event.noise_multiplier
        for leaf, _ in events.flatten(event)
        if isinstance(leaf, events.Discretized)
    ]


def gaussian_law(mechanism, factor):
    return stats.norm(scale=multipliers(mechanism.event)[0] * mechanism.sensitivity.value * factor)


def laplace_law(mechanism, factor):
    return stats.laplace(scale=mechanism.sensitivity.value / mechanism.event.epsilon * factor)


def gamma_law(mechanism, factor):
    """The norm of noise whose density falls with the norm alone."""
    return stats.gamma(mechanism.size, scale=mechanism.sensitivity.value / mechanism.event.epsilon * factor)


def zeros(mechanism, entropy):
    return mechanism.release(np.zeros(mechanism.size), entropy)


def symmetric(mechanism, entropy):
    """Entries of equal scale: those beside the diagonal times sqrt(2)."""
    noisy = mechanism.release(np.zeros((mechanism.order, mechanism.order)), entropy)
    return np.append(np.diag(noisy), math.sqrt(2) * noisy[np.tril_indices(mechanism.order, -1)])


def softmax_law(scores, score_range):
    def law(mechanism, factor):
        weights = np.exp(np.array(scores) * mechanism.event.epsilon / (score_range(mechanism) * factor))
        return weights / weights.sum()

    return law


def noisy_max_law(gap):
    """Of two scores: the difference of two Laplace variates exceeds x with chance e^(-x/b) (2 + x/b) / 4."""

    def law(mechanism, factor):
        x = gap * mechanism.event.epsilon / (mechanism.score_range * factor)
        return [1 - math.exp(-x) * (2 + x) / 4, math.exp(-x) * (2 + x) / 4]

    return law


def leveled(mechanism, entropy):
    return mechanism.select(LeveledTotals(np.array([40]), mechanism.shift, 1 << 10), entropy)


def stable_law(mechanism, factor):
    """The largest chance of release that the event allows at a distance of 2."""
    epsilon, chance = mechanism.event.epsilon / factor, mechanism.event.delta
    for _ in range(2):
        closing = 1 - math.exp(-epsilon) * (1 - chance - mechanism.event.delta)
        chance = min(math.exp(epsilon) * chance + mechanism.event.delta, closing, 1.0)
    return [1 - chance, chance]


def sparse_law(mechanism, factor):
    """Both noises are geometric; a question is refused where its noise exceeds the threshold's by 8 or more."""
    a1, a2 = (math.exp(-1 / (scale * factor)) for scale in (mechanism.threshold_scale, mechanism.query_scale))
    refused = a2**8 * (1 - a1) / (1 - a1 * a2)
    return [refused, 1 - refused]


def plurality_law(mechanism, factor):
    """Votes 6 to 5, and a check of the 6 where there is one."""
    scales = multipliers(mechanism.event)
    wins = stats.norm.cdf(1 / (scales[-1] * math.sqrt(2) * mechanism.changed * math.sqrt(2) * factor))
    passes = 1.0
    if isinstance(mechanism, ConfidentPlurality):
        passes = stats.norm.sf((mechanism.threshold - 6) / (scales[0] * mechanism.changed * factor))
    return [wins * passes, (1 - wins) * passes, 1 - passes]


def vote(mechanism, entropy):
    """The winner, or 2 where there is none."""
    code = int(mechanism.start(entropy).answer(np.array([[6, 5]]))[0])
    return 2 if code == ABSTAINED else code


def tree(mechanism, entropy):
    run = mechanism.start()
    for _ in range(2):  # after two steps one block is left
        run.add([0.0], entropy)
    return run.prefix()


def gibbs(mechanism, entropy):
    envelope = Envelope(
        LatticeGaussian(np.zeros(1), np.eye(1), mechanism.grid), (0.0,), 0.6 + mechanism.epsilon / 2
    )
    return mechanism.release(lambda point: mechanism.epsilon / 2 * float(point[0]), lambda: envelope, entropy)


def gibbs_law(mechanism, factor):
    """Energies that run from -epsilon / 2 to epsilon / 2 over [-1, 1]: a truncated exponential law, reversed."""
    rate = mechanism.event.epsilon / (2 * factor)
    return stats.truncexpon(b=2 * rate, loc=-1.0, scale=1 / rate)


CASES = [
    Case(GaussianMechanism(Sensitivity(2.0), 1.5, 4), zeros, gaussian_law, 1, 2.0),
    Case(LaplaceMechanism(Sensitivity(2.0, norm=1), 1.5, 4), zeros, laplace_law, 1, 2.0),
    Case(GammaNormMechanism(Sensitivity(2.0), 1.5, 4), lambda m, e: [np.linalg.norm(m.release(np.zeros(4), e))],
         gamma_law, 1, 2.0),
    Case(SymmetricGaussianMechanism(Sensitivity(2.0), 1.5, 3), symmetric, gaussian_law, 1, 2.0),
    Case(TreeMechanism(Sensitivity(2.0), 1.5, 1, 8), tree, gaussian_law, 2, 2.0),
    Case(ExponentialMechanism(2.0, 1.0, 3), lambda m, e: m.select([0.0, 3.0, 6.0], e),
         softmax_law([0.0, 3.0, 6.0], lambda m: m.score_range), 1, 2.0),
    Case(LaplaceNoisyMax(2.0, 1.0, 2), lambda m, e: m.select([3.0, 0.0], e), noisy_max_law(3.0), 1, 2.0),
    Case(LeveledSelection(largest_range(1.0, 6), 1.0, 1), leveled, softmax_law([-40, 40], lambda m: m.step_range), 1,
         float(largest_range(1.0, 6))),
    Case(GibbsMechanism(4.0, (Ball((0.0,), 1.0),), 2.0**-20), gibbs, gibbs_law, 1, 4.0),
    Case(StableRelease(1.0, 0.05), lambda m, e: int(m.release(1, 2, e) is not None), stable_law, 1, 1.0),
    Case(SparseVector(1.0, 3.0, 3.0, 8, 1), lambda m, e: m.start(e).ask(m.margin + 8), sparse_law, 1, 1.0),
    Case(NoisyPlurality(0.5, 2, 1), vote, plurality_law),
    Case(ConfidentPlurality(5, 1.0, 1.0, 2, 1, 1), vote, plurality_law, 2),
]  # fmt: skip
each = pytest.mark.parametrize("case", CASES, ids=lambda case: type(case.mechanism).__name__)


def twin_of(mechanism):
    """The same mechanism with half the noise; its event says so."""
    changes = {name: getattr(mechanism, name) * by for name, by in NOISE.items() if hasattr(mechanism, name)}
    assert changes
    return dataclasses.replace(mechanism, **changes)


def sampled(case, mechanism):
    """Answers of many releases: numbers, or how often each outcome came."""
    entropy, law = fresh_entropy(), case.law(mechanism, 1.0)
    if hasattr(law, "cdf"):
        answers = []
        while len(answers) < N_NUMBERS:
            answers.extend(case.ask(mechanism, entropy))
        return np.array(answers)
    return np.bincount([case.ask(mechanism, entropy) for _ in range(N_CHOICES)], minlength=len(law))


def agreement(sample, law):
    """The p-value of a sample under a law."""
    if hasattr(law, "cdf"):
        return stats.kstest(sample, law.cdf).pvalue
    possible = np.array(law) > 0
    assert not sample[~possible].any()
    return stats.chisquare(sample[possible], np.array(law)[possible] * sample.sum()).pvalue


@each
def test_the_noise_is_what_the_event_says(case):
    sample = sampled(case, case.mechanism)
    assert agreement(sample, case.law(case.mechanism, 1.0)) > LIKELY
    for wrong in (2 / 3, 3 / 2):
        assert agreement(sample, case.law(case.mechanism, wrong)) < UNLIKELY


@each
def test_half_the_noise_is_caught(case):
    """By its answers, if it keeps quiet; by its price, if it says so."""
    twin = twin_of(case.mechanism)
    assert agreement(sampled(case, twin), case.law(case.mechanism, 1.0)) < UNLIKELY
    honest, sharper = (
        accountants.epsilon(mechanism.event, 0.1, Neighboring.REPLACE_ONE)
        for mechanism in (case.mechanism, twin)
    )
    assert sharper > 1.5 * honest > 0


@each
def test_every_release_is_heard_once_with_its_price_and_sensitivity(case):
    recorder = Recorder()
    with insecure_noise(0), recorded_by(recorder):
        case.ask(case.mechanism, fresh_entropy())
    assert len(recorder.calls) == case.calls
    priced = [call.event for call in recorder.calls if call.event is not None]
    together = events.Composed(tuple(priced))
    assert sorted(map(repr, events.flatten(together))) == sorted(
        map(repr, events.flatten(case.mechanism.event))
    )
    for call in recorder.calls:
        assert call.mechanism == type(case.mechanism).__name__
        assert call.law is case.mechanism
        assert (call.sensitivity is None) != (call.score_range is None)
        distance = call.score_range if call.sensitivity is None else call.sensitivity.value
        if case.declared is not None:
            assert case.declared <= distance < case.declared * (1 + 1e-6)
    with recorded_by(Recorder()), pytest.raises(RuntimeError, match="private inputs"):
        case.ask(case.mechanism, fresh_entropy())


@each
def test_mechanisms_are_frozen_values(case):
    mechanism = case.mechanism
    assert pickle.loads(pickle.dumps(mechanism)) == mechanism
    assert hash(mechanism) == hash(dataclasses.replace(mechanism))
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(mechanism, dataclasses.fields(mechanism)[0].name, 1.0)
    assert events.Event.from_dict(mechanism.event.to_dict()) == mechanism.event


@each
@pytest.mark.parametrize("nonsense", [0.0, -1.0, math.nan])
def test_noise_that_is_none_is_refused(case, nonsense):
    if isinstance(case.mechanism, GibbsMechanism):
        return  # its plan checks epsilon, which the energies are made for
    for name in NOISE:
        if hasattr(case.mechanism, name):
            with pytest.raises(ValueError):
                dataclasses.replace(case.mechanism, **{name: nonsense})


def test_every_mechanism_is_listed():
    """A mechanism is a class with an event that adds noise."""
    found = set()
    for module in pkgutil.iter_modules(mechanisms.__path__):
        home = importlib.import_module(f"discreet.mechanisms.{module.name}")
        for _, kind in inspect.getmembers(home, inspect.isclass):
            own = kind.__module__ == home.__name__ and not kind.__name__.startswith("_")
            if (
                own
                and dataclasses.is_dataclass(kind)
                and isinstance(getattr(kind, "event", None), property | cached_property)
            ):
                found.add(kind)
    bases = {AdditiveMechanism, PureMechanism, NoisyVectorPlan}
    assert found - bases == {type(case.mechanism) for case in CASES}
