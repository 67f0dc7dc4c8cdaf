"""The content of a model file, and the model it stands for."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet import __version__
from discreet.card import models
from discreet.card.errors import CardError
from discreet.card.plain import from_array, labels, plain, strings, to_array, typed
from discreet.privacy.statement import PrivacyStatement
from discreet.schema import Schema

# Where the budget lies and how a split was seeded say nothing about the model; the statement names the charge.
_NOT_SAVED = ("ledger", "random_state")


@dataclass(frozen=True)
class Card:
    """The content of a model file.

    Attributes
    ----------
    estimator : name of the estimator's class.
    parameters : its constructor parameters when it was fitted, as far as JSON can hold them exactly.
    described : the other parameters, as text for people; not restored.
    arrays : the released numbers, by the name of the fitted attribute.
    classes : the public labels of a classifier.
    facts : other public fitted attributes.
    feature_names : names of the columns the model was fitted on, if it had any.
    privacy : the promise.
    schema : public domains that turn a raw table into the model's rows, if it was fitted through one.
    library : version of discreet that wrote the file.
    """

    estimator: str
    parameters: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]
    privacy: PrivacyStatement
    classes: NDArray[Any] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    described: Mapping[str, str] = field(default_factory=dict)
    feature_names: tuple[str, ...] | None = None
    schema: Schema | None = None
    library: str = ""

    def __post_init__(self) -> None:
        n_features = self.n_features
        for what, count in (
            ("feature names", None if self.feature_names is None else len(self.feature_names)),
            ("features of the schema", None if self.schema is None else self.schema.n_features),
        ):
            if count is not None and count != n_features:
                raise CardError(f"{count} {what} do not go with {n_features} columns of coefficients")

    @cached_property
    def n_features(self) -> int:
        """Number of columns the model predicts from."""
        return models.checked(self.estimator, self.arrays, self.classes)

    @classmethod
    def of(cls, model: Any, schema: Schema | None = None) -> Card:
        """The card of a fitted estimator."""
        if not hasattr(model, "privacy_"):
            raise CardError(_unsaved(model))
        name = type(model).__name__
        family = models.family(name)
        exact, described = {}, {}
        parameters = model.get_params(deep=False) | getattr(model, "fitted_parameters_", {})
        for parameter, value in parameters.items():
            if parameter in _NOT_SAVED:
                continue
            try:
                exact[parameter] = plain(value)
            except TypeError:
                described[parameter] = repr(value)
        names = getattr(model, "feature_names_in_", None)
        return cls(
            estimator=name,
            parameters=exact,
            described=described,
            arrays=model.to_arrays()
            if family.packed
            else {number: np.asarray(getattr(model, number), dtype=np.float64) for number in family.numbers},
            classes=np.asarray(model.classes_) if hasattr(model, "classes_") else None,
            facts={fact: getattr(model, fact) for fact in ("multi_class_",) if hasattr(model, fact)},
            feature_names=None if names is None else tuple(str(name) for name in names),
            privacy=model.privacy_,
            schema=getattr(model, "schema_", None) if schema is None else schema,
            library=__version__,
        )

    def model(self) -> Any:
        """The fitted estimator, ready to predict; ``schema_`` is set if there is a schema."""
        family = models.family(self.estimator)
        kind = getattr(importlib.import_module(family.module), self.estimator)
        try:
            if family.packed:
                return kind.from_arrays(self.arrays, self.privacy, **self.parameters)
            model = kind(**self.parameters)
        except TypeError as error:
            raise CardError(f"the parameters do not fit this version of {self.estimator}: {error}") from None
        model.fitted_parameters_ = dict(self.parameters)
        for name, array in self.arrays.items():
            setattr(model, name, float(array) if array.ndim == 0 else array.copy())
        if self.classes is not None:
            model.classes_ = self.classes.copy()
        if "multi_class_" in self.facts:
            model.multi_class_ = str(self.facts["multi_class_"])
        model.n_features_in_ = self.n_features
        if self.feature_names is not None:
            model.feature_names_in_ = np.array(self.feature_names, dtype=object)
        model.privacy_ = self.privacy
        if self.schema is not None:
            model.schema_ = self.schema
        return model

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-ready values; numbers as their own bytes, so that no digit is lost."""
        return {
            "library": self.library,
            "estimator": self.estimator,
            "parameters": dict(self.parameters),
            "described": dict(self.described),
            "classes": None if self.classes is None else plain(self.classes),
            "facts": dict(self.facts),
            "feature_names": None if self.feature_names is None else list(self.feature_names),
            "arrays": {name: from_array(array) for name, array in self.arrays.items()},
            "schema": None if self.schema is None else self.schema.to_dict(),
            "privacy": self.privacy.to_dict(),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Card:
        """Rebuild a card; anything malformed raises ``CardError``."""
        try:
            return cls(
                estimator=typed(content["estimator"], str),
                parameters=typed(content["parameters"], dict),
                described=typed(content["described"], dict),
                classes=None if content["classes"] is None else labels(content["classes"]),
                facts=typed(content["facts"], dict),
                feature_names=strings(content["feature_names"]),
                arrays={name: to_array(array) for name, array in typed(content["arrays"], dict).items()},
                schema=None if content["schema"] is None else Schema.from_dict(content["schema"]),
                privacy=PrivacyStatement.from_dict(typed(content["privacy"], dict)),
                library=typed(content["library"], str),
            )
        except CardError:
            raise
        except KeyError as error:
            raise CardError(f"it has no entry {error}") from None
        except (TypeError, ValueError, OverflowError, AttributeError) as error:
            raise CardError(f"its content is malformed: {error}") from None


def _unsaved(model: Any) -> str:
    """Why something without a statement cannot be saved; of a pipeline, what can be."""
    if not hasattr(model, "steps") or not hasattr(model[-1], "privacy_"):
        return f"this {type(model).__name__} has no privacy_: only a fitted private model can be saved"
    whole = f"a {type(model).__name__} cannot be saved as a whole, but its last step can:"
    if len(model) == 2 and isinstance(getattr(model[0], "schema", None), Schema):
        return f"{whole} card.save(pipe[-1], path, schema=pipe[0].schema); such a file reads raw tables too"
    return f"{whole} card.save(pipe[-1], path); what the steps before it do to a row must then be done again"
