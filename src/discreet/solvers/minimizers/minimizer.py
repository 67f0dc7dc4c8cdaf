"""Certified minimizers: a theta whose EXACT gradient norm is proved to be at most a public tolerance.

The objective is J(theta) = sum_i loss(y_i, <v_i, theta>) + (l2 / 2) |theta|^2 + <linear, theta>, on the scale
of sums. Private solvers need two things of a minimizer: that it never gives up, because giving up depends on
the data and is itself an output, and that what it claims about its answer is true. So every answer, whoever
found it, is checked by one pass in which computed norm + proved rounding bound <= tolerance must hold, and an
answer that falls short is polished: by Newton steps, and if rounding stops these, by steps of a fixed length that are
proved to get there. ``most_passes`` says how many passes that takes at most, from public numbers alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from discreet._checks import ParameterError
from discreet._typing import Array, Progress
from discreet.losses import Loss
from discreet.records.base import Records
from discreet.records.kernels import passes
from discreet.solvers.minimizers.lbfgs_newton import (
    FAST_PASSES,
    Operator,
    Point,
    inverse_of,
    lbfgs,
    newton,
    steady,
    steady_passes,
)

Optimizer = Literal["auto", "lbfgs", "newton", "newton-cg"] | Callable[..., Any]

_DENSE_COEFFICIENTS = 1000  # up to here factorizing a Hessian costs little beside the passes it saves
_CHEAP_HESSIAN = 200  # up to here a Hessian costs no more than the products that would replace it
#: The longest theta that gets a certificate; beyond, a product with a row could overflow.
LARGEST_THETA = 2.0**90
_WORST_ROUNDING = (
    0.01  # of l2: what a row's product may lose per unit of theta, where the minimizer can be searched for
)


class Objective:
    """J(theta) = sum_i loss(y_i, <v_i, theta>) + (l2 / 2) |theta|^2 + <linear, theta>.

    Parameters
    ----------
    records : Records
    loss : Loss
    l2 : float
        Greater than 0: strong convexity is what makes the minimizer unique and stable.
    linear : array of theta's shape, optional

    Privacy
    -------
    Nothing here is private by itself. ``gradient_norm_bound`` is the certificate that a private solver rests
    on: no theta is accepted whose exact gradient could be longer (docs/proofs/rounding.md, section 5).
    """

    def __init__(self, records: Records, loss: Loss, l2: float, linear: ArrayLike | None = None) -> None:
        if not (isinstance(l2, int | float | np.floating) and 0 < l2 < math.inf):
            raise ParameterError("l2", f"must be a finite number greater than 0, got {l2!r}")
        self.records, self.loss, self.l2 = records, loss, float(l2)
        p = records.n_features
        self.shape: tuple[int, ...] = (p,) if loss.n_outputs == 1 else (p, loss.n_outputs)
        self.linear = np.zeros(self.shape) if linear is None else np.asarray(linear, dtype=np.float64)
        if self.linear.shape != self.shape or not np.all(np.isfinite(self.linear)):
            raise ParameterError(
                "linear", f"must be finite and of shape {self.shape}, got {self.linear.shape}"
            )

    @property
    def curvature(self) -> float:
        """A bound on the largest curvature of J, rounded up."""
        bounds = self.records.bounds.feature_norm
        return largest_curvature(self.loss, self.records.n_samples, bounds, self.l2)

    def value_and_gradient(self, theta: Array) -> tuple[float, Array]:
        """J and its gradient, in one pass over the records."""
        value, gradient = self.records.value_and_gradient(self.loss, theta)
        value += 0.5 * self.l2 * float(np.vdot(theta, theta)) + float(np.vdot(self.linear, theta))
        gradient += self.l2 * theta
        gradient += self.linear
        return value, gradient

    def hessian_product(self, theta: Array) -> Operator:
        """The map v -> H v, one pass over the records per call."""
        product = self.records.hessian_product(self.loss, theta)
        return lambda vector: product(vector) + self.l2 * vector

    def rounding(self, theta_norm: float) -> float:
        """A proved bound on |computed - exact| gradient at any theta of computed norm ``theta_norm``."""
        sizes = self.records.n_samples, self.records.n_features
        linear_norm = float(np.linalg.norm(self.linear))
        additions = self.records.additions(self.loss)
        radius = self.records.bounds.feature_norm
        return _rounding(self.loss, *sizes, radius, self.l2, linear_norm, theta_norm, additions)

    def gradient_norm_bound(self, theta: Array, gradient: Array) -> float:
        """An upper bound on the exact gradient's norm, given the gradient computed at theta."""
        with np.errstate(all="ignore"):
            norm, theta_norm = float(np.linalg.norm(gradient)), float(np.linalg.norm(theta))
        bound = norm * (1.0 + 4.0 * passes.gamma(gradient.size + 4)) + self.rounding(theta_norm)
        return bound if math.isfinite(bound) else math.inf

    @property
    def sizes(self) -> tuple[Loss, int, int, float, float, float]:
        """The public numbers that tolerances depend on, and the norm of the linear term."""
        records, norm = self.records, float(np.linalg.norm(self.linear))
        return self.loss, records.n_samples, records.n_features, records.bounds.feature_norm, self.l2, norm

    def smallest_tolerance(self) -> float:
        """The least tolerance to plan with; see the function of the same name."""
        return smallest_tolerance(*self.sizes)


