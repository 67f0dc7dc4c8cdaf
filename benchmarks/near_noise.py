"""Coverage of the intervals of private evaluations where counts are about as large as their noise.

A repetition draws the exact tables from a known law and their noise from the mechanism of the plan; no model is fitted.
Three classes are evaluated as a whole, with a model that is known.
``python -m benchmarks.near_noise`` runs 1,000 repetitions and writes ``results/coverage_near_noise.md``; so does
``python -m benchmarks.coverage`` at the end. Exits with 1 if a coverage is not as stated.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from discreet import Guarantee, evaluate, insecure_noise
from discreet.evaluation.estimates import Estimate, Noise
from discreet.evaluation.plans import TERMS, CountPlan, SumPlan
from discreet.evaluation.report import calibration_of, centers, classifier_metrics, regressor_metrics
from discreet.mechanisms.samplers.entropy import fresh_entropy

Array = NDArray[np.float64]
#: One repetition: estimates by name, each with the truth and the range of what is possible.
Answers = Mapping[str, tuple[Estimate, float, tuple[float, float]]]

RESULTS = Path(__file__).parent / "results" / "coverage_near_noise.md"
NOMINAL, LEAST = 0.95, 0.93
CLASSES = np.array([0, 1])
CLASSIFIERS = (
    # (records, expected positives, bins, epsilon, delta, rows of a person)
    *(
        (4_000, positives, bins, 1.0, delta, 1)
        for delta in (1e-6, 0.0)
        for bins in (20, 100)
        for positives in (30, 60, 100, 200)
    ),
    *((4_000, positives, 20, 1.0, 1e-6, 2) for positives in (60, 120, 200, 400)),
)
SEVERAL = (
    # (records, expected records of the rarest of three classes, epsilon, delta, rows of a person)
    *((4_000, rarest, 1.0, delta, 1) for delta in (1e-6, 0.0) for rarest in (30, 100, 200, 400)),
    *((8_000, rarest, 1.0, 1e-6, 2) for rarest in (200, 800)),
)
REGRESSORS = (
    # (records, largest target, epsilon, delta, rows of a person): the fewer, or the smaller, the less rises above noise
    *(
        (records, largest, 1.0, delta, 1)
        for delta in (1e-6, 0.0)
        for records, largest in ((30, 0.8), (60, 0.8), (150, 0.8), (1_000, 0.1), (1_000, 0.2), (1_000, 0.3))
    ),
    *((records, largest, 1.0, 1e-6, 2) for records, largest in ((120, 0.8), (300, 0.8), (2_000, 0.3))),
)


@dataclass(frozen=True)
class Row:
    """Coverage of one metric in one setting.

    Attributes
    ----------
    coverage : of all repetitions; the whole range covers.
    given, coverage_given : how often an estimate is given at all, and the coverage of those.
    narrow, coverage_narrow : how often the interval is narrower than the whole range, and the coverage of those.
    above, below : how often the whole interval lies above the truth, or below.
    """

    what: str
    repeats: int
    coverage: float
    given: float
    coverage_given: float
    narrow: float
    coverage_narrow: float
    above: float
    below: float

    @property
    def good(self) -> bool:
        """Whether the coverage is as stated; the last condition can hold only if narrow intervals are no exception."""
        kept = [(self.coverage, NOMINAL, 1.0), (self.coverage_given, LEAST, self.given)]
        if self.narrow >= 0.25:
            kept.append((self.coverage_narrow, LEAST, self.narrow))
        return all(
            seen >= wanted - 2 * math.sqrt(wanted * (1 - wanted) / (self.repeats * part))
            for seen, wanted, part in kept
            if part > 0
        )

    def keep(self, path: Path) -> None:
        """Write the row into the table, in place of an earlier one of the same metric and setting."""
        found = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        rows = {line.split(" | ")[0]: line for line in found if line.startswith("| ") and line not in HEADER}
        rows[f"| {self.what}"] = str(self)
        path.write_text("\n".join([TITLE + HEADER, *rows.values(), ""]), encoding="utf-8")

    def __str__(self) -> str:
        cells = [f"{self.coverage:.3f}", *_pair(self.given, self.coverage_given)]
        cells += [*_pair(self.narrow, self.coverage_narrow), f"{self.above:.3f}", f"{self.below:.3f}"]
        return f"| {self.what} | " + " | ".join(cells) + " |"


HEADER = (
    "| metric and setting | coverage | given | their coverage | narrower than the range | their coverage "
    "| misses above | misses below |\n|---|---|---|---|---|---|---|---|"
)


def _pair(part: float, coverage: float) -> tuple[str, str]:
    return f"{part:.3f}", f"{coverage:.3f}" if part > 0 else "-"


def classified(
    rng: np.random.Generator, n: int, positives: float, bins: int, epsilon: float, delta: float, rows: int = 1
) -> Answers:
    """One evaluation of a classifier with few positives, and with a subgroup of one in twenty records.

    All ``rows`` of a person are alike, which is the worst case of what intervals allow for.
    """
    law = _law(positives / n, bins)
    plan = CountPlan(_promise(epsilon, delta, rows), ((2, 2, 2), (2, 2, bins)), 2, 0.5 / bins, max_rows=rows)
    people = n // rows
    counts = rows * np.stack(
        [
            rng.multinomial(part, law.ravel()).reshape(2, bins)
            for part in (people // 20, people - people // 20)
        ]
    ).astype(np.float64)
    spread = rng.normal(size=2) * np.sqrt(rows * counts.sum(axis=(1, 2)) / 12) / bins
    tables = _released(plan, [_predicted(counts), counts, spread])
    noise, truth = Noise(plan.variance, NOMINAL, delta > 0, rows), _true(law)
    whole = [table.sum(axis=0) for table in tables]
    found = {
        name: (one, truth[name], (-1.0 if "mean" in name else 0.0, 1.0))
        for name, one in classifier_metrics(CLASSES, noise, 2, *whole).items()
    }
    part = classifier_metrics(CLASSES, noise, 1, *(table[0] for table in tables))
    for name in ("accuracy", "AUC", "mean predicted - observed"):
        found[f"{name} of the subgroup"] = (part[name], truth[name], found[name][2])
    places = [bins // 4, bins // 2, 3 * bins // 4]  # the farther up, the fewer records
    for b, (_, _, share) in zip(places, calibration_of(whole[1][:, places], noise, 2), strict=True):
        found[f"calibration from {b / bins:g}"] = (share, law[1, b] / law[:, b].sum(), (0.0, 1.0))
    return found


def _law(rate: float, bins: int) -> Array:
    """Shares of true class by bin of the score."""
    edges = np.linspace(0, 1, bins + 1)
    return np.stack([(1 - rate) * np.diff(beta(1, 4).cdf(edges)), rate * np.diff(beta(3, 2).cdf(edges))])


def _predicted(counts: Array) -> Array:
    """True by predicted class, the last axis from bins to classes."""
    half = counts.shape[-1] // 2
    return np.stack([counts[..., :half].sum(axis=-1), counts[..., half:].sum(axis=-1)], axis=-1)


def _true(law: Array) -> dict[str, float]:
    """Metrics of the law itself, without noise."""
    sure = np.stack([centers(law.shape[1]), centers(law.shape[1]) - 1])
    table, below = _predicted(law), np.cumsum(law[0]) - law[0] / 2
    return {
        "accuracy": float(np.trace(table)),
        "majority baseline": float(table.sum(axis=1).max()),
        **{f"recall of {k}": float(table[k, k] / table[k].sum()) for k in CLASSES},
        **{f"precision of {k}": float(table[k, k] / table[:, k].sum()) for k in CLASSES},
        "AUC": float(law[1] @ below / (law[0].sum() * law[1].sum())),
        "mean predicted - observed": float((sure * law).sum()),
    }


class _Known:
    """A fixed classifier: its probabilities are the columns."""

    classes_ = np.arange(3)

    def predict_proba(self, X: Array) -> Array:
        """The columns."""
        return X

    def predict(self, X: Array) -> NDArray[np.int64]:
        """The largest column."""
        return np.asarray(np.argmax(X, axis=1))


def _chances(rng: np.random.Generator, label: int, n: int) -> Array:
    return rng.dirichlet(np.array([2.0, 1.0, 0.7]) + 4.0 * (np.arange(3) == label), size=n)


@cache
def _truth_of_three(shares: tuple[float, ...], bins: int = 20) -> dict[str, float]:
    """Metrics of the law, from a million records of each class, weighted."""
    rng, table, scores = np.random.default_rng(10**6), np.zeros((3, 3)), np.zeros((3, 3, bins))
    for label, share in enumerate(shares):
        X = _chances(rng, label, 10**6)
        table[label] = share * np.bincount(np.argmax(X, axis=1), minlength=3) / 10**6
        for k in range(3):
            cells = np.minimum((bins * X[:, k]).astype(int), bins - 1)
            scores[k, label] = share * np.bincount(cells, minlength=bins) / 10**6
    areas = []
    for k in range(3):
        rest = scores[k].sum(axis=0) - scores[k, k]
        areas.append(float(scores[k, k] @ (np.cumsum(rest) - rest / 2)) / (shares[k] * (1 - shares[k])))
    return {
        "accuracy": float(np.trace(table)),
        "majority baseline": max(shares),
        **{f"recall of {k}": float(table[k, k] / shares[k]) for k in range(3)},
        **{f"precision of {k}": float(table[k, k] / table[:, k].sum()) for k in range(3)},
        **{f"AUC of {k}": area for k, area in enumerate(areas)},
        "AUC (mean of classes)": float(np.mean(areas)),
    }


def of_three(
    rng: np.random.Generator, n: int, rarest: float, epsilon: float, delta: float, rows: int = 1
) -> Answers:
    """One evaluation of a classifier of three classes, one of which is rare."""
    shares = (0.7 - rarest / n, 0.3, rarest / n)
    y = rng.choice(3, p=shares, size=n // rows)
    X = np.empty((len(y), 3))
    for label in range(3):
        X[y == label] = _chances(rng, label, int((y == label).sum()))
    who: dict[str, Any] = {}
    if rows > 1:
        who = {"groups": np.repeat(np.arange(len(y)), rows), "max_rows_per_group": rows}
        X, y = np.repeat(X, rows, axis=0), np.repeat(y, rows)
    found = evaluate(_Known(), X, y, epsilon=epsilon, delta=delta, bins=20, **who)
    truth = _truth_of_three(shares)
    return {name: (one, truth[name], (0.0, 1.0)) for name, one in found.metrics.items()}


def regressed(
    rng: np.random.Generator, n: int, largest: float, epsilon: float, delta: float, rows: int = 1
) -> Answers:
    """One evaluation of a regressor on targets within ``largest`` of 0, of which it explains three quarters."""
    x, error = (
        np.repeat(largest * rng.uniform(-1, 1, size=n // rows), rows) * share for share in (0.75**0.5, 0.5)
    )
    plan = SumPlan(_promise(epsilon, delta, rows), 1, rows)
    y, q = x + error, error**2 / 4
    terms = np.stack([np.ones(n), y, y**2, q, y**3, y**4, q * y, q * y**2, q * q]).sum(axis=1)
    weights = np.array([weight for *_, weight in TERMS])
    (sums,) = _released(plan, [terms * weights])
    found = regressor_metrics(sums / weights, Noise(plan.variance, NOMINAL, delta > 0, rows), 1.0)
    return {
        "R^2": (found["R^2"], 0.75, (-math.inf, 1.0)),
        "mean squared error": (found["mean squared error"], largest**2 / 12, (0.0, 4.0)),
    }


def _promise(epsilon: float, delta: float, rows: int) -> Guarantee:
    return Guarantee(epsilon, delta, unit="user" if rows > 1 else "record")


def _released(plan: CountPlan | SumPlan, parts: list[Array]) -> list[Array]:
    """The parts with the noise of the plan's mechanism."""
    noisy = plan.release.release(np.concatenate([np.ravel(part) for part in parts]), fresh_entropy())
    ends = np.cumsum([part.size for part in parts])[:-1]
    return [one.reshape(part.shape) for one, part in zip(np.split(noisy, ends), parts, strict=True)]


