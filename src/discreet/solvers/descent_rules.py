"""How far noisy descent walks and how hard one record may pull, by public numbers.

The constants were measured on public data: docs/decisions/0009-noisy-descent-rule.md.
"""

from __future__ import annotations

import math

from discreet.losses import CappedLogistic, CappedSoftmax, Logistic, Loss, Softmax
from discreet.privacy.guarantee import Guarantee
from discreet.problem import Problem

_TIME = 0.055  # flow time per (signal over noise)^1.5


def signal_over_noise(problem: Problem, guarantee: Guarantee, field: Loss, budget: float) -> float:
    """Records per class over the noise of one release of everything, in units of a record's derivative bound."""
    contributions = guarantee.neighboring.contributions * math.sqrt(problem.n_models)
    per_class = problem.n_samples / max(1, field.n_outputs)
    return float(per_class * budget / (contributions * field.lipschitz))


def flow_time(problem: Problem, signal: float) -> float:
    """Sum of the steps: in time t, noise moves the prediction of a full row by t / (signal over noise) or so.

    More records bear more time. More columns mean more directions that time fills with noise before it finds
    anything in them, and somewhat less time is better, at most by a factor that is nearer 1 the more signal there is.
    """
    per_class = max(1, problem.loss.n_outputs)
    least = min(0.6, max(0.3, 0.3 * signal / 1000))
    columns = min(1.5, max(least, (problem.n_features / 100) ** -0.25))
    return float(_TIME * columns * signal**1.5 * per_class / problem.bounds.feature_norm**2)


def default_radius(problem: Problem, signal: float) -> float:
    """Wide enough not to matter: far beyond where the flow time leads."""
    return 100.0 * max(1.0, math.sqrt(signal)) / problem.bounds.feature_norm


def default_cap(problem: Problem, guarantee: Guarantee, budget: float) -> float:
    """How hard one record may pull: the less the noise, the closer to the loss as it is.

    Records that the model gets wrong are the ones a cap silences; while noise rules they cost more than they tell.
    """
    signal = signal_over_noise(problem, guarantee, problem.loss, budget) * problem.loss.lipschitz
    if isinstance(problem.loss, Softmax):
        return float(0.15 * max(1.0, signal / 500) ** (1 / 3))
    return float(0.55 * max(1.0, signal / 2000) ** (1 / 3))


def capped(problem: Problem, guarantee: Guarantee, budget: float, cap: float | None) -> Loss:
    """The loss with its derivative capped, by the public rule where ``cap`` is None."""
    loss = problem.loss
    if not isinstance(loss, Logistic | Softmax):
        if cap is not None:
            raise ValueError(f"cap applies to logistic and softmax losses, not to {loss}; leave it at None")
        return loss
    if cap is None:
        cap = default_cap(problem, guarantee, budget)
    if isinstance(loss, Softmax):
        return loss if cap >= loss.lipschitz else CappedSoftmax(loss.n_classes, cap)
    return loss if cap >= 1 else CappedLogistic(cap)


def typical_curvature(field: Loss) -> float:
    """Curvature of the mean loss at the start, for rows that all point one way."""
    if isinstance(field, CappedSoftmax):
        residual = math.sqrt(1 - 1 / field.n_classes)
        return min(1.0, field.cap / residual) / field.n_classes
    if isinstance(field, Softmax):
        return 1 / field.n_classes
    return min(1.0, field.smoothness)  # rounded corners are steep where few records are
