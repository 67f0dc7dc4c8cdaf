"""Coverage of 95% intervals: coefficients of linear and logistic regression, and metrics of private evaluations.

Run ``python -m benchmarks.coverage [--repeats 1000] [--only logistic]``. Every repetition invents records from a known
law, fits, and asks whether the interval holds the truth. Rows are written to ``results/coverage.md`` as they are
measured; a run of some settings leaves the rows of others as they were. Exits with 1 if a coverage is below 0.95 by
more than three standard errors of the simulation, or that of the finite intervals below 0.93 by more than two. Where
the rule is exact (the squared loss, Gaussian counts far from their noise) coverage above 0.97 is an error as well.
Elsewhere intervals may cover more, the infinite ones always: how many are finite is shown beside, and which share of
its width a finite interval would have needed. Metrics whose counts are near their noise are measured by
`benchmarks.near_noise`, which runs last.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from benchmarks import near_noise
from discreet import PrivateLinearRegression, PrivateLogisticRegression, coefficient_intervals, evaluate
from discreet.intervals.intervals import CoefficientIntervals

Array = NDArray[np.float64]

RESULTS = Path(__file__).parent / "results" / "coverage.md"
HEADER = """# Coverage of 95% intervals

`python -m benchmarks.coverage`: records from a known law, a private fit, and the interval that is given beside it.
Trials are coefficients times repetitions; an infinite interval covers. The share needed is that of its width that a
finite interval of a coefficient would have needed to cover in 95% of the trials: 1 is exact, and what is missing to 1
is how much too wide intervals are. Near the noise: `coverage_near_noise.md`.

