"""Implicit feedback: a row is a set of items. Popularity, co-occurrence, and alternating least squares.

A user's row is the indicator of the user's items, scaled to unit length. Items that a user did not click are weak
evidence against them; this takes one small matrix for all users, not one per item (Hu, Koren and Volinsky, 2008).
Sensitivities: docs/proofs/recommenders.md, Theorems 1, 2 and 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from discreet._typing import Array, Integers
from discreet.recommend import kernels
from discreet.recommend.item_models import ClickModel, PopularityModel, ProjectionModel, RidgeModel
from discreet.recommend.methods.als import WEIGHT_BITS, factor_bits, n_factors, solved
from discreet.recommend.methods.power import iterate, product_releases
from discreet.recommend.methods.profile import weighted_sums
from discreet.recommend.methods.subspace import COVARIANCE, covariance, covariance_release, symmetric
from discreet.recommend.plan import Facts, Method, Noise, Release
from discreet.recommend.ratings import Ratings, Users
from discreet.solvers.components import Spikes, spikes

_COUNTS, _STEP, _EVERYONE = "item counts", "normal equations", "all users"
_COUNT_SHARE = 0.1
_EVERYONE_SHARE = 0.02
_START_SHARE = 0.3
_NEGATIVES = 3.0  # weight of all items that were not clicked, over that of all clicks
_FACTOR_BOUND = 0.5


def count_release(facts: Facts, share: float) -> Release:
    """Return the release of weighted counts; a user's weights are >= 0 and of norm at most 1: sensitivity sqrt(2)."""
    return Release(_COUNTS, share, facts.apart, facts.n_items)


def learn_counts(facts: Facts, ratings: Users, noise: Noise) -> tuple[Array, float]:
    """Return noisy weighted counts and the standard deviation of their noise."""
    sums = weighted_sums(facts, ratings, np.ones(facts.n_items), np.zeros(facts.n_items))
    return noise.release(_COUNTS, sums[0]), noise.stddev(_COUNTS)


def _popularity(counts: Array) -> Array:
    """Return counts as scores in [0, 1]."""
    positive = np.maximum(counts, 0.0)
    return np.asarray(positive / max(float(positive.max()), 1e-300))


@dataclass(frozen=True)
class Popularity:
    """The same ranking for all users, by noisy counts."""

    name: str = "bias"
    theorem: str = "weighted counts (docs/proofs/recommenders.md, Theorem 2)"

    def releases(self, facts: Facts) -> tuple[Release, ...]:
        """List the counts."""
        return (count_release(facts, 1.0),)

    def run(self, facts: Facts, ratings: Users, noise: Noise) -> PopularityModel:
        """Release the counts."""
        return PopularityModel(_popularity(learn_counts(facts, ratings, noise)[0]))


@dataclass(frozen=True)
class CoOccurrence:
    """Noisy covariance of unit rows; a user's own row is projected on its top directions."""

    name: str = "subspace"
    theorem: str = (
        "symmetric Gaussian noise on bounded rank-one matrices (docs/proofs/recommenders.md, Theorem 1)"
    )

    def releases(self, facts: Facts) -> tuple[Release, ...]:
        """List the counts and one covariance."""
        return count_release(facts, _COUNT_SHARE), covariance_release(facts, COVARIANCE, 1 - _COUNT_SHARE)

    def run(self, facts: Facts, ratings: Users, noise: Noise) -> ProjectionModel:
        """Count, then keep the directions above the edge of the noise."""
        popularity = _popularity(learn_counts(facts, ratings, noise)[0])
        noisy = noise.release(COVARIANCE, unit_covariance(facts, ratings))
        return _projection(facts, popularity, spikes(noisy, noise.stddev(COVARIANCE), facts.rank))


@dataclass(frozen=True)
class ClickPower:
    """The same directions by block power iteration: no items x items matrix."""

    name: str = "power"
    theorem: str = "noisy products with a bounded block (docs/proofs/recommenders.md, Theorem 1)"

    def releases(self, facts: Facts) -> tuple[Release, ...]:
        """List the counts and the noisy products."""
        return count_release(facts, _COUNT_SHARE), *product_releases(facts, 1 - _COUNT_SHARE)

    def run(self, facts: Facts, ratings: Users, noise: Noise) -> ProjectionModel:
        """Count, then iterate."""
        popularity = _popularity(learn_counts(facts, ratings, noise)[0])
        found = iterate(facts, ratings.as_clicks(), noise, _nothing(facts.n_items), np.ones(facts.n_items))
        return _projection(facts, popularity, found)


def _projection(facts: Facts, popularity: Array, found: Spikes) -> ProjectionModel:
    """Weigh directions by a Wiener filter: their energy against that of random rows."""
    shared = found.values / facts.n_users
    chance = max(1 - float(shared.sum()), 0.0) / facts.n_items
    return ProjectionModel(popularity, found.vectors, shared / (shared + max(chance, 1e-300)))


def _nothing(n_items: int) -> RidgeModel:
    """Return a model that leaves rows unchanged."""
    return RidgeModel(np.zeros(n_items), np.zeros((n_items, 1)), np.ones(1), 1.0)


def unit_covariance(facts: Facts, ratings: Users) -> Array:
    """Return the exact covariance of indicator rows scaled to unit length."""
    return covariance(facts, ratings.as_clicks(), _nothing(facts.n_items), np.ones(facts.n_items))


