"""The report of an evaluation: metrics with intervals, for all records and for subgroups."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet._typing import Array
from discreet.display.page import Bar, Page
from discreet.evaluation.estimates import CLEAR, UNKNOWN, Estimate, Noise, Scores, interval, proportion
from discreet.evaluation.plans import TERMS
from discreet.privacy.page import add_details, add_promise, add_verdict, in_short
from discreet.privacy.statement import PrivacyStatement


@dataclass(frozen=True)
class Evaluation:
    """Metrics of one model on private held-out records, with their privacy statement.

    Attributes
    ----------
    metrics : estimates by name, for all records together.
    by_group : the same for every declared subgroup.
    confusion : noisy counts, rows true classes, columns predicted ones; None for regressors.
    calibration : for binary classifiers with probabilities: per bin of the predicted probability, the observed share
        of positives; empty otherwise.
    confidence : probability that one interval covers its value in the population.
    """

    metrics: Mapping[str, Estimate]
    by_group: Mapping[Any, Mapping[str, Estimate]]
    confusion: Array | None
    calibration: tuple[tuple[float, float, Estimate], ...]
    classes: NDArray[Any] | None
    confidence: float
    privacy_: PrivacyStatement = field(repr=False)

    @property
    def released_(self) -> dict[str, Any]:
        """All numbers of the report; the ledger stores their digest (`release_digest`)."""
        parts = {"": self.metrics} | {f"group {group!r}: ": part for group, part in self.by_group.items()}
        named = {of + name: one for of, part in parts.items() for name, one in part.items()}
        return {
            "metrics": np.array(list(named), dtype=object),
            "estimates": _table(named.values()),
            "confusion": self.confusion,
            "classes": self.classes,
            "bins": np.array([ends for *ends, _ in self.calibration]),
            "calibration": _table(one for *_, one in self.calibration),
            "confidence": self.confidence,
        }

    def __getitem__(self, name: str) -> Estimate:
        return self.metrics[name]

    def to_dict(self) -> dict[str, Any]:
        """Return the evaluation as plain JSON-ready values; unbounded ends are None."""
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
        price = f"  price: ({promise.epsilon:g}, {promise.delta:.3g}), {promise.neighboring.value}"
        lines.append(f"{price}, unit: {promise.guarantee.unit}")
        return "\n".join(lines)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write the evaluation as a page for people."""
        evaluation_page(self).write(path)

    def _repr_html_(self) -> str:
        return evaluation_page(self).fragment()


def _table(estimates: Iterable[Estimate]) -> Array:
    return np.array([(one.value, one.lower, one.upper, one.noise) for one in estimates], dtype=np.float64)


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
    """Compute metrics from a table of true by predicted class and, for two classes, one of true class by score bin.

    For more classes see `areas`.

    cells : number of noisy cells added up in each entry.
    rest : sum of the differences between scores and the centers of their bins.
    """
    noise = noise.times(cells)
    diagonal = np.eye(len(confusion), dtype=bool)
    found = {
        "accuracy": proportion(confusion[diagonal], confusion[~diagonal], noise),
        "majority baseline": _majority(confusion, noise),
    }
    for k, label in enumerate(classes):
        others = np.arange(len(classes)) != k
        found[f"recall of {label}"] = proportion(confusion[k, [k]], confusion[k, others], noise)
        found[f"precision of {label}"] = proportion(confusion[[k], k], confusion[others, k], noise)
    if scores is not None:
        n_bins = scores.shape[1]
        agreed = Scores.agreed(scores, confusion, noise)
        weights = np.stack([centers(n_bins), centers(n_bins) - 1])
        found["AUC"] = agreed.area_under_curve()
        found["mean predicted - observed"] = agreed.mean(weights, rest, 0.5 / n_bins)
    return found


def areas(classes: NDArray[Any], noise: Noise, tables: Sequence[Array]) -> dict[str, Estimate]:
    """Estimate the AUC of each class against the rest, from one table of (rest, class) by score bin each, and the mean.

    The interval of the mean consists of the means of the ends of intervals that cover all classes together: each gets a
    part of the error probability (docs/proofs/evaluation.md, section 2). It is unknown if one of them is.
    """
    found = {
        f"AUC of {label}": Scores(table, noise).area_under_curve()
        for label, table in zip(classes, tables, strict=True)
    }
    sure = replace(noise, confidence=1 - (1 - noise.confidence) / len(classes))
    each = [Scores(table, sure).area_under_curve() for table in tables]
    value, lower, upper = (
        float(np.mean([getattr(one, of) for one in each])) for of in ("value", "lower", "upper")
    )
    spread = math.sqrt(sum(one.noise**2 for one in each)) / len(each)
    mean = UNKNOWN if math.isnan(value) else Estimate(value, lower, upper, spread)
    return {"AUC (mean of classes)": mean, **found}


