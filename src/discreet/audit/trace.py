"""One run of a program with everything an auditor wants to know about it, without the program's help.

The noise is insecure and repeatable; a recorder hears every mechanism; a solver is wrapped so that its plan,
its records and its use of random words are seen as well. No solver has code of its own here.
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
    """A plan that was run or paid for inside a trace: its records, if they were seen, and which calls it made."""

    plan: Any
    records: Any
    first_call: int
    last_call: int
    words: tuple[int, ...]


@dataclass(frozen=True)
class Trace:
    """What one run did and published.

    ``runs`` are plans that were watched while they ran, ``charges`` all plans that were paid for, each with the calls
    up to the next charge.
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
    recorder: Recorder | None = None,
) -> Trace:
    """Run ``program(data)`` under insecure noise and take everything down.

    Parameters
    ----------
    program : function of the private data that returns what it publishes: a fitted estimator, a release, arrays.
    data : the private data, in one argument.
    seed : seed of the noise; the same seed gives the same noise to the same sequence of draws.
    answers : calls of an earlier trace; mechanisms then answer as they did there, whatever they are asked.
    samples : those of that trace, whose people are then sampled again.
    """
    if recorder is None:
        recorder = Recorder() if answers is None else Replayer(answers, samples)
    notes = _Notes(recorder)
    token = _notes.set(notes)
    published, error = None, None
    try:
        with warnings.catch_warnings(record=True) as caught, insecure_noise(seed), recorded_by(recorder):
            warnings.simplefilter("always")
            try:
                published = program(data)
            except Exception as problem:  # an error is an output like any other
                error = (type(problem).__name__, str(problem))
    finally:
        _notes.reset(token)
    said = tuple((warning.category.__name__, str(warning.message)) for warning in caught)
    charges = _charges(recorder)
    return Trace(
        recorder.calls,
        recorder.samples,
        notes.runs,
        charges,
        said,
        error,
        None if error else frozen(published),
    )


def fitting(estimator: Any) -> Program:
    """The program that fits a copy of an estimator to ``data = (X, y)``; its solver is watched."""

    def program(data: Any) -> Any:
        watched = clone(estimator)
        if getattr(watched, "solver", None) is not None:
            watched.solver = WatchedSolver(base.resolve(watched.solver))
        return watched.fit(*data)

    return program


def running(plan: base.Plan) -> Program:
    """The program that runs a plan on ``data``, a list of records, with a new source of noise."""

    def program(records: Any) -> Any:
        return WatchedPlan(plan).run(records, fresh_entropy())

    return program


class Replayer(Recorder):
    """Gives the answers of an earlier run, in order, so that both runs pass through the same states.

    Adaptive composition compares two data sets given equal earlier answers; equal noise is not enough,
    because answers would then drift apart and later questions with them. Samples name places of records: where the
    first record is there in one of the runs only, places are moved, so that they are those of the same people.
    """

    def __init__(self, answers: Sequence[Call], samples: Sequence[Sample] = ()) -> None:
        super().__init__()
        self._answers, self._drawn = answers, iter(samples)

    def record(self, call: Call) -> Any:
        place = len(self.calls)
        self.calls.append(call)
        if place < len(self._answers) and self._answers[place].shape == call.shape:
            return _copied(self._answers[place].output)
        return call.output

    def sampled(self, indices: Any, size: int, rate: float) -> Any:
        earlier = next(self._drawn, None)
        if earlier is not None and size != earlier.size:
            more = size > earlier.size
            moved = earlier.indices + 1 if more else earlier.indices[earlier.indices != 0] - 1
            indices = np.concatenate([indices[indices == 0], moved]) if more else moved
        return super().sampled(indices, size, rate)


class Weakener(Recorder):
    """The twin of any mechanism with only a part of its noise; never part of a release.

    Additive noise is scaled down; choices, votes and streams are answered anew under their law with less noise.
    Whatever has no law in `likelihoods` is left alone. ``seed`` is for the new answers; None draws one.
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
        PlannedRun(_unwatched(plan), None, first, last, ())
        for (plan, first), last in zip(recorder.charges, ends, strict=False)
    ]


def noise_of(call: Call) -> Any:
    """What the mechanism added, or None where the answer is not a noisy copy of the question."""
    if not call.additive:
        return None
    if call.value is None:
        return np.asarray(call.output)
    if np.shape(call.value) != np.shape(call.output):
        return None
    return np.asarray(call.output) - np.asarray(call.value)


class WatchedSolver:
    """A solver that plans like the one inside and whose plans tell the trace what they run on."""

    def __init__(self, inner: base.Solver) -> None:
        self._inner = inner

    def plan(self, *arguments: Any, **options: Any) -> WatchedPlan:
        """The inner solver's plan, watched."""
        return WatchedPlan(self._inner.plan(*arguments, **options))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class WatchedPlan:
    """A plan that runs like the one inside and reports its records and its use of random words."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def run(self, records: Any, entropy: Entropy, *arguments: Any, **options: Any) -> Any:
        """Run the inner plan; whatever happens, the trace learns of it."""
        notes = _notes.get()
        if notes is None:
            return self._inner.run(records, entropy, *arguments, **options)
        counted = _Counted(entropy)
        first = len(notes.recorder.calls)
        try:
            return self._inner.run(records, counted, *arguments, **options)
        finally:
            plan, last = innermost(self._inner), len(notes.recorder.calls)
            made = PlannedRun(plan, records, first, last, tuple(counted.counts))
            notes.runs.append(made)

    def for_groups(self, promise: base.GroupPromise) -> WatchedPlan:
        """The same run, with a promise about all rows of one person; watched all the same."""
        return WatchedPlan(self._inner.for_groups(promise))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __str__(self) -> str:
        return str(self._inner)


def innermost(plan: Any) -> Any:
    """The plan that does the work, where one plan only chose another."""
    while hasattr(getattr(plan, "plan", None), "run"):
        plan = plan.plan
    return plan


def _unwatched(plan: Any) -> Any:
    return plan._inner if isinstance(plan, WatchedPlan) else plan


class _Counted(Entropy):
    """A source that counts the words it passes on."""

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
    """A comparable copy of anything a program may publish, down to the last bit of every number.

    Of an estimator everything is taken that ``fit`` set, private attributes too: whoever gets the object gets
    them. Its constructor's parameters are the user's and are left out.
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
    if hasattr(
        value, "get_params"
    ):  # before dataclasses: estimators are some, and their fields are parameters
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
    """Where two frozen values first differ, or None."""
    if first == second:
        return None
    if isinstance(first, tuple) and isinstance(second, tuple) and len(first) == len(second):
        for place, (a, b) in enumerate(zip(first, second, strict=True)):
            named = isinstance(a, tuple) and len(a) == 2 and isinstance(a[0], str) and isinstance(a[1], tuple)
            step = f"{path}.{a[0]}" if named and a[0] == b[0] else path
            if a != b:
                return difference(a, b, step) if isinstance(a, tuple) else (path or f"part {place}")
    return path or "its structure"


def _copied(answer: Any) -> Any:
    return answer.copy() if isinstance(answer, np.ndarray) else answer
