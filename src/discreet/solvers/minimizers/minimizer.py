"""Certified minimizers: a theta whose EXACT gradient norm is proved to be at most a public tolerance.

The objective is J(theta) = sum_i loss(y_i, <v_i, theta>) + (l2 / 2) |theta|^2 + <linear, theta>, on the sum scale.
A private solver needs a minimizer that never fails, because a failure depends on the data and is itself an output,
and whose claims about its answer are true. So every answer is checked in one pass: computed norm + proved rounding
bound <= tolerance. An answer that falls short is refined by Newton steps and, if rounding stops these, by steps of a
fixed length that are proved to converge. ``most_passes`` bounds the number of passes from public numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from discreet._checks import ParameterError, contained
from discreet._typing import Array, Progress
from discreet.losses import Loss
from discreet.records.base import Records
from discreet.records.bounds import UNIT_ROUNDOFF, gamma, gradient_rounding
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

_DENSE_COEFFICIENTS = 1000  # up to this size, factorizing a Hessian is cheaper than the passes it saves
_CHEAP_HESSIAN = 200  # up to this size, a Hessian costs no more than the products it replaces
#: Largest norm of theta that gets a certificate; above it, a product with a row could overflow.
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
        Greater than 0, so that the minimizer is unique and stable.
    linear : array of theta's shape, optional

    Privacy
    -------
    Nothing here is private by itself. Private solvers rely on the certificate ``gradient_norm_bound``: no theta is
    accepted if its exact gradient could be longer (docs/proofs/rounding.md, section 5).
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
        """Bound |computed - exact| gradient at any theta of computed norm ``theta_norm``."""
        sizes = self.records.n_samples, self.records.n_features
        linear_norm = float(np.linalg.norm(self.linear))
        additions = self.records.additions(self.loss)
        radius = self.records.bounds.feature_norm
        return _rounding(self.loss, *sizes, radius, self.l2, linear_norm, theta_norm, additions)

    def gradient_norm_bound(self, theta: Array, gradient: Array) -> float:
        """Bound the exact gradient's norm from above, given the gradient computed at theta."""
        with np.errstate(all="ignore"):
            norm, theta_norm = float(np.linalg.norm(gradient)), float(np.linalg.norm(theta))
        bound = norm * (1.0 + 4.0 * gamma(gradient.size + 4)) + self.rounding(theta_norm)
        return bound if math.isfinite(bound) else math.inf

    @property
    def sizes(self) -> tuple[Loss, int, int, float, float, float]:
        """The public numbers that tolerances depend on, and the norm of the linear term."""
        records, norm = self.records, float(np.linalg.norm(self.linear))
        return self.loss, records.n_samples, records.n_features, records.bounds.feature_norm, self.l2, norm

    def smallest_tolerance(self) -> float:
        """Return the least tolerance to plan with; see the function of the same name."""
        return smallest_tolerance(*self.sizes)


def largest_curvature(loss: Loss, n_samples: int, feature_norm: float, l2: float) -> float:
    """Bound the curvature of an objective, rounded up."""
    return float(n_samples * loss.smoothness * feature_norm**2 + l2) * (1 + 8 * UNIT_ROUNDOFF)


def most_passes(loss: Loss, n_samples: int, feature_norm: float, l2: float) -> int:
    """Bound the passes of ``minimize``, not counting those of a callable ``optimizer``."""
    condition = largest_curvature(loss, n_samples, feature_norm, l2) / l2
    # For larger conditions, theta = 0 is good enough.
    return FAST_PASSES + sum(steady_passes(min(condition, _WORST_ROUNDING / UNIT_ROUNDOFF)))


def smallest_tolerance(
    loss: Loss, n_samples: int, n_features: int, feature_norm: float, l2: float, linear_norm: float
) -> float:
    """Return the least gradient tolerance to ask for, from public sizes.

    It is eight times the worst rounding bound over a set that contains every minimizer, for any storage of the rows:
    twice what is proved to be reached, which leaves room for a ``linear`` of twice the norm ``linear_norm``. If l2 is
    so small relative to the curvature that rounding dominates, it is a tolerance that theta = 0 meets. It is infinite
    where a minimizer can be so long that no gradient there has a rounding bound. Choose a tolerance above this before
    reading the data; it is then enough for every smaller number of records, too.

    >>> from discreet.losses import Logistic
    >>> smallest_tolerance(Logistic(), 100_000, 50, feature_norm=1.0, l2=10.0, linear_norm=100.0) < 1e-5
    True
    """
    sizes = loss, n_samples, n_features, feature_norm, l2
    # Fewer records than were declared may be conditioned where these are not, and then need a bound that far out.
    if not minimizer_norm(loss, n_samples, feature_norm, l2, 2 * linear_norm) <= LARGEST_THETA:
        return math.inf
    return (
        8.0 * _rounding_left(*sizes, linear_norm)
        if _conditioned(*sizes)
        else _reachable(*sizes, 2 * linear_norm)
    )


def _rounding_left(
    loss: Loss, n_samples: int, n_features: int, feature_norm: float, l2: float, linear_norm: float
) -> float:
    """Bound the rounding error of a gradient near the minimizer: in the gradient itself, and in theta."""
    norm = minimizer_norm(loss, n_samples, feature_norm, l2, linear_norm)
    worst = _rounding(loss, n_samples, n_features, feature_norm, l2, linear_norm, norm)
    # theta itself is rounded: half a unit in the last place of each coordinate moves the gradient by at most this.
    storage = (n_samples * loss.smoothness * feature_norm**2 + l2) * UNIT_ROUNDOFF * norm
    return worst + storage


