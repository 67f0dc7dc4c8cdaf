"""Observe a release: audits record its noise, and anybody may follow its progress.

A mechanism ends its noisy method with ``return observed(self, ...)``. In production no recorder is active, and the
call costs one lookup and returns its argument. Inside :func:`recorded_by` the recorder sees the private input, so it is
refused if the noise is secret.

Progress is for users, of private runs as well: `on_progress` reports what public facts fix, and nothing else.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from discreet.mechanisms.samplers.entropy import Entropy
from discreet.privacy.events import Event
from discreet.privacy.guarantee import Sensitivity

Answer = TypeVar("Answer")


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a mechanism.

    Attributes
    ----------
    mechanism : name of the mechanism's class.
    scale : the sampled noise scale.
    value : a copy of the private input; None for noise drawn by itself (objective perturbation).
    output : the answer of the mechanism.
    sensitivity : the declared distance between the inputs of neighbors; None without an input.
    event : the declared event of the call; None for noise by itself, which the caller prices.
    score_range : for selections, the declared spread max_i h_i - min_i h_i of the change h of the scores ``value``.
    exact_tries : True for samplers whose use of random words may depend on the input (documented exceptions).
    additive : False if the answer is not the input plus noise: choices and decisions.
    law, asked : the mechanism itself, and the original input, from which a likelihood is computed.
    """

    mechanism: str
    scale: float
    value: Any
    output: Any
    sensitivity: Sensitivity | None = None
    event: Event | None = None
    score_range: float | None = None
    exact_tries: bool = False
    additive: bool = True
    law: Any = None
    asked: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the answer."""
        return np.shape(self.output)

    @property
    def public(self) -> tuple[Any, ...]:
        """Everything about the call that must not depend on the data."""
        sizes = None if self.value is None else np.shape(self.value)
        return self.mechanism, self.scale, self.sensitivity, self.score_range, self.event, sizes, self.shape


@dataclass(frozen=True, eq=False)
class Sample:
    """A secret sample of so many records at a public rate, and the number of calls before it."""

    indices: Any
    size: int
    rate: float
    before: int


class Recorder:
    """Stores every call and every sample; subclasses may replace the answers."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.samples: list[Sample] = []
        self.charges: list[tuple[Any, int]] = []  # plans, with the number of calls before each

    def record(self, call: Call) -> Any:
        """Record a call and return the answer for its caller."""
        self.calls.append(call)
        return call.output

    def next_answer(self) -> Any:
        """Return the answer that will replace the next call's, or None."""
        return None

    def sampled(self, indices: Any, size: int, rate: float) -> Any:
        """Record a secret sample of 0 .. size - 1 at a public rate and return the sample for its caller."""
        self.samples.append(Sample(indices, size, rate, len(self.calls)))
        return indices


_recorder: ContextVar[Recorder | None] = ContextVar("discreet_recorder", default=None)


def observed(
    mechanism: object,
    entropy: Entropy,
    output: Answer,
    *,
    scale: float,
    value: Any = None,
    sensitivity: Sensitivity | None = None,
    event: Event | None = None,
    score_range: float | None = None,
    exact_tries: bool = False,
    additive: bool = True,
) -> Answer:
    """Return a mechanism's answer, through the recorder if one is active.

    Parameters
    ----------
    mechanism : the mechanism, whose class names the call.
    entropy : the source of the noise.
    output : the answer.
    scale, value, sensitivity, event, score_range, exact_tries, additive : see `Call`.

    Privacy
    -------
    Without a recorder this returns ``output`` and stores nothing. With one it raises if ``entropy`` is secure.
    """
    recorder = _listener(entropy)
    if recorder is None:
        return output
    asked = value
    if value is not None:
        value = np.array(value, copy=True)
    name, facts = type(mechanism).__name__, (sensitivity, event, score_range, exact_tries, additive)
    call = Call(name, float(scale), value, output, *facts, law=mechanism, asked=asked)
    return recorder.record(call)  # type: ignore[no-any-return]


def next_answer(entropy: Entropy) -> Any:
    """Return the answer a replay will substitute for the next call, or None. Lets expensive samplers skip work."""
    recorder = _listener(entropy)
    return None if recorder is None else recorder.next_answer()


def sampled(entropy: Entropy, indices: Answer, size: int, rate: float) -> Answer:
    """Return a secret sample of records, through the recorder if one is active, as in `observed`."""
    recorder = _listener(entropy)
    return indices if recorder is None else recorder.sampled(indices, size, rate)


