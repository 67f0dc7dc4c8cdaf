"""Sparse vector: answer any number of questions and pay only for those whose answer is unstable.

Every question comes with a distance to instability, an integer of sensitivity 1. With one-sided geometric noise the
rule is

    threshold = margin - Geometric(threshold_scale)
    release the answer  if and only if  distance - Geometric(query_scale) > threshold,

and after ``max_unstable`` refusals there are no more answers. Proofs: docs/proofs/sparse-vector.md.

`StableRelease` releases one value that no single record can change, with the largest possible probability. For a
distance of sensitivity 1 that is 0 whenever the value differs between neighbors, a release with probability
q(distance) is (epsilon, delta)-DP if and only if consecutive q's satisfy the four inequalities of differential
privacy. The largest such curve is a recursion (Desfontaines, Voss, Gipson and Mandayam, 2022, for counts;
docs/proofs/sparse-vector.md, section 5).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet._typing import Integers
from discreet.mechanisms.recording import observed
from discreet.mechanisms.samplers.discrete import GeometricNoise, exp_minus
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.privacy.accounting import accountants
from discreet.privacy.accounting.calibration import calibrate
from discreet.privacy.events import Approximate, Event, Pure, Repeated
from discreet.privacy.guarantee import UP, Guarantee, Neighboring, Sensitivity

Outcomes = NDArray[np.int8]

RELEASED, UNSTABLE, HALTED = 1, 0, -1
_BLOCK = 4096


@dataclass(frozen=True)
class SparseVector:
    """A calibrated sparse vector mechanism for distances of sensitivity 1.

    Parameters
    ----------
    epsilon : float
        The epsilon at which ``delta`` is stated.
    threshold_scale, query_scale : float
        Scales b1 and b2 of the one-sided noise on the threshold and on every question.
    margin : int
        w: a question of distance 0 is released only if the threshold's noise exceeds w.
    max_unstable : int
        T: number of refusals after which the mechanism halts; exactly T.
    refresh : bool
        False: one threshold for the whole stream, 1/b1 + 2T/b2 <= epsilon, with no cost of composition.
        True: a new threshold after every refusal; T runs of a (1/b1 + 2/b2)-DP mechanism, composed exactly.

    Privacy
    -------
    ``Approximate(epsilon, delta)`` for any adaptive stream of any length, under every relation for which the
    distances have sensitivity 1 and are 0 on both sides whenever the answers of neighbors differ. ``delta`` is
    the composition's share (zero without refresh) plus n_thresholds exp(-(w + 1) / b1), for any stream.
    The distances and the noise must stay secret.

    Examples
    --------
    >>> vector = SparseVector.calibrated(1.0, 1e-6, max_unstable=10, n_queries=1000)
    >>> vector.refresh, vector.margin, vector.distance_needed(1000, 0.05)
    (False, ..., 313)
    >>> vector.event
    Approximate(epsilon=1.0, delta=...)

    References
    ----------
    Dwork and Roth (2014), section 3.6; Lyu, Su and Li (2017) for the variants that are not private.
    """

    epsilon: float
    threshold_scale: float
    query_scale: float
    margin: int
    max_unstable: int
    refresh: bool = False

    def __post_init__(self) -> None:
        if not (self.epsilon > 0 and math.isfinite(self.epsilon)):
            raise ValueError(f"epsilon must be a finite number greater than 0, got {self.epsilon!r}")
        for name in ("margin", "max_unstable"):
            value, least = getattr(self, name), 0 if name == "margin" else 1
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(
                    f"{name} must be a whole number of at least {least}, got {value!r}"
                    + ("; with 0 nothing could ever be asked" if least else "")
                )
        self.threshold_noise, self.query_noise  # noqa: B018 - scales out of range are refused here
        if not self.refresh and self._stream_epsilon > Fraction(self.epsilon):
            raise ValueError(
                f"1/threshold_scale + 2 max_unstable/query_scale = {float(self._stream_epsilon):.6g} exceeds "
                f"epsilon={self.epsilon:g}; use SparseVector.calibrated, or larger scales"
            )

    @cached_property
    def threshold_noise(self) -> GeometricNoise:
        """The noise of a threshold."""
        return GeometricNoise(self.threshold_scale)

    @cached_property
    def query_noise(self) -> GeometricNoise:
        """The noise of a question."""
        return GeometricNoise(self.query_scale)

    @property
    def _stream_epsilon(self) -> Fraction:
        """1/b1 + 2T/b2, exactly."""
        return 1 / Fraction(self.threshold_scale) + 2 * self.max_unstable / Fraction(self.query_scale)

    @property
    def epoch_epsilon(self) -> float:
        """1/b1 + 2/b2: the epsilon of one threshold, up to and including its refusal."""
        return float(1 / Fraction(self.threshold_scale) + 2 / Fraction(self.query_scale)) * (1 + 2**-50)

    @property
    def n_thresholds(self) -> int:
        """Maximum number of thresholds drawn."""
        return self.max_unstable if self.refresh else 1

    @property
    def composition_delta(self) -> float:
        """Delta of the refusals alone, at ``epsilon``."""
        if not self.refresh:
            return 0.0
        runs = Repeated(Pure(self.epoch_epsilon), self.max_unstable)
        relation = Neighboring.ADD_REMOVE_ONE  # the result is the same for any relation
        return accountants.delta(runs, self.epsilon, relation)

    @property
    def wrong_release_delta(self) -> float:
        """Bound on the probability that any question of distance 0 is ever released."""
        return self.n_thresholds * math.exp(-(self.margin + 1) / self.threshold_scale) * UP

    @cached_property
    def delta(self) -> float:
        """The delta of the whole stream at ``epsilon``."""
        return min(1.0, self.composition_delta + self.wrong_release_delta)

    @property
    def event(self) -> Event:
        """The event of the whole stream."""
        return Approximate(self.epsilon, self.delta)

    def refusal_probability(self, distance: int) -> float:
        """Return P(refused) of one question at a fresh threshold; exact for distances of at least the margin."""
        excess = distance - self.margin
        a1, a2 = self.threshold_noise.ratio, self.query_noise.ratio
        if excess >= 0:
            return a2**excess * (1 - a1) / (1 - a1 * a2)
        return 1 - a1 ** (1 - excess) * (1 - a2) / (1 - a1 * a2)

    def distance_needed(self, n_queries: int, beta: float) -> int:
        """Return the distance at which ``n_queries`` questions are all released with probability 1 - beta."""
        a1, a2 = self.threshold_noise.ratio, self.query_noise.ratio
        odds = n_queries / beta * (1 - a1) / (1 - a1 * a2)
        return self.margin + max(0, math.ceil(self.query_scale * math.log(odds))) if odds > 1 else self.margin

    def start(self, entropy: Entropy) -> SparseVectorRun:
        """Start a stream and draw the first threshold."""
        return SparseVectorRun(self, entropy)

    @staticmethod
    def calibrated(
        epsilon: float,
        delta: float,
        max_unstable: int,
        n_queries: int,
        beta: float = 0.05,
        refresh: bool | None = None,
    ) -> SparseVector:
        """Choose the scales that answer ``n_queries`` questions at the smallest distance.

        Parameters
        ----------
        epsilon, delta : the budget of the whole stream; delta must be greater than 0.
        max_unstable : refusals before the stream halts.
        n_queries, beta : this many stable questions are all answered with probability 1 - beta. They only balance the
            two noises and do not affect the guarantee: longer streams are allowed.
        refresh : which composition; None takes the one that needs the smaller distance.
        """
        Guarantee(epsilon, delta)
        if not delta > 0:
            raise ValueError("sparse vector cannot give delta = 0; choose a delta > 0, for instance 1 / n**2")
        if not (n_queries >= 1 and 0 < beta < 1):
            raise ValueError(f"need n_queries >= 1 and 0 < beta < 1, got {n_queries!r} and {beta!r}")
        if isinstance(max_unstable, bool) or not isinstance(max_unstable, int) or max_unstable < 1:
            raise ValueError(
                f"max_unstable must be a whole number of at least 1, got {max_unstable!r}; "
                "with 0 nothing could ever be asked"
            )
        ways = (False, True) if refresh is None else (refresh,)
        found = [
            vector
            for way in ways
            for vector in _candidates(epsilon, delta, max_unstable, n_queries / beta, way)
        ]
        return min(found, key=lambda vector: vector.distance_needed(n_queries, beta))


def _candidates(epsilon: float, delta: float, times: int, odds: float, refresh: bool) -> list[SparseVector]:
    """Return calibrated mechanisms around the balance that minimizes b1 log(thresholds/delta) + b2 log(odds)."""
    share, budget, runs, thresholds = delta, epsilon, times, 1
    if refresh:
        share = delta / 2
        loosest = calibrate(lambda x: Repeated(Pure(1 / x), times), Guarantee(epsilon, share))
        budget, runs, thresholds = 1 / loosest * (1 - 1e-12), 1, times
    height = math.log(thresholds / share)
    balance = math.sqrt(2 * runs * max(math.log(odds), 0.1) / height)  # of 2 runs / b2 to 1 / b1
    candidates = []
    for factor in (0.7, 0.85, 1.0, 1.2, 1.5):
        threshold_scale = max((1 + balance * factor) / budget, 1 / 8)
        query_scale = max(2 * runs * (1 + 1 / (balance * factor)) / budget, 1 / 8)
        while 1 / Fraction(threshold_scale) + 2 * runs / Fraction(query_scale) > Fraction(budget):
            threshold_scale, query_scale = threshold_scale * (1 + 2**-50), query_scale * (1 + 2**-50)
        margin = max(0, math.ceil(threshold_scale * height * UP) - 1)
        while thresholds * math.exp(-(margin + 1) / threshold_scale) * UP > share:
            margin += 1
        candidates.append(SparseVector(epsilon, threshold_scale, query_scale, margin, times, refresh))
    return candidates


class SparseVectorRun:
    """One stream of a sparse vector. Its state is the current threshold and the number of refusals.

    Privacy
    -------
    Questions may depend on earlier outcomes. The state is secret and may be continued only once: continuing it twice
    asks more than was paid for.
    """

    def __init__(self, vector: SparseVector, entropy: Entropy) -> None:
        self.vector = vector
        self.n_unstable = 0
        self._entropy = entropy
        self._price: Event | None = vector.event  # of the whole stream, recorded with its first question
        self._threshold = self._fresh_threshold()

    @property
    def halted(self) -> bool:
        """Whether all refusals are used up."""
        return self.n_unstable >= self.vector.max_unstable

    @property
    def unstable_left(self) -> int:
        """Refusals that remain."""
        return self.vector.max_unstable - self.n_unstable

    def ask(self, distance: int) -> int:
        """Return the outcome of one question: ``RELEASED``, ``UNSTABLE`` or ``HALTED``."""
        return int(self.ask_many(np.array([distance]))[0])

    def release(self, value: Any, distance: int) -> Any | None:
        """Release the value of a stable function, or None if refused or halted."""
        return value if self.ask(distance) == RELEASED else None

    def ask_many(self, distances: NDArray[np.integer[Any]]) -> Outcomes:
        """Return the outcomes of a sequence of questions, in order; time is linear in their number."""
        distances = np.asarray(distances)
        if distances.ndim != 1 or not np.issubdtype(distances.dtype, np.integer):
            raise TypeError(
                "distances must be a one-dimensional array of whole numbers: others break the proof"
            )
        outcomes, refusals = np.full(len(distances), HALTED, dtype=np.int8), self.n_unstable
        for begin in range(0, len(distances), _BLOCK):
            if self.halted:
                break
            block = distances[begin : begin + _BLOCK].astype(np.int64)
            noisy = block - self.vector.query_noise.draw(len(block), self._entropy)
            asked = self._decide(noisy, outcomes[begin : begin + _BLOCK])
            if asked < len(block):
                break
        told = observed(
            self.vector,
            self._entropy,
            outcomes,
            scale=self.vector.query_scale,
            value=distances,
            sensitivity=Sensitivity(1.0, norm=math.inf),
            event=self._price,
            exact_tries=True,  # a refusal may draw a new threshold
            additive=False,
        )
        self._price = None
        self.n_unstable = refusals + int(np.sum(told == UNSTABLE))
        return told

    def _decide(self, noisy: Integers, outcomes: Outcomes) -> int:
        """Fill in the outcomes of one block and return how many questions were asked before halting."""
        begin = 0
        while begin < len(noisy) and not self.halted:
            refused = np.flatnonzero(noisy[begin:] <= self._threshold)
            used = refused[: 1 if self.vector.refresh else self.unstable_left]
            self.n_unstable += len(used)
            end = len(noisy)
            if self.halted or (self.vector.refresh and len(used)):
                end = begin + int(used[-1]) + 1
            outcomes[begin:end] = RELEASED
            outcomes[begin + used] = UNSTABLE
            if self.vector.refresh and len(used) and not self.halted:
                self._threshold = self._fresh_threshold()
            begin = end
        return begin

    def _fresh_threshold(self) -> int:
        return self.vector.margin - int(self.vector.threshold_noise.draw(1, self._entropy)[0])

    def secret_state(self) -> dict[str, int]:
        """Return the state needed to continue this stream in another process; as private as the data."""
        return {"n_unstable": self.n_unstable, "threshold": self._threshold}

    @staticmethod
    def resumed(vector: SparseVector, state: dict[str, int], entropy: Entropy) -> SparseVectorRun:
        """Continue the stream saved by ``secret_state``, with its threshold."""
        run = SparseVectorRun(vector, entropy)
        run.n_unstable, run._threshold = int(state["n_unstable"]), int(state["threshold"])
        run._price = None
        return run


_BITS = 128
_FARTHEST = 1 << 18  # largest distance in a table


@dataclass(frozen=True)
class StableRelease:
    """Release a stable value or refuse, by the optimal distance-to-instability test.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee of one release; delta must be greater than 0.

    Privacy
    -------
    Event ``Approximate(epsilon, delta)``, exactly: probabilities are integer multiples of 2^-128, rounded so that every
    inequality holds, and the coin is an integer comparison. The distance must be an integer of sensitivity 1 that is 0
    on both sides whenever the values of neighbors differ.

    Examples
    --------
    >>> test = StableRelease(1.0, 1e-6)
    >>> test.probability(0), test.distance_needed(0.01), test.distance_needed(0.0)
    (1e-06, 17, 27)
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        Guarantee(self.epsilon, self.delta)
        if not self.delta > 2.0**-60:
            raise ValueError(
                f"delta must be greater than 2**-60, got {self.delta!r}: nothing would ever be released"
            )
        certain = 2 * math.log1p(math.expm1(min(self.epsilon, 1.0)) / (2 * self.delta)) / self.epsilon
        if certain > _FARTHEST:
            raise ValueError(
                f"epsilon={self.epsilon!r} is too small: with delta={self.delta!r} a value would be released for "
                f"certain from a distance of {certain:.2g} records on, and {_FARTHEST} is the most that is tabulated; "
                "use a larger epsilon, 0.001 or more"
            )

    @property
    def event(self) -> Event:
        """The event of one release."""
        return Approximate(self.epsilon, self.delta)

    def probability(self, distance: int) -> float:
        """Probability of release at a distance."""
        return math.ldexp(float(self._chance(distance)), -_BITS)

    def distance_needed(self, beta: float) -> int:
        """The smallest distance released with probability at least 1 - beta."""
        target = math.ceil((1 - Fraction(beta)) * 2**_BITS)
        return next(d for d, chance in enumerate(_curve(self.epsilon, self.delta)) if chance >= target)

    def release(self, value: Any, distance: int, entropy: Entropy) -> Any | None:
        """Return ``value`` with the probability of its distance, otherwise None."""
        high, low = (int(word) for word in entropy.words(2))
        stable = observed(
            self,
            entropy,
            (high << 64 | low) < self._chance(distance),
            scale=1 / self.epsilon,
            value=distance,
            sensitivity=Sensitivity(1.0, norm=math.inf),
            event=self.event,
            additive=False,
        )
        return value if stable else None

    def _chance(self, distance: int) -> int:
        if isinstance(distance, float) or distance < 0:
            raise ValueError(f"a distance is a whole number of at least 0, got {distance!r}")
        curve = _curve(self.epsilon, self.delta)
        return curve[min(int(distance), len(curve) - 1)]


@lru_cache(maxsize=32)
def _curve(epsilon: float, delta: float) -> tuple[int, ...]:
    """Return q(0), q(1), ... in units of 2^-128, up to the first that is 1; every rounding is downwards.

    q(0) = delta; q(d + 1) = min(e^epsilon q(d) + delta, 1 - e^-epsilon (1 - q(d) - delta), 1).
    """
    one = 1 << _BITS
    step = int(Fraction(delta) * one)
    shrink = exp_minus(Fraction(epsilon), _BITS) + 1  # above e^-epsilon
    curve = [step]
    while curve[-1] < one:
        now = curve[-1]
        grown = (now << _BITS) // shrink + step
        missing = max(0, one - now - step)
        closing = one - -(-shrink * missing >> _BITS)
        curve.append(min(one, max(now, min(grown, closing))))
    return tuple(curve)
