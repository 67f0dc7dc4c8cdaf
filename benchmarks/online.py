"""Private online learning: regret against steps and actions beside the bound, and an adaptive adversary.

Run ``python -m benchmarks.online``, which writes ``results/online.md``; ``measure()`` returns the same numbers for
other reports. Streams are generated.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from benchmarks import kept
from discreet import PrivateFTRL, PrivateOnlineLinearModel
from discreet.audit.estimates import loss_bound
from discreet.losses import Logistic
from discreet.online.ftrl import SamplingPlan

Array = NDArray[np.float64]


def stochastic(steps: int, actions: int, seed: int) -> Array:
    """Independent costs in [-1, 1]; one action is better by 0.2 on average."""
    costs = np.random.default_rng(seed).uniform(-1, 1, size=(steps, actions))
    costs[:, seed % actions] -= 0.2
    return np.maximum(costs, -1.0)


def adversarial(steps: int, actions: int, seed: int) -> Array:
    """One action is far better in the first half and far worse in the second, when it is too late to leave it."""
    costs = np.ones((steps, actions))
    costs[: steps // 2, seed % actions] = costs[steps // 2 :, (seed + 1) % actions] = -1.0
    return costs


def regret(
    steps: int, actions: int, method: str, stream: Callable[..., Array], repeats: int
) -> tuple[float, float]:
    """Mean regret and the bound on its expectation, at epsilon 1 and delta 1e-6."""
    bound = PrivateFTRL(actions, steps, 1.0, 1e-6, method=method).plan().regret
    found = []
    for seed in range(repeats):
        costs = stream(steps, actions, seed)
        learner = PrivateFTRL(actions, steps, 1.0, 1e-6, method=method)
        paid = sum(row[action] for action, row in zip(learner.play(costs), costs, strict=True))
        found.append(float(paid - costs.sum(axis=0).min()))
    return float(np.mean(found)), bound


class _Planned(PrivateFTRL):
    """Takes its plan ready-made, because every run has the same."""

    def __init__(self, plan: SamplingPlan) -> None:
        super().__init__(plan.n_actions, plan.horizon)
        self.ready = plan

    def plan(self) -> SamplingPlan:
        return self.ready


def adaptive_epsilon(runs: int, horizon: int = 25, delta: float = 1e-2) -> tuple[float, float]:
    """Claimed epsilon, and a lower bound from exact losses of transcripts against costs that react to every action.

    The neighbors differ in the first step, and the adversary keeps the actions even, where a draw tells most.
    """
    plan = PrivateFTRL(2, horizon, 1.0, delta, method="sampling").plan()
    assert isinstance(plan, SamplingPlan)
    first, other = np.array([1.0, -1.0]), np.array([-1.0, 1.0])
    losses = np.zeros(runs)
    for run in range(runs):
        learner = _Planned(plan).learn_one(first)
        sums = first.copy()
        for _ in range(horizon - 1):
            action = learner.predict_one()
            losses[run] += log_softmax(-sums / plan.scale)[action]
            losses[run] -= log_softmax(-(sums - first + other) / plan.scale)[action]
            costs = np.where(np.arange(2) == action, 1.0, -1.0)
            learner.learn_one(costs)
            sums += costs
    return 1.0, loss_bound(losses, delta).epsilon


def linear_regret(steps: int, epsilon: float) -> tuple[float, float]:
    """Regret of the online logistic regression against the model that made the labels, and the bound."""
    rng = np.random.default_rng(0)
    X, truth = rng.uniform(-0.4, 0.4, size=(steps, 5)), np.array([2.0, -2.0, 1.0, 0.0, 0.0])
    signs = np.where(rng.random(steps) < 1 / (1 + np.exp(-2 * X @ truth)), 1.0, -1.0)
    model = PrivateOnlineLinearModel(
        5, steps, epsilon, 1e-6, classes=[-1.0, 1.0], radius=6.0, fit_intercept=False
    )
    bound, paid, loss = model.plan().regret, 0.0, Logistic()
    for row, sign in zip(X, signs, strict=True):
        paid += float(loss.value(sign, row @ model.coef_))
        model.learn_one(row, sign)
    return paid - float(loss.value(signs, 2 * X @ truth).sum()), bound


def measure(repeats: int = 3, longest: int = 16_000, runs: int = 2_000) -> dict[str, Any]:
    """Regret against steps and actions for both methods and streams; linear models; the adaptive adversary."""
    sizes = [(steps, 10) for steps in (1_000, 4_000, 16_000) if steps <= longest]
    sizes += [(min(4_000, longest), actions) for actions in (2, 100, 1_000)]
    streams = {"stochastic": stochastic, "adversarial": adversarial}
    regrets = {
        (name, method, steps, actions): regret(steps, actions, method, stream, repeats)
        for name, stream in streams.items()
        for method in ("sampling", "tree")
        for steps, actions in sizes
    }
    linear = {epsilon: linear_regret(longest, epsilon) for epsilon in (1.0, 8.0)}
    return {"regrets": regrets, "linear": linear, "adaptive": adaptive_epsilon(runs)}


def main() -> None:
    """Measure, print and keep everything."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--longest", type=int, default=16_000)
    parser.add_argument("--runs", type=int, default=2_000)
    options = parser.parse_args()
    found = measure(options.repeats, options.longest, options.runs)
    claimed, audited = found["adaptive"]
    sections = {
        "Regret beside the bound (epsilon 1, delta 1e-6)": f"Means of {options.repeats} streams.\n\n"
        + kept.table(
            ("stream", "method", "steps", "actions", "regret", "bound", "share"),
            [
                (*what, f"{mean:.0f}", f"{bound:.0f}", f"{mean / bound:.2f}")
                for what, (mean, bound) in found["regrets"].items()
            ],
        ),
        "Online logistic regression": kept.table(
            ("epsilon", "regret", "bound"),
            [
                (f"{epsilon:g}", f"{mean:.0f}", f"{bound:.0f}")
                for epsilon, (mean, bound) in found["linear"].items()
            ],
        ),
        "An adaptive adversary": f"Audited epsilon at least {audited:.3f}, claimed {claimed:g}, from "
        f"{options.runs:,} runs.",
    }
    kept.keep("online", "Private online learning", sections)


if __name__ == "__main__":
    main()
