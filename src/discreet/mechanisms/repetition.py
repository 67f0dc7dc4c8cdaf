"""Secret random choices: the number of tries, which records to sample, and in which order to visit them.

The number of tries is drawn exactly from its distribution (docs/proofs/selection.md, section 4).
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from discreet.mechanisms.recording import sampled
from discreet.mechanisms.samplers.discrete import GeometricNoise, LazyUniform, exp_minus
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.privacy.accounting.repetition import TriesLaw

_GUARD_BITS = 64
_LARGEST_MEAN = 16


def draw_tries(law: TriesLaw, entropy: Entropy) -> int:
    """Draw the number of tries.

    Privacy
    -------
    The guarantee of a selection assumes that this number stays secret: neither it nor the time of the tries may be
    released.

    >>> from discreet.mechanisms.samplers.entropy import fresh_entropy
    >>> from discreet.privacy.accounting.repetition import law_with_mean
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
        # A geometric number kept with probability 1 / K has the logarithmic distribution.
        if law.shape == 1 or below(number, entropy) == 0:
            return number


def below(bound: int, entropy: Entropy) -> int:
    """Draw a uniform integer from 0, ..., bound - 1, exactly."""
    limit = (1 << 64) - (1 << 64) % bound
    while (word := int(entropy.words(1)[0])) >= limit:
        pass
    return word % bound


def _truncated_poisson(mean: Fraction, entropy: Entropy) -> int:
    """Draw a nonzero Poisson number as a sum of numbers of small mean, which need fewer bits."""
    n_parts = math.ceil(mean / _LARGEST_MEAN)
    if n_parts == 1:
        return _PoissonLaw(mean, least=1).draw(entropy)
    part = _PoissonLaw(mean / n_parts, least=0)
    while (number := sum(part.draw(entropy) for _ in range(n_parts))) == 0:
        pass
    return number


class _PoissonLaw:
    """A Poisson number of the given mean, conditioned on being at least ``least`` (0 or 1)."""

    def __init__(self, mean: Fraction, least: int) -> None:
        self._mean, self._least = mean, least
        self._terms = [mean**least]  # mean^k / k! from k = least on, and their sums
        self._sums = [mean**least]
        self._brackets: dict[tuple[int, int], tuple[int, int]] = {}

    def draw(self, entropy: Entropy) -> int:
        """Return the first k whose cumulative probability exceeds a uniform number."""
        uniform = LazyUniform(int(entropy.words(1)[0]), entropy)
        index = 0
        while not uniform.is_below(functools.partial(self._bracket, index)):
            index += 1
        return self._least + index

    def _bracket(self, index: int, bits: int) -> tuple[int, int]:
        """Return integers around 2^bits e^-mean sums[index] / (1 - least e^-mean)."""
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


Indices = NDArray[np.int64]


def poisson_sample(size: int, rate: float, entropy: Entropy) -> Indices:
    """Sample each of 0 .. size - 1 independently with probability at most ``rate``, and at least ``rate`` - 2^-64.

    Privacy
    -------
    Amplification by sampling requires a secret source; the sample itself must not be released.

    >>> from discreet.mechanisms.samplers.entropy import fresh_entropy
    >>> poisson_sample(5, 0.0, fresh_entropy()).size, poisson_sample(5, 1.0, fresh_entropy()).size
    (0, 5)
    """
    if not 0 <= rate <= 1:
        raise ValueError(f"rate must lie between 0 and 1, got {rate!r}")
    if rate == 1:
        return np.arange(size, dtype=np.int64)
    threshold = np.uint64(math.floor(math.ldexp(rate, 64)))  # exact: scaling by a power of two does not round
    sample = np.flatnonzero(entropy.words(size) < threshold).astype(np.int64)
    return sampled(entropy, sample, size, rate)


def permutation(size: int, entropy: Entropy) -> Indices:
    """Return a uniformly random order of 0 .. size - 1, up to ties of 64-bit words.

    Privacy
    -------
    No amplification is claimed: the proofs hold for every fixed order.
    """
    return np.argsort(entropy.words(size), kind="stable").astype(np.int64)
