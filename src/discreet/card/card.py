"""The content of a model file: the models it can hold, their released numbers, and their JSON form.

Values are written exactly, in JSON's own types; what is read is checked.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet import __version__
from discreet._api import HOMES
from discreet.display.console import printable
from discreet.estimators.linear import FACTS, PrivateLinearModel, released
from discreet.privacy.statement import PrivacyStatement
from discreet.records.bounds import Bounds, BoxBounds
from discreet.release import release_digest
from discreet.tables.schema import Schema

# Not part of the model; the statement names the charge. A file that could set the ledger would choose the budget that
# later fits of its model are charged to.
_NOT_SAVED = ("ledger", "random_state")
_MULTI_CLASS = ("softmax", "ovr")
_VERSION = re.compile(r"\d+(\.\d+){1,3}((a|b|rc|\.dev|\.post)\d+)?(\+[a-z0-9.]{1,40})?")
_LONGEST = 2000  # characters of one declaration
# The only kinds of numbers a file can hold: fixed size, no objects, least significant byte first.
_KINDS = frozenset({"<f8", "<f4", "<i8", "<i4", "|b1", "|u1", "|i1"})
_MAX_ENTRIES = 1 << 31
_MAX_LETTERS = 1 << 26  # number of words times the longest: NumPy stores them at equal length


class CardError(ValueError):
    """A model cannot be saved, or a model file is not valid."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))  # which may quote the file


Arrays = Mapping[str, NDArray[Any]]
Check = Callable[[Arrays, NDArray[Any] | None], int]


@dataclass(frozen=True)
class Family:
    """Models with the same released numbers.

    Attributes
    ----------
    check : returns the number of features; raises an error for inconsistent arrays and classes.
    packed : whether the model itself converts to arrays and back (``to_arrays``, ``from_arrays``).
    linear : whether it predicts by ``coef_`` and ``intercept_``, so that other tools can, too.
    probabilities : whether its raw predictions are log-odds.
    tables : whether it reads tables by the domains of a schema, instead of encoded rows.
    released : extracts what was released, if the arrays also hold what was computed from it.
    """

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
    shapes = ((), (0,)) if coef.ndim == 1 else (coef.shape[:1],)  # (0,): predictions are not linear
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

    return len(unpacked(arrays)[1])


def _additive(arrays: Arrays, classes: NDArray[Any] | None) -> int:
    from discreet.additive.shapes import AdditiveModel

    return len(AdditiveModel.from_arrays(arrays).shapes)


def _transfer(arrays: Arrays, classes: NDArray[Any] | None) -> int:
    from discreet.transfer.students import released_of, student_of

    released_of(arrays)
    if (classes is None) != ("classes" not in arrays):
        raise ValueError("its classes are missing")
    return student_of(arrays).n_features_in_


def _answers(arrays: Arrays) -> dict[str, Any]:
    from discreet.transfer.students import released_of

    return released_of(arrays)


_CLASSIFIER = Family(_classifier, linear=True)
_LOGISTIC = Family(_classifier, linear=True, probabilities=True)
_REGRESSOR = Family(_regressor, linear=True)
_ADDITIVE = Family(_additive, packed=True, tables=True)
_TRANSFER = Family(_transfer, packed=True, released=_answers)
#: Every model that can be saved; names in files are looked up only here.
FAMILIES: Mapping[str, Family] = {
    "PrivateLogisticRegression": _LOGISTIC,
    "PrivateLinearSVC": _CLASSIFIER,
    "PrivateSparseLinearSVC": _CLASSIFIER,
    "PrivateSparseLogisticRegression": _LOGISTIC,
    "PrivateSimplexClassifier": Family(_classifier),
    "PrivateRidge": _REGRESSOR,
    "PrivateLinearRegression": _REGRESSOR,
    "PrivateHuberRegressor": _REGRESSOR,
    "PrivateQuantileRegressor": _REGRESSOR,
    "PrivateLasso": _REGRESSOR,
    "PrivateSimplexRegressor": Family(_regressor),
    "PrivatePoissonRegressor": Family(_regressor),
    "PrivateERM": Family(_risk_minimizer),
    "PrivateMedian": Family(_center),
    "PrivatePCA": Family(_components),
    "PrivateAdditiveClassifier": _ADDITIVE,
    "PrivateAdditiveRegressor": _ADDITIVE,
    "PrivateTransferClassifier": _TRANSFER,
    "PrivateTransferRegressor": _TRANSFER,
    "PrivateMatrixCompletion": Family(_recommender, packed=True),
}


