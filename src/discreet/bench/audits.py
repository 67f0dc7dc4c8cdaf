"""Our own claims attacked: what an adversary proves about epsilon, beside what was promised."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from discreet.bench.results import Row
from discreet.bench.runs import Effort, Run

_EPSILON, _DELTA = 1.0, 1e-2


@dataclass(frozen=True)
class Audits:
    """Lower bounds on epsilon from released coefficients, for claims and for twins with half of the noise."""

    name: str = "audit"
    title: str = "Audits: epsilon proved by an attack, beside the claim (delta 0.01)"
    axis: str = ""
    solvers: Sequence[str] = ("objective", "output", "noisy-gd", "psgd")
    printed: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def runs(self, effort: Effort) -> Iterator[Run]:
        """Both linear classifiers with several solvers."""
        for model in ("logistic regression", "Huber-SVM"):
            for solver in self.solvers[: 1 if effort.quick else None]:
                row = Row(
                    self.name,
                    f"{model}, {solver}",
                    "attack",
                    _EPSILON,
                    0,
                    "invented",
                    metric="epsilon",
                    quick=effort.quick,
                )
                yield Run(row, lambda r=row, m=model, s=solver: _run(r, m, s))  # type: ignore[misc]


def _run(row: Row, model: str, solver: str) -> Row:
    from discreet import PrivateLinearSVC, PrivateLogisticRegression
    from discreet.audit.report import audit

    kind = PrivateLogisticRegression if model == "logistic regression" else PrivateLinearSVC
    runs = 300 if row.quick else 2000
    try:
        found = audit(
            kind(_EPSILON, _DELTA, classes=[0, 1], solver=solver),
            runs=runs,
            delta=_DELTA,
            with_twin=True,
            others=100,
        )
    except ValueError as error:
        return replace(row, status=f"refused: {error}")
    twin = found.twin
    return replace(
        row,
        value=found.attacked.bound.epsilon,
        promise={
            "epsilon": found.attacked.claimed,
            "delta": _DELTA,
            "neighboring": found.guarantee.neighboring.value,
        },
        extra={
            "runs": runs,
            "replay": "passed" if found.replayed.passed else ", ".join(sorted(found.replayed.failed_checks)),
            "distance over declared": found.replayed.worst_ratio,
            "half noise": 0.0 if twin is None else twin.alarm.epsilon,
            "caught": twin is not None and twin.refuted,
            "sound": found.passed,
        },
    )