def _majority(confusion: Array, noise: Noise) -> Estimate:
    """Estimate the accuracy of always predicting the most frequent class.

    The largest share lies above all lower ends of shares if each covers, and below the upper end of its own. So
    intervals of all classes together cover it: each gets a part of the error probability.
    """
    k = len(confusion)
    noise = replace(noise, confidence=1 - (1 - noise.confidence) / k)
    shares = [proportion(confusion[one], confusion[np.arange(k) != one].ravel(), noise) for one in range(k)]
    best = max(shares, key=lambda share: share.value)
    return Estimate(
        best.value, max(one.lower for one in shares), max(one.upper for one in shares), best.noise
    )


def calibration_of(scores: Array, noise: Noise, cells: int) -> tuple[tuple[float, float, Estimate], ...]:
    """Estimate the observed share of positives in every bin of the predicted probability."""
    noise, n_bins = noise.times(cells), scores.shape[1]
    return tuple(
        (b / n_bins, (b + 1) / n_bins, proportion(scores[1, [b]], scores[0, [b]], noise))
        for b in range(n_bins)
    )


def centers(n_bins: int) -> Array:
    """Return the centers of the bins of [0, 1]."""
    return np.asarray((np.arange(n_bins) + 0.5) / n_bins)


def regressor_metrics(sums: Array, noise: Noise, half_width: float, cells: int = 1) -> dict[str, Estimate]:
    """Estimate R^2 and mean squared error from the sums of `TERMS`, for targets scaled to [-1, 1].

    T(e) = sum q - e n for the mean e of q = r^2 / 4, and T(c) = n sum r^2 - c (n sum y^2 - (sum y)^2) for c = 1 - R^2.
    """
    weights, noise = np.array([weight for *_, weight in TERMS]), noise.times(cells)
    variances = noise.variance / weights**2
    n, scale = float(sums[0]), 4 * half_width**2
    clear = n - CLEAR * noise.stddev
    unknown = {
        "R^2": Estimate(math.nan, -math.inf, 1.0, math.inf),
        "mean squared error": replace(UNKNOWN, upper=scale),
    }
    if n < 2 or clear <= 0:
        return unknown
    error = _mean_error(sums, noise, clear)
    in_units = Estimate(*(scale * part for part in (error.value, error.lower, error.upper, error.noise)))
    return {"R^2": _explained(sums, variances, noise, clear), "mean squared error": in_units}


def _mean_error(sums: Array, noise: Noise, clear: float) -> Estimate:
    """Estimate the mean of q, which lies in [0, 1], so its variance is at most e (1 - e)."""
    n, q, q2, s = float(sums[0]), float(sums[3]), float(sums[8]), noise.variance

    def pivot(e: Array) -> tuple[Array, Array, tuple[Array, ...]]:
        sampling = np.clip(q2 - 2 * e * q + e**2 * n, 0.0, n * e * (1 - e))
        return q - e * n, noise.rows * sampling + s * (1 + e**2), (-s * e,)

    value = min(1.0, max(0.0, q / n))
    spread = math.sqrt(s * (1 + value**2)) / n
    return Estimate(value, *interval(pivot, (clear,), value, 0.0, 1.0, noise), spread)


def _explained(sums: Array, variances: Array, noise: Noise, clear: float) -> Estimate:
    """Estimate R^2, searching over u = c / (1 + c) in [0, 1], c = 1 - R^2."""
    n, y, y2, q = (float(part) for part in sums[:4])
    varies = (
        n * y2 - y * y + float(variances[1])
    )  # n^2 times the variance of targets; the noise adds its own to y^2
    by_varies = np.array([y2, -2 * y, n, 0.0])  # gradient of the line above, by the first four sums
    by_lost = 4 * np.array([q, 0.0, 0.0, n])  # of n sum r^2
    spread = math.sqrt(float(by_varies**2 @ variances[:4]))
    if varies <= CLEAR * spread:
        return Estimate(math.nan, -math.inf, 1.0, math.inf)
    m, m2, mq, m3, m4, qy, qy2, q2 = sums[1:] / n
    fourth = (
        m4 - 4 * m * m3 + 6 * m * m * m2 - 3 * m**4
    )  # of (y - m)^4, (r (y - m))^2 / 4 and r^4 / 16 per record
    mixed = qy2 - 2 * m * qy + m * m * mq

    def pivot(u: Array) -> tuple[Array, Array, tuple[Array, ...]]:
        statistic = (1 - u) * 4 * n * q - u * varies
        gradient = (1 - u)[:, None] * by_lost - u[:, None] * by_varies
        sampling = n**3 * (16 * (1 - u) ** 2 * q2 - 8 * u * (1 - u) * mixed + u**2 * fourth)
        covariance = gradient @ (variances[:4] * by_varies), gradient[:, 0] * variances[0]
        return statistic, gradient**2 @ variances[:4] + noise.rows * np.maximum(sampling, 0.0), covariance

    lost = max(0.0, 4 * n * q / varies)
    found = interval(pivot, (varies - CLEAR * spread, clear), lost / (1 + lost), 0.0, 1.0, noise)
    lower, upper = (1 - u / (1 - u) if u < 1 else -math.inf for u in reversed(found))
    by_term = (by_lost - lost * by_varies) / varies
    return Estimate(1 - lost, lower, upper, math.sqrt(float(by_term**2 @ variances[:4])))


