"""Private mirror descent: Gaussian noise on every full gradient, steps in the geometry of a potential.

    theta_{t+1} = argmin over the set of <eta (gradient + noise), x> + Psi(x) - <grad Psi(theta_t), x>,

and the model is the average of the iterates. All noisy gradients together are the release. The step size and the
number of steps minimize the proved bound on the excess risk, from public numbers only. Proofs:
docs/proofs/mirror-descent.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from discreet import _checks
from discreet._typing import Array, Progress
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.samplers.entropy import SOURCE
from discreet.mechanisms.samplers.entropy import Entropy as EntropySource
from discreet.privacy import events
from discreet.privacy.accounting.calibration import calibrate
from discreet.privacy.accounting.gaussian import gaussian_mu
from discreet.privacy.guarantee import Guarantee, Sensitivity
from discreet.problem import Problem
from discreet.records.base import Records
from discreet.sets import Geometry
from discreet.sets.potentials import Potential, SquaredNorm, potential
from discreet.solvers import base
from discreet.solvers.certificates import Certificate, CertifiedRelease, geometry_of, record_bound, slope
from discreet.solvers.gradients.descent import project
from discreet.solvers.vertices.frank_wolfe import gradient_sensitivity_over

# Step sizes to try under strong convexity, in units of 1 / smoothness.
_RATES = np.geomspace(1e-7, 0.999, 600)
_TOLERANCE = 1.05  # take the fewest steps with a bound within this factor of the best
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class MirrorDescent:
    """Noisy mirror descent over the geometry of the problem; every default follows from public facts.

    Parameters
    ----------
    potential : "squared-norm" (projected gradient descent, any set), "entropy" (simplex and L1 ball), "q-norm" (L1,
        grouped L1 and nuclear balls), a `discreet.sets.potentials.Potential`, or "auto": the one with the smallest
        certificate.
    n_iterations : number of noisy gradients; None for the rule.
    max_iterations : largest number that the rule may choose; more steps never hurt the bound but take time.
    learning_rate : step on the mean loss, in units of the potential; None for the minimizer of the bound.

    Privacy
    -------
    (epsilon, delta) with delta > 0, every relation, bounded sets; losses with corners, such as the hinge, are not
    supported under add-remove-one. All iterates may be published; potentials and step sizes do not affect privacy.

    References
    ----------
    Talwar, Thakurta and Zhang (2014), Algorithm 1 and Theorem 3.2; smooth analysis: Lan (2012).
    """

    name: ClassVar[str] = "mirror-descent"
    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]] = "one-vs-rest"
    potential: str | Potential = "auto"
    n_iterations: int | None = None
    max_iterations: int = 500
    learning_rate: float | None = None

    def plan(self, problem: Problem, guarantee: Guarantee) -> MirrorDescentPlan:
        """Choose potential, steps and step size by the bound, then the least noise that meets the guarantee."""
        geometry = geometry_of(problem, self.name, corners=True)
        base.refuse_pure(self.name, guarantee)
        most = _checks.count("max_iterations", self.max_iterations)
        steps = _checks.count_or_none("n_iterations", self.n_iterations)
        numbers = [steps] if steps else np.unique(np.geomspace(1, most, 200).astype(int)).tolist()
        if self.learning_rate is not None:
            _checks.real("learning_rate", self.learning_rate, above=0)
        kinds = self._potentials(geometry)
        plans = [self._planned(problem, guarantee, geometry, kind, numbers) for kind in kinds]
        return min(plans, key=lambda plan: plan.certificate.expected)

    def _potentials(self, geometry: Geometry) -> list[Potential]:
        if self.potential != "auto":
            kind = potential(self.potential) if isinstance(self.potential, str) else self.potential
            kind.check(geometry)
            return [kind]
        found = []
        for name in ("squared-norm", "entropy", "q-norm"):
            kind = potential(name)
            try:
                kind.check(geometry)
            except ValueError:
                continue
            found.append(kind)
        return found

    def _planned(
        self, problem: Problem, guarantee: Guarantee, geometry: Geometry, kind: Potential, numbers: list[int]
    ) -> MirrorDescentPlan:
        """Return the plan with the fewest of these numbers of steps whose bound is nearly the best."""
        # Noise per root of the number of steps (mean scale): accurate enough to choose the number.
        unit = gradient_sensitivity_over(problem, geometry, guarantee) * math.sqrt(problem.n_models)
        unit /= gaussian_mu(guarantee.epsilon, guarantee.delta) * problem.n_samples
        constants = _constants(problem, geometry, kind)
        bounds = np.array([constants.best_bound(t, unit * math.sqrt(t)) for t in numbers])
        steps = numbers[np.argmax(bounds <= _TOLERANCE * bounds.min())]

        def event(multiplier: float) -> events.Event:
            one = events.Discretized(events.Gaussian(multiplier), geometry.n_features)
            return events.Repeated(one, steps * problem.n_models)

        multiplier = calibrate(event, guarantee)
        return MirrorDescentPlan(problem, guarantee, kind, steps, multiplier, self.learning_rate)


@dataclass(frozen=True)
class MirrorDescentPlan(base.Plan):
    """A calibrated run of mirror descent; ``chosen_rate`` is None unless the user chose the step."""

    potential: Potential
    n_iterations: int
    noise_multiplier: float
    chosen_rate: float | None = None

    def __post_init__(self) -> None:
        _ = self.release  # raise now, before any charge, if anything can fail

    sums_only = True

    @cached_property
    def geometry(self) -> Geometry:
        """The set of the problem."""
        return geometry_of(self.problem, MirrorDescent.name, corners=True)

    @cached_property
    def release(self) -> GaussianMechanism:
        """The noisy gradient of one model."""
        sensitivity = gradient_sensitivity_over(self.problem, self.geometry, self.record_guarantee)
        return GaussianMechanism(Sensitivity(sensitivity), self.noise_multiplier, self.geometry.n_features)

    @property
    def mean_stddev(self) -> float:
        """Noise standard deviation of the gradient of the mean loss."""
        return self.release.noise.effective_stddev / self.problem.n_samples

    @cached_property
    def constants(self) -> Constants:
        """The constants of the objective in the potential's norm."""
        return _constants(self.problem, self.geometry, self.potential)

    @cached_property
    def smooth_rule(self) -> bool:
        """Whether the bound that uses smoothness is the smaller one."""
        return self._smooth[0] <= self.constants.rough_bound(self.n_iterations, self.mean_stddev)[0]

    @cached_property
    def _smooth(self) -> tuple[float, float]:
        return self.constants.smooth_bound(self.n_iterations, self.mean_stddev)

    @cached_property
    def learning_rate(self) -> float:
        """The step on the mean loss that minimizes the bound."""
        if self.chosen_rate is not None:
            return self.chosen_rate
        if self.smooth_rule:
            return self._smooth[1]
        return self.constants.rough_bound(self.n_iterations, self.mean_stddev)[1]

    @property
    def decay(self) -> float:
        """The weight of an iterate in the average, relative to the next one: below 1 only under strong convexity."""
        return 1 - min(0.5, self.learning_rate * self.constants.strength) if self.smooth_rule else 1.0

    @cached_property
    def certificate(self) -> Certificate:
        """Bound on the excess risk at the step size in use; the likely bound follows from Markov's inequality."""
        rule = self.constants.smooth_at if self.smooth_rule else self.constants.rough_at
        bound = float(rule(self.n_iterations, self.mean_stddev, np.array([self.learning_rate]))[0])
        return Certificate(bound, bound / (1 - _CONFIDENCE), _CONFIDENCE)

    @property
    def releases(self) -> tuple[base.PlannedRelease, ...]:
        """All releases of a run, in order."""
        return (base.PlannedRelease(self.release, "gradients", self.n_iterations * self.problem.n_models),)

    @property
    def how(self) -> str:
        """A description of how noise is added."""
        return f"mirror descent ({self.potential.name}) with {self.n_iterations} full gradients under Gaussian noise"

    proof = "composition of Gaussian mechanisms (docs/proofs/composition.md); docs/proofs/mirror-descent.md"

    @property
    def numbers(self) -> Mapping[str, float | str]:
        """The public numbers of the run."""
        return {
            "iterations": float(self.n_iterations),
            "learning rate (mean scale)": self.learning_rate,
            "noise stddev (sum scale)": self.release.stddev,
            "noise grid": self.release.noise.grid,
            "sampler": f"exact discrete Gaussian, {SOURCE}",
        }

    def run(
        self, records: list[Records], entropy: EntropySource, progress: Progress | None = None
    ) -> base.Release:
        """Descend, and average."""
        found = [self._run_one(part, entropy) for part in records]
        theta = np.stack([theta.reshape(self.problem.shape) for theta in found])
        if not self._certified:
            return base.Release(theta, entropy.secure)
        return CertifiedRelease(theta, entropy.secure, self.certificate)

    def _run_one(self, records: Records, entropy: EntropySource) -> Array:
        problem, n = self.problem, self.problem.n_samples
        theta, state = self.potential.start(self.geometry)
        average, weight = np.zeros_like(theta), 0.0
        for _ in range(self.n_iterations):
            gradient = records.value_and_gradient(problem.loss, theta.reshape(problem.shape))[1].ravel()
            if problem.l2:
                gradient += n * problem.l2 * theta
            noisy = self.release.release(gradient, entropy)
            following, state = self.potential.step(
                self.geometry, theta, state, self.learning_rate / n * noisy
            )
            # The sensitivity holds in this ball; rounding may move the projection of a distant point out of the set.
            following = project(following[None], self.geometry.radius(2.0))[0]
            # The smooth bound is for the iterates after each step, the other bound for those before.
            weight = 1 + self.decay * weight
            average += ((following if self.smooth_rule else theta) - average) / weight
            theta = following
        return average

    @property
    def remarks(self) -> Mapping[str, str]:
        """What else is printed."""
        return {"excess risk at most": str(self.certificate)} if self._certified else {}

    @property
    def _certified(self) -> bool:
        """Whether the loss is convex, as the bound on the excess risk needs."""
        return "convex" in self.problem.loss.proved_for


