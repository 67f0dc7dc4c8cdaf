"""What a model file can hold: which models, which released numbers each consists of, and values as JSON.

Values are written in JSON's own types, exactly, and read back without trust.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.display.console import printable

# The only kinds of numbers a file can hold: fixed size, no objects, least significant byte first.
_KINDS = frozenset({"<f8", "<f4", "<i8", "<i4", "|b1", "|u1", "|i1"})
_MAX_ENTRIES = 1 << 31
_MAX_LETTERS = 1 << 26  # of words, each as long as the longest: NumPy gives them equal room


class CardError(ValueError):
    """A model cannot be saved, or a model file cannot be trusted; the message says why."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))  # which may quote the file


Arrays = Mapping[str, NDArray[Any]]
Check = Callable[[Arrays, NDArray[Any] | None], int]


@dataclass(frozen=True)
class Family:
    """Models with the same released numbers.

    Attributes
    ----------
    module : where the class lives; a name in a file is looked up here and nowhere else.
    check : raises ``CardError`` where arrays and classes do not belong together; gives the number of features.
    packed : whether the model itself turns into arrays and back (``to_arrays``, ``from_arrays``).
    linear : whether its predictions are those of ``coef_`` and ``intercept_``, so that other tools can make them.
    probabilities : whether its raw predictions are log-odds.
    tables : whether it reads tables itself, by the domains of a schema, and not encoded rows.
    released : what was released, where the arrays also hold what was made of it.
    """

    module: str
    check: Check
    packed: bool = False
    linear: bool = False
    probabilities: bool = False
    tables: bool = False
    released: Callable[[Arrays], dict[str, Any]] | None = None


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


def _risk_minimizer(arrays: Arrays, classes: NDArray[Any] | None) -> int:
    coef, intercept = arrays["coef_"], arrays["intercept_"]
    shapes = ((), (0,)) if coef.ndim == 1 else (coef.shape[:1],)  # nothing where no prediction is linear
    if not 1 <= coef.ndim <= 2 or intercept.shape not in shapes or classes is not None:
        raise CardError("coefficients and intercepts do not belong together")
    return int(coef.shape[-1])


def _center(arrays: Arrays, classes: NDArray[Any] | None) -> int:
    if arrays["median_"].ndim != 1 or classes is not None:
        raise CardError("a median is one point")
    return int(arrays["median_"].shape[0])


def _components(arrays: Arrays, classes: NDArray[Any] | None) -> int:
    found, mean, variance = (arrays[name] for name in ("components_", "mean_", "explained_variance_"))
    if (
        found.ndim != 2
        or mean.shape != found.shape[1:]
        or variance.shape != found.shape[:1]
        or classes is not None
    ):
        raise CardError("components, mean and variances do not belong together")
    return int(found.shape[1])


def _recommender(arrays: Arrays, classes: NDArray[Any] | None) -> int:
    from discreet.recommend.item_models import unpacked

    try:
        return len(unpacked(arrays)[1])
    except (KeyError, ValueError, TypeError) as error:
        raise CardError(f"the arrays are not a recommender: {error}") from None


