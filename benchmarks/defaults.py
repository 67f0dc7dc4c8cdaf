"""Ten defaults, each beside the best alternative that a user could have named instead, on ten seeds.

    python -m benchmarks.defaults [--seeds 10] [--only 1 2 ...]

Each row is a mean of differences between a default and the alternative on the same rows, split and noise, positive
where the default is better, with its standard error. A default that is behind by more than one error loses; of equal
ones about one in six is, by chance. Sizes are small, so that all rows take some twenty minutes of one core. Seeds count
from 3000, which no rule has seen. Real data are found through DISCREET_DATA. Sections that are not run stay as
``results/defaults.md`` has them.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from benchmarks import (
    data,
    dense_choice,
    kept,
    monotone,
    pure,
    recommenders,
    regression,
    sets,
    text,
    transfer,
)
from benchmarks.papers.fingerprints import fingerprinting
from discreet import (
    PrivateHuberRegressor,
    PrivateLasso,
    PrivateLinearRegression,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateQuantileRegressor,
    PrivateSparseLogisticRegression,
)
from discreet._typing import Array
from discreet.mechanisms.samplers.entropy import fresh_entropy, insecure_noise
from discreet.privacy.events import flatten
from discreet.records.arrays import ArrayRecords
from discreet.solvers import ExponentialSampling, FrankWolfe
from discreet.solvers.vertices.frank_wolfe_vertices import FullSteps

FIRST_SEED = 3000
HEADER = "where", "measure", "default", "has", "alternative", "has", "default is better by", "verdict"


@dataclass(frozen=True)
class Row:
    """A default beside an alternative.

    Attributes
    ----------
    score : the measure with a seed, of the default or of the alternative by name.
    larger : whether more of the measure is better.
    room : by how much the default may be behind, where that was the aim.
    """

    where: str
    measure: str
    score: Callable[[int, str], float]
    alternative: str
    default: str = "auto"
    larger: bool = True
    room: float = 0.0

    def line(self, seeds: range) -> tuple[str, ...]:
        """The cells of the table."""
        found = np.array(
            [[self._of(seed, one) for one in (self.default, self.alternative)] for seed in seeds]
        )
        better = (found[:, 0] - found[:, 1]) * (1 if self.larger else -1)
        error = better.std(ddof=1) / np.sqrt(len(better)) if len(better) > 1 else float("nan")
        ours, other = (f"{mean:.4g}" for mean in found.mean(axis=0))
        shown = f"{better.mean():.2g} ± {error:.1g}"
        verdict = self.verdict(better.mean(), error)
        return self.where, self.measure, self.default, ours, self.alternative, other, shown, verdict

    def _of(self, seed: int, one: str) -> float:
        """The measure with repeatable noise, so that equal choices give equal measures."""
        with insecure_noise(seed):
            return float(self.score(seed, one))

    def verdict(self, better: float, error: float) -> str:
        """Whether the default is the same, ahead, level, as near as was asked for, or behind."""
        if better == error == 0:
            return "the same"
        if better > error:
            return "ahead"
        if better >= -error:
            return "level"
        return f"within {self.room:g}" if better >= -self.room - error else "**behind**"


def in_a_set() -> Iterator[Row]:
    """``auto`` with a constraint beside the solver that was best there when it took Frank-Wolfe."""
    best = {
        ("logistic", 5_000, "L2 ball of 5"): "objective",
        ("logistic", 5_000, "box of 2"): "noisy-gd",
        ("logistic", 5_000, "L1 ball of 5"): "objective",
        ("logistic", 5_000, "groups"): "noisy-gd",
        ("logistic", 20_000, "L2 ball of 5"): "objective",
        ("logistic", 20_000, "box of 2"): "objective",
        ("logistic", 20_000, "L1 ball of 5"): "objective",
        ("logistic", 20_000, "polytope"): "noisy-gd",
        ("squared", 20_000, "L1 ball of 5"): "objective",
        ("squared", 20_000, "L2 ball of 1"): "objective",
    }

    def excess(case: sets.Case, seed: int, solver: str) -> float:
        X, y = case.rows(seed)
        theta = sets.fitted(case, solver, 0.5, X, y)
        assert theta is not None
        return sets.risk(case, theta, X, y) - sets.least_risk(case, X, y)

    for case in sets.CASES:
        if other := best.get((case.loss, case.n, case.kind)):
            yield Row(f"{case.name}, epsilon 0.5", "excess risk", partial(excess, case), other, larger=False)


def where_noise_rules() -> Iterator[Row]:
    """The LASSO beside no coefficient at all, which needs no data."""

    def error(n: int, epsilon: float, seed: int, one: str) -> float:
        fitted, nothing, _ = text.lasso(n, epsilon, seed)
        return fitted if one == "default" else nothing

    def codes(seed: int, one: str) -> float:
        X, y = fingerprinting(seed=seed)
        if one != "default":
            return float(np.sum(y**2))
        model = PrivateLasso(0.1, 1e-6, target_bounds=(-1, 1), fit_intercept=False).fit(X, y)
        return float(np.sum((X @ model.coef_ - y) ** 2))

    shared: dict[str, Any] = {"alternative": "no coefficient", "default": "default", "larger": False}
    for n, epsilon in text.NOISY:
        where = f"PrivateLasso, {n:,} x 50, epsilon {epsilon:g}"
        yield Row(where, "squared error", partial(error, n, epsilon), **shared)
    yield Row("PrivateLasso, fingerprinting, epsilon 0.1", "squared error", codes, **shared)


def huber_svm() -> Iterator[Row]:
    """The Huber-SVM beside logistic regression, both by default."""
    kinds = {"Huber-SVM": PrivateLinearSVC, "logistic regression": PrivateLogisticRegression}

    def wide(seed: int, kind: str) -> float:
        (split,) = data.splits("gisette_valid1k", range(seed, seed + 1))
        return monotone.score(kinds[kind], split, 0.1, 800)

    def ordered(seed: int, kind: str) -> float:
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(10_000, 5)) / np.sqrt(5)
        y = np.digitize(X @ [1.0, -1.0, 0.5, 0.0, 0.0], [-0.3, 0.3])
        model: Any = kinds[kind](1.0, 1e-6, classes=[0, 1, 2])
        return 100 * float(model.fit(X[:5_000], y[:5_000]).score(X[5_000:], y[5_000:]))

    ours, other = kinds
    yield Row("gisette_valid1k, epsilon 0.1", "accuracy, %", wide, other, ours)
    yield Row("three ordered classes, 5,000 x 5, epsilon 1", "accuracy, %", ordered, other, ours)


def dense_rows() -> Iterator[Row]:
    """``auto`` on dense rows whose second moment is hidden, beside the solvers that use or ignore it."""

    def area(name: str, n: int, epsilon: float, seed: int, solver: str) -> float:
        X, y = _uneven(seed) if name == "uneven" else _labeled(name)
        return float(dense_choice.scores(X, y, n, epsilon, solver, [seed])[0, 0])

    def digits(seed: int, solver: str) -> float:
        split, n = _digits(seed), 10_000
        model = PrivateLogisticRegression(0.3, 1e-6, classes=split.classes, solver=solver)
        model.fit(split.X_train[:n], split.y_train[:n])
        return 100 * float(model.score(split.X_test, split.y_test))

    for solver in ("newton", "noisy-gd"):
        for name, n, epsilon in (("spambase", 1_000, 0.3), ("adult", 1_000, 0.3), ("magic", 1_000, 0.1)):
            where = f"{name}, {n:,} rows, epsilon {epsilon:g}"
            yield Row(where, "area under the curve", partial(area, name, n, epsilon), solver)
        where = "one label in ten, rows of uneven length, 4,000 x 20, epsilon 0.1"
        yield Row(where, "area under the curve", partial(area, "uneven", 4_000, 0.1), solver)
        yield Row("mnist, 10,000 rows, epsilon 0.3", "accuracy, %", digits, solver)


@lru_cache(maxsize=1)
def _labeled(name: str) -> tuple[Array, Array]:
    return dense_choice.load(name)


@lru_cache(maxsize=1)
def _digits(seed: int) -> data.Split:
    return next(iter(data.splits("mnist", range(seed, seed + 1))))


def _uneven(seed: int) -> tuple[Array, Array]:
    """Rows of lengths that differ by an order of magnitude, with one positive label in ten."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(8_000, 20)) / np.sqrt(20) * rng.lognormal(-0.5, 0.8, size=(8_000, 1))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]
    score = 6 * X[:, :3].sum(axis=1) + rng.logistic(size=8_000)
    return X, (score > np.quantile(score, 0.9)).astype(float)


