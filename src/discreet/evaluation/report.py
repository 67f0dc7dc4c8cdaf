"""What an evaluation releases: metrics with intervals, for all records and for subgroups."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.evaluation.estimates import Estimate, Noise, area_under_curve, mean_of_cells, proportion
from discreet.evaluation.plans import TERMS
from discreet.privacy.statement import PrivacyStatement

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Evaluation:
    """Metrics of one model on private held-out records, and their promise.

    Attributes
    ----------
    metrics : estimates by name, for all records together.
    by_group : the same for every declared subgroup.
    confusion : noisy counts, rows true classes, columns predicted ones; None for regressors.
    calibration : for binary classifiers with probabilities: per bin of the predicted probability, the observed share
        of positives; empty otherwise.
    confidence : probability with which one interval covers its value in the population.
    """

    metrics: Mapping[str, Estimate]
    by_group: Mapping[Any, Mapping[str, Estimate]]
    confusion: Array | None
    calibration: tuple[tuple[float, float, Estimate], ...]
    classes: NDArray[Any] | None
    confidence: float
    privacy_: PrivacyStatement = field(repr=False)

    def __getitem__(self, name: str) -> Estimate:
        return self.metrics[name]

    def to_dict(self) -> dict[str, Any]:
        """The evaluation as plain JSON-ready values; unbounded ends are None."""
        return {
            "metrics": {name: _plain(one) for name, one in self.metrics.items()},
            "by_group": {
                str(group): {name: _plain(one) for name, one in part.items()}
                for group, part in self.by_group.items()
            },
            "confusion": None if self.confusion is None else self.confusion.tolist(),
            "classes": None if self.classes is None else self.classes.tolist(),
            "calibration": [{"from": low, "to": high, **_plain(one)} for low, high, one in self.calibration],
            "confidence": self.confidence,
            "privacy": self.privacy_.to_dict(),
        }

    def __str__(self) -> str:
        level = f"{100 * self.confidence:g}%"
        lines = [f"Evaluation, with {level} intervals for noise and sampling together"]
        lines += [f"  {name:<34}{one}" for name, one in self.metrics.items()]
        for group, part in self.by_group.items():
            lines += [f"  group {group!r}", *(f"    {name:<32}{one}" for name, one in part.items())]
        if self.confusion is not None and self.classes is not None:
            lines.append("  confusion (noisy counts; rows true, columns predicted)")
            lines.append(" " * 16 + "".join(f"{label!s:>14.14}" for label in self.classes))
            for label, row in zip(self.classes, self.confusion, strict=True):
                lines.append(f"    {label!s:<12.12}" + "".join(f"{count:14.1f}" for count in row))
        if self.calibration:
            lines.append("  calibration (predicted probability: observed share)")
            lines += [f"    {low:.2f} to {high:.2f}    {one}" for low, high, one in self.calibration]
        promise = self.privacy_
        lines.append(f"  price: ({promise.epsilon:g}, {promise.delta:.3g}), {promise.neighboring.value}")
        return "\n".join(lines)


def _plain(one: Estimate) -> dict[str, float | None]:
    return {
        name: value if math.isfinite(value) else None
        for name, value in (
            ("value", one.value),
            ("lower", one.lower),
            ("upper", one.upper),
            ("noise", one.noise),
        )
    }


def classifier_metrics(
    classes: NDArray[Any],
    noise: Noise,
    cells: int,
    confusion: Array,
    scores: Array | None = None,
    rest: float = 0.0,
) -> dict[str, Estimate]:
    """Metrics of one table of true by predicted class and, for two classes, one of true class by score bin.

    cells : number of noisy cells that were added up to give each entry.
    rest : sum of what scores differ from the centers of their bins.
    """
    summed = Noise(noise.variance * cells, noise.quantile)
    diagonal = np.eye(len(confusion), dtype=bool)
    found = {"accuracy": proportion(confusion[diagonal], confusion[~diagonal], summed)}
    for k, label in enumerate(classes):
        others = np.arange(len(classes)) != k
        found[f"recall of {label}"] = proportion(confusion[k, [k]], confusion[k, others], summed)
        found[f"precision of {label}"] = proportion(confusion[[k], k], confusion[others, k], summed)
    if scores is not None:
        n_bins = scores.shape[1]
        weights = np.stack([centers(n_bins), centers(n_bins) - 1])
        found["AUC"] = area_under_curve(scores[1], scores[0], summed)
        found["mean predicted - observed"] = mean_of_cells(weights, scores, rest, 0.5 / n_bins, summed)
    return found


def calibration_of(scores: Array, noise: Noise, cells: int) -> tuple[tuple[float, float, Estimate], ...]:
    """Observed share of positives in every bin of the predicted probability."""
    summed, n_bins = Noise(noise.variance * cells, noise.quantile), scores.shape[1]
    return tuple(
        (b / n_bins, (b + 1) / n_bins, proportion(scores[1, [b]], scores[0, [b]], summed))
        for b in range(n_bins)
    )


def centers(n_bins: int) -> Array:
    """The middle of every bin of [0, 1]."""
    return np.asarray((np.arange(n_bins) + 0.5) / n_bins)


def regressor_metrics(sums: Array, noise: Noise, half_width: float, cells: int = 1) -> dict[str, Estimate]:
    """R^2 and mean squared error from the sums of `TERMS`, by the delta method.

    With c = 1 - R^2 a record's influence on R^2 is (c (y - mean)^2 - r^2) / Var(y), r^2 = 4 q.
    """
    weights = np.array([weight for *_, weight in TERMS])
    variances = cells * noise.variance / weights**2
    n = float(sums[0])
    unknown = Estimate(math.nan, -math.inf, 1.0, math.inf)
    if n <= 3 * math.sqrt(variances[0]) or n < 2:
        return {"R^2": unknown, "mean squared error": Estimate(math.nan, 0.0, math.inf, math.inf)}
    m, m2, q, m3, m4, qy, qy2, q2 = sums[1:] / n
    scale = 4 * half_width**2
    q_noise = math.sqrt(variances[3] + q**2 * variances[0]) / n
    q_half = noise.quantile * math.hypot(q_noise, math.sqrt(max(0.0, q2 - q * q) / n))
    error = Estimate(scale * max(0.0, q), scale * max(0.0, q - q_half), scale * (q + q_half), scale * q_noise)
    spread = m2 - m * m
    gradient = np.array([0.0, -2 * m, 1.0, 0.0])  # of the spread, by (1, y, y^2, q) per record
    gradient[0] = -(m2 - 2 * m * m)
    if spread <= 3 * math.sqrt(float(gradient**2 @ variances[:4])) / n:
        return {"R^2": unknown, "mean squared error": error}
    lost = 4 * q / spread
    by_term = 4 * np.array([-q, 0.0, 0.0, 1.0]) / spread - lost / spread * gradient
    noise_part = math.sqrt(float(by_term**2 @ variances[:4])) / n
    fourth = m4 - 4 * m * m3 + 6 * m * m * m2 - 3 * m**4
    mixed = qy2 - 2 * m * qy + m * m * q
    sampling = max(0.0, 16 * q2 - 8 * lost * mixed + lost**2 * fourth) / spread**2 / n
    half = noise.quantile * math.hypot(noise_part, math.sqrt(sampling))
    value = 1 - lost
    return {
        "R^2": Estimate(min(1.0, value), value - half, min(1.0, value + half), noise_part),
        "mean squared error": error,
    }
