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
from typing import ClassVar, Literal, cast

import numpy as np

from discreet import _checks
from discreet._checks import ParameterError
from discreet._typing import Progress
from discreet.losses import Loss
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.samplers.entropy import SOURCE, Entropy
from discreet.privacy.accounting.calibration import Part, multiplier, split_unit
from discreet.privacy.accounting.gaussian import gaussian_mu
from discreet.privacy.guarantee import Guarantee
from discreet.problem import Problem, class_signal, frequency_signal, sum_signal
from discreet.records.base import Records
from discreet.records.bounds import Bounds, gradient_rounding, row_rounding
from discreet.solvers import base
from discreet.solvers.base import gradient_mechanism
from discreet.solvers.gradients.descent import (
    Descent,
    capped,
    centered,
    default_radius,
    flow_time,
    noisy_mean_gradient,
    reshaped_cap,
)
from discreet.solvers.second_order.coordinates import (
    LONGEST_ENERGIES,
    SHORTEST_NORM,
    MomentMechanism,
    NoisyMoments,
    Reshaping,
    SpectrumMechanism,
    in_coordinates,
    mapped,
    moment_mechanism,
    most_stretched,
    reshaped,
    singles,
)
from discreet.solvers.second_order.margins import (
    MARGIN_SIZES,
    MarginMechanism,
    across,
    calibrated,
    default_scale,
    learned,
    sum_of_rows,
)
from discreet.solvers.second_order.regression import NewtonRegressionPlan, plan_regression

#: Part of the squared Gaussian-DP parameter for two releases of the second moment.
MOMENT_SHARE = 0.1
_FIRST_SHARE = 0.3  # of that share; the second release needs less noise, because records are shorter
_SPECTRUM_SHARE = 0.01
_MARGIN_SHARE = 0.05  # for calibrating probabilities
# The default factor shrinks where noise explains more than half of the coefficients.
_SURE = 2.0
_COUNT_WEIGHTS = 0.5, 1.0, 1.5  # of the sizes of classes beside the histogram of margins
_BLURRED = 0.015  # largest noise in a class share, unless the weight is the largest
# Records over the noise in a class sum; above it, descent knows the threshold better than the sizes of the classes.
_CLEAR = 1000.0
_SINGLE_SHARE = 0.03  # where frequencies tell most of what a second would
_MANY_COLUMNS = 200  # with fewer, the second moment itself tells the directions apart
_VISIBLE = 2.0  # the mean energy of a frequency over its noise
_FEWEST_STEPS, _MOST_STEPS = 50, 100
_SIGNAL_PER_COLUMN, _COLUMNS_COUNTED = 250.0, (10, 120)  # up to which the fewest steps reach the flow time
_AVERAGED = 0.3
_CLIP = 0.9
_LEVELS = 0.7, 1.5  # directions are shrunk to a multiple, in this range, of the noise in the second moment


