"""The grid walk of Bassily, Smith and Thakurta (2014, section III-C), for reference only.

A lazy random walk on the grid points of a cube with Metropolis acceptance approaches the exponential mechanism. Pure
differential privacy needs a bound on the *ratio* of the two distributions, and the proved number of steps is
astronomical; a shorter walk is marked as not private. Exact sampling (`exponential`) needs no walk, and whenever this
walk is affordable, so is enumerating the whole grid. Proof: docs/proofs/exponential-sampling.md, section 9.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet._checks import ParameterError
from discreet._typing import Array
from discreet.mechanisms.gibbs import exp_coin
from discreet.mechanisms.recording import next_answer, observed
from discreet.mechanisms.repetition import below
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.privacy.events import Event, NonPrivate, Pure
from discreet.privacy.guarantee import SLACK

_BLOCK = 4096  # steps per batch of coins
_MOST_CELLS = 4096  # maximum number of cells whose exponents are recorded


@dataclass(frozen=True)
class GridWalk:
    """Walk on a grid in the cube [-side/2, side/2]^p towards P(theta) proportional to exp(-rate * score(theta)).

    Parameters
    ----------
    n_features : p.
    side : side of the cube.
    rate : the factor of the score in the exponent.
    lipschitz : Lipschitz constant of the score in L2, sum scale.
    score_range : how much more one record can move the score at one point than at another.
    closeness : bound zeta on |log| of the ratio of the walk's distribution to its limit.

    Privacy
    -------
    ``event(steps)`` is ``Pure`` from ``certified_steps`` steps on, and ``NonPrivate`` below: after too few steps the
    walk's distribution depends on the data without any bound. The score must be convex, up to rounding that the
    range includes. The walk's coins are exact.

    Examples
    --------
    >>> walk = GridWalk(2, 2.0, rate=0.1, lipschitz=100.0, score_range=4.0)
    >>> walk.certified_steps > 10**5, walk.event(1000)
    (True, NonPrivate())
    """

    n_features: int
    side: float
    rate: float
    lipschitz: float
    score_range: float
    closeness: float = 0.01

    def __post_init__(self) -> None:
        for name in ("n_features", "side", "rate", "lipschitz", "score_range", "closeness"):
            if not 0 < getattr(self, name) < math.inf:
                raise ParameterError(
                    name, f"must be a finite number greater than 0, got {getattr(self, name)!r}"
                )

    @property
    def points_per_axis(self) -> int:
        """Enough points that the exponent changes by at most 1 between neighbors."""
        spacing = 0.9 / (self.rate * self.lipschitz * math.sqrt(self.n_features))
        return max(2, math.ceil(self.side / min(spacing, self.side / 2)))

    @property
    def spacing(self) -> float:
        """Distance between neighboring points."""
        return self.side / self.points_per_axis

    @property
    def certified_steps(self) -> int:
        """Steps after which the walk is within a factor exp(+-closeness) of its limit, from any start."""
        conductance = self.spacing / (2 * math.e * math.pow(self.n_features, 1.5) * self.side)
        diameter = self.side * math.sqrt(self.n_features)
        least_mass = self.n_features * math.log(self.points_per_axis) + self.rate * self.lipschitz * diameter
        return math.ceil(2 / conductance**2 * (least_mass + math.log(2 / self.closeness)))

    def event(self, steps: int) -> Event:
        """Return the event of a walk with this many steps."""
        if steps < self.certified_steps:
            return NonPrivate()
        return Pure((self.rate * self.score_range + 2 * self.closeness) * SLACK)

    def run(self, score: Callable[[Array], float], steps: int, entropy: Entropy) -> tuple[Array, Event]:
        """Return the end of the walk and its event."""
        return WalkEnd(self, steps).release(score, entropy), self.event(steps)

    def exponents(self, score: Callable[[Array], float], places: NDArray[np.int64]) -> Array:
        """Return rate * score at the centers of cells, one per row of ``places``."""
        return np.array([self.rate * score(self.point(place)) for place in places])

    def point(self, place: NDArray[np.int64]) -> Array:
        """Return the center of a cell."""
        return np.asarray((place + 0.5) * self.spacing - self.side / 2, dtype=np.float64)


@dataclass(frozen=True)
class WalkEnd:
    """The mechanism that releases the last cell of a walk with this many steps."""

    walk: GridWalk
    steps: int

    @property
    def event(self) -> Event:
        """The event of the release."""
        return self.walk.event(self.steps)

    def release(self, score: Callable[[Array], float], entropy: Entropy) -> Array:
        """Release the center of the last cell."""
        walk, given = self.walk, next_answer(entropy)
        place = observed(
            self,
            entropy,
            self._walked(score, entropy) if given is None else given,
            scale=1 / walk.rate,
            value=_Probes(self, score),
            score_range=walk.rate * walk.score_range,
            event=self.event,
            exact_tries=True,
            additive=False,
        )
        return walk.point(place)

    def _walked(self, score: Callable[[Array], float], entropy: Entropy) -> NDArray[np.int64]:
        walk = self.walk
        cells, place = walk.points_per_axis, np.full(walk.n_features, walk.points_per_axis // 2)
        energy = walk.rate * score(walk.point(place))
        for begin in range(0, self.steps, _BLOCK):
            # Lazy, so that the walk does not alternate between two halves of the grid.
            resting = entropy.words(min(_BLOCK, self.steps - begin)) & np.uint64(1)
            for _ in range(int(np.sum(resting == 0))):
                move = below(2 * walk.n_features, entropy)
                axis, way = move // 2, 1 if move % 2 else -1
                if not 0 <= place[axis] + way < cells:
                    continue
                next_place = place.copy()
                next_place[axis] += way
                next_energy = walk.rate * score(walk.point(next_place))
                if _accepted(energy, next_energy, int(entropy.words(1)[0]), entropy):
                    place, energy = next_place, next_energy
        return place

    @property
    def places(self) -> NDArray[np.int64]:
        """All cells, or the corners and the center of a grid with more than 4096."""
        walk = self.walk
        last, size = walk.points_per_axis - 1, min(walk.n_features, 12)
        axes = [np.arange(last + 1)] * walk.n_features
        if walk.n_features * math.log(last + 1) > math.log(_MOST_CELLS):
            axes = [np.array([0, last])] * size + [np.array([last // 2])] * (walk.n_features - size)
        return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, walk.n_features)

    def law(self, exponents: Array) -> Array:
        """Return the probabilities of all `places` for given exponents, by powers of the walk's transition matrix."""
        walk, places = self.walk, self.places
        if len(places) < walk.points_per_axis**walk.n_features:
            raise ValueError("the law of a walk is computed on grids of at most 4096 cells")
        near = np.abs(places[:, None] - places[None]).sum(axis=-1) == 1
        accepted = np.exp(np.minimum(0.0, exponents[:, None] - exponents[None]))
        matrix = np.where(near, accepted / (4 * walk.n_features), 0.0)
        matrix[np.diag_indices(len(places))] = 1 - matrix.sum(axis=1)
        start = np.flatnonzero(np.all(places == walk.points_per_axis // 2, axis=1))[0]
        return np.asarray(np.linalg.matrix_power(matrix, self.steps)[start])


def _accepted(energy: float, next_energy: float, word: int, entropy: Entropy) -> bool:
    """Apply Metropolis' rule exactly: accept a climb with probability exp(-climb)."""
    if next_energy <= energy:
        return True

    def climb() -> Fraction:
        return Fraction(next_energy) - Fraction(energy)

    rounding = 2.0**-50 * (abs(energy) + abs(next_energy))
    return exp_coin(next_energy - energy, rounding, word, climb, entropy)


class _Probes:
    """Exponents at public cells, computed only if recorded (see `mechanisms.recording`)."""

    def __init__(self, end: WalkEnd, score: Callable[[Array], float]) -> None:
        self._end, self._score = end, score

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        return np.asarray(self._end.walk.exponents(self._score, self._end.places), dtype=dtype)
