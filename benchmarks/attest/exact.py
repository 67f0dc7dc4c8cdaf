"""Exact audits: delta(epsilon) of discrete mechanisms and small programs by summation, against what is charged.

Nothing is sampled, and nothing is shared with the likelihoods of `discreet.audit`: laws are written down again from the
proofs. Where outputs can be listed, both laws are listed on every pair of a small family of neighbors, and delta is
the largest hockey stick; where they lie on a grid of 2^30 steps, the sums are tails, in closed form. Programs are
listed transcript by transcript (`discreet.audit.transcripts.transcript_laws`).

Run ``python -m benchmarks.attest.exact``.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.special import log_ndtr, ndtr

from benchmarks.audit_parts import RELATIONS, regressors
from discreet._typing import Array
from discreet.audit import catalog
from discreet.audit.subjects import DELTA, Subject
from discreet.audit.transcripts import exact_delta, transcript_laws
from discreet.audit.workflow import transfer, workflow
from discreet.mechanisms.additive import (
    GaussianMechanism,
    GaussianNoise,
    LaplaceMechanism,
    SymmetricGaussianMechanism,
)
from discreet.mechanisms.gamma_norm import GammaNormMechanism
from discreet.mechanisms.level_selection import LeveledSelection, largest_range
from discreet.mechanisms.selection import ExponentialMechanism, LaplaceNoisyMax
from discreet.mechanisms.sparse_vector import SparseVector, StableRelease
from discreet.mechanisms.voting import ConfidentPlurality, NoisyPlurality
from discreet.privacy.accounting import accountants
from discreet.privacy.accounting.curves import smallest_epsilon
from discreet.privacy.accounting.repetition import law_with_mean
from discreet.privacy.events import BoundedRange, Event, Pure, ZeroConcentrated
from discreet.privacy.guarantee import Neighboring, Sensitivity
from discreet.privacy.statement import lemmas_of

Laws = tuple[Array, Array]
#: delta of the worst pair, as a function of epsilon and of the share of the noise that is kept.
Profile = Callable[[float, float], float]
EPSILONS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
_ROUNDING = 1e-9  # relative, of sums of float64 numbers
_FAR = 60.0  # scales beyond which the mass of exponential tails is nothing
_LISTED = 1000


@dataclass(frozen=True)
class ExactRow:
    """One exact audit.

    Attributes
    ----------
    subject : what was computed.
    lemmas : what proves its price.
    claimed : epsilon of the charged event at delta 0.01.
    true : the epsilon that the worst pair of the family has there.
    ratio : largest of true delta / claimed delta over `EPSILONS`; above 1 a claim is false.
    twin : the true epsilon with half of the noise.
    """

    subject: str
    lemmas: tuple[str, ...]
    claimed: float
    true: float
    ratio: float
    twin: float

    @property
    def passed(self) -> bool:
        """Whether no claim is false, at any of the epsilons."""
        return self.ratio <= 1 + _ROUNDING and self.true <= self.claimed * (1 + 1e-6)

    @property
    def caught(self) -> bool:
        """Whether half of the noise would have been noticed."""
        return self.twin > self.claimed


def row(
    name: str, event: Event, profile: Profile, proved: Any, relation: Neighboring | None = None
) -> ExactRow:
    """Compare a true profile with the price of an event."""
    relation = relation or Neighboring.REPLACE_ONE
    ratios = []
    for epsilon in EPSILONS:
        true, claim = profile(epsilon, 1.0), accountants.delta(event, epsilon, relation)
        if true > 1e-14:  # less is rounding
            ratios.append(true / claim if claim > 0 else math.inf)
    return ExactRow(
        subject=name,
        lemmas=tuple(dict.fromkeys((*lemmas_of(proved), *lemmas_of(event)))),
        claimed=accountants.epsilon(event, DELTA, relation),
        true=_epsilon(profile, 1.0),
        ratio=max(ratios, default=0.0),
        twin=_epsilon(profile, 0.5),
    )


def _epsilon(profile: Profile, share: float) -> float:
    if profile(0.0, share) <= DELTA:
        return 0.0
    return min(_FAR, smallest_epsilon(lambda epsilon: profile(epsilon, share), DELTA))


def listed(laws: Callable[[float], Iterable[Laws]]) -> Profile:
    """The profile of laws that are listed: the largest hockey stick of all pairs, in both directions."""
    known: dict[float, list[Laws]] = {}

    def profile(epsilon: float, share: float) -> float:
        if share not in known:
            known[share] = list(laws(share))
        return max(exact_delta(*pair, epsilon) for one in known[share] for pair in (one, one[::-1]))

    return profile


# -- additive noise on a fine grid: the hockey stick is a difference of two tails ------------------------------------


def tails(
    log_tail: Callable[[float, float], float], threshold: Callable[[float, float], float], shift: int
) -> Profile:
    """Of noise whose likelihood ratio increases: P(X + shift >= t) - e^epsilon P(X >= t) at the best t.

    ``log_tail(t, share)`` is log P(X >= t), t in steps; ``threshold(epsilon, share)`` is where the ratio is e^epsilon.
    """

    def profile(epsilon: float, share: float) -> float:
        near = math.floor(threshold(epsilon, share))
        return max(
            math.exp(log_tail(t - shift, share)) - math.exp(epsilon + log_tail(t, share))
            for t in (near, near + 1, near + 2)
        )

    return profile


def _gaussian(sigma: float, shift: int) -> Profile:
    """Discrete Gaussian noise of 2^30 or more steps: its tail is the integral from t - 1/2, to within 2^-60."""
    return tails(
        lambda t, share: float(log_ndtr(-(t - 0.5) / (share * sigma))),
        lambda epsilon, share: (share * sigma) ** 2 * epsilon / shift + shift / 2,
        shift,
    )


def _laplace(scale: float, shift: int, rounded: bool) -> Profile:
    """Discrete Laplace noise, or (``rounded``) continuous noise rounded to the nearest step."""

    def log_tail(t: float, share: float) -> float:
        b = share * scale
        if rounded:
            return -(t - 0.5) / b - math.log(2) if t >= 1 else math.log1p(-math.exp((t - 0.5) / b) / 2)
        rest = -math.log1p(math.exp(-1 / b))
        return -t / b + rest if t >= 1 else math.log1p(-math.exp((t - 1) / b + rest))

    return tails(log_tail, lambda epsilon, share: (share * scale * epsilon + shift) / 2, shift)


def additive() -> Iterator[ExactRow]:
    """Every mechanism that adds noise, between values as far apart as declared."""
    unit = Sensitivity(1.0)
    multiplier = catalog._multiplier(catalog._gaussian)
    for mechanism in (
        GaussianMechanism(unit, multiplier, 1),
        GaussianMechanism(unit, multiplier, 5),
        SymmetricGaussianMechanism(unit, multiplier, 2),
    ):
        noise = GaussianNoise(mechanism.stddev)
        steps = math.ceil(1.0 / noise.grid)
        profile = _gaussian(noise.effective_stddev / noise.grid, steps)
        yield row(
            f"{type(mechanism).__name__} of {mechanism.size} numbers", mechanism.event, profile, mechanism
        )
    for pure in (LaplaceMechanism(Sensitivity(1.0, norm=1), 1.0, 1), GammaNormMechanism(unit, 1.0, 1)):
        steps = math.ceil(1.0 / pure.noise.grid)
        rounded = isinstance(pure, GammaNormMechanism)
        profile = _laplace(pure.noise.effective_scale / pure.noise.grid, steps, rounded)
        yield row(type(pure).__name__, pure.event, profile, pure)


# -- laws that are listed -------------------------------------------------------------------------------------------


def integers(sigma: float) -> Iterator[ExactRow]:
    """The laws of the samplers themselves, at a scale of a few steps, moved by one step."""

    def pair(weights: Callable[[Array, float], Array], share: float) -> Iterator[Laws]:
        places = np.arange(-_FAR * sigma, _FAR * sigma + 1)
        first, second = (np.exp(weights(places - move, share * sigma)) for move in (0, 1))
        yield first / first.sum(), second / second.sum()

    gaussian = listed(partial(pair, lambda k, s: -(k**2) / (2 * s * s)))
    yield row(
        "discrete Gaussian of 2 steps, 1 apart",
        ZeroConcentrated(1 / (2 * sigma**2)),
        gaussian,
        GaussianMechanism,
    )
    laplace = listed(partial(pair, lambda k, s: -np.abs(k) / s))
    yield row("discrete Laplace of 2 steps, 1 apart", Pure(1 / sigma), laplace, LaplaceMechanism)


def _softmax(logits: Array) -> Array:
    weights = np.exp(logits - logits.max())
    return np.asarray(weights / weights.sum())


def _choices(size: int, leads: Sequence[float], moved: float) -> Iterator[tuple[Array, Array]]:
    """Scores, and the same with any of them lower by ``moved``."""
    for lead in leads:
        base = np.concatenate([[0.0], np.full(size - 1, -lead)])
        for lower in itertools.product((0.0, moved), repeat=size):
            if 0 < sum(lower) < size * moved:
                yield base, base - np.array(lower)


def selections() -> Iterator[ExactRow]:
    """Choices among two and three candidates, with every lead of a fine grid and every way to lower scores."""
    leads = np.linspace(0.0, 4.0, 41).tolist()
    for size in (2, 3):
        choice = ExponentialMechanism(1.0, 1.0, size)

        def soft(share: float, size: int = size, scale: float = choice.scale) -> Iterator[Laws]:
            for pair in _choices(size, leads, 1.0):
                a, b = (_softmax(scores / (share * scale)) for scores in pair)
                yield a, b

        yield row(f"ExponentialMechanism, {size} candidates", choice.event, listed(soft), choice)

    leveled = LeveledSelection(largest_range(1.0, 6), 1.0, 1)

    def powers(share: float) -> Iterator[Laws]:
        half = leveled.step_range // 2
        for total in range(0, 400, 10):
            a, b = (
                _softmax(np.array([-t, t]) * math.log(2) / (share * 2**leveled.shift))
                for t in (total, total - half)
            )
            yield a, b

    yield row("LeveledSelection, 1 total", leveled.event, listed(powers), leveled)

    # Noise and scores are whole numbers; so is the mechanism's, on a finer grid, with the same proof.
    scale, moved = 4.0, 4
    for size in (2, 3, 6):

        def noisy_max(share: float, size: int = size) -> Iterator[Laws]:
            for pair in _choices(size, range(13), moved):
                a, b = (_largest(scores, share * scale) for scores in pair)
                yield a, b

        yield row(
            f"noisy maximum of {size}, scale of 4 steps",
            Pure(moved / scale),
            listed(noisy_max),
            LaplaceNoisyMax,
        )


def _largest(scores: Array, scale: float) -> Array:
    """Chances to be the first largest after discrete Laplace noise."""
    places = np.arange(int(scores.min() - _FAR * scale), int(scores.max() + _FAR * scale))
    q = math.exp(-1 / scale)
    at = [(1 - q) / (1 + q) * q ** np.abs(places - score) for score in scores]
    up_to = [np.cumsum(chances) for chances in at]
    below = [total - chances for total, chances in zip(up_to, at, strict=True)]
    wins = []
    for winner in range(len(scores)):
        others = [below[j] if j < winner else up_to[j] for j in range(len(scores)) if j != winner]
        wins.append(float(np.sum(at[winner] * np.prod(others, axis=0))))
    return np.array(wins)


def votes() -> Iterator[ExactRow]:
    """Two classes: the winner is decided by one normal variable, a check by another."""
    plain = NoisyPlurality(catalog._multiplier(lambda m: catalog._gaussian(m, 2)), 2, n_queries=1)

    def winner(share: float) -> Iterator[Laws]:
        for lead in range(1, 40):
            a, b = (
                _two(float(ndtr(gap / (math.sqrt(2) * share * plain.stddev)))) for gap in (lead, lead - 2)
            )
            yield a, b

    yield row("NoisyPlurality, 2 classes", plain.event, listed(winner), plain)

    checked = ConfidentPlurality(10, *(catalog._multiplier(catalog._checked),) * 2, 2, 1, 1)

    def confident(share: float) -> Iterator[Laws]:
        check, vote = (share * noise.effective_stddev for noise in (checked.check_noise, checked.vote_noise))

        def law(top: int, low: int) -> Array:
            asked = float(ndtr((max(top, low) - checked.threshold) / check))
            first = float(ndtr((top - low) / (math.sqrt(2) * vote)))
            return np.array([1 - asked, asked * first, asked * (1 - first)])

        for top, low in itertools.product(range(4, 16), range(12)):
            yield law(top, low), law(top - 1, low + 1)

    yield row("ConfidentPlurality, 2 classes", checked.event, listed(confident), checked)


def _two(chance: float) -> Array:
    return np.array([chance, 1 - chance])


def streams() -> Iterator[ExactRow]:
    """Tests of stability, and a sparse vector on streams of four questions."""
    stable = StableRelease(1.0, DELTA)

    def decisions(share: float) -> Iterator[Laws]:
        weak = StableRelease(1.0 / share, DELTA / share)
        for distance in range(weak.distance_needed(0.0) + 1):
            yield _two(weak.probability(distance)), _two(weak.probability(distance + 1))
        # Values that differ: what is released then is seen under one of the neighbors only.
        chance = weak.probability(0)
        yield np.array([1 - chance, chance, 0.0]), np.array([1 - chance, 0.0, chance])

    yield row("StableRelease", stable.event, listed(decisions), stable)

    for refresh in (False, True):
        vector = SparseVector.calibrated(1.0, DELTA, max_unstable=2, n_queries=4, refresh=refresh)

        def outcomes(share: float, vector: SparseVector = vector) -> Iterator[Laws]:
            # One question is refused where others are released: the directions that the proof calls the worst.
            for easy, hard in itertools.product((0, 1, 2, 4, 8), repeat=2):
                first = vector.margin + np.array([easy, easy, easy, hard])
                for move in ([1, 1, 1, -1], [1, 1, -1, -1], [-1, -1, -1, 1]):
                    second = np.maximum(first - np.array(move), 0)
                    yield _patterns(vector, first, share), _patterns(vector, second, share)

        yield row(
            f"SparseVector, 4 questions{', renewed' if refresh else ''}",
            vector.event,
            listed(outcomes),
            vector,
        )


def _patterns(vector: SparseVector, distances: Array, share: float) -> Array:
    """Probabilities of all patterns of refusals, by a sum over the noise of every threshold."""
    b1, b2 = share * vector.threshold_scale, share * vector.query_scale
    height = np.arange(int(_FAR * b1) + 2)
    prior = -math.expm1(-1 / b1) * np.exp(-height / b1)
    refused = [np.exp(-np.maximum(0, d - vector.margin + height) / b2) for d in distances]
    chances = []
    for pattern in itertools.product((False, True), repeat=len(distances)):
        total, now, refusals = 1.0, prior, 0
        for no, chance in zip(pattern, refused, strict=True):
            if refusals == vector.max_unstable:
                total *= not no  # halted: one pattern stands for all that could follow
                continue
            now = now * (chance if no else 1 - chance)
            refusals += no
            if no and vector.refresh:
                total, now = total * float(now.sum()), prior
        chances.append(total * float(now.sum()))
    return np.array(chances)


def tries() -> Iterator[ExactRow]:
    """A secret number of tries of a choice between two, of which the better one is shown."""
    for name in ("geometric", "poisson"):
        law = law_with_mean(name, 3.0)
        count = np.arange(1.0, 400.0)
        chances = _tries(law, count)

        def best(share: float, chances: Array = chances, count: Array = count) -> Iterator[Laws]:
            for lead in np.linspace(-2.0, 2.0, 21):
                pair = []
                for moved in (0.0, 0.25):
                    low = _softmax(np.array([0.0, lead - moved]) / share)[0]
                    none = float(chances @ low**count)  # not one try gave the better answer
                    pair.append(_two(none))
                yield pair[0], pair[1]

        event = law.event(BoundedRange(0.25), DELTA, Neighboring.REPLACE_ONE)
        yield row(f"tries, {name}, 3 expected", event, listed(best), event)


def _tries(law: Any, count: Array) -> Array:
    """P(K = k), as in docs/proofs/selection.md."""
    poisson = law.law == "poisson"  # otherwise geometric: the shape is 1
    logs = count * math.log(law.scale) - np.cumsum(np.log(count)) if poisson else -count / law.scale
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())


def programs() -> Iterator[ExactRow]:
    """Whole programs of the catalog that can be listed: every transcript, with its probability on both data sets."""
    linear = regressors(RELATIONS, ["PrivateLasso", "PrivateSimplexClassifier"])
    for subject in itertools.chain(catalog.streams(), workflow(), transfer(), linear):
        yield from _listed_program(subject)


def _listed_program(subject: Subject) -> Iterator[ExactRow]:
    if not subject.composed:
        return

    def laws(share: float) -> list[Laws]:
        pair = transcript_laws(subject.run, subject.first, subject.second, share=share, most=_LISTED)
        return [] if pair is None else [pair]

    if laws(1.0):
        plan = getattr(subject.first, "plan", subject.event)
        yield row(
            f"{subject.name}, {subject.relation.value}", subject.event, listed(laws), plan, subject.relation
        )


PARTS: dict[str, Callable[[], Iterator[ExactRow]]] = {
    "additive": additive,
    "integers": partial(integers, 2.0),
    "selections": selections,
    "votes": votes,
    "streams": streams,
    "tries": tries,
    "programs": programs,
}


def rows(only: Sequence[str] = ()) -> list[ExactRow]:
    """All exact audits, or those of some parts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [line for part, make in PARTS.items() if not only or part in only for line in make()]


def as_text(found: Sequence[ExactRow]) -> str:
    """The table in Markdown."""
    head = "| subject | claimed epsilon | true epsilon | largest true / claimed delta | half noise | caught |"
    lines = [
        f"| {line.subject} | {line.claimed:.4f} | {line.true:.4f} | {line.ratio:.4f} | {line.twin:.4f} | "
        f"{'yes' if line.caught else 'NO'} |"
        for line in found
    ]
    return "\n".join([head, "|---|---|---|---|---|---|", *lines])


def as_dicts(found: Sequence[ExactRow]) -> list[dict[str, Any]]:
    """The rows for a file."""
    return [{**asdict(line), "passed": line.passed, "caught": line.caught} for line in found]


if __name__ == "__main__":
    every = rows()
    print(as_text(every))
    raise SystemExit(0 if all(line.passed and line.caught for line in every) else 1)
