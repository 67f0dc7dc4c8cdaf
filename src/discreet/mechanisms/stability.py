"""Release a value that no single record can change, with the best possible probability.

For a distance of sensitivity 1 that is 0 whenever the value differs between neighbors, a release with
probability q(distance) is (epsilon, delta)-DP exactly if consecutive q's satisfy the four inequalities of
differential privacy; the largest such curve is a recursion (Desfontaines, Voss, Gipson and Mandayam, 2022,
for counts; docs/proofs/sparse-vector.md, section 5).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

from discreet.mechanisms._tables import exp_minus
from discreet.mechanisms.entropy import Entropy
from discreet.mechanisms.recording import observed
from discreet.privacy.events import Approximate, Event
from discreet.privacy.guarantee import Guarantee, Sensitivity

_BITS = 128
_FARTHEST = 1 << 18  # distance in a table


@dataclass(frozen=True)
class StableRelease:
    """Release a stable value, or refuse: the optimal distance-to-instability test.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee of one release; delta must be greater than 0.

    Privacy
    -------
    Event ``Approximate(epsilon, delta)``, exactly: probabilities are whole multiples of 2^-128, rounded so
    that every inequality holds, and the coin is an integer comparison. The distance must be a whole number of
    sensitivity 1 that is 0 on both sides whenever the values of neighbors differ.

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
        """What one release does to privacy."""
        return Approximate(self.epsilon, self.delta)

    def probability(self, distance: int) -> float:
        """Probability of release at a distance."""
        return math.ldexp(float(self._chance(distance)), -_BITS)

    def distance_needed(self, beta: float) -> int:
        """The smallest distance released with probability at least 1 - beta."""
        target = math.ceil((1 - Fraction(beta)) * 2**_BITS)
        return next(d for d, chance in enumerate(_curve(self.epsilon, self.delta)) if chance >= target)

    def release(self, value: Any, distance: int, entropy: Entropy) -> Any | None:
        """``value`` with the probability of its distance, otherwise None."""
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
    """q(0), q(1), ... in units of 2^-128, up to the first that is 1; every rounding is downwards.

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
