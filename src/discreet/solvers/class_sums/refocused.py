"""Class sums of wide sparse rows, released twice, and a sum of the model's residuals.

A first release of the class sums shows how large columns are and how they lean towards a class. Rows are then
weighted to emphasize the columns that rise above the noise, and summed again. With enough records, the residuals of
the model are summed once more. Leans are posterior means. The model is linear: directions of leans, with slopes and a
threshold from a short noisy descent. Proofs: docs/proofs/text.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from discreet import _checks
from discreet._checks import ParameterError, Setting
from discreet._typing import Array, Progress
from discreet.losses import Linear, Loss
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.samplers.entropy import SOURCE, Entropy
from discreet.privacy.accounting.calibration import Part, multiplier, split_unit
from discreet.privacy.guarantee import SLACK, Guarantee, Sensitivity
from discreet.problem import Problem, sum_signal
from discreet.records.base import Records
from discreet.records.bounds import (
    UNIT_ROUNDOFF,
    Bounds,
    BoxBounds,
    gamma,
    gradient_rounding,
    summation_rounding,
)
from discreet.solvers import base
from discreet.solvers.base import gradient_mechanism
from discreet.solvers.class_sums.column_evidence import ColumnEvidence
from discreet.solvers.class_sums.mechanism import (
    ClassSumsMechanism,
    NoisyClassSums,
    capped_residuals,
    clipped_scores,
    length_of,
    log_lengths,
    row_error,
    split_sums,
)
from discreet.solvers.gradients.descent import capped, centered, noisy_sum, project
from discreet.solvers.second_order.coordinates import mapped

CAP = 0.3  # bound on the residual of one record
_STEPS = 40
_SPREAD = 3.0  # standard deviations of a score that count as 1 in the descent
_LONGEST = 3.0  # standard deviations to which scores are clipped before their mean is released
_CENTER = 0.2  # of the descent's share, for the mean score
_LENGTH = 0.005  # of the budget, for a typical length of rows
_RADIUS = 50.0  # of the ball that contains slopes and thresholds
_STEEPNESS = 1.5  # initial slope, per class
_LEAST_SLOPE = 0.1
_ONCE, _TWICE = 150.0, 2000.0  # signals below which sums are released once, or residuals are not summed
_DIFFERENCE = 0.8  # of a record's squared norm, in the difference of two even classes
_MOST_COLUMNS = 2**30
_SECOND = "sums of the classes in weighted columns"


@dataclass(frozen=True)
class Shares:
    """Shares of the squared Gaussian-DP parameter, in order; 0 for a release that is skipped."""

    look: float
    second: float
    slopes: float
    residuals: float = 0.0
    both: float = 0.0

    @property
    def total(self) -> float:
        """Sum of the shares, without that of the lengths."""
        return self.look + self.second + self.slopes + self.residuals + self.both


def shares_of(problem: Problem, guarantee: Guarantee, selects: bool) -> Shares:
    """Choose the shares by the public rule: more signal allows more releases."""
    if n_classes(problem) > 2:
        return Shares(0.4, 0.4, 0.2) if selects else Shares(0.1, 0.65, 0.25)
    if selects:
        return Shares(0.45, 0.48, 0.07)
    seen = sum_signal(problem, guarantee)
    if seen < _ONCE:
        return Shares(0.93, 0.0, 0.07)
    if seen < _TWICE:
        return Shares(0.1, 0.83, 0.07)
    return Shares(0.1, 0.4, 0.03, 0.4, 0.07)


def n_classes(problem: Problem) -> int:
    """Return the number of classes."""
    return max(2, problem.loss.n_outputs)


@dataclass(frozen=True)
class RefocusedSums:
    """A linear classifier for wide sparse rows from class sums that are released, refocused and corrected.

    Parameters
    ----------
    max_columns : maximum number of columns in the model; None for all that rise above the noise. With a number, the
        second release sums only the best columns of the first: select and refit.

    Rows are scaled to norm 1 for the sums, so no bound on their length is needed.

    Privacy
    -------
    (epsilon, delta) with delta > 0, every relation, logistic, softmax and Huber-SVM losses. All sums and all iterates
    may be published. Fitting makes a copy of the rows: sparse if they are sparse, otherwise dense and twice as wide.

    References
    ----------
    Robbins (1956) for empirical Bayes.
    """

    name: ClassVar[str] = "refocused-sums"
    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]] = "softmax"
    max_columns: int | None = None

    def plan(self, problem: Problem, guarantee: Guarantee) -> RefocusedPlan:
        """Split the budget by the public rule and calibrate all releases together."""
        base.refuse_pure(self.name, guarantee)
        base.refuse_geometry(self.name, problem)
        base.require(self.name, problem, "classes", "objective")
        most = _checks.count_or_none("max_columns", self.max_columns)
        if problem.n_models > 1:
            raise ValueError(
                f"solver {self.name!r} fits all classes together: use multi_class='softmax', or 'noisy-gd'"
            )
        if problem.l2 is not None:
            raise ParameterError("l2", f"must be None with solver {self.name!r}", Setting("l2", None))
        if problem.n_features > _MOST_COLUMNS:
            raise ValueError(f"solver {self.name!r} needs fewer than 2**30 columns: use 'noisy-gd'")
        shares = shares_of(problem, guarantee, most is not None)
        bill = _bill(problem, guarantee, shares)
        unit = split_unit([Part(line.share, line.size, line.times) for line in bill], guarantee)
        return RefocusedPlan(problem, guarantee, unit, shares, most)


@dataclass(frozen=True)
class _Line:
    """One kind of release: its share of the budget, its size, and how often it is made."""

    name: str
    share: float
    size: int
    mechanism: Callable[[RefocusedPlan], GaussianMechanism]
    times: int = 1
    sums_rows: bool = False


def _bill(problem: Problem, guarantee: Guarantee, shares: Shares) -> list[_Line]:
    """Return all releases, in order."""
    classes, columns = n_classes(problem), _n_columns(problem)
    left = 1 - _LENGTH
    sums = classes * (2 * columns + 1)
    directions = 1 if classes == 2 else classes

    def class_sums(name: str, share: float) -> _Line:
        return _Line(name, left * share, sums, lambda plan: plan.sums(name).gaussian, sums_rows=True)

    def slopes(name: str, share: float, several: int) -> list[_Line]:
        size = (several + int(problem.bounds.intercept)) * problem.loss.n_outputs
        means, along = f"means of {name}", f"gradients along {name}"
        return [
            _Line(means, left * share * _CENTER, several, lambda plan: plan.means(means, several, 1.0)),
            _Line(
                *(along, left * share * (1 - _CENTER), size),
                lambda plan: plan.gradients(along, several, 1.0),
                times=_STEPS,
            ),
        ]

    made = [
        _Line("lengths of rows", _LENGTH, 1, lambda plan: plan.lengths()),
        class_sums("sums of the classes", shares.look),
    ]
    if shares.second and total_and_difference(guarantee, classes):
        made.append(
            _Line(
                *(_SECOND, left * shares.second, 4 * columns, lambda plan: plan.total_and_difference()),
                sums_rows=True,
            )
        )
    elif shares.second:
        made.append(class_sums(_SECOND, shares.second))
    made += slopes("leans", shares.slopes, directions)
    if shares.residuals:
        share, residuals = left * shares.residuals, "sums of residuals"
        made.append(
            _Line(residuals, share, columns, lambda plan: plan.weighted_sums(residuals, 1.0), sums_rows=True)
        )
        made += slopes("leans and residuals", shares.both, 2)
    return made


def _n_columns(problem: Problem) -> int:
    return problem.n_features - int(problem.bounds.intercept)


def total_and_difference(guarantee: Guarantee, n_classes: int) -> bool:
    """Whether two classes are summed as a total and a difference: if one record adds to them, and never subtracts."""
    return n_classes == 2 and guarantee.neighboring.contributions == 1


def difference_weight(shares: Array) -> float:
    """Return the weight s of the difference of two classes; that of the total is c, c^2 + s^2 = 1.

    Shares are released. For even classes most of a record goes to the difference: totals only tell how large columns
    are. Beyond shares of 0.2 and 0.8 both weights are equal, as in the sums of the classes.
    """
    return math.sqrt(max(0.5, _DIFFERENCE / 2 / float(shares.max())))


@dataclass(frozen=True)
class RefocusedPlan(base.Plan):
    """A calibrated run of refocused sums.

    Attributes
    ----------
    unit : noise multiplier of a single release with the whole budget.
    shares : the share of every release.
    max_columns : maximum number of columns in the model.
    """

    unit: float
    shares: Shares
    max_columns: int | None

    sums_only = True

    def __post_init__(self) -> None:
        _ = self.releases  # raise now, before any charge, if anything can fail

    # -- public numbers ------------------------------------------------------------------------------------

    @property
    def _bill(self) -> list[_Line]:
        return _bill(self.problem, self.record_guarantee, self.shares)

    @property
    def _noises(self) -> Mapping[str, float]:
        """The noise multiplier of every release, by name."""
        return {line.name: multiplier(self.unit, line.share / line.times) for line in self._bill}

    @property
    def _norm(self) -> float:
        """The norm to which other solvers clip rows."""
        return self.problem.bounds.feature_norm

    def lengths(self) -> GaussianMechanism:
        """The sum of the logarithms of row lengths, each within [-1, 1]."""
        n = self.problem.n_samples
        value = self.record_guarantee.neighboring.contributions + 2 * n * gamma(_n_columns(self.problem) + 64)
        value += 2 * summation_rounding(n, 1.0)
        return GaussianMechanism(Sensitivity(value * SLACK), self._noises["lengths of rows"], 1)

    def sums(self, name: str) -> ClassSumsMechanism:
        """The sums of all classes, for rows of norm 1."""
        columns = _n_columns(self.problem)
        return ClassSumsMechanism(
            *(self.problem.n_samples, columns, n_classes(self.problem), 1.0),
            *(self.record_guarantee.neighboring, self._noises[name]),
            row_error(columns),
        )

    def weighted_sums(self, name: str, largest: float, weight_error: float = 0.0) -> GaussianMechanism:
        """One sum of rows of norm 1, each times a weight of at most ``largest`` with error at most ``weight_error``."""
        exact = self.record_guarantee.neighboring.contributions * largest
        value = Sensitivity((exact + 2 * self._rounding(largest, weight_error)) * SLACK)
        return GaussianMechanism(value, self._noises[name], _n_columns(self.problem))

    def total_and_difference(self) -> GaussianMechanism:
        """Two sums of split rows of norm 1, times c and times s or -s by class, c^2 + s^2 = 1."""
        value = Sensitivity((1.0 + 4 * self._rounding(1.0)) * SLACK)
        return GaussianMechanism(value, self._noises[_SECOND], 4 * _n_columns(self.problem))

    def _rounding(self, largest: float, weight_error: float = 0.0) -> float:
        n, columns = self.problem.n_samples, _n_columns(self.problem)
        rounding = gradient_rounding(Linear(largest), n, columns, 1.0, 0.0)
        return rounding + n * (largest * row_error(columns) + weight_error)

    def means(self, name: str, n_directions: int, size: float) -> GaussianMechanism:
        """The sum of clipped scores along directions; the longest has norm ``size``."""
        n = self.problem.n_samples
        rounding = n * gamma(self.problem.n_features + 32) * (size * self._norm + _LONGEST)
        rounding += summation_rounding(n, _LONGEST)
        exact = self.record_guarantee.neighboring.contributions * _LONGEST
        value = math.sqrt(n_directions) * (exact + 2 * rounding) * SLACK
        return GaussianMechanism(Sensitivity(value), self._noises[name], n_directions)

    def scores(self, n_directions: int) -> Problem:
        """The remaining problem with known directions, which has few columns."""
        constant = int(self.problem.bounds.intercept)
        norm = max(math.sqrt(2.0), math.sqrt(constant + 0.6 * n_directions))
        bounds = Bounds(norm, intercept=False)
        return replace(self.problem, bounds=bounds, n_features=n_directions + constant, sparse=False)

    def gradients(self, name: str, n_directions: int, size: float) -> GaussianMechanism:
        """The noisy gradient along directions, given as columns of a matrix of Frobenius norm ``size``."""
        scores = self.scores(n_directions)
        longest = size * self._norm + scores.bounds.feature_norm
        error = 1.01 * gamma(self.problem.n_features + scores.n_features + 32) * longest
        relation = self.record_guarantee.neighboring
        return gradient_mechanism(scores, self.field(name), _RADIUS, relation, self._noises[name], error)

    def field(self, name: str) -> Loss:
        """The loss with its derivative capped, as in noisy descent."""
        budget = math.sqrt(_STEPS) / self._noises[name]
        return capped(self.scores(1), self.record_guarantee, budget, None)

    @cached_property
    def releases(self) -> tuple[base.PlannedRelease, ...]:
        """All releases of a run, in order."""
        return tuple(base.PlannedRelease(line.mechanism(self), line.name, line.times) for line in self._bill)

    @property
    def how(self) -> str:
        """A description of how noise is added."""
        names = [line.name for line in self._bill if line.sums_rows]
        return f"Gaussian noise on {', on '.join(names)}, and on {_STEPS} gradients of scores"

    proof = (
        "sums of rows of norm 1 (Theorem 1 of docs/proofs/text.md), gradient sensitivity on a ball (Theorems 1 and "
        "2 of docs/proofs/gradient-methods.md), exact composition of Gaussian releases"
    )

    @property
    def numbers(self) -> Mapping[str, float | str]:
        """The public numbers of the run."""
        return {
            **{f"noise multiplier, {name}": noise for name, noise in self._noises.items()},
            "columns of the model": "all that can be seen"
            if self.max_columns is None
            else float(self.max_columns),
            "sampler": f"exact discrete Gaussian, {SOURCE}",
        }

    # -- the run -------------------------------------------------------------------------------------------

    def run(self, records: list[Records], entropy: Entropy, progress: Progress | None = None) -> base.Release:
        """Release sums, refocus, sum again; fit slopes; sum residuals; fit slopes again."""
        (rows,) = records
        n, columns = self.problem.n_samples, _n_columns(self.problem)
        length = self._length(rows, entropy)
        evidence = self._leans(rows, entropy)
        directions, means = evidence.directions()
        theta = self._slopes(rows, directions, means, length, evidence.shares, "leans", entropy)
        if self.shares.residuals:
            name = "sums of residuals"
            size = float(np.linalg.norm(theta)) * self._norm
            loss = self.problem.loss
            error = loss.smoothness * gamma(columns + 64) * (size + 1)
            error += loss.evaluation_error * UNIT_ROUNDOFF * loss.lipschitz
            mechanism = self.weighted_sums(name, CAP, error)
            exact = rows.sum_rows(capped_residuals, evidence.weights, self.problem.loss, theta, CAP)
            noisy = mechanism.release(exact, entropy) / n
            other, mean = evidence.residual_direction(noisy, (mechanism.stddev / n) ** 2)
            both = np.column_stack([directions, other])
            theta = self._slopes(
                rows, both, np.append(means, mean), length, evidence.shares, "leans and residuals", entropy
            )
        joint = self.problem.loss.n_outputs > 1
        return base.Release(centered(theta[None]) if joint else theta[None], entropy.secure)

    def _length(self, rows: Records, entropy: Entropy) -> float:
        """Release a typical length of rows, in units of their bound; 1 if noise hides it."""
        n, release = self.problem.n_samples, self.lengths()
        mean = float(release.release(rows.sum_rows(log_lengths, self._bound), entropy)[0]) / n
        return length_of(mean**3 / (mean**2 + 4 * (release.stddev / n) ** 2))

    @property
    def _bound(self) -> float:
        """The unit of row lengths."""
        return 1.0 if isinstance(self.problem.bounds, BoxBounds) else self._norm

    def _leans(self, rows: Records, entropy: Entropy) -> ColumnEvidence:
        """Collect evidence about the columns from one or two releases of sums."""
        n, columns = self.problem.n_samples, _n_columns(self.problem)
        classes = np.eye(n_classes(self.problem))

        def summed(name: str, weights: Array) -> NoisyClassSums:
            sums = self.sums(name)
            exact = rows.sum_rows(split_sums, weights, classes, sums.constant)
            return sums.noisy(exact, entropy)

        evidence = ColumnEvidence(summed("sums of the classes", np.ones(columns)), n)
        if not self.shares.second:
            evidence.keep(self.max_columns)
            return evidence
        if not total_and_difference(self.record_guarantee, len(evidence.shares)):
            noise = evidence.contrast_variances(self.sums(_SECOND).gaussian.stddev ** 2)
            evidence.refocus(float(noise.mean()), self.max_columns)
            evidence.add_sums(summed(_SECOND, evidence.weights))
            return evidence
        gaussian, left = self.total_and_difference(), 0.5 - float(evidence.shares[1])
        difference = difference_weight(evidence.shares)
        total = math.sqrt(1 - difference**2)
        factor = (0.5 / difference) ** 2 + (left / total) ** 2
        evidence.refocus(factor * gaussian.stddev**2, self.max_columns)
        factors = np.array([[total, total], [-difference, difference]])
        exact = rows.sum_rows(split_sums, evidence.weights, factors, 0.0)[:, :-1]
        noisy = gaussian.release(exact.ravel(), entropy).reshape(2, 2, columns) / n
        totals, differences = noisy[0] / total, noisy[1] / difference
        variance = (gaussian.stddev / n) ** 2
        if evidence.signed:  # positive and negative parts
            variance *= 2
            sizes, totals, differences = (
                totals[0] + totals[1],
                totals[0] - totals[1],
                differences[0] - differences[1],
            )
        else:
            sizes, totals, differences = totals[0], totals[0], differences[0]
        contrast = differences / 2 + left * totals
        evidence.add(sizes, variance / total**2, contrast[None], np.array([factor * variance]))
        return evidence

    def _slopes(
        self,
        rows: Records,
        directions: Array,
        means: Array,
        length: float,
        shares: Array,
        name: str,
        entropy: Entropy,
    ) -> Array:
        """Fit the coefficients along directions whose scores have standard deviation 1 on rows of norm 1."""
        problem, n_directions = self.problem, directions.shape[1]
        n, outputs = problem.n_samples, problem.loss.n_outputs
        matrix = directions / (length * self._bound)
        scale = 1.0
        if problem.bounds.intercept:
            if not isinstance(
                problem.bounds, BoxBounds
            ):  # what clipping takes off a typical row and its constant
                scale = max(1.0, math.hypot(length * self._bound, 1.0) / self._norm)
            matrix = np.vstack([scale * matrix, -scale * means])
        release = self.means(f"means of {name}", n_directions, float(np.linalg.norm(matrix, axis=0).max()))
        sums = release.release(rows.sum_rows(clipped_scores, matrix, _LONGEST), entropy) / n
        noise = (release.stddev / n) ** 2
        if problem.bounds.intercept:
            matrix[-1] -= scale * sums * sums**2 / (sums**2 + noise)
            constant = np.zeros((len(matrix), 1))
            constant[-1] = scale
            matrix = np.hstack([matrix / _SPREAD, constant])
        else:
            matrix = matrix / _SPREAD
        along = mapped(rows, matrix, self.scores(n_directions).bounds.feature_norm)
        gradient = self.gradients(f"gradients along {name}", n_directions, float(np.linalg.norm(matrix)))
        field = self.field(f"gradients along {name}")
        start = _start(n_directions, outputs, shares, problem.bounds.intercept)
        spread = np.maximum(shares * (1 - shares), 0.04)
        weights = np.append(np.full(n_directions, 0.12), [1.0] * int(problem.bounds.intercept))
        curvature = (
            n * (weights if outputs == 1 else weights[:, None]) * (spread[-1] if outputs == 1 else spread)
        )
        curvature = np.maximum(curvature, 6 * gradient.stddev / math.sqrt(_STEPS))
        point, total, averaged = project(start[None], _RADIUS)[0], np.zeros_like(start), 0
        for step in range(_STEPS):
            noisy = noisy_sum([along], field, point[None], gradient, entropy)[0]
            point = point - 0.4 * noisy / curvature
            if outputs == 1:
                point[0] = max(point[0], _LEAST_SLOPE)
            point = project(point[None], _RADIUS)[0]
            if step >= _STEPS // 4:
                total, averaged = total + point, averaged + 1
        return np.asarray(matrix @ (total / averaged))


def _start(n_directions: int, n_outputs: int, shares: Array, intercept: bool) -> Array:
    """Return the initial coefficients: a slope along the leans of every class, and constants from the class shares."""
    logs = np.log(shares)
    if n_outputs == 1:
        slopes = np.append(_STEEPNESS, np.zeros(n_directions - 1))
        return np.append(slopes, logs[1] - logs[0]) if intercept else slopes
    start = np.zeros((n_directions + int(intercept), n_outputs))
    if len(shares) == 2:  # a softmax of two classes has one direction, or two with that of the residuals
        start[0] = _STEEPNESS * np.array([-0.5, 0.5])
    else:
        start[:n_directions] = _STEEPNESS * np.eye(n_outputs)
    if intercept:
        start[-1] = logs - logs.mean()
    return start


base.register(RefocusedSums.name, RefocusedSums)
