"""Latent directions from the noisy covariance of users' residual rows, with a local ridge on them.

    W = sum_i a_i a_i^T + symmetric noise,    a_i = weighted residual of user i's own ridge fit, |a_i| <= row_clip.

Users compute residuals from released numbers and their own rows, so any local fit is free; the bound is enforced on
integers. Everything after the release is post-processing: eigenvectors above the edge of the noise, eigenvalues
corrected for it, and a diagonal (which sampling inflates) replaced by what the directions explain.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from discreet._typing import Array, Integers
from discreet.mechanisms.additive import mirror_lower
from discreet.recommend import kernels
from discreet.recommend.item_models import DescentModel, RidgeModel
from discreet.recommend.methods.profile import ERROR_VARIANCE, Profile, learn_profile, profile_releases
from discreet.recommend.plan import MOST_ENTRIES, Facts, Noise, Release
from discreet.recommend.ratings import LANE_ENTRIES, Ratings, Users, check_memory, in_threads
from discreet.sets.base import project_magnitudes
from discreet.solvers.components import Spikes, largest, spikes

_SPARSE = 6  # items per rating of a row up to which dense products are faster
_SMALL = 2000  # items whose covariance stays in a processor's cache
_NEAR_ENTRIES = 1 << 16  # ratings that do
_DENSE_ENTRIES = 1 << 20  # of dense rows at a time
RANK_ONE = (
    "symmetric Gaussian noise on a sum of bounded rank-one matrices (docs/proofs/recommenders.md, Theorem 1)"
)
COVARIANCE, ENERGY, _WEIGHTS = "covariance", "residual energy", "covariance weights"
_MOST_ITEMS_DESCENT = 5000  # every round processes n_users x n_items numbers
_FULL_ROWS = 4096  # users whose full rows are in memory at a time
_PROFILE_SHARE = 0.4
_ENERGY_SHARE = 0.01
# Row bound over the root mean square of residual rows: below 1, most rows get the same length, and the noise falls
# faster than the signal.
_ROW_RATIO = 0.8


def check_dense(facts: Facts) -> None:
    """Raise for catalogs whose covariance does not fit."""
    if facts.n_items**2 > MOST_ENTRIES:
        raise ValueError(
            f"a dense covariance of {facts.n_items} items needs {8 * facts.n_items**2 / 2**30:.0f} GB; use "
            "method='power' (block power iteration), method='profile', or a smaller public catalog"
        )
    check_memory(8 * facts.n_items**2, "a dense covariance", "use method='power' or method='profile'")


def covariance_release(facts: Facts, name: str, share: float) -> Release:
    """Return one symmetric release in units of row_clip^2, of sensitivity sqrt(2) or 1 (Theorem 1)."""
    check_dense(facts)
    return Release(name, share, facts.apart, 1, facts.n_items)


def residual_integers(
    facts: Facts, block: Ratings, model: RidgeModel, importance: Array, bound: int
) -> Integers:
    """Return every user's weighted residual in integer steps of row_clip / bound."""
    q = np.zeros(len(block.items), dtype=np.int64)
    kernels.residual_rows(
        block.starts,
        block.items,
        block.values,
        model.base,
        model.features,
        model.penalty,
        importance,
        facts.per_user,
        facts.row_clip,
        bound,
        q,
    )
    return q


def covariance(facts: Facts, ratings: Users, model: RidgeModel, importance: Array) -> Array:
    """Return the exact, symmetric covariance of quantized residual rows, in units of row_clip^2."""
    bound = facts.bound(2)

    def add(block: Ratings, sums: Integers) -> None:
        add_covariance(block, residual_integers(facts, block, model, importance, bound), sums)

    return symmetric(ratings.total((facts.n_items, facts.n_items), add), 1 / bound**2)


def energy_release(share: float) -> Release:
    """Return the release of summed squared norms of weighted residual rows: sensitivity 1 under every relation."""
    return Release(ENERGY, share, 1.0, 1)


