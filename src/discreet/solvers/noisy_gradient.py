"""Projected gradient descent with Gaussian noise on every full-batch gradient.

All noisy gradients together are the release; momentum, step sizes, projections and averages only process them. One
step costs the Gaussian mechanism on a sum of gradients, T steps cost T of them, exactly:
mu = sqrt(T) x sensitivity / stddev. Proofs: docs/proofs/gradient-methods.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from discreet import _inputs
from discreet.losses import Logistic, Loss, Softmax
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.entropy import Entropy
from discreet.mechanisms.sampling import poisson_sample
from discreet.privacy import events
from discreet.privacy.calibration import calibrate
from discreet.privacy.gaussian import gaussian_mu
from discreet.privacy.guarantee import Guarantee
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.solvers import base
from discreet.solvers.centered import LEAST_LEFT, CenteredBounds, mean_mechanism, recentered, released_center
from discreet.solvers.descent_loop import STEP, Descent, centered
from discreet.solvers.descent_loop import project as project
from discreet.solvers.descent_rules import (
    capped,
    default_cap,
    default_radius,
    flow_time,
    signal_over_noise,
    typical_curvature,
)
from discreet.solvers.leveled import LeveledBounds, leveled, leveled_mechanism
from discreet.solvers.sensitivity import gradient_mechanism

Array = NDArray[np.float64]

_FEWEST, _MOST = 50, 400
_MOMENTA = (0.8, 0.9, 0.95, 0.98)
_WIDE = 1000  # columns beyond which the directions that rows share by convention are leveled
_CENTER_SHARE = 0.1  # of the squared Gaussian-DP parameter, for the mean of leveled rows
_SEEN = 40.0  # records over the noise in their sum, in one column, from which the mean is worth its price
_LEVELED_CAP = 9 / 11  # of the cap of rows as they are


@dataclass(frozen=True)
class NoisyGradientDescent:
    """Full-batch projected noisy gradient descent; every default follows from public facts.

    Parameters
    ----------
    n_iterations : number of noisy gradients; None for the public rule.
    learning_rate : step on the mean loss; None for the public rule.
    momentum : Nesterov momentum in [0, 1); None for the public rule.
    radius : the coefficients of each model stay in the L2 ball of this radius; None for the public rule.
    cap : bound on a record's derivative (logistic and softmax only): 1, respectively sqrt(2), is no cap.
        None for the public rule.
    averaging : the last share of the iterates that is averaged.
    level_rows : whether records lose the mean of their features and half of their constant before they are clipped
        (logistic and softmax only); None: where there are more than 1000 columns.
    center_share : part of the budget (squared Gaussian-DP parameter) for the mean of leveled records, which is then
        taken off all of them; 0 for none. None: a tenth where rows are leveled, have an intercept, and are many enough.

    Privacy
    -------
    (epsilon, delta) with delta > 0, every relation, every loss with a bounded and Lipschitz derivative; the mean and
    all iterates may be published. The number of steps is fixed before the data is seen.

    References
    ----------
    Bassily, Smith and Thakurta (2014), Algorithm 1; exact Gaussian composition: Dong, Roth and Su (2022).
    """

    name: ClassVar[str] = "noisy-gd"
    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]] = "softmax"
    n_iterations: int | None = None
    learning_rate: float | None = None
    momentum: float | None = None
    radius: float | None = None
    cap: float | None = None
    averaging: float = 0.25
    level_rows: bool | None = None
    center_share: float | None = None

    def plan(self, problem: Problem, guarantee: Guarantee) -> NoisyGradientPlan:
        """Fix field, ball, steps and noise from public numbers."""
        refuse_pure(self.name, guarantee)
        refuse_geometry(self.name, problem)
        linked = isinstance(problem.loss, Logistic | Softmax)
        if self.level_rows and not linked:
            raise ValueError(f"level_rows applies to logistic and softmax losses, not to {problem.loss}")
        wide = linked and problem.n_features > _WIDE
        if wide if self.level_rows is None else self.level_rows:
            problem = leveled(problem)
        share = self._share(problem, guarantee)
        if self.n_iterations is not None:
            _inputs.count("n_iterations", self.n_iterations)
        if self.radius is not None:
            _inputs.real("radius", self.radius, above=0)
        budget = gaussian_mu(guarantee.epsilon, guarantee.delta) * math.sqrt(1 - share)
        cap = self.cap
        if cap is None and isinstance(problem.bounds, LeveledBounds) and isinstance(problem.loss, Logistic):
            cap = _LEVELED_CAP * default_cap(problem, guarantee, budget)
        field = capped(problem, guarantee, budget, cap)
        signal = signal_over_noise(problem, guarantee, field, budget)
        radius = self.radius
        if radius is None:  # a coefficient grows as much as the records shrink, at most
            radius = default_radius(problem, signal) / (math.sqrt(LEAST_LEFT) if share else 1.0)
        steps, rate, momentum = self._schedule(problem, field, signal)
        return NoisyGradientPlan(
            problem, guarantee, field, radius, steps, rate, momentum, self.averaging,
            _noise_multiplier(problem, guarantee, steps, share=share), center_share=share,
        )  # fmt: skip

    def _share(self, problem: Problem, guarantee: Guarantee) -> float:
        """The part of the budget for the mean of the records."""
        possible = isinstance(problem.bounds, LeveledBounds) and problem.bounds.intercept
        share = self.center_share
        if share is None:
            budget = gaussian_mu(guarantee.epsilon, guarantee.delta) * math.sqrt(_CENTER_SHARE)
            seen = problem.n_samples * budget / guarantee.neighboring.contributions >= _SEEN
            return _CENTER_SHARE if possible and seen else 0.0
        if isinstance(share, bool) or not 0 <= share < 1:
            raise ValueError(f"center_share must be at least 0 and less than 1, got {share!r}")
        if share and not possible:
            raise ValueError(
                "center_share needs leveled rows (level_rows) and an intercept, to take the mean off"
            )
        return float(share)

    def _schedule(self, problem: Problem, field: Loss, signal: float) -> tuple[int, float, float]:
        """Steps, rate and momentum whose product, the flow time, balances noise against bias."""
        largest_rate = STEP / (typical_curvature(field) * problem.bounds.feature_norm**2)
        time = flow_time(problem, signal)
        momenta = _MOMENTA if self.momentum is None else (self.momentum,)
        needed = [max(1, math.ceil(time * (1 - m) / largest_rate)) for m in momenta]
        # The least momentum that gets there within the most steps; where few steps do, the next lets them start slowly.
        choice = next((i for i, steps in enumerate(needed) if steps <= _MOST), len(momenta) - 1)
        if needed[choice] < 2 * _FEWEST and choice == 0 and len(momenta) > 1:
            choice = 1
        momentum = momenta[choice]
        steps = self.n_iterations
        if steps is None:
            steps = min(max(needed[choice], _FEWEST), _MOST)
        rate = self.learning_rate
        if rate is None:
            rate = min(largest_rate, time * (1 - momentum) / max(1, steps))
        return steps, rate, momentum


@dataclass(frozen=True)
class DissertationDescent:
    """Full-batch descent with the noise printed in Thakkar's dissertation (2019, Algorithm 4), for comparison.

    Its variance 16 L^2 T log(1 / delta) / epsilon^2 (sum scale) is sound for full batches under replace-one, not
    for the small batches it was printed for; the accountant is asked all the same. No cap, no momentum, last
    iterate.
    """

    name: ClassVar[str] = "noisy-gd-dissertation"
    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]] = "one-vs-rest"
    n_iterations: int = 100

    def plan(self, problem: Problem, guarantee: Guarantee) -> NoisyGradientPlan:
        """The plan of noisy descent without its refinements, with more noise."""
        none = math.sqrt(2) if isinstance(problem.loss, Logistic | Softmax) else None
        simple = NoisyGradientDescent(
            self.n_iterations, momentum=0.0, cap=none, averaging=1 / self.n_iterations, level_rows=False
        )
        tight = simple.plan(problem, guarantee)
        printed = 2 * math.sqrt(self.n_iterations * math.log(1 / guarantee.delta)) / guarantee.epsilon
        return replace(tight, noise_multiplier=max(printed, tight.noise_multiplier))


@dataclass(frozen=True)
class NoisySGD:
    """Noisy descent on Poisson samples: the fields of `NoisyGradientDescent`, and the share of records in a step.

    Sampling saves time, not privacy: for the same noise in the end, full batches need no more of it. Gradients are
    divided by the expected batch size, because the true size is as secret as the sample.

    Parameters
    ----------
    sampling_rate : probability with which a record takes part in a step.
    n_iterations, learning_rate, momentum, radius, cap, averaging : as for `NoisyGradientDescent`.

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
        ).plan(problem, guarantee)
        multiplier = _noise_multiplier(problem, guarantee, full.n_iterations, rate)
        return replace(full, noise_multiplier=multiplier, sampling_rate=float(rate))


