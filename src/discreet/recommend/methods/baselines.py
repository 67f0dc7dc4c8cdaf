"""Two older methods for comparison: SVD after cleansing (McSherry and Mironov, 2009), projected gradient descent."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from discreet._typing import Array, Integers
from discreet.recommend.item_models import DescentModel, RidgeModel
from discreet.recommend.methods.profile import ERROR_VARIANCE, learn_profile, profile_releases
from discreet.recommend.methods.subspace import check_dense, covariance, covariance_release, symmetric
from discreet.recommend.plan import Facts, Noise, Release
from discreet.recommend.ratings import Ratings, Users
from discreet.sets.base import project_magnitudes
from discreet.solvers.components import largest

_MOST_ITEMS_DESCENT = 5000  # every round processes n_users x n_items numbers
_FULL_ROWS = 4096  # users whose full rows are in memory at a time
_COVARIANCE, _WEIGHTS = "covariance", "covariance weights"


@dataclass(frozen=True)
class Cleansing:
    """SVD after cleansing: item means, then a noisy covariance divided by noisy weights and projected to low rank."""

    name: str = "cleansing"
    theorem: str = "item statistics and weighted covariance (docs/proofs/recommenders.md, Theorems 1 and 2)"

    def releases(self, facts: Facts) -> tuple[Release, ...]:
        """List means, covariance and weights."""
        check_dense(facts)
        weights = Release(_WEIGHTS, 0.2, facts.apart, 1, facts.n_items)
        return (*profile_releases(facts, 0.15, 0), covariance_release(facts, _COVARIANCE, 0.65), weights)

    def run(self, facts: Facts, ratings: Users, noise: Noise) -> RidgeModel:
        """Estimate the covariance of ratings entry by entry, then keep its top directions."""
        n, ones = facts.n_items, np.ones(facts.n_items)
        model = learn_profile(facts, ratings, noise, 0).model(slopes=False)
        unit = facts.row_clip**2
        cov = unit * noise.release(_COVARIANCE, covariance(facts, ratings, model, ones))
        nothing = RidgeModel(np.zeros(n), np.zeros((n, 1)), np.ones(1), 1.0)
        counting = Facts(facts.guarantee, facts.n_users, n, row_clip=1.0, per_user=facts.per_user)
        weights = noise.release(_WEIGHTS, covariance(counting, ratings.as_clicks(), nothing, ones))
        beside = noise.stddev(_WEIGHTS)
        shrink = max(float(weights.mean()), beside)
        entry = (cov + shrink * cov.mean() / max(weights.mean(), beside)) / (
            np.maximum(weights, 0.0) + shrink
        )
        deviation = unit * noise.stddev(_COVARIANCE) / (np.maximum(np.diag(weights), 0.0) + shrink)
        scale = np.sqrt(np.maximum(deviation, 1e-12))
        cleansed = entry / np.outer(scale, scale)
        values, vectors = largest((cleansed + cleansed.T) / 2, min(facts.rank, n))
        keep = values > 2 * math.sqrt(n)
        directions = vectors[:, keep] * np.sqrt(values[keep]) * scale[:, None]
        features = np.column_stack([model.features, np.clip(directions, -1.0, 1.0)])
        prior = np.concatenate([model.prior, np.ones(int(keep.sum()))])
        energy = float(np.trace(cov)) / max(float(np.trace(weights)), 1.0)
        explained = float((features[:, 1:] ** 2).sum(axis=1).mean())
        return RidgeModel(model.base, features, prior, min(max(energy - explained, 0.005), ERROR_VARIANCE))


@dataclass(frozen=True)
class ProjectedGradient:
    """Gradient steps on full rows, projected onto a nuclear-norm ball by a noisy covariance of those rows.

    Every user first subtracts the mean of their own ratings, as for Frank-Wolfe.
    """

    name: str = "pgd"
    theorem: str = (
        "symmetric Gaussian noise on bounded rank-one matrices (docs/proofs/recommenders.md, Theorem 1)"
    )

    def _rounds(self, facts: Facts) -> int:
        return facts.n_iterations or 3

    def releases(self, facts: Facts) -> tuple[Release, ...]:
        """List one covariance of full rows per round."""
        if facts.n_items > _MOST_ITEMS_DESCENT:
            raise ValueError(
                f"method 'pgd' works on full rows and takes at most {_MOST_ITEMS_DESCENT} items, got {facts.n_items}; "
                "use 'subspace' or 'profile'"
            )
        rounds, square = self._rounds(facts), facts.row_clip**2 * facts.n_items
        return tuple(
            Release(f"{_COVARIANCE} {t}", 1 / rounds, facts.apart, 1, facts.n_items, unit=square)
            for t in range(rounds)
        )

    def run(self, facts: Facts, ratings: Users, noise: Noise) -> DescentModel:
        """Step, clip, project."""
        n, rank = facts.n_items, facts.rank
        clip, rate = facts.row_clip * math.sqrt(n), 1.0
        radius = facts.nuclear_norm * math.sqrt(facts.n_users * n)
        model = DescentModel(np.zeros((0, n, rank)), np.zeros((0, rank)), rate, clip, centered=True)
        for t in range(self._rounds(facts)):
            noisy = noise.release(f"{_COVARIANCE} {t}", _full_covariance(facts, ratings, model))
            values, vectors = largest(noisy, rank)
            singular = np.sqrt(np.maximum(values, 0.0))
            kept = project_magnitudes(singular, radius)
            gains = np.where(singular > 0, kept / np.maximum(singular, 1e-12), 0.0)
            model = DescentModel(
                np.concatenate([model.bases, vectors[None]]),
                np.concatenate([model.gains, gains[None]]),
                rate,
                clip,
                centered=True,
            )
        return model


def _full_covariance(facts: Facts, ratings: Users, model: DescentModel) -> Array:
    """Return the covariance of quantized full rows, by integer-valued products that are exact in float64."""
    bound = facts.bound(2)

    def add(block: Ratings, sums: Integers) -> None:
        for begin in range(0, block.n_users, _FULL_ROWS):
            rows, _ = model.unprojected(block.part(begin, min(begin + _FULL_ROWS, block.n_users)))
            quantized = np.trunc(rows * (bound / model.clip))
            square = (quantized**2).sum(axis=1)  # integers below 2^53: exact
            while np.any(square > bound**2):
                quantized = np.where(
                    (square > bound**2)[:, None], np.trunc(quantized * (1 - 2.0**-20)), quantized
                )
                square = (quantized**2).sum(axis=1)
            sums += (quantized.T @ quantized).astype(np.int64)

    return symmetric(ratings.total((facts.n_items, facts.n_items), add), 1 / bound**2)