def largest_curvature(loss: Loss, n_samples: int, feature_norm: float, l2: float) -> float:
    """A bound on the curvature of an objective, rounded up."""
    return float(n_samples * loss.smoothness * feature_norm**2 + l2) * (1 + 8 * passes.UNIT_ROUNDOFF)


def most_passes(loss: Loss, n_samples: int, feature_norm: float, l2: float) -> int:
    """How many passes ``minimize`` makes at most, beside those that a callable ``optimizer`` asks for."""
    condition = largest_curvature(loss, n_samples, feature_norm, l2) / l2
    # Beyond, 0 is good enough.
    return FAST_PASSES + sum(steady_passes(min(condition, _WORST_ROUNDING / passes.UNIT_ROUNDOFF)))


def smallest_tolerance(
    loss: Loss, n_samples: int, n_features: int, feature_norm: float, l2: float, linear_norm: float
) -> float:
    """The least gradient tolerance to ask for, from public sizes alone.

    Eight times the worst rounding bound over a set that contains every minimizer, however rows are stored: twice what
    is proved to be reached, which leaves room for a ``linear`` twice as long as ``linear_norm``. Where l2 is so small
    beside the curvature that rounding drowns the minimizer, a tolerance at which theta = 0 is good enough. Choose a
    tolerance above this before looking at the data.

    >>> from discreet.losses import Logistic
    >>> smallest_tolerance(Logistic(), 100_000, 50, feature_norm=1.0, l2=10.0, linear_norm=100.0) < 1e-5
    True
    """
    sizes = loss, n_samples, n_features, feature_norm, l2
    return (
        8.0 * _rounding_left(*sizes, linear_norm)
        if _conditioned(*sizes)
        else _reachable(*sizes, 2 * linear_norm)
    )


def _rounding_left(
    loss: Loss, n_samples: int, n_features: int, feature_norm: float, l2: float, linear_norm: float
) -> float:
    """What rounding can leave of a gradient near the minimizer: in the gradient itself, and in theta."""
    norm = minimizer_norm(loss, n_samples, feature_norm, l2, linear_norm)
    worst = _rounding(loss, n_samples, n_features, feature_norm, l2, linear_norm, norm)
    # theta itself is rounded: moving each coordinate by half a unit moves the gradient by at most this.
    storage = (n_samples * loss.smoothness * feature_norm**2 + l2) * passes.UNIT_ROUNDOFF * norm
    return worst + storage


def _conditioned(loss: Loss, n_samples: int, n_features: int, feature_norm: float, l2: float) -> bool:
    """Whether rounding errors grow more slowly with theta than the ridge does (docs/proofs/rounding.md, section 6)."""
    curvature = largest_curvature(loss, n_samples, feature_norm, l2)
    return passes.gamma(n_features + 12) * curvature <= _WORST_ROUNDING * l2


def _reachable(
    loss: Loss, n_samples: int, n_features: int, feature_norm: float, l2: float, linear_norm: float
) -> float:
    """A tolerance that is proved to be reached in ``most_passes`` (docs/proofs/rounding.md, section 6)."""
    sizes = loss, n_samples, n_features, feature_norm, l2
    if _conditioned(*sizes):
        return 4.0 * _rounding_left(*sizes, linear_norm)
    longest = n_samples * loss.lipschitz * feature_norm + linear_norm  # bounds the gradient at 0
    return 1.01 * (longest + 2 * _rounding(*sizes, linear_norm, 0.0))


def minimizer_norm(loss: Loss, n_samples: int, feature_norm: float, l2: float, linear_norm: float) -> float:
    """A bound on the minimizer's norm that holds for all data.

    From l2 theta* = -(sum of gradients + linear), and, losses being at least 0, from J(theta*) <= J(0).
    """
    norm = (linear_norm + n_samples * loss.lipschitz * feature_norm) / l2
    if math.isfinite(loss.value_at_zero):
        gap = math.sqrt(linear_norm**2 + 2.0 * l2 * n_samples * loss.value_at_zero)
        norm = min(norm, (linear_norm + gap) / l2)
    return norm


