"""Secret choices: how often to try, which records to sample, in which order to visit them.

The number of tries is drawn exactly from its law (docs/proofs/selection.md, section 4).
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
    """One sample of the number of tries.

    Privacy
    -------
    The guarantee of a selection speaks of someone who does not learn this number: neither it nor the time that the
    tries took may be released.

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


Indices = NDArray[np.int64]


def poisson_sample(size: int, rate: float, entropy: Entropy) -> Indices:
    """Each of 0 .. size - 1 independently with probability at most ``rate``, short of it by less than 2^-64.

    Privacy
    -------
    Amplification by sampling holds for the sample of a secret source only; the sample itself must not be released.

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
    """A uniformly random order of 0 .. size - 1, up to ties of 64-bit words.

    Privacy
    -------
    None is claimed from it: what is proved for every fixed order holds for a random one.
    """
    return np.argsort(entropy.words(size), kind="stable").astype(np.int64)