@dataclass(frozen=True)
class NoisyGradientPlan:
    """A calibrated run of noisy gradient descent."""

    problem: Problem
    guarantee: Guarantee
    field: Loss
    radius: float
    n_iterations: int
    learning_rate: float
    momentum: float
    averaging: float
    noise_multiplier: float
    sampling_rate: float = 1.0
    center_share: float = 0.0

    def __post_init__(self) -> None:
        _ = self.release, self.mean, self.descent  # everything that can fail does so now, before a charge

    @property
    def sums_only(self) -> bool:
        """Whether a run asks for sums over all records and never for single rows, so that these may be anywhere."""
        return self.sampling_rate == 1.0

    @property
    def shape(self) -> LeveledBounds | None:
        """The map that levels rows, None where they stay as they are."""
        bounds = self.problem.bounds
        return bounds if isinstance(bounds, LeveledBounds) else None

    @property
    def descent(self) -> Descent:
        """The settings of the walk."""
        return Descent(self.n_iterations, self.learning_rate, self.momentum, self.averaging, self.radius)

    @cached_property
    def release(self) -> GaussianMechanism:
        """The noisy sum of gradients of all models at one point; of centered rows, with as much norm as ever."""
        mechanism = gradient_mechanism if self.shape is None else leveled_mechanism
        return mechanism(
            self.problem, self.field, self.radius, self.guarantee.neighboring, self.noise_multiplier
        )

    @cached_property
    def mean(self) -> GaussianMechanism | None:
        """The noisy sum of the records, None where they are not centered."""
        if not self.center_share:
            return None
        multiplier = _mean_multiplier(self.noise_multiplier, self.n_iterations, self.center_share)
        return mean_mechanism(self.problem, self.guarantee.neighboring, multiplier)

    def centered(self, bounds: CenteredBounds) -> NoisyGradientPlan:
        """The walk over centered records: the same steps and price; noise and flow time of the norm that is left."""
        shrunk = (self.problem.bounds.feature_norm / bounds.feature_norm) ** 2
        return replace(
            self,
            problem=replace(self.problem, bounds=bounds),
            learning_rate=self.learning_rate * shrunk,
            center_share=0.0,
        )

    @property
    def event(self) -> events.Event:
        """What is charged."""
        settings = self.n_iterations, self.sampling_rate, self.center_share
        return _event(self.problem, self.noise_multiplier, *settings)

    @property
    def mechanism(self) -> str:
        """How the noise is added, in words."""
        models = f", {self.problem.n_models} one-vs-rest models" if self.problem.n_models > 1 else ""
        batch = "full-batch" if self.sampling_rate == 1 else f"Poisson-sampled (rate {self.sampling_rate:g})"
        rows = "" if self.shape is None else " of leveled rows"
        if self.center_share:
            rows = " of centered rows, and the sum of the rows,"
        return f"{self.n_iterations} {batch} gradients{rows} with Gaussian noise, projected descent{models}"

    @property
    def theorem(self) -> str:
        """The theorem behind the guarantee."""
        priced = (
            "exact composition of Gaussian releases"
            if self.sampling_rate == 1
            else "dominating pairs of Poisson-sampled Gaussian noise (docs/proofs/composition.md)"
        )
        bound = "on a ball (Theorems 1 and 2)" if self.shape is None else "of leveled rows (Theorem 8)"
        bound = "of centered rows (Theorem 9)" if self.center_share else bound
        return f"gradient sensitivity {bound}, {priced}; docs/proofs/gradient-methods.md"

    @property
    def noise(self) -> Mapping[str, float | str]:
        """The public numbers of the run."""
        mean = {"noise stddev in the sum of rows": self.mean.stddev} if self.mean is not None else {}
        return {
            **mean,
            "gradient noise stddev (sum scale)": self.release.stddev,
            "gradient sensitivity": self.release.sensitivity.value,
            "noisy steps": float(self.n_iterations),
            "learning rate (mean loss)": self.learning_rate,
            "momentum": self.momentum,
            "radius": self.radius,
            "derivative bound": self.field.lipschitz,
            "sampler": "exact discrete Gaussian, AES-256-CTR keyed by the operating system",
        }

    def run(
        self, records: list[ArrayRecords], entropy: Entropy, progress: base.Progress | None = None
    ) -> base.Release:
        """Walk down noisy gradients, of centered records if planned; the average of the last iterates is the answer."""
        if self.mean is not None:
            bounds = released_center(self.problem, records[0], self.mean, entropy)
            first = recentered(records[0], bounds)
            others = [first.with_labels(part.labels) for part in records[1:]]
            return self.centered(bounds).run([first, *others], entropy, progress)
        problem, ridge = self.problem, self.problem.l2 or 0.0
        divisor = problem.n_samples * self.sampling_rate  # the expected size: the true one is secret

        def noisy_gradient(point: Array) -> Array:
            batch = self._batch(records, entropy)
            noisy = noisy_sum(batch, self.field, point, self.release, entropy, self.shape)
            gradient = noisy / divisor + ridge * _images(_coefficients(point, self.shape), self.shape)
            if self.shape is not None:
                gradient[:, -1] *= self.shape.pace
            return gradient

        theta = self.descent.run(np.zeros((problem.n_models, *problem.shape)), noisy_gradient, progress)
        theta = _coefficients(theta, self.shape)
        return base.Release(centered(theta, problem.loss.n_outputs), entropy.secure)

    def _batch(self, records: list[ArrayRecords], entropy: Entropy) -> list[ArrayRecords]:
        if self.sampling_rate == 1:
            return records
        rows = poisson_sample(records[0].n_samples, self.sampling_rate, entropy)
        return [part.take(rows) for part in records]

    def __str__(self) -> str:
        return base.printed(self)


