"""Noisy descent on Poisson samples of the records."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from discreet.privacy.guarantee import Guarantee
from discreet.problem import Problem
from discreet.solvers import base
from discreet.solvers.noisy_gradient import NoisyGradientDescent, NoisyGradientPlan, descent_multiplier


@dataclass(frozen=True)
class NoisySGD:
    """Noisy descent on Poisson samples: the fields of `NoisyGradientDescent`, and the share of records in a step.

    Sampling saves time, not privacy: full batches that end with as much noise cost no more. Gradients are divided by
    the expected batch size, because the true size is as secret as the sample.

    Parameters
    ----------
    sampling_rate : probability with which a record takes part in a step.
    n_iterations, learning_rate, momentum, radius, cap, averaging, schedule : as for `NoisyGradientDescent`.

    Privacy
    -------
    (epsilon, delta) with delta > 0 under zero-out and add-remove-one. Refused under replace-one: no dominating pair is
    proved there for composed vector releases on Poisson samples.

    References
    ----------
    Abadi et al. (2016); Zhu, Dong and Wang (2022) for dominating pairs.
    """

    name: ClassVar[str] = "noisy-sgd"
    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]] = "softmax"
    sampling_rate: float = 0.1
    n_iterations: int | None = None
    learning_rate: float | None = None
    momentum: float | None = None
    radius: float | None = None
    cap: float | None = None
    averaging: float = 0.25
    schedule: str = "constant"

    def plan(self, problem: Problem, guarantee: Guarantee) -> NoisyGradientPlan:
        """As without sampling, with noise calibrated for the sampled steps."""
        if guarantee.neighboring.contributions != 1:
            raise ValueError(
                "solver 'noisy-sgd' is proved under zero-out and add-remove-one only: for replace-one no dominating "
                "pair of composed Poisson-sampled releases is proved; change neighboring, or use solver='noisy-gd'"
            )
        rate = self.sampling_rate
        if isinstance(rate, bool) or not 0 < rate <= 1:
            raise ValueError(f"sampling_rate must be greater than 0 and at most 1, got {rate!r}")
        full = NoisyGradientDescent(
            *(self.n_iterations, self.learning_rate, self.momentum, self.radius, self.cap, self.averaging),
            center_share=0.0,
            schedule=self.schedule,
        ).plan(problem, guarantee)
        multiplier = descent_multiplier(problem, guarantee, full.n_iterations, rate)
        return replace(full, noise_multiplier=multiplier, sampling_rate=float(rate))


base.register(NoisySGD.name, NoisySGD)
