"""Every model that the command line can fit: one table of names, estimators and options.

A model is one line of `MODELS`. An option sets the parameter of its name and is declared once in `OPTIONS`. Both are
spelled out because help must not import NumPy; a test compares them with the parameters that the estimators declare.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from discreet.cli.options import (
    Argument,
    argument,
    count,
    fraction,
    input_file,
    positive,
    real,
    section,
    unknown,
)


@dataclass(frozen=True)
class Model:
    """A model of the command line.

    Attributes
    ----------
    help : what it is for, in a few words.
    estimators : its estimator for each kind of target: "classes", "number", or "none" where there is no target.
    options : parameters of the estimator that have an option.
    reads : what its fit takes: "rows" of the schema bounded in norm, "entries" bounded one by one, the "table" itself,
        "points" without a target, "ratings", or rows for "teachers".
    """

    help: str
    estimators: Mapping[str, str]
    options: tuple[str, ...]
    reads: str = "rows"


def _classes(name: str) -> Mapping[str, str]:
    return MappingProxyType({"classes": name})


def _number(name: str) -> Mapping[str, str]:
    return MappingProxyType({"number": name})


_LINEAR = ("feature_bound", "fit_intercept", "solver")
_SHAPES = ("pairs", "max_bins", "n_iterations", "monotonic", "loss", "least_mean")
MODELS: Mapping[str, Model] = {
    "logistic": Model(
        "logistic regression",
        _classes("PrivateLogisticRegression"),
        (*_LINEAR, "l2", "multi_class", "class_weight"),
    ),
    "svm": Model(
        "linear support vectors",
        _classes("PrivateLinearSVC"),
        (*_LINEAR, "l2", "huber_width", "multi_class", "class_weight"),
    ),
    "sparse-logistic": Model(
        "logistic regression with few columns",
        _classes("PrivateSparseLogisticRegression"),
        (*_LINEAR, "l1_radius", "max_columns"),
        "entries",
    ),
    "sparse-svm": Model(
        "linear support vectors with few columns",
        _classes("PrivateSparseLinearSVC"),
        (*_LINEAR, "l1_radius", "huber_width"),
        "entries",
    ),
    "mixture": Model(
        "the best weighted vote of the columns",
        _classes("PrivateSimplexClassifier"),
        ("feature_bound", "radius", "solver"),
        "entries",
    ),
    "ridge": Model("ridge regression", _number("PrivateRidge"), (*_LINEAR, "l2")),
    "linear": Model("least squares", _number("PrivateLinearRegression"), _LINEAR),
    "huber": Model(
        "regression robust to outliers", _number("PrivateHuberRegressor"), (*_LINEAR, "l2", "huber_width")
    ),
    "quantile": Model(
        "regression of a quantile", _number("PrivateQuantileRegressor"), (*_LINEAR, "l2", "quantile")
    ),
    "poisson": Model(
        "regression of counts", _number("PrivatePoissonRegressor"), (*_LINEAR, "l2", "least_mean")
    ),
    "lasso": Model(
        "least squares with few columns", _number("PrivateLasso"), (*_LINEAR, "l1_radius"), "entries"
    ),
    "additive": Model(
        "one readable shape per column, for classes, numbers and counts",
        {"classes": "PrivateAdditiveClassifier", "number": "PrivateAdditiveRegressor"},
        _SHAPES,
        "table",
    ),
    "median": Model(
        "the geometric median of the columns, without a target",
        {"none": "PrivateMedian"},
        ("radius",),
        "points",
    ),
    "components": Model(
        "principal components of the columns, without a target",
        {"none": "PrivatePCA"},
        ("n_components", "feature_bound", "method"),
        "points",
    ),
    "transfer": Model(
        "teachers label public rows, and a student learns from the labels",
        {"classes": "PrivateTransferClassifier", "number": "PrivateTransferRegressor"},
        ("estimator", "X_public", "n_teachers", "aggregator", "expected_unstable", "n_jobs"),
        "teachers",
    ),
    "recommender": Model(
        "ratings of items by users: a table with columns user, item, rating, and no schema",
        {"none": "PrivateMatrixCompletion"},
        ("rating_bounds", "items", "feedback", "method", "rank", "ratings_per_user", "n_iterations"),
        "ratings",
    ),
}
DEFAULTS = {"classes": "logistic", "number": "ridge"}  # by the kind of the schema's target


def _model(text: str) -> str:
    """The name of a model, for argparse."""
    if text not in MODELS:
        raise argparse.ArgumentTypeError(unknown("model", text, MODELS))
    return text


def _monotonic(text: str) -> tuple[str, int]:
    name, separator, sign = text.rpartition("=")
    if not separator or sign not in ("rising", "falling"):
        raise argparse.ArgumentTypeError(f"must be COLUMN=rising or COLUMN=falling, got {text!r}")
    return name, 1 if sign == "rising" else -1


def _class_weight(text: str) -> tuple[str, float]:
    label, separator, weight = text.rpartition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"must be LABEL=WEIGHT, got {text!r}")
    return label, positive(weight)


# Spelled out: help must not import NumPy.
AGGREGATORS = ("auto", "shares", "sparse-vector", "plurality", "confident")
TEACHERS = {  # scikit-learn models that need no more than their defaults: module, for classes, for numbers
    "boosting": ("sklearn.ensemble", "HistGradientBoostingClassifier", "HistGradientBoostingRegressor"),
    "forest": ("sklearn.ensemble", "RandomForestClassifier", "RandomForestRegressor"),
    "linear": ("sklearn.linear_model", "LogisticRegression", "Ridge"),
    "tree": ("sklearn.tree", "DecisionTreeClassifier", "DecisionTreeRegressor"),
}


def teacher(name: str, target: str) -> Any:
    """The unfitted model of teachers for this kind of target."""
    import importlib

    module, *names = TEACHERS[name]
    return getattr(importlib.import_module(module), names[int(target == "number")])()


OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "solver": {"metavar": "NAME", "help": "default: auto, by public facts"},
    "feature_bound": {
        "type": positive,
        "metavar": "R",
        "help": "longest row, or largest entry (default: what the schema allows)",
    },
    "fit_intercept": {
        "flag": "--no-intercept",
        "action": "store_const",
        "const": False,
        "help": "fit no constant term",
    },
    "l2": {"type": positive, "metavar": "L", "help": "ridge coefficient (default: by public rule)"},
    "multi_class": {
        "choices": ("auto", "softmax", "joint", "ovr"),
        "help": "one softmax, one joint hinge, or one model per class",
    },
    "class_weight": {
        "type": _class_weight,
        "action": "append",
        "metavar": "LABEL=W",
        "help": "public weight of a class, raises the noise; may be repeated",
    },
    "huber_width": {
        "type": positive,
        "metavar": "W",
        "help": "where the loss becomes linear: in units of the target, or of the hinge",
    },
    "quantile": {"type": fraction, "metavar": "Q", "help": "which quantile (default: 0.5, the median)"},
    "loss": {"choices": ("squared", "poisson"), "help": "poisson for a target that counts something"},
    "least_mean": {"type": positive, "metavar": "M", "help": "lowest mean that is predicted"},
    "l1_radius": {"type": positive, "metavar": "S", "help": "how far predictions may reach"},
    "max_columns": {
        "type": count,
        "metavar": "N",
        "help": "select so many columns privately, and refit them",
    },
    "radius": {"type": positive, "metavar": "R", "help": "largest log-odds; or the ball that holds the rows"},
    "pairs": {"type": count, "metavar": "N", "help": "pairs of columns that get a shape of their own"},
    "max_bins": {"type": count, "metavar": "N", "help": "bins of a number, about"},
    "n_iterations": {"type": count, "metavar": "N", "help": "noisy rounds (default: by public rule)"},
    "monotonic": {
        "type": _monotonic,
        "action": "append",
        "metavar": "COLUMN=rising|falling",
        "help": "a shape that must rise or fall; may be repeated",
    },
    "estimator": {
        "flag": "--teacher",
        "choices": tuple(TEACHERS),
        "help": "kind of teachers and student (default: linear)",
    },
    "X_public": {
        "flag": "--public",
        "type": input_file("file"),
        "metavar": "FILE",
        "help": "public rows to label, .csv or .parquet",
    },
    "n_teachers": {
        "flag": "--teachers",
        "type": count,
        "metavar": "B",
        "help": "how many (default: by public rule)",
    },
    "aggregator": {"choices": AGGREGATORS, "help": "of votes for classes (default: auto)"},
    "expected_unstable": {
        "type": fraction,
        "metavar": "S",
        "help": "guessed share of rows on which teachers disagree (default: nothing is known)",
    },
    "n_jobs": {
        "flag": "--jobs",
        "type": count,
        "metavar": "N",
        "help": "processes that train teachers (default: 1)",
    },
    "rating_bounds": {
        "type": real,
        "nargs": 2,
        "metavar": ("LOW", "HIGH"),
        "help": "public range of ratings (default: 1 5)",
    },
    "items": {
        "flag": "--catalog",
        "type": input_file("catalog"),
        "metavar": "FILE",
        "help": "the public catalog: one item per line",
    },
    "feedback": {"choices": ("explicit", "implicit"), "help": "ratings, or sets of items"},
    "n_components": {"type": count, "metavar": "K", "help": "number of directions (default: 2)"},
    "method": {"metavar": "NAME", "help": "default: auto, by public facts"},
    "rank": {"type": count, "metavar": "K", "help": "latent directions at most (default: 20)"},
    "ratings_per_user": {
        "type": count,
        "metavar": "N",
        "help": "users with fewer ratings count proportionally less",
    },
}


def flag(parameter: str) -> str:
    """The option that sets a parameter."""
    return str(OPTIONS[parameter].get("flag", f"--{parameter.replace('_', '-')}"))


def takers(parameter: str) -> list[str]:
    """The models that an option is for."""
    return [name for name, model in MODELS.items() if parameter in model.options]


def _option(parameter: str) -> Argument:
    """The option that sets a parameter, with the models that take it."""
    settings = {name: value for name, value in OPTIONS[parameter].items() if name != "flag"}
    names = takers(parameter)
    scope = "most models" if len(names) > 5 else ", ".join(names)
    settings |= {"dest": _destination(parameter), "help": f"{settings['help']} [{scope}]"}
    return argument(flag(parameter), **settings)


def _destination(parameter: str) -> str:
    """Where argparse keeps an option; ``items`` is a number in plans, and a file in fits."""
    return "catalog" if parameter == "items" else parameter


#: ``--model`` and the options of all models.
MODEL = section(
    "models, and the options of each",
    argument(
        "--model", type=_model, metavar="NAME", help="default: logistic for classes, ridge for a number"
    ),
    *map(_option, OPTIONS),
    text="\n".join(f"{name:<16}{model.help}" for name, model in MODELS.items()),
)


_OF_TEACHERS = ("estimator", "X_public")  # options that become arguments of a fit


def kind_of_target(schema: Any) -> str:
    """ "classes" or "number"; "none" without a schema or a target."""
    if schema is None or schema.target is None:
        return "none"
    return "classes" if schema.target.bounds is None else "number"


def name_of(arguments: argparse.Namespace, schema: Any) -> str:
    """The model that was asked for, or the usual one for the schema's target."""
    kind = kind_of_target(schema)
    return str(arguments.model or DEFAULTS.get(kind, "logistic"))