def more_epsilon() -> Iterator[Row]:
    """Ten times the epsilon, on sets of about 113,000 rows (or all there are).

    A fit reduces log loss. Where the least log loss does not have the highest accuracy, as on skin, less noise leads
    away from it: the last row has the same rows without privacy.
    """

    def score(name: str, column: int, seed: int, epsilon: str) -> float:
        X, y = _labeled(name)
        if epsilon == "no privacy":
            held, train = dense_choice.split(len(y), seed)
            exact = LogisticRegression(C=1e6, max_iter=1_000).fit(X[train[:113_000]], y[train[:113_000]])
            return 100 * float(exact.score(X[held], y[held]))
        found = dense_choice.scores(X, y, 113_000, float(epsilon), "auto", [seed])[0, column]
        return float(found) if column == 2 else 100 * float(found)

    for name in ("fertility_census1980", "skin", "adult", "bank_marketing"):
        yield Row(f"{name}, by epsilon", "accuracy, %", partial(score, name, 1), "0.1", "1")
        yield Row(f"{name}, by epsilon", "log loss", partial(score, name, 2), "0.1", "1", larger=False)
    yield Row("skin, by epsilon", "accuracy, %", partial(score, "skin", 1), "no privacy", "1")


def regressors() -> Iterator[Row]:
    """``auto`` of regressors beside their former defaults, and a plan beside the fit that it foretells."""
    former = {
        PrivateLinearRegression: "statistics",
        PrivateHuberRegressor: "objective",
        PrivateQuantileRegressor: "noisy-gd",
    }

    def error(name: str, kind: Any, seed: int, solver: str) -> float:
        (split,) = monotone.regressed(name, range(seed, seed + 1))
        model = kind(0.3, 1e-6, target_bounds=regression.SOURCES[name].target_bounds, solver=solver)
        model.fit(split.X_train[:4_000], split.y_train[:4_000])
        return float(np.mean(np.abs(model.predict(split.X_test) - split.y_test)))

    def planned(seed: int, one: str) -> float:
        rng = np.random.default_rng(seed)
        X, y, people = rng.normal(size=(3_000, 6)), rng.integers(0, 3, 3_000), np.repeat(range(1_500), 2)
        model = PrivateLogisticRegression(1.0, 1e-6, classes=[0, 1, 2], max_rows_per_group=2)
        event = model.plan(3_000, 6).event if one == "plan" else model.fit(X, y, groups=people).privacy_.event
        first: Any = flatten(event)[0][0]
        return float(first.event.noise_multiplier)

    for name in regression.SOURCES:
        for kind, solver in former.items():
            where = f"{kind.__name__}, {name}, 4,000 rows, epsilon 0.3"
            yield Row(where, "absolute error", partial(error, name, kind), solver, larger=False)
    yield Row("three declared classes, two rows a person", "noise multiplier", planned, "fit", "plan")


