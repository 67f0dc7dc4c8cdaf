"""All models of the command line: their names, estimators and options.

A model is one line of `MODELS`. An option sets the parameter of its name and is declared once in `OPTIONS`. Both are
spelled out because help must not import NumPy; a test compares them with the parameters that the estimators declare.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
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
    help : a short description.
    estimators : its estimator for each kind of target: "classes", "number", or "none" where there is no target.
    options : parameters of the estimator that have an option.
    reads : input of its fit: "rows" of bounded norm, bounded "entries", the "table" itself, "points" without a target,
        "ratings", or rows for "teachers".
    """

    help: str
    estimators: Mapping[str, str]
    options: tuple[str, ...]
    reads: str = "rows"


def _model_of(target: str, name: str, help: str, *options: str, reads: str = "rows") -> Model:
    return Model(help, {target: name}, options, reads)


_classes, _number, _no_target = (partial(_model_of, target) for target in ("classes", "number", "none"))
_LINEAR = ("feature_bound", "fit_intercept", "solver")
_WEIGHTED = ("multi_class", "class_weight")
_SHAPES = ("pairs", "max_bins", "n_iterations", "monotonic", "loss", "least_mean")
_VOTES = (
    "estimator",
    "X_public",
    "n_teachers",
    "aggregator",
    "max_unstable",
    "expected_unstable",
    "label_private",
)
_RATINGS = (
    "rating_bounds",
    "items",
    "feedback",
    "method",
    "rank",
    "ratings_per_user",
    "n_iterations",
    "duplicates",
    "out_of_bounds",
    "rating_clip",
    "row_clip",
    "nuclear_norm",
)
MODELS: Mapping[str, Model] = {
    "logistic": _classes("PrivateLogisticRegression", "logistic regression", *_LINEAR, "l2", *_WEIGHTED),
    "svm": _classes("PrivateLinearSVC", "linear support vectors", *_LINEAR, "l2", "huber_width", *_WEIGHTED),
    "sparse-logistic": _classes(
        "PrivateSparseLogisticRegression",
        "logistic regression with few columns",
        *(*_LINEAR, "l1_radius", "max_columns"),
        reads="entries",
    ),
    "sparse-svm": _classes(
        "PrivateSparseLinearSVC",
        "linear support vectors with few columns",
        *(*_LINEAR, "l1_radius", "huber_width"),
        reads="entries",
    ),
    "mixture": _classes(
        "PrivateSimplexClassifier",
        "the best weighted vote of the columns",
        *("feature_bound", "radius", "solver"),
        reads="entries",
    ),
    "ridge": _number("PrivateRidge", "ridge regression", *_LINEAR, "l2"),
    "linear": _number("PrivateLinearRegression", "least squares", *_LINEAR),
    "huber": _number("PrivateHuberRegressor", "regression robust to outliers", *_LINEAR, "l2", "huber_width"),
    "quantile": _number("PrivateQuantileRegressor", "regression of a quantile", *_LINEAR, "l2", "quantile"),
    "poisson": _number("PrivatePoissonRegressor", "regression of counts", *_LINEAR, "l2", "least_mean"),
    "lasso": _number(
        "PrivateLasso", "least squares with few columns", *_LINEAR, "l1_radius", reads="entries"
    ),
    "additive": Model(
        "one readable shape per column, for classes, numbers and counts",
        {"classes": "PrivateAdditiveClassifier", "number": "PrivateAdditiveRegressor"},
        _SHAPES,
        "table",
    ),
    "median": _no_target(
        "PrivateMedian", "the geometric median of the columns, without a target", "radius", reads="points"
    ),
    "components": _no_target(
        "PrivatePCA",
        "principal components of the columns, without a target",
        *("n_components", "feature_bound", "method", "center"),
        reads="points",
    ),
    "transfer": Model(
        "teachers label public rows, and a student learns from the labels",
        {"classes": "PrivateTransferClassifier", "number": "PrivateTransferRegressor"},
        (*_VOTES, "n_jobs"),
        "teachers",
    ),
    "recommender": _no_target(
        "PrivateMatrixCompletion",
        "ratings of items by users: a table with columns user, item, rating, and no schema",
        *_RATINGS,
        reads="ratings",
    ),
}
DEFAULTS = {"classes": "logistic", "number": "ridge"}  # by the kind of the schema's target


def _model(text: str) -> str:
    """Check the name of a model."""
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
TEACHERS = {  # scikit-learn models with their defaults: module, for classes, for numbers
    "boosting": ("sklearn.ensemble", "HistGradientBoostingClassifier", "HistGradientBoostingRegressor"),
    "forest": ("sklearn.ensemble", "RandomForestClassifier", "RandomForestRegressor"),
    "linear": ("sklearn.linear_model", "LogisticRegression", "Ridge"),
    "tree": ("sklearn.tree", "DecisionTreeClassifier", "DecisionTreeRegressor"),
}