def estimator(arguments: argparse.Namespace, schema: Any, **shared: Any) -> Any:
    """The unfitted estimator that the options and the schema describe.

    Parameters
    ----------
    arguments : with ``model``, the options of all models, and the guarantee.
    schema : whose target and bounds are used; None to take what ``shared`` says.
    shared : further parameters, where the estimator has them; others must be None.
    """
    import discreet

    name = name_of(arguments, schema)
    model, target = MODELS[name], kind_of_target(schema)
    given = {
        parameter: getattr(arguments, _destination(parameter))
        for parameter in OPTIONS
        if getattr(arguments, _destination(parameter)) is not None
    }
    for parameter in given:
        if parameter not in model.options:
            raise ValueError(f"{flag(parameter)} is for {', '.join(takers(parameter))}, not for {name}")
    kind = getattr(discreet, _estimator_name(name, target, schema))
    values = _values(given, schema.classes.tolist() if target == "classes" else ())
    facts = {**_public_facts(model, target, schema, given), **shared}
    facts |= {one: getattr(arguments, one) for one in ("epsilon", "delta", "neighboring")}
    known = set(kind._get_param_names())
    for parameter in given:
        if parameter not in (*known, *_OF_TEACHERS):
            kinds = (
                "classes, and this target is a number" if target == "number" else "numbers, and this is none"
            )
            raise ValueError(f"{flag(parameter)} is for {kinds}")
    for parameter, value in shared.items():
        if parameter not in known and value not in (None, "error"):
            raise ValueError(f"{name} has no {parameter.replace('_', ' ')}, got {value!r}")
    parameters = {parameter: value for parameter, value in facts.items() if parameter in known}
    return kind(**parameters | values)


