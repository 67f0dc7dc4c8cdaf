"""The single entry point for private data: check, charge, draw, run, state.

Every release goes through `carry_out`, the only function of this library that touches private data. To follow the
whole privacy argument, read this file, one solver and one estimator.

1. An estimator collects public facts (sizes, bounds, the guarantee) and a solver turns them into a plan. No plan
   sees data.
2. *Check.* Refuse what cannot run, and put the plan's promise into words, free of charge. Errors raised before the
   charge are for the data holder only.
3. *Charge.* The ledger takes the plan's price or refuses. After this, only the release depends on the data: no
   error, no warning, no early stop.
4. *Draw.* Create a new noise source. It is used for this run only.
5. *Run.* ``plan.run`` combines data and noise, and the plan's theorem covers it. No other code does.
6. *State.* Publish the result with the promise, what it assumes, and the charge that paid for it. The ledger stores a
   digest of the result with that charge.

A stream releases many answers over its lifetime. It charges and draws with `begin`, runs each step in `silence`, and
binds its answers to the charge when it ends.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar, cast

import numpy as np

from discreet._checks import ParameterError, Setting, calm, silence
from discreet.mechanisms.recording import charged, releasing, running
from discreet.mechanisms.samplers.entropy import Entropy, fresh_entropy, noise_is_secret
from discreet.privacy import statement
from discreet.privacy.guarantee import Guarantee, Neighboring, NoLedgerWarning
from discreet.privacy.statement import PrivacyStatement, Receipt, Stated
from discreet.records.base import Records
from discreet.sets.balls import BallIntersection
from discreet.solvers.base import Solver, resolve

if TYPE_CHECKING:
    from discreet.privacy.ledger.ledger import Ledger

Data = TypeVar("Data")
Contra = TypeVar("Contra", contravariant=True)
Released = TypeVar("Released")
Co = TypeVar("Co", covariant=True)
Budget: TypeAlias = "Ledger | str | os.PathLike[str] | None"
Published = Callable[[Released], Mapping[str, Any]]


class Runnable(Stated, Protocol[Contra, Co]):
    """A plan: priced before it sees any data, then run once on data and noise."""

    def run(self, data: Contra, entropy: Entropy, /) -> Co:
        """Combine data and noise. Only the result may be inspected."""
        ...


@dataclass(frozen=True)
class Carried(Generic[Released]):
    """The result of running a plan.

    Attributes
    ----------
    release : the output of ``plan.run``; nothing else may be inspected.
    published : the published numbers of the release by name; empty unless `carry_out` was given ``published``.
    receipt : the charge that paid for the release; None without a ledger.
    secure : whether the noise was secret.
    promise : what the plan promises, and why.
    account : the open ledger that was charged; None without one.
    """

    release: Released
    receipt: Receipt | None
    secure: bool
    promise: PrivacyStatement
    published: Mapping[str, Any] = field(default_factory=dict)
    account: Ledger | None = field(default=None, repr=False, compare=False)

    def binding(self, numbers: Mapping[str, Any]) -> Carried[Released]:
        """Bind the charge to the published numbers when they differ from the release, as in a report."""
        if self.receipt is None:
            return replace(self, published=numbers)
        receipt = bind(self.account, self.receipt, numbers)
        return replace(self, receipt=receipt, published=numbers)

    def state(
        self,
        *,
        assumptions: tuple[str, ...],
        not_covered: tuple[str, ...],
        bounds: Mapping[str, float | str] | None = None,
    ) -> PrivacyStatement:
        """Return the privacy statement for the release, including the charge that paid for it."""
        return replace(
            self.promise,
            bounds=bounds or {},
            assumptions=assumptions,
            not_covered=not_covered,
            secure=self.secure,
            paid=self.receipt,
        )


def carry_out(
    plan: Runnable[Data, Released],
    data: Data | Callable[[Entropy], Data],
    ledger: Budget,
    label: str,
    *,
    progress: Callable[[int, float], None] | None = None,
    published: Published[Released] | None = None,
) -> Carried[Released]:
    """Charge for a plan and run it on private data.

    Parameters
    ----------
    plan : the run and its price, made from public facts only.
    data : the input of ``plan.run``, or a function of the noise source that prepares it after the charge. Use a
        function when preparation needs secret randomness (chunks of records, a split).
    ledger : the budget to charge, or its path; None charges nothing.
    label : name of the release in the ledger.
    progress : callback for steps, for plans that accept one; it must not read the data.
    published : maps the release to its published numbers, by name, so that the ledger can store their digest.

    Privacy
    -------
    The result has the plan's guarantee, provided that the plan's proof and the statement's assumptions hold.
    """
    with calm():
        check(plan, data)
        account = opened(ledger)
        promise = PrivacyStatement.of(plan)
    price = promise.guarantee
    cost = f"({price.epsilon:g}, {price.delta:.3g}), {price.neighboring.value}, unit: {price.unit}"
    with releasing(label) as report, calm():
        rows = data if isinstance(data, list) and price.neighboring.size_is_public else []
        if any(isinstance(part, Records) and part.compiles_first for part in rows):
            report("compile", COMPILING)  # the number of rows decides it: not told where that is private
        charged(plan)  # audits compare what is run with what is paid for
        report("charge", cost)
        receipt = charge(account, promise, label)
        entropy = fresh_entropy()
        if entropy.secure and account is None and running.get() == label:
            warn_uncharged(promise.guarantee)
        report("run", promise.mechanism)
        release = run(plan, data, entropy, progress)
        carried = Carried(release, receipt, entropy.secure, promise, account=account)
        carried = carried if published is None else carried.binding(published(release))
        report("done", "")
        return carried


def begin(plan: Stated, ledger: Budget, label: str) -> Carried[Entropy]:
    """Charge for a stream and draw its noise source. The stream's steps run in `silence`."""
    with calm():
        promise = PrivacyStatement.of(plan)
        account = opened(ledger)
        charged(plan)
        receipt = charge(account, promise, label)
    entropy = fresh_entropy()
    return Carried(entropy, receipt, entropy.secure, promise, account=account)