| setting | repetitions | trials | coverage | finite | coverage of the finite | share needed | median half width |
|---|---|---|---|---|---|---|---|
"""
BOUND, DELTA = 2.0, 1e-6
LEVEL, LOW, HIGH = 0.95, 0.93, 0.97
FIRST = 100_000  # seed of the first records: rules were set on those below
SETTINGS = (
    # (records, columns, epsilon of the model and of the intervals, robust)
    (5_000, 3, 1.0, False),
    (20_000, 5, 0.5, False),
    (20_000, 5, 1.0, True),
    (50_000, 10, 1.0, False),
)
RARE = (
    # (records, coefficients, robust): 14%, 5%, 2% and 0.7% of the labels are 1
    (20_000, (1.0, -1.0, -2.0), False),
    (20_000, (0.5, -0.5, -3.0), False),
    (20_000, (0.5, -0.5, -3.0), True),
    (20_000, (0.5, -0.5, -4.0), False),
    (100_000, (0.5, -0.5, -5.0), False),
)
METRICS = (
    # (records, epsilon, delta, rows of a person)
    (2_000, 1.0, DELTA, 1),
    (20_000, 0.3, DELTA, 1),
    (2_000, 1.0, 0.0, 1),
    (4_000, 1.0, DELTA, 2),
)


@dataclass(frozen=True)
class Row:
    """Coverage of one kind of interval in one setting."""

    what: str
    coverage: float
    trials: int
    width: float
    strict: bool = True
    finite: float = 1.0
    coverage_finite: float = 1.0
    repeats: int = 0
    needed: float = math.nan

    @property
    def good(self) -> bool:
        """Whether the coverage is as stated; intervals that promise at least their level may cover more."""
        if self.coverage_finite < LOW - 2 * math.sqrt(LOW * (1 - LOW) / max(1.0, self.finite * self.trials)):
            return False
        least = max(LOW - 2 * self.error, LEVEL - 3 * math.sqrt(LEVEL * (1 - LEVEL) / self.trials))
        return self.coverage >= least and (self.coverage <= HIGH + 2 * self.error or not self.strict)

    @property
    def error(self) -> float:
        """Standard error of the coverage."""
        return math.sqrt(self.coverage * (1 - self.coverage) / self.trials)

    def __str__(self) -> str:
        line = f"{self.what:<66} {self.coverage:.4f} +- {self.error:.4f}  half width {self.width:.4f}"
        if self.finite == 1:
            return line
        return f"{line}  finite {self.finite:.0%}, of which {self.coverage_finite:.4f} cover"

    def keep(self, path: Path = RESULTS) -> None:
        """Write the row into the table, in place of an earlier one of the same setting."""
        found = path.read_text(encoding="utf-8") if path.exists() else HEADER
        rows = {line.split(" | ")[0]: line for line in found[len(HEADER) :].splitlines()}
        cells = [self.repeats, self.trials, f"{self.coverage:.4f} ± {self.error:.4f}", f"{self.finite:.1%}"]
        among = self.coverage if self.finite == 1 else self.coverage_finite
        cells += [f"{among:.4f}" if self.finite else "-"]
        cells += ["-" if math.isnan(self.needed) else f"{self.needed:.2f}", f"{self.width:.4f}"]
        rows[f"| {self.what}"] = f"| {self.what} | " + " | ".join(map(str, cells)) + " |"
        path.write_text(HEADER + "".join(f"{line}\n" for line in rows.values()), encoding="utf-8")


def _rows(rng: np.random.Generator, n: int, p: int) -> Array:
    """Rows whose norm with the intercept is within the bound, so that nothing is clipped."""
    return np.asarray(rng.uniform(-1, 1, size=(n, p)) * math.sqrt((BOUND**2 - 1) / p))


def linear(seed: int, n: int, p: int, epsilon: float, robust: bool) -> tuple[Array, Array]:
    """(errors, half widths) of one linear regression; errors of unequal variance where ``robust``."""
    rng = np.random.default_rng(seed)
    X, truth = _rows(rng, n, p), np.append(np.linspace(-0.5, 0.5, p), 0.3)
    noise = rng.uniform(-0.5, 0.5, size=n) * (1 + 2 * np.abs(X[:, 0]) if robust else 1.0)
    y = X @ truth[:-1] + truth[-1] + noise
    model = PrivateLinearRegression(epsilon, DELTA, target_bounds=(-3, 3), feature_bound=BOUND).fit(X, y)
    return _checked(model, X, y, truth, epsilon, robust)


def logistic(seed: int, n: int, p: int, epsilon: float, robust: bool) -> tuple[Array, Array]:
    """(errors, half widths) of one logistic regression."""
    rng = np.random.default_rng(seed)
    X, truth = _rows(rng, n, p), np.append(np.linspace(-1.5, 1.5, p), 0.3)
    y = (rng.uniform(size=n) < expit(X @ truth[:-1] + truth[-1])).astype(int)
    model = PrivateLogisticRegression(epsilon, DELTA, classes=[0, 1], feature_bound=BOUND).fit(X, y)
    return _checked(model, X, y, truth, epsilon, robust)


def rare(seed: int, n: int, truth: tuple[float, ...], robust: bool) -> tuple[Array, Array]:
    """(errors, half widths) of one logistic regression with few labels of one class."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-0.7, 0.7, size=(n, 2))
    y = (rng.uniform(size=n) < expit(X @ truth[:-1] + truth[-1])).astype(int)
    model = PrivateLogisticRegression(1.0, DELTA, classes=[0, 1], feature_bound=1.5).fit(X, y)
    return _checked(model, X, y, np.array(truth), 1.0, robust)


def shrunk(seed: int) -> tuple[Array, Array]:
    """(errors, half widths) of one logistic regression that starts from a model whose penalty left a tenth or less."""
    rng, truth = np.random.default_rng(seed), np.array([2.0, -1.0, 0.5])
    X = rng.uniform(-0.5, 0.5, size=(20_000, 2))
    y = (rng.uniform(size=len(X)) < expit(X @ truth[:-1] + truth[-1])).astype(int)
    model = PrivateLogisticRegression(4.0, DELTA, classes=[0, 1], feature_bound=1.3, l2=1.0).fit(X, y)
    if np.abs(model.coef_).max() > 0.2:
        raise RuntimeError("the start of this setting is not shrunk to a tenth")
    return _checked(model, X, y, truth, 4.0, False)