def adapted(facts: Facts, ratings: Users, noise: Noise, model: RidgeModel, profile: Profile) -> Facts:
    """Lower the row bound to what residuals need; allowed because covariances are released in units of it."""
    wide = dataclasses.replace(facts, row_clip=1.0)
    bound = facts.bound(2)

    def add(block: Ratings, sums: Integers) -> None:
        q = residual_integers(wide, block, model, profile.importance, bound)
        sums[0] += q @ q

    noisy = noise.release(ENERGY, ratings.total((1,), add) / bound**2)
    energy = max(float(noisy[0]) + 2 * noise.stddev(ENERGY), 0.0) / profile.n_users
    return dataclasses.replace(facts, row_clip=min(facts.row_clip, max(_ROW_RATIO * math.sqrt(energy), 1e-3)))


def with_directions(model: RidgeModel, found: Spikes, trace: float, profile: Profile) -> RidgeModel:
    """Add directions, scaled so that users' coefficients have unit variance, and learn the error from the trace."""
    reach, m = profile.reach, profile.n_users
    doubt = (profile.count_noise / profile.counts * reach) ** 2
    directions = found.vectors * np.sqrt(found.values * m) * (reach / (reach**2 + doubt))[:, None]
    features = np.column_stack([model.features, directions])
    prior = np.concatenate([model.prior, np.ones(directions.shape[1])])
    weights = profile.counts * profile.importance**2
    explained = float(weights @ (directions**2).sum(axis=1)) / float(weights.sum())
    error = min(max(trace / m - explained, 0.02 * trace / m, 1e-4), 1.0)
    return RidgeModel(model.base, features, prior, error)


@dataclass(frozen=True)
class Subspace:
    """Noisy covariance of residual rows and a local ridge on its top directions: the recommended method.

    Parameters
    ----------
    centered : whether item effects are learned first (``svd`` leaves them out: one release, midpoint-centered rows).
    """

    centered: bool = True
    theorem: str = RANK_ONE

    @property
    def name(self) -> str:
        """As in ``PrivateMatrixCompletion(method=...)``."""
        return "subspace" if self.centered else "svd"

    def releases(self, facts: Facts) -> tuple[Release, ...]:
        """List the item profile, then one covariance per round."""
        rounds = (facts.n_iterations or 1) if self.centered else 1
        if not self.centered:
            share, first = 1.0, profile_releases(facts, 0.1, 0)
        else:
            share, first = 1.0 - _PROFILE_SHARE, profile_releases(facts, _PROFILE_SHARE)
        later = tuple(covariance_release(facts, f"{COVARIANCE} {t}", share / rounds) for t in range(rounds))
        return (*first, energy_release(_ENERGY_SHARE), *later)

    def run(self, facts: Facts, ratings: Users, noise: Noise) -> RidgeModel:
        """Alternate noisy global steps and local ridges."""
        simple = not self.centered
        profile = learn_profile(facts, ratings, noise, 0 if simple else 1)
        model = _plain(profile) if simple else profile.model(slopes=True)
        facts = adapted(facts, ratings, noise, model, profile)
        for t in range((facts.n_iterations or 1) if self.centered else 1):
            name = f"{COVARIANCE} {t}"
            noisy = noise.release(name, covariance(facts, ratings, model, profile.importance))
            room = max(0, facts.rank - (model.features.shape[1] - (1 if simple else 3)))
            if room:
                unit = facts.row_clip**2
                trace = unit * float(np.trace(noisy))
                found = spikes(noisy, noise.stddev(name), room, unit=unit)
                model = with_directions(model, found, trace, profile)
        return model


def _plain(profile: Profile) -> RidgeModel:
    """Return a model of users' own offsets around the public middle."""
    n = len(profile.effects)
    flat = np.full(n, profile.global_mean)
    return RidgeModel(flat, np.ones((n, 1)), np.array([0.05]), 0.2)