def resume() -> Entropy:
    """Draw a new noise source for a stream that has already been charged."""
    return fresh_entropy()


# -- the steps -----------------------------------------------------------------------------------------------------


def check(plan: Stated, data: Any) -> None:
    """Raise, before any charge, if the plan cannot run on these data."""
    if isinstance(data, list) and any(isinstance(part, Records) and not part.whole for part in data):
        check_parts(plan)


def check_parts(plan: Stated) -> None:
    """Raise if the plan needs individual rows, for data stored in parts."""
    if not getattr(plan, "sums_only", False):
        raise ParameterError(
            "X",
            f"must be in memory for {plan.mechanism}, which reads single rows; it is a file or a Dask collection",
            Setting("solver", "objective", "noisy-gd", "newton", "discriminant", "refocused-sums", "output"),
            "load the rows",
        )


COMPILING = (
    "the first fit to a large table compiles code, once, which takes some ten seconds; `discreet warmup` compiles it "
    "ahead of time"
)
_uncharged: list[Guarantee] = []  # what this process has released without a ledger


def warn_uncharged(promise: Guarantee) -> None:
    """Warn that nothing keeps count, at the first release without a ledger, the second, the fourth and so on.

    Cross-validation, searches over grids, bagging and calibration fit several times to the same people. What is said
    depends on the calls and their public promises, never on the data. A release inside another one is not counted.
    """
    _uncharged.append(promise)
    times = len(_uncharged)
    if times & (times - 1):
        return
    advice = "pass ledger=Ledger(path, epsilon=..., delta=...), which refuses what would pass its cap"
    if times == 1:
        text = f"no ledger was given, so nothing keeps count of what is released about these people; {advice}"
    else:
        alike = len({(one.neighboring, one.unit) for one in _uncharged}) == 1
        total = sum(one.epsilon for one in _uncharged), sum(one.delta for one in _uncharged)
        sums = f": up to epsilon {total[0]:.4g}, delta {total[1]:.3g}" if alike else ""
        text = (
            f"{times} releases of this process have no ledger. If they concern the same people (folds, candidates and "
            f"repetitions do), their prices add up{sums}; {advice}"
        )
    warnings.warn(text, NoLedgerWarning, stacklevel=5)


