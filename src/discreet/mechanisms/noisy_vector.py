"""Base class of plans that release one noisy vector with the whole budget."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

from discreet.mechanisms.additive import GaussianMechanism, LaplaceMechanism
from discreet.privacy.accounting.calibration import calibrate
from discreet.privacy.events import Discretized, Event, Gaussian
from discreet.privacy.guarantee import Guarantee, Sensitivity
from discreet.privacy.page import ShowsPlan


@dataclass(frozen=True)
class NoisyVectorPlan(ShowsPlan, ABC):
    """What follows for one noisy vector from its ``sensitivity`` and its ``size``.

    A subclass also provides ``theorem``, ``mechanism``, ``noise`` and ``run``.

    Attributes
    ----------
    guarantee : the guarantee of the release.
    """

    guarantee: Guarantee

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of released values."""

    @property
    @abstractmethod
    def sensitivity(self) -> Sensitivity:
        """Sensitivity of the vector: in L1 norm if delta is 0, otherwise in L2 norm."""

    @cached_property
    def release(self) -> GaussianMechanism | LaplaceMechanism:
        """Discrete Gaussian noise, or discrete Laplace noise if delta is 0."""
        if self.guarantee.delta == 0:
            return LaplaceMechanism(self.sensitivity, 1 / self.guarantee.epsilon, self.size)
        unit = calibrate(lambda m: Discretized(Gaussian(m), self.size), self.guarantee)
        return GaussianMechanism(self.sensitivity, unit, self.size)

    @property
    def kind(self) -> str:
        """Name of the noise distribution."""
        return "Laplace" if self.guarantee.delta == 0 else "Gaussian"

    @property
    def event(self) -> Event:
        """The event to charge."""
        return self.release.event

    @property
    def variance(self) -> float:
        """Noise variance of one released value."""
        entries = 2 if isinstance(self.release, LaplaceMechanism) else 1
        return entries * self.release.noise.effective_scale**2

    @property
    def stddev(self) -> float:
        """Noise standard deviation of one released value."""
        return math.sqrt(self.variance)