@dataclass(frozen=True)
class NoisyNewton:
    """Descent in coordinates chosen by a noisy second moment; every default follows from public facts.

    Parameters
    ----------
    n_iterations : number of noisy gradients; None: 50, more for several classes or much signal; for regression 20.
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
    the matrix and all iterates may be published. Fitting may copy the rows. Squared, Huber, quantile and
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
        base.require(self.name, problem, "second-order", "noisy-gd", "objective")
        budget = gaussian_mu(guarantee.epsilon, guarantee.delta)
        cap = self.cap
        if cap is None and loss.n_outputs == 1 and "likelihood" in loss.proved_for:
            cap = reshaped_cap(class_signal(problem, guarantee, loss, budget))
        field = capped(problem, guarantee, budget, cap)
        signal = class_signal(problem, guarantee, field, budget)
        shares = self._shares(problem, guarantee)
        if self.n_iterations is None:
            steps = default_steps(problem, signal * field.lipschitz)
        else:
            steps = _checks.count("n_iterations", self.n_iterations)
        clip = self.clip if self.clip is not None else default_clip(signal * field.lipschitz)
        unit = split_unit(shares.parts(problem, steps), guarantee)
        radius = self.radius
        if radius is None:  # a coefficient grows by the factor by which records shrink along it
            noise = multiplier(unit, shares.moments[-1])
            stretch = most_stretched(problem, guarantee.neighboring, noise)
            radius = stretch * default_radius(problem, signal)
        Descent(steps, 1.0, 0.0, _AVERAGED, radius)  # raises if the steps or the radius are out of range
        return NoisyNewtonPlan(problem, guarantee, field, radius, steps, signal, clip, unit, shares)

    def _shares(self, problem: Problem, guarantee: Guarantee) -> Shares:
        """Split the budget; a release that would show nothing, judging by public numbers, gets no share."""
        ordered = self.ordered_columns
        if ordered is None:
            seen = frequency_signal(problem, guarantee, _SPECTRUM_SHARE, LONGEST_ENERGIES)
            ordered = problem.n_features >= _MANY_COLUMNS and seen >= _VISIBLE
        share = self.moment_share
        if share is None:
            share = _SINGLE_SHARE if ordered else MOMENT_SHARE
        moments = (share,) if ordered else (_FIRST_SHARE * share, (1 - _FIRST_SHARE) * share)
        probabilities = problem.n_models == 1 and not problem.l2 and "likelihood" in problem.loss.proved_for
        spectrum, margins = _SPECTRUM_SHARE if ordered else 0.0, _MARGIN_SHARE if probabilities else 0.0
        weight = count_weight(problem, guarantee, margins) if probabilities else 0.0
        margins *= 1 + weight**2
        gradients = 1.0 - sum(moments) - spectrum - margins
        if not (share > 0 and gradients > 0):
            most = 1 - spectrum - margins
            raise ParameterError(
                "moment_share", f"must lie between 0 and {most:g}, got {self.moment_share!r}"
            )
        return Shares(moments, spectrum, margins, gradients, weight)


@dataclass(frozen=True)
class Shares:
    """How the squared Gaussian-DP parameter is split: second moments, frequencies, margins, and gradients.

    ``count_weight`` is that of the sizes of classes in the histogram of margins; 0 if these are not released.
    """

    moments: tuple[float, ...]
    spectrum: float
    margins: float
    gradients: float
    count_weight: float = 0.0

    def parts(self, problem: Problem, steps: int) -> list[Part]:
        """Return all releases with their sizes, in order."""
        p = problem.n_features
        made = [Part(share, p * (p + 1) // 2) for share in self.moments]
        if self.spectrum > 0:
            made.append(Part(self.spectrum, p))
        made.append(Part(self.gradients, problem.n_coefficients, steps))
        if self.margins > 0:
            made.append(Part(self.margins, MARGIN_SIZES[self.count_weight > 0]))
        return made


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
        if not self.problem.bounds.feature_norm >= SHORTEST_NORM:
            raise ParameterError("feature_bound", f"must be at least {SHORTEST_NORM:.3g} for solver 'newton'")
        _ = self.releases  # raises now if it can

    sums_only = True

    def moments(self, share: float, norm: float | None = None) -> MomentMechanism:
        """The release of the second moment of the records, or of those reshaped and clipped to ``norm``."""
        noise = multiplier(self.unit, share)
        return moment_mechanism(
            self.problem, self.record_guarantee.neighboring, noise, norm, shrunk=norm is not None
        )

    def spectrum(self, norm: float) -> SpectrumMechanism | None:
        """The release of the energies of records reshaped and clipped to ``norm``; None if it is skipped."""
        if self.shares.spectrum == 0:
            return None
        n, p, bounds = self.problem.n_samples, self.problem.n_features, self.problem.bounds
        return SpectrumMechanism(
            n, p, bounds.intercept, norm, self.record_guarantee.neighboring,
            multiplier(self.unit, self.shares.spectrum), row_rounding(p, bounds.feature_norm),
        )  # fmt: skip

    def margins(self, theta_norm: float) -> MarginMechanism:
        """The histogram of margins at released coefficients of this norm, if it has a share of the budget."""
        problem = self.problem
        return MarginMechanism(
            problem.n_samples, problem.n_features, problem.loss.n_outputs, problem.bounds.feature_norm, theta_norm,
            self.record_guarantee.neighboring, multiplier(self.unit, self.shares.margins), self.shares.count_weight,
        )  # fmt: skip

    def gradients(self, norm: float) -> GaussianMechanism:
        """The noisy gradient sum of all models at one point, for records reshaped and clipped to ``norm``."""
        problem = replace(self.problem, bounds=Bounds(norm, intercept=False))
        noise = multiplier(self.unit, self.shares.gradients / self.n_iterations)
        settings = self.field, self.radius, self.record_guarantee.neighboring, noise
        n, p, full = self.problem.n_samples, self.problem.n_features, self.problem.bounds.feature_norm
        return gradient_mechanism(
            problem,
            *settings,
            row_rounding(p, full),
            gradient_rounding(self.field, n, p, full, 1.01 * self.radius),
        )

    @cached_property
    def releases(self) -> tuple[base.PlannedRelease, ...]:
        """All releases of a run, in order, for records that are not shrunk: the noise is then largest."""
        norm = self.problem.bounds.feature_norm
        gradients = self.gradients(norm)
        moments = [self.moments(share, norm) for share in self.shares.moments]
        made = [base.PlannedRelease(one.gaussian, "second moment") for one in moments]
        if (spectrum := self.spectrum(norm)) is not None:
            made.append(base.PlannedRelease(spectrum.gaussian, "energies of frequencies"))
        made.append(base.PlannedRelease(gradients, "gradients", self.n_iterations))
        if self.shares.margins > 0:
            made.append(base.PlannedRelease(self.margins(self.radius).gaussian, "margins"))
        return tuple(made)

    @property
    def how(self) -> str:
        """A description of how noise is added."""
        also = ", twice" if self.shares.spectrum == 0 else ", on energies of frequencies"
        margins = "" if self.shares.margins == 0 else ", and on a histogram of margins"
        gradients = f"on {self.n_iterations} gradients of reshaped records"
        return f"Gaussian noise on the second moment{also}, {gradients}{margins}"

    proof = (
        "sensitivity of second moments (Theorem 4), of energies (Theorem 10), of gradients on a ball (Theorems 1 and "
        "2) and of histograms of margins (Theorem 11), exact composition of Gaussian releases; "
        "docs/proofs/gradient-methods.md"
    )

    @property
    def numbers(self) -> Mapping[str, float | str]:
        """The public numbers of the run, with the largest possible noise (records that are not shrunk)."""
        mechanisms = [cast(GaussianMechanism, release.mechanism) for release in self.releases]
        n_moments, noise = len(self.shares.moments), [one.stddev for one in mechanisms]
        place = n_moments + int(self.shares.spectrum > 0)  # of the gradients
        return {
            **({"energy noise stddev (sum scale)": noise[n_moments]} if self.shares.spectrum > 0 else {}),
            **{f"second moment noise stddev, look {k + 1} (sum scale)": noise[k] for k in range(n_moments)},
            "largest gradient noise stddev (sum scale)": noise[place],
            "largest gradient sensitivity": mechanisms[place].sensitivity.value,
            "noisy steps": float(self.n_iterations),
            **({"margin noise stddev": noise[-1]} if self.shares.margins > 0 else {}),
            "radius": self.radius,
            "derivative bound": self.field.lipschitz,
            "sampler": f"exact discrete Gaussian, {SOURCE}",
        }

    def run(self, records: list[Records], entropy: Entropy, progress: Progress | None = None) -> base.Release:
        """Release the second moment, reshape the records, then descend along noisy gradients."""
        problem = self.problem
        first_share, *later_shares = self.shares.moments
        rows = records[0] if problem.n_features >= _MANY_COLUMNS else singles(records[0], problem.n_samples)
        seen = self.moments(first_share).release(rows, entropy)
        shape, look = self.reshaping(seen), (seen.second, np.eye(problem.n_features))
        first, images_of = in_coordinates(rows, shape, problem.n_samples)
        for share in later_shares:
            noisy = self.moments(share, shape.norm).release(first, entropy, images_of)
            look = noisy.second, shape.matrix
            shape = shape.then(self.reshaping(noisy, shape.norm))
            first, images_of = in_coordinates(rows, shape, problem.n_samples)
        if (spectrum := self.spectrum(shape.norm)) is not None:
            level = frequency_level(self.signal * self.field.lipschitz)
            images = first if images_of is None else mapped(rows, shape.matrix, shape.norm)
            narrower = shape.within(spectrum.release(images, level, entropy), spectrum.basis)
            if narrower is not shape:
                shape = narrower
                first, images_of = in_coordinates(rows, shape, problem.n_samples, over=images)
        parts = [first, *(first.with_labels(part.labels) for part in records[1:])]
        # The planned steps, and the flow time of plain descent at the reduced noise.
        slower = replace(problem, n_features=shape.n_directions)
        time = flow_time(slower, self.signal * problem.bounds.feature_norm / shape.norm)
        stretch = float(np.linalg.norm(shape.matrix, 2)) if problem.l2 else 0.0
        curvature = shape.curvature + (problem.l2 * stretch**2 if problem.l2 else 0.0)
        descent = Descent.lasting(time, curvature, self.n_iterations, _AVERAGED, self.radius)
        ridge = problem.l2 * shape.matrix.T @ shape.matrix if problem.l2 else None
        noisy_gradient = noisy_mean_gradient(
            parts, self.field, self.gradients(shape.norm), entropy, problem.n_samples, ridge, images_of
        )
        accumulated = descent.accumulated()
        start = np.zeros((problem.n_models, *problem.shape))
        reached = descent.run(start, noisy_gradient, progress)
        theta = np.stack([shape.matrix @ one for one in reached])
        theta = centered(theta) if problem.loss.n_outputs > 1 else theta
        if self.shares.margins > 0:
            stddev = self.gradients(shape.norm).noise.effective_stddev / problem.n_samples
            found = reached[0]
            if self.shares.count_weight > 0:
                found = across(found, shape.matrix.T @ sum_of_rows(*look))
            share = learned(found, stddev**2 * accumulated)
            default = min(1.0, _SURE * share) * default_scale(self.field, self.signal)
            theta[0] = calibrated(problem, self.margins, rows, theta[0], default, seen, look, entropy)
        return base.Release(theta, entropy.secure)

    def reshaping(self, noisy: NoisyMoments, bound: float | None = None) -> Reshaping:
        """Choose coordinates from a noisy second moment of records of norm at most ``bound``."""
        bound = self.problem.bounds.feature_norm if bound is None else bound
        level = default_level(self.signal * self.field.lipschitz)
        return reshaped(noisy, self.problem.n_samples, bound, level, self.clip, self.field.typical_curvature)


def count_weight(problem: Problem, guarantee: Guarantee, share: float) -> float:
    """Return the least weight with which the sizes of two classes rise above the noise of a histogram of margins.

    ``share`` is the part of the budget of a histogram without them. With little noise, several classes or no intercept
    it is 0: sizes are not released.
    """
    if not problem.bounds.intercept or problem.loss.n_outputs > 1 or sum_signal(problem, guarantee) >= _CLEAR:
        return 0.0
    budget = gaussian_mu(guarantee.epsilon, guarantee.delta) * math.sqrt(share)
    noise = math.sqrt(guarantee.neighboring.contributions / 2) / (budget * problem.n_samples)
    return next((w for w in _COUNT_WEIGHTS if noise <= _BLURRED * w), _COUNT_WEIGHTS[-1])


def default_steps(problem: Problem, signal: float) -> int:
    """Return the number of noisy gradients: enough for the flow time, which grows with the signal, by stable steps.

    More of them would cost time and change neither noise nor bias (`Descent.lasting`). Records of few columns need more
    of them, because all their directions are flat; several classes have longer flow times.
    """
    if problem.loss.n_outputs > 1:
        return _MOST_STEPS
    fewest, most = _COLUMNS_COUNTED
    enough = _SIGNAL_PER_COLUMN * min(most, max(fewest, problem.n_features))
    return round(min(_MOST_STEPS, max(_FEWEST_STEPS, _FEWEST_STEPS * math.sqrt(signal / enough))))


def default_clip(signal: float) -> float:
    """Return the clipping norm: it clips most records while noise dominates, and none as noise vanishes."""
    return float(_CLIP * max(1.0, signal / 1500) ** 0.25)


def default_level(signal: float) -> float:
    """Return the level to which directions are shrunk, in units of the matrix noise; it decreases with the signal."""
    least, most = _LEVELS
    return min(most, max(least, most * math.sqrt(1000 / signal)))


def frequency_level(signal: float) -> float:
    """Return the least energy of a kept frequency, over the mean: above the squared gradient noise."""
    return min(1.0, (1000 / signal) ** 2)


base.register(NoisyNewton.name, NoisyNewton)
