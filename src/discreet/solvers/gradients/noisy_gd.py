"""Projected gradient descent with Gaussian noise on every full-batch gradient.

All noisy gradients together are the release; momentum, step sizes, projections and averages only post-process them.
Each step is one Gaussian mechanism on a sum of gradients, and T steps compose exactly:
mu = sqrt(T) x sensitivity / stddev. Proofs: docs/proofs/gradient-methods.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from discreet import _checks
from discreet._checks import ParameterError, Setting
from discreet._typing import Array, Progress
from discreet.losses import Loss
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.repetition import poisson_sample
from discreet.mechanisms.samplers.entropy import SOURCE, Entropy
from discreet.privacy import events
from discreet.privacy.accounting.calibration import calibrate
from discreet.privacy.accounting.gaussian import gaussian_mu
from discreet.privacy.guarantee import Guarantee
from discreet.problem import Problem, class_signal, gradient_signal
from discreet.records.arrays import ArrayRecords
from discreet.records.base import Records
from discreet.solvers import base
from discreet.solvers.base import gradient_mechanism
from discreet.solvers.certificates import (
    Certificate,
    NoiseNorm,
    averaged_descent,
    geometry_of,
    released,
    stated,
)
from discreet.solvers.gradients.descent import (
    STEP,
    Descent,
    capped,
    centered,
    coefficients,
    default_cap,
    default_radius,
    flow_time,
    images,
    noisy_sum,
)
from discreet.solvers.gradients.descent import project as project
from discreet.solvers.gradients.row_centering import (
    LEAST_LEFT,
    CenteredBounds,
    LeveledBounds,
    leveled,
    leveled_mechanism,
    mean_mechanism,
    recentered,
    released_center,
)

_FEWEST, _MOST = 50, 400
_FEWEST_WIDE = 25  # for leveled dense rows: a pass over wide rows takes long, and fewer steps are as accurate
_AVERAGED = 0.25  # of the iterates
# In a set, where steps are plain: the fewest, and the share of iterates that is averaged, up to the second number as
# the signal (see `gradient_signal`) grows beyond the third. While noise dominates, the beginning is far from the end.
_FEWEST_INSIDE = 100
_AVERAGED_INSIDE, _MOST_AVERAGED, _BARELY_SEEN = 0.25, 0.75, 16.0
_SCHEDULES = ("constant", "linear", "strongly-convex", "square-root")
_MOMENTA = (0.8, 0.9, 0.95, 0.98)
_MOMENTA_AT_CORNERS = (0.0, 0.8, 0.9)  # momentum carries past a corner
_MOMENTA_INSIDE = (0.0, *_MOMENTA)
_WIDE = 1000  # above this many columns, rows are leveled: their mean and half of the intercept are removed
_CENTER_SHARE = 0.1  # of the squared Gaussian-DP parameter, for the mean of leveled rows
_SEEN = 40.0  # release the mean if the records exceed the noise in one column of their sum by this factor
_CONSTANT_NOISE = 0.5  # accepted noise in the log-odds from the constant
_LEVELED_CAP = 9 / 11  # cap for leveled rows, relative to that for unchanged rows


@dataclass(frozen=True)
class DescentSettings:
    """Settings of noisy gradient descent, on all records or on samples."""

    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]] = "softmax"
    n_iterations: int | None = None
    learning_rate: float | None = None
    momentum: float | None = None
    radius: float | None = None
    cap: float | None = None
    averaging: float | None = None
    schedule: str | None = None


@dataclass(frozen=True)
class NoisyGradientDescent(DescentSettings):
    """Full-batch projected noisy gradient descent; every default follows from public facts.

    Parameters
    ----------
    n_iterations : number of noisy gradients; None for the public rule.
    learning_rate : step on the mean loss; None for the public rule.
    momentum : Nesterov momentum in [0, 1); None for the public rule.
    radius : the coefficients of each model stay in the L2 ball of this radius; None for the public rule.
    cap : bound on a record's derivative (logistic and softmax only); 1 and sqrt(2), respectively, mean no cap.
        None for the public rule.
    averaging : fraction of final iterates that is averaged. None: a quarter (up to three quarters in a set, as the
        signal grows), or the last iterate alone if steps fall.
    level_rows : whether to remove the mean of each record's features and half of its constant before clipping
        (logistic and softmax only); None: if there are more than 1000 columns.
    center_share : part of the budget (squared Gaussian-DP parameter) for the mean of leveled records, which is then
        subtracted from all of them; 0 for none. None: a tenth if rows are leveled, have an intercept, and are numerous
        enough.
    schedule : "constant" steps; "linear": steps that fall to 0 in a line; "strongly-convex": steps 2 / (l2 (t + 1)),
        averaged with weights t, for problems with a ridge ``l2``; the excess risk then falls with the square of the
        noise. Or "square-root", in a set: steps diameter / (length of noisy gradients x sqrt(t)), and the last iterate
        instead of an average, as printed. None: "linear" for losses with corners in all of space, because constant
        steps never settle at a corner; otherwise "constant".

    If the problem has a constraint set, every iterate is projected onto it, and the set replaces ``radius``.

    Privacy
    -------
    (epsilon, delta) with delta > 0, every relation, every loss with a bounded and Lipschitz derivative; the mean and
    all iterates may be published. The number of steps is fixed before any data is seen.

    References
    ----------
    Bassily, Smith and Thakurta (2014), Algorithm 1; exact Gaussian composition: Dong, Roth and Su (2022); steps that
    fall in a line: Zamani and Glineur (2023).
    """

    name: ClassVar[str] = "noisy-gd"
    level_rows: bool | None = None
    center_share: float | None = None

    def plan(self, problem: Problem, guarantee: Guarantee) -> NoisyGradientPlan:
        """Choose the loss, ball, steps and noise from public numbers."""
        base.refuse_pure(self.name, guarantee)
        schedule = self._scheduled(problem)
        strength = self._strength(problem, schedule)
        loss, likelihood = problem.loss, "likelihood" in problem.loss.proved_for
        linked = likelihood and problem.geometry is None and not strength
        if self.level_rows and not linked:
            raise ValueError(
                "level_rows applies to logistic and softmax losses in all of space, with constant steps; not to "
                f"{loss} here"
            )
        wide = linked and problem.n_features > _WIDE
        if wide if self.level_rows is None else self.level_rows:
            problem = leveled(problem)
        share = self._share(problem, guarantee)
        wanted = _checks.count_or_none("n_iterations", self.n_iterations)
        budget = gaussian_mu(guarantee.epsilon, guarantee.delta) * math.sqrt(1 - share)
        cap = self.cap
        if cap is None and likelihood and loss.n_outputs == 1 and isinstance(problem.bounds, LeveledBounds):
            cap = _LEVELED_CAP * default_cap(problem, guarantee, budget)
        field = capped(problem, guarantee, budget, cap)
        signal = class_signal(problem, guarantee, field, budget)
        radius = self._radius(problem, signal, share)
        last, fading = schedule == "square-root", schedule == "linear"
        if last:
            steps, rate, momentum = wanted or _MOST, self.learning_rate or 1.0, 0.0
        elif strength:
            steps, rate, momentum = self._shrinking(problem, field, strength, wanted)
        else:
            steps, rate, momentum = self._schedule(problem, field, signal, wanted, fading)
        averaging = self.averaging
        if averaging is None or last:
            averaging = 1 / steps if last or fading else _averaged(problem, guarantee)
        pace = _pace(problem, field, signal, steps, rate, momentum) if linked else 1.0
        plan = NoisyGradientPlan(
            problem, guarantee, field, radius, steps, rate, momentum, averaging,
            descent_multiplier(problem, guarantee, steps, share=share), center_share=share, strength=strength,
            square_root=last, fading=fading, pace=pace,
        )  # fmt: skip
        return replace(plan, learning_rate=plan.printed_rate) if last and self.learning_rate is None else plan

    def _scheduled(self, problem: Problem) -> str:
        """Return the name of the schedule, by the public rule if none was given."""
        if self.schedule is None:
            corners = math.isinf(problem.loss.smoothness) and problem.geometry is None
            return "linear" if corners else "constant"
        return _checks.choice("schedule", self.schedule, _SCHEDULES)

    def _strength(self, problem: Problem, schedule: str) -> float:
        """Return the strong convexity that sets the step sizes; 0 for steps that do not depend on it."""
        if schedule in ("constant", "linear"):
            return 0.0
        if self.momentum:
            raise ValueError(f"schedule={schedule!r} has no momentum, got {self.momentum!r}")
        if schedule == "square-root":
            geometry_of(problem, self.name, corners=True)  # raises without a set
            return 0.0
        if not problem.l2:
            raise ValueError("schedule='strongly-convex' needs a ridge: give the estimator l2 > 0")
        return problem.l2

    def _shrinking(
        self, problem: Problem, field: Loss, strength: float, steps: int | None
    ) -> tuple[int, float, float]:
        """Return the number of steps, the largest rate and zero momentum, for the strongly convex schedule."""
        stable = 1 / (field.typical_curvature * problem.bounds.feature_norm**2 + strength)
        return steps or _MOST, stable if self.learning_rate is None else self.learning_rate, 0.0

    def _radius(self, problem: Problem, signal: float, share: float) -> float:
        """Return the radius of a ball that contains all iterates."""
        if problem.geometry is not None:
            if self.radius is not None:
                raise ParameterError(
                    "radius",
                    "is that of the set in which the coefficients must lie",
                    "leave it at None",
                )
            return geometry_of(problem, self.name, corners=True).radius(2.0)
        if self.radius is None:  # a coefficient grows at most by the factor by which records shrink
            return default_radius(problem, signal) / (math.sqrt(LEAST_LEFT) if share else 1.0)
        return _checks.real("radius", self.radius, above=0)

    def _share(self, problem: Problem, guarantee: Guarantee) -> float:
        """Return the share of the budget for the mean of the records."""
        possible = isinstance(problem.bounds, LeveledBounds) and problem.bounds.intercept
        share = self.center_share
        if share is None:
            budget = gaussian_mu(guarantee.epsilon, guarantee.delta) * math.sqrt(_CENTER_SHARE)
            seen = problem.n_samples * budget / guarantee.neighboring.contributions >= _SEEN
            return _CENTER_SHARE if possible and seen else 0.0
        if isinstance(share, bool) or not 0 <= share < 1:
            raise ParameterError("center_share", f"must be at least 0 and less than 1, got {share!r}")
        if share and not possible:
            raise ParameterError(
                "center_share", "needs leveled rows (level_rows) and an intercept, to take the mean off"
            )
        return float(share)

    def _schedule(
        self, problem: Problem, field: Loss, signal: float, steps: int | None, fading: bool
    ) -> tuple[int, float, float]:
        """Choose steps, rate and momentum; the flow time steps x rate / (1 - momentum) balances noise against bias.

        The mean of ``fading`` steps is half the first one, which is doubled.
        """
        largest_rate = STEP / (field.typical_curvature * problem.bounds.feature_norm**2)
        time = flow_time(problem, signal)
        plain, leveled_rows = _plain(problem), isinstance(problem.bounds, LeveledBounds)
        wide = leveled_rows and problem.n_features > _WIDE and not problem.sparse
        fewest = _FEWEST_WIDE if wide else _FEWEST
        momenta: tuple[float, ...] = _MOMENTA_AT_CORNERS if fading else _MOMENTA
        if plain:
            momenta, fewest = _MOMENTA_INSIDE, _FEWEST_INSIDE
        if self.momentum is not None:
            momenta = (self.momentum,)
        needed = [max(1, math.ceil(time * (1 - m) / largest_rate)) for m in momenta]
        # Take the smallest momentum that reaches the time within the most steps; if few would do, take the next one.
        choice = next((i for i, enough in enumerate(needed) if enough <= _MOST), len(momenta) - 1)
        if needed[choice] < 2 * _FEWEST and choice == 0 and len(momenta) > 1 and not plain:
            choice = 1
        momentum = momenta[choice]
        if steps is None:
            steps = min(max(needed[choice], fewest), _MOST)
        rate = self.learning_rate
        if rate is None:
            rate = (2 if fading else 1) * min(largest_rate, time * (1 - momentum) / steps)
        return steps, rate, momentum


def _plain(problem: Problem) -> bool:
    """Whether steps have no momentum unless they must, and most iterates are averaged: in a set, for smooth losses.

    Momentum carries noise on, and a set keeps iterates near, so that their mean loses little by its beginning.
    """
    return problem.geometry is not None and math.isfinite(problem.loss.smoothness)


def _averaged(problem: Problem, guarantee: Guarantee) -> float:
    """The share of final iterates that is averaged by the public rule."""
    if not _plain(problem):
        return _AVERAGED
    seen = gradient_signal(problem, guarantee) / _BARELY_SEEN
    return min(_MOST_AVERAGED, _AVERAGED_INSIDE * max(1.0, seen))


@dataclass(frozen=True)
class NoisyGradientPlan(base.Plan):
    """A calibrated run of noisy gradient descent."""

    field: Loss
    radius: float
    n_iterations: int
    learning_rate: float
    momentum: float
    averaging: float
    noise_multiplier: float
    sampling_rate: float = 1.0
    center_share: float = 0.0
    strength: float = 0.0
    square_root: bool = False
    fading: bool = False
    pace: float = 1.0

    def __post_init__(self) -> None:
        _ = self.release, self.mean, self.descent  # raise now, before any charge, if anything can fail

    @property
    def sums_only(self) -> bool:
        """Whether the run needs only sums over all records, so that records may be stored in parts."""
        return self.sampling_rate == 1.0

    @property
    def shape(self) -> LeveledBounds | None:
        """The map that levels rows; None if they stay unchanged."""
        bounds = self.problem.bounds
        return bounds if isinstance(bounds, LeveledBounds) else None

    @property
    def descent(self) -> Descent:
        """The settings of the descent."""
        return Descent(
            self.n_iterations, self.learning_rate, self.momentum, self.averaging, self.radius,
            self.problem.geometry, self.strength, self.square_root, self.fading,
        )  # fmt: skip

    @property
    def printed_rate(self) -> float:
        """Diameter of the set over the root mean square length of a noisy gradient of the mean loss, at most."""
        problem = self.problem
        inside = geometry_of(problem, NoisyGradientDescent.name, corners=True)
        steep = self.field.lipschitz * problem.bounds.feature_norm + (problem.l2 or 0.0) * inside.radius(2.0)
        noise = self.release.noise.effective_stddev / problem.n_samples * math.sqrt(inside.n_features)
        return inside.diameter(2.0) / math.hypot(steep, noise)

    @cached_property
    def release(self) -> GaussianMechanism:
        """The noisy gradient sum of all models at one point, for the full feature norm."""
        mechanism = gradient_mechanism if self.shape is None else leveled_mechanism
        return mechanism(
            self.problem, self.field, self.radius, self.record_guarantee.neighboring, self.noise_multiplier
        )

    @cached_property
    def mean(self) -> GaussianMechanism | None:
        """The noisy sum of the records; None if they are not centered."""
        if not self.center_share:
            return None
        multiplier = _mean_multiplier(self.noise_multiplier, self.n_iterations, self.center_share)
        return mean_mechanism(self.problem, self.record_guarantee.neighboring, multiplier)

    def centered(self, bounds: CenteredBounds) -> NoisyGradientPlan:
        """Return the plan for centered records: same steps and price, noise and flow time for the smaller norm."""
        shrunk = (self.problem.bounds.feature_norm / bounds.feature_norm) ** 2
        return replace(
            self,
            problem=replace(self.problem, bounds=bounds),
            learning_rate=self.learning_rate * shrunk,
            center_share=0.0,
        )

    @property
    def releases(self) -> tuple[base.PlannedRelease, ...]:
        """All releases of a run, in order."""
        gradients = base.PlannedRelease(self.release, "gradients", self.n_iterations, self.sampling_rate)
        return (
            (gradients,) if self.mean is None else (base.PlannedRelease(self.mean, "sum of rows"), gradients)
        )

    @property
    def how(self) -> str:
        """A description of how noise is added."""
        models = f", {self.problem.n_models} one-vs-rest models" if self.problem.n_models > 1 else ""
        batch = "full-batch" if self.sampling_rate == 1 else f"Poisson-sampled (rate {self.sampling_rate:g})"
        rows = "" if self.shape is None else " of leveled rows"
        if self.center_share:
            rows = " of centered rows, and the sum of the rows,"
        return f"{self.n_iterations} {batch} gradients{rows} with Gaussian noise, projected descent{models}"

    @property
    def proof(self) -> str:
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
    def numbers(self) -> Mapping[str, float | str]:
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
            "sampler": f"exact discrete Gaussian, {SOURCE}",
        }

    def run(self, records: list[Records], entropy: Entropy, progress: Progress | None = None) -> base.Release:
        """Descend along noisy gradients, of centered records if planned, and average the last iterates."""
        if self.mean is not None:
            bounds = released_center(self.problem, records[0], self.mean, entropy)
            first = recentered(records[0], bounds, self.problem.n_samples)
            others = [first.with_labels(part.labels) for part in records[1:]]
            return self.centered(bounds).run([first, *others], entropy, progress)
        problem, ridge = self.problem, self.problem.l2 or 0.0
        divisor = problem.n_samples * self.sampling_rate  # the expected size; the true size is secret

        def noisy_gradient(point: Array) -> Array:
            batch = self._batch(records, entropy)
            noisy = noisy_sum(batch, self.field, point, self.release, entropy, self.shape)
            gradient = noisy / divisor + ridge * images(coefficients(point, self.shape), self.shape)
            gradient[:, -1] *= self.pace if self.shape is None else self.shape.pace
            return gradient

        theta = coefficients(self.descent.run(self._start(), noisy_gradient, progress), self.shape)
        if problem.geometry is None and problem.loss.n_outputs > 1:
            theta = centered(theta)
        return released(theta, entropy.secure, self.certificate)

    @cached_property
    def certificate(self) -> Certificate | None:
        """Bound on the excess risk of plain descent in a set; None with momentum, caps, samples or shrinking steps."""
        special = (
            self.momentum or self.strength or self.fading or self.sampling_rate < 1 or self.shape is not None
        )
        if special or self.field != self.problem.loss:
            return None
        averaged = max(1, round(self.averaging * self.n_iterations))
        size = self.problem.n_features * self.problem.loss.n_outputs
        noise = NoiseNorm(size, self.release.noise.effective_stddev / self.problem.n_samples, pure=False)
        return averaged_descent(self.problem, self.learning_rate, averaged, noise)

    @property
    def remarks(self) -> Mapping[str, str]:
        """What else is printed."""
        return stated(self.certificate)

    def _start(self) -> Array:
        """Return the origin, or the center of the set, for every model."""
        problem = self.problem
        start = np.zeros((problem.n_models, *problem.shape))
        return start if problem.geometry is None else start + problem.geometry.center().reshape(problem.shape)

    def _batch(self, records: list[Records], entropy: Entropy) -> list[Records]:
        if self.sampling_rate == 1:
            return records
        rows = poisson_sample(records[0].n_samples, self.sampling_rate, entropy)
        return [part.in_memory().take(rows) for part in records]


def _pace(problem: Problem, field: Loss, signal: float, steps: int, rate: float, momentum: float) -> float:
    """Return the step size of the constant relative to that of the features, for two classes.

    Early stopping keeps noise out of many coefficients. The constant is one number, to which every record contributes:
    it may take the time in which noise moves it by `_CONSTANT_NOISE`, within the stable range, so that predictions come
    near the class shares where little else can be learned.
    """
    if field.n_outputs > 1 or isinstance(problem.bounds, LeveledBounds) or not problem.bounds.intercept:
        return 1.0
    square = problem.bounds.feature_norm**2
    time = _CONSTANT_NOISE * signal / square
    stable = STEP / (field.typical_curvature * square * rate)
    return max(1.0, min(time * (1 - momentum) / (steps * rate), stable))


def _mean_multiplier(noise_multiplier: float, steps: int, share: float) -> float:
    """Return the noise multiplier of a release with ``share`` of the budget, next to steps of ``noise_multiplier``."""
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


def descent_multiplier(
    problem: Problem, guarantee: Guarantee, steps: int, sampling_rate: float = 1.0, share: float = 0.0
) -> float:
    return calibrate(lambda m: _event(problem, m, steps, sampling_rate, share), guarantee)


base.register(NoisyGradientDescent.name, NoisyGradientDescent)


@dataclass(frozen=True)
class NoisySGD(DescentSettings):
    """Noisy gradient descent on Poisson samples: `NoisyGradientDescent` with a sampling rate.

    Sampling saves time, not privacy: full batches with the same final noise cost no more. Gradients are divided by the
    expected batch size, because the true size is as secret as the sample.

    Parameters
    ----------
    sampling_rate : probability that a record takes part in a step.
    n_iterations, learning_rate, momentum, radius, cap, averaging, schedule : as for `NoisyGradientDescent`.

    Privacy
    -------
    (epsilon, delta) with delta > 0 under zero-out and add-remove-one. Refused under replace-one, where no dominating
    pair is proved for composed vector releases on Poisson samples.

    References
    ----------
    Abadi et al. (2016); Zhu, Dong and Wang (2022) for dominating pairs.
    """

    name: ClassVar[str] = "noisy-sgd"
    sampling_rate: float = 0.1

    def plan(self, problem: Problem, guarantee: Guarantee) -> NoisyGradientPlan:
        """Plan as without sampling, with noise calibrated for the sampled steps."""
        if guarantee.neighboring.contributions != 1:
            raise ParameterError(
                "solver",
                "'noisy-sgd' is proved under zero-out and add-remove-one only: for replace-one no dominating pair of "
                "composed Poisson-sampled releases is proved",
                Setting("neighboring", "zero-out", "add-remove-one"),
                Setting("solver", "noisy-gd"),
            )
        rate = self.sampling_rate
        if isinstance(rate, bool) or not 0 < rate <= 1:
            raise ParameterError("sampling_rate", f"must be greater than 0 and at most 1, got {rate!r}")
        settings = {one.name: getattr(self, one.name) for one in fields(DescentSettings)}
        full = NoisyGradientDescent(**settings, center_share=0.0).plan(problem, guarantee)
        multiplier = descent_multiplier(problem, guarantee, full.n_iterations, rate)
        return replace(full, noise_multiplier=multiplier, sampling_rate=float(rate))


base.register(NoisySGD.name, NoisySGD)


def consecutive(records: ArrayRecords, order: NDArray[np.int64], batch_size: int) -> list[Records]:
    """Split the records, in the given order, into full batches; drop a shorter last batch."""
    n_batches = len(order) // batch_size
    return [records.take(order[i * batch_size : (i + 1) * batch_size]) for i in range(n_batches)]