def add_covariance(block: Ratings, q: Integers, sums: Integers) -> None:
    """Add q_i q_i^T to the lower triangle of sums; threads share the lines of one large matrix evenly."""
    n, size = len(sums), len(block.items)
    if n <= _SMALL and n * block.n_users <= _SPARSE * size:
        _add_dense(block, q, sums)
        return
    if n <= _SMALL and size > _NEAR_ENTRIES:  # the matrix is in the cache, and rows should be, too
        for first, last in block.blocks(_NEAR_ENTRIES):
            add_covariance(block.part(first, last), q[block.starts[first] : block.starts[last]], sums)
        return
    parts = 1 if sums.size <= LANE_ENTRIES else block.n_threads
    cuts = [round(n * math.sqrt(part / parts)) for part in range(parts + 1)]
    heads, order, begins = np.empty(n + 1, np.int64), np.empty(size, np.int32), np.empty(size, np.int32)
    kernels.by_item(block.starts, block.items, heads, order, begins)

    def one_part(part: int) -> None:
        kernels.add_covariance(block.items, q, heads, order, begins, cuts[part], cuts[part + 1], sums)

    in_threads(one_part, parts)


def _add_dense(block: Ratings, q: Integers, sums: Integers) -> None:
    """Add products of dense rows: integers that stay below 2^52, so they are exact in float64."""
    n = len(sums)
    height = max(n, _DENSE_ENTRIES // n)
    for first in range(0, block.n_users, height):
        last = min(first + height, block.n_users)
        rows = np.zeros((last - first, n))
        kernels.spread(block.starts[first : last + 1], block.items, q, rows)
        sums += (rows.T @ rows).astype(np.int64)


def symmetric(lower: Integers, scale: float) -> Array:
    """Return scale times the mirrored lower triangles, in the memory of the integers, which may be large."""
    values = lower.view(np.float64)
    for i in range(len(lower)):
        values[i] = lower[i].astype(np.float64)  # exact: below 2^52
    values *= scale
    mirror_lower(values)
    return values


# -- two older methods: after cleansing (McSherry and Mironov, 2009), and projected gradient descent ---


@dataclass(frozen=True)
class Cleansing:
    """SVD after cleansing: item means, then a noisy covariance divided by noisy weights and projected to low rank."""

    name: str = "cleansing"
    theorem: str = "item statistics and weighted covariance (docs/proofs/recommenders.md, Theorems 1 and 2)"

    def releases(self, facts: Facts) -> tuple[Release, ...]:
        """List means, covariance and weights."""
        check_dense(facts)
        weights = Release(_WEIGHTS, 0.2, facts.apart, 1, facts.n_items)
        return (*profile_releases(facts, 0.15, 0), covariance_release(facts, COVARIANCE, 0.65), weights)

    def run(self, facts: Facts, ratings: Users, noise: Noise) -> RidgeModel:
        """Estimate the covariance of ratings entry by entry, then keep its top directions."""
        n, ones = facts.n_items, np.ones(facts.n_items)
        model = learn_profile(facts, ratings, noise, 0).model(slopes=False)
        unit = facts.row_clip**2
        cov = unit * noise.release(COVARIANCE, covariance(facts, ratings, model, ones))
        nothing = RidgeModel(np.zeros(n), np.zeros((n, 1)), np.ones(1), 1.0)
        counting = Facts(facts.guarantee, facts.n_users, n, row_clip=1.0, per_user=facts.per_user)
        weights = noise.release(_WEIGHTS, covariance(counting, ratings.as_clicks(), nothing, ones))
        beside = noise.stddev(_WEIGHTS)
        shrink = max(float(weights.mean()), beside)
        entry = (cov + shrink * cov.mean() / max(weights.mean(), beside)) / (
            np.maximum(weights, 0.0) + shrink
        )
        deviation = unit * noise.stddev(COVARIANCE) / (np.maximum(np.diag(weights), 0.0) + shrink)
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
            Release(f"{COVARIANCE} {t}", 1 / rounds, facts.apart, 1, facts.n_items, unit=square)
            for t in range(rounds)
        )

    def run(self, facts: Facts, ratings: Users, noise: Noise) -> DescentModel:
        """Step, clip, project."""
        n, rank = facts.n_items, facts.rank
        clip, rate = facts.row_clip * math.sqrt(n), 1.0
        radius = facts.nuclear_norm * math.sqrt(facts.n_users * n)
        model = DescentModel(np.zeros((0, n, rank)), np.zeros((0, rank)), rate, clip, centered=True)
        for t in range(self._rounds(facts)):
            noisy = noise.release(f"{COVARIANCE} {t}", _full_covariance(facts, ratings, model))
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