@dataclass(frozen=True)
class ClickLeastSquares:
    """Alternating least squares: noisy normal equations of the clicks of every item, and one matrix for the rest."""

    name: str = "als"
    theorem: str = (
        "augmented normal equations and one matrix for all users (docs/proofs/recommenders.md, Theorem 4)"
    )

    def releases(self, facts: Facts) -> tuple[Release, ...]:
        """List the counts, the start, and for each half-step a stack of small matrices and one more."""
        steps, order = facts.n_iterations or 2, n_factors(facts) + 1
        factor_bits(facts)  # too many users are refused now, before a charge
        share = (1 - _COUNT_SHARE - _START_SHARE) / steps
        listed = []
        for t in range(steps):
            stack, everyone = share * (1 - _EVERYONE_SHARE), share * _EVERYONE_SHARE
            listed.append(Release(f"{_STEP} {t}", stack, 2.0 * facts.apart, facts.n_items, order))
            listed.append(Release(f"{_EVERYONE} {t}", everyone, facts.apart, 1, order - 1))
        start = covariance_release(facts, COVARIANCE, _START_SHARE)
        return (count_release(facts, _COUNT_SHARE), start, *listed)

    def run(self, facts: Facts, ratings: Users, noise: Noise) -> ClickModel:
        """Alternate local factors of users with noisy normal equations of items."""
        popularity, rank = _popularity(learn_counts(facts, ratings, noise)[0]), n_factors(facts)
        noisy = noise.release(COVARIANCE, unit_covariance(facts, ratings))
        factors = spikes(noisy, noise.stddev(COVARIANCE), rank).vectors
        k = factors.shape[1]  # directions within the noise would only repeat users' own items
        for t in range(facts.n_iterations or 2):
            features = np.zeros((facts.n_items, rank))
            features[:, :k] = np.linalg.qr(factors)[0] * math.sqrt(facts.n_items)
            stack, everyone = click_equations(facts, ratings, features, np.full(rank, _NEGATIVES))
            stack = noise.release(f"{_STEP} {t}", stack)
            everyone = noise.release(f"{_EVERYONE} {t}", everyone)
            factors = _solve(facts, stack, everyone[:k, :k], noise.stddev(f"{_STEP} {t}"), popularity)
        _, rotation = np.linalg.eigh(factors.T @ factors)
        factors = factors @ rotation
        return ClickModel(popularity, factors, _NEGATIVES * np.maximum((factors**2).mean(axis=0), 1e-9))


def click_equations(facts: Facts, ratings: Users, features: Array, penalty: Array) -> tuple[Array, Array]:
    """Return the exact normal equations and the matrix of all users, in units of a user's largest contribution."""
    n, order = facts.n_items, features.shape[1] + 1
    bound, weight_bound = 1 << factor_bits(facts), 1 << WEIGHT_BITS

    def add(block: Ratings, sums: Integers) -> None:
        kernels.add_click_equations(
            block.starts,
            block.items,
            features,
            penalty,
            np.ones(n),
            facts.per_user,
            _FACTOR_BOUND,
            bound,
            weight_bound,
            sums,
        )

    sums = symmetric(ratings.total((n + 1, order, order), add), 1 / bound**2)
    everyone = np.ascontiguousarray(sums[n, :-1, :-1])
    return sums[:n] / weight_bound, everyone


def _solve(facts: Facts, stack: Array, everyone: Array, stddev: float, popularity: Array) -> Array:
    """Solve M_j v_j = b_j, M_j = A_j + a G, near c_j = popularity_j c, where c fits the equations of all items at once.

    The weight a spreads that of all clicks evenly over all entries. A Wiener filter on the eigenvalues of M_j decides
    how far v_j moves from c_j: an item whose equations are mostly noise stays there, ranked by popularity.
    """
    rank, square = len(everyone), _FACTOR_BOUND**2
    clicks = max(float(stack[:, -1, -1].sum()), 1.0)
    spread = _NEGATIVES * clicks / (facts.n_users * facts.n_items)
    matrices = square * (stack[:, :rank, :rank] + spread * everyone)
    right = stack[:, -1, :rank] * _FACTOR_BOUND
    length = math.sqrt(float(popularity @ popularity))
    common = np.outer(
        popularity,
        solved(
            np.einsum("j,jab->ab", popularity**2, matrices)[None],
            (popularity @ right)[None],
            stddev * square * math.sqrt(rank) * length,
        )[0],
    )
    prior = max(float((common**2).mean()), 1e-12) if rank else 1.0
    noise = stddev * _FACTOR_BOUND * np.sqrt(0.5 + square * (common**2).sum(axis=1, keepdims=True))
    values, vectors = np.linalg.eigh(matrices)
    values = np.maximum(values, 0.0)
    rest = right - np.einsum("jab,jb->ja", matrices, common)
    gain = values / (values**2 + noise**2 / prior)
    return np.asarray(common + np.einsum("jab,jb,jcb,jc->ja", vectors, gain, vectors, rest))


IMPLICIT: dict[str, Callable[[], Method]] = {
    "bias": Popularity,
    "subspace": CoOccurrence,
    "power": ClickPower,
    "als": ClickLeastSquares,
}
