"""The table of everything audited: mechanisms and estimators, replayed, attacked, and attacked with half the noise."""

from __future__ import annotations

import importlib
import math
import pkgutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any

import numpy as np

from discreet.audit import estimates
from discreet.audit.replay import replay
from discreet.audit.report import audit
from discreet.audit.witness import Weakener
from discreet.mechanisms.additive import GaussianMechanism, LaplaceMechanism
from discreet.mechanisms.entropy import fresh_entropy, insecure_noise
from discreet.mechanisms.recording import recorded_by
from discreet.privacy import accountants
from discreet.privacy.guarantee import Neighboring, Sensitivity

EPSILON, DELTA = 1.0, 1e-2
_NOTHING = (0.0, 0.0, 0.0, None, 0.0, False)


@dataclass(frozen=True)
class Row:
    """One audited thing.

    Attributes
    ----------
    subject, relation : what was audited, under which relation.
    replay : "passed", or the checks that failed.
    ratio : largest observed over declared distance on the worst pair known.
    claimed : epsilon of the charged event at the delta of the audit.
    empirical : lower bound from released numbers at 95% confidence.
    inside : lower bound from exact likelihood ratios, where known.
    half_noise : the alarm (1 - 1e-6) on the twin with half of the noise.
    caught : whether that alarm exceeds the claim.
    """

    subject: str
    relation: str
    replay: str
    ratio: float
    claimed: float
    empirical: float
    inside: float | None
    half_noise: float
    caught: bool

    @property
    def sound(self) -> bool:
        """Whether nothing contradicts the claim."""
        return (
            self.replay == "passed"
            and self.claimed > 0
            and self.ratio <= 1 + 1e-9
            and self.empirical <= self.claimed
        )


def estimators(
    relations: Sequence[str] = ("replace-one", "zero-out"), only: Sequence[str] = ()
) -> Iterator[Any]:
    """Every registered solver (or ``only`` some) with every classifier it plans for, at epsilon 1, delta 0.01."""
    from discreet import solvers
    from discreet.estimators.linear import PrivateLinearSVC, PrivateLogisticRegression
    from discreet.solvers import base

    for module in pkgutil.iter_modules(solvers.__path__):
        importlib.import_module(f"discreet.solvers.{module.name}")
    for kind in (PrivateLinearSVC, PrivateLogisticRegression):
        for name in only or base.names():
            for relation in relations:
                model = kind(EPSILON, DELTA, neighboring=relation, classes=[0, 1], solver=name)
                try:
                    model.plan(100, 2, 2)
                except (ValueError, TypeError):
                    continue  # not a solver for this problem
                yield model


def estimator_row(
    estimator: Any, *, runs: int, twin_runs: int, others: int, seed: int = 0, seconds: float = math.inf
) -> Row:
    """Audit one configuration and its half-noise twin, which needs more runs to be caught.

    ``seconds`` limits the time: where a run is slow, fewer are made, and the bounds are weaker.
    """
    try:
        most = _affordable(estimator, others, seconds)
    except ValueError as error:
        return Row(_name(estimator), str(estimator.neighboring), f"does not run: {error}", *_NOTHING)
    honest = audit(estimator, runs=min(runs, most), delta=DELTA, seed=seed, others=others)
    broken = audit(estimator, runs=min(twin_runs, most), delta=DELTA, seed=seed, others=others, share=0.5)
    found = honest.attacked
    return Row(
        subject=honest.subject,
        relation=str(estimator.neighboring),
        replay="passed" if honest.replayed.passed else ", ".join(sorted(honest.replayed.failed_checks)),
        ratio=honest.replayed.worst_ratio,
        claimed=found.claimed,
        empirical=found.bound.epsilon,
        inside=None if found.exact is None else found.exact.epsilon,
        half_noise=broken.attacked.alarm.epsilon,
        caught=broken.attacked.refuted,
    )


def _affordable(estimator: Any, others: int, seconds: float) -> int:
    """How many runs per data set fit into half of the time, by what sixty more of them take."""
    times = []
    for runs in (20, 20, 80):  # the first compiles
        begin = time.perf_counter()
        audit(estimator, runs=runs, delta=DELTA, seed=0, others=others)
        times.append(time.perf_counter() - begin)
    per_run = max(1e-5, (times[2] - times[1]) / 60)
    return max(20, int(min(1e9, seconds / 2 / per_run)))


def mechanism_rows(runs: int = 20_000, seed: int = 0) -> list[Row]:
    """The additive mechanisms on a pair of numbers at the declared distance."""
    multiplier = 1 / 0.5325  # epsilon 1 at delta 0.01
    rows = []
    for mechanism, delta in (
        (GaussianMechanism(Sensitivity(1.0), multiplier, size=1), DELTA),
        (LaplaceMechanism(Sensitivity(1.0, norm=1), 1 / EPSILON, size=1), 0.0),
    ):
        claimed = accountants.epsilon(mechanism.event, delta, Neighboring.REPLACE_ONE)
        found = [_released(mechanism, runs, seed, share) for share in (1.0, 0.5)]
        bound = estimates.threshold_bound(found[0][0], found[0][1], delta)
        alarm = estimates.threshold_bound(found[1][0], found[1][1], delta, 1 - 1e-6, joint=True)

        def program(value: float, tested: Any = mechanism) -> Any:
            return tested.release([value], fresh_entropy())

        seen = replay(program, 0.0, 1.0)
        name = type(mechanism).__name__
        passed = "passed" if seen.passed else ", ".join(sorted(seen.failed_checks))
        caught = alarm.epsilon > claimed
        rows.append(
            Row(name, "any", passed, seen.worst_ratio, claimed, bound.epsilon, None, alarm.epsilon, caught)
        )
    return rows


def as_text(rows: Sequence[Row]) -> str:
    """The table in Markdown."""
    names = [field.name.replace("_", " ") for field in fields(Row)]
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(_cell(value) for value in astuple(row)) + " |" for row in rows]
    return "\n".join(lines)


def _name(estimator: Any) -> str:
    return f"{type(estimator).__name__}, solver {estimator.solver!r}"


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, float):
        return f"{value:.4f}"
    return "" if value is None else str(value)


def _released(mechanism: Any, runs: int, seed: int, share: float) -> list[Any]:
    found = []
    for place, value in enumerate((1.0, 0.0)):
        with insecure_noise(seed + place):
            entropy = fresh_entropy()
            with recorded_by(Weakener(share)):
                found.append(np.array([mechanism.release([value], entropy)[0] for _ in range(runs)]))
    return found
