"""The parameters of estimators: each declared and documented once.

An estimator is a dataclass. It declares its own parameters, takes shared ones from a base class or from a function of
this module, and overrides a default by declaring the parameter again. Parameters are passed by name unless they are
declared as positional. ``@estimator`` writes the constructor and fills placeholders in the class's docstring:
``{parameters}`` with the descriptions, ``{privacy}`` with the common guarantee, and ``{fitted}`` with the common
attributes.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import textwrap
from dataclasses import KW_ONLY
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

from sklearn.base import BaseEstimator

from discreet._checks import Habits
from discreet.privacy.page import ShowsPromise

if TYPE_CHECKING:
    from discreet.privacy.ledger.ledger import Ledger
    from discreet.solvers.base import Solver

Class = TypeVar("Class", bound=type)


_PRIVACY = """\
Privacy: (epsilon, delta)-DP of the released attributes under the stated relation; the unit is one row, or all
rows of one person. Not covered: how long a fit takes, and anything else published from private rows."""
_FITTED = """\
privacy_ : the `PrivacyStatement`; print it.
fitted_parameters_ : parameters of this fit; predictions and saved files use these, not values set afterwards."""


REQUIRED = dataclasses.MISSING


def parameter(default: Any, kind: str, description: str, *, positional: bool = False) -> Any:
    """Declare a parameter: its default or ``REQUIRED``, a description of its type, and what it does."""
    about = {"kind": kind, "description": description}
    return dataclasses.field(default=default, kw_only=not positional, metadata=about)


@dataclass_transform()  # for a type checker every parameter has a default
def estimator(kind: Class) -> Class:
    """Give a class the constructor and the documentation of its declared parameters."""
    made: Class = dataclasses.dataclass(eq=False, repr=False, kw_only=True)(kind)  # type: ignore[assignment]
    if made.__doc__ and "{parameters}" in made.__doc__:
        text = "\n".join(_described(field) for field in _in_order(made))
        for name, words in {"parameters": text, "privacy": _PRIVACY, "fitted": _FITTED}.items():
            made.__doc__ = made.__doc__.replace(f"{{{name}}}", textwrap.indent(words, "    ").lstrip())
    return made


def _in_order(kind: type) -> list[dataclasses.Field[Any]]:
    """Return the parameters in the order of the constructor."""
    fields = {field.name: field for field in dataclasses.fields(kind)}
    names = list(inspect.signature(kind).parameters)
    return [fields[name] for name in names]


def _described(field: dataclasses.Field[Any]) -> str:
    about = field.metadata
    lines = textwrap.wrap(about["description"], 102, break_on_hyphens=False)
    wrapped = textwrap.indent("\n".join(lines), "    ")
    default = "" if field.default is REQUIRED else f", default {field.default!r}"
    return f"{field.name} : {about['kind']}{default}\n{wrapped}"


CHANGES = {
    "replace-one": "replacing it",
    "add-remove-one": "adding or removing it",
    "zero-out": "blanking it out",
}


def budget(what: str, *, positional: bool = True) -> Any:
    """Declare ``epsilon``: the budget of ``what``."""
    about = f"Privacy budget of {what}, in nats. Smaller is more private."
    return parameter(1.0, "float", about, positional=positional)


def exceeding(size: str, remark: str = "") -> Any:
    """Declare ``delta``, whose default follows from a public size."""
    default = f"None is 1 / {size}**2{', ' if remark else ''}{remark}."
    return parameter(
        None, "float", f"Probability that the bound by epsilon fails; {default}", positional=True
    )


def relation(remark: str, *names: str) -> Any:
    """Declare ``neighboring``, with the relations that are supported; all of them by default."""
    names = names or tuple(CHANGES)
    listed = ", ".join(f'"{name}"' for name in names)
    *others, last = (CHANGES[name] for name in names)
    about = f"Which change of one record is hidden: {', '.join(others)} or {last}. {remark}"
    return parameter("replace-one", f"{{{listed}}}", about)


def public_labels(*, positional: bool = False) -> Any:
    """Declare ``classes``."""
    return parameter(
        None,
        "list",
        "The public label set. If None it is read from the data, with a warning and a note in the statement.",
        positional=positional,
    )


@estimator
class Charged:
    """Parameters of everything that is charged to a ledger."""

    _: KW_ONLY  # here and below for type checkers, which do not look into `parameter`
    neighboring: str = relation(
        'Under "add-remove-one" the number of rows is private, and ``n_samples`` declares an upper bound.'
    )
    ledger: Ledger | str | os.PathLike[str] | None = parameter(
        None, "Ledger or path", "Budget that is charged before anything private runs."
    )


@estimator
class PrivacyParameters(ShowsPromise, Habits, Charged, BaseEstimator):  # type: ignore[misc]
    """Parameters of every private model of rows: the promise, the budget, and how rows are counted."""

    epsilon: float = budget("one fit")
    delta: float | None = exceeding("n_samples")
    _: KW_ONLY
    bad_rows: str = parameter(
        "error",
        '{"error", "null"}',
        "What to do with invalid rows (not finite, label missing or unknown): raise an error before any charge, or "
        "treat them as null records, so that no error depends on a private value.",
    )
    n_samples: int | None = parameter(
        None, "int", 'Public upper bound on the number of rows, needed only under "add-remove-one".'
    )
    max_rows_per_group: int | None = parameter(
        None,
        "int",
        "With ``fit(..., groups=ids)``: how many rows of one person are used at most. The guarantee then covers all "
        "rows of a person, and the number of people is public instead of the number of rows. Choose it without "
        "looking at the data.",
    )


@estimator
class LinearParameters(PrivacyParameters):
    """Parameters of all linear models."""

    solver: str | Solver = parameter(
        "auto", "str or solver object", 'Training algorithm; "auto" chooses by public facts.'
    )
    random_state: Any = parameter(
        None, "None, int or SeedSequence", "Seed of optimizers; never of the privacy noise."
    )


@estimator
class ClassifierParameters(LinearParameters):
    """Parameters of linear classifiers."""

    classes: Any = public_labels()


@estimator
class RegressorParameters(LinearParameters):
    """Parameters of linear regressors."""

    target_bounds: tuple[float, float] | None = parameter(
        None,
        "(float, float)",
        "Lowest and highest target, declared from public knowledge; targets outside are clipped. Required.",
    )


def norm_bound() -> Any:
    """Declare ``feature_bound`` of models whose rows are bounded in L2 norm."""
    return parameter(
        1.0,
        "float",
        "Largest L2 norm of a row, including the intercept's 1; longer rows are scaled down to it. Choose it without "
        "looking at the data.",
    )


def entry_bound() -> Any:
    """Declare ``feature_bound`` of models whose entries are bounded one by one."""
    return parameter(
        1.0,
        "float",
        "Largest absolute entry of X; larger entries are clipped. Choose it without looking at the data.",
    )


def intercept() -> Any:
    """Declare ``fit_intercept``."""
    return parameter(
        True, "bool", "Whether to fit an intercept, as the coefficient of a constant column like every other."
    )


def ridge() -> Any:
    """Declare ``l2``."""
    return parameter(
        None,
        "float",
        "Ridge coefficient relative to the mean loss; None chooses one from public numbers. If the privacy proof needs "
        "a larger one, it is raised.",
    )


def public_weights() -> Any:
    """Declare ``class_weight``."""
    return parameter(
        None,
        "dict",
        "Public weights of the classes, {label: weight}; labels that are left out have weight 1. The noise "
        "grows with the largest weight, and probabilities are those of the reweighted classes. Moving the threshold "
        "after the fit is usually better. Needs ``classes``; solvers whose proof needs the plain loss refuse it.",
    )


def solver_choice(*names: str) -> Any:
    """Declare ``solver`` of models for which these solvers were proved and measured."""
    listed = ", ".join(f'"{name}"' for name in names)
    return parameter(
        "auto", "str or solver object", f'Training algorithm; "auto" chooses by public facts; or {listed}.'
    )


def coefficient_set(units: str) -> Any:
    """Declare ``constraint``; ``units`` explains its numbers."""
    return parameter(
        None,
        "set of `discreet.sets`",
        f"Set to which the coefficients are confined, the intercept last. {units} "
        '"frank-wolfe", "mirror-descent", "noisy-gd", "objective" and "output" support sets.',
    )
