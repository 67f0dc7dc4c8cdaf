"""How hard one record may pull in a regression, and how much of the curvature is then felt, for each loss.

Functions of public and released numbers only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from scipy.special import ndtri

from discreet.losses import HuberRegression, Loss
from discreet.solvers.gradients.posterior import ResidualScale, unclipped_share

_SMALLEST_SHARE = 0.2  # of derivatives that are not clipped: a smaller one would make long steps


@dataclass(frozen=True)
class Aim:
    """What a series of gradients looks for.

    Attributes
    ----------
    loss : whose derivatives are summed.
    n_steps : how many gradients.
    widest : the largest cap.
    multiple : the cap, in standard deviations of residuals.
    shape : how the slope of derivatives follows from the residuals: "residual" (that of a clipped residual), "mean"
        (the predicted mean of counts, clipped) or "density" (of residuals at their quantile ``at``).
    reach : how far from the start the coefficients may be, in units of the prior.
    shift : how far predictions are moved first.
    """

    loss: Loss
    n_steps: int
    scale: ResidualScale
    widest: float
    multiple: float = math.inf
    shape: Literal["residual", "mean", "density"] = "residual"
    at: float = field(default=0.0, kw_only=True)
    reach: float = field(default=1.0, kw_only=True)
    shift: float = field(default=0.0, kw_only=True)

    @property
    def cap(self) -> float:
        """The cap for residuals of the size that was heard of."""
        return min(self.widest, self.multiple * self.scale.scale)

    def felt(self, cap: float, mean: float, variance: float) -> tuple[float, float]:
        """The mean slope of derivatives, for predictions of this mean and variance, and how much of it to doubt."""
        if self.shape == "density":
            return math.exp(-(self.at**2) / 2) / math.sqrt(2 * math.pi) / self.scale.scale, 0.5
        share = max(_SMALLEST_SHARE, unclipped_share(cap / self.scale.scale))
        if self.shape == "residual":
            return share, 1 - share
        bound = self.loss.prediction_bound
        return share * math.exp(min(bound, max(-bound, mean + variance / 2))), 0.5


def clip_multiple(per_column: float) -> float:
    """The cap in standard deviations: small ones are cheap, and biased where targets are skewed.

    ``per_column`` is the signal over noise, divided by the number of columns.
    """
    return float(max(0.8, 0.6 * per_column**0.3))


def aims_of(loss: Loss, per_column: float, n_steps: int, cap: float | None) -> Iterator[Aim]:
    """What the gradients of a fit look for, one series after the other."""
    multiple = clip_multiple(per_column)
    most = loss.lipschitz if cap is None else cap
    if loss.aims_at == "count":
        middle = (loss.label_bound or 1.0) / 2
        widest = min(most, middle * max(1.0, multiple / 4))
        reach = loss.prediction_bound
        yield Aim(loss, n_steps, ResidualScale(middle / 2), widest, multiple, "mean", reach=reach)
        return
    scale, widest = ResidualScale(0.5), min(2.0, max(1.0, multiple / 4))
    if loss.aims_at == "mean":
        yield Aim(loss, n_steps, scale, min(most, widest), multiple)
        return
    # First the middle of the residuals and their size, then the quantile, which is near.
    centering, at = (n_steps + 1) // 2, float(ndtri(loss.quantile))
    yield Aim(HuberRegression(widest), centering, scale, widest, multiple)
    settled, reach = scale.scale, min(1.0, scale.scale)
    if n_steps > centering:
        yield Aim(
            loss, n_steps - centering, ResidualScale(settled), most, shape="density", at=at, reach=reach,
            shift=at * settled,
        )  # fmt: skip