def awkward(seed: int, kind: str) -> tuple[Array, Array]:
    """(errors, half widths) of one regression whose smallest curvature is near its noise, with the default delta."""
    rng = np.random.default_rng(seed)
    X, truth, bound, epsilon = _AWKWARD[kind](rng)
    raw = X @ truth[:-1] + truth[-1]
    options: dict[str, Any] = {"feature_bound": bound}
    model: PrivateLinearRegression | PrivateLogisticRegression
    if kind.startswith("linear"):
        y = raw + rng.exponential(0.2, size=len(X)) - 0.2  # skewed errors
        model = PrivateLinearRegression(epsilon, target_bounds=(-2, 2), **options)
    else:
        y = (rng.uniform(size=len(X)) < expit(raw)).astype(int)
        model = PrivateLogisticRegression(epsilon, classes=[0, 1], **options)
    found = coefficient_intervals(model.fit(X, y), X, y, epsilon=epsilon)
    return _compared(found, truth)


def _correlated(rng: np.random.Generator, n: int, own: float) -> Array:
    shared = rng.uniform(-0.5, 0.5, size=(n, 1))
    return np.asarray(shared * (1 - own) + rng.uniform(-0.5, 0.5, size=(n, 2)) * own)


_AWKWARD: dict[str, Callable[[np.random.Generator], tuple[Array, Array, float, float]]] = {
    "logistic, small columns, n = 5000, p = 3": lambda rng: (
        rng.uniform(-0.5, 0.5, size=(5_000, 3)),
        np.array([1.0, 0.5, -1.0, 0.0]),
        1.4,
        1.0,
    ),
    "logistic, strong, n = 5000, p = 2": lambda rng: (
        rng.uniform(-0.5, 0.5, size=(5_000, 2)),
        np.array([4.0, -3.0, 0.5]),
        1.3,
        1.0,
    ),
    "logistic, correlation 0.8, n = 10000": lambda rng: (
        _correlated(rng, 10_000, 1 / 3),
        np.array([1.0, -1.0, 0.2]),
        1.25,
        1.0,
    ),
    "logistic, correlation 0.99, n = 10000": lambda rng: (
        _correlated(rng, 10_000, 0.1),
        np.array([1.0, -1.0, 0.2]),
        1.25,
        1.0,
    ),
    "logistic, binary columns of 2% and 10%, n = 20000": lambda rng: (
        (rng.random((20_000, 2)) < [0.02, 0.1]).astype(np.float64),
        np.array([1.0, -0.5, 0.2]),
        1.75,
        1.0,
    ),
    "linear, n = 3000, p = 3, epsilon = 0.5": lambda rng: (
        rng.uniform(-0.5, 0.5, size=(3_000, 3)),
        np.array([0.5, -0.3, 0.0, 0.1]),
        1.4,
        0.5,
    ),
    "linear, n = 2000, p = 5, epsilon = 1": lambda rng: (
        rng.uniform(-0.4, 0.4, size=(2_000, 5)),
        np.array([0.5, -0.3, 0.0, 0.2, -0.1, 0.1]),
        1.35,
        1.0,
    ),
}


def counted(seed: int, times: int, start: float | None = None) -> tuple[Array, Array]:
    """(errors, half widths) of one linear regression of fewer records than declared, or with a start set by hand."""
    rng, n, truth = np.random.default_rng(seed), 20_000, np.array([0.5, -0.3, 0.0])
    X = rng.uniform(-0.5, 0.5, size=(n, 2))
    y = X @ truth[:-1] + truth[-1] + rng.uniform(-1, 1, size=n)
    size: dict[str, Any] = {"neighboring": "add-remove-one", "n_samples": times * n}
    model = PrivateLinearRegression(8.0, DELTA, target_bounds=(-2, 2), feature_bound=1.3, **size).fit(X, y)
    if start is not None:
        model.coef_, model.intercept_ = np.full(2, start), 0.0
    return _checked(model, X, y, truth, 8.0, False, n_samples=times * n)


def people(seed: int, kind: str, robust: bool) -> tuple[Array, Array]:
    """(errors, half widths) of one regression of people with two equal rows each: the worst case of what is allowed."""
    rng, epsilon = np.random.default_rng(seed), 2.0
    X, truth = np.repeat(_rows(rng, 10_000, 3), 2, axis=0), np.array([0.5, -0.5, 0.3, 0.2])
    raw, ids = X @ truth[:-1] + truth[-1], np.repeat(np.arange(10_000), 2)
    options: dict[str, Any] = {"feature_bound": BOUND, "max_rows_per_group": 2}
    model: PrivateLinearRegression | PrivateLogisticRegression
    if kind == "linear":
        y = raw + np.repeat(rng.uniform(-0.5, 0.5, size=10_000), 2)
        model = PrivateLinearRegression(epsilon, DELTA, target_bounds=(-3, 3), **options)
    else:
        y = (np.repeat(rng.uniform(size=10_000), 2) < expit(raw)).astype(int)
        model = PrivateLogisticRegression(epsilon, DELTA, classes=[0, 1], **options)
    told: dict[str, Any] = {"groups": ids, "max_rows_per_group": 2}
    return _checked(model.fit(X, y, groups=ids), X, y, truth, epsilon, robust, **told)