# -- An evaluation for people: every metric with its interval, by group, and where predictions go wrong --------------


_BASELINE = "majority baseline"
_NOTES = {
    _BASELINE: "always answering with the most frequent class",
    "AUC": "0.5 is a guess, 1 sorts perfectly",
    "AUC (mean of classes)": "each class against the rest; 0.5 is a guess",
    "R^2": "1 is perfect, 0 is the mean of the target",
    "mean predicted - observed": "0 if predictions are right on average",
}


def evaluation_page(found: Evaluation) -> Page:
    """The page of an evaluation."""
    page = Page("How well a model predicts", "Evaluation")
    page.verdict(*_headline(found.metrics))
    add_metrics(page, found)
    for group, part in found.by_group.items():
        page.heading(f"Group {group!s}")
        _add_bars(page, part)
    if found.confusion is not None and found.classes is not None:
        page.heading("Where predictions go wrong")
        labels = [str(label) for label in found.classes]
        rows = [
            (f"is {label}", *(f"{max(count, 0):,.0f}" for count in row))
            for label, row in zip(labels, found.confusion, strict=True)
        ]
        page.table(("noisy counts", *(f"predicted {label}" for label in labels)), rows)
    if found.calibration:
        page.heading("Do probabilities mean what they say?")
        known = [band for band in found.calibration if not math.isnan(band[2].value)]
        lines = [_bar(f"{low:.0%} to {high:.0%}", one, "") for low, high, one in known]
        page.bars({"": lines}, ("predicted", "observed", "from 0% to 100%"), ends=(0.0, 1.0))
        if len(known) < len(found.calibration):
            page.text(
                f"In the other {len(found.calibration) - len(known)} of {len(found.calibration)} ranges the noise is "
                "too large to tell."
            )
    page.heading("What the evaluation itself protects")
    add_verdict(page, found.privacy_, what="evaluation")
    add_promise(page, found.privacy_)
    add_details(page, found.privacy_)
    return page


def add_metrics(page: Page, found: Evaluation) -> None:
    """The metrics for all records, with intervals, and what they cost."""
    _add_bars(page, found.metrics)
    page.text(
        f"With {100 * found.confidence:g}% intervals for noise and sampling together; the thick part is noise. "
        f"Measured on held-out records under {in_short(found.privacy_.guarantee)}, which was paid for separately."
    )


def _headline(metrics: Mapping[str, Estimate]) -> tuple[str, str]:
    """The first metric, and whether it beats the trivial answer."""
    name, one = next(iter(metrics.items()))
    if math.isnan(one.value):
        return f"{name}: unknown.", "The noise is too large for these few records."
    low, high = _number(name, one.lower), _number(name, one.upper)
    headline = f"{name.capitalize()} {_number(name, one.value)}, between {low} and {high}."
    base = metrics.get(_BASELINE)
    if base is None or math.isnan(base.value):
        return headline, ""
    beats = "More than" if one.lower > base.upper else "Not shown to be more than"
    return headline, f"{beats} always answering with the most frequent class ({_number(name, base.value)})."


def _add_bars(page: Page, metrics: Mapping[str, Estimate]) -> None:
    """Shares on a scale from 0 to 1, other numbers each in words."""
    shares = {name: one for name, one in metrics.items() if _is_share(name)}
    others = {name: one for name, one in metrics.items() if name not in shares}
    if shares:
        lines = [_bar(name, one, _NOTES.get(name, "")) for name, one in shares.items()]
        page.bars({"": lines}, ("metric", "value", "from 0 to 1"), ends=(0.0, 1.0))
    if others:
        rows = [
            (
                f"{name} ({_NOTES[name]})" if name in _NOTES else name,
                f"{one.value:.3g}",
                f"{one.lower:.3g} to {one.upper:.3g}",
            )
            for name, one in others.items()
        ]
        page.table(("", "value", "interval"), rows)


def _is_share(name: str) -> bool:
    return name in {"accuracy", _BASELINE} or name.startswith(("AUC", "recall of", "precision of"))


def _bar(name: str, one: Estimate, note: str) -> Bar:
    if math.isnan(one.value):
        return Bar(name, math.nan, "unknown", note=note)
    number, low, high = (_number(name, value) for value in (one.value, one.lower, one.upper))
    band = 1.96 * one.noise
    return Bar(name, one.value, number, f"{low} to {high}", one.lower, one.upper, band=band, note=note)


def _number(name: str, value: float) -> str:
    if name.startswith(("R^2", "AUC")):
        return f"{value:.3f}"
    return f"{value:.3g}" if name.startswith("mean squared error") else f"{value:.1%}"
