"""Base class of private learners on a stream: one charge per epoch, a public horizon, files to resume from."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, fields, replace
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self

from discreet import _checks
from discreet._checks import ParameterError, Setting, silence
from discreet._typing import Array
from discreet.estimators.groups import read_people
from discreet.estimators.parameters import REQUIRED, Charged, estimator, parameter, relation
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.mechanisms.tree import TreeMechanism, TreeRun
from discreet.online import stream_file
from discreet.online.stream_file import StreamError
from discreet.privacy.events import Event
from discreet.privacy.guarantee import Guarantee, Neighboring, guarantee_of
from discreet.privacy.page import ShowsPlan
from discreet.privacy.statement import (
    OTHER_RELEASES,
    UNPREDICTABLE,
    PrivacyStatement,
    Receipt,
    plan_text,
)
from discreet.records.open import check_people
from discreet.release import Budget, Carried, answers_digest, begin, bind, resume

__all__ = ["HorizonReached", "PrivateStream", "StreamError", "StreamPlan"]


_RESERVED = 64  # steps marked as spent at once, so that not every step waits for the disk


class HorizonReached(RuntimeError):
    """All steps that were planned and charged have been used."""


class StreamPlan(ShowsPlan):
    """A calibrated epoch, frozen before any data is seen.

    ``bound_of(t)`` bounds the expected regret of the first t steps.
    """

    guarantee: Guarantee
    horizon: int
    theorem: str

    @property
    def mechanism(self) -> str:
        """How noise is added, in words."""
        raise NotImplementedError

    @property
    def event(self) -> Event:
        """What is charged: all steps of an epoch."""
        raise NotImplementedError

    @property
    def noise(self) -> Mapping[str, float | str]:
        """The public numbers of the stream."""
        raise NotImplementedError

    def bound_of(self, step: int) -> float:
        """Return the bound after so many steps."""
        raise NotImplementedError

    @property
    def regret(self) -> float:
        """Bound on the expected regret of the whole epoch."""
        return self.bound_of(self.horizon)

    def __str__(self) -> str:
        sizes, bounds = {"steps": str(self.horizon)}, {"expected regret at most": f"{self.regret:.6g}"}
        return plan_text(self, sizes, bounds)


def public_horizon(steps: str) -> Any:
    """Declare ``horizon``: the public number of ``steps``."""
    about = f"Number of {steps}, public: the budget is charged once for all of them."
    return parameter(REQUIRED, "int", about, positional=True)


@estimator
class StreamParameters(Charged):
    """Parameters of all learners on a stream."""

    _: KW_ONLY
    neighboring: str = relation(
        "What one step brings is replaced by anything else, or blanked out.", "replace-one", "zero-out"
    )
    at_horizon: str = parameter(
        "refuse",
        '{"refuse", "restart"}',
        "After the last step raise `HorizonReached`, or start a new epoch: forget everything and charge again.",
    )
    max_rows_per_group: int | None = parameter(
        None,
        "int",
        "Protect all steps of a person together: at most this many of them count, later ones are null records, and "
        "every step names its person with ``group=``. None protects single steps.",
    )


class PrivateStream(StreamParameters):
    """A learner of at most ``horizon`` steps per epoch.

    A subclass defines ``plan``, ``_fresh`` (the state of a new epoch), ``_secret_state`` and ``_restored``. Every step
    runs inside ``_alone`` and calls ``_advance`` once at its start.

    Privacy
    -------
    Charged once per epoch, before its first step. The object and its file hold private sums: publish answers, never the
    object. After the last answer of an epoch, or with ``close``, its answers are bound to the charge: the ledger stores
    their digest (`answers_digest`). A file records who may continue it and how many steps were spent. Noise is never
    stored for later: a resumed stream draws new noise. A forked process is refused. No file can prevent that a copy of
    it is continued next to the original; each copy costs the whole budget again. ``resume(path, at_least=step)``
    refuses a file that is older than what the caller knows to have been spent.
    """

    _kind: ClassVar[str]
    horizon: int
    epsilon: float
    delta: float | None
    privacy_: PrivacyStatement

    def __post_init__(self) -> None:
        """Initialize the stream; the constructor of its parameters calls this last."""
        self._lock = threading.RLock()
        self._plan: StreamPlan | None = None
        self._paid: dict[str, Any] = {}
        self._entropy: Entropy | None = None
        self._receipt: Receipt | None = None
        self._account: Budget = None
        self._answers: str | None = None
        self._closed = False
        self._file: tuple[Path, int] | None = None
        self._reserved = 0
        self._seen: dict[str, int] = {}
        self._process = os.getpid()
        self.step = 0
        self.epoch = 0

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse changes of bounds and budget once a stream is charged, because its noise depends on them."""
        running = getattr(self, "_plan", None) is not None
        if running and name in self._parameters() and name not in ("at_horizon", "ledger"):
            raise AttributeError(
                f"{name} was fixed when the stream was charged, and its noise was made for it; make a new learner"
            )
        super().__setattr__(name, value)

    # -- what a learner must say ---------------------------------------------------------------------------

    def plan(self) -> StreamPlan:
        """Return what an epoch would run and cost; no data is needed."""
        raise NotImplementedError

    def _fresh(self, plan: Any) -> None:
        """Start an epoch without data."""
        raise NotImplementedError

    def _secret_state(self) -> dict[str, Any]:
        """Return the state that ``_restored`` needs."""
        raise NotImplementedError

    def _restored(self, plan: Any, state: dict[str, Any], lost: bool) -> None:
        """Continue from a state; ``lost`` says whether answers may have been given after it was saved."""
        raise NotImplementedError

    # -- the guarantee -------------------------------------------------------------------------------------

    def _guarantee(self) -> Guarantee:
        """Return the guarantee of one epoch, for one step or for all steps of a person."""
        _checks.count("horizon", self.horizon)
        _checks.choice("at_horizon", self.at_horizon, ("refuse", "restart"))
        promise, _ = guarantee_of(self.epsilon, self.delta, self.neighboring, None, self.horizon)
        if promise.neighboring is Neighboring.ADD_REMOVE_ONE:
            raise ParameterError(
                "neighboring",
                "must not be add-remove-one on a stream, where an absent record would move all later ones",
                Setting("neighboring", "replace-one", "zero-out"),
            )
        return promise if self.max_rows_per_group is None else replace(promise, unit="user")

    @property
    def _rows(self) -> int:
        """Return the maximum number of steps of the protected unit."""
        return _checks.count_or_none("max_rows_per_group", self.max_rows_per_group) or 1

    def _check_group(self, row: Any, group: Any) -> str | None:
        """Return the person's id as text, empty if missing; raise if it does not go with ``max_rows_per_group``."""
        check_people(row, group)
        if (group is None) != (self.max_rows_per_group is None):
            raise ValueError(
                "max_rows_per_group protects all steps of a person: pass the person's id as group=... at every step, "
                "or leave both out to protect single steps"
            )
        if group is None:
            return None
        return people_of([group], 1)[0]

    def _counts(self, group: str | None) -> bool:
        """Whether a step of this person counts; without an id, or beyond the limit, it is a null record."""
        if not group:
            return group is None
        taken = self._seen.get(group, 0)
        self._seen[group] = taken + 1
        return taken < self._rows

    def _begun(self) -> Any:
        """Return the running plan; the first call charges and starts the first epoch."""
        stream_file.refuse_forked(self._process)
        if self._plan is None:
            self._begin()
        return self._plan

    def _begin(self) -> None:
        plan = self.plan()
        begun = begin(plan, self.ledger, f"{type(self).__name__}, epoch {self.epoch + 1}")
        self._entropy, self._receipt, self._account = begun.release, begun.receipt, begun.account
        self._answers, self._closed = answers_digest([]), False
        self._plan, self._paid, self.step, self._reserved = plan, _price(plan), 0, 0
        self.epoch += 1
        self._seen = {}
        self._fresh(plan)
        self.privacy_ = self._stated(plan, begun)

    def _stated(self, plan: StreamPlan, begun: Carried[Any]) -> PrivacyStatement:
        return begun.state(
            bounds={"steps of an epoch": float(plan.horizon)},
            assumptions=(
                "all steps of one person carry the same id in group (given by the user)"
                if plan.guarantee.unit == "user"
                else "each person is one step of the stream (given by the user): somebody with k steps is protected "
                "only at k times epsilon",
                f"the horizon, {plan.horizon} steps, is public, and so is when steps happen",
                UNPREDICTABLE,
            ),
            not_covered=(
                "the object and its files, which hold private sums: only answers are covered",
                "copies of a file that are continued beside each other: each costs the budget once more",
                "how long a step took",
                OTHER_RELEASES,
            ),
        )

    # -- steps ---------------------------------------------------------------------------------------------

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Run one step at a time, in silence."""
        with self._lock, silence():
            yield

    def close(self) -> None:
        """End the epoch: allow no further step, and bind its answers to the charge. Also closes its file.

        Without a ledger, or if a crash lost answers, the receipt stays unbound.
        """
        with self._alone():
            plan = self._begun()
            if self._file is not None and not self._closed:
                stream_file.spend(*self._file, lambda: (None, {"reserved": plan.horizon + 1}))
            self._closed = True
            self._bind()

    def _answered(self, answer: Any, *, last: bool) -> None:
        """Add an answer to the digest; the last one of an epoch binds all of them to the charge."""
        if self._answers is not None:
            self._answers = answers_digest([answer], self._answers)
        if last:
            self._bind()

    def _bind(self) -> None:
        """Bind the answers of this epoch to its charge, once, if all of them are known."""
        self._receipt = bind(self._account, self._receipt, self._answers)
        self.privacy_ = self.privacy_.paid_by(self._receipt)

    def _check_open(self) -> None:
        if self._closed:
            raise HorizonReached(
                "this stream was closed and takes no more steps; make a new learner, which is charged again"
            )

    def _advance(self) -> Any:
        """Count one step before using anything of it; at the horizon, start a new epoch or refuse."""
        plan = self._begun()
        self._check_open()
        if self.step >= plan.horizon:
            if self.at_horizon == "refuse":
                raise HorizonReached(
                    f"all {plan.horizon} steps of this stream have been used; make a new learner, or pass "
                    "at_horizon='restart' to begin a new epoch, which forgets the old one and is charged again"
                )
            if self._file is not None:
                raise HorizonReached(
                    "a new epoch needs a file of its own: make a new learner, and save it to a new path"
                )
            self._bind()
            self._begin()
            plan = self._plan
        self._reserve(self.step + 1)
        self.step += 1
        return plan

    def _reserve(self, upto: int) -> None:
        """Record on disk, if there is a file, that all steps before ``upto`` may have been spent."""
        if self._file is not None and upto > self._reserved:
            path, generation = self._file
            reserved = min(upto + _RESERVED - 1, self._begun().horizon + 1)
            stream_file.spend(path, generation, lambda: (None, {"reserved": reserved}))
            self._reserved = reserved

    def _source(self) -> Entropy:
        assert self._entropy is not None
        return self._entropy

    # -- files ---------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the stream to a new file, from which ``resume`` continues; an older file of it is closed.

        From now on, steps are marked as spent on disk, 64 at a time, before they are taken: after a crash at most 64
        steps of the horizon are lost and none is spent twice. A resumed stream forgets records learned after the last
        ``save``: save again before you close it. The file is as private as the data.
        """
        with self._lock:
            plan = self._begun()
            self._check_open()
            parameters = {name: value for name, value in vars(self).items() if name in self._parameters()}
            content = {
                "kind": self._kind,
                "parameters": {**parameters, "ledger": None},  # already charged
                "paid": self._paid,
                "step": self.step,
                "epoch": self.epoch,
                "secure": self.privacy_.secure,
                "answers": self._answers,
                "receipt": None if self._receipt is None else self._receipt.to_dict(),
                "state": self._secret_state(),
                "people": self._seen,
            }
            # The new file is written closed, then the older one is closed, then the new one is opened. Wherever this
            # stops, at most one file can be continued.
            closed = {"reserved": plan.horizon + 1}
            generation = stream_file.create(path, content, closed)
            if self._file is not None:
                try:
                    stream_file.spend(*self._file, lambda: (None, closed))
                except StreamError:  # somebody else holds the stream: leave nothing behind
                    Path(path).unlink()
                    raise
            self._file, self._reserved = (Path(path).resolve(), generation), self.step
            stream_file.spend(*self._file, lambda: (None, {"reserved": self.step}))

    @classmethod
    def resume(cls, path: str | os.PathLike[str], *, at_least: int = 0, ledger: Budget = None) -> Self:
        """Continue a saved stream without a charge; any earlier holder is refused from now on.

        Parameters
        ----------
        path : file written by ``save``. Only open files that you trust: they hold pickled values.
        at_least : number of steps known to have been taken; a file with fewer is a stale copy and is refused.
        ledger : the ledger that was charged when the stream began, to bind its answers to the charge at the end.
        """
        _checks.count("at_least", at_least, at_least=0)
        found: list[Self] = []

        def check(content: Any, spent: dict[str, int]) -> None:
            if not isinstance(content, dict) or content.get("kind") != cls._kind:
                raise StreamError(f"{path} does not hold a {cls.__name__}")
            if spent["reserved"] < at_least:
                raise StreamError(
                    f"{path} is a stale copy: it knows of {spent['reserved']} steps, and {at_least} have been taken; "
                    "continuing it would spend the budget a second time"
                )
            learner = cls(**content["parameters"])
            if learner.max_rows_per_group is not None and spent["reserved"] > content["step"]:
                raise StreamError(
                    f"{path} was not saved before it was closed, so it does not record to which people the last steps "
                    "belong, and cannot protect them. Start a new stream"
                )
            learner._plan = learner.plan()
            learner._paid = _price(learner._plan)
            if content.get("paid") != learner._paid:
                raise StreamError(
                    f"{path} was charged for other noise than this version of the library would draw, or does not say "
                    "what was charged; continue it with the version that saved it, or begin a new stream"
                )
            found.append(learner)

        content, spent, generation = stream_file.take_over(path, check)
        (learner,) = found
        learner._account = ledger
        learner._continue(content, spent["reserved"], (Path(path).resolve(), generation))
        return learner

    def _continue(self, content: dict[str, Any], reserved: int, file: tuple[Path, int]) -> None:
        """Continue from the content of a file, after the steps that may have been spent."""
        plan = self._begun()
        self._entropy = resume()
        receipt = content.get("receipt")  # files of 0.1.0 have none
        self._receipt = None if receipt is None else Receipt.from_dict(receipt)
        self._file, self.epoch = file, content["epoch"]
        self.step = self._reserved = reserved
        self._seen = dict(content.get("people", {}))
        self._answers = content.get("answers") if reserved <= content["step"] else None  # some may be lost
        self._restored(plan, content["state"], lost=reserved > content["step"])
        secure = content["secure"] and self._entropy.secure
        promise = PrivacyStatement.of(plan)
        self.privacy_ = self._stated(plan, Carried(self._entropy, self._receipt, secure, promise))

    @classmethod
    def _parameters(cls) -> tuple[str, ...]:
        return tuple(field.name for field in fields(cls))

    def _refuse(self, *_: Any) -> NoReturn:
        raise TypeError(
            "a private stream cannot be pickled or copied, because both copies would spend the same budget; use "
            "save(path) and resume(path)"
        )

    __reduce_ex__ = _refuse
    __copy__ = _refuse
    __deepcopy__ = _refuse


def _price(plan: StreamPlan) -> dict[str, Any]:
    """Return the charged event and its noise; a file stores them, so that nobody continues with other noise."""
    return {"event": plan.event.to_dict(), "noise": dict(plan.noise)}


def people_of(groups: Any, n_rows: int) -> list[str | None]:
    """Return the person of each row, empty for none; all None without groups."""
    if groups is None:
        return [None] * n_rows
    people = read_people(groups, n_rows, strict=False)
    return [people.names[code] if code >= 0 else "" for code in people.codes]


def resumed_tree(tree: TreeMechanism, state: dict[str, Any], lost: bool) -> tuple[TreeRun, Array]:
    """Return the tree of a saved stream, and the noisy sum of the records that are no longer in it.

    If answers are ``lost``, blocks with old records may have been released after the stream was saved. These records
    must not be released again: their noisy sum is kept, and a new tree starts.
    """
    kept, before = TreeRun(tree, **state["tree"]), state["before"]
    return (tree.start(), before + kept.prefix()) if lost else (kept, before)
