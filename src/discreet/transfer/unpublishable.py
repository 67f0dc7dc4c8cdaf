"""What noisy votes cost on the votes that were actually cast: smaller than the promise, and not publishable.

Where teachers agree, a noisy plurality reveals almost nothing, and a bound that looks at the votes says so
(Papernot et al., 2018, theorem 6). But the bound is itself a function of the private votes: to print it is one
more release, for which nothing was paid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfc

from discreet.mechanisms.voting import Counts
from discreet.privacy.renyi import renyi_epsilon

Array = NDArray[np.float64]

_ORDERS = (1.5, 2.0, 3.0, 5.0, 8.0, 12.0, 18.0, 25.0, 35.0, 50.0, 75.0, 100.0, 150.0, 250.0, 500.0)


@dataclass(frozen=True)
class UnpublishableEpsilon:
    """An epsilon that was computed from private votes. For the data holder's eyes only.

    value : the data-dependent epsilon at ``delta``.
    publishable : always False.
    """

    value: float
    delta: float
    publishable: bool = False

    def __str__(self) -> str:
        return (
            f"epsilon {self.value:.4g} at delta {self.delta:.3g} ON THESE VOTES. NOT PUBLISHABLE: this number depends "
            "on the private data, and showing it is a release that nobody paid for. The promise is the plan's."
        )


def data_dependent_epsilon(counts: Counts, stddev: float, delta: float) -> UnpublishableEpsilon:
    """The Renyi cost of a noisy plurality on given votes, both directions, for one changed vote per record.

    The published theorem bounds D(votes || neighbor) only; here the maximum over the votes and all vectors one
    move away covers the other direction as well.

    Parameters
    ----------
    counts : private votes (n_queries, n_classes).
    stddev : noise on every count.
    delta : where to convert.
    """
    cast: NDArray[np.int64] = np.asarray(counts).astype(np.int64)
    around = [cast, *_moved(cast)]
    best = math.inf
    for order in _ORDERS:
        worst = np.zeros(len(counts))
        for votes in around:
            worst = np.maximum(worst, divergence(votes, stddev, order))
        best = min(best, renyi_epsilon(float(worst.sum()), order, delta))
    return UnpublishableEpsilon(best, delta)


def divergence(counts: Counts, stddev: float, order: float) -> Array:
    """Bound on the Renyi divergence from each vote vector to any neighbor (one direction)."""
    independent = order / stddev**2
    q = _error(np.asarray(counts, dtype=np.float64), stddev)
    bound = np.full(len(q), independent)
    with np.errstate(all="ignore"):  # conditions of the theorem are checked below
        higher = stddev * np.sqrt(-np.log(q))
        lower = higher + 1
        e_high, e_low = higher / stddev**2, lower / stddev**2
        limit = np.exp((higher - 1) * e_high) / (lower / (lower - 1) * higher / (higher - 1)) ** higher
        valid = (q > 0) & (higher > 1) & (order <= lower) & (q * np.exp(e_high) < 1) & (q <= limit)
        right = (1 - q) / (1 - (q * np.exp(e_high)) ** ((higher - 1) / higher))
        wrong = np.exp(e_low) / q ** (1 / (lower - 1))
        value = np.log((1 - q) * right ** (order - 1) + q * wrong ** (order - 1)) / (order - 1)
    use = valid & np.isfinite(value)
    rounding = 1e-15  # of a logarithm near 1
    bound[use] = np.minimum(bound[use], np.maximum(value[use], 0.0) + rounding)
    return bound


def _error(counts: Array, stddev: float) -> Array:
    """Bound on the probability that the noisy winner is not the true one; never below the smallest float."""
    lead = counts.max(axis=1, keepdims=True) - counts
    chances = 0.5 * erfc(lead / (2 * stddev))
    chances[np.arange(len(counts)), counts.argmax(axis=1)] = 0.0
    return np.asarray(np.clip(chances.sum(axis=1), 1e-300, 1.0))


def _moved(counts: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """All vote vectors one changed vote away; where a class has no vote to give, the vector itself."""
    found = []
    for giver in range(counts.shape[1]):
        for taker in range(counts.shape[1]):
            if giver != taker:
                step = (counts[:, giver] > 0).astype(np.int64)
                other = counts.copy()
                other[:, giver] -= step
                other[:, taker] += step
                found.append(other)
    return found