def _rounding(
    loss: Loss,
    n_samples: int,
    n_features: int,
    feature_norm: float,
    l2: float,
    linear_norm: float,
    theta_norm: float,
    additions: int | None = None,
) -> float:
    """The records' bound, then one product and two sums for l2 and linear (docs/proofs/rounding.md, 5)."""
    if not theta_norm <= LARGEST_THETA:
        return math.inf
    sizes = n_samples, n_features
    records = passes.gradient_rounding(loss, *sizes, feature_norm, 1.001 * theta_norm, additions)
    terms = 1.01 * n_samples * loss.lipschitz * feature_norm + l2 * theta_norm + linear_norm
    return records + 1.01 * passes.gamma(4) * terms + 2.0**-500


@dataclass(frozen=True)
class Minimum:
    """A certified minimizer.

    Attributes
    ----------
    theta : array
    gradient_norm : float
        A proved upper bound on the exact gradient's norm at theta, rounding included.
    n_passes : int
        Passes over the records, Hessian products included.
    outcome : str
        What became of the chosen optimizer's own answer.

    Privacy
    -------
    All of it depends on the data. Release theta only with noise; do not release the rest.
    """

    theta: Array
    gradient_norm: float
    n_passes: int
    outcome: str = ""


def minimize(
    objective: Objective,
    tolerance: float,
    *,
    optimizer: Optimizer = "auto",
    start: ArrayLike | None = None,
    progress: Progress | None = None,
) -> Minimum:
    """Find theta whose exact gradient norm is proved to be at most ``tolerance``. It always does.

    Parameters
    ----------
    objective : Objective
    tolerance : float
        Plan with ``smallest_tolerance`` or more. Below half of it the request is refused at once,
        whatever the data; the slack leaves room for a ``linear`` longer than the plan supposed.
    optimizer : "auto", "lbfgs", "newton", "newton-cg" or a callable
        "auto" is L-BFGS around a Hessian estimated from some of the rows, where that is affordable.
        A callable is called as ``optimizer(fun, x0, jac=jac)`` with flat arrays and returns a flat array or
        an object with an attribute ``x``: ``functools.partial(scipy.optimize.minimize, method="BFGS")`` is
        one. It is trusted with nothing: an answer that is worse than the start, of the wrong shape, not
        finite, or an exception, is dropped, and any answer is polished until the certificate holds.
    start : array, optional
        Where to begin; 0 otherwise.
    progress : callable, optional
        Called as ``progress(n_passes, gradient_norm)`` after each step. Private: show it to nobody else.

    Privacy
    -------
    There is no abort that depends on the data (a failure to converge would be an output with unbounded
    privacy loss). The running time and the number of passes do depend on it; ``most_passes`` bounds the number.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet.records.bounds import Bounds
    >>> from discreet.losses import Logistic
    >>> from discreet.records.arrays import ArrayRecords
    >>> records = ArrayRecords(np.eye(2), [1.0, -1.0], Bounds(intercept=False))
    >>> found = minimize(Objective(records, Logistic(), l2=1.0), tolerance=1e-9)
    >>> found.theta.round(4), found.gradient_norm <= 1e-9
    (array([ 0.4011, -0.4011]), True)
    """
    least = _reachable(*objective.sizes)
    if not least <= tolerance < math.inf:
        raise ParameterError(
            "tolerance",
            f"must be a finite number of at least {least:.3g} for an objective of this size, got "
            f"{tolerance!r}",
            "below that rounding errors drown the gradient (a larger l2 lowers the limit)",
        )
    search = _Search(objective, float(tolerance), progress)
    point = search.start(start)
    outcome = "accepted"
    if callable(optimizer):
        point, outcome = _ask(optimizer, search, point)
    elif optimizer in ("auto", "lbfgs"):
        point = lbfgs(search, point, precondition=optimizer == "auto")
    elif optimizer not in ("newton", "newton-cg"):
        raise ParameterError(
            "optimizer", f"must be 'auto', 'lbfgs', 'newton', 'newton-cg' or a callable, got {optimizer!r}"
        )
    if point.bound > tolerance and optimizer not in ("newton", "newton-cg"):
        outcome += ", polished by Newton steps"
    small = point.theta.size <= _CHEAP_HESSIAN and optimizer != "newton-cg"
    point = newton(search, point, exact=small or optimizer == "newton")
    if not point.bound <= tolerance:
        point = search.steady(point)
    return Minimum(point.theta.reshape(objective.shape), point.bound, search.n_passes, outcome)


