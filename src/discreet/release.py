"""The one way to private data: check, charge, draw, run, state.

`carry_out` is the only verb of this library that touches private data, and every release goes through it. A reader of
this file, one solver and one estimator has seen the whole privacy argument:

1. An estimator reads public facts (sizes, bounds, the promise) and a solver turns them into a plan. No plan sees data.
2. *Check.* What cannot run is refused now, free of charge. Errors before the charge speak to the holder of the data.
3. *Charge.* The ledger takes the plan's price or refuses. From here on nothing depends on the data but the release:
   no error, no warning, no early end.
4. *Draw.* A new source of noise is keyed. It lives for this run and is never seen again.
5. *Run.* The plan's theorem holds for ``plan.run``: data meets noise there and nowhere else.
6. *State.* What the run gave is published with the promise, the price and the charge that paid for it, and the ledger
   keeps a digest of it beside that charge.

A stream answers for as long as it lives. It charges and draws with `begin`, each of its steps runs in `silence`, and
its answers are bound to the charge when it ends.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar, cast

from discreet._checks import ParameterError, Setting, calm, silence
from discreet.mechanisms.recording import charged
from discreet.mechanisms.samplers.entropy import Entropy, fresh_entropy, noise_is_secret
from discreet.privacy import statement
from discreet.privacy.guarantee import Guarantee, Neighboring, NoLedgerWarning
from discreet.privacy.statement import PrivacyStatement, Receipt, Stated, release_digest
from discreet.records.base import Records
from discreet.reporting import releasing, running

if TYPE_CHECKING:
    from discreet.privacy.ledger.ledger import Ledger

Data = TypeVar("Data")
Contra = TypeVar("Contra", contravariant=True)
Released = TypeVar("Released")
Co = TypeVar("Co", covariant=True)
Budget: TypeAlias = "Ledger | str | os.PathLike[str] | None"
Published = Callable[[Released], Mapping[str, Any]]


class Runnable(Stated, Protocol[Contra, Co]):
    """A plan: priced before any data is seen, and run once on data and noise."""

    def run(self, data: Contra, entropy: Entropy, /) -> Co:
        """Let the data meet the noise; afterwards only the result may be looked at."""
        ...


@dataclass(frozen=True)
class Carried(Generic[Released]):
    """What came of a plan.

    Attributes
    ----------
    release : what the plan's run gave: all that may be looked at.
    published : the numbers of the release that its holder publishes, by name, if there was a function for them.
    receipt : the charge that paid for it; None without a ledger.
    secure : whether the noise was secret.
    account : the open ledger that was charged; None without one.
    """

    release: Released
    receipt: Receipt | None
    secure: bool
    published: Mapping[str, Any]
    account: Ledger | None = field(default=None, repr=False, compare=False)

    def binding(self, numbers: Mapping[str, Any]) -> Carried[Released]:
        """Bind the charge to what is published, where that is more than the release itself: a report made of it."""
        if self.receipt is None:
            return replace(self, published=numbers)
        receipt = bind(self.account, self.receipt, release_digest(numbers))
        return replace(self, receipt=receipt, published=numbers)

    def state(
        self,
        plan: Stated,
        *,
        assumptions: tuple[str, ...],
        not_covered: tuple[str, ...],
        bounds: Mapping[str, float | str] | None = None,
    ) -> PrivacyStatement:
        """State the promise that travels with the release, and the charge that paid for it."""
        made = PrivacyStatement.of(
            plan, assumptions=assumptions, not_covered=not_covered, secure=self.secure, bounds=bounds
        )
        return made if self.receipt is None else made.paid_by(self.receipt)


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
    plan : what to run and what it costs, made from public facts alone.
    data : what the plan runs on, or a function of the noise source that prepares it after the charge, where that takes
        secret randomness: chunks of records, a split.
    ledger : the budget to charge, or its path; None charges nobody.
    label : names the release in the ledger.
    progress : reports steps, for plans that take it; it must not look at the data.
    published : makes of the release the numbers that will be published, by name, for the ledger to recognize.

    Privacy
    -------
    What is returned has the guarantee of the plan, provided its proof and the assumptions of the statement hold.
    """
    with releasing(label) as tell, calm():
        check(plan, data)
        account = opened(ledger)
        if account is None and running.get() == label:
            warn_uncharged(plan.guarantee)
        tell("charge", price(plan.guarantee))
        receipt = charge(account, plan, label)
        tell("run", plan.mechanism)
        entropy = fresh_entropy()
        release = run(plan, data, entropy, progress)
        carried = Carried(release, receipt, entropy.secure, {}, account)
        carried = carried if published is None else carried.binding(published(release))
        tell("done", "")
        return carried