def settings() -> Iterator[tuple[str, Callable[[np.random.Generator], Answers]]]:
    """Every setting by name."""
    for n, positives, bins, epsilon, delta, rows in CLASSIFIERS:
        what = f"{positives} positives of {n}, {bins} bins, {_kind(delta, rows)}"
        law: dict[str, Any] = {"n": n, "positives": positives, "bins": bins}
        yield what, partial(classified, **law, epsilon=epsilon, delta=delta, rows=rows)
    for n, rarest, epsilon, delta, rows in SEVERAL:
        what = f"{rarest} of the rarest of 3 classes of {n}, {_kind(delta, rows)}"
        yield what, partial(of_three, n=n, rarest=rarest, epsilon=epsilon, delta=delta, rows=rows)
    for n, largest, epsilon, delta, rows in REGRESSORS:
        what = f"{n} targets within {largest:g}, {_kind(delta, rows)}"
        yield what, partial(regressed, n=n, largest=largest, epsilon=epsilon, delta=delta, rows=rows)


def _kind(delta: float, rows: int) -> str:
    noise = "Gaussian" if delta > 0 else "Laplace"
    return noise if rows == 1 else f"{noise}, people of {rows} equal rows"


def measure(
    repeats: int, what: str, one: Callable[[np.random.Generator], Answers], seed: int = 0
) -> Iterator[Row]:
    """Coverage of every metric in one setting."""
    seen: dict[str, list[tuple[float, float, float, float, float, float]]] = defaultdict(list)
    rng = np.random.default_rng(seed)
    with insecure_noise(seed):
        for _ in range(repeats):
            for name, (found, truth, ends) in one(rng).items():
                seen[name].append((found.value, found.lower, found.upper, truth, *ends))
    for name, results in seen.items():
        value, lower, upper, truth, least, most = np.array(results).T
        above, below = lower > truth, upper < truth
        given, narrow = ~np.isnan(value), (lower > least) | (upper < most)
        hits = ~(above | below)
        yield Row(
            f"{name}, {what}",
            repeats,
            float(hits.mean()),
            float(given.mean()),
            float(hits[given].mean()) if given.any() else math.nan,
            float(narrow.mean()),
            float(hits[narrow].mean()) if narrow.any() else math.nan,
            float(above.mean()),
            float(below.mean()),
        )


TITLE = """# Coverage of 95% intervals of `evaluate` near the noise

1000 repetitions each, epsilon 1: `python -m benchmarks.near_noise`. Coverage counts an unknown value,
the whole range, as covered. An estimate is given if its denominator clears its noise; its interval may
still be the whole range. An interval above the truth flatters the model, except for errors.

"""


def report(repeats: int, path: Path = RESULTS, only: str = "") -> list[Row]:
    """Measure all settings, or those whose names hold ``only``; print the rows, and keep those of 1,000 repetitions.

    Rows of other settings stay as they were.
    """
    rows: list[Row] = []
    print(HEADER)
    for what, one in settings():
        if only in what:
            for row in measure(repeats, what, one):
                rows.append(row)
                print(row, flush=True)
                if repeats == 1000:
                    row.keep(path)
    return rows


def main() -> int:
    """Print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--only", default="", help="part of the names of settings")
    arguments = parser.parse_args()
    rows = report(arguments.repeats, only=arguments.only)
    bad = [row.what for row in rows if not row.good]
    print(f"{len(rows) - len(bad)} of {len(rows)} coverages as stated", *bad, sep="\n  not: ")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
