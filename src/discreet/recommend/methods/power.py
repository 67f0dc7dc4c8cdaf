"""Latent directions without a dense covariance: block power iteration and Oja's rule on noisy products.

    Y = sum_i a_i (a_i^T V) + noise,    V orthonormal, |a_i| <= row_clip.

One release per iteration whatever the rank, of sensitivity sqrt(2) or 1 times row_clip^2 |V|_2 (Theorem 1). The
block V is quantized, so contributions keep rank one and sums are exact integers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from discreet._typing import Array, Integers
from discreet.recommend import kernels
from discreet.recommend.item_models import RidgeModel
from discreet.recommend.methods.profile import learn_profile, profile_releases
from discreet.recommend.methods.subspace import residual_integers, with_directions
from discreet.recommend.plan import Facts, Noise, Release
from discreet.recommend.ratings import Ratings, Users
from discreet.solvers.components import Spikes, block_iteration, block_spikes

_PRODUCT = "product"
_BLOCK_SCALE = 1 << 16  # integer length of a column of V
_DROPPED = 1 << 10  # last bits that are dropped so that sums are exact in float64
_PROFILE_SHARE = 0.4
_ROUNDS = 5


@dataclass(frozen=True)
class PowerIteration:
    """Block power iteration; with ``averaging``, Oja's rule V <- orth(V + step Y)."""

    averaging: bool = False
    theorem: str = "noisy products with a bounded block (docs/proofs/recommenders.md, Theorem 1)"

    @property
    def name(self) -> str:
        """As in ``PrivateMatrixCompletion(method=...)``."""
        return "oja" if self.averaging else "power"

    def releases(self, facts: Facts) -> tuple[Release, ...]:
        """List the item profile, then one product per iteration."""
        return (*profile_releases(facts, _PROFILE_SHARE), *product_releases(facts, 1 - _PROFILE_SHARE))

    def run(self, facts: Facts, ratings: Users, noise: Noise) -> RidgeModel:
        """Iterate, then add the directions to the profile."""
        profile = learn_profile(facts, ratings, noise)
        model = profile.model(slopes=True)
        found = iterate(facts, ratings, noise, model, profile.importance, averaging=self.averaging)
        return with_directions(model, found, profile.n_users * model.error_variance, profile)


def product_releases(facts: Facts, share: float) -> tuple[Release, ...]:
    """Return one noisy product per iteration, whatever the rank."""
    rounds, size = facts.n_iterations or _ROUNDS, facts.n_items * facts.rank
    sensitivity, unit = product_sensitivity(facts), facts.row_clip**2
    return tuple(
        Release(f"{_PRODUCT} {t}", share / rounds, sensitivity, size, unit=unit) for t in range(rounds)
    )


def iterate(
    facts: Facts,
    ratings: Users,
    noise: Noise,
    model: RidgeModel,
    importance: Array,
    *,
    averaging: bool = False,
) -> Spikes:
    """Iterate noisy products from a random start; return the directions that rise above the noise."""
    block = noise.public_directions(facts.n_items, facts.rank)
    rounds = facts.n_iterations or _ROUNDS
    stddev = noise.stddev(f"{_PRODUCT} 0")
    step = 1 / (rounds * stddev * math.sqrt(facts.n_items)) if averaging else None

    def noisy_product(t: int, block: Array) -> Array:
        exact = product(facts, ratings, model, importance, quantized_block(facts, block))
        return noise.release(f"{_PRODUCT} {t}", exact)

    noisy = block_iteration(block, noisy_product, rounds, step)
    left, lengths, overlaps = block_spikes(noisy, stddev * math.sqrt(facts.n_items))
    seen = lengths > 0
    return Spikes(left[:, seen], (lengths * overlaps)[seen], overlaps[seen])


def _integer_norm(facts: Facts) -> float:
    """Bound the spectral norm of a quantized orthonormal block; `quantized_block` enforces it."""
    return _BLOCK_SCALE + math.sqrt(facts.n_items * facts.rank) + 1.0


def product_sensitivity(facts: Facts) -> float:
    """Bound the distance of neighbors' products in units of row_clip^2, including the dropped bits."""
    bound = product_bound(facts)
    apart = facts.apart if facts.rank > 1 else 1.0
    steps = apart * bound**2 * _integer_norm(facts) + _DROPPED * math.sqrt(facts.n_items * facts.rank)
    return steps / (bound**2 * _BLOCK_SCALE)


def quantized_block(facts: Facts, block: Array) -> Integers:
    """Return the block in integers, with bounded spectral norm: a function of released numbers only."""
    quantized = np.trunc(block * _BLOCK_SCALE).astype(np.int64)
    while not np.linalg.norm(quantized.astype(np.float64), 2) * (1 + 1e-9) <= _integer_norm(facts):
        quantized = quantized // 2
    return quantized


def product(facts: Facts, ratings: Users, model: RidgeModel, importance: Array, block: Integers) -> Array:
    """Return sum_i a_i (a_i^T block) in units of row_clip^2, exact up to the dropped bits."""
    bound = product_bound(facts)

    def add(part: Ratings, sums: Integers) -> None:
        kernels.add_product(
            part.starts, part.items, residual_integers(facts, part, model, importance, bound), block, sums
        )

    return in_units(ratings.total(block.shape, add), bound)


def product_bound(facts: Facts) -> int:
    """Return the integer length of a row in a product, so that sums of products fit in 63 bits."""
    return facts.bound(2) >> 3


def in_units(sums: Integers, bound: int) -> Array:
    """Return integer products in units of the squared bound on rows, without their last bits."""
    return np.asarray((sums // _DROPPED).astype(np.float64) * (_DROPPED / (bound**2 * _BLOCK_SCALE)))
