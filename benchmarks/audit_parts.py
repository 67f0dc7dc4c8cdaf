"""The subjects of the table of audits by part: what `discreet audit` knows by name, with every solver and relation."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Iterator, Sequence

from discreet import solvers as package
from discreet.audit.catalog import mechanisms, recommenders, streams
from discreet.audit.subjects import LINEAR_MODELS, Subject, linear_model, linear_subject, of
from discreet.audit.workflow import transfer, workflow
from discreet.privacy.guarantee import Neighboring
from discreet.solvers import base

RELATIONS = (Neighboring.REPLACE_ONE, Neighboring.ZERO_OUT, Neighboring.ADD_REMOVE_ONE)
#: Solvers that are neither the default nor audited with a classifier.
OTHER_SOLVERS: dict[str, tuple[str, ...]] = {
    "PrivateRidge": ("statistics",),
    "PrivateHuberRegressor": ("objective",),
    "PrivateQuantileRegressor": ("noisy-gd",),
    "PrivatePoissonRegressor": ("objective",),
    "PrivateLasso": ("frank-wolfe-dissertation", "mirror-descent"),
    "PrivateSparseLogisticRegression": ("frank-wolfe-dissertation", "mirror-descent"),
}
_BY_CLASS = ("discriminant",)
#: Audited by their own programs: neither a ridge nor a small set keeps them where a record's gradient is steep.
_OWN_PAIRS = ("refocused-sums",)
#: Solvers for which more records around a logistic canary are cheap, and hold the coefficients better.
_CROWDED = (
    "auto",
    "objective",
    "objective-dissertation",
    "output",
    "output-jain-thakurta",
    "noisy-gd-dissertation",
)


def parts(solvers: Sequence[str] = (), others: int = 300, match: str = "") -> dict[str, Iterator[Subject]]:
    """Return all subjects by part; ``solvers`` restricts the solvers of classifiers, ``match`` the regressors."""
    for module in pkgutil.walk_packages(package.__path__, "discreet.solvers."):
        importlib.import_module(module.name)
    kinds = [kind for kind in LINEAR_MODELS if match in kind]
    return {
        "mechanisms": mechanisms(),
        "streams": streams(),
        "workflow": workflow(),
        "transfer": transfer(),
        "recommenders": recommenders(),
        "regressors": regressors(RELATIONS, kinds),
        "classifiers": classifiers(RELATIONS, list(solvers) or base.names(), others),
    }


def classifiers(relations: Sequence[Neighboring], solvers: Sequence[str], others: int) -> Iterator[Subject]:
    """Yield both linear classifiers with every solver that supports them.

    The logistic loss is audited under the first supported relation only: its pairs only come close to the claim. Pairs
    for class sums attain the claim, and are audited under every relation and with three classes.
    """
    for name in ("PrivateLinearSVC", "PrivateLogisticRegression"):
        for solver in solvers:
            if solver in _BY_CLASS:
                yield from _by_class(name, solver)
                continue
            if solver in _OWN_PAIRS:
                continue
            for relation in relations:
                try:
                    linear_model(name, relation, solver).plan(100, 2, 2)
                except (ValueError, TypeError):
                    continue  # the solver does not support this problem
                yield linear_subject(name, relation, solver, 10 * others if solver in _CROWDED else others)
                if name == "PrivateLogisticRegression":
                    break


def _by_class(name: str, solver: str) -> Iterator[Subject]:
    """Yield models of two classes, and of three if one model separates them."""
    for classes, title in (([0, 1], solver), ([0, 1, 2], f"{solver}, 3 classes")):
        for relation in Neighboring:
            model = linear_model(name, relation, solver).set_params(classes=classes, n_samples=100)
            try:
                model.plan(100, 2, len(classes))
            except ValueError:
                continue  # one model per class
            yield dataclasses.replace(of(model), name=f"{name}, {title}")


def regressors(relations: Sequence[Neighboring], only: Sequence[str] = ()) -> Iterator[Subject]:
    """Yield the other linear models (or ``only`` some), with their default and their other solvers."""
    for name in LINEAR_MODELS:
        if not only or name in only:
            for solver in (None, *OTHER_SOLVERS.get(name, ())):
                for relation in relations:
                    yield linear_subject(name, relation, solver)