def _estimator_name(name: str, target: str, schema: Any) -> str:
    """The class that fits such a target; without a schema, the only one or that for classes."""
    found = MODELS[name].estimators
    if "none" in found or schema is None:
        return next(iter(found.values()))
    if target == "none":
        raise ValueError(
            f"{name} predicts a column, and this schema declares no target; add one with its column and its classes "
            "or bounds"
        )
    if target not in found:
        others = [other for other, model in MODELS.items() if target in model.estimators]
        words = {"classes": "has classes", "number": "is a number"}
        raise ValueError(
            f"the target {schema.target.column!r} {words[target]}, which {name} does not predict; "
            f"choose --model {', '.join(others[:-1])} or {others[-1]}"
        )
    return found[target]


def _public_facts(model: Model, target: str, schema: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """What the schema says of rows and labels, in the parameters of the estimators."""
    if schema is None or model.reads == "ratings":
        return {}
    facts: dict[str, Any] = {}
    if target == "classes":
        facts["classes"] = schema.classes.tolist()
    if target == "number":
        facts["target_bounds"] = schema.target_bounds
    if model.reads == "teachers":
        facts["estimator"] = teacher(given.get("estimator", "linear"), target)
        if target == "number":
            facts["bounds"] = schema.target_bounds
    if model.reads == "rows":
        facts["feature_bound"] = schema.feature_bound(intercept=given.get("fit_intercept", True))
    if model.reads == "table":
        facts["schema"] = schema
    if model.reads == "points":
        facts |= {"radius": schema.row_norm_bound, "feature_bound": schema.row_norm_bound}
    return facts


def _values(given: Mapping[str, Any], classes: Sequence[Any]) -> dict[str, Any]:
    """Options as the parameters want them; labels are those of the schema."""
    values = {name: value for name, value in given.items() if name not in _OF_TEACHERS}
    if "class_weight" in values:
        labels = {str(label): label for label in classes}
        values["class_weight"] = {labels.get(text, text): weight for text, weight in values["class_weight"]}
    if "monotonic" in values:
        values["monotonic"] = dict(values["monotonic"])
    if "rating_bounds" in values:
        values["rating_bounds"] = tuple(values["rating_bounds"])
    if "items" in values:
        lines = Path(values["items"]).read_text(encoding="utf-8").splitlines()
        values["items"] = [line.strip() for line in lines if line.strip()]
    return values