def family(estimator: str) -> Family:
    """Return the family of an estimator's name; raise ``CardError`` if such models cannot be saved."""
    if estimator not in FAMILIES:
        raise CardError(
            f"{estimator!r} is not a model that can be saved; those that can: {', '.join(FAMILIES)}"
        )
    return FAMILIES[estimator]


def _kind_of(estimator: str) -> Any:
    """Return the class of a model that can be saved."""
    family(estimator)
    return getattr(importlib.import_module(HOMES[estimator]), estimator)


def _checked(estimator: str, arrays: Arrays, classes: NDArray[Any] | None) -> int:
    """Check the numbers of a model and return its number of features."""
    made, kind = family(estimator), _kind_of(estimator)
    if not made.packed and set(arrays) != set(kind._released):
        raise CardError(
            f"{estimator} consists of {', '.join(kind._released)}; found {sorted(arrays) or 'none'}"
        )
    if not all(array.dtype.kind == "U" or np.isfinite(array).all() for array in arrays.values()):
        raise CardError("the coefficients are not all finite")
    try:
        return made.check(arrays, classes)
    except CardError:
        raise
    except (KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
        raise CardError(f"the arrays are not those of a {estimator}: {error}") from None


# -- the card ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class About:
    """Declarations of the data holder, which are not checked; empty ones are shown as not recorded.

    Parameters
    ----------
    title : short title of the model.
    purpose : intended uses of the model, and uses to avoid.
    data : the training table.
    encoder : the fixed encoder of the features: name, version, and hash of its weights.
    period : the time covered by the table.
    date : release date.
    owner : who is responsible for the model.
    approval : who approved the release, and when.

    Privacy
    -------
    Published with the model: do not include numbers computed from private data.

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
        """Return the declarations that are not empty."""
        return {name: value for name, value in asdict(self).items() if value}

    @staticmethod
    def from_dict(content: Mapping[str, Any]) -> About:
        """Rebuild declarations; ``CardError`` for anything else."""
        strange = set(content) - {one.name for one in fields(About)}
        if strange:
            raise CardError("it has unknown declarations about the model")
        return About(**content)


@dataclass(frozen=True)
class Card:
    """The content of a model file.

    Attributes
    ----------
    estimator : name of the estimator's class.
    parameters : constructor parameters of the fit that JSON can hold exactly.
    described : the other parameters as text; not restored.
    arrays : the numbers that the model predicts with, by fitted attribute.
    original : released values of attributes that were edited afterwards.
    classes : the public labels of a classifier.
    facts : other public fitted attributes.
    feature_names : names of the columns the model was fitted on, or None.
    privacy : the privacy statement.
    row_bounds : the bounds to which a linear model scales rows before predicting; None for those declared by its
        parameters, and for other models.
    schema : public domains that turn a raw table into the model's rows, or None.
    library : version of discreet that wrote the file.
    about : declarations of the holder: purpose, data, owner and so on.
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
        """Return the number of columns of a schema, encoded or of the table, as the model reads them."""
        return len(schema.columns) if family(self.estimator).tables else schema.n_features

    @cached_property
    def n_features(self) -> int:
        """Number of columns the model predicts from."""
        return _checked(self.estimator, self.arrays, self.classes)

    @property
    def release(self) -> dict[str, Any]:
        """The released numbers and their public facts, without later edits."""
        made = family(self.estimator)
        if made.released:
            return made.released(self.arrays)
        names = None if self.feature_names is None else list(self.feature_names)
        facts = {
            "classes_": self.classes,
            "multi_class_": self.facts.get("multi_class_"),
            "feature_names_in_": names,
        }
        return {**self.arrays, **({} if made.packed else facts), **self.original}

    @property
    def release_digest(self) -> str:
        """The digest by which a ledger recognizes the release."""
        return release_digest(self.release)

    @classmethod
    def of(cls, model: Any, schema: Schema | None = None, about: About | None = None) -> Card:
        """Make the card of a fitted estimator."""
        if not hasattr(model, "privacy_"):
            raise CardError(_unsaved(model))
        name = type(model).__name__
        made = family(name)
        exact, described = {}, {}
        fitted = vars(model)
        parameters = model.get_params(deep=False) | fitted.get("fitted_parameters_", {})
        for parameter, value in parameters.items():
            if parameter in _NOT_SAVED:
                continue
            try:
                exact[parameter] = unpaired(plain(value))
            except TypeError:
                described[parameter] = repr(value)
        names = fitted.get("feature_names_in_")
        try:
            current = dict(model.to_arrays()) if made.packed else released(model)
        except ValueError as error:
            raise CardError(str(error)) from None
        return cls(
            estimator=name,
            parameters=exact,
            described=described,
            arrays=current if made.packed else {number: current[number] for number in type(model)._released},
            original={} if made.released else _edited(getattr(model, "released_", current), current),
            classes=np.asarray(model.classes_) if hasattr(model, "classes_") else None,
            facts={fact: fitted[fact] for fact in ("multi_class_",) if fact in fitted},
            feature_names=None if names is None else tuple(str(name) for name in names),
            privacy=model.privacy_,
            schema=fitted.get("schema_") if schema is None else schema,
            library=__version__,
            row_bounds=fitted.get("row_bounds_"),
            about=about or About(),
        )

    def model(self) -> Any:
        """Return the fitted estimator, ready to predict; with ``schema_`` if there is a schema."""
        made = family(self.estimator)
        kind = _kind_of(self.estimator)
        try:
            if made.packed:
                known = {"schema": self.schema} if made.tables and self.schema is not None else {}
                model = kind.from_arrays(self.arrays, self.privacy, **self.parameters, **known)
            else:
                model = kind(**self.parameters)
        except TypeError as error:
            raise CardError(f"the parameters do not fit this version of {self.estimator}: {error}") from None
        model.released_ = self.release
        if self.schema is not None:
            model.schema_ = self.schema
        if self.feature_names is not None:
            model.feature_names_in_ = np.array(self.feature_names, dtype=object)
        if made.packed:
            return model
        model.fitted_parameters_ = dict(self.parameters)
        for name, array in self.arrays.items():
            setattr(model, name, float(array) if array.ndim == 0 else array.copy())
        if self.classes is not None:
            model.classes_ = self.classes.copy()
        if "multi_class_" in self.facts:
            model.multi_class_ = self.facts["multi_class_"]
        model.n_features_in_ = self.n_features
        model.privacy_ = self.privacy
        if isinstance(model, PrivateLinearModel):
            model.row_bounds_ = self.row_bounds or model._bounds(self.n_features)
        return model

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON-ready values; arrays as bytes, so that no digit is lost."""
        declared, edited = self.about.to_dict(), self.original
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
            # Later entries are left out where they are empty, as in older files.
            **({"original": {name: _packed(value) for name, value in edited.items()}} if edited else {}),
            **({"about": declared} if declared else {}),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Card:
        """Rebuild a card; raise ``CardError`` for anything malformed."""
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
                privacy=PrivacyStatement.from_dict(typed(content["privacy"], dict)),
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


def _edited(released: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, Any]:
    """Return the released values that differ from the current ones."""
    return {
        name: value
        for name, value in released.items()
        if release_digest({name: value}) != release_digest({name: current.get(name)})
    }


def _packed(value: Any) -> Any:
    """Return a released value for a file: numbers as bytes, labels and names unchanged."""
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
            raise CardError(f"a model file cannot set {name}")
    return {name: unpaired(value) for name, value in parameters.items()}


def _facts(facts: dict[str, Any]) -> dict[str, Any]:
    if not (set(facts) <= {"multi_class_"} and set(facts.values()) <= set(_MULTI_CLASS)):
        raise ValueError(f"the only fact is multi_class_, one of {', '.join(_MULTI_CLASS)}")
    return facts


def _row_bounds(content: Mapping[str, Any]) -> Bounds | None:
    """Return the bounds on rows; files of 0.1.0 have them only in the text of the statement."""
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
    """Explain why something without a statement cannot be saved, and what to save of a pipeline."""
    if not hasattr(model, "steps") or not hasattr(model[-1], "privacy_"):
        return f"this {type(model).__name__} has no privacy_: only a fitted private model can be saved"
    whole = f"a {type(model).__name__} cannot be saved as a whole, but its last step can:"
    if len(model) == 2 and isinstance(getattr(model[0], "schema", None), Schema):
        return f"{whole} card.save(pipe[-1], path, schema=pipe[0].schema); the loaded model reads raw tables, too"
    return f"{whole} card.save(pipe[-1], path); apply the steps before it to rows yourself"


# -- values as JSON -----------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Convert a value to JSON's own types; raise ``TypeError`` if JSON cannot hold it exactly."""
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
    """Convert pairs written by ``plain`` back to dicts."""
    if not isinstance(value, dict):
        return value
    pairs = typed(value.get("pairs"), list)
    if len(value) > 1 or any(
        len(typed(pair, list)) != 2 or isinstance(pair[0], list | dict) for pair in pairs
    ):
        raise ValueError("not the description of a dict")
    return {key: unpaired(item) for key, item in pairs}


def from_array(array: NDArray[Any]) -> dict[str, Any]:
    """Describe an array: shape, kind and bytes, or its words."""
    array = np.asarray(array)
    if array.dtype.kind == "U" and array.ndim <= 1:
        return {"shape": list(array.shape), "kind": "words", "words": array.ravel().tolist()}
    kind = array.dtype.newbyteorder("<").str
    if kind not in _KINDS:
        raise TypeError(f"a model file holds arrays of numbers, not of {array.dtype}")
    content = np.ascontiguousarray(array, dtype=kind).tobytes()
    return {"shape": list(array.shape), "kind": kind, "base64": base64.b64encode(content).decode()}


def to_array(fields: Any) -> NDArray[Any]:
    """Rebuild an array from ``from_array``; raise ``TypeError`` or ``ValueError`` for anything else."""
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
    """Return a label set: all text, or all numbers of one type."""
    kinds = {type(value) for value in typed(values, list)}
    if len(kinds) != 1 or not kinds <= {str, int, bool, float}:
        raise TypeError("the classes must be all text or all numbers")
    return _words(values) if kinds == {str} else np.array(values)


def _words(words: list[str]) -> NDArray[Any]:
    """Return an array of words; refuse sizes with which a small file could fill the memory."""
    if len(words) * max(map(len, words), default=0) > _MAX_LETTERS:
        raise ValueError("its words are too many, or one of them is too long")
    return np.array(words, dtype=np.str_)


def typed(value: Any, kind: type) -> Any:
    """Return ``value`` if it has this type; ``bool`` does not count as ``int``."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"expected {kind.__name__}, found {type(value).__name__}")
    return value


def strings(value: Any) -> tuple[str, ...] | None:
    """Return a tuple of strings, or None."""
    return None if value is None else tuple(typed(item, str) for item in typed(value, list))


def no_constant(text: str) -> float:
    """Refuse NaN and infinity, for ``json.loads``."""
    raise ValueError(f"{text} is not JSON")


def no_duplicates(pairs: list[tuple[str, Any]]) -> Mapping[str, Any]:
    """Refuse duplicate names, which readers and programs could resolve differently, for ``json.loads``."""
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("an entry appears twice")
    return content