def _checked(
    model: Any, X: Array, y: Array, truth: Array, epsilon: float, robust: bool, **options: Any
) -> tuple[Array, Array]:
    found = coefficient_intervals(model, X, y, epsilon=epsilon, delta=DELTA, robust=robust, **options)
    return _compared(found, truth)


def _compared(found: CoefficientIntervals, truth: Array) -> tuple[Array, Array]:
    """Return errors in units of the half width, at most 1 where the interval covers, and half widths."""
    half = (found.upper - found.lower) / 2
    errors = np.zeros_like(half)
    finite = np.isfinite(half)
    errors[finite] = np.abs(truth - found.lower / 2 - found.upper / 2)[finite] / half[finite]
    return errors, half


class KnownClassifier:
    """A fixed classifier of one column: the probability of class 1 is the first column."""

    classes_ = np.array([0, 1])

    def predict_proba(self, X: Array) -> Array:
        """The column and its complement."""
        return np.column_stack([1 - X[:, 0], X[:, 0]])

    def predict(self, X: Array) -> NDArray[np.int64]:
        """Which of the two is larger."""
        return (X[:, 0] >= 0.5).astype(np.int64)


class KnownRegressor:
    """A fixed regressor: the first column."""

    target_bounds = (-1.0, 1.0)

    def predict(self, X: Array) -> Array:
        """The column."""
        return X[:, 0]


def _classified(rng: np.random.Generator, n: int) -> tuple[Array, NDArray[np.int64]]:
    """Chances from a Beta law, labels that follow a miscalibrated version of them."""
    chance = rng.beta(0.7, 0.9, size=n)
    return chance[:, None], (rng.uniform(size=n) < 0.1 + 0.75 * chance).astype(np.int64)


