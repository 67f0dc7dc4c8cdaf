"""The content of a model file, and the model it stands for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet import __version__
from discreet.card import kinds
from discreet.card.kinds import CardError, from_array, labels, plain, strings, to_array, typed, unpaired
from discreet.card.pricing import check_size
from discreet.estimators.linear import FACTS, PrivateLinearModel, released
from discreet.privacy.statement import PrivacyStatement, release_digest
from discreet.records.bounds import Bounds, BoxBounds
from discreet.tables.schema import Schema

# Where the budget lies and how a split was seeded say nothing about the model; the statement names the charge. A file
# that could set them would choose which budget later fits of its model are charged to.
_NOT_SAVED = ("ledger", "random_state")
_MULTI_CLASS = ("softmax", "ovr")
_VERSION = re.compile(r"\d+(\.\d+){1,3}((a|b|rc|\.dev|\.post)\d+)?(\+[a-z0-9.]{1,40})?")
_LONGEST = 2000  # characters of one declaration


@dataclass(frozen=True)
class About:
    """What the holder of the data declares, checked by nobody; what is left empty is shown as not recorded.

    Parameters
    ----------
    title : of the model, in a few words.
    purpose : what the model is for, and what it must not be used for.
    data : which table it was trained on.
    encoder : which fixed encoder made the features: its name, version, and the hash of its weights.
    period : which time the table covers.
    date : when the model was released.
    owner : who answers for the model.
    approval : who approved the release, and when.

    Privacy
    -------
    Published with the model as it is written here: keep numbers that were counted in private data out of it.

    Examples
    --------
    >>> About(purpose="triage of letters", owner="records office").to_dict()
    {'purpose': 'triage of letters', 'owner': 'records office'}
    """

    title: str = ""
    purpose: str = ""
    data: str = ""
    encoder: str = field(default="", kw_only=True)
    period: str = ""
    date: str = ""
    owner: str = ""
    approval: str = ""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not isinstance(value, str) or len(value) > _LONGEST:
                raise CardError(f"{name} must be a text of at most {_LONGEST} characters, got {value!r:.80}")

    def to_dict(self) -> dict[str, str]:
        """The declarations that were made."""
        return {name: value for name, value in asdict(self).items() if value}

    @staticmethod
    def from_dict(content: Mapping[str, Any]) -> About:
        """Rebuild declarations; ``CardError`` for anything else."""
        strange = set(content) - {one.name for one in fields(About)}
        if strange:
            raise CardError("it declares something about the model that is not known")
        return About(**content)


@dataclass(frozen=True)
class Card:
    """The content of a model file.

    Attributes
    ----------
    estimator : name of the estimator's class.
    parameters : its constructor parameters when it was fitted, as far as JSON can hold them exactly.
    described : the other parameters, as text for people; not restored.
    arrays : the numbers that the model predicts with, by the name of the fitted attribute.
    original : what was released in place of values that were edited afterwards, by the same names.
    classes : the public labels of a classifier.
    facts : other public fitted attributes.
    feature_names : names of the columns the model was fitted on, if it had any.
    privacy : the promise.
    row_bounds : the bounds to which a linear model shrinks rows before it predicts; None for those that its parameters
        declare, and for models of other kinds.
    schema : public domains that turn a raw table into the model's rows, if it was fitted through one.
    library : version of discreet that wrote the file.
    about : what the holder declares: purpose, data, owner and so on.
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
    original: Mapping[str, Any] = field(default_factory=dict)
    row_bounds: Bounds | None = None
    about: About = field(default_factory=About)

    def __post_init__(self) -> None:
        n_features = self.n_features
        for what, count in (
            ("feature names", None if self.feature_names is None else len(self.feature_names)),
            ("features of the schema", None if self.schema is None else self._features_of(self.schema)),
        ):
            if count is not None and count != n_features:
                raise CardError(f"{count} {what} do not go with {n_features} columns of coefficients")
        if not set(self.original) <= {*self.arrays, *FACTS}:
            raise CardError("it names released values that such a model does not have")

    def _features_of(self, schema: Schema) -> int:
        """How many columns a schema gives such a model, which reads the table itself or encoded rows."""
        return len(schema.columns) if kinds.family(self.estimator).tables else schema.n_features

    @cached_property
    def n_features(self) -> int:
        """Number of columns the model predicts from."""
        return kinds.checked(self.estimator, self.arrays, self.classes)

    @property
    def release(self) -> dict[str, Any]:
        """What was released, numbers and the public facts that go with them; later edits are not in it."""
        family = kinds.family(self.estimator)
        if family.released is not None:
            return family.released(self.arrays)
        names = None if self.feature_names is None else list(self.feature_names)
        facts = {
            "classes_": self.classes,
            "multi_class_": self.facts.get("multi_class_"),
            "feature_names_in_": names,
        }
        return {**self.arrays, **({} if family.packed else facts), **self.original}

    @property
    def release_digest(self) -> str:
        """The digest by which a ledger recognizes the release."""
        return release_digest(self.release)

    @classmethod
    def of(cls, model: Any, schema: Schema | None = None, about: About | None = None) -> Card:
        """The card of a fitted estimator."""
        if not hasattr(model, "privacy_"):
            raise CardError(_unsaved(model))
        name = type(model).__name__
        family = kinds.family(name)
        exact, described = {}, {}
        parameters = model.get_params(deep=False) | getattr(model, "fitted_parameters_", {})
        for parameter, value in parameters.items():
            if parameter in _NOT_SAVED:
                continue
            try:
                exact[parameter] = unpaired(plain(value))
            except TypeError:
                described[parameter] = repr(value)
        names = getattr(model, "feature_names_in_", None)
        current = _arrays_of(model) if family.packed else released(model)
        return cls(
            estimator=name,
            parameters=exact,
            described=described,
            arrays=current
            if family.packed
            else {number: current[number] for number in kinds.numbers_of(name)},
            original={}
            if family.released is not None
            else _edited(getattr(model, "released_", current), current),
            classes=np.asarray(model.classes_) if hasattr(model, "classes_") else None,
            facts={fact: getattr(model, fact) for fact in ("multi_class_",) if hasattr(model, fact)},
            feature_names=None if names is None else tuple(str(name) for name in names),
            privacy=model.privacy_,
            schema=getattr(model, "schema_", None) if schema is None else schema,
            library=__version__,
            row_bounds=getattr(model, "row_bounds_", None),
            about=about or About(),
        )

    def model(self) -> Any:
        """The fitted estimator, ready to predict; ``schema_`` is set if there is a schema."""
        family = kinds.family(self.estimator)
        kind = kinds.kind_of(self.estimator)
        try:
            if family.packed:
                known = {"schema": self.schema} if family.tables and self.schema is not None else {}
                model = kind.from_arrays(self.arrays, self.privacy, **self.parameters, **known)
                model.released_ = self.release
                if self.schema is not None:
                    model.schema_ = self.schema
                if self.feature_names is not None:
                    model.feature_names_in_ = np.array(self.feature_names, dtype=object)
                return model
            model = kind(**self.parameters)
        except TypeError as error:
            raise CardError(f"the parameters do not fit this version of {self.estimator}: {error}") from None
        model.released_ = self.release
        model.fitted_parameters_ = dict(self.parameters)
        for name, array in self.arrays.items():
            setattr(model, name, float(array) if array.ndim == 0 else array.copy())
        if self.classes is not None:
            model.classes_ = self.classes.copy()
        if "multi_class_" in self.facts:
            model.multi_class_ = self.facts["multi_class_"]
        model.n_features_in_ = self.n_features
        if self.feature_names is not None:
            model.feature_names_in_ = np.array(self.feature_names, dtype=object)
        model.privacy_ = self.privacy
        if isinstance(model, PrivateLinearModel):
            model.row_bounds_ = self.row_bounds or model._bounds(self.n_features)
        if self.schema is not None:
            model.schema_ = self.schema
        return model

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-ready values; numbers as their own bytes, so that no digit is lost."""
        declared = self.about.to_dict()
        return {
            "library": self.library,
            "estimator": self.estimator,
            "parameters": {name: plain(value) for name, value in self.parameters.items()},
            "described": dict(self.described),
            "classes": None if self.classes is None else plain(self.classes),
            "facts": dict(self.facts),
            "feature_names": None if self.feature_names is None else list(self.feature_names),
            "arrays": {name: from_array(array) for name, array in self.arrays.items()},
            "schema": None if self.schema is None else self.schema.to_dict(),
            "privacy": self.privacy.to_dict(),
            **({} if self.row_bounds is None else {"row_bounds": self.row_bounds.to_dict()}),
            # files of models that were not edited look as they always did
            **(
                {"original": {name: _packed(value) for name, value in self.original.items()}}
                if self.original
                else {}
            ),
            **({"about": declared} if declared else {}),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Card:
        """Rebuild a card; anything malformed raises ``CardError``."""
        try:
            return cls(
                estimator=typed(content["estimator"], str),
                parameters=_settable(typed(content["parameters"], dict)),
                described=typed(content["described"], dict),
                classes=None if content["classes"] is None else labels(content["classes"]),
                facts=_facts(typed(content["facts"], dict)),
                feature_names=strings(content["feature_names"]),
                arrays={name: to_array(array) for name, array in typed(content["arrays"], dict).items()},
                schema=None if content["schema"] is None else Schema.from_dict(content["schema"]),
                privacy=check_size(PrivacyStatement.from_dict(typed(content["privacy"], dict))),
                library=_version(typed(content["library"], str)),
                original=_unpacked(typed(content.get("original", {}), dict)),
                row_bounds=_row_bounds(content),
                about=About.from_dict(typed(content.get("about", {}), dict)),
            )
        except CardError:
            raise
        except KeyError as error:
            raise CardError(f"it has no entry {error}") from None
        except (TypeError, ValueError, OverflowError, AttributeError) as error:
            raise CardError(f"its content is malformed: {error}") from None


def _arrays_of(model: Any) -> dict[str, NDArray[Any]]:
    try:
        return dict(model.to_arrays())
    except ValueError as error:
        raise CardError(str(error)) from None


def _edited(released: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, Any]:
    """The released values that differ from the current ones."""
    return {
        name: value
        for name, value in released.items()
        if release_digest({name: value}) != release_digest({name: current.get(name)})
    }


def _packed(value: Any) -> Any:
    """A released value for a file: numbers as their own bytes, labels and names as they are."""
    floats = isinstance(value, np.ndarray) and value.dtype.kind == "f"
    return {"array": from_array(value)} if floats else plain(value)


def _unpacked(values: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            found[name] = to_array(value.get("array"))
        elif isinstance(value, list):
            found[name] = labels(value)
        else:
            found[name] = None if value is None else typed(value, str)
    return found


def _settable(parameters: dict[str, Any]) -> dict[str, Any]:
    for name in _NOT_SAVED:
        if name in parameters:
            raise CardError(f"a model file cannot set {name}: that is for who fits")
    return {name: unpaired(value) for name, value in parameters.items()}


def _facts(facts: dict[str, Any]) -> dict[str, Any]:
    if not (set(facts) <= {"multi_class_"} and set(facts.values()) <= set(_MULTI_CLASS)):
        raise ValueError(f"multi_class_ is one of {', '.join(_MULTI_CLASS)}, and no other fact is known")
    return facts


def _row_bounds(content: Mapping[str, Any]) -> Bounds | None:
    """The bounds on rows that a file names; files of 0.1.0 named them in the text of the statement alone."""
    if "row_bounds" in content:
        return Bounds.from_dict(typed(content["row_bounds"], dict))
    if "row norm as largest entry (intercept included)" not in content["privacy"]["bounds"]:
        return None
    n_columns = to_array(content["arrays"]["coef_"]).shape[-1]
    return BoxBounds.of(n_columns, intercept=typed(content["parameters"]["fit_intercept"], bool))


def _version(library: str) -> str:
    if _VERSION.fullmatch(library) is None:
        raise ValueError("library is not a version number")
    return library


def _unsaved(model: Any) -> str:
    """Why something without a statement cannot be saved; of a pipeline, what can be."""
    if not hasattr(model, "steps") or not hasattr(model[-1], "privacy_"):
        return f"this {type(model).__name__} has no privacy_: only a fitted private model can be saved"
    whole = f"a {type(model).__name__} cannot be saved as a whole, but its last step can:"
    if len(model) == 2 and isinstance(getattr(model[0], "schema", None), Schema):
        return f"{whole} card.save(pipe[-1], path, schema=pipe[0].schema); such a file reads raw tables too"
    return f"{whole} card.save(pipe[-1], path); what the steps before it do to a row must then be done again"
