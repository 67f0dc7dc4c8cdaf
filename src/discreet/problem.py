"""The learning problem in public numbers, and how far its signal rises above the noise that a guarantee needs.

A problem never stores a row, label or seed. All ratios of signal to noise are on this page. They are computed as if the
budget were one Gaussian release of Gaussian-DP parameter mu, which is accurate enough to choose a solver, a number of
steps or a cap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from discreet.losses import Loss
from discreet.privacy.accounting.gaussian import gaussian_mu
from discreet.privacy.guarantee import SLACK, Guarantee, Neighboring, Sensitivity, sum_sensitivity
from discreet.records.bounds import Bounds
from discreet.sets import Geometry


@dataclass(frozen=True)
class Problem:
    """Minimize the mean loss of a linear model plus (l2 / 2)|theta|^2.

    Attributes
    ----------
    loss : loss of (label, raw prediction), with its constants.
    bounds : bounds on every row, enforced by clipping.
    n_samples : public number of records, or a declared upper bound if the number is private.
    n_features : number of coefficients per output, including the intercept.
    n_models : number of models fitted on the same rows (one-vs-rest); otherwise 1.
    l2 : ridge coefficient on the mean scale; None lets the solver choose.
    geometry : constraint set of the coefficients; None for no constraint.
    label_bound : largest absolute regression target, enforced by clipping; None for classification.
    sparse : whether rows are stored in a sparse matrix. The storage format is public; the values are not.
    """

    loss: Loss
    bounds: Bounds
    n_samples: int
    n_features: int
    n_models: int = 1
    l2: float | None = None
    geometry: Geometry | None = None
    label_bound: float | None = None
    sparse: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the coefficients of one model."""
        return (self.n_features,) if self.loss.n_outputs == 1 else (self.n_features, self.loss.n_outputs)

    @property
    def n_coefficients(self) -> int:
        """Number of released numbers."""
        return math.prod(self.shape) * self.n_models

    def gradient_sensitivity(self, neighboring: Neighboring) -> Sensitivity:
        """L2 sensitivity of one model's summed gradient at a fixed point."""
        return sum_sensitivity(self.loss.lipschitz * self.bounds.feature_norm, neighboring)


def gradient_signal(problem: Problem, guarantee: Guarantee) -> float:
    """Return n_samples over the norm of the Gaussian noise that hides a gradient of norm 1.

    >>> from discreet.losses import Logistic
    >>> many = Problem(Logistic(), Bounds(), n_samples=100_000, n_features=20)
    >>> round(gradient_signal(many, Guarantee(1.0, 1e-10)))
    1905
    """
    if guarantee.delta == 0:
        return math.inf
    multiplier = guarantee.neighboring.contributions / gaussian_mu(guarantee.epsilon, guarantee.delta)
    return problem.n_samples / (multiplier * math.sqrt(problem.n_coefficients))


def noise_over_signal(problem: Problem, guarantee: Guarantee) -> float:
    """Return the norm of the noise in one release of the mean gradient, over the largest possible mean gradient.

    For Gaussian noise c sqrt(d) / (mu n): d released numbers, c = 2 under replace-one and 1 otherwise, mu the
    Gaussian-DP parameter of (epsilon, delta). For delta = 0 the noise is longer: c d / (epsilon n).
    """
    if guarantee.delta == 0:
        moved = guarantee.neighboring.contributions / problem.n_samples
        return moved * problem.n_coefficients / guarantee.epsilon
    return 1 / gradient_signal(problem, guarantee)


def class_signal(problem: Problem, guarantee: Guarantee, field: Loss, budget: float) -> float:
    """Return records per class over the noise of one release with parameter ``budget``, in derivative bounds."""
    contributions = guarantee.neighboring.contributions * math.sqrt(problem.n_models)
    per_class = problem.n_samples / max(1, field.n_outputs)
    return float(per_class * budget / (contributions * field.lipschitz))


def sum_signal(problem: Problem, guarantee: Guarantee) -> float:
    """Return n_samples over the noise in a class sum of rows of norm 1."""
    noise = math.sqrt(guarantee.neighboring.contributions) / gaussian_mu(guarantee.epsilon, guarantee.delta)
    return problem.n_samples / noise


def choice_signal(problem: Problem, guarantee: Guarantee, n_choices: int) -> float:
    """Return n_samples over the typical error of the best of so many sums of entries, chosen with the whole budget.

    >>> from discreet.losses import Logistic
    >>> many = Problem(Logistic(), Bounds(), n_samples=100_000, n_features=20)
    >>> round(choice_signal(many, Guarantee(1.0, 1e-10), 40))
    2310
    """
    models = problem.n_models
    if guarantee.delta == 0:
        budget = guarantee.epsilon / (2 * models)
    else:
        budget = gaussian_mu(guarantee.epsilon, guarantee.delta) / math.sqrt(models)
    return problem.n_samples * budget / (guarantee.neighboring.contributions * math.log(n_choices))


def moment_signal(problem: Problem, guarantee: Guarantee, share: float) -> float:
    """Return the second moment of records that share one direction, over the largest eigenvalue of its noise.

    ``share`` is the part of the squared parameter that is spent on it.
    """
    budget = gaussian_mu(guarantee.epsilon, guarantee.delta) * math.sqrt(share)
    stddev = math.sqrt(guarantee.neighboring.contributions) * SLACK / budget
    return problem.n_samples / (stddev * math.sqrt(2 * problem.n_features))


def frequency_signal(problem: Problem, guarantee: Guarantee, share: float, longest: float) -> float:
    """Return the mean energy of a frequency over its noise, for a ``share`` as in `moment_signal`.

    ``longest`` bounds the norm of one record's energies over its squared norm.
    """
    multiplier = 1 / (gaussian_mu(guarantee.epsilon, guarantee.delta) * math.sqrt(share))
    apart = math.sqrt(guarantee.neighboring.contributions) * longest  # energies are not negative
    return problem.n_samples / (problem.n_features * apart * multiplier)


def record_signal(problem: Problem, guarantee: Guarantee) -> float:
    """Return n_samples over the noise that hides one record."""
    budget = gaussian_mu(guarantee.epsilon, guarantee.delta)
    return problem.n_samples * budget / guarantee.neighboring.contributions