def _listener(entropy: Entropy) -> Recorder | None:
    recorder = _recorder.get()
    if recorder is not None and entropy.secure:
        raise RuntimeError(
            "a recorder sees private inputs, so it may listen only inside insecure_noise(seed), whose "
            "results say that they are not private"
        )
    return recorder


def charged(plan: object) -> None:
    """Tell the recorder, if one is active, that a plan has been charged: the following calls are its run."""
    recorder = _recorder.get()
    if recorder is not None:
        recorder.charges.append((plan, len(recorder.calls)))


def listening() -> bool:
    """Whether a recorder is active in this thread; then inputs must outlive their calls."""
    return _recorder.get() is not None


@contextlib.contextmanager
def recorded_by(recorder: Recorder) -> Iterator[None]:
    """Let ``recorder`` record every mechanism call in this thread or task.

    Privacy
    -------
    For audits inside ``insecure_noise`` only; otherwise every mechanism raises.

    Examples
    --------
    >>> from discreet.mechanisms.additive import GaussianMechanism
    >>> from discreet.mechanisms.samplers.entropy import fresh_entropy, insecure_noise
    >>> mechanism, recorder = GaussianMechanism(Sensitivity(2.0), 1.5, size=2), Recorder()
    >>> with insecure_noise(0), recorded_by(recorder):
    ...     released = mechanism.release([0.25, 1.0], fresh_entropy())
    >>> recorder.calls[0].value, recorder.calls[0].sensitivity.value
    (array([0.25, 1.  ]), 2.0)
    >>> with recorded_by(recorder):
    ...     mechanism.release([0.25, 1.0], fresh_entropy())
    Traceback (most recent call last):
        ...
    RuntimeError: a recorder sees private inputs, ...
    """
    token = _recorder.set(recorder)
    try:
        yield
    finally:
        _recorder.reset(token)


# -- how far a release is: log messages under ``discreet``, and callbacks -------------------------------------------
#
# After the charge no report may depend on the data. So a report names the release, its phase and, where
# the number of steps is part of the plan, the step. It never holds a value or a size that is private, and a time only
# for a listener that asked for it. A release that runs inside another one, such as a try of a search, reports nothing:
# their number may be secret.

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
    private_seconds : PRIVATE: since the release began, for listeners with ``timings=True`` only; otherwise None. How
        long a release takes may depend on the data, and no promise covers it.
    """

    release: str
    phase: str
    detail: str = ""
    step: int = 0
    steps: int = 0
    private_seconds: float | None = None

    def __str__(self) -> str:
        place = f"step {self.step} of {self.steps}" if self.steps else self.phase
        took = "" if self.private_seconds is None else f"PRIVATE, {self.private_seconds:.3f} s"
        return ": ".join(filter(None, (self.release, place, self.detail, took)))


Listener = Callable[[Report], object]
_listeners: ContextVar[tuple[tuple[Listener, bool], ...]] = ContextVar("listeners", default=())
_began: ContextVar[float] = ContextVar("began", default=0.0)  # when the release began that runs
# The release that runs; "" if it is inside another one, so that even its being run may be secret.
running: ContextVar[str | None] = ContextVar("running", default=None)


@contextlib.contextmanager
def on_progress(listener: Listener, *, timings: bool = False) -> Iterator[None]:
    """Call ``listener`` with a `Report` whenever a release in this block reaches a phase or a planned step.

    Parameters
    ----------
    listener : called in the thread of the release, in the order of phases; an error that it raises ends the run,
        which stays charged.
    timings : whether reports tell the seconds since the release began, as ``private_seconds``. They are PRIVATE: for
        the holder of the data, and not to be published or logged where others read.

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
    token = _listeners.set((*_listeners.get(), (listener, timings)))
    try:
        yield
    finally:
        _listeners.reset(token)


@contextlib.contextmanager
def releasing(label: str) -> Iterator[Callable[[str, str], None]]:
    """Report the phases of one release, through the function that is given; nothing inside another release."""
    inside = running.get() is not None
    token = running.set("" if inside else label)
    if not inside:
        _began.set(time.perf_counter())

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
    for listener, timings in _listeners.get():
        if timings:
            listener(replace(report, private_seconds=time.perf_counter() - _began.get()))
        else:
            listener(report)
