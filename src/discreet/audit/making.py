"""How programs become subjects of an audit."""

from __future__ import annotations

from typing import Any

from sklearn.base import clone

from discreet.audit.subjects import Subject
from discreet.privacy.events import Event
from discreet.privacy.guarantee import Neighboring

REPLACED = Neighboring.REPLACE_ONE


def subject_of(name: str, run: Any, first: Any, second: Any, event: Event, **options: Any) -> Subject:
    """A program that is replayed and attacked on the same two neighbors under replace-one."""
    return Subject(name, REPLACED, run, (first, second), run, first, second, event, **options)


def unfitted(model: Any) -> Any:
    """A copy of a model that knows nothing."""
    return clone(model)


def planned_as(model: Any, plan: Any) -> Any:
    """A model that does not calibrate again what is known already."""
    vars(model)["plan"] = lambda *sizes, **options: plan
    return model