def _additive(arrays: Arrays, classes: NDArray[Any] | None) -> int:
    from discreet.additive.shapes import AdditiveModel

    try:
        return len(AdditiveModel.from_arrays(arrays).shapes)
    except (KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
        raise CardError(f"the arrays are not an additive model: {error}") from None


def _transfer(arrays: Arrays, classes: NDArray[Any] | None) -> int:
    from discreet.transfer.students import released_of, student_of

    try:
        released_of(arrays)
        if (classes is None) != ("classes" not in arrays):
            raise ValueError("its classes are missing")
        return student_of(arrays).n_features_in_
    except (KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
        raise CardError(f"the arrays are not a student: {error}") from None


def _answers(arrays: Arrays) -> dict[str, Any]:
    from discreet.transfer.students import released_of

    return released_of(arrays)


FAMILIES: Mapping[str, Family] = {
    "PrivateLogisticRegression": Family(
        "discreet.estimators.classifiers", _classifier, linear=True, probabilities=True
    ),
    "PrivateLinearSVC": Family("discreet.estimators.classifiers", _classifier, linear=True),
    "PrivateSparseLinearSVC": Family("discreet.estimators.l1", _classifier, linear=True),
    "PrivateSparseLogisticRegression": Family(
        "discreet.estimators.l1", _classifier, linear=True, probabilities=True
    ),
    "PrivateSimplexClassifier": Family("discreet.estimators.mixtures", _classifier),
    "PrivateRidge": Family("discreet.estimators.regressors", _regressor, linear=True),
    "PrivateLinearRegression": Family("discreet.estimators.regressors", _regressor, linear=True),
    "PrivateHuberRegressor": Family("discreet.estimators.regressors", _regressor, linear=True),
    "PrivateQuantileRegressor": Family("discreet.estimators.regressors", _regressor, linear=True),
    "PrivateLasso": Family("discreet.estimators.l1", _regressor, linear=True),
    "PrivateSimplexRegressor": Family("discreet.estimators.mixtures", _regressor),
    "PrivatePoissonRegressor": Family("discreet.estimators.regressors", _regressor),
    "PrivateERM": Family("discreet.estimators.erm", _risk_minimizer),
    "PrivateMedian": Family("discreet.estimators.median", _center),
    "PrivatePCA": Family("discreet.estimators.components", _components),
    "PrivateAdditiveClassifier": Family("discreet.additive.estimators", _additive, packed=True, tables=True),
    "PrivateAdditiveRegressor": Family("discreet.additive.estimators", _additive, packed=True, tables=True),
    "PrivateTransferClassifier": Family(
        "discreet.transfer.classifier", _transfer, packed=True, released=_answers
    ),
    "PrivateTransferRegressor": Family(
        "discreet.transfer.regressor", _transfer, packed=True, released=_answers
    ),
    "PrivateMatrixCompletion": Family("discreet.recommend.completion", _recommender, packed=True),
}


def family(estimator: str) -> Family:
    """The family of an estimator's name; ``CardError`` if such models cannot be saved."""
    if estimator not in FAMILIES:
        raise CardError(
            f"{estimator!r} is not a model that can be saved; those that can: {', '.join(FAMILIES)}"
        )
    return FAMILIES[estimator]


def kind_of(estimator: str) -> Any:
    """The class of that name."""
    return getattr(importlib.import_module(family(estimator).module), estimator)


def numbers_of(estimator: str) -> tuple[str, ...]:
    """The fitted attributes that hold released numbers, as the class lists them."""
    return tuple(kind_of(estimator)._released)


def checked(estimator: str, arrays: Arrays, classes: NDArray[Any] | None) -> int:
    """The number of features of a model with these numbers, if it can be one."""
    kind = family(estimator)
    if not kind.packed and set(arrays) != set(numbers_of(estimator)):
        raise CardError(
            f"{estimator} consists of {', '.join(numbers_of(estimator))}; found {sorted(arrays) or 'none'}"
        )
    if not all(array.dtype.kind == "U" or np.isfinite(array).all() for array in arrays.values()):
        raise CardError("the coefficients are not all finite")
    return kind.check(arrays, classes)


# -- values as JSON -----------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """The same value in JSON's own types; ``TypeError`` where JSON cannot hold it exactly."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {"pairs": [[plain(key), plain(item)] for key, item in value.items()]}  # keys need not be text
    if isinstance(value, str):
        return str(value)  # an enumeration member becomes its text
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise TypeError(f"JSON cannot hold {type(value).__name__}")


def unpaired(value: Any) -> Any:
    """A value as it was before ``plain`` wrote a dict as pairs."""
    if not isinstance(value, dict):
        return value
    pairs = typed(value.get("pairs"), list)
    if len(value) > 1 or any(
        len(typed(pair, list)) != 2 or isinstance(pair[0], list | dict) for pair in pairs
    ):
        raise ValueError("not the description of a dict")
    return {key: unpaired(item) for key, item in pairs}


def from_array(array: NDArray[Any]) -> dict[str, Any]:
    """Shape, kind and bytes of an array of numbers; the words of an array of words."""
    array = np.asarray(array)
    if array.dtype.kind == "U" and array.ndim <= 1:
        return {"shape": list(array.shape), "kind": "words", "words": array.ravel().tolist()}
    kind = array.dtype.newbyteorder("<").str
    if kind not in _KINDS:
        raise TypeError(f"a model file holds arrays of numbers, not of {array.dtype}")
    content = np.ascontiguousarray(array, dtype=kind).tobytes()
    return {"shape": list(array.shape), "kind": kind, "base64": base64.b64encode(content).decode()}


def to_array(fields: Any) -> NDArray[Any]:
    """The array that ``from_array`` described; ``TypeError`` or ``ValueError`` for anything else."""
    fields = typed(fields, dict)
    if fields.get("kind") == "words":
        words = _words([typed(word, str) for word in typed(fields["words"], list)])
        return words.reshape([typed(size, int) for size in typed(fields["shape"], list)])
    if set(fields) != {"shape", "kind", "base64"} or fields["kind"] not in _KINDS:
        raise ValueError("not the description of an array")
    shape = tuple(typed(size, int) for size in typed(fields["shape"], list))
    if len(shape) > 8 or any(size < 0 for size in shape) or math.prod(shape) > _MAX_ENTRIES:
        raise ValueError(f"an array cannot have the shape {shape}")
    try:
        content = base64.b64decode(typed(fields["base64"], str), validate=True)
    except binascii.Error as error:
        raise ValueError(f"an array's bytes are damaged: {error}") from None
    kind = np.dtype(fields["kind"])
    if len(content) != math.prod(shape) * kind.itemsize:
        raise ValueError(f"{len(content)} bytes are not an array of shape {shape}")
    return np.frombuffer(content, dtype=kind).reshape(shape).astype(kind.newbyteorder("="))


def labels(values: Any) -> NDArray[Any]:
    """A label set: all text or all numbers of one type."""
    kinds = {type(value) for value in typed(values, list)}
    if len(kinds) != 1 or not kinds <= {str, int, bool, float}:
        raise TypeError("the classes must be all text or all numbers")
    return _words(values) if kinds == {str} else np.array(values)


def _words(words: list[str]) -> NDArray[Any]:
    """An array of words; a small file with one long word and many others must not fill the memory."""
    if len(words) * max(map(len, words), default=0) > _MAX_LETTERS:
        raise ValueError("its words are too many, or one of them is too long")
    return np.array(words, dtype=np.str_)


def typed(value: Any, kind: type) -> Any:
    """``value``, if it is of this type; ``bool`` does not count as ``int``."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"expected {kind.__name__}, found {type(value).__name__}")
    return value


def strings(value: Any) -> tuple[str, ...] | None:
    """A tuple of strings, or None."""
    return None if value is None else tuple(typed(item, str) for item in typed(value, list))


def no_constant(text: str) -> float:
    """For ``json.loads``: NaN and infinity are not JSON."""
    raise ValueError(f"{text} is not JSON")


def no_duplicates(pairs: list[tuple[str, Any]]) -> Mapping[str, Any]:
    """For ``json.loads``: two entries of one name could show one thing to a reader and another to a machine."""
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("an entry appears twice")
    return content
