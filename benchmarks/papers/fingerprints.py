"""The floor of sparse regression: data that no private method may fit well (Talwar, Thakurta and Zhang 2014).

A few rows of a fingerprinting code, padded with columns on which they agree, have label 1; the rows of an orthogonal
matrix have label 0. The consensus of the code, spread evenly, fits everything. Whoever comes below 1.1 tau w knows too
much of the code to be private, so a private method that does is a bug.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import hadamard

from benchmarks.papers.methods import fit_quietly
from benchmarks.papers.results import Row
from benchmarks.papers.runs import Effort, Run, promise_of

Array = NDArray[np.float64]
_CODE_ROWS, _COLUMNS, _DELTA = 16, 512, 1e-6
_INSTANCE = f"{_CODE_ROWS} rows of a code, {_COLUMNS} columns"
_CONSENSUS = "consensus of the code, no privacy"
#: 1.1 tau w with tau = 1 / w, which is what as many orthogonal rows as columns give.
FLOOR = 1.1


def fingerprinting(w: int = _CODE_ROWS, p: int = _COLUMNS, seed: int = 0) -> tuple[Array, Array]:
    """A padded Tardos code with labels 1 against an orthogonal matrix with labels 0."""
    rng = np.random.default_rng(seed)
    c = max(1, p // 1000)
    t = 1 / (300 * w)
    u = rng.uniform(np.arcsin(np.sqrt(t)), np.arcsin(np.sqrt(1 - t)), size=c)
    code = np.where(rng.random((w, c)) < np.sin(u) ** 2, 1.0, -1.0)
    signs = np.where(np.arange(p - c) < (p - c) // 2, 1.0, -1.0)
    rows = np.hstack([code, np.tile(signs, (w, 1))])[:, rng.permutation(p)]
    X = np.vstack([rows, hadamard(p).astype(float)])
    return X, np.concatenate([np.ones(w), np.zeros(p)])


@dataclass(frozen=True)
class Fingerprints:
    """Squared loss of the private LASSO on the instance, beside the floor and the consensus without privacy."""

    name: str = "fingerprinting"
    title: str = (
        "A floor for sparse regression: the fingerprinting instance (Talwar, Thakurta and Zhang 2014)"
    )
    axis: str = ""
    epsilon: float = 0.1
    repeats: int = 10
    solvers: Sequence[str] = ("frank-wolfe", "mirror-descent")

    @property
    def printed(self) -> Mapping[tuple[str, str], float]:
        """What no private method may come below."""
        return {(_INSTANCE, "floor of private methods"): FLOOR}

    def runs(self, effort: Effort) -> Iterator[Run]:
        """Every solver over an L1 ball, and the consensus."""
        for seed in effort.seeds(self.repeats):
            for method in (*self.solvers, _CONSENSUS):
                private = method != _CONSENSUS
                row = Row(
                    self.name,
                    _INSTANCE,
                    method,
                    self.epsilon if private else 0.0,
                    seed,
                    "generated",
                    metric="squared loss",
                    protocol="defaults" if private else "non-private",
                    quick=effort.quick,
                )
                yield Run(row, lambda r=row: _run(r))  # type: ignore[misc]


def _run(row: Row) -> Row:
    from discreet import PrivateLasso

    X, y = fingerprinting(seed=row.seed)
    if row.method == _CONSENSUS:
        consensus = np.sign(X[:_CODE_ROWS].sum(axis=0)) / X.shape[1]
        return replace(row, value=_loss(consensus, X, y))
    model = PrivateLasso(row.epsilon, _DELTA, target_bounds=(-1, 1), fit_intercept=False, solver=row.method)
    fit_quietly(model, X, y)
    return replace(row, value=_loss(model.coef_, X, y), promise=promise_of(model))


def _loss(theta: Array, X: Array, y: Array) -> float:
    return float(np.sum((X @ theta - y) ** 2))
