"""Item effects and popularity under differential privacy, and the bias models built on them.

The releases are weighted counts, stacked with clipped, user-centered sums; then refined sums, in which a user's weight
goes to the items that need it (f_j proportional to count_j^(-1/2) minimizes the summed error under a bound on a user's
norm); last the mean of the users' own offsets. Everything else is post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from discreet._typing import Array, Integers
from discreet.recommend import kernels
from discreet.recommend.item_models import RidgeModel
from discreet.recommend.plan import Facts, Noise, Release
from discreet.recommend.ratings import Ratings, Users

# Expected variances of ratings, in units of half the range; they affect shrinkage only, never privacy. Ratings that use
# the range evenly have variance 1/3: these are the parts that users, items and chance are expected to explain.
_EVEN = 1 / 3
_EFFECT_VARIANCE = 0.15 * _EVEN
_OFFSET_VARIANCE = 0.15 * _EVEN
_MEAN_VARIANCE = 0.3 * _EVEN  # of the mean of all ratings around the middle of the range
_TREND_VARIANCE = 0.06 * _EVEN
_POPULARITY_VARIANCE = 0.04 * _EVEN
ERROR_VARIANCE = 0.6 * _EVEN
# Of a user's ratings of like items.
_SPREAD = math.sqrt(_TREND_VARIANCE + _POPULARITY_VARIANCE + ERROR_VARIANCE)
_SLOPE_SPREAD = 0.5  # of users' tastes for good items around 1
_ABSENT = 0.3  # part of the users that may well have no ratings
_OFFSET_SHARE = 0.01

PROFILE, EFFECTS, OFFSETS = "item profile", "item effects", "user offsets"


@dataclass(frozen=True)
class Profile:
    """What was learned about each item.

    Attributes
    ----------
    counts : weighted numbers of ratings, at least a fraction of their noise.
    count_noise : standard deviation of the counts.
    importance : weight of every item in a user's row.
    reach : expected sum over users of the row weights of every item.
    effects : how much better than the average an item is rated.
    popularity : standardized logarithm of the counts.
    reliability : fraction of the counts' variance that is not noise.
    global_mean : mean of users' offsets.
    n_users : noisy number of users with ratings.
    """

    counts: Array
    count_noise: float
    importance: Array
    reach: Array
    effects: Array
    popularity: Array
    reliability: float
    global_mean: float
    n_users: float

    @property
    def base(self) -> Array:
        """Predictions for a user without ratings."""
        return self.global_mean + self.effects

    def model(self, *, slopes: bool) -> RidgeModel:
        """Return a local ridge on an offset and, with ``slopes``, on the effects and the popularity."""
        ones = np.ones((len(self.effects), 1))
        if not slopes:
            return RidgeModel(self.base, ones, np.array([_OFFSET_VARIANCE]), ERROR_VARIANCE)
        weights = self.counts / self.counts.sum()
        centered = self.effects - weights @ self.effects
        spread = max(math.sqrt(weights @ centered**2), 1e-3)
        features = np.column_stack([ones, centered / spread, self.popularity])
        # Tastes for popularity vary as much as popularity can be distinguished from noise.
        taste = max(_POPULARITY_VARIANCE * self.reliability, 1e-8)
        prior = np.array([_OFFSET_VARIANCE, (_SLOPE_SPREAD * spread) ** 2, taste])
        return RidgeModel(self.base, features, prior, ERROR_VARIANCE)


def _count_scale(facts: Facts) -> float:
    """Return the scale of counts in the stacked release: free at 1 if rows are replaced, cheap at 1/2 otherwise."""
    return 1.0 if facts.replaces else 0.5


def profile_releases(facts: Facts, share: float, refinements: int = 1) -> tuple[Release, ...]:
    """List the releases behind a `Profile` (docs/proofs/recommenders.md, section 3)."""
    scale = _count_scale(facts)
    stacked = 2.0 if facts.replaces else math.sqrt(1 + scale**2)
    each = share * (1 - _OFFSET_SHARE) / (1 + refinements)
    single = 2.0 if facts.replaces else 1.0
    return (
        Release(PROFILE, each, stacked, 2 * facts.n_items),
        *(Release(f"{EFFECTS} {k}", each, single, facts.n_items) for k in range(refinements)),
        Release(OFFSETS, share * _OFFSET_SHARE, 2.0 if facts.replaces else math.sqrt(2.0), 2),
    )


def learn_profile(facts: Facts, ratings: Users, noise: Noise, refinements: int = 1) -> Profile:
    """Run the releases of `profile_releases` and shrink the results."""
    n, clip = facts.n_items, facts.rating_clip
    effects, importance = np.zeros(n), np.ones(n)
    scale = _count_scale(facts)
    sums = weighted_sums(facts, ratings, importance, effects)
    stddev = noise.stddev(PROFILE)
    count_noise = stddev / scale
    noisy = noise.release(PROFILE, np.concatenate([scale * sums[0], sums[1]]))
    raw = noisy[:n] / scale
    counts = np.maximum(raw, 0.5 * count_noise)
    popularity = _standardized(np.log(counts + 2 * count_noise), counts)
    slope = math.erf(clip / (_SPREAD * math.sqrt(2))) / clip  # of a clipped mean in the true one
    variance = np.full(n, _EFFECT_VARIANCE)
    gain = slope * counts
    effects = _popularity_trend(noisy[n:], gain, stddev, popularity)
    effects, variance = _update(effects, variance, noisy[n:] - gain * effects, gain, stddev)
    importance = importance_of(raw, count_noise)
    reach = counts * importance / math.sqrt(float(counts @ importance**2) / float(counts.sum()))
    for k in range(refinements):
        name = f"{EFFECTS} {k}"
        update = noise.release(name, weighted_sums(facts, ratings, importance, effects)[1])
        effects, variance = _update(effects, variance, update, slope * reach, noise.stddev(name))
    mean, n_users = _offsets(facts, ratings, effects, noise)
    reliability = max(0.0, 1 - count_noise**2 / max(float(raw.var()), 1e-300))
    return Profile(counts, count_noise, importance, reach, effects, popularity, reliability, mean, n_users)


def importance_of(counts: Array, count_noise: float) -> Array:
    """Return weights that minimize the summed error of item sums, from released counts; doubtful items get half."""
    return np.asarray(
        np.maximum(counts, 2 * count_noise) ** -0.5 * np.where(counts > 2 * count_noise, 1.0, 0.5)
    )


def weighted_sums(facts: Facts, ratings: Users, importance: Array, effects: Array) -> Array:
    """Return exact weighted counts and sums of clipped, centered ratings, in units of a user's norm."""
    bound = facts.bound(1, most=30)

    def add(block: Ratings, sums: Integers) -> None:
        kernels.add_profile(
            block.starts,
            block.items,
            block.values,
            importance,
            effects,
            facts.rating_clip,
            facts.per_user,
            bound,
            sums,
        )

    return ratings.total((2, facts.n_items), add) / bound


