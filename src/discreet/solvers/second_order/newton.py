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
from scipy.special import log_expit, logsumexp

from discreet import _checks
from discreet._checks import ParameterError
from discreet._typing import Array, Mask, Progress
from discreet.losses import Loss
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.samplers.entropy import SOURCE, Entropy
from discreet.privacy.accounting.calibration import Part, multiplier, split_unit
from discreet.privacy.accounting.gaussian import gaussian_mu
from discreet.privacy.events import Event
from discreet.privacy.guarantee import SLACK, Guarantee, Neighboring, Sensitivity, acute_sum_sensitivity
from discreet.problem import Problem, class_signal, frequency_signal
from discreet.records.base import Records
from discreet.records.bounds import Bounds, gamma, gradient_rounding, summation_rounding
from discreet.records.clipped_rows import of_predictions
from discreet.solvers import base
from discreet.solvers.base import gradient_mechanism
from discreet.solvers.gradients.descent import (
    Descent,
    capped,
    centered,
    default_radius,
    flow_time,
    learned,
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
    row_error,
    shrunk_moment_mechanism,
    singles,
)
from discreet.solvers.second_order.regression import NewtonRegressionPlan, plan_regression

#: Part of the squared Gaussian-DP parameter for two releases of the second moment.
MOMENT_SHARE = 0.1
_FIRST_SHARE = 0.3  # of that share; the second release needs less noise, because records are shorter
_SPECTRUM_SHARE = 0.01
_MARGIN_SHARE = 0.05  # for calibrating probabilities
_SINGLE_SHARE = 0.03  # where frequencies tell most of what a second would
_MANY_COLUMNS = 200  # with fewer, the second moment itself tells the directions apart
_VISIBLE = 2.0  # the mean energy of a frequency over its noise
_FEWEST_STEPS, _MOST_STEPS = 50, 100
_SIGNAL_PER_COLUMN, _COLUMNS_COUNTED = 250.0, (10, 120)  # up to which the fewest steps reach the flow time
_AVERAGED = 0.3
_CLIP = 0.9
_LEVELS = 0.7, 1.5  # directions are shrunk to a multiple, in this range, of the noise in the second moment

_POSITIVE = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 9.0, 14.0, 20.0)
#: Margins at which records are counted; a record between two knots counts in part for both.
KNOTS = np.array([*(-knot for knot in reversed(_POSITIVE)), 0.0, *_POSITIVE])
_ROWS = 4096  # records per block
_SCALES = np.geomspace(0.03, 1.5, 80)  # factors that are compared; neighbors differ by 5%
# With several classes descent ends early, long before coefficients have the size that probabilities ask for.
_SCALES_OF_CLASSES = np.geomspace(0.1, 12.0, 98)
_OTHERS = 0.4  # variance of the other classes over that of all, of which the true one stands out; measured on softmaxes
# The counts that are expected before the release: their standard deviation over their mean, and the least mean square
# of a margin.
_UNSURE, _LEAST_SQUARE = 0.5, 2.0
_STEEPEST = 100.0
# The default factor shrinks where noise explains more than half of the coefficients.
_SURE = 2.0
# The default factor: measured on Adult, MAGIC and Electricity.
_SMALLEST_DEFAULT, _OVER_CAP, _BLURRED = 0.6, 1.28, 18.0


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
        wanted = _checks.count_or_none("n_iterations", self.n_iterations)
        shares = self._shares(problem, guarantee)
        budget = gaussian_mu(guarantee.epsilon, guarantee.delta)
        cap = self.cap
        if cap is None and loss.n_outputs == 1 and "likelihood" in loss.proved_for:
            cap = reshaped_cap(class_signal(problem, guarantee, loss, budget))
        field = capped(problem, guarantee, budget, cap)
        signal = class_signal(problem, guarantee, field, budget)
        steps = wanted or default_steps(problem, signal * field.lipschitz)
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
        gradients = 1.0 - sum(moments) - spectrum - margins
        if not (share > 0 and gradients > 0):
            most = 1 - spectrum - margins
            raise ParameterError(
                "moment_share", f"must lie between 0 and {most:g}, got {self.moment_share!r}"
            )
        return Shares(moments, spectrum, margins, gradients)


