"""The exponential mechanism on a set of vectors, sampled exactly: P(theta) proportional to exp(-energy(theta)).

The candidates are the points of a fine public grid in one or two public balls. A proposal is drawn from a lattice
Gaussian that lies above the target, and a coin accepts or rejects it: the accepted point has exactly the stated
distribution for any proposal (von Neumann, 1951). Floating point decides only comparisons that are not close; close
ones are decided in exact arithmetic on more bits of the same uniform number. Proofs:
docs/proofs/exponential-sampling.md, sections 1 to 3.

The proposal draws one coordinate after the other (Klein, 2000; Gentry, Peikert and Vaikuntanathan, 2008). With
M = L L^T, a Gaussian of precision M is, from the last coordinate to the first, a scalar Gaussian around a center
determined by the later coordinates. Every center is rounded to the grid and the scalar noise is an exact discrete
Gaussian:

    P(theta) = exp(-Q(theta)) / constant,      Q(theta) = sum_j e_j^2 / (2 (256 width_j)^2),

holds exactly, where e is the integer noise that led to theta. Rounding errors of the centers are part of the
definition of Q.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from discreet._typing import Array, Integers
from discreet.mechanisms.recording import next_answer, observed
from discreet.mechanisms.samplers.discrete import MAX_WIDTH, discrete_gaussian, exact_coin
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.mechanisms.samplers.numba_decorator import compiled
from discreet.privacy.events import BoundedRange, Event
from discreet.privacy.guarantee import SHRINK, SLACK

TABLE_SCALE = 256  # standard deviation of the table's distribution; a coordinate's is this times its width


@dataclass(frozen=True, eq=False)
class LatticeGaussian:
    """Near-Gaussian vectors around ``mean`` with precision near ``factor factor^T``, on multiples of ``grid``.

    Parameters
    ----------
    mean : array of p numbers.
    factor : lower triangular matrix with a diagonal greater than 0.
    grid : a power of two, well below the smallest conditional standard deviation 1 / factor_jj.

    Attributes
    ----------
    widths : conditional standard deviations in units of 256 grid steps, rounded up: the distribution is never narrower
        than the requested Gaussian.
    """

    mean: Array
    factor: Array
    grid: float

    @property
    def widths(self) -> Integers:
        """Conditional standard deviations in units of 256 steps."""
        wanted = np.ceil(1.0 / (np.diag(self.factor) * (TABLE_SCALE * self.grid)))
        return np.clip(wanted, 1, MAX_WIDTH).astype(np.int64)

    def draw(self, count: int, entropy: Entropy) -> tuple[Array, Integers]:
        """Draw ``count`` vectors, one per row, and the integer noise of each."""
        noise = np.empty((count, len(self.mean)), dtype=np.int64)
        for j, width in enumerate(self.widths):
            noise[:, j] = discrete_gaussian(TABLE_SCALE, int(width)).draw(count, entropy)
        ratios = np.ascontiguousarray((self.factor / np.diag(self.factor)).T)
        return _place(noise, self.mean, ratios, self.grid), noise

    def exponent(self, noise: Integers) -> Array:
        """Return Q of every row of ``noise`` in float64, with relative error below (p + 4) 2^-53."""
        scaled = noise / (TABLE_SCALE * self.widths).astype(np.float64)
        return np.asarray(0.5 * np.square(scaled).sum(axis=1))

    def exact_exponent(self, noise: Integers) -> Fraction:
        """Return Q of one noise vector exactly."""
        terms = (
            Fraction(int(e), TABLE_SCALE * int(w)) ** 2 / 2 for e, w in zip(noise, self.widths, strict=True)
        )
        return sum(terms, Fraction(0))

    def farthest_center(self, radius: float) -> float:
        """Bound the conditional centers |c_j| of theta with |theta| <= radius."""
        reach = float(np.linalg.norm(self.factor)) * (radius + float(np.linalg.norm(self.mean)))
        return 2 * (radius + reach / float(np.min(np.diag(self.factor))))

    def excess(self, radius: float) -> float:
        """Bound how far Q(theta) can exceed (theta - mean)^T factor factor^T (theta - mean) / 2 for |theta| <= radius.

        Centers are off by half a step and by the rounding of a sum of p products (section 2 of the proof).
        """
        p = len(self.mean)
        size = float(np.linalg.norm(self.factor)) * SLACK
        norm = float(np.linalg.norm(self.mean)) * SLACK
        unit = (p + 8) * 2.0**-52
        length = size * (radius + norm)
        shift = size * (self.grid / 2 + unit * (radius + 2 * norm))
        narrow = float(np.max(1.0 / (np.diag(self.factor) * self.grid * TABLE_SCALE * self.widths))) ** 2
        return (length * shift + 0.5 * shift**2 + max(narrow - 1.0, 0.0) * (length + shift) ** 2) * (1 + 1e-9)


def _place_python(noise: Integers, mean: Array, ratios: Array, grid: float) -> Array:
    """Set theta_j = grid (round(center_j / grid) + noise_j) for j = p - 1, ..., 0.

    center_j = mean_j - sum_{k > j} ratios_jk (theta_k - mean_k).
    """
    count, p = noise.shape
    theta = np.empty((count, p))
    moved = np.empty(p)
    for row in range(count):
        for j in range(p - 1, -1, -1):
            pull = 0.0
            for k in range(j + 1, p):
                pull += ratios[j, k] * moved[k]
            theta[row, j] = (np.rint((mean[j] - pull) / grid) + noise[row, j]) * grid
            moved[j] = theta[row, j] - mean[j]
    return theta


# Any order of summation is valid, as long as all rows use the same.
_place: Callable[[Integers, Array, Array, float], Array] = compiled("reassoc", "contract")(_place_python)


def power_of_two_below(value: float) -> float:
    """Return the largest power of two that is at most ``value``.

    >>> power_of_two_below(0.3)
    0.25
    """
    return math.ldexp(1.0, math.frexp(value)[1] - 1)


Energy = Callable[[Array], float]

_BATCH = 2048  # proposals per batch; those after the first accepted one are discarded
_ERROR = 2.0**-40  # well above the relative rounding error of an exponent of p < 4096 terms
_SMALLEST = 5e-324


@dataclass(frozen=True)
class Ball:
    """Vectors within ``radius`` of ``center``; membership depends only on their float64 coordinates."""

    center: tuple[float, ...]
    radius: float

    @property
    def largest_square(self) -> float:
        """Largest computed squared distance in the ball; the exact distance is then below the radius."""
        return self.radius**2 * SHRINK


class Region(Protocol):
    """A public set of vectors; membership depends only on their float64 coordinates."""

    def contains(self, points: Array) -> NDArray[np.bool_]:
        """Whether points, one per row, belong to the set."""
        ...


@dataclass(frozen=True, eq=False)
class Envelope:
    """A proposal with a constant that puts it above the target.

    For every theta in all balls, with Q the proposal's exponent,

        energy(theta) - Q(theta) + log_bound >= sum_b tilts_b (radius_b^2 - |theta - center_b|^2) / 2 >= 0.

    The builder of an envelope proves this; the distribution of the sample depends on nothing else. ``refine(theta,
    gap)`` may save work: it returns True only if the left side exceeds the middle by at least ``gap``.
    """

    proposal: LatticeGaussian
    tilts: tuple[float, ...]
    log_bound: float
    refine: Callable[[Array, float], bool] | None = None


@dataclass(frozen=True)
class GibbsMechanism:
    """Choose a grid point of the balls, and of a region in them, with probability proportional to exp(-energy).

    Parameters
    ----------
    epsilon : float
        Bound on max h - min h over the balls, where h is the difference of two neighbors' energies as computed in
        float64.
    balls : public balls; their common points are the candidates.
    grid : public power of two; coordinates are multiples of it.
    region : public set; only its points are candidates. None for all points of the balls.

    Privacy
    -------
    Event: ``BoundedRange(epsilon)``, exactly: epsilon-DP and (epsilon^2 / 8)-zCDP of the released vector. The number
    of tries depends on the data and is not part of the release (section 6 of the proof).
    """

    epsilon: float
    balls: tuple[Ball, ...]
    grid: float
    region: Region | None = None

    @property
    def event(self) -> Event:
        """The event of one call of ``release``."""
        return BoundedRange(self.epsilon)

    def release(self, energy: Energy, build: Callable[[], Envelope], entropy: Entropy) -> Array:
        """Draw a sample under the envelope that ``build`` makes; the energy is computed for few proposals."""
        given = next_answer(entropy)
        return observed(
            self,
            entropy,
            self._sample(energy, build(), entropy) if given is None else given,
            scale=1 / self.epsilon,
            value=_Probes(energy, self),
            score_range=self.epsilon,
            event=self.event,
            exact_tries=True,
            additive=False,
        )

    def _sample(self, energy: Energy, envelope: Envelope, entropy: Entropy) -> Array:
        while True:
            for point, _, accepted in self.tries(energy, envelope, entropy, _BATCH):
                if accepted:
                    return point

    def tries(
        self, energy: Energy, envelope: Envelope, entropy: Entropy, count: int
    ) -> Iterator[tuple[Array, float, bool]]:
        """Make ``count`` proposals; yield those in the balls as (point, -log acceptance probability, accepted).

        A point rejected after only some of the records has an infinite second entry.
        """
        proposal = envelope.proposal
        points, noise = proposal.draw(count, entropy)
        words = entropy.words(count)
        drops = self.screen(points, envelope)
        exponents = proposal.exponent(noise)
        # U >= word 2^-64 decides if even the least possible drop is too large.
        logs = np.where(words > 0, -np.log(np.maximum(words, 1) * 2.0**-64), math.inf)
        spare = np.where(drops < math.inf, logs + _ERROR - drops, -math.inf)
        for row in np.flatnonzero(spare > 0).tolist():
            point = points[row]
            if envelope.refine is not None and envelope.refine(point, float(spare[row])):
                yield point, math.inf, False
                continue
            level = energy(point)
            drop = level - float(exponents[row]) + envelope.log_bound
            error = _ERROR * (1 + abs(level) + float(exponents[row]) + abs(envelope.log_bound))

            def exact(row: int = row, level: float = level) -> Fraction:
                bound = Fraction(level) + Fraction(envelope.log_bound)
                return bound - proposal.exact_exponent(noise[row])

            yield point, drop, exp_coin(drop, error, int(words[row]), exact, entropy)

    def screen(self, points: Array, envelope: Envelope) -> Array:
        """Bound -log of the acceptance probability from below without data; infinite outside the balls."""
        drops = np.zeros(len(points))
        slack = 2.0**-20
        for ball, tilt in zip(self.balls, envelope.tilts, strict=True):
            squares = _squared_distances(points, np.array(ball.center))
            drops += np.where(
                squares <= ball.largest_square, 0.5 * tilt * (ball.radius**2 - squares), math.inf
            )
            slack += 2.0**-20 * tilt * ball.radius**2
        if self.region is not None:
            drops[~self.region.contains(points)] = math.inf
        return np.maximum(drops - slack, 0.0)

    def candidates(self, points: Array) -> NDArray[np.bool_]:
        """Whether points, one per row, lie in all balls and in the region."""
        inside = np.ones(len(points), dtype=bool)
        for ball in self.balls:
            inside &= _squared_distances(points, np.array(ball.center)) <= ball.largest_square
        return inside if self.region is None else np.asarray(inside & self.region.contains(points))


class _Probes:
    """Energies at fixed public points, computed only if a recorder is active (see `recording`)."""

    def __init__(self, energy: Energy, law: GibbsMechanism) -> None:
        self._energy, self._law = energy, law

    def energies(self, points: Array) -> Array:
        """Return the energies at points, one per row, in one call if the energy supports it."""
        at: Callable[[Array], Array] | None = getattr(self._energy, "at", None)
        return np.array([self._energy(point) for point in points]) if at is None else at(points)

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        smallest = min(self._law.balls, key=lambda ball: ball.radius)
        center, p = np.array(smallest.center), len(smallest.center)
        corners = [np.where(np.arange(p) % 2, -1.0, 1.0), np.ones(p)]
        directions = [*np.eye(p)[:16], *(corner / math.sqrt(p) for corner in corners)]
        points = [center, center]
        points += [center + sign * smallest.radius * way for way in directions for sign in (0.999, -0.999)]
        at = np.array(points)
        return np.array([self._energy(point) for point in at[self._law.candidates(at)]], dtype=dtype)


def exp_coin(drop: float, error: float, word: int, exact: Callable[[], Fraction], entropy: Entropy) -> bool:
    """Whether a uniform number starting with ``word`` is below exp(-exact()); ``drop`` is within ``error`` of it."""
    low = math.exp(min(0.0, -drop - error)) * (1 - _ERROR)
    high = max(math.exp(min(0.0, -drop + error)) * (1 + _ERROR), _SMALLEST)
    if (word + 1) / 2**64 <= low:
        return True
    if word / 2**64 >= high:
        return False
    return exact_coin(exact(), word, entropy)


def _squared_distances_python(points: Array, center: Array) -> Array:
    """Sum row by row in one fixed order, so that membership in a ball depends on the point only."""
    squares = np.zeros(len(points))
    for row in range(len(points)):
        for j in range(len(center)):
            gap = points[row, j] - center[j]
            squares[row] += gap * gap
    return squares


_squared_distances: Callable[[Array, Array], Array] = compiled()(_squared_distances_python)
