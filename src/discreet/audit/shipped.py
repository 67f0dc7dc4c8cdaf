"""Mechanisms on the pairs that their proofs call the worst."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from discreet.audit.subjects import DELTA, EPSILON, Subject, most_different
from discreet.mechanisms.additive import GaussianMechanism, LaplaceMechanism
from discreet.mechanisms.entropy import fresh_entropy
from discreet.mechanisms.gamma_norm import GammaNormMechanism
from discreet.mechanisms.leveled import LeveledSelection, LeveledTotals, largest_range
from discreet.mechanisms.selection import ExponentialMechanism, LaplaceNoisyMax
from discreet.mechanisms.sparse_vector import SparseVector
from discreet.mechanisms.stability import StableRelease
from discreet.mechanisms.symmetric import SymmetricGaussianMechanism
from discreet.mechanisms.tree import TreeMechanism
from discreet.mechanisms.voting import ConfidentPlurality, NoisyPlurality
from discreet.privacy.calibration import calibrate
from discreet.privacy.events import Discretized, Event, Gaussian, Repeated
from discreet.privacy.guarantee import Guarantee, Neighboring, Sensitivity

ANY = Neighboring.REPLACE_ONE
_PROMISE = Guarantee(EPSILON, DELTA)


def mechanisms() -> Iterator[Subject]:
    """Every mechanism on inputs at the declared distance."""
    yield from _additive()
    yield from _selections()
    yield from _votes()
    tree = TreeMechanism(
        Sensitivity(1.0), _multiplier(lambda m: Repeated(_gaussian(m), 3)), size=1, horizon=4
    )
    yield _subject(
        "TreeMechanism, 4 steps", lambda data: _prefixes(tree, data), [1.0, 0, 0, 0], [0.0] * 4, tree.event
    )


def _additive() -> Iterator[Subject]:
    for mechanism in (
        GaussianMechanism(Sensitivity(1.0), _multiplier(_gaussian), size=1),
        LaplaceMechanism(Sensitivity(1.0, norm=1), 1 / EPSILON, size=1),
        GammaNormMechanism(Sensitivity(1.0), 1 / EPSILON, size=1),
    ):

        def run(value: float, tested: Any = mechanism) -> ArrayLike:
            return np.asarray(tested.release([value], fresh_entropy()))

        yield _subject(type(mechanism).__name__, run, 1.0, 0.0, mechanism.event)
    symmetric = SymmetricGaussianMechanism(Sensitivity(1.0), _multiplier(_gaussian), order=2)

    def matrix(value: float) -> ArrayLike:
        return float(symmetric.release(np.diag([value, 0.0]), fresh_entropy())[0, 0])

    yield _subject(type(symmetric).__name__, matrix, 1.0, 0.0, symmetric.event)


def _selections() -> Iterator[Subject]:
    """A leader that leads by so much that others are rare, and their odds move by almost e^epsilon.

    Of an exponential mechanism two candidates are the worst case; of noisy maxima one stands against several.
    """
    for kind, size, leads in (
        (ExponentialMechanism, 2, (1.0, 1.25, 1.5)),
        (LaplaceNoisyMax, 9, (0.25, 0.5, 0.75)),
    ):
        mechanism = kind(1.0, EPSILON, size)

        def run(scores: Any, tested: Any = mechanism) -> ArrayLike:
            return float(tested.select(scores, fresh_entropy()))

        pairs = [([0.0] + [-lead] * (size - 1), [-1.0] + [-lead] * (size - 1)) for lead in leads]
        if kind is ExponentialMechanism:
            pairs = [([0.0, -lead], [0.0, -lead - 1.0]) for lead in leads]
        yield most_different([_subject(kind.__name__, run, *pair, mechanism.event) for pair in pairs])

    leveled = LeveledSelection(largest_range(EPSILON, 6), EPSILON, 1)

    def choose(totals: Any) -> ArrayLike:
        return float(leveled.select(LeveledTotals(np.array(totals), leveled.shift, 1 << 10), fresh_entropy()))

    # Two candidates, +-G: the likely one loses as much as its opposite, the rare one, gains.
    half = leveled.step_range // 2
    yield _subject("LeveledSelection", choose, [110], [110 - half], leveled.event)


def _votes() -> Iterator[Subject]:
    stable = StableRelease(EPSILON, DELTA)

    def decide(distance: int) -> ArrayLike:
        return float(stable.release(1, distance, fresh_entropy()) is not None)

    yield _subject("StableRelease", decide, 3, 2, stable.event)

    vector = SparseVector.calibrated(EPSILON, DELTA, max_unstable=1, n_queries=8, refresh=False)

    def ask(distances: Any) -> ArrayLike:
        return vector.start(fresh_entropy()).ask_many(np.array(distances) + vector.margin)

    # Three questions become easier while the last one becomes harder: the worst direction of the proof.
    yield _subject("SparseVector, 4 questions", ask, [2, 2, 2, 0], [1, 1, 1, 1], vector.event, exact=False)

    plain = NoisyPlurality(_multiplier(_votes_gaussian), 2, n_queries=1)
    checked = ConfidentPlurality(10, _multiplier(_checked), _multiplier(_checked), 2, 1, 1)
    for mechanism in (plain, checked):

        def vote(counts: Any, tested: Any = mechanism) -> ArrayLike:
            code = tested.start(fresh_entropy()).answer(np.array([counts]))[0]
            return np.array([code == 0, code == 1], dtype=np.float64)

        # One voter changes sides. In doubt are the winner, and whether it has enough votes, both at once.
        pairs = [([top, low], [top - 1, low + 1]) for top in range(6, 15) for low in range(4, top)]
        yield most_different(
            [_subject(type(mechanism).__name__, vote, *pair, mechanism.event) for pair in pairs]
        )


def _subject(name: str, run: Any, first: Any, second: Any, event: Event, *, exact: bool = True) -> Subject:
    return Subject(name, ANY, run, (first, second), run, first, second, event, exact)


def _prefixes(tree: TreeMechanism, vectors: Any) -> ArrayLike:
    """The noisy blocks that hold the first step, as prefix sums show them."""
    run, entropy = tree.start(), fresh_entropy()
    shown = []
    for step, value in enumerate(vectors, start=1):
        run.add([value], entropy)
        if step.bit_count() == 1:
            shown.append(float(run.prefix()[0]))
    return np.array(shown)


def _gaussian(multiplier: float) -> Event:
    return Discretized(Gaussian(multiplier), 1)


def _votes_gaussian(multiplier: float) -> Event:
    return Discretized(Gaussian(multiplier), 2)


def _checked(multiplier: float) -> Event:
    return ConfidentPlurality(10, multiplier, multiplier, 2, 1, 1).event


def _multiplier(event: Callable[[float], Event]) -> float:
    """The least noise at epsilon 1, delta 0.01."""
    return math.nextafter(calibrate(event, _PROMISE), math.inf)
