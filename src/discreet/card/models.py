"""Which models can be saved, which released numbers each consists of, and how those belong together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.card.errors import CardError

Arrays = Mapping[str, NDArray[Any]]
Check = Callable[[Arrays, NDArray[Any] | None], int]


@dataclass(frozen=True)
class Family:
    """Models with the same released numbers.

    Attributes
    ----------
    module : where the class lives; a name in a file is looked up here and nowhere else.
    numbers : the fitted attributes that hold released numbers.
    check : raises ``CardError`` where arrays and classes do not belong together; gives the number of features.
    packed : whether the model itself turns into arrays and back (``to_arrays``, ``from_arrays``).
    linear : whether its predictions are those of ``coef_`` and ``intercept_``, so that other tools can make them.
    """

    module: str
    numbers: tuple[str, ...]
    check: Check
    packed: bool = False
    linear: bool = False


def _classifier(arrays: Arrays, classes: NDArray[Any] | None) -> int:
    coef, intercept = arrays["coef_"], arrays["intercept_"]
    if coef.ndim != 2 or intercept.shape != coef.shape[:1]:
        raise CardError("coefficients and intercepts do not belong together")
    if classes is None or len(classes) < 2:
        raise CardError("a classifier needs at least two classes")
    if len(coef) != (1 if len(classes) == 2 else len(classes)):
        raise CardError(f"{len(classes)} classes do not go with {len(coef)} rows of coefficients")
    return int(coef.shape[1])


def _regressor(arrays: Arrays, classes: NDArray[Any] | None) -> int:
    coef, intercept = arrays["coef_"], arrays["intercept_"]
    if coef.ndim != 1 or intercept.ndim != 0 or classes is not None:
        raise CardError("coefficients and intercept do not belong together")
    return int(coef.shape[0])


def _center(arrays: Arrays, classes: NDArray[Any] | None) -> int:
    if arrays["median_"].ndim != 1 or classes is not None:
        raise CardError("a median is one point")
    return int(arrays["median_"].shape[0])


def _recommender(arrays: Arrays, classes: NDArray[Any] | None) -> int:
    from discreet.recommend.arrays import unpacked

    try:
        return len(unpacked(arrays)[1])
    except (KeyError, ValueError, TypeError) as error:
        raise CardError(f"the arrays are not a recommender: {error}") from None


_LINEAR = ("coef_", "intercept_")
FAMILIES: Mapping[str, Family] = {
    "PrivateLogisticRegression": Family("discreet.estimators.linear", _LINEAR, _classifier, linear=True),
    "PrivateLinearSVC": Family("discreet.estimators.linear", _LINEAR, _classifier, linear=True),
    "PrivateSparseLogisticRegression": Family(
        "discreet.estimators.sparse", _LINEAR, _classifier, linear=True
    ),
    "PrivateSimplexClassifier": Family("discreet.estimators.simplex", _LINEAR, _classifier),
    "PrivateRidge": Family("discreet.estimators.regression", _LINEAR, _regressor, linear=True),
    "PrivateLinearRegression": Family("discreet.estimators.regression", _LINEAR, _regressor, linear=True),
    "PrivateHuberRegressor": Family("discreet.estimators.regression", _LINEAR, _regressor, linear=True),
    "PrivateQuantileRegressor": Family("discreet.estimators.regression", _LINEAR, _regressor, linear=True),
    "PrivateLasso": Family("discreet.estimators.sparse", _LINEAR, _regressor, linear=True),
    "PrivateSimplexRegressor": Family("discreet.estimators.simplex", _LINEAR, _regressor),
    "PrivatePoissonRegressor": Family("discreet.estimators.poisson", _LINEAR, _regressor),
    "PrivateMedian": Family("discreet.estimators.median", ("median_",), _center),
    "PrivateMatrixCompletion": Family("discreet.recommend.completion", (), _recommender, packed=True),
}


def family(estimator: str) -> Family:
    """The family of an estimator's name; ``CardError`` if such models cannot be saved."""
    if estimator not in FAMILIES:
        raise CardError(
            f"{estimator!r} is not a model that can be saved; those that can: {', '.join(FAMILIES)}"
        )
    return FAMILIES[estimator]


def checked(estimator: str, arrays: Arrays, classes: NDArray[Any] | None) -> int:
    """The number of features of a model with these numbers, if it can be one."""
    kind = family(estimator)
    if not kind.packed and set(arrays) != set(kind.numbers):
        raise CardError(
            f"{estimator} consists of {', '.join(kind.numbers)}; found {', '.join(arrays) or 'none'}"
        )
    if not all(array.dtype.kind == "U" or np.isfinite(array).all() for array in arrays.values()):
        raise CardError("the coefficients are not all finite")
    return kind.check(arrays, classes)
