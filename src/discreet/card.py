"""A released model as one JSON file: coefficients, schema, privacy statement, and a checksum over all of it.

Reading such a file parses JSON and checks it; nothing in it is ever executed, imported by name or unpickled.
The checksum notices damage and careless edits. It is no signature: who edits on purpose can recompute it.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from discreet import __version__
from discreet._files import write_atomically
from discreet.privacy.statement import PrivacyStatement
from discreet.schema import Schema

Array: TypeAlias = NDArray[np.float64]

FORMAT = "discreet model"
FORMAT_VERSION = 1
# The only classes a file can ask for; a name in a file is looked up here and nowhere else.
ESTIMATORS = {
    "PrivateLogisticRegression": "discreet.estimators.linear",
    "PrivateLinearSVC": "discreet.estimators.linear",
}
# Where the budget was and how a split was seeded say nothing about the model.
_NOT_SAVED = ("ledger", "random_state")


class CardError(ValueError):
    """A model cannot be saved, or a model file cannot be trusted; the message says why."""


@dataclass(frozen=True)
class Card:
    """The content of a model file.

    Attributes
    ----------
    estimator : name of the estimator's class.
    parameters : its constructor parameters, as far as JSON can hold them exactly.
    described : the other parameters, as text for people; not restored.
    coefficients, intercepts : the released numbers, one row per output.
    classes : the public labels.
    feature_names : names of the columns the model was fitted on, if it had any.
    privacy : the promise.
    schema : public domains that turn a raw table into the model's rows, if it was fitted through one.
    library : version of discreet that wrote the file.
    """

    estimator: str
    parameters: Mapping[str, Any]
    coefficients: Array
    intercepts: Array
    classes: NDArray[Any]
    privacy: PrivacyStatement
    described: Mapping[str, str] = field(default_factory=dict)
    feature_names: tuple[str, ...] | None = None
    schema: Schema | None = None
    library: str = ""

    def __post_init__(self) -> None:
        if self.estimator not in ESTIMATORS:
            known = ", ".join(ESTIMATORS)
            raise CardError(f"{self.estimator!r} is not a model that can be saved; those that can: {known}")
        if not (np.isfinite(self.coefficients).all() and np.isfinite(self.intercepts).all()):
            raise CardError("the coefficients are not all finite")
        if self.coefficients.ndim != 2 or self.intercepts.shape != self.coefficients.shape[:1]:
            raise CardError("coefficients and intercepts do not belong together")
        outputs = 1 if len(self.classes) == 2 else len(self.classes)
        if self.classes.ndim != 1 or len(self.classes) < 2 or len(self.coefficients) != outputs:
            raise CardError(
                f"{len(self.classes)} classes do not go with {len(self.coefficients)} rows of coefficients"
            )
        for what, count in (
            ("feature names", None if self.feature_names is None else len(self.feature_names)),
            ("features of the schema", None if self.schema is None else self.schema.n_features),
        ):
            if count is not None and count != self.coefficients.shape[1]:
                raise CardError(
                    f"{count} {what} do not go with {self.coefficients.shape[1]} columns of coefficients"
                )

    @classmethod
    def of(cls, model: Any, schema: Schema | None = None) -> Card:
        """The card of a fitted estimator."""
        if not hasattr(model, "privacy_"):
            raise CardError(
                f"this {type(model).__name__} has no privacy_: only a fitted private model can be saved"
            )
        exact, described = {}, {}
        for name, value in model.get_params(deep=False).items():
            if name in _NOT_SAVED:
                continue
            try:
                exact[name] = _plain(value)
            except TypeError:
                described[name] = repr(value)
        if "multi_class" in exact:
            exact["multi_class"] = getattr(model, "multi_class_", exact["multi_class"])  # what "auto" came to
        names = getattr(model, "feature_names_in_", None)
        coefficients = np.atleast_2d(np.asarray(model.coef_, dtype=np.float64))
        intercepts = np.broadcast_to(np.asarray(model.intercept_, dtype=np.float64), len(coefficients))
        return cls(
            estimator=type(model).__name__,
            parameters=exact,
            described=described,
            coefficients=coefficients,
            intercepts=intercepts,
            classes=np.asarray(model.classes_),
            feature_names=None if names is None else tuple(str(name) for name in names),
            privacy=model.privacy_,
            schema=getattr(model, "schema_", None) if schema is None else schema,
            library=__version__,
        )

    def model(self) -> Any:
        """The fitted estimator, ready to predict; ``schema_`` is set if there is a schema."""
        kind = getattr(importlib.import_module(ESTIMATORS[self.estimator]), self.estimator)
        try:
            model = kind(**self.parameters)
        except TypeError as error:
            raise CardError(f"the parameters do not fit this version of {self.estimator}: {error}") from None
        model.coef_ = np.array(self.coefficients)
        model.intercept_ = np.array(self.intercepts)
        model.classes_ = np.array(self.classes)
        model.multi_class_ = self.parameters.get("multi_class", "ovr")
        model.n_features_in_ = self.coefficients.shape[1]
        if self.feature_names is not None:
            model.feature_names_in_ = np.array(self.feature_names, dtype=object)
        model.privacy_ = self.privacy
        if self.schema is not None:
            model.schema_ = self.schema
        return model

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-ready values; coefficients as hexadecimal floating point, so that no digit is lost."""
        return {
            "library": self.library,
            "estimator": self.estimator,
            "parameters": dict(self.parameters),
            "described": dict(self.described),
            "classes": _plain(self.classes),
            "feature_names": None if self.feature_names is None else list(self.feature_names),
            "coefficients": [[float(value).hex() for value in row] for row in self.coefficients],
            "intercepts": [float(value).hex() for value in self.intercepts],
            "schema": None if self.schema is None else self.schema.to_dict(),
            "privacy": self.privacy.to_dict(),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Card:
        """Rebuild a card; anything malformed raises ``CardError``."""
        try:
            names = content["feature_names"]
            return cls(
                estimator=_typed(content["estimator"], str),
                parameters=_typed(content["parameters"], dict),
                described=_typed(content["described"], dict),
                classes=_labels(_typed(content["classes"], list)),
                feature_names=None
                if names is None
                else tuple(_typed(name, str) for name in _typed(names, list)),
                coefficients=np.array([_numbers(row) for row in _typed(content["coefficients"], list)]),
                intercepts=np.array(_numbers(content["intercepts"])),
                schema=None if content["schema"] is None else Schema.from_dict(content["schema"]),
                privacy=PrivacyStatement.from_dict(_typed(content["privacy"], dict)),
                library=_typed(content["library"], str),
            )
        except KeyError as error:
            raise CardError(f"it has no entry {error}") from None
        except (TypeError, ValueError, OverflowError, AttributeError) as error:
            raise CardError(f"its content is malformed: {error}") from None


def save(model: Any, path: str | os.PathLike[str], *, schema: Schema | None = None) -> None:
    """Write a fitted private model to a JSON file, whole or not at all.

    Parameters
    ----------
    model : fitted estimator of this library.
    path : file to write; an existing one is replaced only once the new content is safely on disk.
    schema : public domains through which the model was fitted; ``model.schema_`` by default, if there is one.

    Privacy
    -------
    The file holds released values and public facts only: nothing of the data, no seed, no path of a ledger.
    It may be published as far as the statement in it says.

    Raises
    ------
    CardError, OSError
        The model cannot be saved; the disk is full or the place cannot be written. The old file is kept.
    """
    content = {"format": FORMAT, "format_version": FORMAT_VERSION, **Card.of(model, schema).to_dict()}
    text = json.dumps(
        {**content, "sha256": _checksum(content)}, indent=1, ensure_ascii=False, allow_nan=False
    )
    write_atomically(path, (text + "\n").encode())


def load(path: str | os.PathLike[str]) -> Any:
    """Read a model file back into a fitted estimator; executes nothing from the file.

    Returns
    -------
    estimator
        With ``coef_``, ``intercept_``, ``classes_``, ``privacy_``, and ``schema_`` where there is a schema.

    Raises
    ------
    CardError
        The file is not there, not a model file, damaged, edited, or of a format this version does not know.
    """
    card = read(path)
    try:
        return card.model()
    except CardError as error:
        raise CardError(f"{str(path)!r}: {error}") from None


def read(path: str | os.PathLike[str]) -> Card:
    """Read and check a model file without building the estimator."""
    name = repr(str(path))
    try:
        content = json.loads(
            Path(path).read_bytes(), parse_constant=_no_constant, object_pairs_hook=_no_duplicates
        )
    except FileNotFoundError:
        raise CardError(f"there is no model file {name}") from None
    except OSError as error:
        raise CardError(f"model file {name} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise CardError(f"{name} is not a model file, or it is damaged: it is not valid JSON") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CardError(f"{name} is not a model file of discreet")
    if content.get("format_version") != FORMAT_VERSION:
        raise CardError(
            f"{name} has format version {content.get('format_version')!r}, this version of discreet reads "
            f"{FORMAT_VERSION}; use the version that wrote it"
        )
    stored = content.pop("sha256", None)
    try:
        checksum = _checksum(content)
    except (ValueError, RecursionError):
        checksum = ""
    if stored != checksum:
        raise CardError(f"{name} was damaged or changed after it was written: its checksum does not match")
    try:
        return Card.from_dict(content)
    except CardError as error:
        raise CardError(f"{name} is not a usable model file: {error}") from None


def _checksum(content: Mapping[str, Any]) -> str:
    """SHA-256 of the content in its order, without blanks."""
    canonical = json.dumps(content, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _plain(value: Any) -> Any:
    """The same value in JSON's own types; ``TypeError`` where JSON cannot hold it exactly."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return str(value)  # an enumeration member becomes its text
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise TypeError(f"JSON cannot hold {type(value).__name__}")


def _typed(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"expected {kind.__name__}, found {type(value).__name__}")
    return value


def _numbers(texts: Any) -> list[float]:
    return [float.fromhex(_typed(text, str)) for text in _typed(texts, list)]


def _labels(values: list[Any]) -> NDArray[Any]:
    kinds = {type(value) for value in values}
    if len(kinds) != 1 or not kinds <= {str, int, bool, float}:
        raise TypeError("the classes must be all text or all numbers")
    return np.array(values)


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Two entries of one name would let a file show one thing to a reader and another to a machine.
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("an entry appears twice")
    return content
