"""A stream of private answers in one pair of hands: charged once, spent once, closed with a receipt.

The holder keeps secrets (teachers, votes, rows, a noisy threshold) as private as the data. Pickling, copying and
forking are refused, because two copies would spend one budget twice. ``save`` keeps a stream in one file that only the
last holder can use, and every answer is on disk before it is given. When the stream halts, or with ``close``, its
answers are bound to the charge and all secrets are deleted, in the file as well.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from discreet._checks import silence
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.mechanisms.voting import Counts
from discreet.online import stream_file
from discreet.release import Budget, Carried, answers_digest, bind, resume
from discreet.transfer.aggregation import VoteRun
from discreet.transfer.teachers import Codes

if TYPE_CHECKING:
    from discreet.privacy.ledger.ledger import Ledger
    from discreet.privacy.statement import PrivacyStatement

Asked = TypeVar("Asked")
Answers = TypeVar("Answers")


class BudgetSpent(RuntimeError):
    """The stream has halted: everything it was planned for has been answered."""


class HeldStream:
    """What all streams of private answers share; a subclass starts one and asks it."""

    plan_: Any
    privacy_: PrivacyStatement
    _noun: ClassVar[str]  # what an error calls the object
    _missing: ClassVar[str]  # what it lacks before it has begun
    _held: ClassVar[str]  # what it holds
    _plan_type: ClassVar[type]
    _SECRET: ClassVar[tuple[str, ...]]  # attributes that are deleted when the stream has halted

    def __post_init__(self) -> None:
        """Prepare an object without a stream; the constructor of its parameters calls this last."""
        self._lock = threading.Lock()
        self._file: tuple[Path, int] | None = None
        self._account: Budget = None
        self._answers: str | None = None

    def _begin(self, stream: VoteRun, begun: Carried[Entropy]) -> None:
        """Hold a stream that was charged."""
        self._stream = stream
        self._account, self._answers = begun.account, answers_digest([])
        self._process = os.getpid()

    @property
    def halted(self) -> bool:
        """Whether the whole budget is spent."""
        return self._running().halted

    @property
    def remaining(self) -> dict[str, int]:
        """What remains of the stream."""
        return self._running().left()

    def _spent(self) -> str:
        """Say that nothing is left."""
        raise NotImplementedError

    def _check_asking(self) -> None:
        if self._running().halted:
            raise BudgetSpent(self._spent())

    def _spend(self, prepare: Callable[[], Asked], answer: Callable[[VoteRun, Asked], Answers]) -> Answers:
        """Answer, record what was spent, and delete everything private once nothing is left to spend."""
        with self._lock, silence():
            self._check_asking()  # another thread may have asked the last question
            stream, asked = self._stream, prepare()

            def give() -> tuple[Answers, dict[str, Any]]:
                answers: Any = answer(stream, asked)
                if self._answers is not None:
                    self._answers = answers_digest(answers, self._answers)
                return answers, self._secret_state()

            if self._file is None:
                answers, _ = give()
                self._forget_if_halted()
            else:
                answers = stream_file.spend(
                    *self._file, give, self._forget_if_halted, held=self._secret_state()
                )
            if self._stream.halted:
                self._bind()
        return answers

    def close(self) -> None:
        """End the stream: allow no further answer, delete all secrets, and bind its answers to the charge.

        A stream that halts does so by itself. Without a ledger the receipt stays unbound.
        """
        self._running()
        with self._lock, silence():
            if not self._stream.halted:
                held, self._stream = self._secret_state(), _ClosedRun(self._noun)
                if self._file is None:
                    self._forget_if_halted()
                else:
                    stream_file.spend(
                        *self._file, lambda: (None, self._secret_state()), self._forget_if_halted, held=held
                    )
            self._bind()

    def _bind(self) -> None:
        """Bind all answers to the charge, once, and keep the updated receipt."""
        receipt = bind(self._account, self.privacy_.paid, self._answers)
        if receipt != self.privacy_.paid:
            self.privacy_ = self.privacy_.paid_by(receipt)
            if self._file is not None:
                stream_file.spend(*self._file, lambda: (None, self._secret_state()), self._kept)

    def _secret_state(self) -> dict[str, Any]:
        """Return the state of the stream and the digest of its answers, if all are known."""
        known = {} if self._answers is None else {"digest": self._answers}
        return self._stream.secret_state() | known

    def _forget_if_halted(self) -> dict[str, Any] | None:
        """At the end of the stream, delete all secrets and return what is kept; None before."""
        if not self._stream.halted:
            return None
        for name in self._SECRET:
            self.__dict__.pop(name, None)
        # The state of a halted stream contains nothing secret.
        self._stream = self._resumed(self._stream.secret_state(), resume())
        return self._kept()

    def _resumed(self, state: dict[str, int], entropy: Entropy) -> VoteRun:
        if "closed" in state:
            return _ClosedRun(self._noun)
        continued: VoteRun = self.plan_.resume(state, entropy)
        return continued

    def _kept(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in _UNSAVED}

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            f"a {self._noun} is not copied or pickled: it holds {self._held}, and a copy would spend the same budget "
            "again; keep the stream with save(path)"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the stream to a new file; from now on every answer is on disk before it is given.

        The file holds all secrets of the stream: it is as private as the data until the stream has halted. A stream
        has only one file.
        """
        self._running()
        with self._lock:
            if self._file is not None:
                raise stream_file.StreamError(
                    f"this stream is kept in {self._file[0]} already, up to date with every answer; a second file "
                    "would spend the same budget again"
                )
            generation = stream_file.create(path, self._kept(), self._secret_state())
            self._file = (Path(path).resolve(), generation)

    @classmethod
    def resume(
        cls, path: str | os.PathLike[str], *, ledger: Ledger | str | os.PathLike[str] | None = None
    ) -> Self:
        """Continue a saved stream exactly where it stopped; any earlier holder is refused from now on.

        Nothing is charged. Pass the ``ledger`` that was charged to bind the answers to the charge at the end. Only
        open files that you trust: they hold pickled objects.
        """

        def check(content: Any, _: dict[str, Any]) -> None:
            if not (isinstance(content, dict) and isinstance(content.get("plan_"), cls._plan_type)):
                raise stream_file.StreamError(f"{path} does not hold a {cls.__name__}")

        kept, state, generation = stream_file.take_over(path, check)
        holder = cls.__new__(cls)
        holder.__post_init__()
        holder.__dict__.update(kept)
        vars(holder)["ledger"] = None  # already charged
        holder._account, holder._answers = ledger, state.pop("digest", None)
        holder._file = (Path(path).resolve(), generation)
        holder._process = os.getpid()
        entropy = resume()
        holder._stream = holder._resumed(state, entropy)
        if not entropy.secure:
            holder.privacy_ = dataclasses.replace(holder.privacy_, secure=False)
        return holder

    def _running(self) -> VoteRun:
        if not hasattr(self, "_stream"):
            raise RuntimeError(f"this {self._noun} {self._missing}")
        stream_file.refuse_forked(self._process)
        return self._stream


class _ClosedRun:
    """A stream that its holder has closed."""

    halted = True

    def __init__(self, noun: str) -> None:
        self._noun = noun

    def answer(self, counts: Counts) -> Codes:
        raise BudgetSpent(f"the {self._noun} was closed")

    def left(self) -> dict[str, int]:
        return {}

    def secret_state(self) -> dict[str, int]:
        return {"closed": 1}


_UNSAVED = ("_lock", "_stream", "_file", "_process", "_account", "_answers", "ledger")
