"""Private alternating least squares (Chien et al., 2021) in the augmented form, with exact joint sensitivity.

    S_j = sum_i w_ij z_ij z_ij^T + symmetric noise,   z_ij = (u_i / factor_bound, y_ij / rating_clip)

holds the normal equations of item j: its factor is v_j = (PSD(A_j) + l I)^{-1} b_j. Every |z|^2 is at most 2 and a
user's weights have norm at most 1, so all S_j together move by 2 (one row) or 2 sqrt(2) (two rows): Theorem 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from discreet._typing import Array, Integers
from discreet.recommend import kernels
from discreet.recommend.item_models import RidgeModel
from discreet.recommend.methods.profile import Profile, learn_profile, profile_releases
from discreet.recommend.methods.subspace import covariance, covariance_release, symmetric
from discreet.recommend.plan import Facts, Noise, Release
from discreet.recommend.ratings import Ratings, Users
from discreet.solvers.components import spikes

_FACTOR_BOUND = 0.5
WEIGHT_BITS = 8
_START = "starting covariance"
_STEP = "normal equations"


@dataclass(frozen=True)
class AlternatingLeastSquares:
    """Alternating least squares: a profile, a start from one noisy covariance, then noisy normal equations."""

    name: str = "als"
    theorem: str = "augmented normal equations (docs/proofs/recommenders.md, Theorem 3)"

    def releases(self, facts: Facts) -> tuple[Release, ...]:
        """List the profile, the start, and one stack of small matrices per half-step."""
        steps, order = facts.n_iterations or 2, n_factors(facts) + 1
        factor_bits(facts)  # too many users are refused now, before a charge
        return (
            *profile_releases(facts, 0.35),
            covariance_release(facts, _START, 0.25),
            *(
                Release(f"{_STEP} {t}", 0.4 / steps, 2.0 * facts.apart, facts.n_items, order)
                for t in range(steps)
            ),
        )

    def run(self, facts: Facts, ratings: Users, noise: Noise) -> RidgeModel:
        """Alternate local ridges for users with noisy normal equations for items."""
        profile = learn_profile(facts, ratings, noise)
        own = profile.model(slopes=True)
        rank = n_factors(facts)
        noisy = noise.release(_START, covariance(facts, ratings, own, profile.importance))
        found = spikes(noisy, noise.stddev(_START), rank)
        factors = noise.public_directions(facts.n_items, rank)  # if no direction rises above the noise
        k = found.vectors.shape[1]
        if k:
            factors[:, :k] = found.vectors * (1 / np.maximum(profile.reach, 1e-9))[:, None]
        prior, error = np.full(rank, 0.02), own.error_variance
        for t in range(facts.n_iterations or 2):
            factors = np.linalg.qr(factors)[0] * math.sqrt(facts.n_items)
            model = _joined(own, factors, prior, error)
            name = f"{_STEP} {t}"
            sums = normal_equations(facts, ratings, model, own.features.shape[1], profile.importance)
            factors, prior, error = _solve(facts, noise.release(name, sums), noise.stddev(name), profile)
        return _joined(own, factors, prior, error)


def _joined(own: RidgeModel, factors: Array, prior: Array, error: float) -> RidgeModel:
    features = np.column_stack([own.features, factors])
    return RidgeModel(own.base, features, np.concatenate([own.prior, prior]), error)


def n_factors(facts: Facts) -> int:
    """Return how many factors the equations of an average item support, given users, items and budget.

    With unit weights an item gets n_users / n_items, and each factor a fraction 1 / r of that; the noise of an r x r
    block has spectral norm sqrt(r) / mu, up to constants.
    """
    bearable = (facts.n_users * facts.mu / facts.n_items) ** (2 / 3)
    return int(min(facts.rank, max(2.0, min(bearable, 20.0))))


def factor_bits(facts: Facts) -> int:
    """Return bits for a factor's integers so that weighted sums of products over all users stay below 2^52."""
    bits = (52 - WEIGHT_BITS - math.ceil(math.log2(max(2, facts.n_users)))) // 2
    if bits < 8:
        raise ValueError(
            f"{facts.n_users} users are too many for exact 64-bit sums in method='als', which takes up to 2**28; use "
            "method='subspace' or 'power', or declare a smaller public bound with n_users=..."
        )
    return min(15, bits)


def normal_equations(facts: Facts, ratings: Users, model: RidgeModel, n_own: int, importance: Array) -> Array:
    """Return the exact stack of symmetric matrices, in units of one user's largest contribution."""
    order = model.features.shape[1] - n_own + 1
    weight_bound = 1 << WEIGHT_BITS
    bound = 1 << factor_bits(facts)

    def add(block: Ratings, sums: Integers) -> None:
        kernels.add_normal_equations(
            block.starts,
            block.items,
            block.values,
            model.base,
            model.features,
            n_own,
            model.penalty,
            importance,
            facts.per_user,
            _FACTOR_BOUND,
            2 * facts.rating_clip,
            bound,
            weight_bound,
            sums,
        )

    return symmetric(ratings.total((facts.n_items, order, order), add), 1 / (bound**2 * weight_bound))


def _solve(facts: Facts, noisy: Array, stddev: float, profile: Profile) -> tuple[Array, Array, float]:
    """Return item factors, the variance of user factors, and the error variance, all from the release."""
    rank, clip = noisy.shape[1] - 1, 2 * facts.rating_clip
    quadratic = noisy[:, :rank, :rank] * _FACTOR_BOUND**2
    linear = noisy[:, rank, :rank] * (_FACTOR_BOUND * clip)
    factors = solved(quadratic, linear, stddev * _FACTOR_BOUND**2 * math.sqrt(rank))
    reach = float(profile.reach.sum())
    spread, rotation = np.linalg.eigh(quadratic.sum(axis=0) / reach)
    prior = np.maximum(spread, 1e-4)
    factors = np.clip(factors @ rotation, -4.0, 4.0)
    energy = float(noisy[:, rank, rank].sum()) * clip**2 / reach
    explained = float(profile.reach @ (factors**2 @ prior)) / reach
    return factors, prior, min(max(energy - explained, 0.1 * energy, 1e-3), 1.0)


def solved(matrices: Array, right: Array, ridge: float) -> Array:
    """Return (PSD(M) + ridge I)^-1 b for a stack: at most |b| / ridge, whatever the noise."""
    values, vectors = np.linalg.eigh(matrices)
    inverse = 1 / (np.maximum(values, 0.0) + ridge)
    return np.asarray(np.einsum("jab,jb,jcb,jc->ja", vectors, inverse, vectors, right))
