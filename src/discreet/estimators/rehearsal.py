"""What to expect of a private fit before any data is read: a rule of thumb, and a rehearsal on invented data.

Both use public facts only: numbers of records, columns and classes, bounds, epsilon and delta. A rehearsal knows
nothing about the real data except its shape: it shows the effect of the noise, not how hard the task is.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.sparse import csr_array
from scipy.special import softmax
from sklearn.base import clone, is_classifier

from discreet import _checks
from discreet._checks import ParameterError
from discreet._typing import Array
from discreet.estimators.linear import NoiseWarning
from discreet.mechanisms.recording import releasing
from discreet.records.kernels.passes import kernel_folder

_TEST_ROWS = 4000


@dataclass(frozen=True)
class Forecast:
    """Scores of private fits to invented data: accuracy of classifiers, R^2 of regressors."""

    epsilon: float
    scores: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean over repetitions."""
        return float(np.mean(self.scores))

    def __str__(self) -> str:
        spread = float(np.std(self.scores, ddof=1)) if len(self.scores) > 1 else math.nan
        return f"epsilon {self.epsilon:<10.4g}{self.mean:.4f}" + (
            "" if math.isnan(spread) else f"  +- {spread:.4f}"
        )


def simulate(
    estimator: Any,
    n_samples: int,
    n_features: int,
    n_classes: int = 2,
    *,
    epsilons: Sequence[float] = (0.1, 0.3, 1.0, 3.0),
    attainable: float = 0.85,
    repeats: int = 3,
    random_state: Any = None,
) -> list[Forecast]:
    """Rehearse a fit on invented data of the same shape, at several epsilons.

    Rows point in random directions and are as long as the bound allows; labels follow a random linear model with
    noise, whose best possible score is ``attainable``.

    Parameters
    ----------
    estimator : unfitted linear classifier or regressor of this package; its epsilon is replaced, no ledger is charged.
    n_samples, n_features, n_classes : public shape of the real data.
    epsilons : at which to fit.
    attainable : accuracy of the best possible classifier, or R^2 of the best possible regressor; your guess.
    repeats : invented data sets per epsilon.
    random_state : seed of the invented data.

    Privacy
    -------
    Reads no data and costs nothing.

    Examples
    --------
    >>> from discreet import PrivateLogisticRegression
    >>> low, high = simulate(PrivateLogisticRegression(), 5000, 5, epsilons=(0.01, 3.0), random_state=0)
    >>> low.mean < high.mean <= 0.9
    True
    """
    for name, value in (("n_samples", n_samples), ("n_features", n_features), ("repeats", repeats)):
        _checks.count(name, value)
    classifies = is_classifier(estimator)
    least = 1 / n_classes if classifies else 0.0
    if not least < attainable < 1:
        raise ParameterError(
            "attainable", f"must lie between {least:.3g}, a guess, and 1, got {attainable!r}"
        )
    seeds = _checks.seed(random_state).spawn(repeats)
    scores: dict[float, list[float]] = {float(epsilon): [] for epsilon in epsilons}
    for seed in seeds:
        rng = np.random.default_rng(seed)
        bound, intercept = float(estimator.feature_bound), bool(estimator.fit_intercept)
        rows = _rows(rng, n_samples + _TEST_ROWS, n_features, bound, intercept)
        if classifies:
            y: Array = _labels(rng, rows, n_classes, attainable)
            public: dict[str, Any] = {"classes": list(range(n_classes))}
        else:
            y, public = _targets(rng, rows, attainable), {"target_bounds": (-1.0, 1.0)}
        for epsilon, found in scores.items():
            known = {"epsilon": epsilon, "ledger": None, "n_samples": n_samples, **public}
            names = estimator.get_params(deep=False)
            model = clone(estimator).set_params(
                **{name: value for name, value in known.items() if name in names}
            )
            with warnings.catch_warnings(), releasing("simulate"):  # nobody is in invented data
                warnings.simplefilter("ignore", NoiseWarning)
                model.fit(rows[:n_samples], y[:n_samples])
            found.append(float(model.score(rows[n_samples:], y[n_samples:])))
    return [Forecast(epsilon, tuple(found)) for epsilon, found in scores.items()]


def warm_up() -> Path | None:
    """Compile what fits of large tables run, by fits to invented rows; return the folder that keeps it, if any can.

    Privacy: reads no data and costs nothing.
    """
    from discreet.estimators.classifiers import PrivateLogisticRegression

    rng = np.random.default_rng(0)
    dense = _rows(rng, 2**14, 2**5, 1.0, True)
    labels = np.arange(len(dense)) % 2
    for rows, solver in (
        (dense, "newton"),
        (dense, "objective"),
        (dense.astype(np.float32), "noisy-gd"),
        (csr_array(dense[:, ::8]), "objective"),
    ):
        with warnings.catch_warnings(), releasing("warmup"):
            warnings.simplefilter("ignore", NoiseWarning)
            PrivateLogisticRegression(1.0, 1e-6, solver=solver, classes=[0, 1]).fit(rows, labels)
    return kernel_folder()


def _rows(rng: np.random.Generator, n_rows: int, n_columns: int, bound: float, intercept: bool) -> Array:
    """Random directions of the length that a row may have beside the intercept's 1 (half the bound if none is left)."""
    rows = rng.normal(size=(n_rows, n_columns))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    length = bound if not intercept else math.sqrt(bound**2 - 1) if bound > 1.1 else bound / 2
    return np.asarray(length * rows)


def _labels(rng: np.random.Generator, rows: Array, n_classes: int, attainable: float) -> Array:
    """Return labels drawn from a softmax whose most likely class is right with probability ``attainable``."""
    scores = rows @ rng.normal(size=(rows.shape[1], n_classes)) / np.linalg.norm(rows[0])

    def missing(scale: float) -> float:
        return float(softmax(math.exp(scale) * scores, axis=1).max(axis=1).mean()) - attainable

    scale = float(brentq(missing, -8.0, 12.0)) if missing(12.0) > 0 else 12.0
    gumbel = rng.gumbel(size=scores.shape)
    return np.asarray((math.exp(scale) * scores + gumbel).argmax(axis=1))


def _targets(rng: np.random.Generator, rows: Array, attainable: float) -> Array:
    """Return targets in [-1, 1]; a linear model explains the share ``attainable`` of their variance."""
    signal = rows @ rng.normal(size=rows.shape[1])
    signal *= math.sqrt(attainable) / float(np.std(signal))
    noise = math.sqrt(1 - attainable) * rng.normal(size=len(signal))
    return np.asarray(np.clip((signal + noise) / 4, -1.0, 1.0))
