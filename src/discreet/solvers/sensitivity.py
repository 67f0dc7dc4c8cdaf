"""How far one record can move a sum of gradients, at a point of a ball of public radius.

Proofs: docs/proofs/gradient-methods.md, sections 1 and 2.
"""

from __future__ import annotations

import math

from discreet.losses import CappedLogistic, Linear, Logistic, Loss
from discreet.mechanisms.additive import GaussianMechanism
from discreet.privacy.guarantee import Neighboring, Sensitivity
from discreet.problem import Problem
from discreet.records.kernels import gradient_rounding

_SLACK = 1 + 2.0**-40  # pays for the rounding of the formulas below


def sigmoid(t: float) -> float:
    """1 / (1 + exp(-t)), without overflow."""
    return 1.0 / (1.0 + math.exp(-t)) if t >= 0 else math.exp(t) / (1.0 + math.exp(t))


def logistic_gap(tau: float) -> float:
    """The largest distance of two logistic gradients of unit rows at one point of norm at most ``tau``.

    kappa(tau) = 2 max over s of sqrt(1 - s^2) sigmoid(tau s): 1 at tau = 0, 2 as tau grows. Opposite rows pull the
    same way there, so that exchanging one for the other moves the gradient by 1, not by 2.

    >>> round(logistic_gap(1.0), 4), round(logistic_gap(10.0), 4)
    (1.0991, 1.8208)
    """
    if not 0 <= tau < math.inf:
        raise ValueError(f"tau must be a finite number of at least 0, got {tau!r}")
    low, high = 0.0, 1.0  # the maximum is the one root of s = tau (1 - sigmoid(tau s)) (1 - s^2)
    for _ in range(200):
        s = 0.5 * (low + high)
        if s < tau * sigmoid(-tau * s) * (1.0 - s * s):
            low = s
        else:
            high = s
    # On [low, high] both factors are monotone, so this bounds the maximum from above.
    return min(2.0, 2.0 * math.sqrt(1.0 - low * low) * sigmoid(tau * high) * _SLACK)


def gradient_sensitivity(
    loss: Loss, feature_norm: float, radius: float, neighboring: Neighboring
) -> Sensitivity:
    """L2 sensitivity of the summed gradient at a fixed theta with |theta| <= ``radius``, in real arithmetic.

    >>> from discreet.losses import HuberHinge
    >>> gradient_sensitivity(HuberHinge(), 1.0, 10.0, Neighboring.REPLACE_ONE).value
    2.0
    >>> round(gradient_sensitivity(Logistic(), 1.0, 1.0, Neighboring.ZERO_OUT).value, 4)
    0.7311
    """
    slope = loss.lipschitz
    largest = sigmoid(feature_norm * radius) * _SLACK
    logistic = isinstance(loss, Logistic) or (isinstance(loss, CappedLogistic) and loss.cap >= largest)
    if isinstance(loss, Logistic | CappedLogistic):
        slope = min(slope, largest)
    if neighboring.contributions == 1:
        return Sensitivity(slope * feature_norm)
    if logistic:
        return Sensitivity(min(2.0 * slope, logistic_gap(feature_norm * radius)) * feature_norm)
    return Sensitivity(2.0 * slope * feature_norm)


def computed_gradient_sensitivity(
    loss: Loss, n_samples: int, n_features: int, feature_norm: float, radius: float, neighboring: Neighboring
) -> Sensitivity:
    """The same for gradients summed in floating point, at any theta that was projected on the ball.

    Each of two sums may be off by the rounding bound, and a computed projection may leave the ball by a few units
    in the last place (docs/proofs/rounding.md, docs/proofs/gradient-methods.md section 2). Where the derivative jumps,
    the side of the corner is decided on the rounded prediction: a function of the record, its place and theta alone,
    so that only the summation rounds ("Corners" in section 2).
    """
    outer = radius * _SLACK
    exact = gradient_sensitivity(loss, feature_norm, outer, neighboring).value
    summed: Loss = loss
    if not math.isfinite(loss.smoothness):
        if not neighboring.size_is_public:
            raise ValueError(
                f"{type(loss).__name__} jumps in its derivative: under add-remove-one the other rows change places, "
                "their predictions may round differently, and every record at the corner could move the gradient at "
                "once; use HuberHinge instead of Hinge, or neighboring='replace-one' or 'zero-out'"
            )
        summed = Linear(loss.lipschitz)
    rounding = gradient_rounding(summed, n_samples, n_features, feature_norm, outer)
    return Sensitivity((exact + 2.0 * rounding) * _SLACK)


def gradient_mechanism(
    problem: Problem,
    field: Loss,
    radius: float,
    neighboring: Neighboring,
    noise_multiplier: float,
    row_error: float = 0.0,
) -> GaussianMechanism:
    """The noisy sum of gradients of all models, at points of the ball; K models have sqrt(K) times the sensitivity.

    ``row_error`` is how far a record may be from what it would be without rounding, for records made of others
    (docs/proofs/gradient-methods.md, section 7).
    """
    one = computed_gradient_sensitivity(
        field, problem.n_samples, problem.n_features, problem.bounds.feature_norm, radius, neighboring
    )
    value = one.value
    if row_error > 0:
        each = (field.lipschitz + field.smoothness * radius * problem.bounds.feature_norm) * row_error
        value += 2.02 * problem.n_samples * each
    every = Sensitivity(value * math.sqrt(problem.n_models))
    return GaussianMechanism(every, noise_multiplier, problem.n_coefficients)
