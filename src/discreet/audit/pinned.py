"""A saved model as it is to be attacked: with the solver that was run, not with a choice made anew.

``solver="auto"`` chooses by public sizes, and the data of an attack has other sizes than the model's. So the choice is
read off the statement: the solver that was run is the one whose plan, at the sizes that the statement tells, is charged
with the same event or, where last digits differ, described in the same words.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from sklearn.base import clone

_CHOICES = ("objective", "newton", "discriminant", "noisy-gd")  # of solver="auto", by name


def pinned(model: Any, solver: str | None) -> Any:
    """An estimator with a loaded model's parameters and promise, and with the solver that was run.

    Parameters
    ----------
    model : fitted model.
    solver : the name that its file holds, "auto" included; None if the solver was an object, which no file restores.

    Raises
    ------
    ValueError
        The solver cannot be had again: then nothing else is attacked in its place.
    """
    stated = model.privacy_
    promise = stated.guarantee
    asked = clone(model).set_params(
        epsilon=promise.epsilon, delta=promise.delta, neighboring=promise.neighboring.value
    )
    if getattr(asked, "max_rows_per_group", None) is not None:
        raise ValueError(
            "the model protects people with several rows, for whom the audit knows no worst-case data; replay it on "
            "neighbors of your own with discreet.audit.replay"
        )
    if getattr(asked, "solver", None) is None:
        return asked  # medians and recommenders have one way of running
    if solver not in (None, "auto"):
        return asked.set_params(solver=solver)
    plans = [] if solver is None else list(_choices(asked, model))
    same = [name for name, plan in plans if plan.event == stated.event]
    same += [name for name, plan in plans if plan.mechanism == stated.mechanism]
    if not same:
        raise ValueError(
            f"the model was fitted by {stated.mechanism!r}, and its file names no solver that would run this on data "
            "of other sizes; --solver NAME attacks the solver of that name with the same promise"
        )
    return asked.set_params(solver=same[0])


def _choices(asked: Any, model: Any) -> Iterator[tuple[str, Any]]:
    """What every solver that ``auto`` may choose plans for the model's sizes, dense or sparse."""
    sizes = [int(model.privacy_.bounds["records"]), model.n_features_in_]
    if hasattr(model, "classes_"):
        sizes.append(len(model.classes_))
    if hasattr(asked, "multi_class"):
        asked.set_params(multi_class=model.multi_class_)  # by default some solvers fit classes one by one
    for name in _CHOICES:
        for sparse in (False, True):
            with contextlib.suppress(ValueError):  # no solver for this model
                yield name, asked.set_params(solver=name).plan(*sizes, sparse=sparse)
