"""One stage of a fit: two looks at the second moment of records, then clipped gradients and their posterior mean.

The first stage fits the shapes of single columns, the second those of pairs, to what the first left over. Proofs:
docs/proofs/additive-models.md, section 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, cast

import numpy as np
from scipy.special import expit, softmax

from discreet._typing import Array
from discreet.additive.bands import Slope, Trace, class_slope, count_slope
from discreet.additive.records import BinnedRecords, gram_rounding, root_steps, steps, sum_rounding
from discreet.losses import Poisson
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.privacy import events
from discreet.privacy.accounting.calibration import multiplier, share_event
from discreet.privacy.guarantee import SLACK, Neighboring, Sensitivity, sum_sensitivity
from discreet.records.bounds import UNIT_ROUNDOFF
from discreet.solvers.base import PlannedRelease
from discreet.solvers.gradients.descent import reshaped_cap
from discreet.solvers.second_order.clipped_gradients import ClippedGradient, WithCompanion
from discreet.solvers.second_order.coordinates import (
    MomentMechanism,
    NoisyMoments,
    Reshaping,
    reshaped,
)
from discreet.solvers.second_order.posterior import (
    Curvature,
    PosteriorMean,
    ResidualScale,
    clip_multiple,
    prior_root,
    unclipped_share,
)

Task = Literal["classes", "target", "count"]
Offset = Callable[[slice], Any]
Slopes = Callable[[Array, slice], Array]
Rate = Callable[[Array, float], float]

_LOOKS = 0.05, 0.10  # of the stage's budget, for two looks at the second moment
_CLIP = 1.5  # reshaped records are clipped to this multiple of their root mean square
_UNSURE = 2.0  # standard deviations by which that mean square may be larger than it looks
_REACH = 4.0  # coefficients stay within this multiple of the root mean square that the prior expects
_STEPS = {"classes": 40, "target": 30, "count": 30}
_CURVATURE_WEIGHT = {"classes": 1.0, "target": 0.25, "count": 0.25}
_DOUBT = {"classes": 0.0, "target": 0.0, "count": 0.5}  # relative error of the expected slope
_SLOPE = 0.2  # of the logistic function, on average
_FULL_CAP = 0.6  # a cap beyond which that slope is felt in full
_LEAST_SHARE = 0.2


@dataclass(frozen=True)
class ResidualMechanism(WithCompanion):
    """The sum of clipped residuals times records, for one or more outputs, with its companion.

    The residuals of one record, one per output, are clipped to the norm ``cap`` together.

    Parameters
    ----------
    cap : bound on the norm of the residuals of one record.
    n_samples, n_features, feature_norm : public sizes and the bound on records.
    n_vectors : of how many vectors a record is the sum, at most.

    Privacy
    -------
    What a record adds is a function of its own row to the last bit, and sums of it are exact: only the products with
    the vectors round. Event: one ``Gaussian(noise_multiplier)`` on n_features * n_outputs + 1 numbers.
    """

    cap: float
    n_samples: int
    n_features: int
    n_vectors: int
    feature_norm: float
    neighboring: Neighboring
    noise_multiplier: float
    n_outputs: int = 1

    def __post_init__(self) -> None:
        _ = self.gaussian  # raise now if anything can fail

    @cached_property
    def gaussian(self) -> GaussianMechanism:
        """The mechanism behind the release; its sensitivity covers the rounding of both sums."""
        exact = sum_sensitivity(self.cap * self.feature_norm, self.neighboring).value
        clip = 1 + (self.n_outputs + 8) * UNIT_ROUNDOFF  # of several residuals at once
        rounding = self.cap * sum_rounding(self.n_samples, self.n_features, self.n_vectors)
        rounding += 1.01 * UNIT_ROUNDOFF * self.n_samples * self.weight
        value = (exact * clip + 2 * rounding) * SLACK
        return GaussianMechanism(
            Sensitivity(value), self.noise_multiplier, self.n_features * self.n_outputs + 1
        )

    def release_sums(
        self, records: BinnedRecords, theta: Array, slopes: Slopes, entropy: Entropy
    ) -> ClippedGradient:
        """The noisy sums at ``theta``, of shape (n_features, n_outputs); ``slopes`` makes residuals of predictions.

        Weights and companions of records are whole numbers of small steps, away from what would move a sum further, so
        that their sums are exact.
        """
        exchanged = self.neighboring.contributions == 2
        whole, root = steps(self.n_samples), root_steps(self.n_samples)
        added = records.vectors @ theta
        counts, companions = np.zeros((len(records.vectors), self.n_outputs)), 0.0
        for rows, hot in records.blocks():
            scales = records.scales[rows]
            found = slopes((hot @ added) * scales[:, None], rows)
            sizes = np.sqrt(np.square(found).sum(axis=1)) if self.n_outputs > 1 else np.abs(found[:, 0])
            clipped = found / np.maximum(sizes, self.cap)[:, None]
            counts += hot.T @ np.trunc(clipped * (scales * whole)[:, None])
            squares = np.square(np.ceil(np.minimum(sizes / self.cap, 1.0) * root))
            companions += np.where(scales == 0, 0.0, squares if exchanged else root**2 - squares).sum()
        sums = self.cap / whole * (records.vectors.T @ counts)
        noisy = self.noisy(np.append(sums.T, self.weight * (companions / root**2)), entropy)
        return replace(noisy, gradient=noisy.gradient.reshape(self.n_outputs, self.n_features).T)


@dataclass(frozen=True)
class Stage:
    """A calibrated stage.

    Parameters
    ----------
    task : classes, whose residuals are probabilities minus labels; a target between -1 and 1; or a count, whose
        residuals are predicted means minus counts.
    n_samples : public number of records, or an upper bound.
    most_features : the largest width that records can have, whatever bins are chosen.
    n_vectors : of how many vectors a record is the sum, at most.
    n_outputs : 1, or the number of classes if there are more than two.
    neighboring, unit, share : the relation; the noise multiplier of one release with the whole budget; the part of its
        squared parameter that this stage has.
    prior : variance of a coefficient before any data.
    scale : standard deviation of residuals before any data.
    n_iterations : noisy gradients; None for the default of the task.
    reach : of counts: predicted means lie between exp(-reach) and exp(reach), and counts below the latter.
    """

    task: Task
    n_samples: int
    most_features: int
    n_vectors: int
    n_outputs: int
    neighboring: Neighboring
    unit: float
    share: float
    prior: float
    scale: float = 0.5
    n_iterations: int | None = None
    reach: float = 1.0
    name: str = field(default="columns", kw_only=True)

    @property
    def steps(self) -> int:
        """Number of noisy gradients."""
        return _STEPS[self.task] if self.n_iterations is None else self.n_iterations

    @property
    def signal(self) -> float:
        """Records times the Gaussian-DP parameter of the stage, over the records that differ between neighbors."""
        return self.n_samples * math.sqrt(self.share) / self.unit / self.neighboring.contributions

    @cached_property
    def radius(self) -> float:
        """Of the ball of coefficients in reshaped coordinates: they grow as much as directions shrink."""
        noise = multiplier(self.unit, self.share * _LOOKS[1]) * math.sqrt(2 * self.most_features)
        return _REACH * math.sqrt(self.prior * self.most_features * (1 + self.n_samples / noise))

    @property
    def event(self) -> events.Event:
        """What the stage costs at most: for the widest records."""
        p = self.most_features
        looks = [share_event(self.unit, self.share * look, p * (p + 1) // 2) for look in _LOOKS]
        gradient = share_event(self.unit, self._gradient_share, p * self.n_outputs + 1)
        return events.Composed((*looks, events.Repeated(gradient, self.steps)))

    @property
    def _gradient_share(self) -> float:
        return self.share * (1 - sum(_LOOKS)) / self.steps

    def look(self, place: int, width: int, norm: float) -> MomentMechanism:
        """The release of the second moment of records of this width and norm."""
        noise = multiplier(self.unit, self.share * _LOOKS[place])
        rounding = gram_rounding(self.n_samples, width, self.n_vectors)
        return MomentMechanism(
            self.n_samples, width, norm, 0.0, 1.0, self.neighboring, noise, rounding=rounding
        )

    def residuals(self, width: int, norm: float, cap: float) -> ResidualMechanism:
        """The release of one gradient."""
        return ResidualMechanism(
            cap,
            self.n_samples,
            width,
            self.n_vectors,
            norm,
            self.neighboring,
            multiplier(self.unit, self._gradient_share),
            self.n_outputs,
        )

    @cached_property
    def releases(self) -> tuple[PlannedRelease, ...]:
        """Everything that the stage releases, at its largest: for the widest records, not shrunk."""
        width = self.most_features
        looks = [
            PlannedRelease(self.look(place, width, 1.0), f"second moment of {self.name}")
            for place in range(len(_LOOKS))
        ]
        gradient = self.residuals(width, 1.0, self.largest_cap)
        return (*looks, PlannedRelease(gradient, f"gradients of {self.name}", self.steps))

    @property
    def largest_cap(self) -> float:
        """The largest norm of residuals that is ever left of one record."""
        return count_loss(self.reach).lipschitz if self.task == "count" else 1.0

    def run(
        self, records: BinnedRecords, slopes: Slopes, entropy: Entropy, rate: Rate | None = None
    ) -> Array:
        """Coefficients of the records' coordinates, of shape (width, outputs)."""
        return self.traced(records, slopes, entropy, rate)[0]

    def traced(
        self, records: BinnedRecords, slopes: Slopes, entropy: Entropy, rate: Rate | None = None
    ) -> tuple[Array, Trace]:
        """The coefficients, and what was released beside them, of the first output.

        ``rate`` gives the mean slope of residuals that are not clipped, from coefficients and the mean square of their
        predictions; None for 1.
        """
        width = records.n_features
        noisy = self.look(0, width, 1.0).release(cast(Any, records), entropy)
        first = self._reshaped(noisy, 1.0)
        images = records.images(first.matrix, first.norm)
        noisy = self.look(1, width, first.norm).release(cast(Any, images), entropy)
        second = self._reshaped(noisy, first.norm)
        shape = first.then(second)
        shaped = records.images(shape.matrix, shape.norm)
        curvature = Curvature.from_moments(noisy, second.matrix)
        root = prior_root(shape.matrix, np.full(width, self.prior))
        weight = _CURVATURE_WEIGHT[self.task]
        means = [
            PosteriorMean(curvature, root, radius=self.radius, curvature_weight=weight)
            for _ in range(self.n_outputs)
        ]
        scale = ResidualScale(self.scale)
        theta, cap = np.zeros((width, self.n_outputs)), self.largest_cap
        for _ in range(self.steps):
            cap, factor = self._clipping(scale.scale, width)
            if rate is not None:
                square = float(theta[:, 0] @ curvature.matrix @ theta[:, 0]) / self.n_samples
                factor *= rate(shape.matrix @ theta, max(square, 0.0))
            mechanism = self.residuals(width, shape.norm, cap)
            found = mechanism.release_sums(shaped, theta, slopes, entropy)
            for output, mean in enumerate(means):
                theta[:, output] = mean.update(
                    found.gradient[:, output], found.stddev, factor, _DOUBT[self.task]
                )
            scale.update(found.mean_square, found.mean_square_stddev, cap)
        trace = Trace(noisy, first, second, means[0], cap, scale.scale)
        return np.asarray(shape.matrix @ theta), trace

    def slope(self, trace: Trace, middle: float) -> Slope:
        """The mean slope of clipped residuals, by the prediction; ``middle`` is the logarithm of the mean of counts."""
        if self.task == "classes":
            return class_slope(trace.cap)
        if self.task == "count":
            return count_slope(trace.cap, trace.scale, self.reach, middle)
        share = max(_LEAST_SHARE, unclipped_share(trace.cap / trace.scale))
        return lambda raw: np.full_like(raw, share)

    def _reshaped(self, noisy: NoisyMoments, bound: float) -> Reshaping:
        """Coordinates in which directions that rise above the noise are shrunk to it."""
        return reshaped(noisy, self.n_samples, bound, 1.0, _CLIP, unsure=_UNSURE)

    def _clipping(self, scale: float, width: int) -> tuple[float, float]:
        """The cap of residuals, and the slope that gradients are expected to have."""
        if self.task == "classes":
            cap = reshaped_cap(self.signal)
            several = 1.0 if self.n_outputs == 1 else 4 * max(1 / self.n_outputs, 0.3)
            return cap, _SLOPE * several * min(1.0, cap / _FULL_CAP)
        multiple = clip_multiple(self.signal / width)
        if self.task == "count":
            widest = 0.5 * self.largest_cap * min(2.0, max(1.0, multiple / 4))
            cap = min(widest, multiple * scale)
        else:
            cap = min(1.0, min(4.0, multiple) * scale)
        return cap, max(_LEAST_SHARE, unclipped_share(cap / scale))


def no_offset(rows: slice) -> float:
    """Predictions that start from 0."""
    return 0.0


def class_slopes(codes: Array, n_outputs: int, offset: Offset) -> Slopes:
    """Probabilities minus labels, of two classes (one output) or more."""
    known = np.arange(n_outputs) if n_outputs > 1 else 1

    def slopes(raw: Array, rows: slice) -> Array:
        shifted = raw + offset(rows)
        found = expit(shifted) if n_outputs == 1 else softmax(shifted, axis=1)
        return np.asarray(found - (codes[rows, None] == known))

    return slopes


def target_slopes(targets: Array, offset: Offset) -> Slopes:
    """Predictions minus targets."""
    return lambda raw, rows: raw + offset(rows) - targets[rows, None]


def count_loss(reach: float) -> Poisson:
    """The loss of counts in units of the mean at raw prediction 0, the geometric mean of the lowest and the highest."""
    return Poisson(prediction_bound=reach, label_bound=math.exp(reach) * (1 + 1e-12))


def count_slopes(counts: Array, reach: float, offset: Offset) -> Slopes:
    """Predicted means, kept within their range, minus counts."""
    loss = count_loss(reach)
    return lambda raw, rows: loss.derivative(counts[rows, None], raw + offset(rows))
