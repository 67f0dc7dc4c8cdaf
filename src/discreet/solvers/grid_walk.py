"""The grid walk of Bassily, Smith and Thakurta (2014, section III-C): a reference, not a solver to use.

A lazy random walk on the grid points of a cube, accepted by Metropolis' rule, approaches the exponential mechanism.
Pure differential privacy needs the *ratio* of the two laws to be bounded, and the number of steps for which that is
proved is astronomical; a walk that was shorter says so and has no privacy at all. Exact sampling (`exponential`) needs
no walk, and where this walk can be afforded the whole grid can be enumerated. Proof:
docs/proofs/exponential-sampling.md, section 9.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from discreet.mechanisms._tables import exact_coin
from discreet.mechanisms.entropy import Entropy
from discreet.mechanisms.tries import below
from discreet.privacy.events import Event, NonPrivate, Pure

Array = NDArray[np.float64]


@dataclass(frozen=True)
class GridWalk:
    """Walk on a grid in the cube [-side/2, side/2]^p towards P(theta) proportional to exp(-rate * score(theta)).

    Parameters
    ----------
    n_features : p.
    side : side of the cube.
    rate : the factor of the score in the exponent.
    lipschitz : Lipschitz constant of the score in L2, sum scale.
    score_range : by how much more one record can move the score at one point than at another.
    closeness : bound zeta on |log| of the ratio of the walk's law and its limit.

    Privacy
    -------
    ``event(steps)`` is ``Pure`` only from ``certified_steps`` steps on, and ``NonPrivate`` below: a walk's law after
    too few steps depends on the data in ways that nothing bounds. The score must be convex, up to rounding that the
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
                raise ValueError(
                    f"{name} must be a finite number greater than 0, got {getattr(self, name)!r}"
                )

    @property
    def points_per_axis(self) -> int:
        """So many that the exponent changes by at most 1 from a point to its neighbors."""
        spacing = 0.9 / (self.rate * self.lipschitz * math.sqrt(self.n_features))
        return max(2, math.ceil(self.side / min(spacing, self.side / 2)))

    @property
    def spacing(self) -> float:
        """Distance of neighboring points."""
        return self.side / self.points_per_axis

    @property
    def certified_steps(self) -> int:
        """Steps after which the walk's law is within a factor exp(+-closeness) of its limit, wherever it began."""
        conductance = self.spacing / (2 * math.e * math.pow(self.n_features, 1.5) * self.side)
        diameter = self.side * math.sqrt(self.n_features)
        least_mass = self.n_features * math.log(self.points_per_axis) + self.rate * self.lipschitz * diameter
        return math.ceil(2 / conductance**2 * (least_mass + math.log(2 / self.closeness)))

    def event(self, steps: int) -> Event:
        """What a walk of so many steps costs."""
        if steps < self.certified_steps:
            return NonPrivate()
        return Pure((self.rate * self.score_range + 2 * self.closeness) * (1 + 2.0**-40))

    def run(self, score: Callable[[Array], float], steps: int, entropy: Entropy) -> tuple[Array, Event]:
        """Where the walk ends, and what that costs."""
        place = np.full(self.n_features, self.points_per_axis // 2)
        energy = self.rate * score(self._point(place))
        for _ in range(steps):
            if below(2, entropy):
                continue  # lazy: the walk must not alternate between two halves of the grid
            move = below(2 * self.n_features, entropy)
            next_place = place.copy()
            next_place[move // 2] += 1 if move % 2 else -1
            if not np.all((next_place >= 0) & (next_place < self.points_per_axis)):
                continue
            next_energy = self.rate * score(self._point(next_place))
            climb = max(Fraction(0), Fraction(next_energy) - Fraction(energy))
            if exact_coin(climb, int(entropy.words(1)[0]), entropy):
                place, energy = next_place, next_energy
        return self._point(place), self.event(steps)

    def _point(self, place: NDArray[np.int64]) -> Array:
        """The middle of a cell."""
        return np.asarray((place + 0.5) * self.spacing - self.side / 2, dtype=np.float64)
