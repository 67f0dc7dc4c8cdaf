"""Least-squares estimates from noisy counts, with intervals for noise and, if requested, sampling.

Every estimate is a linear function of the released numbers, or a ratio or a root of such functions, so the
distribution of its noise is known exactly. Proofs: docs/proofs/describe.md, section 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.special import ndtri

from discreet._typing import Array


@dataclass(frozen=True)
class Estimate:
    """A number with an interval and the standard deviation of its noise.

    value : the estimate, moved into the possible range; NaN if nothing is known.
    lower, upper : ends of the interval.
    noise : standard deviation of the privacy noise, before the value was moved into the possible range; NaN for
        quantiles, whose noise is in ranks.
    """

    value: float
    lower: float
    upper: float
    noise: float

    def to_dict(self) -> dict[str, float | None]:
        """Return the estimate as plain JSON-ready values; None for numbers that are not finite."""
        return {name: part if math.isfinite(part) else None for name, part in vars(self).items()}


@dataclass(frozen=True)
class Law:
    """The noise behind intervals, and what intervals cover.

    Attributes
    ----------
    variance : variance of the noise in one released number.
    confidence : confidence of every interval.
    gaussian : whether the noise is Gaussian; sums of Laplace noise have tails between both distributions.
    population : whether intervals cover the value in the population that rows are drawn from, not in the table.
    rows : maximum number of rows per person, which may be similar.
    """

    variance: float
    confidence: float
    gaussian: bool = True
    population: bool = False
    rows: int = 1

    @property
    def reach(self) -> float:
        """Half the length of an interval, in standard deviations."""
        tail = 1 - self.confidence
        normal = float(-ndtri(tail / 2))
        return normal if self.gaussian else max(normal, math.log(1 / tail) / math.sqrt(2))

    @property
    def sampled(self) -> float:
        """Factor of the sampling variance of independent rows; 0 for intervals about the table."""
        return float(self.rows) if self.population else 0.0


@dataclass(frozen=True, eq=False)
class Counts:
    """Estimated numbers of rows in all places: linear functions of the released numbers.

    Attributes
    ----------
    weights, offset : ``weights @ released + offset`` are the numbers of rows.
    values : these numbers.
    total : public number of all rows; None if it is private.
    """

    weights: Array
    offset: Array
    values: Array
    total: float | None

    @staticmethod
    def fitted(design: Array, released: Array, total: float | None) -> Counts:
        """Fit ``released = design @ counts + noise`` by least squares, given the total if it is public."""
        covariance = np.linalg.inv(design.T @ design)
        weights = covariance @ design.T
        offset = np.zeros(len(weights))
        if total is not None:
            share = covariance.sum(axis=1) / covariance.sum()
            weights = weights - np.outer(share, weights.sum(axis=0))
            offset = share * total
        return Counts(weights, offset, weights @ released + offset, total)

    def sums(self, places: Array) -> tuple[Array, Array]:
        """Return weighted sums of counts, one per row of ``places``, and their variances for noise of variance 1."""
        return places @ self.values, np.square(places @ self.weights).sum(axis=-1)

    def counted(self, places: Array, law: Law, rows: float) -> list[Estimate]:
        """Estimate sums of counts; ``places`` has one row of zeros and ones for each sum.

        rows : number of all rows, or an estimate of it.
        """
        values, variances = self.sums(places)
        return [
            count(float(value), law.variance * float(variance), law, rows, self.total)
            for value, variance in zip(values, variances, strict=True)
        ]


def count(value: float, variance: float, law: Law, rows: float, most: float | None) -> Estimate:
    """Estimate a number of rows; for the population, the expected number among equally many rows.

    The interval holds all c with (value - c)^2 <= z^2 (variance + sampled c (1 - c / rows)).
    """
    z2, rows = law.reach**2, max(rows, 1.0)
    square = 1 + z2 * law.sampled / rows
    middle = value + z2 * law.sampled / 2
    spread = math.sqrt(max(middle**2 - square * (value**2 - z2 * variance), 0.0))
    top = math.inf if most is None else most
    lower, upper, shown = (
        min(max(part, 0.0), top) for part in ((middle - spread) / square, (middle + spread) / square, value)
    )
    return Estimate(shown, lower, upper, math.sqrt(variance))


def ratio(
    sums: tuple[float, float], second: tuple[float, float, float], law: Law
) -> tuple[float, float, float]:
    """Estimate the ratio of two noisy sums, in [-1, 1], with its interval (Fieller).

    sums : numerator S and denominator D.
    second : variance of S, covariance, variance of D. The interval contains all t with
        (S - t D)^2 <= z^2 var(S - t D); all of [-1, 1] if D is not clearly above 0.
    """
    numerator, denominator = sums
    z2 = law.reach**2
    square = denominator**2 - z2 * second[2]
    value = min(1.0, max(-1.0, numerator / denominator)) if denominator > 0 else math.nan
    if square <= 0 or denominator <= 0:
        return value, -1.0, 1.0
    middle = numerator * denominator - z2 * second[1]
    spread = math.sqrt(max(middle**2 - square * (numerator**2 - z2 * second[0]), 0.0))
    lower, upper = (min(1.0, max(-1.0, (middle + side * spread) / square)) for side in (-1, 1))
    return value, lower, upper


def quantile(counts: Counts, edges: Array, level: float, law: Law) -> Estimate:
    """Estimate a quantile, with its interval, from the counts of parts between ``edges``, followed by the missing.

    For every inner edge, T is the number of rows below it minus ``level`` times the number of rows that are not
    missing. The part that contains the quantile has T <= 0 at its lower edge and T >= 0 at its upper one. The interval
    begins at the first part whose upper edge passes a test of T >= 0 and ends with the last one whose lower edge passes
    a test of T <= 0. Only the two tests at the right part can be wrong, so no correction for multiple tests is needed.
    """
    parts = len(edges) - 1
    present = float(counts.values[:parts].sum())
    if present <= 0:
        return Estimate(math.nan, float(edges[0]), float(edges[-1]), math.nan)
    below = np.tri(parts - 1, parts + 1)  # one row per inner edge
    below[:, :parts] -= level
    excess, variances = counts.sums(below)
    reach = law.reach * np.sqrt(law.variance * variances + law.sampled * present * level * (1 - level))
    first = int(np.argmax(np.append(excess >= -reach, True)))
    last = parts - 1 - int(np.argmax(np.append((excess <= reach)[::-1], True)))
    lower, upper = float(edges[first]), float(edges[max(first, last) + 1])
    # The increasing curve nearest to the shares below all edges; the estimate is where it passes the level.
    shares = np.clip(isotonic_regression(excess / present + level).x, 0.0, 1.0)
    value = float(np.interp(level, np.concatenate([[0.0], shares, [1.0]]), edges))
    return Estimate(min(max(value, lower), upper), lower, upper, math.nan)
