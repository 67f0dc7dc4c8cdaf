"""What a mechanism was asked and what it answered, for replays and audits of insecure runs only.

A mechanism ends its one noisy method with ``return observed(self, ...)``. Nobody listens in production: then
the call costs one lookup and hands back its argument. Inside :func:`recorded_by` a recorder sees the private
input, which is why it is refused wherever the noise is secret.
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
    scale : the noise scale that was sampled.
    value : the private input, copied; None for noise that is drawn by itself (objective perturbation).
    output : what the mechanism answered.
    sensitivity : the declared distance between the inputs of neighbors; None where there is no input.
    event : what the mechanism says the call costs; None for noise by itself, which its user prices.
    score_range : for selections, the declared spread max_i h_i - min_i h_i of the change h of the scores ``value``.
    exact_tries : True for samplers whose use of random words may depend on the input (documented exceptions).
    additive : False where the answer is not the input plus noise: choices and decisions.
    law, asked : the mechanism itself, and the input as it was handed over: what a likelihood is computed from.
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
    """A secret sample of records at a public rate, and how many calls had been made before it was drawn."""

    indices: Any
    rate: float
    before: int


class Recorder:
    """Keeps every call and every sample; subclasses may answer in the mechanism's place."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.samples: list[Sample] = []
        self.charges: list[tuple[Any, int]] = []  # plans, and how many calls had been made before each

    def heard(self, call: Call) -> Any:
        """Take note of a call; returns what its caller is to get."""
        self.calls.append(call)
        return call.output

    def foretold(self) -> Any:
        """The answer that the next call will get whatever it draws, or None."""
        return None

    def sampled(self, indices: Any, size: int, rate: float) -> Any:
        """Take note of a secret sample of 0 .. size - 1 at a public rate; returns what its caller is to get."""
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
    """Pass on a mechanism's answer, past the recorder if one listens.

    Parameters
    ----------
    mechanism : the mechanism, whose class names the call.
    entropy : the source the answer was drawn from.
    output : the answer.
    scale, value, sensitivity, event, score_range, exact_tries, additive : see `Call`.

    Privacy
    -------
    Without a recorder this returns ``output`` and keeps nothing. With one it raises if ``entropy`` is secure.
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
    """The answer that a recorder, if one listens, gives to the next call: a long search for another can be left out."""
    recorder = _listener(entropy)
    return None if recorder is None else recorder.foretold()


def sampled(entropy: Entropy, indices: Answer, size: int, rate: float) -> Answer:
    """Pass on a secret sample of records, past the recorder if one listens; `observed` says to whom."""
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
    """Tell the recorder, if one listens, that a plan has been paid for: calls from now on are its run."""
    recorder = _recorder.get()
    if recorder is not None:
        recorder.charges.append((plan, len(recorder.calls)))


def listening() -> bool:
    """Whether a recorder hears the calls of this thread: then inputs must outlive them."""
    return _recorder.get() is not None


@contextlib.contextmanager
def recorded_by(recorder: Recorder) -> Iterator[None]:
    """Let ``recorder`` hear every call of a mechanism made in this thread or task.

    Privacy
    -------
    For audits inside ``insecure_noise`` only: elsewhere every mechanism refuses to answer.

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