def opened(ledger: Budget) -> Ledger | None:
    """Open the ledger at a path, unless it is open already."""
    from discreet.privacy.ledger.ledger import Ledger

    return ledger if ledger is None or isinstance(ledger, Ledger) else Ledger(ledger)


def charge(ledger: Budget, plan: Stated, label: str) -> Receipt | None:
    """Charge the plan's price and return the receipt; None without a ledger.

    With insecure noise the label of the charge says so: the run is charged, but it is not private.
    """
    account = opened(ledger)
    if account is None:
        return None
    promise = plan.guarantee
    try:
        made = account.charge(
            plan.event,
            label=label if noise_is_secret() else f"{label}, insecure noise",
            neighboring=promise.neighboring,
            unit=promise.unit,
            kind=promise.kind,
        )
    except RuntimeError as refusal:  # of the ledger, which compares prices at its own delta
        from discreet.privacy.ledger.ledger import BudgetExceeded

        if not isinstance(refusal, BudgetExceeded) or promise.delta == account.delta:
            raise
        asked = f"epsilon {promise.epsilon:.4g} at delta {promise.delta:.3g} was requested"
        raise BudgetExceeded(f"{asked}, but {refusal}") from None
    return account.receipt(made)


def run(
    plan: Runnable[Data, Released],
    data: Data | Callable[[Entropy], Data],
    entropy: Entropy,
    progress: Callable[[int, float], None] | None = None,
) -> Released:
    """Run the plan on data and noise, with warnings and floating-point errors suppressed."""
    with silence():
        prepared = data(entropy) if callable(data) else data
        if progress is None:
            return plan.run(prepared, entropy)
        return cast(Any, plan).run(prepared, entropy, progress)  # type: ignore[no-any-return]


def bind(ledger: Budget, receipt: Receipt | None, release: Mapping[str, Any] | str | None) -> Receipt | None:
    """Store the digest of a release (or the digest given) with its charge and return the updated receipt.

    Without a ledger, or if it cannot be opened or written, return the receipt unchanged. The release was paid for, so
    it must not be lost.
    """
    if ledger is None or receipt is None or receipt.released is not None or release is None:
        return receipt
    digest = release if isinstance(release, str) else release_digest(release)
    try:
        with calm():
            account = opened(ledger)
            return receipt if account is None else account.bind(receipt, digest)
    except Exception:
        return receipt


def release_digest(values: Mapping[str, Any]) -> str:
    """Return the SHA-256 of released values in canonical form, the same at the fit and in a file.

    Names are sorted. Numbers of any type are hashed with their shape as 64-bit little-endian floats or integers; texts
    as UTF-8 in JSON; None as itself, also among texts.

    >>> import numpy as np
    >>> release_digest({"a": [1.0, 2.0], "b": "x"}) == release_digest({"b": "x", "a": np.array([1, 2], "f4")})
    True
    >>> release_digest({"a": [1.0, 2.0]}) == release_digest({"a": [[1.0, 2.0]]})
    False
    """
    found = hashlib.sha256(b"discreet release 1\n")
    for name in sorted(values):
        kind, shape, content = _canonical(values[name])
        found.update(json.dumps([name, kind, shape]).encode() + b"\n" + content + b"\n")
    return found.hexdigest()


def answers_digest(answers: Iterable[Any], before: str | None = None) -> str:
    """Return the SHA-256 of the answers of a stream, computed one after the other, so that they need not be kept.

    ``before`` is the digest of earlier answers; None if there were none.

    >>> answers_digest(["a", None, "b"]) == answers_digest(["b"], before=answers_digest(["a", None]))
    True
    """
    return functools.reduce(
        lambda known, answer: release_digest({"before": known, "answer": answer}),
        answers,
        release_digest({}) if before is None else before,
    )


def _canonical(value: Any) -> tuple[str, list[int], bytes]:
    """Return kind, shape and bytes of a value; kind and shape fix the length, or there is no line break."""
    if value is None:
        return "none", [], b""
    array = np.asarray(value)
    kind = {"f": "<f8", "b": "<i8", "i": "<i8", "u": "<u8" if array.dtype.itemsize == 8 else "<i8"}.get(
        array.dtype.kind
    )
    if kind is not None:
        return kind, list(array.shape), np.ascontiguousarray(array, dtype=kind).tobytes()
    texts = [None if cell is None else str(cell) for cell in array.ravel().tolist()]
    return "text", list(array.shape), json.dumps(texts).encode()


