"""A private search over twenty candidates: attacked, and compared with cheats and with no search at all.

Run ``python -m benchmarks.selection [--runs 500] [--part attack]``, which writes ``results/selection.md``. The
attacker knows everything but one held-out record's label and sees the chosen model's coefficients and score. Two
searches claim the same epsilon:

* honest: `PrivateSelection`, a random number of tries;
* unpaid choice: every candidate is fitted at the full epsilon, the best one by the exact score is released.

The second table is accuracy at one epsilon: search over a grid, the default model, and paying for every fit.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import kept
from discreet import PrivateLogisticRegression, PrivateSearchCV, PrivateSelection
from discreet.audit.estimates import LowerBound, threshold_bound
from discreet.estimators.linear import NoiseWarning
from discreet.mechanisms.repetition import permutation
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.search.plans import Records, Trainer, TriesPlan, prepared

Array = NDArray[np.float64]
Search = Callable[[Array, NDArray[np.int64]], Array]

N_CANDIDATES, N_ROWS, HOLDOUT, DELTA = 20, 200, 0.99, 1e-2
EPSILON = 1.0


@dataclass(frozen=True)
class Attacked:
    """What the attack showed about one search."""

    search: str
    claimed: float
    bound: LowerBound
    alarm: LowerBound

    @property
    def refuted(self) -> bool:
        """Whether the claim is false, with a chance of one in a million of saying so wrongly."""
        return self.alarm.epsilon > self.claimed


def candidates() -> list[Any]:
    """Twenty private models that differ in their regularization."""
    return [
        PrivateLogisticRegression(solver="output", fit_intercept=False, classes=[0, 1], l2=float(l2))
        for l2 in np.geomspace(1e-2, 10.0, N_CANDIDATES)
    ]


def canaries(label: int) -> tuple[Array, NDArray[np.int64]]:
    """One record that speaks, in rows that say nothing: its label decides who is right."""
    X, y = np.zeros((N_ROWS, 1)), np.zeros(N_ROWS, dtype=np.int64)
    X[0], y[0] = 1.0, label
    return X, y


def honest(epsilon: float) -> Search:
    """What one honest search shows; planned once, because a plan does not depend on the data."""
    plan = PrivateSelection(candidates(), epsilon, DELTA, holdout=HOLDOUT).plan(N_ROWS, 1)
    assert isinstance(plan, TriesPlan)
    return lambda X, y: _seen(plan, X, y)


def unpaid_choice(epsilon: float, n_candidates: int = N_CANDIDATES) -> Search:
    """Every candidate at the full epsilon, the best by its exact score: what an ordinary search would do."""
    models = [one.set_params(epsilon=epsilon, delta=DELTA) for one in candidates()[:n_candidates]]
    n_held_out = round(HOLDOUT * N_ROWS)

    def search(X: Array, y: NDArray[np.int64]) -> Array:
        order = permutation(N_ROWS, fresh_entropy())
        train, held_out = order[n_held_out:], order[:n_held_out]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoiseWarning)  # two records say nothing, which is the point
            fitted = [model.fit(X[train], y[train]) for model in models]
        scores = [float((model.predict(X[held_out]) == y[held_out]).sum()) for model in fitted]
        best = int(np.argmax(scores))
        return _features(fitted[best], scores[best])

    return search


def _seen(plan: TriesPlan, X: Array, y: NDArray[np.int64]) -> Array:
    entropy = fresh_entropy()
    order = permutation(N_ROWS, entropy)
    n_held_out = round(HOLDOUT * N_ROWS)
    ready = [prepared(one, plan.fit_guarantee, None, "error") for one in candidates()]
    trainer = Trainer(
        ready, Records(X, y, y, np.zeros(N_ROWS, dtype=bool)), order[n_held_out:], order[:n_held_out]
    )
    chosen = plan.run(trainer, entropy)
    return _features(chosen.model, chosen.score or 0.0)


def _features(model: Any, score: float) -> Array:
    """What is released, and products that help a linear attacker."""
    sign = float(np.sign(model.coef_[0, 0]))
    return np.array([sign, sign * (score - HOLDOUT * N_ROWS), float(model.coef_[0, 0])])


def attacked(name: str, search: Search, claimed: float, runs: int) -> Attacked:
    """Run a search ``runs`` times on either data set and bound epsilon from below."""
    first, second = (np.stack([search(*canaries(label)) for _ in range(runs)]) for label in (1, 0))
    # The direction is chosen on the runs that also choose the threshold, and on no others.
    part = int(0.3 * runs)
    spread = np.cov(first[:part].T) + np.cov(second[:part].T)
    gap = first[:part].mean(axis=0) - second[:part].mean(axis=0)
    direction = np.linalg.lstsq(spread + 1e-9 * np.eye(len(gap)), gap, rcond=None)[0]
    a, b = first @ direction, second @ direction
    return Attacked(
        name,
        claimed,
        threshold_bound(a, b, DELTA),
        threshold_bound(a, b, DELTA, 1 - 1e-6, joint=True),
    )


def measure(runs: int = 500, twin_runs: int = 150) -> list[Attacked]:
    """The honest search and the cheat."""
    return [
        attacked("honest", honest(EPSILON), EPSILON, runs),
        attacked("unpaid choice", unpaid_choice(EPSILON), EPSILON, twin_runs),
    ]


def accuracies(epsilon: float = 1.0, repeats: int = 3) -> dict[str, list[float]]:
    """Accuracy of a search on invented records whose rows are longer than the default bound."""
    found: dict[str, list[float]] = {"search": [], "default": [], "every fit paid": []}
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(25_000, 10)) * np.geomspace(0.02, 1.0, 10)
        y = (X @ np.geomspace(20.0, 0.5, 10) + 0.5 * rng.logistic(size=len(X)) > 0).astype(int)
        train, test = (X[:20_000], y[:20_000]), (X[20_000:], y[20_000:])
        base = PrivateLogisticRegression(epsilon, 1e-8, classes=[0, 1], solver="noisy-gd")
        grid = {"feature_bound": [0.3, 1.0, 1.5, 3.0, 6.0], "l2": [None, 1e-4, 1e-3, 1e-2]}
        found["search"].append(PrivateSearchCV(base, grid, epsilon, 1e-8).fit(*train).score(*test))
        found["default"].append(base.fit(*train).score(*test))
        split = PrivateSearchCV(base, grid, epsilon, 1e-8, method="split").fit(*train)
        found["every fit paid"].append(split.score(*test))
    return found


def main() -> int:
    """Measure, print and keep both tables; 1 if the honest claim was contradicted or the cheat was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=500, help="of the honest search, on either data set")
    parser.add_argument("--part", choices=("attack", "accuracy", "both"), default="both")
    arguments, wrong, sections = parser.parse_args(), False, {}
    if arguments.part != "accuracy":
        rows = measure(arguments.runs)
        header = ("search", "proved epsilon (95%)", "proved epsilon (1 - 1e-6)", "claim")
        sections[f"{N_CANDIDATES} candidates attacked, epsilon {EPSILON:g} claimed, delta {DELTA:g}"] = (
            kept.table(
                header,
                [
                    (
                        row.search,
                        f"{row.bound.epsilon:.3f}",
                        f"{row.alarm.epsilon:.3f}",
                        "REFUTED" if row.refuted else "not contradicted",
                    )
                    for row in rows
                ],
            )
        )
        wrong = rows[0].refuted or not rows[1].refuted
    if arguments.part != "attack":
        sections["Accuracy at epsilon 1, 20 candidates, 20,000 records"] = kept.table(
            ("search", "accuracy", "spread"),
            [
                (name, f"{np.mean(values):.4f}", f"{np.std(values, ddof=1):.4f}")
                for name, values in accuracies().items()
            ],
        )
    kept.keep("selection", "A private search", sections)
    return int(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
