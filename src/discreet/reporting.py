"""Say how far a release is: log messages under ``discreet``, and callbacks, with numbers that the plan fixes.

After the charge nothing may be told that depends on the data. So a report names the release, its phase and, where
the number of steps is part of the plan, the step. It never holds a value, a size that is private or a time, and a
release that runs inside another one, such as a try of a search, reports nothing: their number may be secret.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

logger = logging.getLogger("discreet")
logger.addHandler(logging.NullHandler())


@dataclass(frozen=True)
class Report:
    """Where a release is.

    Attributes
    ----------
    release : its name, as in the ledger.
    phase : "compile" if code must be compiled first, "charge" before its price is taken, "run" from then on, "done"
        when it is released.
    detail : the price, or the mechanism, in words.
    step, steps : the step that is done, of how many; both 0 where the plan fixes no number of steps.
    """

    release: str
    phase: str
    detail: str = ""
    step: int = 0
    steps: int = 0

    def __str__(self) -> str:
        place = f"step {self.step} of {self.steps}" if self.steps else self.phase
        return ": ".join(filter(None, (self.release, place, self.detail)))


Listener = Callable[[Report], object]
_listeners: ContextVar[tuple[Listener, ...]] = ContextVar("listeners", default=())
# The release that runs; "" if it is inside another one, so that even its being run may be secret.
running: ContextVar[str | None] = ContextVar("running", default=None)


@contextmanager
def on_progress(listener: Listener) -> Iterator[None]:
    """Call ``listener`` with a `Report` whenever a release in this block reaches a phase or a planned step.

    Parameters
    ----------
    listener : called in the thread of the release, in the order of phases; an error that it raises ends the run,
        which stays charged.

    Yields
    ------
    None
        It is a context manager.

    Notes
    -----
    Privacy: calls and what they hold are fixed by public facts, whatever the data. When they come is not: whoever sees
    them live sees how long steps take, which no promise covers. The same reports are logged under ``discreet``, phases
    at level INFO and steps at level DEBUG.

    Examples
    --------
    >>> from discreet import Boolean, Schema, describe
    >>> with on_progress(lambda report: print(report.release, report.phase)):
    ...     found = describe({"smoker": [True, False] * 500}, Schema({"smoker": Boolean()}), epsilon=1.0)
    describe charge
    describe run
    describe done
    """
    token = _listeners.set((*_listeners.get(), listener))
    try:
        yield
    finally:
        _listeners.reset(token)


@contextmanager
def releasing(label: str) -> Iterator[Callable[[str, str], None]]:
    """Report the phases of one release, through the function that is given; nothing inside another release."""
    inside = running.get() is not None
    token = running.set("" if inside else label)

    def report(phase: str, detail: str) -> None:
        if not inside:
            _send(Report(label, phase, detail), logging.INFO)

    try:
        yield report
    finally:
        running.reset(token)


def step(done: int, steps: int) -> None:
    """Report a step of the release that runs, for loops whose number of steps is part of their plan."""
    if label := running.get():
        _send(Report(label, "run", step=done, steps=steps), logging.DEBUG)


def _send(report: Report, level: int) -> None:
    logger.log(level, "%s", report)
    for listener in _listeners.get():
        listener(report)