def _offsets(facts: Facts, ratings: Users, effects: Array, noise: Noise) -> tuple[float, float]:
    bound = facts.bound(1, most=30)

    def add(block: Ratings, sums: Integers) -> None:
        kernels.add_offsets(block.starts, block.items, block.values, effects, bound, sums)

    total_offset, counted = noise.release(OFFSETS, ratings.total((2,), add) / bound)
    stddev, most = noise.stddev(OFFSETS), float(facts.n_users)
    trust = 1 / (1 + (stddev / (_ABSENT * most)) ** 2)  # in the count; else nearly everybody has ratings
    n_users = min(max(most + trust * (float(counted) - most), 1.0), most)
    mean = float(total_offset) / n_users
    mean /= 1 + (stddev / n_users) ** 2 / _MEAN_VARIANCE  # towards the middle of the range
    return min(1.0, max(-1.0, mean)), n_users


def _standardized(values: Array, weights: Array) -> Array:
    share = weights / weights.sum()
    centered = values - share @ values
    return np.asarray(centered / max(math.sqrt(share @ centered**2), 0.1))


def _popularity_trend(sums: Array, gain: Array, stddev: float, popularity: Array) -> Array:
    """Regress noisy effects on popularity: the estimate for an item whose own ratings are mostly noise."""
    design = np.column_stack([np.ones_like(popularity), popularity, popularity**2])
    weight = gain**2 / (gain**2 * _EFFECT_VARIANCE + stddev**2)
    normal = (design * weight[:, None]).T @ design + np.eye(3) / _TREND_VARIANCE
    trend = design @ np.linalg.solve(normal, (design * weight[:, None]).T @ (sums / gain))
    return np.asarray(np.clip(trend, -1.0, 1.0))


def _update(effects: Array, variance: Array, sums: Array, gain: Array, stddev: float) -> tuple[Array, Array]:
    """Return posterior mean and variance after observing gain * (effect - effects) + noise."""
    error = stddev**2 + 0.02 * gain  # sampling error: ratings differ
    weight = gain * variance / (gain**2 * variance + error)
    return np.clip(effects + weight * sums, -2.0, 2.0), variance * error / (gain**2 * variance + error)


@dataclass(frozen=True)
class ItemProfile:
    """Item effects and popularity; with ``slopes`` every user fits a personal taste for both.

    Without slopes this is the private bias model, rating = mean + item effect + user offset.
    """

    slopes: bool = True
    theorem: str = "stacked counts and sums, exact joint sensitivity (docs/proofs/recommenders.md, Theorem 2)"

    @property
    def name(self) -> str:
        """As in ``PrivateMatrixCompletion(method=...)``."""
        return "profile" if self.slopes else "bias"

    def releases(self, facts: Facts) -> tuple[Release, ...]:
        """List counts, sums and offsets."""
        return profile_releases(facts, 1.0, facts.n_iterations or 1)

    def run(self, facts: Facts, ratings: Users, noise: Noise) -> RidgeModel:
        """Learn the profile."""
        return learn_profile(facts, ratings, noise, facts.n_iterations or 1).model(slopes=self.slopes)
