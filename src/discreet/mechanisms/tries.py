"""A secret number of tries, drawn exactly from its law (docs/proofs/selection.md, section 4)."""

from __future__ import annotations

import functools
import math
from fractions import Fraction

from discreet.mechanisms._tables import LazyUniform, exp_minus
from discreet.mechanisms.entropy import Entropy
from discreet.mechanisms.geometric import GeometricNoise
from discreet.privacy.tries import TriesLaw

_GUARD_BITS = 64
_LARGEST_MEAN = 16


def draw_tries(law: TriesLaw, entropy: Entropy) -> int:
    """One sample of the number of tries.

    Privacy
    -------
    The guarantee of a selection speaks of someone who does not learn this number: neither it nor the time that the
    tries took may be released.

    >>> from discreet.mechanisms.entropy import fresh_entropy
    >>> from discreet.privacy.tries import law_with_mean
    >>> draws = [draw_tries(law_with_mean("geometric", 5.0), fresh_entropy()) for _ in range(2000)]
    >>> min(draws), 4 < sum(draws) / 2000 < 6
    (1, True)
    """
    if law.law == "poisson":
        return _truncated_poisson(Fraction(law.scale), entropy)
    if law.shape not in (0.0, 1.0):
        raise ValueError(f"tries are drawn from the logarithmic or the geometric law, got shape {law.shape}")
    while True:
        number = 1 + int(GeometricNoise(law.scale).draw(1, entropy)[0])
        # A geometric number kept with probability 1 / K has the logarithmic law.
        if law.shape == 1 or below(number, entropy) == 0:
            return number


def below(bound: int, entropy: Entropy) -> int:
    """A uniform whole number of 0, ..., bound - 1, exactly."""
    limit = (1 << 64) - (1 << 64) % bound
    while (word := int(entropy.words(1)[0])) >= limit:
        pass
    return word % bound


def _truncated_poisson(mean: Fraction, entropy: Entropy) -> int:
    """A Poisson number given that it is not 0, as a sum of numbers of small mean: large ones take e^-mean to start."""
    n_parts = math.ceil(mean / _LARGEST_MEAN)
    if n_parts == 1:
        return _PoissonLaw(mean, least=1).draw(entropy)
    part = _PoissonLaw(mean / n_parts, least=0)
    while (number := sum(part.draw(entropy) for _ in range(n_parts))) == 0:
        pass
    return number


class _PoissonLaw:
    """A Poisson number of the given mean, given that it is at least ``least``, 0 or 1."""

    def __init__(self, mean: Fraction, least: int) -> None:
        self._mean, self._least = mean, least
        self._terms = [mean**least]  # mean^k / k! from k = least on, and their sums
        self._sums = [mean**least]
        self._brackets: dict[tuple[int, int], tuple[int, int]] = {}

    def draw(self, entropy: Entropy) -> int:
        """The first k whose cumulative probability is above a uniform number."""
        uniform = LazyUniform(int(entropy.words(1)[0]), entropy)
        index = 0
        while not uniform.is_below(functools.partial(self._bracket, index)):
            index += 1
        return self._least + index

    def _bracket(self, index: int, bits: int) -> tuple[int, int]:
        """Around 2^bits e^-mean sums[index] / (1 - least e^-mean)."""
        known = self._brackets.get((index, bits))
        if known is None:
            if index == len(self._sums):
                self._terms.append(self._terms[-1] * self._mean / (self._least + index))
                self._sums.append(self._sums[-1] + self._terms[-1])
            total, whole = self._sums[index], 1 << bits + _GUARD_BITS
            power = exp_minus(self._mean, bits + _GUARD_BITS)
            less, more = power - 1, power + 1
            low = (total.numerator * less << bits) // (total.denominator * (whole - self._least * less))
            high = (total.numerator * more << bits) // (total.denominator * (whole - self._least * more)) + 1
            known = self._brackets[index, bits] = low, high
        return known
