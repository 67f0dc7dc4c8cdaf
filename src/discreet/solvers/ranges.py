"""How far one record can move the sum of losses from one theta to another, and how far rounding can.

The exponential mechanism pays for the range of the difference of two neighbors' energies, not for its size. Proofs:
docs/proofs/exponential-sampling.md, section 1.
"""

from __future__ import annotations

import numpy as np

from discreet.losses import (
    CappedLogistic,
    Hinge,
    HuberHinge,
    HuberRegression,
    Logistic,
    Loss,
    Quantile,
    Squared,
)
from discreet.privacy.guarantee import Neighboring
from discreet.records.kernels import gamma, worst_additions

_SLACK = 1 + 2.0**-40
#: Losses whose range and rounding are bounded here and whose f'' rises and then falls, which the sampler needs.
PROVED_LOSSES = (Logistic, CappedLogistic, HuberHinge, Hinge, Squared, HuberRegression, Quantile)


def loss_range(loss: Loss, reach: float, label_bound: float | None) -> float:
    """max - min of one record's loss over raw predictions in [-reach, reach], for the worst label.

    >>> from discreet.losses import Logistic
    >>> round(loss_range(Logistic(), 3.0, None), 6)
    3.0
    """
    generic = 2.0 * reach * loss.lipschitz
    if loss.family in ("logistic", "monotone"):
        ends = loss.value(np.ones(2), np.array([-reach, reach]))
        generic = min(generic, float(ends[0] - ends[1]) + 2.0**-40 * (1 + reach))
    elif isinstance(loss, Squared | HuberRegression) and label_bound is not None:
        # An even function of t - y: the range grows with |y|, and its least value is at the nearest t.
        nearest = min(label_bound, reach)
        ends = loss.value(np.full(2, label_bound), np.array([-reach, nearest]))
        generic = min(generic, float(ends[0] - ends[1]) + 2.0**-40 * loss_scale(loss, reach, label_bound))
    return generic * _SLACK


def energy_range(
    loss: Loss,
    n_samples: int,
    n_features: int,
    reach: float,
    label_bound: float | None,
    neighboring: Neighboring,
) -> float:
    """max - min over a ball of the difference of two neighbors' sums of losses, as computed in float64."""
    exact = neighboring.contributions * loss_range(loss, reach, label_bound)
    rounding = value_rounding(loss, n_samples, n_features, reach, label_bound or 0.0)
    return (exact + 4 * rounding) * _SLACK


def loss_scale(loss: Loss, reach: float, label_bound: float) -> float:
    """A bound on |f| and on what its evaluation adds up, for raw predictions up to ``reach``."""
    return max(1.0, loss.lipschitz) * (1.0 + abs(loss.kernel_parameter) + reach + label_bound)


def value_rounding(loss: Loss, n_samples: int, n_features: int, reach: float, label_bound: float) -> float:
    """A proved bound on |computed - exact| for a sum of n losses at any theta with raw predictions up to ``reach``.

    Reads public numbers only; rounding of the raw predictions, of the loss (64 units) and of the sum.
    """
    roundings = n_features + worst_additions(n_samples) + 96
    return 1.02 * n_samples * loss_scale(loss, reach, label_bound) * gamma(roundings) + 2.0**-400