def noisy_sum(
    records: list[ArrayRecords],
    field: Loss,
    point: Array,
    release: GaussianMechanism,
    entropy: Entropy,
    shape: LeveledBounds | None = None,
) -> Array:
    """The noisy sums of gradients of all models, each at its own point; of leveled records with a ``shape``."""
    points = _coefficients(point, shape)
    sums = [part.value_and_gradient(field, at)[1] for part, at in zip(records, points, strict=True)]
    return release.release(_images(np.stack(sums), shape).ravel(), entropy).reshape(point.shape)


def _images(sums: Array, shape: LeveledBounds | None) -> Array:
    """What ``shape`` makes of the sums of every model."""
    return sums if shape is None else shape.images(sums)


def _coefficients(theta: Array, shape: LeveledBounds | None) -> Array:
    """What coefficients for rows of this ``shape`` are for rows as they came."""
    return theta if shape is None else shape.coefficients(theta)


def refuse_pure(name: str, guarantee: Guarantee) -> None:
    """Gaussian noise needs delta > 0."""
    if guarantee.delta == 0:
        raise ValueError(
            f"solver {name!r} adds Gaussian noise, which cannot give delta = 0; choose a delta greater than 0, for "
            "instance 1 / n**2, or solver='output' for pure differential privacy"
        )


