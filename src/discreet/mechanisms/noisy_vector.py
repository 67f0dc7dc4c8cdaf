"""A plan whose run is one noisy vector: the whole promise is spent on all its numbers together."""

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

    A subclass also gives ``theorem``, ``mechanism`` and ``noise`` in words and numbers, and ``run``.

    Attributes
    ----------
    guarantee : the promise.
    """

    guarantee: Guarantee

    @property
    @abstractmethod
    def size(self) -> int:
        """How many numbers are released."""

    @property
    @abstractmethod
    def sensitivity(self) -> Sensitivity:
        """Of all of them together: in L1 norm where delta is 0, else in L2 norm."""

    @cached_property
    def release(self) -> GaussianMechanism | LaplaceMechanism:
        """Discrete Gaussian noise, or discrete Laplace noise where delta is 0."""
        if self.guarantee.delta == 0:
            return LaplaceMechanism(self.sensitivity, 1 / self.guarantee.epsilon, self.size)
        unit = calibrate(lambda m: Discretized(Gaussian(m), self.size), self.guarantee)
        return GaussianMechanism(self.sensitivity, unit, self.size)

    @property
    def kind(self) -> str:
        """The law of the noise, in a word."""
        return "Laplace" if self.guarantee.delta == 0 else "Gaussian"

    @property
    def event(self) -> Event:
        """What is charged."""
        return self.release.event

    @property
    def variance(self) -> float:
        """Of the noise in one released number."""
        if isinstance(self.release, LaplaceMechanism):
            return 2 * self.release.noise.effective_scale**2
        return self.release.noise.effective_stddev**2

    @property
    def stddev(self) -> float:
        """Of the noise in one released number."""
        return math.sqrt(self.variance)
