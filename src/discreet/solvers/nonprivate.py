"""Certified minimizers: a theta whose EXACT gradient norm is proved to be at most a public tolerance.

The objective is J(theta) = sum_i loss(y_i, <v_i, theta>) + (l2 / 2) |theta|^2 + <linear, theta>, on the scale
of sums. Private solvers need two things of a minimizer: that it never gives up, because giving up depends on
the data and is itself an output, and that what it claims about its answer is true. So every answer, whoever
found it, is checked by one pass in which computed norm + proved rounding bound <= tolerance must hold, and an
answer that falls short is polished by a globally convergent Newton method until it does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.losses import Loss, Softmax
from discreet.records import kernels
from discreet.records.arrays import ArrayRecords
from discreet.solvers.descent import Operator, Point, inverse_of, lbfgs, newton

Array = NDArray[np.float64]
Progress = Callable[[int, float], None]
Optimizer = Literal["auto", "lbfgs", "newton", "newton-cg"] | Callable[..., Any]

_DENSE_COEFFICIENTS = 1000  # up to here factorizing a Hessian costs little beside the passes it saves
_CHEAP_HESSIAN = 200  # up to here a Hessian costs no more than the products that would replace it
_LARGEST_THETA = 2.0**90  # beyond, a product with a row could overflow; no certificate is given


class Objective:
    """J(theta) = sum_i loss(y_i, <v_i, theta>) + (l2 / 2) |theta|^2 + <linear, theta>.

    Parameters
    ----------
    records : ArrayRecords
    loss : Loss
    l2 : float
        Greater than 0: strong convexity is what makes the minimizer unique and stable.
    linear : array of theta's shape, optional

    Privacy
    -------
    Nothing here is private by itself. ``gradient_norm_bound`` is the certificate that a private solver rests
    on: no theta is accepted whose exact gradient could be longer (docs/proofs/rounding.md, section 5).
    """

    def __init__(self, records: ArrayRecords, loss: Loss, l2: float, linear: ArrayLike | None = None) -> None:
        if not (isinstance(l2, int | float | np.floating) and 0 < l2 < math.inf):
            raise ValueError(f"l2 must be a finite number greater than 0, got {l2!r}")
        self.records, self.loss, self.l2 = records, loss, float(l2)
        p = records.n_features
        self.shape: tuple[int, ...] = (p,) if loss.n_outputs == 1 else (p, loss.n_outputs)
        self.linear = np.zeros(self.shape) if linear is None else np.asarray(linear, dtype=np.float64)
        if self.linear.shape != self.shape or not np.all(np.isfinite(self.linear)):
            raise ValueError(f"linear must be finite and of shape {self.shape}, got {self.linear.shape}")

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
        bound = norm * (1.0 + 4.0 * kernels.gamma(gradient.size + 4)) + self.rounding(theta_norm)
        return bound if math.isfinite(bound) else math.inf

    def smallest_tolerance(self) -> float:
        """The least tolerance to plan with; see the function of the same name."""
        sizes = self.records.n_samples, self.records.n_features
        linear_norm = float(np.linalg.norm(self.linear))
        return smallest_tolerance(self.loss, *sizes, self.records.bounds.feature_norm, self.l2, linear_norm)


def smallest_tolerance(
    loss: Loss, n_samples: int, n_features: int, feature_norm: float, l2: float, linear_norm: float
) -> float:
    """The least gradient tolerance to ask for, from public sizes alone.

    Eight times the worst rounding bound over a set that contains every minimizer, however rows are stored.
    ``linear_norm`` may be an upper bound. Choose a tolerance above this before looking at the data.

    >>> from discreet.losses import Logistic
    >>> smallest_tolerance(Logistic(), 100_000, 50, feature_norm=1.0, l2=10.0, linear_norm=100.0) < 1e-5
    True
    """
    norm = minimizer_norm(loss, n_samples, feature_norm, l2, linear_norm)
    worst = _rounding(loss, n_samples, n_features, feature_norm, l2, linear_norm, norm)
    # theta itself is rounded: moving each coordinate by half a unit moves the gradient by at most this.
    storage = (n_samples * loss.smoothness * feature_norm**2 + l2) * kernels.UNIT_ROUNDOFF * norm
    return 8.0 * (worst + storage)


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
    if not theta_norm <= _LARGEST_THETA:
        return math.inf
    sizes = n_samples, n_features
    records = kernels.gradient_rounding(loss, *sizes, feature_norm, 1.001 * theta_norm, additions)
    terms = 1.01 * n_samples * loss.lipschitz * feature_norm + l2 * theta_norm + linear_norm
    return records + 1.01 * kernels.gamma(4) * terms + 2.0**-500


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
        Plan with ``smallest_tolerance`` or more. Below a quarter of it the request is refused at once,
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
    privacy loss). The running time and the number of passes do depend on it.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet.bounds import Bounds
    >>> from discreet.losses import Logistic
    >>> records = ArrayRecords(np.eye(2), [1.0, -1.0], Bounds(intercept=False))
    >>> found = minimize(Objective(records, Logistic(), l2=1.0), tolerance=1e-9)
    >>> found.theta.round(4), found.gradient_norm <= 1e-9
    (array([ 0.4011, -0.4011]), True)
    """
    least = objective.smallest_tolerance() / 4
    if not least <= tolerance < math.inf:
        raise ValueError(
            f"tolerance must be a finite number of at least {least:.3g} for an objective of this size, got "
            f"{tolerance!r}; below that rounding errors drown the gradient (a larger l2 lowers the limit)"
        )
    search = _Search(objective, float(tolerance), progress)
    point = search.start(start)
    outcome = "accepted"
    if callable(optimizer):
        point, outcome = _ask(optimizer, search, point)
    elif optimizer in ("auto", "lbfgs"):
        point = lbfgs(search, point, precondition=optimizer == "auto")
    elif optimizer not in ("newton", "newton-cg"):
        raise ValueError(
            f"optimizer must be 'auto', 'lbfgs', 'newton', 'newton-cg' or a callable, got {optimizer!r}"
        )
    if point.bound > tolerance and optimizer not in ("newton", "newton-cg"):
        outcome += ", polished by Newton steps"
    small = point.theta.size <= _CHEAP_HESSIAN and optimizer != "newton-cg"
    point = newton(search, point, exact=small or optimizer == "newton")
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
        records, loss = objective.records, objective.loss
        data = records.n_samples * loss.smoothness * records.bounds.feature_norm**2
        self.largest_curvature = data + objective.l2

    def start(self, theta: ArrayLike | None) -> Point:
        shape = self.objective.shape
        begin = np.zeros(shape) if theta is None else np.array(theta, dtype=np.float64)
        if begin.shape != shape or not np.all(np.isfinite(begin)):
            raise ValueError(f"start must be finite and of shape {shape}, got shape {begin.shape}")
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
        if isinstance(loss, Softmax) and theta.size > _DENSE_COEFFICIENTS:
            hessian = records.mean_class_hessian(loss, point, every=every)
        else:
            hessian = records.hessian(loss, point, every=every, smoothing=smoothing)
        hessian[np.diag_indices(len(hessian))] += self.objective.l2
        return inverse_of(hessian)
