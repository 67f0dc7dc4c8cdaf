"""AMP without hyperparameters: our rerun of the dissertation's rule beside its printed figures and a plain minimizer.

    python -m benchmarks.hf_amp [--sets adult ...] [--splits 10] [--fits 3]

It writes ``results/hf-amp.md``. "Plain" is the printed rule in a few lines: noise and ridge as printed, rows clipped to
norm 1, no intercept, SciPy's L-BFGS, no output noise (which is negligible), corners of half-width 0.1. It has no
privacy of its own and is here to tell what the rule gives from what our solver adds to it. One fit scatters by about a
point, so every split is fitted several times.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import minimize

from benchmarks import kept
from benchmarks.data import splits
from benchmarks.papers.tables import TABLES
from discreet import PrivateLinearSVC, PrivateLogisticRegression
from discreet._typing import Array

SETS = {"synthetic-L": 0.1, "adult": 0.1, "kddcup99": 0.1, "covtype": 1.0, "mnist": 1.0}
MODELS = {"logistic-low": PrivateLogisticRegression, "svm": PrivateLinearSVC}
_CORNER = 0.1  # half-width, as in the dissertation


def mean_loss(z: Array, task: str) -> tuple[float, Array]:
    """The mean loss of margins, and the derivative of each."""
    if task == "logistic-low":
        return float(np.logaddexp(0, -z).mean()), -1 / (1 + np.exp(np.minimum(z, 500)))
    gap = 1 - z
    inside = np.abs(gap) <= _CORNER
    smooth = (gap + _CORNER) ** 2 / (4 * _CORNER)
    value = np.where(inside, smooth, np.maximum(gap, 0))
    slope = np.where(inside, -(gap + _CORNER) / (2 * _CORNER), np.where(gap > 0, -1.0, 0.0))
    return float(value.mean()), slope


def plain(X: Array, signs: Array, epsilon: float, delta: float, task: str, rng: np.random.Generator) -> Array:
    """One model by the printed rule."""
    n, p = X.shape
    budget = 0.99 * epsilon
    share = max(min(0.887 + 0.019 / budget**0.373, 0.99), 1 - 0.99 / budget)
    ridge = 2 / (budget * (1 - share)) / n
    spread = 2 * (1 + math.sqrt(2 * math.log(1 / (0.99 * delta)))) / (n * share * budget)
    noise = rng.normal(scale=spread, size=p)

    def objective(theta: Array) -> tuple[float, Array]:
        value, slopes = mean_loss(signs * (X @ theta), task)
        gradient = X.T @ (signs * slopes) / n + ridge * theta + noise
        return value + ridge / 2 * float(theta @ theta) + float(noise @ theta), gradient

    return np.asarray(minimize(objective, np.zeros(p), jac=True, method="L-BFGS-B").x)


def plain_score(split: Any, epsilon: float, task: str, rng: np.random.Generator) -> float:
    """Test accuracy in percent, one model per class with its share of the budget if there are several."""
    X = split.X_train / np.maximum(1, np.linalg.norm(split.X_train, axis=1))[:, None]
    codes = [1] if len(split.classes) == 2 else split.classes
    models = [
        plain(
            X,
            np.where(split.y_train == code, 1.0, -1.0),
            epsilon / len(codes),
            split.delta / len(codes),
            task,
            rng,
        )
        for code in codes
    ]
    raw = split.X_test @ np.stack(models, axis=1)
    found = (raw[:, 0] > 0).astype(int) if len(codes) == 1 else raw.argmax(axis=1)
    return 100 * float(np.mean(found == split.y_test))


def row(name: str, task: str, seeds: range, fits: int) -> list[object]:
    """One line: the printed figure, the plain rule, our solver, and that without an intercept."""
    epsilon, rng = SETS[name], np.random.default_rng(0)
    scores: dict[str, list[float]] = {"plain": [], "ours": [], "ours, no intercept": []}
    for split in splits(name, seeds):
        for _ in range(fits):
            scores["plain"].append(plain_score(split, epsilon, task, rng))
            for label, intercept in (("ours", True), ("ours, no intercept", False)):
                model: Any = MODELS[task](
                    epsilon,
                    split.delta,
                    classes=split.classes,
                    solver="objective-dissertation",
                    fit_intercept=intercept,
                )
                model.fit(split.X_train, split.y_train)
                scores[label].append(100 * float(model.score(split.X_test, split.y_test)))
    printed = TABLES[task].printed[name, "H-F AMP"]
    return [
        name,
        MODELS[task].__name__,
        f"{epsilon:g}",
        printed,
        *(_told(values) for values in scores.values()),
    ]


def _told(values: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.1f}"
    return f"{np.mean(values):.1f} ± {np.std(values, ddof=1) / math.sqrt(len(values)):.1f}"


def main() -> None:
    """Measure, print and keep one section per set."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS), metavar="SET")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--fits", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    header = ("set", "model", "epsilon", "printed", "the printed rule, plainly", "ours", "ours, no intercept")
    for name in options.sets:
        begin = time.process_time()
        rows = [row(name, task, range(options.splits), options.fits) for task in MODELS]
        spent = time.process_time() - begin
        said = f"{options.splits} splits, {options.fits} fits each; {spent:.0f} s of processor time"
        kept.keep("hf_amp", "AMP without hyperparameters", {name: f"{kept.table(header, rows)}\n\n{said}."})


if __name__ == "__main__":
    main()
