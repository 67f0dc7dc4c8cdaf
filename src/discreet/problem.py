"""The learning problem, described by public numbers only. It never stores a row, label or seed."""

from __future__ import annotations

from dataclasses import dataclass

from discreet.losses import Loss
from discreet.privacy.guarantee import Neighboring, Sensitivity, sum_sensitivity
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
        return self.n_features * self.loss.n_outputs * self.n_models

    def gradient_sensitivity(self, neighboring: Neighboring) -> Sensitivity:
        """L2 sensitivity of one model's summed gradient at a fixed point."""
        return sum_sensitivity(self.loss.lipschitz * self.bounds.feature_norm, neighboring)