def refuse_geometry(name: str, problem: Problem) -> None:
    """These solvers know the ball and all of space only."""
    if problem.geometry is not None:
        raise ValueError(
            f"solver {name!r} works in all of space or in an L2 ball, not in {problem.geometry!r}; use solver="
            "'mirror-descent' or 'frank-wolfe' for other sets"
        )


def _mean_multiplier(noise_multiplier: float, steps: int, share: float) -> float:
    """The noise multiplier of a release that costs ``share`` of all, beside steps of ``noise_multiplier``."""
    return noise_multiplier * math.sqrt((1 - share) / (share * steps))


def _event(
    problem: Problem, noise_multiplier: float, steps: int, sampling_rate: float, share: float
) -> events.Event:
    one: events.Event = events.Discretized(events.Gaussian(noise_multiplier), problem.n_coefficients)
    if sampling_rate < 1:
        one = events.Subsampled(one, sampling_rate)
    gradients = events.Repeated(one, steps)
    if not share:
        return gradients
    mean = events.Gaussian(_mean_multiplier(noise_multiplier, steps, share))
    return events.Composed((events.Discretized(mean, problem.n_features), gradients))


def _noise_multiplier(
    problem: Problem, guarantee: Guarantee, steps: int, sampling_rate: float = 1.0, share: float = 0.0
) -> float:
    return calibrate(lambda m: _event(problem, m, steps, sampling_rate, share), guarantee)


base.register(NoisyGradientDescent.name, NoisyGradientDescent)
base.register(NoisySGD.name, NoisySGD)
base.register(DissertationDescent.name, DissertationDescent)