@dataclass(frozen=True)
class Constants:
    """The mean objective in the potential's norm; bounds on the excess risk as functions of steps, noise and rate.

    smoothness, steepness : of the objective. noise : root of E |g|_*^2 of a standard Gaussian. spread : range of the
    potential. strength : strong convexity relative to the potential.
    """

    smoothness: float
    steepness: float
    noise: float
    spread: float
    strength: float

    def smooth_at(self, steps: int, stddev: float, rates: Array) -> Array:
        """Theorem 1: spread / (rate x sum of weights) + rate noise^2 / (2 (1 - rate smoothness))."""
        room = 1 - rates * self.smoothness
        with np.errstate(over="ignore", divide="ignore"):
            start = self.spread / (steps * rates)
            if self.strength > 0:
                grown = np.expm1(-steps * np.log1p(-np.minimum(0.5, rates * self.strength)))
                start = self.spread * np.minimum(0.5 / rates, self.strength) / grown
            bound = start + rates / 2 * (stddev * self.noise) ** 2 / np.where(room > 0, room, 1.0)
        return np.where(room > 0, bound, np.inf)

    def rough_at(self, steps: int, stddev: float, rates: Array) -> Array:
        """Theorem 2: spread / (rate steps) + rate (steepness + noise)^2 / 2."""
        return self.spread / (rates * steps) + rates / 2 * (self.steepness + stddev * self.noise) ** 2

    def smooth_bound(self, steps: int, stddev: float) -> tuple[float, float]:
        """Return the smallest value of Theorem 1 and its rate; infinite if the gradient jumps."""
        if math.isinf(self.smoothness):
            return math.inf, 0.0
        rates = np.array([1 / (self.smoothness + stddev * self.noise * math.sqrt(steps / (2 * self.spread)))])
        if self.strength > 0:
            rates = np.append(rates, _RATES / self.smoothness)
        bounds = self.smooth_at(steps, stddev, rates)
        best = int(np.argmin(bounds))
        return float(bounds[best]), float(rates[best])

    def rough_bound(self, steps: int, stddev: float) -> tuple[float, float]:
        """Return the smallest value of Theorem 2 and its rate."""
        root, size = math.sqrt(2 * self.spread / steps), self.steepness + stddev * self.noise
        return root * size, root / size

    def best_bound(self, steps: int, stddev: float) -> float:
        """Return the smaller of the two bounds."""
        return min(self.smooth_bound(steps, stddev)[0], self.rough_bound(steps, stddev)[0])


def _constants(problem: Problem, geometry: Geometry, kind: Potential) -> Constants:
    bound, norm = record_bound(problem)
    entries = bound if norm == 1.0 else math.inf
    record = kind.record_norm(geometry, entries, problem.bounds.feature_norm)
    ridge = problem.l2 or 0.0
    return Constants(
        smoothness=problem.loss.smoothness * record**2 + ridge * kind.ridge(geometry),
        steepness=slope(problem, bound * geometry.radius(norm)) * record
        + ridge * geometry.radius(2.0) * math.sqrt(kind.ridge(geometry)),
        noise=math.sqrt(kind.noise_square(geometry)),
        spread=max(kind.range(geometry), 1e-300),  # 0 for a single point
        # The ridge is strongly convex relative to the squared norm only.
        strength=ridge if isinstance(kind, SquaredNorm) else 0.0,
    )


base.register(MirrorDescent.name, MirrorDescent)