def _conditioned(loss: Loss, n_samples: int, n_features: int, feature_norm: float, l2: float) -> bool:
    """Whether rounding errors grow more slowly with theta than the ridge does (docs/proofs/rounding.md, section 6)."""
    curvature = largest_curvature(loss, n_samples, feature_norm, l2)
    return gamma(n_features + 12) * curvature <= _WORST_ROUNDING * l2


def _reachable(
    loss: Loss, n_samples: int, n_features: int, feature_norm: float, l2: float, linear_norm: float
) -> float:
    """Return a tolerance proved to be reached in ``most_passes`` (docs/proofs/rounding.md, section 6)."""
    sizes = loss, n_samples, n_features, feature_norm, l2
    if _conditioned(*sizes):
        return 4.0 * _rounding_left(*sizes, linear_norm)
    longest = n_samples * loss.lipschitz * feature_norm + linear_norm  # bounds the gradient at 0
    return 1.01 * (longest + 2 * _rounding(*sizes, linear_norm, 0.0))


def minimizer_norm(loss: Loss, n_samples: int, feature_norm: float, l2: float, linear_norm: float) -> float:
    """Bound the minimizer's norm for all data.

    From l2 theta* = -(sum of gradients + linear), and from J(theta*) <= J(0) because losses are nonnegative.
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
    """Bound the records' rounding, plus one product and two sums for l2 and linear (docs/proofs/rounding.md, 5)."""
    if not theta_norm <= LARGEST_THETA:
        return math.inf
    sizes = n_samples, n_features
    records = gradient_rounding(loss, *sizes, feature_norm, 1.001 * theta_norm, additions)
    terms = 1.01 * n_samples * loss.lipschitz * feature_norm + l2 * theta_norm + linear_norm
    return records + 1.01 * gamma(4) * terms + 2.0**-500


@dataclass(frozen=True)
class Minimum:
    """A certified minimizer.

    Attributes
    ----------
    theta : array
    gradient_norm : float
        A proved upper bound on the exact gradient's norm at theta, including rounding.
    n_passes : int
        Passes over the records, including Hessian products.
    outcome : str
        Whether the chosen optimizer's own answer was used, refined or dropped.

    Privacy
    -------
    All fields depend on the data. Release theta only with noise, and do not release the others.
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
    """Find a theta whose exact gradient norm is proved to be at most ``tolerance``. This never fails.

    Parameters
    ----------
    objective : Objective
    tolerance : float
        At least ``smallest_tolerance``. A request below half of that is refused at once, for all data alike; the
        slack leaves room for a ``linear`` longer than planned.
    optimizer : "auto", "lbfgs", "newton", "newton-cg" or a callable
        "auto" is L-BFGS around a Hessian estimated from some of the rows, if that is affordable.
        A callable is called as ``optimizer(fun, x0, jac=jac)`` with flat arrays and returns a flat array or
        an object with an attribute ``x``, like ``functools.partial(scipy.optimize.minimize, method="BFGS")``.
        It is not trusted: an exception, or an answer that is worse than the start, of the wrong shape or not finite,
        is dropped, and any answer is refined until the certificate holds.
    start : array, optional
        Initial theta; 0 by default.
    progress : callable, optional
        Called as ``progress(n_passes, gradient_norm)`` after each step. Private: do not show it to anyone.

    Privacy
    -------
    No abort depends on the data: a failure to converge would be an output with unbounded privacy loss. Running time
    and number of passes do depend on it; ``most_passes`` bounds the number.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet.records.bounds import Bounds, UNIT_ROUNDOFF, gamma, gradient_rounding
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
            "below that, rounding errors hide the gradient (a larger l2 lowers the limit)",
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
    """Return the answer of a callable optimizer if it improves on the start."""
    last = [start]

    def at(x: Any) -> Point:
        x = np.array(x, dtype=np.float64).ravel()
        if not np.array_equal(x, last[0].theta):
            last[0] = search.evaluate(x)
        return last[0]

    try:
        with np.errstate(all="ignore"), contained():
            answer = optimizer(lambda x: at(x).value, start.theta.copy(), jac=lambda x: at(x).gradient.copy())
            theta = np.array(getattr(answer, "x", answer), dtype=np.float64)
    except Exception as error:  # failure may depend on the data, so it must not be visible
        return start, f"dropped: the optimizer raised {type(error).__name__}: {error}"
    if theta.size != start.theta.size or not np.all(np.isfinite(theta)):
        return start, "dropped: not a finite vector of the right size"
    point = at(theta)
    if not (point.bound < start.bound or point.value <= start.value):
        return start, "dropped: worse than the start"
    return point, "accepted"


class _Search:
    """One minimization as seen by the descent methods: flat vectors, the tolerance, and a count of passes."""

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
        """Take fixed steps from 0, which are proved to reach the tolerance, unless 0 meets it already."""
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
        """Return the inverse of the Hessian, if it is dense and small."""
        if self.objective.records.sparse or theta.size > _DENSE_COEFFICIENTS:
            return None
        return self._inverse(theta, every=1, smoothing=0.0)

    def estimated_inverse(self, theta: Array) -> Operator | None:
        """Return the inverse of a Hessian from rows that cost about one pass; None if that is not affordable."""
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
