"""A secret number of tries, drawn exactly from its law (docs/proofs/selection.md, section 4)."""

from __future__ import annotations

from fractions import Fraction

from discreet.mechanisms._tables import LazyUniform, exp_minus
from discreet.mechanisms.entropy import Entropy
from discreet.mechanisms.geometric import GeometricNoise
from discreet.privacy.tries import TriesLaw

_GUARD_BITS = 64


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
    """A Poisson number given that it is not 0: the first k whose cumulative probability is above a uniform number."""
    uniform = LazyUniform(int(entropy.words(1)[0]), entropy)
    number, term, total = 1, mean, mean

    def bracket(bits: int) -> tuple[int, int]:
        """Around 2^bits e^-mean total / (1 - e^-mean)."""
        whole = 1 << bits + _GUARD_BITS
        power = exp_minus(mean, bits + _GUARD_BITS)
        low = (total.numerator * (power - 1) << bits) // (total.denominator * (whole - power + 1))
        high = (total.numerator * (power + 1) << bits) // (total.denominator * (whole - power - 1)) + 1
        return low, high

    while not uniform.is_below(bracket):
        number += 1
        term *= mean / number
        total += term
    return number