# -- facts shared by all statements ------------------------------------------------------------------------------


def size_facts(relation: Neighboring, size: int, per_group: int | None, delta: Any) -> tuple[str, ...]:
    """Describe what the guarantee assumes about the number of rows.

    Parameters
    ----------
    relation, size : the neighboring relation and the public number of rows; with groups, the number of groups times
        ``per_group``.
    per_group : the maximum number of rows per group; None without groups.
    delta : the parameter as the user gave it.
    """
    if not relation.size_is_public:
        rows = f"{size} is a public upper bound on the number of rows (given by the user)"
    elif per_group is None:
        rows = f"the number of rows, {size}, is public"
    else:
        rows = f"the number of groups, {size // per_group}, is public; that of rows is not"
    return (rows,) if delta is not None else (rows, "delta was set to 1 / n_samples**2 by default")


def foreign_parts(solver: str | Solver | None, inside: object = None, loss: object = None) -> tuple[str, ...]:
    """Name a solver, its optimizer, a set and a loss that are not from discreet: nothing here proves what they declare.

    Parameters
    ----------
    solver : as an estimator was given it; None for its own.
    inside : the set of the coefficients, if there is one.
    loss : the loss, if the user chose it.
    """
    facts = []
    if loss is not None and _foreign(loss):
        facts.append(
            f"loss not from discreet ({_named(loss)}): its bounds and the theorems that it claims are assumed to "
            "hold (given by the user)"
        )
    found = None if solver is None else resolve(solver)
    if found is not None and _foreign(found):
        facts.append(
            f"solver not from discreet ({_named(found)}): its event and its noise are assumed to be right (given by "
            "the user)"
        )
    if callable(optimizer := getattr(found, "optimizer", None)):
        facts.append(
            f"optimizer not from discreet ({_named(optimizer)}): what it finds is checked; that it ends on all data, "
            "shows nothing and keeps nothing is assumed (given by the user)"
        )
    while isinstance(inside, BallIntersection) and not _foreign(inside):
        inside = inside.base
    if inside is not None and _foreign(inside):
        facts.append(
            f"set not from discreet ({_named(inside)}): its radius, diameter, vertices and projections are assumed to "
            "be right (given by the user)"
        )
    return tuple(facts)


def _foreign(thing: object) -> bool:
    return type(thing).__module__.partition(".")[0] != "discreet"


def _named(thing: object) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def unit_assumption(guarantee: Guarantee) -> str:
    """Describe what must hold for the guarantee to protect people rather than rows."""
    if guarantee.unit == "user":
        return "all rows of one person carry the same id in groups (given by the user)"
    return "each person is one row (given by the user): somebody with k rows is protected only at k times epsilon"


def check_unit(model: Any, groups: Any) -> None:
    """Raise if ``groups`` is missing for a model that protects people, because a person may have several rows."""
    statement = getattr(model, "privacy_", None)
    if groups is None and isinstance(statement, PrivacyStatement) and statement.guarantee.unit == "user":
        raise ParameterError(
            "groups",
            "must be given, with max_rows_per_group: the model protects all rows of a person together, so must this",
            Setting("groups", purpose="one id per row; if each person has one row here, ids that all differ"),
        )


NOT_CHECKED = (
    "not checked: columns were scaled and chosen without looking at the private rows (given by the user)"
)
BY_SCHEMA = (
    "columns were scaled and chosen by a schema, made without looking at the private data (given by the user)"
)
PLATFORM_ASSUMPTIONS = (
    statement.PUBLIC_TYPES,
    statement.UNPREDICTABLE,
    "arithmetic follows IEEE 754 double precision, with exp and log accurate to a few units in the last place",
)
NOT_COVERED = (
    statement.TIME_AND_MEMORY,
    "scores and predictions computed on private rows and published afterwards",
    statement.POPULATION,
    statement.OTHER_RELEASES,
)
