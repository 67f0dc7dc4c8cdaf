"""Frank-Wolfe over a nuclear-norm ball (Jain, Thakkar and Thakurta, 2018): corrected, with Oja's rule, and as printed.

Round t: a_i = clipped residual of user i, W = sum_i a_i a_i^T + noise, v = top eigenvector, and every user moves by
-step k (a_i . v) / l along v, where l is the singular value. Corrected: steps 2 / (t + 2), of which every user takes
the part that is best for their own ratings, residuals within the row bound, symmetric noise, and l from a scalar
release. Printed: steps 1 / T, residuals within twice the bound, l the root of the noisy eigenvalue inflated by
sqrt(sigma log(n / beta)) n^(1/4), a first round that does nothing, and the printed noise (raised if it would not meet
the guarantee). In both every user first subtracts the mean of their own ratings (Thakkar, 2019, section 6.4),
which is a step on the user's own row and costs nothing.

With Oja's rule (Thakkar, 2019, Algorithm 14 inside Algorithm 13) no matrix is formed: v is found by a few noisy
products W v, all charged, from a random start of norm 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from discreet._typing import Array, Integers
from discreet.recommend import kernels
from discreet.recommend import replay_kernels as replay
from discreet.recommend.item_models import ReplayModel
from discreet.recommend.methods.power import in_units, product_bound, product_sensitivity, quantized_block
from discreet.recommend.methods.subspace import RANK_ONE, add_covariance, check_dense, symmetric
from discreet.recommend.plan import Facts, Noise, Release
from discreet.recommend.ratings import Ratings, Users
from discreet.solvers.components import block_iteration, largest

_COVARIANCE, _LENGTH = "residual covariance", "singular value"
_LENGTH_SHARE = 0.1
_VECTOR_SCALE = 1 << 16
_PRODUCT, _OJA_STEPS = "residual product", 3
_FAILURE = 0.05  # beta of the printed inflation


@dataclass(frozen=True)
class FrankWolfe:
    """Nuclear-norm Frank-Wolfe with a noisy top eigenvector per round."""

    printed: bool = False
    oja: bool = False
    theorem: str = RANK_ONE

    @property
    def name(self) -> str:
        """As in ``PrivateMatrixCompletion(method=...)``."""
        return "frank-wolfe-printed" if self.printed else "frank-wolfe-oja" if self.oja else "frank-wolfe"

    def _rounds(self, facts: Facts) -> int:
        """Rounds that use data; the first round of the printed loop does not."""
        rounds = facts.n_iterations or 5
        return max(1, rounds - 1) if self.printed else rounds

    def _clip(self, facts: Facts) -> float:
        """Bound on a residual: the root of the number of ratings per user, times the bound per rating."""
        per_user = facts.per_user if facts.per_user > 1 else max(1.0, facts.n_items / 5)
        return math.sqrt(per_user) * (2.0 if self.printed else facts.row_clip)

    def releases(self, facts: Facts) -> tuple[Release, ...]:
        """List a covariance or a few products per round and, if corrected, a scalar."""
        if not self.oja:
            check_dense(facts)
        rounds, square = self._rounds(facts), self._clip(facts) ** 2
        least = 0.0
        if self.printed:
            row_square = square / 4
            stddev = row_square * math.sqrt(
                64 * (facts.n_iterations or 5) * math.log(1 / facts.guarantee.delta)
            )
            # Independent entries of this deviation: sqrt(2) times it on the diagonal of the symmetric mechanism.
            least = math.sqrt(2) * stddev / facts.guarantee.epsilon / (facts.apart * square)
        length_share = 0.0 if self.printed else _LENGTH_SHARE
        share, scalar = (
            (1 - length_share) / rounds,
            ((_VECTOR_SCALE + math.sqrt(facts.n_items) + 1) / _VECTOR_SCALE) ** 2,
        )
        listed = []
        for t in range(rounds):
            if self.oja:
                one, reach = share / _OJA_STEPS, product_sensitivity(replace(facts, rank=1))
                names = [_product_name(t, number) for number in range(_OJA_STEPS)]
                listed += [Release(name, one, reach, facts.n_items, unit=square) for name in names]
            else:
                listed.append(
                    Release(f"{_COVARIANCE} {t}", share, facts.apart, 1, facts.n_items, square, least)
                )
            if not self.printed:
                listed.append(Release(f"{_LENGTH} {t}", length_share / rounds, scalar, 1, unit=square))
        return tuple(listed)

    def run(self, facts: Facts, ratings: Users, noise: Noise) -> ReplayModel:
        """Alternate noisy directions and replays."""
        rounds, clip, n = self._rounds(facts), self._clip(facts), facts.n_items
        radius = facts.nuclear_norm * math.sqrt(facts.n_users * n)
        model = ReplayModel(np.zeros((n, 0)), np.zeros(0), np.zeros(0), clip, not self.printed, True)
        for t in range(rounds):
            name = f"{_COVARIANCE} {t}"
            if self.oja:
                v = _oja_direction(facts, ratings, model, noise, t)
            else:
                values, vectors = largest(noise.release(name, _covariance(facts, ratings, model)), 1)
                v = vectors[:, 0]
            if self.printed:
                step, entry = 1 / (facts.n_iterations or 5), noise.stddev(name) / math.sqrt(2)
                length = (
                    math.sqrt(max(float(values[0]), 0.0))
                    + math.sqrt(entry * math.log(n / _FAILURE)) * n**0.25
                )
            else:
                step, scalar = 2 / (t + 2), noise.stddev(f"{_LENGTH} {t}")
                energy = float(noise.release(f"{_LENGTH} {t}", _energy(facts, ratings, model, v))[0])
                length = math.sqrt(max(energy + 2 * scalar, 2 * scalar))
            model = ReplayModel(
                np.column_stack([model.directions, v]),
                np.append(model.shrinks, 1 - step),
                np.append(model.lengths, step * radius / max(length, 1e-12)),
                clip,
                not self.printed,
                centered=True,
            )
        return model


def _product_name(t: int, number: int) -> str:
    return f"{_PRODUCT} {t}.{number}"


def _oja_direction(facts: Facts, ratings: Users, model: ReplayModel, noise: Noise, t: int) -> Array:
    """Return the direction of the last of a few noisy products of the residuals' covariance, by Oja's rule."""
    single = replace(facts, rank=1)

    def noisy_product(number: int, block: Array) -> Array:
        exact = _product(facts, ratings, model, quantized_block(single, block))
        return noise.release(_product_name(t, number), exact)

    step = 1 / (_OJA_STEPS * noise.stddev(_product_name(t, 0)) * math.sqrt(facts.n_items))
    last = block_iteration(noise.public_directions(facts.n_items, 1), noisy_product, _OJA_STEPS, step)
    return np.asarray(last[:, 0] / max(float(np.linalg.norm(last)), 1e-300))


def _product(facts: Facts, ratings: Users, model: ReplayModel, block: Integers) -> Array:
    """Return sum_i a_i (a_i . v) in units of the squared clip, exact up to the dropped bits."""
    bound = product_bound(facts)

    def add(part: Ratings, sums: Integers) -> None:
        kernels.add_product(part.starts, part.items, model.residuals(part, bound)[0], block, sums)

    return in_units(ratings.total(block.shape, add), bound)


def _covariance(facts: Facts, ratings: Users, model: ReplayModel) -> Array:
    bound = facts.bound(2)

    def add(block: Ratings, sums: Integers) -> None:
        add_covariance(block, model.residuals(block, bound)[0], sums)

    return symmetric(ratings.total((facts.n_items, facts.n_items), add), 1 / bound**2)


def _energy(facts: Facts, ratings: Users, model: ReplayModel, v: Array) -> Array:
    """Return sum_i (a_i . v)^2, each term rounded down and summed exactly."""
    bound = facts.bound(2) >> 1
    direction = np.trunc(v * _VECTOR_SCALE).astype(np.int64)

    def add(block: Ratings, sums: Integers) -> None:
        q = model.residuals(block, bound)[0]
        replay.add_energy(block.starts, block.items, q, direction, _VECTOR_SCALE, sums)

    return ratings.total((1,), add) / bound**2
