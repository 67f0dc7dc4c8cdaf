"""Two papers' figures: perturbation and sampling in few and many dimensions; the stability that voting needs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Literal

import scipy.sparse as sp

from benchmarks.papers.datasets import MissingData, Split, available, load, splits
from benchmarks.papers.methods import fit_quietly
from benchmarks.papers.results import Row
from benchmarks.papers.runs import Effort, Run, promise_of, without_data

_DELTA, _BETA = 1e-6, 0.05


@dataclass(frozen=True)
class Kind:
    """A way to fit a classifier of figure 1: the solver, the loss, and whether delta is 0."""

    solver: str | None
    loss: Literal["svm", "mixture"] = "svm"
    pure: bool = False


#: Figure 1 (a), (b), (c).
PURE = {
    "objective, Gaussian noise": Kind("objective"),
    "output, Gaussian noise": Kind("output"),
    "objective, pure noise": Kind("objective", pure=True),
    "output, pure noise": Kind("output", pure=True),
    "non-private": Kind(None),
}
#: Figure 1 (d).
SAMPLING = {
    "sampled vertices": Kind("simplex-sampling", "mixture"),
    "objective, Gaussian noise": Kind("objective"),
    "objective, pure noise": Kind("objective", pure=True),
    "non-private": Kind(None),
}


@dataclass(frozen=True)
class Perturbations:
    """Accuracy against epsilon, or when columns of zeros blow the dimension up (Jain and Thakurta 2014, Figure 1)."""

    name: str
    title: str
    epsilons: Sequence[float]
    methods: Mapping[str, Kind]
    factors: Sequence[int] = (1,)
    datasets: Sequence[str] = ("cod-rna",)
    delta: float = 1e-3
    repeats: int = 5
    printed: Mapping[tuple[str, str], float] = field(default_factory=dict)

    @property
    def axis(self) -> str:
        """The dimension, if it varies."""
        return "dimension" if len(self.factors) > 1 else ""

    def runs(self, effort: Effort) -> Iterator[Run]:
        """Everything to run."""
        for dataset in self.datasets[: 1 if effort.quick else None]:
            if not effort.wants(dataset):
                continue
            used = "synthetic-L" if effort.quick else available(dataset)
            try:
                load(used)
            except MissingData as error:
                yield without_data(Row(self.name, dataset, "", 0.0, 0, used, quick=effort.quick), error)
                continue
            for split in splits(used, effort.seeds(self.repeats), effort.quick):
                grid = product(self.epsilons, self.factors[:2] if effort.quick else self.factors)
                for epsilon, factor in grid:
                    yield from self._at(dataset, split, epsilon, factor, effort)

    def _at(self, dataset: str, split: Split, epsilon: float, factor: int, effort: Effort) -> Iterator[Run]:
        for method, kind in self.methods.items():
            x = float(split.X_train.shape[1] * factor) if self.axis else 0.0
            if kind.solver is None and (epsilon != self.epsilons[-1]):
                continue
            row = Row(
                self.name,
                dataset,
                method,
                0.0 if kind.solver is None and not self.axis else epsilon,
                split.seed,
                split.name,
                x=x,
                protocol="non-private" if kind.solver is None else "defaults",
                quick=effort.quick,
            )
            yield Run(row, lambda r=row, s=split, f=factor, e=epsilon: self._run(r, s, f, e))  # type: ignore[misc]

    def _run(self, row: Row, split: Split, factor: int, epsilon: float) -> Row:
        kind = self.methods[row.method]
        model = self._model(kind, split, epsilon)
        train, test = (_padded(X, factor, kind.loss == "mixture") for X in (split.X_train, split.X_test))
        try:
            fit_quietly(model, train, split.y_train)
        except ValueError as error:
            return replace(row, status=f"refused: {error}")
        promise = None if kind.solver is None else promise_of(model)
        return replace(row, value=100.0 * float(model.score(test, split.y_test)), promise=promise)

    def _model(self, kind: Kind, split: Split, epsilon: float) -> Any:
        from discreet import PrivateLinearSVC, PrivateSimplexClassifier

        if kind.solver is None:
            from sklearn.svm import LinearSVC

            return LinearSVC()
        delta = 0.0 if kind.pure else self.delta
        if kind.loss == "mixture":
            return PrivateSimplexClassifier(epsilon, delta, solver=kind.solver, classes=split.classes)
        return PrivateLinearSVC(epsilon, delta, solver=kind.solver, classes=split.classes)


def _padded(X: Any, factor: int, mirrored: bool) -> sp.csr_matrix:
    """The same rows with columns of zeros, which cost no memory; mixtures also need the negative of every column."""
    rows = sp.csr_matrix(X)
    if mirrored:
        rows = sp.csr_matrix(sp.hstack([rows, -rows]))
    return sp.csr_matrix(
        (rows.data, rows.indices, rows.indptr), shape=(rows.shape[0], rows.shape[1] * factor)
    )


@dataclass(frozen=True)
class Queries:
    """Distance to instability that sparse vector needs for m queries, T of them unstable (dissertation, chapter 5)."""

    name: str = "queries"
    title: str = "Agreement that private voting needs (dissertation, chapter 5; delta 1e-6, beta 0.05)"
    axis: str = ""
    settings: Sequence[tuple[int, int, float]] = ((1, 100, 1.0), (10, 1_000, 1.0), (100, 10_000, 1.0))

    @property
    def printed(self) -> Mapping[tuple[str, str], float]:
        """What the constants of the dissertation need: 8 lambda log(4 m T / min(delta, beta / 2))."""
        return {
            (_setting(times, queries), "stability"): 8
            * (math.sqrt(32 * times * math.log(2 / _DELTA)) / epsilon)
            * math.log(4 * queries * times / min(_DELTA, _BETA / 2))
            for times, queries, epsilon in self.settings
        }

    def runs(self, effort: Effort) -> Iterator[Run]:
        """One calibration per setting; the quick version is the whole."""
        for times, queries, epsilon in self.settings:
            row = Row(
                self.name,
                _setting(times, queries),
                "sparse vector",
                epsilon,
                0,
                "none",
                metric="votes",
                quick=effort.quick,
            )
            yield Run(row, lambda r=row, t=times, q=queries: self._run(r, t, q))  # type: ignore[misc]

    def _run(self, row: Row, times: int, queries: int) -> Row:
        from discreet.mechanisms.sparse_vector import SparseVector

        vector = SparseVector.calibrated(row.epsilon, _DELTA, times, queries, _BETA)
        promise = {"epsilon": row.epsilon, "delta": _DELTA, "neighboring": "replace-one"}
        return replace(row, value=float(vector.distance_needed(queries, _BETA)), promise=promise)


def _setting(times: int, queries: int) -> str:
    return f"{queries:,} queries, {times} unstable"
