"""Secret random choices of records: Poisson samples and permutations."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from discreet.mechanisms.entropy import Entropy
from discreet.mechanisms.recording import sampled

Indices = NDArray[np.int64]


def poisson_sample(size: int, rate: float, entropy: Entropy) -> Indices:
    """Each of 0 .. size - 1 independently with probability at most ``rate``, short of it by less than 2^-64.

    Privacy
    -------
    Amplification by sampling holds for the sample of a secret source only; the sample itself must not be released.

    >>> from discreet.mechanisms.entropy import fresh_entropy
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