def _ask(optimizer: Callable[..., Any], search: _Search, start: Point) -> tuple[Point, str]:
    """The answer of a black box if it is any better than the start."""
    last = [start]

    def at(x: Any) -> Point:
        x = np.array(x, dtype=np.float64).ravel()
        if not np.array_equal(x, last[0].theta):
            last[0] = search.evaluate(x)
        return last[0]

    try:
        with np.errstate(all="ignore"):
            answer = optimizer(lambda x: at(x).value, start.theta.copy(), jac=lambda x: at(x).gradient.copy())
            theta = np.array(getattr(answer, "x", answer), dtype=np.float64)
    except Exception as error:  # whether it fails may depend on the data, so its failure must not show
        return start, f"dropped: the optimizer raised {type(error).__name__}: {error}"
    if theta.size != start.theta.size or not np.all(np.isfinite(theta)):
        return start, "dropped: not a finite vector of the right size"
    point = at(theta)
    if not (point.bound < start.bound or point.value <= start.value):
        return start, "dropped: worse than the start"
    return point, "accepted"


class _Search:
    """One minimization, as the descent methods see it: flat vectors, the goal, and a count of passes."""

    def __init__(self, objective: Objective, tolerance: float, progress: Progress | None) -> None:
        self.objective, self.tolerance, self.progress = objective, tolerance, progress
        self.n_passes = 0
        self.largest_curvature = objective.curvature

    def start(self, theta: ArrayLike | None) -> Point:
        shape = self.objective.shape
        begin = np.zeros(shape) if theta is None else np.array(theta, dtype=np.float64)
        if begin.shape != shape or not np.all(np.isfinite(begin)):
            raise ParameterError("start", f"must be finite and of shape {shape}, got shape {begin.shape}")
        return self.evaluate(begin.ravel())

    def evaluate(self, theta: Array) -> Point:
        self.n_passes += 1
        shaped = theta.reshape(self.objective.shape)
        with np.errstate(all="ignore"):
            value, gradient = self.objective.value_and_gradient(shaped)
            bound = self.objective.gradient_norm_bound(shaped, gradient)
        return Point(theta, value, gradient.ravel(), bound)

    def done(self, point: Point) -> bool:
        if self.progress is not None:
            self.progress(self.n_passes, point.bound)
        return point.bound <= self.tolerance

    def steady(self, point: Point) -> Point:
        """Steps of a fixed length, which are proved to reach the goal from 0, if 0 does not reach it."""
        origin = np.zeros_like(point.theta)
        reached = [self.evaluate(origin)]

        def step(theta: Array) -> tuple[Array, bool]:
            reached[0] = at = self.evaluate(theta)
            return theta - at.gradient / self.largest_curvature, self.done(at)

        if not self.done(reached[0]):
            steady(step, point.theta, origin, self.largest_curvature / self.objective.l2)
        return reached[0]

    def hessian_product(self, theta: Array) -> Operator:
        shape = self.objective.shape
        self.n_passes += 1
        product = self.objective.hessian_product(theta.reshape(shape))

        def counted(vector: Array) -> Array:
            self.n_passes += 1
            return product(vector.reshape(shape)).ravel()

        return counted

    def exact_inverse(self, theta: Array) -> Operator | None:
        """The inverse of the Hessian, where a matrix of theta.size rows is small and cheap to fill."""
        if self.objective.records.sparse or theta.size > _DENSE_COEFFICIENTS:
            return None
        return self._inverse(theta, every=1, smoothing=0.0)

    def estimated_inverse(self, theta: Array) -> Operator | None:
        """The inverse of a Hessian from as many rows as cost about a pass; None if even that is too many."""
        records = self.objective.records
        n, p = records.n_samples, records.n_features
        if records.sparse or p > _DENSE_COEFFICIENTS or n == 0:
            return None
        size = theta.size if theta.size <= _DENSE_COEFFICIENTS else p
        every = max(1, n // max(16 * n // size, 8 * size))
        return self._inverse(theta, every, smoothing=1.0)

    def _inverse(self, theta: Array, every: int, smoothing: float) -> Operator | None:
        records, loss = self.objective.records, self.objective.loss
        point = theta.reshape(self.objective.shape)
        self.n_passes += 1
        if loss.n_outputs > 1 and theta.size > _DENSE_COEFFICIENTS:
            hessian = records.mean_class_hessian(loss, point, every=every)
        else:
            hessian = records.hessian(loss, point, every=every, smoothing=smoothing)
        hessian[np.diag_indices(len(hessian))] += self.objective.l2
        return inverse_of(hessian)