def _regressed(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    x = rng.uniform(-0.6, 0.6, size=n)
    return x[:, None], x + rng.uniform(-0.3, 0.3, size=n)


def evaluations(repeats: int, n: int, epsilon: float, delta: float, rows: int = 1) -> list[Row]:
    """Coverage of accuracy, recall, AUC, calibration, R^2 and a subgroup's accuracy, for people of equal rows."""
    ids = np.repeat(np.arange(n // rows), rows)
    who: dict[str, Any] = {} if rows == 1 else {"groups": ids, "max_rows_per_group": rows}
    population = _classified(np.random.default_rng(10**6), 2_000_000)
    truth = dict(_true_metrics(*population))
    hits: dict[str, list[bool]] = {name: [] for name in (*truth, "R^2")}
    widths: dict[str, list[float]] = {name: [] for name in hits}
    explained = 1 - (0.6**2 / 12) / (1.2**2 / 12 + 0.6**2 / 12)
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        X, y = (np.repeat(part, rows, axis=0) for part in _classified(rng, n // rows))
        groups = np.where(X[:, 0] < 0.3, "low", "high")
        found = evaluate(
            KnownClassifier(),
            X,
            y,
            epsilon=epsilon,
            delta=delta,
            by=groups,
            by_values=["low", "high"],
            **who,
        )
        X, target = (np.repeat(part, rows, axis=0) for part in _regressed(rng, n // rows))
        intervals = {**found.metrics, "accuracy of the group": found.by_group["low"]["accuracy"]}
        intervals["R^2"] = evaluate(KnownRegressor(), X, target, epsilon=epsilon, delta=delta, **who)["R^2"]
        for name in hits:
            value = truth.get(name, explained)
            hits[name].append(intervals[name].lower <= value <= intervals[name].upper)
            widths[name].append((intervals[name].upper - intervals[name].lower) / 2)
    kind = ("Gaussian" if delta > 0 else "Laplace") + " noise"
    kind += "" if rows == 1 else f", people of {rows} equal rows"
    return [
        Row(
            f"{name}, n = {n}, epsilon = {epsilon:g}, {kind}",
            float(np.mean(hits[name])),
            repeats,
            float(np.median(widths[name])),
            strict=delta > 0 and name != "R^2",
            repeats=repeats,
        )
        for name in hits
    ]


def _true_metrics(X: Array, y: NDArray[np.int64]) -> list[tuple[str, float]]:
    """The same metrics of a very large sample, without noise; for AUC, probabilities fall in the same 20 bins."""
    chance = X[:, 0]
    bins = np.minimum((20 * chance).astype(int), 19)
    positives, negatives = (np.bincount(bins[y == k], minlength=20) for k in (1, 0))
    below = np.cumsum(negatives) - negatives / 2
    right = (chance >= 0.5) == y
    return [
        ("accuracy", float(right.mean())),
        ("recall of 1", float(right[y == 1].mean())),
        ("AUC", float(positives @ below) / float(positives.sum() * negatives.sum())),
        ("mean predicted - observed", float((chance - y).mean())),
        ("accuracy of the group", float(right[chance < 0.3].mean())),
    ]


def _coefficients() -> Iterator[tuple[str, Callable[[int], tuple[Array, Array]], bool]]:
    """(setting, one repetition, whether covering more is wrong as well: logistic remainders are bounds)."""
    kinds: dict[str, Callable[..., tuple[Array, Array]]] = {"linear": linear, "logistic": logistic}
    for name, one in kinds.items():
        for n, p, epsilon, robust in SETTINGS:
            what = f"{name}, n = {n}, p = {p}, epsilon = {epsilon:g}{', robust' if robust else ''}"
            yield what, partial(one, n=n, p=p, epsilon=epsilon, robust=robust), name == "linear"
    for n, truth, robust in RARE:
        what = f"logistic, rare labels, n = {n}, intercept {truth[-1]:g}{', robust' if robust else ''}"
        yield what, partial(rare, n=n, truth=truth, robust=robust), False
    yield "logistic, start shrunk from 2 to less than 0.2 by its penalty, n = 20000", shrunk, False
    for kind in _AWKWARD:
        yield kind, partial(awkward, kind=kind), False
    for times in (1, 4):
        yield f"linear, add-remove-one, {times} n records declared", partial(counted, times=times), True
    for kind in kinds:
        for robust in (False, True):
            what = f"{kind}, people of 2 equal rows, n = 20000{', robust' if robust else ''}"
            yield what, partial(people, kind=kind, robust=robust), False
    yield "linear, start set to (30, 30)", partial(counted, times=1, start=30.0), True


def measure(repeats: int = 1000, only: str = "") -> Iterator[Row]:
    """All rows, one by one, or those whose setting begins with ``only``."""
    for what, one, strict in _coefficients():
        if what.startswith(only):
            results = [one(seed) for seed in range(FIRST, FIRST + repeats)]
            errors, widths = (np.concatenate(part) for part in zip(*results, strict=True))
            hits, finite = errors <= 1, np.isfinite(widths)
            yield Row(
                what,
                float(hits.mean()),
                len(hits),
                float(np.median(widths)),
                strict,
                float(finite.mean()),
                float(hits[finite].mean()) if finite.any() else 1.0,
                repeats,
                float(np.quantile(errors[finite], LEVEL)) if finite.any() else math.nan,
            )
    for n, epsilon, delta, rows in METRICS:
        if ("metrics" if rows == 1 else "people").startswith(only):
            yield from evaluations(repeats, n, epsilon, delta, rows)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument(
        "--only",
        default="",
        help="linear, logistic, metrics, people (their metrics) or near, or the beginning of one setting",
    )
    arguments = parser.parse_args()
    rows: list[Row | near_noise.Row] = []
    for row in measure(arguments.repeats, arguments.only):
        print(row, flush=True)
        row.keep()
        rows.append(row)
    if "near".startswith(arguments.only):
        rows += near_noise.report(1000)
    bad = [row.what for row in rows if not row.good]
    print(f"{len(rows) - len(bad)} of {len(rows)} coverages as stated", *bad, sep="\n  not: ")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