def teacher(name: str, target: str) -> Any:
    """Return the unfitted model of the teachers for this kind of target."""
    import importlib

    module, *names = TEACHERS[name]
    return getattr(importlib.import_module(module), names[int(target == "number")])()


def _one(kind: Callable[[str], Any], metavar: str, help: str, **more: Any) -> Mapping[str, Any]:
    return {"type": kind, "metavar": metavar, "help": help, **more}


def _several(kind: Callable[[str], Any], metavar: str, help: str) -> Mapping[str, Any]:
    return _one(kind, metavar, f"{help}; may be repeated", action="append")


def _choice(choices: tuple[str, ...], help: str, **more: Any) -> Mapping[str, Any]:
    return {"choices": choices, "help": help, **more}


OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "solver": {"metavar": "NAME", "help": "solver (default: auto, chosen from public facts)"},
    "feature_bound": _one(
        positive, "R", "bound on the norm of a row, or on an entry (default: what the schema allows)"
    ),
    "fit_intercept": {
        "flag": "--no-intercept",
        "action": "store_const",
        "const": False,
        "help": "fit no constant term",
    },
    "l2": _one(positive, "L", "ridge coefficient (default: a public rule)"),
    "multi_class": _choice(
        ("auto", "softmax", "joint", "ovr"), "one softmax, one joint hinge, or one model per class"
    ),
    "class_weight": _several(_class_weight, "LABEL=W", "public weight of a class; raises the noise"),
    "huber_width": _one(positive, "W", "where the loss becomes linear, in units of the target or the hinge"),
    "quantile": _one(fraction, "Q", "quantile to predict (default: 0.5, the median)"),
    "loss": _choice(("squared", "poisson"), "loss; poisson is for counts"),
    "least_mean": _one(positive, "M", "lowest predicted mean"),
    "l1_radius": _one(positive, "S", "largest distance of a prediction from the intercept"),
    "max_columns": _one(count, "N", "select this many columns privately, and refit them"),
    "radius": _one(positive, "R", "largest log-odds, or radius of a ball that contains the rows"),
    "pairs": _one(count, "N", "number of pairs of columns with a joint shape"),
    "max_bins": _one(count, "N", "approximate number of bins of a number"),
    "n_iterations": _one(count, "N", "number of noisy rounds (default: a public rule)"),
    "monotonic": _several(_monotonic, "COLUMN=rising|falling", "a shape that must rise or fall"),
    "estimator": _choice(tuple(TEACHERS), "kind of teachers and student (default: linear)", flag="--teacher"),
    "X_public": _one(input_file("file"), "FILE", "public rows to label, .csv or .parquet", flag="--public"),
    "n_teachers": _one(count, "B", "number of teachers (default: a public rule)", flag="--teachers"),
    "aggregator": _choice(AGGREGATORS, "aggregator of votes for classes (default: auto)"),
    "expected_unstable": _one(
        fraction, "S", "guess of the share of rows on which teachers disagree (default: none)"
    ),
    "max_unstable": _one(
        count, "T", "unstable answers before sparse-vector halts (default: a public rule)", flag="--unstable"
    ),
    "label_private": {
        "action": "store_const",
        "const": True,
        "help": "protect labels only: all other columns of the private table are public",
    },
    "n_jobs": _one(count, "N", "processes that train teachers (default: 1)", flag="--jobs"),
    "rating_bounds": {
        **_one(real, "", "public range of ratings (default: 1 5)"),
        "nargs": 2,
        "metavar": ("LOW", "HIGH"),
    },
    "items": _one(input_file("catalog"), "FILE", "public catalog, one item per line", flag="--catalog"),
    "feedback": _choice(("explicit", "implicit"), "ratings, or sets of items"),
    "n_components": _one(count, "K", "number of directions (default: 2)"),
    "method": {"metavar": "NAME", "help": "method (default: auto, chosen from public facts)"},
    "rank": _one(count, "K", "largest number of latent directions (default: 20)"),
    "ratings_per_user": _one(
        count, "N", "users with fewer ratings than this have proportionally less weight"
    ),
    "duplicates": _choice(
        ("error", "mean"), "two ratings of one item by one user: an error, or their mean (default: error)"
    ),
    "out_of_bounds": _choice(
        ("error", "clip"), "ratings outside the range: an error, or the nearest bound (default: error)"
    ),
    "rating_clip": _one(positive, "C", "bound on a centered rating, in half ranges (default: 0.5)"),
    "row_clip": _one(
        positive, "C", "bound on the root mean square of a user's residuals, in half ranges (default: 0.5)"
    ),
    "nuclear_norm": _one(
        positive, "S", "guess of the signal for --method frank-wolfe, in half ranges (default: 1/3)"
    ),
    "center": {
        "flag": "--no-center",
        "action": "store_const",
        "const": False,
        "help": "components around the origin, not around a private mean",
    },
}