def labels() -> Iterator[Row]:
    """Streams of labels, and labels that alone are private."""

    def stream(seed: int, aggregator: str) -> float:
        return float(transfer.labeled_stream(seed, 200, aggregator)[1])

    def student(n_rows: int, seed: int, aggregator: str) -> float:
        return 100 * transfer.label_student(seed, n_rows, aggregator)[0]

    yield Row("PrivateLabeler, 200 easy questions", "right answers", stream, "plurality")
    for n_rows in (2_000, 20_000):
        yield Row(f"label_private, {n_rows:,} rows", "accuracy, %", partial(student, n_rows), "shares")


def without_delta() -> Iterator[Row]:
    """Defaults at delta = 0 beside the prediction that needs no data."""

    def loss(name: str, n: int, epsilon: float, seed: int, one: str) -> float:
        median = name == "PrivateMedian"
        found = pure.median(n, epsilon, 0.0, seed) if median else pure.regressor(name, n, epsilon, 0.0, seed)
        return found[one != "auto"]

    for name in (*pure.REGRESSORS, "PrivateMedian"):
        for n, epsilon in ((300, 0.1), (300, 1.0), (3_000, 0.1)):
            where = f"{name}, {n:,} rows, epsilon {epsilon:g}"
            yield Row(where, "loss", partial(loss, name, n, epsilon), "no data", larger=False)


