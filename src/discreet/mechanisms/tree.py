"""Running sums under Gaussian noise: every step adds one vector, and all prefix sums may be published.

The sum of steps 1 .. t is assembled from the binary digits of t: at most floor(log2 T) + 1 noisy sums of blocks of
1, 2, 4, ... steps (Dwork, Naor, Pitassi and Rothblum, 2010; Chan, Shi and Song, 2011). One step is in at most one
block of each length, so the price does not grow with the number of published prefix sums. Proofs:
docs/proofs/online.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet._typing import Array
from discreet.mechanisms.additive import GaussianMechanism, GaussianNoise
from discreet.mechanisms.recording import observed
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.mechanisms.selection import ExponentialMechanism
from discreet.privacy.events import Event, Repeated
from discreet.privacy.guarantee import Sensitivity

_LARGEST = 2.0**61  # largest sum in grid steps, which leaves int64 room for the noise


@dataclass(frozen=True)
class TreeMechanism:
    """Noisy prefix sums of at most ``horizon`` vectors of ``size`` numbers.

    Parameters
    ----------
    sensitivity : L2 distance between the vectors that neighbors add in the one step where they differ.
    noise_multiplier : noise of one block over sensitivity.
    size, horizon : public; at most 2**30 steps.

    Privacy
    -------
    Event: ``levels`` Gaussian releases, for all prefix sums together, even if vectors are chosen after earlier
    answers. Vectors are rounded down to the grid one by one and summed in integers, exactly and in any order.

    Examples
    --------
    >>> from discreet.mechanisms.samplers.entropy import fresh_entropy
    >>> tree = TreeMechanism(Sensitivity(1.0), noise_multiplier=2.0, size=3, horizon=100)
    >>> tree.levels, tree.event
    (7, Repeated(event=Discretized(event=Gaussian(noise_multiplier=2.0), variates=3), times=7))
    >>> run = tree.start()
    >>> run.add([0.5, 0.5, 0.5], fresh_entropy())
    >>> run.prefix().shape
    (3,)
    """

    sensitivity: Sensitivity
    noise_multiplier: float
    size: int
    horizon: int

    def __post_init__(self) -> None:
        if isinstance(self.horizon, bool) or not 1 <= self.horizon <= 2**30:
            raise ValueError(f"horizon must be a whole number from 1 to 2**30, got {self.horizon!r}")
        _ = self.block  # checks the other parameters

    @cached_property
    def block(self) -> GaussianMechanism:
        """One block's sum; its noise includes the price of rounding one vector to the grid."""
        return GaussianMechanism(self.sensitivity, self.noise_multiplier, self.size)

    @property
    def noise(self) -> GaussianNoise:
        """The noise of one block."""
        return self.block.noise

    @property
    def levels(self) -> int:
        """Maximum number of blocks that contain one step: floor(log2 horizon) + 1."""
        return self.horizon.bit_length()

    @property
    def event(self) -> Event:
        """The event of all prefix sums together."""
        return Repeated(self.block.event, self.levels)

    def start(self) -> TreeRun:
        """Start a run without any steps."""
        shape = (self.levels, self.size)
        return TreeRun(self, 0, np.zeros(shape, dtype=np.int64), np.zeros(shape))


@dataclass(eq=False)
class TreeRun:
    """Sums of the blocks that are still needed, exact (private) and noisy (published)."""

    tree: TreeMechanism
    step: int
    exact: NDArray[np.int64]
    noisy: Array

    def add(self, vector: ArrayLike, entropy: Entropy) -> None:
        """Add one step: the block that ends here gets its noise and replaces the shorter blocks it covers."""
        if self.step >= self.tree.horizon:
            raise ValueError(f"all {self.tree.horizon} steps of the tree have been used")
        noise, grid = self.tree.noise, self.tree.noise.grid
        values = np.asarray(vector, dtype=np.float64)
        if values.shape != (self.tree.size,):
            raise ValueError(f"a step adds {self.tree.size} numbers, got an array of shape {values.shape}")
        with np.errstate(all="ignore"):  # defined for all float64, so that no value can raise
            largest = _LARGEST / self.tree.horizon
            steps = np.clip(np.where(np.isfinite(values), values, 0.0) / grid, -largest, largest)
        self.step += 1
        level = (self.step & -self.step).bit_length() - 1
        total = np.floor(steps).astype(np.int64) + self.exact[:level].sum(axis=0)
        self.exact[:level], self.noisy[:level] = 0, 0.0
        self.exact[level] = total
        sampled = (total + noise.draw_integers(total.shape, entropy)).astype(np.float64) * grid
        # Only `levels` of all blocks depend on one step; the first one is recorded with the price of all.
        self.noisy[level] = observed(
            self.tree,
            entropy,
            sampled,
            scale=noise.effective_stddev,
            value=total * grid,
            sensitivity=Sensitivity(self.tree.sensitivity.value + grid * self.tree.size**0.5),
            event=self.tree.event if self.step == 1 else None,
        )

    def prefix(self) -> Array:
        """Return the noisy sum of all steps so far."""
        return np.asarray(self.noisy.sum(axis=0))

    def evened(self, entropy: Entropy) -> Array:
        """Return the same with extra noise, so that it has the noise of ``levels`` blocks after every step."""
        missing = self.tree.levels - self.step.bit_count()
        return np.asarray(
            self.prefix() + self.tree.noise.draw((missing, self.tree.size), entropy).sum(axis=0)
        )

    def secret_state(self) -> dict[str, Any]:
        """Return the state needed to resume the run; as private as the data."""
        return {"step": self.step, "exact": self.exact.copy(), "noisy": self.noisy.copy()}


def softmax_index(scores: ArrayLike, scale: float, entropy: Entropy) -> int:
    """Draw an index from softmax(scores / scale), exactly on a fine grid. For PUBLIC scores: nothing is charged.

    >>> from discreet.mechanisms.samplers.entropy import fresh_entropy
    >>> softmax_index([0.0, 1e6], 1.0, fresh_entropy())
    1
    """
    values = np.asarray(scores, dtype=np.float64)
    law = ExponentialMechanism(scale, 1.0, len(values))
    return law._index(law.steps(values - values.max()), entropy)