def flag(parameter: str) -> str:
    """Return the option that sets a parameter."""
    return str(OPTIONS[parameter].get("flag", f"--{parameter.replace('_', '-')}"))


def takers(parameter: str) -> list[str]:
    """Return the models that have an option."""
    return [name for name, model in MODELS.items() if parameter in model.options]


def check_options(given: Iterable[str], name: str) -> None:
    """Raise for options that the named model does not have."""
    for parameter in given:
        if parameter not in MODELS[name].options:
            raise ValueError(f"{flag(parameter)} is for {', '.join(takers(parameter))}, not for {name}")


def option(parameter: str, **more: Any) -> Argument:
    """Declare the option that sets a parameter."""
    settings = {name: value for name, value in OPTIONS[parameter].items() if name != "flag"}
    return argument(flag(parameter), dest=destination(parameter), **settings | more)


def _scoped(parameter: str) -> Argument:
    """Declare the option that sets a parameter; its help names the models that have it."""
    names = takers(parameter)
    scope = "most models" if len(names) > 5 else ", ".join(names)
    return option(parameter, help=f"{OPTIONS[parameter]['help']} [{scope}]")


def destination(parameter: str) -> str:
    """Return the attribute of an option: ``items`` is taken, a number for plans and a file for fits."""
    return "catalog" if parameter == "items" else parameter


#: ``--model`` and the options of all models.
MODEL = section(
    "models, and the options of each",
    argument(
        "--model", type=_model, metavar="NAME", help="default: logistic for classes, ridge for a number"
    ),
    *map(_scoped, OPTIONS),
    text="\n".join(f"{name:<16}{model.help}" for name, model in MODELS.items())
    + "\n\nIn Python only, because they are objects: sets that constrain coefficients, losses of your own, a student\n"
    "unlike its teachers, the center of a median; and streams, which answer step by step.",
)


_OF_TEACHERS = ("estimator", "X_public")  # options that become arguments of a fit


def kind_of_target(schema: Any) -> str:
    """ "classes" or "number"; "none" without a schema or a target."""
    if schema is None or schema.target is None:
        return "none"
    return "classes" if schema.target.bounds is None else "number"


def name_of(arguments: argparse.Namespace, schema: Any) -> str:
    """Return the requested model, or the default for the schema's target."""
    kind = kind_of_target(schema)
    return str(arguments.model or DEFAULTS.get(kind, "logistic"))


def estimator(arguments: argparse.Namespace, schema: Any, **shared: Any) -> Any:
    """Return the unfitted estimator that the options and the schema describe.

    Parameters
    ----------
    arguments : with ``model``, the options of all models, and the guarantee.
    schema : gives target and bounds; None takes those in ``shared``.
    shared : further parameters; those that the estimator lacks must be None.
    """
    import discreet

    name = name_of(arguments, schema)
    model, target = MODELS[name], kind_of_target(schema)
    options = {parameter: getattr(arguments, destination(parameter), None) for parameter in OPTIONS}
    given = {parameter: value for parameter, value in options.items() if value is not None}
    check_options(given, name)
    kind = getattr(discreet, _estimator_name(name, target, schema))
    values = _values(given, schema.classes.tolist() if target == "classes" else ())
    facts = {**_public_facts(model, target, schema, given), **shared}
    facts |= {one: getattr(arguments, one) for one in ("epsilon", "delta", "neighboring")}
    known = set(kind._get_param_names())
    kinds = "classes, and this target is a number" if target == "number" else "numbers, and this is none"
    for parameter in given:
        if parameter not in (*known, *_OF_TEACHERS):
            raise ValueError(f"{flag(parameter)} is for {kinds}")
    for parameter, value in shared.items():
        if parameter not in known and value not in (None, "error"):
            raise ValueError(f"{name} has no {parameter.replace('_', ' ')}, got {value!r}")
    parameters = {parameter: value for parameter, value in facts.items() if parameter in known}
    return kind(**parameters | values)


def _estimator_name(name: str, target: str, schema: Any) -> str:
    """Return the class for this kind of target; without a schema, the only one or that for classes."""
    found = MODELS[name].estimators
    if "none" in found or schema is None:
        return next(iter(found.values()))
    if target == "none":
        raise ValueError(
            f"{name} predicts a column, and this schema declares no target; add [target] with column = 'ill' and "
            "classes = ['no', 'yes'], or bounds = [0, 100] of a number (`discreet schema template --target` does)"
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
    """Return what the schema declares about rows and labels, as parameters of the estimator."""
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
    """Convert options to parameter values; labels are those of the schema."""
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