def three_more() -> Iterator[Row]:
    """An intercept in sparse Frank-Wolfe, exact sampling on Adult, transfer on KDDCup99."""

    def steps(seed: int, how: str) -> float:
        X, y = _zipf()
        plan = PrivateSparseLogisticRegression(1.0, 1e-6, solver=FrankWolfe(200)).plan(*X.shape, sparse=True)
        records = ArrayRecords(X, 2.0 * y - 1, plan.problem.bounds)
        if how != "updated scores":
            walk, began = FullSteps(plan.walk, records), time.process_time()  # type: ignore[attr-defined]
            walk.choose(0.1, fresh_entropy())
            return 1 / (time.process_time() - began)
        plan.run([records], fresh_entropy())  # compiles
        began = time.process_time()
        plan.run([records], fresh_entropy())
        return 200 / (time.process_time() - began)

    def adult(seed: int, solver: str) -> float:
        (split,) = data.splits("adult", range(seed, seed + 1))
        structured = ExponentialSampling(structured=True, most_tries=1e6)
        model = PrivateLogisticRegression(
            1.0, 0.0, classes=split.classes, solver="auto" if solver == "auto" else structured
        )
        return 100 * float(model.fit(split.X_train, split.y_train).score(split.X_test, split.y_test))

    def forest(seed: int, one: str) -> float:
        row = _student(seed)
        return float(row["student" if one == "student" else "same model, true labels"])

    where = "sparse Frank-Wolfe with an intercept, 20,000 x 100,000"
    yield Row(where, "steps per second", steps, "whole gradients", "updated scores")
    yield Row("adult, epsilon 1, delta 0", "accuracy, %", adult, "exponential, structured")
    where = "forests on kddcup99, 100,000 private rows"
    yield Row(where, "accuracy, %", forest, "true labels", "student", room=0.5)


@lru_cache(maxsize=1)
def _zipf() -> tuple[Any, Any]:
    return text.generated(20_000, 100_000)


@lru_cache(maxsize=1)
def _student(seed: int) -> dict[str, Any]:
    return transfer.student("kddcup99", "forest", seed, most=100_000)


def dense_ratings() -> Iterator[Row]:
    """The recommender's ``auto`` on a block of which most is rated."""
    name = recommenders.BLOCKS[0]

    def error(epsilon: float, seed: int, method: str) -> float:
        cell = recommenders.Cell(name, method, epsilon, seed)
        return float(recommenders.measure(recommenders.task_of(name, seed), cell)["rmse"])

    for epsilon in (5.0, 10.0):
        for method in ("svd", "profile"):
            yield Row(
                f"{name} rated, epsilon {epsilon:g}", "RMSE", partial(error, epsilon), method, larger=False
            )


ITEMS: dict[str, Callable[[], Iterator[Row]]] = {
    "1 Coefficients in a set": in_a_set,
    "2 Where noise rules": where_noise_rules,
    "3 The Huber-SVM": huber_svm,
    "4 Dense rows": dense_rows,
    "5 More epsilon": more_epsilon,
    "6 Regressors": regressors,
    "7 Labels by teachers": labels,
    "8 Pure privacy": without_delta,
    "9 Sparse steps, exact sampling, transfer": three_more,
    "10 Dense ratings": dense_ratings,
}


def main() -> None:
    """Measure, and write the page item by item."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    numbers = [int(title.split()[0]) for title in ITEMS]
    parser.add_argument("--only", type=int, nargs="+", default=numbers, choices=numbers, metavar="ITEM")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    for title, rows in ITEMS.items():
        if int(title.split()[0]) in options.only:
            began, lines = time.process_time(), []
            for row in rows():
                try:
                    lines.append(row.line(seeds))
                except (data.MissingData, FileNotFoundError) as missing:
                    lines.append(
                        (
                            row.where,
                            row.measure,
                            row.default,
                            "",
                            row.alternative,
                            "",
                            "",
                            f"no data: {missing}",
                        )
                    )
                print("| " + " | ".join(lines[-1]), f"| {time.process_time() - began:.0f} s", flush=True)
            kept.keep(
                "defaults", "Ten defaults beside the best alternative", {title: kept.table(HEADER, lines)}
            )


if __name__ == "__main__":
    main()
