"""A noisy quasi-Newton method for logistic regression: a private second moment reshapes the records, then descent.

Most records share a few directions. The solver releases a noisy second moment, shrinks the directions in which it is
large, and clips the records again, to a much smaller norm. A second release on these records needs less noise and shows
further directions. Gradients then need less noise as well, and all directions have about the same curvature, so a few
steps suffice. Shrinking a direction divides its curvature, as Newton's method does with the inverse Hessian; a quarter
of the second moment bounds the Hessian (Boehning and Lindsay, 1988). Last, a histogram of margins calibrates the
probabilities. Proofs: docs/proofs/gradient-methods.md, sections 7, 10 and 11.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from discreet import _checks
from discreet._checks import ParameterError, Setting
from discreet._typing import Array, Progress
from discreet.losses import Loss
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.samplers.entropy import SOURCE, Entropy
from discreet.privacy import events
from discreet.privacy.accounting.gaussian import gaussian_mu
from discreet.privacy.guarantee import Guarantee
from discreet.problem import Problem
from discreet.records.base import Records
from discreet.records.bounds import Bounds
from discreet.solvers import base
from discreet.solvers.base import calibrated_unit, gradient_mechanism, multiplier, share_event
from discreet.solvers.gradients.descent import (
    Descent,
    capped,
    centered,
    default_radius,
    flow_time,
    noisy_sum,
    signal_over_noise,
)
from discreet.solvers.second_order.coordinates import (
    Reshaping,
    SpectrumMechanism,
    default_clip,
    default_level,
    frequency_level,
    frequency_visibility,
    look_mechanism,
    mapped,
    most_stretched,
    reshaped,
    reshaped_cap,
    row_error,
)
from discreet.solvers.second_order.margins import KNOTS, MarginMechanism, calibrated_scale, default_scale
from discreet.solvers.second_order.regression import NewtonRegressionPlan, plan_regression
from discreet.solvers.statistics import MomentMechanism, NoisyMoments, moment_sensitivity

_MOMENT_SHARE = 0.1  # of the squared Gaussian-DP parameter, for two releases of the second moment
_FIRST_LOOK = 0.3  # of that share; the second release needs less noise, because records are shorter
_SPECTRUM_SHARE = 0.01
_MARGIN_SHARE = 0.02  # for calibrating probabilities
_ONE_LOOK = 0.03  # where frequencies tell most of what a second would
_MANY_COLUMNS = 200  # with fewer, the second moment itself tells the directions apart
_VISIBLE = 2.0  # the mean energy of a frequency over its noise
_STEPS = 100
_AVERAGED = 0.3


@dataclass(frozen=True)
class NoisyNewton:
    """Descent in coordinates chosen by a noisy second moment; every default follows from public facts.

    Parameters
    ----------
    n_iterations : number of noisy gradients; None: 100, for regression 20.
    moment_share : part of the budget (squared Gaussian-DP parameter) for the second moment, which is released twice,
        or once if frequencies are released too; None: 0.1 or 0.03.
    radius : coefficients stay in the ball of this radius, in the new coordinates; None for the public rule.
    cap : as for `NoisyGradientDescent`; for regression, the largest derivative of a record.
    clip : norm to which reshaped records are clipped, relative to their root mean square as estimated from the second
        moment; None for the public rule.
    ordered_columns : whether to spend a hundredth of the budget to test if neighboring columns are similar, as for
        pixels and times, and drop the frequencies with little energy; None: with 200 columns or more and enough
        records.

    Privacy
    -------
    (epsilon, delta) with delta > 0, every relation, logistic, softmax and Huber-SVM losses with at most 4000 columns;
    the matrix and all iterates may be published. Fitting makes a dense copy of the rows. Squared, Huber, quantile and
    Poisson losses are fitted by posterior means of clipped gradients (docs/proofs/second-order-regression.md).

    References
    ----------
    Avella-Medina, Bradshaw and Loh (2023) for noisy Newton methods; Ganesh et al. (2023) for noise in gradient and
    Hessian.
    """

    name: ClassVar[str] = "newton"
    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]] = "softmax"
    n_iterations: int | None = None
    moment_share: float | None = None
    radius: float | None = None
    cap: float | None = None
    clip: float | None = None
    ordered_columns: bool | None = None

    def plan(self, problem: Problem, guarantee: Guarantee) -> NoisyNewtonPlan | NewtonRegressionPlan:
        """Split the budget and calibrate all releases together."""
        base.refuse_pure(self.name, guarantee)
        base.refuse_geometry(self.name, problem)
        loss = problem.loss
        if loss.aims_at is not None:
            settings = self.n_iterations, self.moment_share, self.radius, self.cap, self.clip
            return plan_regression(self.name, problem, guarantee, *settings)
        base.require(self.name, problem, "classes", Setting("solver", "noisy-gd", "objective"))
        steps = _STEPS if self.n_iterations is None else _checks.count("n_iterations", self.n_iterations)
        budget = gaussian_mu(guarantee.epsilon, guarantee.delta)
        cap = self.cap
        if cap is None and loss.n_outputs == 1 and "likelihood" in loss.proved_for:
            cap = reshaped_cap(signal_over_noise(problem, guarantee, loss, budget))
        field = capped(problem, guarantee, budget, cap)
        signal = signal_over_noise(problem, guarantee, field, budget)
        clip = self.clip if self.clip is not None else default_clip(signal * field.lipschitz)
        shares = self._shares(problem, guarantee, budget)
        unit = calibrated_unit(lambda m: _event(problem, m, steps, shares), guarantee)
        radius = self.radius
        if radius is None:  # a coefficient grows by the factor by which records shrink along it
            looked = look_mechanism(problem, guarantee.neighboring, multiplier(unit, shares.moments[-1]))
            radius = default_radius(problem, signal) * most_stretched(looked)
        return NoisyNewtonPlan(problem, guarantee, field, radius, steps, signal, clip, unit, shares)

    def _shares(self, problem: Problem, guarantee: Guarantee, budget: float) -> Shares:
        """Split the budget; a release that would show nothing, judging by public numbers, gets no share."""
        ordered = self.ordered_columns
        if ordered is None:
            n, p = problem.n_samples, problem.n_features
            multiplier = 1 / (budget * math.sqrt(_SPECTRUM_SHARE))
            seen = frequency_visibility(n, p, guarantee.neighboring, multiplier)
            ordered = p >= _MANY_COLUMNS and seen >= _VISIBLE
        share = self.moment_share
        if share is None:
            share = _ONE_LOOK if ordered else _MOMENT_SHARE
        looks = (share,) if ordered else (_FIRST_LOOK * share, (1 - _FIRST_LOOK) * share)
        probabilities = problem.n_models == 1 and not problem.l2 and "likelihood" in problem.loss.proved_for
        shares = Shares(looks, _SPECTRUM_SHARE if ordered else 0.0, _MARGIN_SHARE if probabilities else 0.0)
        if not (share > 0 and shares.gradients > 0):
            most = 1 - shares.spectrum - shares.margins
            raise ParameterError(
                "moment_share", f"must lie between 0 and {most:g}, got {self.moment_share!r}"
            )
        return shares


def moment_visibility(problem: Problem, guarantee: Guarantee) -> float:
    """Return the second moment of records that share one direction, over the largest eigenvalue of its noise.

    Computed as if the default share of the budget were one Gaussian release: accurate enough to choose a solver.
    """
    budget = gaussian_mu(guarantee.epsilon, guarantee.delta) * math.sqrt(_MOMENT_SHARE)
    stddev = moment_sensitivity(1.0, 0.0, guarantee.neighboring).value / budget
    return problem.n_samples / (stddev * math.sqrt(2 * problem.n_features))


@dataclass(frozen=True)
class Shares:
    """How the squared Gaussian-DP parameter is split: second moments, frequencies, margins, and gradients."""

    moments: tuple[float, ...]
    spectrum: float
    margins: float

    @property
    def gradients(self) -> float:
        """For all gradients together."""
        return 1.0 - sum(self.moments) - self.spectrum - self.margins


@dataclass(frozen=True)
class NoisyNewtonPlan(base.Plan):
    """A calibrated run of the noisy quasi-Newton method."""

    field: Loss
    radius: float
    n_iterations: int
    signal: float
    clip: float
    unit: float
    shares: Shares

    def __post_init__(self) -> None:
        if not 0 < self.clip < math.inf:
            raise ParameterError("clip", f"must be a finite number greater than 0, got {self.clip!r}")
        # raise now, before any charge, if anything can fail
        norm = self.problem.bounds.feature_norm
        _ = [self.look_again(norm, share) for share in self.shares.moments]
        _ = self.spectrum(norm), self.release, self.margins(self.radius)
        _ = Descent(self.n_iterations, 1.0, 0.0, _AVERAGED, self.radius)

    sums_only = True

    @cached_property
    def moments(self) -> MomentMechanism:
        """The first release of the second moment."""
        noise = multiplier(self.unit, self.shares.moments[0])
        return look_mechanism(self.problem, self.record_guarantee.neighboring, noise)

    def look_again(self, norm: float, share: float) -> MomentMechanism:
        """The release of the second moment of records reshaped and clipped to ``norm``."""
        noise = multiplier(self.unit, share)
        return look_mechanism(self.problem, self.record_guarantee.neighboring, noise, norm)

    def spectrum(self, norm: float) -> SpectrumMechanism | None:
        """The release of the energies of records reshaped and clipped to ``norm``; None if it is skipped."""
        if self.shares.spectrum == 0:
            return None
        problem = self.problem
        return SpectrumMechanism(
            problem.n_samples, problem.n_features, problem.bounds.intercept, norm, self.record_guarantee.neighboring,
            multiplier(self.unit, self.shares.spectrum), row_error(problem),
        )  # fmt: skip

    def margins(self, theta_norm: float) -> MarginMechanism | None:
        """The histogram of margins at released coefficients of this norm; None where nothing is calibrated."""
        if self.shares.margins == 0:
            return None
        problem = self.problem
        return MarginMechanism(
            problem.n_samples, problem.n_features, problem.loss.n_outputs, problem.bounds.feature_norm, theta_norm,
            self.record_guarantee.neighboring, multiplier(self.unit, self.shares.margins),
        )  # fmt: skip

    @cached_property
    def release(self) -> GaussianMechanism:
        """The noisy gradient sum of all models at one point, for records that are not shrunk."""
        return self._release(self.problem.bounds.feature_norm)

    def _release(self, norm: float) -> GaussianMechanism:
        """The same for records reshaped and clipped to ``norm``, with the same noise multiplier."""
        problem = replace(self.problem, bounds=Bounds(norm, intercept=False))
        noise = multiplier(self.unit, self.shares.gradients / self.n_iterations)
        settings = self.field, self.radius, self.record_guarantee.neighboring, noise
        return gradient_mechanism(problem, *settings, row_error(self.problem))

    @cached_property
    def releases(self) -> tuple[base.PlannedRelease, ...]:
        """All releases of a run, in order."""
        norm = self.problem.bounds.feature_norm
        looks = [
            base.PlannedRelease(self.look_again(norm, share), "second moment")
            for share in self.shares.moments
        ]
        spectrum = self.spectrum(norm)
        if spectrum is not None:
            looks.append(base.PlannedRelease(spectrum, "energies of frequencies"))
        steps = base.PlannedRelease(self.release, "gradients", self.n_iterations)
        margins = self.margins(self.radius)
        return (
            (*looks, steps) if margins is None else (*looks, steps, base.PlannedRelease(margins, "margins"))
        )

    @property
    def how(self) -> str:
        """A description of how noise is added."""
        looks = ", twice" if self.shares.spectrum == 0 else ", on energies of frequencies"
        margins = "" if self.shares.margins == 0 else ", and on a histogram of margins"
        gradients = f"on {self.n_iterations} gradients of reshaped records"
        return f"Gaussian noise on the second moment{looks}, {gradients}{margins}"

    @property
    def proof(self) -> str:
        """The theorem behind the guarantee."""
        return (
            "sensitivity of second moments (Theorem 4), of energies (Theorem 10), of gradients on a ball (Theorems "
            "1 and 2) and of histograms of margins (Theorem 11), exact composition of Gaussian releases; "
            "docs/proofs/gradient-methods.md"
        )

    @property
    def numbers(self) -> Mapping[str, float | str]:
        """The public numbers of the run, with the largest possible noise (records that are not shrunk)."""
        norm = self.problem.bounds.feature_norm
        spectrum, margins = self.spectrum(norm), self.margins(self.radius)
        energies = {} if spectrum is None else {"energy noise stddev (sum scale)": spectrum.gaussian.stddev}
        return {
            **energies,
            **{
                f"second moment noise stddev, look {look} (sum scale)": self.look_again(
                    norm, share
                ).gaussian.stddev
                for look, share in enumerate(self.shares.moments, start=1)
            },
            "largest gradient noise stddev (sum scale)": self.release.stddev,
            "largest gradient sensitivity": self.release.sensitivity.value,
            "noisy steps": float(self.n_iterations),
            **({} if margins is None else {"margin noise stddev": margins.gaussian.stddev}),
            "radius": self.radius,
            "derivative bound": self.field.lipschitz,
            "sampler": f"exact discrete Gaussian, {SOURCE}",
        }

    def run(self, records: list[Records], entropy: Entropy, progress: Progress | None = None) -> base.Release:
        """Release the second moment, reshape the records, then descend along noisy gradients."""
        problem = self.problem
        seen = self.moments.release(records[0], entropy)
        shape = self.reshaping(seen)
        first = mapped(records[0], shape.matrix, shape.norm)
        for share in self.shares.moments[1:]:
            noisy = self.look_again(shape.norm, share).release(first, entropy)
            shape = shape.then(self.reshaping(noisy, shape.norm))
            first = mapped(records[0], shape.matrix, shape.norm)
        if (spectrum := self.spectrum(shape.norm)) is not None:
            level = frequency_level(self.signal * self.field.lipschitz)
            narrower = shape.within(spectrum.release(first, level, entropy), spectrum.basis)
            if narrower is not shape:
                shape, first = narrower, mapped(records[0], narrower.matrix, narrower.norm)
        parts = [first, *(first.with_labels(part.labels) for part in records[1:])]
        release = self._release(shape.norm)
        ridge = (problem.l2 or 0.0) * shape.matrix.T @ shape.matrix

        def noisy_gradient(point: Array) -> Array:
            noisy = noisy_sum(parts, self.field, point, release, entropy)
            return np.asarray(noisy / problem.n_samples + _by_model(ridge, point))

        start = np.zeros((problem.n_models, *problem.shape))
        reached = self._descent(shape).run(start, noisy_gradient, progress)
        theta = centered(_by_model(shape.matrix, reached), problem.loss.n_outputs)
        if (margins := self.margins(float(np.linalg.norm(theta)))) is not None:
            counts = margins.release(records[0], theta[0], entropy)
            default = default_scale(self.field, self.signal)
            outputs = problem.loss.n_outputs
            spread = float(np.sum(theta[0] * (seen.second @ theta[0]))) / (problem.n_samples * outputs)
            scale = calibrated_scale(counts, margins.gaussian.stddev, default, outputs, max(spread, 0.0))
            theta = theta * scale
        return base.Release(theta, entropy.secure)

    def reshaping(self, noisy: NoisyMoments, bound: float | None = None) -> Reshaping:
        """Choose coordinates from a noisy second moment of records of norm at most ``bound``."""
        bound = self.problem.bounds.feature_norm if bound is None else bound
        level = default_level(self.signal * self.field.lipschitz)
        return reshaped(noisy, self.problem.n_samples, bound, level, self.clip, self.field.typical_curvature)

    def _descent(self, shape: Reshaping) -> Descent:
        """Return a descent with the planned steps and the flow time of plain descent at the reduced noise."""
        bound = self.problem.bounds.feature_norm
        curvature = shape.curvature
        if self.problem.l2:
            curvature += self.problem.l2 * float(np.linalg.norm(shape.matrix, 2)) ** 2
        problem = replace(self.problem, n_features=shape.n_directions)
        time = flow_time(problem, self.signal * bound / shape.norm)
        return Descent.lasting(time, curvature, self.n_iterations, _AVERAGED, self.radius)


def _by_model(matrix: Array, theta: Array) -> Array:
    """Multiply the coefficients of every model by the matrix."""
    return np.stack([matrix @ one for one in theta])


def _event(problem: Problem, unit: float, steps: int, shares: Shares) -> events.Event:
    """Return the event of all releases for this unit."""
    p = problem.n_features
    looks = [share_event(unit, share, p * (p + 1) // 2) for share in shares.moments]
    if shares.spectrum > 0:
        looks.append(share_event(unit, shares.spectrum, p))
    gradients = events.Repeated(share_event(unit, shares.gradients / steps, problem.n_coefficients), steps)
    margins = [share_event(unit, shares.margins, len(KNOTS))] if shares.margins > 0 else []
    return events.Composed((*looks, gradients, *margins))


base.register(NoisyNewton.name, NoisyNewton)
