"""Trace one run of a program for an audit, without changing the program.

The noise is insecure and repeatable; a recorder sees every mechanism call; the solver is wrapped so that its plan, its
records and its use of random words are recorded, too. There is no code for any particular solver.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.base import clone

from discreet.audit.likelihoods import WeakStream, known, law_of, less_noise
from discreet.mechanisms.recording import Call, Recorder, Sample, recorded_by
from discreet.mechanisms.samplers.entropy import Entropy, Words, fresh_entropy, insecure_noise
from discreet.solvers import base

Program = Callable[[Any], Any]


@dataclass(frozen=True)
class PlannedRun:
    """A plan that was run or charged inside a trace: its records, if recorded, and the calls it made."""

    plan: Any
    records: Any
    first_call: int
    last_call: int
    words: tuple[int, ...]


@dataclass(frozen=True)
class Trace:
    """What one run did and published.

    ``runs`` are plans recorded while they ran; ``charges`` are all charged plans, each with the calls up to the next
    charge.
    """

    calls: list[Call]
    samples: list[Sample]
    runs: list[PlannedRun]
    charges: list[PlannedRun]
    warnings: tuple[tuple[str, str], ...]
    error: tuple[str, str] | None
    state: Any


def trace(
    program: Program,
    data: Any,
    *,
    seed: int = 0,
    answers: Sequence[Call] | None = None,
    samples: Sequence[Sample] = (),
) -> Trace:
    """Run ``program(data)`` under insecure noise and record everything.

    Parameters
    ----------
    program : function of the private data that returns what it publishes: a fitted estimator, a release, arrays.
    data : the private data, as one argument.
    seed : seed of the noise; the same seed gives the same noise to the same sequence of draws.
    answers : calls of an earlier trace, whose answers the mechanisms then repeat for any input.
    samples : samples of that trace; the same people are then sampled again.
    """
    recorder = Recorder() if answers is None else Replayer(answers, samples)
    notes = _Notes(recorder)
    token = _notes.set(notes)
    published, error = None, None
    try:
        with warnings.catch_warnings(record=True) as caught, insecure_noise(seed), recorded_by(recorder):
            warnings.simplefilter("always")
            # These come whenever garbage is collected, about what others left open.
            warnings.simplefilter("ignore", ResourceWarning)
            try:
                published = program(data)
            except Exception as problem:  # an error is part of the output
                error = (type(problem).__name__, str(problem))
    finally:
        _notes.reset(token)
    shown = tuple((warning.category.__name__, str(warning.message)) for warning in caught)
    state = None if error else frozen(published)
    return Trace(recorder.calls, recorder.samples, notes.runs, _charges(recorder), shown, error, state)


def fitting(estimator: Any) -> Program:
    """Return the program that fits a copy of an estimator to ``data = (X, y)`` with a watched solver."""

    def program(data: Any) -> Any:
        watched = clone(estimator)
        if getattr(watched, "solver", None) is not None:
            watched.solver = WatchedSolver(base.resolve(watched.solver))
        return watched.fit(*data)

    return program


def running(plan: base.Plan) -> Program:
    """Return the program that runs a plan on ``data``, a list of records, with fresh noise."""

    def program(records: Any) -> Any:
        return WatchedPlan(plan).run(records, fresh_entropy())

    return program


class Replayer(Recorder):
    """Repeats the answers of an earlier run, in order, so that both runs pass through the same states.

    Adaptive composition compares two data sets given equal earlier answers. Equal noise is not enough: answers, and
    then later questions, would drift apart. Samples are indices of records; if the first record exists in only one of
    the runs, indices are shifted to select the same people.
    """

    def __init__(self, answers: Sequence[Call], samples: Sequence[Sample] = ()) -> None:
        super().__init__()
        self._answers, self._drawn = answers, iter(samples)

    def record(self, call: Call) -> Any:
        place = len(self.calls)
        self.calls.append(call)
        if place < len(self._answers) and self._answers[place].shape == call.shape:
            answer = self._answers[place].output
            return answer.copy() if isinstance(answer, np.ndarray) else answer
        return call.output

    def sampled(self, indices: Any, size: int, rate: float) -> Any:
        earlier = next(self._drawn, None)
        if earlier is not None and size != earlier.size:
            more = size > earlier.size
            moved = earlier.indices + 1 if more else earlier.indices[earlier.indices != 0] - 1
            indices = np.concatenate([indices[indices == 0], moved]) if more else moved
        return super().sampled(indices, size, rate)


class Weakener(Recorder):
    """Reduces the noise of every mechanism to a fraction, for broken twins; never part of a release.

    Additive noise is scaled down; choices, votes and streams are drawn again from their distribution with less noise.
    Mechanisms without a distribution in `likelihoods` are unchanged. ``seed`` is for the new draws; None picks one.
    """

    def __init__(self, share: float = 0.5, seed: Sequence[int] | None = None) -> None:
        super().__init__()
        self._share, self._seed = share, seed
        self._streams: dict[int, WeakStream] = {}

    @cached_property
    def _rng(self) -> np.random.Generator:
        return np.random.default_rng(fresh_entropy().words(4) if self._seed is None else self._seed)

    def record(self, call: Call) -> Any:
        answer = call.output if self._share == 1.0 else self._weaker(call)
        self.calls.append(dataclasses.replace(call, output=answer))
        return answer

    def _weaker(self, call: Call) -> Any:
        if call.value is None:
            return self._share * np.asarray(call.output)
        if call.mechanism == "SparseVector":
            stream = self._streams.setdefault(id(call.law), WeakStream(call.law, self._share, self._rng))
            return stream.answer(call)
        if not known([call]):
            return call.output
        law = law_of(call)
        return less_noise(call, self._share) if law.draw is None else law.draw(call, self._share, self._rng)


def _charges(recorder: Recorder) -> list[PlannedRun]:
    ends = [first for _, first in recorder.charges[1:]] + [len(recorder.calls)]
    return [
        PlannedRun(plan._inner if isinstance(plan, WatchedPlan) else plan, None, first, last, ())
        for (plan, first), last in zip(recorder.charges, ends, strict=False)
    ]


def noise_of(call: Call) -> Any:
    """Return the noise that a mechanism added, or None if the answer is not the input plus noise."""
    if not call.additive:
        return None
    if call.value is None:
        return np.asarray(call.output)
    if np.shape(call.value) != np.shape(call.output):
        return None
    return np.asarray(call.output) - np.asarray(call.value)


class WatchedSolver:
    """A solver that wraps another and records what its plans run on."""

    def __init__(self, inner: base.Solver) -> None:
        self._inner = inner

    def plan(self, *arguments: Any, **options: Any) -> WatchedPlan:
        """Return the inner solver's plan, watched."""
        return WatchedPlan(self._inner.plan(*arguments, **options))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class WatchedPlan:
    """A plan that wraps another and records its records and its use of random words."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def run(self, records: Any, entropy: Entropy, *arguments: Any, **options: Any) -> Any:
        """Run the inner plan and record the run, also if it fails."""
        notes = _notes.get()
        if notes is None:
            return self._inner.run(records, entropy, *arguments, **options)
        counted = _Counted(entropy)
        first = len(notes.recorder.calls)
        try:
            return self._inner.run(records, counted, *arguments, **options)
        finally:
            last = len(notes.recorder.calls)
            notes.runs.append(PlannedRun(innermost(self._inner), records, first, last, tuple(counted.counts)))

    def for_groups(self, promise: base.GroupPromise) -> WatchedPlan:
        """Return the same watched run, with a guarantee for all rows of one person."""
        return WatchedPlan(self._inner.for_groups(promise))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __str__(self) -> str:
        return str(self._inner)


def innermost(plan: Any) -> Any:
    """Return the plan that does the work, if a plan only wraps another."""
    while hasattr(getattr(plan, "plan", None), "run"):
        plan = plan.plan
    return plan


class _Counted(Entropy):
    """Counts the random words that a source gives out."""

    def __init__(self, source: Entropy) -> None:
        self._source = source
        self.counts: list[int] = []

    @property
    def secure(self) -> bool:
        return self._source.secure

    def words(self, count: Any) -> Words:
        self.counts.append(int(count))
        return self._source.words(count)


@dataclass
class _Notes:
    recorder: Recorder
    runs: list[PlannedRun] = field(default_factory=list)


_notes: ContextVar[_Notes | None] = ContextVar("discreet_audit_notes", default=None)


def frozen(value: Any) -> Any:
    """Return a comparable copy of anything a program may publish, exact to the last bit.

    For an estimator this includes everything that ``fit`` set, private attributes too, because whoever gets the object
    gets them. Constructor parameters are left out.
    """
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            return "array", value.shape, tuple(frozen(item) for item in value.ravel())
        return "array", str(value.dtype), value.shape, np.ascontiguousarray(value).tobytes()
    if isinstance(value, np.generic):
        return "scalar", str(value.dtype), value.tobytes()
    if value is None or isinstance(value, str | bytes | bool | int | float | complex):
        return type(value).__name__, repr(value)
    if isinstance(value, Mapping):
        return "mapping", tuple((frozen(key), frozen(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return type(value).__name__, tuple(frozen(item) for item in value)
    if isinstance(value, set | frozenset):
        return "set", tuple(sorted(map(repr, map(frozen, value))))
    if hasattr(value, "get_params"):  # before dataclasses: estimators are dataclasses of their parameters
        public = set(value.get_params(deep=False))
        parts = ((name, frozen(part)) for name, part in sorted(vars(value).items()) if name not in public)
        return type(value).__name__, tuple(parts)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = ((part.name, frozen(getattr(value, part.name))) for part in dataclasses.fields(value))
        return type(value).__name__, tuple(parts)
    if hasattr(value, "to_dict"):
        return type(value).__name__, frozen(value.to_dict())
    if callable(value):
        return "callable", getattr(value, "__qualname__", repr(type(value)))
    if hasattr(value, "__dict__"):
        return type(value).__name__, tuple((name, frozen(part)) for name, part in sorted(vars(value).items()))
    return type(value).__name__, repr(value)


def difference(first: Any, second: Any, path: str = "") -> str | None:
    """Return where two frozen values first differ, or None."""
    if first == second:
        return None
    if isinstance(first, tuple) and isinstance(second, tuple) and len(first) == len(second):
        for place, (a, b) in enumerate(zip(first, second, strict=True)):
            named = isinstance(a, tuple) and len(a) == 2 and isinstance(a[0], str) and isinstance(a[1], tuple)
            step = f"{path}.{a[0]}" if named and a[0] == b[0] else path
            if a != b:
                return difference(a, b, step) if isinstance(a, tuple) else (path or f"part {place}")
    return path or "its structure"