@dataclass(frozen=True)
class Shares:
    """How the squared Gaussian-DP parameter is split: second moments, frequencies, margins, and gradients."""

    moments: tuple[float, ...]
    spectrum: float
    margins: float
    gradients: float

    def parts(self, problem: Problem, steps: int) -> list[Part]:
        """Return all releases with their sizes, in order."""
        p = problem.n_features
        made = [Part(share, p * (p + 1) // 2) for share in self.moments]
        if self.spectrum > 0:
            made.append(Part(self.spectrum, p))
        made.append(Part(self.gradients, problem.n_coefficients, steps))
        return [*made, Part(self.margins, len(KNOTS))] if self.margins > 0 else made


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
        settings = self.problem, self.record_guarantee.neighboring, multiplier(self.unit, share)
        return moment_mechanism(*settings) if norm is None else shrunk_moment_mechanism(*settings, norm)

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

    def gradients(self, norm: float) -> GaussianMechanism:
        """The noisy gradient sum of all models at one point, for records reshaped and clipped to ``norm``."""
        problem = replace(self.problem, bounds=Bounds(norm, intercept=False))
        noise = multiplier(self.unit, self.shares.gradients / self.n_iterations)
        settings = self.field, self.radius, self.record_guarantee.neighboring, noise
        full = self.problem.n_samples, self.problem.n_features, self.problem.bounds.feature_norm
        return gradient_mechanism(
            problem,
            *settings,
            row_error(self.problem),
            gradient_rounding(self.field, *full, 1.01 * self.radius),
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
        if (margins := self.margins(self.radius)) is not None:
            made.append(base.PlannedRelease(margins.gaussian, "margins"))
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
        rows = records[0] if problem.n_features >= _MANY_COLUMNS else singles(records[0])
        seen = self.moments(first_share).release(rows, entropy)
        shape = self.reshaping(seen)
        first, images_of = in_coordinates(rows, shape)
        for share in later_shares:
            noisy = self.moments(share, shape.norm).release(first, entropy, images_of)
            shape = shape.then(self.reshaping(noisy, shape.norm))
            first, images_of = in_coordinates(rows, shape)
        if (spectrum := self.spectrum(shape.norm)) is not None:
            level = frequency_level(self.signal * self.field.lipschitz)
            images = first if images_of is None else mapped(rows, shape.matrix, shape.norm)
            narrower = shape.within(spectrum.release(images, level, entropy), spectrum.basis)
            if narrower is not shape:
                shape = narrower
                first, images_of = in_coordinates(rows, shape, over=images)
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
        start = np.zeros((problem.n_models, *problem.shape))
        reached = descent.run(start, noisy_gradient, progress)
        theta = np.stack([shape.matrix @ one for one in reached])
        theta = centered(theta) if problem.loss.n_outputs > 1 else theta
        if (margins := self.margins(float(np.linalg.norm(theta)))) is not None:
            stddev = self.gradients(shape.norm).noise.effective_stddev / problem.n_samples
            share = learned(reached[0], stddev**2 * descent.accumulated())
            counts = margins.release(rows, theta[0], entropy)
            default = min(1.0, _SURE * share) * default_scale(self.field, self.signal)
            outputs = problem.loss.n_outputs
            spread = float(np.sum(theta[0] * (seen.second @ theta[0]))) / (problem.n_samples * outputs)
            noise = margins.gaussian.stddev
            scale = calibrated_scale(counts, noise, default, problem.n_samples, outputs, max(spread, 0.0))
            theta = theta * scale
        return base.Release(theta, entropy.secure)

    def reshaping(self, noisy: NoisyMoments, bound: float | None = None) -> Reshaping:
        """Choose coordinates from a noisy second moment of records of norm at most ``bound``."""
        bound = self.problem.bounds.feature_norm if bound is None else bound
        level = default_level(self.signal * self.field.lipschitz)
        return reshaped(noisy, self.problem.n_samples, bound, level, self.clip, self.field.typical_curvature)


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


# -- probabilities ---------------------------------------------------------------------------------------------
#
# The margin of a record is the log-odds that a model gives its true label. Capping derivatives makes fitted margins too
# large by a factor that depends on how noisy the labels are. The factor is one number, so a histogram of the margins
# with a twentieth of the budget is enough to estimate it. Rescaling changes probabilities, but no predicted label.
# Proof: docs/proofs/gradient-methods.md, section 11.


@dataclass(frozen=True)
class MarginMechanism:
    """Noisy histogram of the margins of all records under released coefficients.

    Every record adds nonnegative parts that sum to 1 to two neighboring knots; null records add nothing.

    Parameters
    ----------
    n_samples, n_features, n_outputs : public sizes; one output for two classes, else one per class.
    feature_norm : bound on the norm of a record.
    theta_norm : norm of the released coefficients, all outputs together.
    neighboring : the relation.
    noise_multiplier : standard deviation of the noise over the sensitivity.

    Privacy
    -------
    Event: one ``Gaussian(noise_multiplier)`` on ``len(KNOTS)`` numbers.
    """

    n_samples: int
    n_features: int
    n_outputs: int
    feature_norm: float
    theta_norm: float
    neighboring: Neighboring
    noise_multiplier: float

    @cached_property
    def gaussian(self) -> GaussianMechanism:
        """The mechanism behind the release; its sensitivity covers the rounding of margins and of the sum."""
        n, outputs = self.n_samples, self.n_outputs
        largest = self.feature_norm * self.theta_norm + math.log(outputs) + 1.0
        margin = 3 * gamma(self.n_features + outputs + 64) * largest
        parts = math.sqrt(2) * (margin / float(np.diff(KNOTS).min()) + gamma(8))
        rounding = n * parts + summation_rounding(n, 1.0)
        exact = acute_sum_sensitivity(1.0, self.neighboring).value  # parts are not negative
        return GaussianMechanism(
            Sensitivity((exact + 2 * rounding) * SLACK), self.noise_multiplier, len(KNOTS)
        )

    @property
    def event(self) -> Event:
        """What one release costs."""
        return self.gaussian.event

    def release(self, records: Records, theta: Array, entropy: Entropy) -> Array:
        """The noisy histogram of margins at theta, which has one column per output of a softmax."""
        return self.gaussian.release(records.sum_rows(of_predictions, histogram, theta), entropy)


def histogram(raw: Array, labels: Array, used: Mask) -> Array:
    """The parts that the used records add to the knots, from their raw predictions and labels."""
    counts = np.zeros(len(KNOTS))
    for first in range(0, len(raw), _ROWS):
        rows = slice(first, first + _ROWS)
        margins = _margins(raw[rows][used[rows]], labels[rows][used[rows]])
        above = np.clip(np.searchsorted(KNOTS, margins, side="right"), 1, len(KNOTS) - 1)
        share = np.clip((margins - KNOTS[above - 1]) / (KNOTS[above] - KNOTS[above - 1]), 0.0, 1.0)
        counts += np.bincount(above - 1, 1.0 - share, minlength=len(KNOTS))
        counts += np.bincount(above, share, minlength=len(KNOTS))
    return counts


def _margins(raw: Array, labels: Array) -> Array:
    """The log-odds of the true label, for labels -1 and 1; for codes of a softmax, beyond those of equal chances."""
    if raw.ndim == 1:
        return np.asarray(labels * raw)
    rows = np.arange(len(raw))
    codes = labels.astype(np.int64)
    others = raw.copy()
    others[rows, codes] = -np.inf
    return np.asarray(raw[rows, codes] - logsumexp(others, axis=1) + _equal_odds(raw.shape[1]))


def _equal_odds(n_outputs: int) -> float:
    """The log-odds against a class if all of them are equally likely; one output is for two classes."""
    return math.log(max(n_outputs - 1, 1))


def default_scale(field: Loss, signal: float) -> float:
    """The factor to use where the histogram is mostly noise.

    The smaller the cap on derivatives, the larger the margins of noisy labels. Noise in the coefficients of two classes
    makes margins larger still; ``signal`` is that over noise, in units of the cap.
    """
    capped = min(1.0, max(_SMALLEST_DEFAULT, _OVER_CAP * field.lipschitz))
    records = signal * field.lipschitz
    return float(capped * records / (records + _BLURRED)) if field.n_outputs == 1 else float(capped)


def calibrated_scale(
    noisy: Array, stddev: float, default: float, n_samples: int, n_outputs: int = 1, spread: float = 0.0
) -> float:
    """Return the factor with the smallest expected log loss, given a noisy histogram of margins.

    Before the release the counts at the knots have a mean, with which ``default`` is the best factor, and a variance
    (`_expected_counts`). Noise hides most of what a histogram tells about knots that few records can reach; the
    posterior mean of the counts ignores it there. ``spread`` is the mean variance of a record's raw predictions over
    the classes, for two classes the mean square of its margin.

    >>> exact = np.zeros(len(KNOTS))
    >>> exact[np.searchsorted(KNOTS, [-2.0, 2.0])] = 2000.0, 6000.0  # log-odds of 2 that are right in 3 cases of 4
    >>> abs(calibrated_scale(exact, 1.0, 0.7, 8000) / (math.log(3) / 2) - 1) < 0.05
    True
    >>> abs(calibrated_scale(exact, 1e6, 0.7, 8000) / 0.7 - 1) < 0.05
    True
    """
    scales = _SCALES if n_outputs == 1 else _SCALES_OF_CLASSES
    means, stddevs = _expected_counts(default, n_samples, n_outputs, spread)
    trusted = np.square(stddevs) / (np.square(stddevs) + stddev**2)
    counts = means + trusted * (noisy - means)
    return float(scales[int(np.argmax(_log_chances(scales, n_outputs, spread) @ counts))])


def _expected_counts(default: float, n_samples: int, n_outputs: int, spread: float) -> tuple[Array, Array]:
    """Return mean and standard deviation of the counts before they are released.

    Margins are spread like a heavy-tailed law around 0. Exponential tilting moves its mass to where the log loss is
    smallest at the factor ``default``: among all laws with that property this one is closest to the first.
    """
    tau = math.sqrt(max(spread, _LEAST_SQUARE))
    masses = np.gradient(KNOTS) / (1 + np.square(KNOTS / tau)) ** 2
    masses /= masses.sum()
    step = 1e-4 * default
    near = _log_chances(np.array([default - step, default + step]), n_outputs, spread)
    slopes = near[1] - near[0]
    slopes /= max(float(np.abs(slopes).max()), 1e-300)
    low, high = -_STEEPEST, _STEEPEST
    for _ in range(60):  # the mean slope grows with the tilt
        tilt = (low + high) / 2
        tilted = masses * np.exp(tilt * slopes)
        low, high = (low, tilt) if tilted @ slopes > 0 else (tilt, high)
    return n_samples * tilted / tilted.sum(), _UNSURE * n_samples * masses


def _log_chances(scales: Array, n_outputs: int, spread: float) -> Array:
    """Log-probabilities of true labels at the knots, after the coefficients were multiplied by each of the scales.

    The logarithm of the mean of exp(s z) over K other classes is s^2 v / 2 for normal z of variance v, until the
    largest z takes over at s^2 = 2 log K / v: then it is s sqrt(2 v log K) - log K.
    """
    level, spread = _equal_odds(n_outputs), _OTHERS * spread

    def crowd(scale: Array) -> Array:
        taken_over = scale * math.sqrt(2 * spread * level) - level
        return np.asarray(np.where(scale**2 * spread < 2 * level, scale**2 * spread / 2, taken_over))

    alone = KNOTS + crowd(np.ones(1))  # of the true label above the mean of the others
    return np.asarray(log_expit(scales[:, None] * alone - crowd(scales[:, None]) - level))


base.register(NoisyNewton.name, NoisyNewton)
