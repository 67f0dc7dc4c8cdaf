"""Recording of mechanism inputs and outputs, for replays and audits of insecure runs only.

A mechanism ends its noisy method with ``return observed(self, ...)``. In production no recorder is active, and the
call costs one lookup and returns its argument. Inside :func:`recorded_by` the recorder sees the private input, so it is
refused if the noise is secret.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
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
    """A secret sample of records at a public rate, and the number of calls before it."""

    indices: Any
    rate: float
    before: int


class Recorder:
    """Stores every call and every sample; subclasses may replace the answers."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.samples: list[Sample] = []
        self.charges: list[tuple[Any, int]] = []  # plans, with the number of calls before each

    def heard(self, call: Call) -> Any:
        """Record a call and return the answer for its caller."""
        self.calls.append(call)
        return call.output

    def foretold(self) -> Any:
        """Return the answer that will replace the next call's, or None."""
        return None

    def sampled(self, indices: Any, size: int, rate: float) -> Any:
        """Record a secret sample of 0 .. size - 1 at a public rate and return the sample for its caller."""
        self.samples.append(Sample(indices, rate, len(self.calls)))
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
    return recorder.heard(call)  # type: ignore[no-any-return]


def foretold(entropy: Entropy) -> Any:
    """Return the answer a replay will substitute for the next call, or None. Lets expensive samplers skip work."""
    recorder = _listener(entropy)
    return None if recorder is None else recorder.foretold()


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