def begin(plan: Stated, ledger: Budget, label: str) -> Carried[Entropy]:
    """Charge for a stream and draw the source of its noise; the stream's steps run in `silence`."""
    with calm():
        account = opened(ledger)
        receipt = charge(account, plan, label)
    entropy = fresh_entropy()
    return Carried(entropy, receipt, entropy.secure, {}, account)


def resume() -> Entropy:
    """Draw new noise for a stream that was charged for when it began."""
    return fresh_entropy()


# -- the steps -----------------------------------------------------------------------------------------------------


def check(plan: Stated, data: Any) -> None:
    """Refuse, before anything is charged, a plan that cannot run on these data."""
    if isinstance(data, list) and any(isinstance(part, Records) and not part.whole for part in data):
        check_parts(plan)


def check_parts(plan: Stated) -> None:
    """Refuse a plan that needs single rows, for data that are kept in parts."""
    if not getattr(plan, "sums_only", False):
        raise ParameterError(
            "X",
            f"must be in memory for {plan.mechanism}, which reads single rows; it is a file or a Dask collection",
            Setting("solver", "objective", "noisy-gd", "newton", "discriminant", "refocused-sums", "output"),
            "load the rows",
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
    """Take the price of the plan from the ledger and return the receipt; None without a ledger.

    The label of the charge says when the noise is insecure: that is charged for, and not private.
    """
    charged(plan)  # audits compare what was run with what was paid for
    account = opened(ledger)
    if account is None:
        return None
    promise = plan.guarantee
    made = account.charge(
        plan.event,
        label=label if noise_is_secret() else f"{label}, insecure noise",
        neighboring=promise.neighboring,
        unit=promise.unit,
        kind=promise.kind,
    )
    return account.receipt(made)


def run(
    plan: Runnable[Data, Released],
    data: Data | Callable[[Entropy], Data],
    entropy: Entropy,
    progress: Callable[[int, float], None] | None = None,
) -> Released:
    """Let the data meet the noise, in silence."""
    with silence():
        prepared = data(entropy) if callable(data) else data
        if progress is None:
            return plan.run(prepared, entropy)
        return cast(Any, plan).run(prepared, entropy, progress)  # type: ignore[no-any-return]


def price(promise: Guarantee) -> str:
    """What a release costs, in words."""
    return f"({promise.epsilon:g}, {promise.delta:.3g}), {promise.neighboring.value}, unit: {promise.unit}"


def bind(ledger: Budget, receipt: Receipt | None, digest: str | None) -> Receipt | None:
    """Note beside a charge the digest of what it paid for, and return the receipt that says so.

    Without a ledger, or one that cannot be opened or written, the receipt comes back as it was, bound to nothing: what
    was paid for is handed over all the same.
    """
    if ledger is None or receipt is None or receipt.bound or digest is None:
        return receipt
    try:
        with calm():
            account = opened(ledger)
            return receipt if account is None else account.bind(receipt, digest)
    except Exception:
        return receipt


# -- what every statement says ---------------------------------------------------------------------------------------


def size_facts(relation: Neighboring, size: int, per_group: int | None, delta: Any) -> tuple[str, ...]:
    """Say what the promise assumes about numbers of rows.

    Parameters
    ----------
    relation, size : the neighboring relation and the public number of rows; with groups, of all their places.
    per_group : rows of one group at most; None without groups.
    delta : the parameter as the user gave it.
    """
    if not relation.size_is_public:
        rows = f"{size} is a public upper bound on the number of rows (given by the user)"
    elif per_group is None:
        rows = f"the number of rows, {size}, is public"
    else:
        rows = f"the number of groups, {size // per_group}, is public; that of rows is not"
    return (rows,) if delta is not None else (rows, "delta was set to 1 / n_samples**2 by default")


def unit_assumption(guarantee: Guarantee) -> str:
    """Say what must be true of the unit for the promise to be one about people."""
    if guarantee.unit == "user":
        return "all rows of one person carry the same id in groups (given by the user)"
    return "each person is one row (given by the user): somebody with k rows is protected only at k times epsilon"


def check_unit(model: Any, groups: Any) -> None:
    """Refuse to protect single rows around a model that protects people: somebody there has several rows."""
    statement = getattr(model, "privacy_", None)
    if groups is None and isinstance(statement, PrivacyStatement) and statement.guarantee.unit == "user":
        raise ParameterError(
            "groups",
            "must be given, with max_rows_per_group: the model protects all rows of a person together, so must this",
            Setting("groups", purpose="one id per row; if each person has one row here, ids that all differ"),
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
