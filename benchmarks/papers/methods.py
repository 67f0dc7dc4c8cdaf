"""What is compared: this library with its defaults, the papers' printed calibrations, and models without privacy."""

from __future__ import annotations

import time
import tracemalloc
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from benchmarks.papers import peers
from benchmarks.papers.datasets import Split
from benchmarks.papers.runs import promise_of

Task = Literal["logistic", "svm"]
_SHORT = 15.0  # seconds; longer fits are not repeated to watch their memory
_ENOUGH = 1_000_000, 2**26  # rows and numbers of a fit without privacy; more do not change its accuracy
_RIDGE = 0.01  # of the strongly convex schedule, which needs one
_FEW = 500  # rows of a fit that compiles
_WARM: set[tuple[str, Task, bool, bool]] = set()


def fit_quietly(model: Any, X: Any, y: Any = None) -> None:
    """Fit without the warnings that are meant for people: here some settings are hopeless on purpose."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)


@dataclass(frozen=True)
class Outcome:
    """What one run gave."""

    accuracy: float
    seconds: float
    promise: Mapping[str, Any] | None
    megabytes: float | None = None


@dataclass(frozen=True)
class Method:
    """A named way to fit a linear classifier.

    Attributes
    ----------
    label : for people.
    solver : name of the solver; None for no privacy.
    protocol : where its settings come from.
    stands_for : the column of the dissertation's tables that it redoes.
    """

    label: str
    solver: str | None
    protocol: str = "defaults"
    stands_for: str = ""

    def fit(self, task: Task, split: Split, epsilon: float, watch: bool = False) -> Outcome:
        """Fit on the training part; percent of the test part. ``ValueError`` where the solver refuses.

        With ``watch``, the memory of a second fit is measured, unless the first took long. Without privacy `_ENOUGH`
        rows are taken: scikit-learn would copy all of a larger table, liblinear four times.
        """
        self._warm_up(task, split)
        model = self._model(task, split, epsilon)
        rows, numbers = _ENOUGH
        most = min(rows, numbers // split.X_train.shape[1]) if self.solver is None else None
        begin = time.perf_counter()
        fit_quietly(model, split.X_train[:most], split.y_train[:most])
        seconds = time.perf_counter() - begin
        return Outcome(
            100.0 * float(model.score(split.X_test, split.y_test)),
            seconds,
            None if self.solver is None else promise_of(model),
            self._megabytes(task, split, epsilon) if watch and seconds < _SHORT else None,
        )

    def _warm_up(self, task: Task, split: Split) -> None:
        """A small fit first, so that compiling is not timed; once for each kind of problem."""
        kind = (self.label, task, len(split.classes) > 2, isinstance(split.X_train, np.ndarray))
        if kind not in _WARM:
            _WARM.add(kind)
            fit_quietly(self._model(task, split, 1.0), split.X_train[:_FEW], split.y_train[:_FEW])

    def _megabytes(self, task: Task, split: Split, epsilon: float) -> float:
        """The most memory that a second fit holds, apart from the data; watching it would slow the first one down."""
        model = self._model(task, split, epsilon)
        tracemalloc.start()
        try:
            fit_quietly(model, split.X_train, split.y_train)
            return tracemalloc.get_traced_memory()[1] / 2**20
        finally:
            tracemalloc.stop()

    def _model(self, task: Task, split: Split, epsilon: float) -> Any:
        from discreet import (
            PrivateLinearSVC,
            PrivateLogisticRegression,
            PrivateSparseLinearSVC,
            PrivateSparseLogisticRegression,
        )
        from discreet.solvers import PermutationSGD

        if self.solver is None:
            from sklearn.linear_model import LogisticRegression
            from sklearn.svm import LinearSVC

            return LogisticRegression(max_iter=200) if task == "logistic" else LinearSVC()
        common: dict[str, Any] = {"delta": split.delta, "classes": split.classes}
        if self.solver.startswith("frank-wolfe"):
            sparse = PrivateSparseLogisticRegression if task == "logistic" else PrivateSparseLinearSVC
            return sparse(epsilon, solver=self.solver, **common)
        kind = PrivateLogisticRegression if task == "logistic" else PrivateLinearSVC
        if self.solver == "scpsgd":
            return kind(epsilon, l2=_RIDGE, solver=PermutationSGD(schedule="strongly-convex"), **common)
        return kind(epsilon, solver=self.solver, **common)


@dataclass(frozen=True)
class Peer:
    """Another library's private logistic regression, fitted in another process.

    Attributes
    ----------
    label : for people.
    environment : name of its environment in `peers`.
    protocol : where its settings come from.
    """

    label: str
    environment: str
    protocol: str
    stands_for: str = ""

    def fit(self, task: Task, split: Split, epsilon: float, watch: bool = False) -> Outcome:
        """Fit on the training part; raises `PeerFailed` with the reason where it cannot."""
        if task != "logistic":
            raise ValueError(f"{self.environment} is compared on logistic regression only")
        answer = peers.fit(self.environment, split, epsilon)
        accuracy = 100.0 * float((answer.predicted == split.y_test).mean())
        return Outcome(accuracy, answer.seconds, answer.promise)


_OWN = {
    "non-private": Method("scikit-learn, no privacy", None, "non-private", "NP baseline"),
    "auto": Method("discreet, automatic", "auto"),
    "objective": Method("objective perturbation (AMP)", "objective", stands_for="AMP"),
    "noisy-gd": Method("noisy gradient descent", "noisy-gd", stands_for="P-SGD"),
    "psgd": Method("permutation SGD", "psgd", stands_for="P-PSGD"),
    "scpsgd": Method("permutation SGD, strongly convex", "scpsgd", "fixed in advance", "P-SCPSGD"),
    "frank-wolfe": Method("Frank-Wolfe over an L1 ball", "frank-wolfe", stands_for="P-FW"),
    "objective-dissertation": Method(
        "H-F AMP, printed calibration", "objective-dissertation", "printed calibration", "H-F AMP"
    ),
    "noisy-gd-dissertation": Method(
        "noisy gradient descent, printed calibration", "noisy-gd-dissertation", "printed calibration", "P-SGD"
    ),
    "psgd-dissertation": Method(
        "permutation SGD, printed calibration", "psgd-dissertation", "printed calibration", "P-PSGD"
    ),
}
#: Other libraries, in environments of their own.
PEERS: dict[str, Peer] = {
    "diffprivlib": Peer("diffprivlib (pure epsilon)", "diffprivlib", "peer's defaults"),
    "opacus": Peer("Opacus DP-SGD (add/remove: weaker)", "opacus", "fixed in advance"),
}
OURS = tuple(_OWN)
METHODS: dict[str, Method | Peer] = {**_OWN, **PEERS}
