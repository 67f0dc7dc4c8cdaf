"""A durable budget: an append-only file of charges with a cap that no sequence of charges can exceed.

plan -> charge -> run: a charge is on disk before anything private is touched, and a charge that does not fit is
refused before anything is written. Threads, processes and clones that name the same file share one budget.

`Spent` and `Remaining` report how much is used and how much is left.
"""

from __future__ import annotations

import getpass
import math
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from discreet.privacy.events import Event, Gaussian, Repeated
from discreet.privacy.guarantee import Guarantee, Neighboring, PrivacyWarning
from discreet.privacy.ledger.file import Charge, LedgerFile, Links, Tail, Terms
from discreet.privacy.ledger.refusals import binding
from discreet.privacy.ledger.rules import (
    Account,
    AdaptiveRule,
    Filter,
    FixedRule,
    Refused,
    Rule,
    Verdict,
    admit,
    largest_pure,
    least_noise,
    price,
)
from discreet.privacy.ledger.sqlite import LedgerError
from discreet.privacy.statement import Receipt


@dataclass(frozen=True)
class Spent:
    """The spent budget: the smallest cap, at this delta, that would have admitted every charge."""

    epsilon: float
    delta: float
    neighboring: Neighboring
    n_charges: int

    def __str__(self) -> str:
        if self.n_charges == 0:
            return "nothing spent"
        charges = f"{self.n_charges} charge{'' if self.n_charges == 1 else 's'}"
        return (
            f"epsilon {number(self.epsilon)} at delta {self.delta:g} spent by {charges} ({self.neighboring})"
        )


@dataclass(frozen=True)
class Remaining:
    """The largest ONE further release, now; its numbers are alternatives.

    epsilon : price, alone and at the cap's delta, of the largest further Gaussian release; of a pure one if
        the cap's delta is 0.
    pure_epsilon : the largest further pure release.
    noise_multiplier : the smallest of a further Gaussian release, infinite if none fits.
    like_last : how many more releases like the last one would fit, one after the other, counted up to
        ``MANY``; None if nothing was released.
    """

    epsilon: float
    delta: float
    pure_epsilon: float
    noise_multiplier: float
    neighboring: Neighboring
    closed: bool
    like_last: int | None = None

    def within(self, other: Remaining) -> Remaining:
        """Return what remains if another ledger, with the same delta and relation, must also admit the release."""
        pure = min(self.pure_epsilon, other.pure_epsilon)
        noise = max(self.noise_multiplier, other.noise_multiplier)
        epsilon = pure if math.isinf(noise) else min(self.epsilon, other.epsilon)
        counts = [count for count in (self.like_last, other.like_last) if count is not None]
        closed, like_last = self.closed or other.closed, min(counts, default=None)
        return Remaining(epsilon, self.delta, pure, noise, self.neighboring, closed, like_last)

    def __str__(self) -> str:
        if self.like_last is None or self._empty:
            return self.largest
        return f"{room(self.like_last)} like the last one, {'or' if self.like_last else 'but'} for {self.largest}"

    @property
    def _empty(self) -> bool:
        return self.closed or (self.epsilon == 0 and self.pure_epsilon == 0)

    @property
    def largest(self) -> str:
        """The largest single release, in its exact numbers."""
        if self.closed:
            return "nothing remains: the first charge took the whole cap"
        if self._empty:
            return "nothing further is sure to fit"
        pure = f"one pure release of epsilon {number(self.pure_epsilon)}"
        if math.isinf(self.noise_multiplier):
            none = "; no Gaussian noise fits any more" if self.delta > 0 else ""
            return f"{pure}{none} ({self.neighboring})"
        return (
            f"one release with Gaussian noise of multiplier {number(self.noise_multiplier)} or more "
            f"(epsilon {number(self.epsilon)} at delta {self.delta:g}), or {pure} ({self.neighboring})"
        )


MANY = 1000  # releases are counted up to here


def room(count: int) -> str:
    """Describe how many more releases would fit.

    >>> room(3), room(0)
    ('room for about 3 more releases', 'no room for another release')
    """
    if count == 0:
        return "no room for another release"
    many = f"at least {MANY}" if count >= MANY else f"about {count}"
    return f"room for {many} more release{'' if count == 1 else 's'}"


def number(value: float) -> str:
    """Format a number with four digits."""
    return "infinity" if math.isinf(value) else f"{value:.4g}"


__all__ = ["BudgetExceeded", "Charge", "Ledger", "LedgerError", "Remaining", "Spent"]


# Advice for a charge of the other unit.
_OTHER_UNITS = {
    "record": "Pass groups=... and max_rows_per_group=..., which protect all rows of a person; where each person has "
    "one row, ids that all differ and 1",
    "user": "Fit without groups=, which protects single rows",
}


class BudgetExceeded(LedgerError):
    """The charge does not fit under the ledger's cap. It was not written, and the release must not run."""


class Ledger:
    """A budget on disk, shared by everything that opens the same file.

    Parameters
    ----------
    path : str or path
        The file. It is created if it does not exist, which requires ``epsilon`` and ``delta``; its directory
        must exist.
    epsilon, delta : float, optional
        The cap on all charges together. For an existing ledger, omit them or give the stored values.
    neighboring : Neighboring or str, optional
        The relation of the cap; "replace-one" for a new ledger.
    adaptive : bool, optional
        True (default of a new ledger): the size of a charge may depend on results of earlier ones. False: you
        declare that every charge was fixed before the first result was seen, and composition is priced more
        tightly.

    unit : {"record", "user"}, optional
        Whom the cap protects; "record" for a new ledger. A "user" ledger admits no charge that protects single rows
        only; a "record" ledger admits charges per user if these cover rows (under "replace-one").

    Attributes
    ----------
    path, epsilon, delta, neighboring, adaptive, unit : as stored in the file.

    Notes
    -----
    Privacy: all results whose charges were admitted are together (epsilon, delta)-DP for each ``unit`` under
    ``neighboring``, provided that every charge describes what is then run, once, and that nothing is run without a
    charge. A charge is durable before ``charge`` returns. A refused or failed charge must not be run; a charge whose
    run fails stays charged. The file is tamper-evident against edits, but cannot detect a complete rewrite or an older
    copy. See docs/ledger.md for the file format and the proof.

    Examples
    --------
    >>> import tempfile, os
    >>> from discreet.privacy.events import Pure
    >>> ledger = Ledger(os.path.join(tempfile.mkdtemp(), "budget.ledger"), epsilon=1.0, delta=0.0)
    >>> ledger.charge(Pure(0.7), label="histogram").sequence
    1
    >>> print(ledger.spent())
    epsilon 0.7 at delta 0 spent by 1 charge (replace-one)
    >>> ledger.charge(Pure(0.4))
    Traceback (most recent call last):
        ...
    discreet.privacy.ledger.ledger.BudgetExceeded: Pure(epsilon=0.4) (epsilon 0.4 alone) does not fit ...
    """

    # What this process has read and checked. One attribute, replaced as a whole, so that threads need no lock: a thread
    # that stores an older pair only makes the next one read more.
    _known: tuple[Account, Tail]

    def __init__(
        self,
        path: str | os.PathLike[str],
        epsilon: float | None = None,
        delta: float | None = None,
        *,
        neighboring: Neighboring | str | None = None,
        adaptive: bool | None = None,
        unit: str | None = None,
    ) -> None:
        relation = None if neighboring is None else Neighboring(neighboring)
        where = _resolved(path)
        if not where.exists():
            LedgerFile.create(where, _new_terms(where, epsilon, delta, relation, adaptive, unit))
        self._open(where)
        asked = {
            "epsilon": epsilon,
            "delta": delta,
            "neighboring": relation,
            "adaptive": adaptive,
            "unit": unit,
        }
        for name, value in asked.items():
            stored = getattr(self._file.terms, name)
            if value is not None and value != stored:
                raise LedgerError(
                    f"{where} was created with {name}={_plain(stored)} and opened with "
                    f"{name}={_plain(value)}; leave {name} out to use it as it is, or choose another path"
                )

    def _open(self, path: Path, identity: str | None = None) -> None:
        """Open and check the file; with an ``identity``, only the ledger that has it."""
        self._file = LedgerFile(path, identity)
        terms = self._file.terms
        cap = Filter(terms.epsilon, terms.delta, terms.neighboring, terms.order)
        self._rule: Rule = AdaptiveRule(cap) if terms.adaptive else FixedRule(cap)
        self._learn(Account(), self._file.read(structure=True))

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    @property
    def epsilon(self) -> float:
        """The cap."""
        return self._file.terms.epsilon

    @property
    def delta(self) -> float:
        """The cap's delta."""
        return self._file.terms.delta

    @property
    def neighboring(self) -> Neighboring:
        """The relation of the cap."""
        return self._file.terms.neighboring

    @property
    def adaptive(self) -> bool:
        """Whether the sizes of charges may depend on earlier results."""
        return self._file.terms.adaptive

    @property
    def unit(self) -> str:
        """Whom the cap protects."""
        return self._file.terms.unit

    @property
    def guarantee(self) -> Guarantee:
        """The cap as a guarantee for all charges together."""
        return Guarantee(self.epsilon, self.delta, self.neighboring, self.unit)

    def charge(
        self,
        event: Event,
        *,
        label: str = "",
        neighboring: Neighboring | str | None = None,
        who: str | None = None,
        unit: str | None = None,
        kind: str = "dp",
    ) -> Charge:
        """Record ``event`` before it runs, or raise and record nothing.

        Parameters
        ----------
        event : Event
            The event that will run, once.
        label : str
            A remark. It is stored in clear: keep private data out of it.
        neighboring : Neighboring or str, optional
            The relation ``event`` was calibrated for, checked against the ledger's.
        who : str, optional
            Who makes the charge; the user of the operating system by default. Stored in clear.
        unit : {"record", "user"}, optional
            Whom ``event`` protects, checked against the ledger's, which is the default.
        kind : {"dp", "joint-dp"}
            Whether everything released is private, or everything except what each person sees of their own.

        Raises
        ------
        BudgetExceeded
            If the event does not fit under the cap.
        LedgerError
            If the file cannot be read, trusted or written, or the relation or the unit does not match.
        UnsupportedEvent
            If no accountant has a proof for the event under the ledger's relation.
        """
        if not isinstance(event, Event):
            raise TypeError(f"a ledger is charged with an Event, got {event!r}")
        who = _user() if who is None else who
        for name, remark in (("label", label), ("who", who)):
            if not isinstance(remark, str):
                raise TypeError(f"{name} must be a string, got {remark!r}")
        if neighboring is not None and Neighboring(neighboring) is not self.neighboring:
            raise LedgerError(
                f"the ledger {self.path} counts {self.neighboring} privacy and the charge is for "
                f"{Neighboring(neighboring)}; calibrate it for {self.neighboring}, or use another ledger"
            )
        unit = self.unit if unit is None else unit
        if not Guarantee(1.0, 0.0, self.neighboring, unit, kind).covers(self.unit):
            raise LedgerError(
                f"the ledger {self.path} promises privacy per {self.unit} and the charge is per {unit}, which under "
                f"{self.neighboring} does not cover it. {_OTHER_UNITS.get(unit, 'It protects labels only')}. A second "
                f"ledger with unit={unit!r} would be a second budget for the same people, and what both reveal adds up"
            )
        if unit == "user" and self.unit == "record":
            warnings.warn(
                f"{self.path} caps what is released about single rows, and this release protects people; create one "
                "with unit='user' (`discreet ledger create --unit user`) to cap what all releases together reveal "
                "about a person",
                PrivacyWarning,
                stacklevel=2,
            )
        # Pricing may take a moment and is cached; doing it here keeps other processes from waiting.
        self._rule.cap.cost(event)
        account, tail = self._known

        decide = partial(admit, self._rule, account, event)
        try:
            news, charge = self._file.append(tail, decide, event, who=who, label=label, unit=unit, kind=kind)
        except Refused as refused:
            raise BudgetExceeded(self._refusal(refused.account, event, label)) from None
        self._learn(account, news)
        return charge

    def bind(self, receipt: Receipt, released: str) -> Receipt:
        """Record the digest of what was released under a charge (`release_digest`), so that it can be recognized.

        A charge has one release. If the row cannot be written (there is another release, the disk is full, ...), return
        the receipt unchanged and not ``bound``: the release was paid for, so it must not be lost.
        """
        account, tail = self._known
        try:
            news = self._file.bind(tail, receipt.charge, receipt.digest, released)
        except Exception:  # no failure may cost a release that is paid for
            return receipt
        self._learn(account, news)
        return replace(receipt, released=released, head=news.tail.digest)

    def admits(self, event: Event) -> bool:
        """Whether a charge of ``event`` would be admitted now; charges nothing."""
        self._rule.cap.cost(event)
        return self._rule.verdict(self._refreshed(), event) is not Verdict.REFUSED

    def further(self, event: Event, most: int = MANY) -> int:
        """Return how many further charges of ``event`` would be admitted, one after the other; at most ``most``."""

        def fit(times: int) -> bool:
            if times == 1:
                return self.admits(event)
            # Together they could be one large first charge that closes the ledger, which one after the other is not.
            return self._rule.verdict(self._refreshed(), Repeated(event, times)) is Verdict.ADMITTED

        low, high = 0, 1
        while high <= most and fit(high):
            low, high = high, 2 * high
        high = min(high, most + 1)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fit(middle) else (low, middle)
        return low

    def spent(self, delta: float | None = None, *, first: int | None = None) -> Spent:
        """Return how much has been spent, as the smallest epsilon at ``delta`` (the cap's, by default).

        ``first`` counts only this many of the first charges.

        It is the smallest cap under which this ledger's rule would have admitted the same charges. With fixed sizes
        that is itself a guarantee; with adaptive sizes the guarantee to quote is the cap.
        """
        at = self.delta if delta is None else float(delta)
        if not 0 <= at < 1:
            raise ValueError(f"delta must be at least 0 and less than 1, got {delta!r}")
        if first is None:
            return self._spent(self._refreshed(), at)
        return self._spent(Account().with_charges(self.history()[:first], self._rule.cap), at)

    def spent_after(self) -> list[float]:
        """Return the epsilon spent after each charge, at the cap's delta, by the quick accountants."""
        found, account = [], Account()
        for charge in self.history():
            account = account.with_charges([charge], self._rule.cap)
            found.append(self._spent(account, self.delta, quickly=True).epsilon)
        return found

    def _spent(self, account: Account, delta: float, quickly: bool = False) -> Spent:
        return Spent(self._rule.spent(account, delta, quickly), delta, self.neighboring, account.n_charges)

    def remaining(self) -> Remaining:
        """Return the largest single release that would still be admitted, and how many more like the last one.

        With fixed sizes and mixed kinds slightly more may fit: the slowest, tightest accountant is used only for an
        actual charge.
        """
        left, last = self._remaining(), self.history()[-1:]
        return replace(left, like_last=self.further(last[0].event)) if last else left

    def _remaining(self, account: Account | None = None) -> Remaining:
        delta, account = self.delta, account or self._refreshed()
        noise = least_noise(self._rule, account) if delta > 0 else math.inf
        pure = largest_pure(self._rule, account)
        epsilon = pure if math.isinf(noise) else price(Gaussian(noise), delta, self.neighboring)
        return Remaining(epsilon, delta, pure, noise, self.neighboring, account.closed)

    def balance(self, event: Event, asked: Guarantee) -> tuple[str, str]:
        """Say how much of the cap is spent, and how many more charges of ``event`` fit; if none does, what does.

        A price is named as it was ``asked`` for, and beside it at the cap's delta, at which charges are compared.
        """
        epsilon, delta = self.epsilon, self.delta
        spent, times = self._rule.spent(self._refreshed(), delta), self.further(event)
        used = f"epsilon {number(spent)} of {number(epsilon)} is spent at delta {delta:g}"
        each = f"epsilon {number(asked.epsilon)} at delta {asked.delta:.3g} each"
        if asked.delta != delta:
            each += f", which is {number(price(event, delta, self.neighboring))} at delta {delta:g}"
        like_this = f"{room(times)} like this one ({each})"
        return used, like_this + ("" if times else f", but {self._remaining().largest}")

    def price(self, event: Event) -> float:
        """Return the smallest epsilon of ``event`` alone, at the cap's delta; infinite if it has none."""
        return price(event, self.delta, self.neighboring)

    def history(self) -> list[Charge]:
        """List all charges in the order of admission, each checked against the chain."""
        return self._file.read().charges

    @property
    def identity(self) -> str:
        """The random identifier of this ledger in receipts."""
        return self._file.terms.identity

    @property
    def created(self) -> str:
        """When the file was made (UTC, ISO 8601)."""
        return self._file.terms.created

    @property
    def head(self) -> str:
        """The chain's head: the digest of everything currently in the file."""
        self._refreshed()
        return self._known[1].digest

    def receipt(self, charge: Charge) -> Receipt:
        """Return a receipt for ``charge``, which identifies it to holders of the release."""
        return Receipt(self.identity, charge.sequence, charge.digest)

    def verify(self) -> None:
        """Check the whole file again: structure, schema, terms, all charges and releases. Raises ``LedgerError``."""
        self._learn(Account(), self._file.read(structure=True))

    def _refreshed(self) -> Account:
        account, tail = self._known
        return self._learn(account, self._file.read(tail))

    def _learn(self, account: Account, news: Links) -> Account:
        """Keep, and return, the account after what was read and checked."""
        account = account.with_charges(news.charges, self._rule.cap)
        self._known = (account, news.tail)
        return account

    def _refusal(self, account: Account, event: Event, label: str) -> str:
        alone = price(event, self.delta, self.neighboring, quickly=True)
        # At the cap's delta, not that of the release, because prices are compared.
        at = f" at delta {self.delta:g}" if self.delta > 0 else ""
        asked = f"{f'the charge {label!r}' if label else event} (epsilon {number(alone)} alone{at})"
        cap = f"the cap of epsilon {self.epsilon:g} at delta {self.delta:g}"
        if account.closed:
            return (
                f"{asked} does not fit: the first charge took {cap} of {self.path} for itself and closed it; "
                "nothing was charged. Use another ledger for another budget, with a smaller first charge"
            )
        spent = self._spent(account, self.delta, quickly=True)
        advice = binding(self._rule, account, event)
        if self.adaptive and account.n_charges:
            advice += (
                "; if all sizes are fixed in advance, a ledger created with adaptive=False (--fixed-sizes) counts "
                "tighter"
            )
        return (
            f"{asked} does not fit under {cap} of {self.path}, and nothing was charged. So far: {spent}. "
            f"Still available: {self._remaining(account)}. {advice}"
        )

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write a page for people: spent and left, who, when and what for."""
        from discreet.privacy.page import ledger_page

        ledger_page(self).write(path)

    def _repr_html_(self) -> str:
        from discreet.privacy.page import ledger_page

        return ledger_page(self).fragment()

    def __sklearn_clone__(self) -> Ledger:
        """Return the ledger itself: clones of an estimator share its budget."""
        return self

    def __copy__(self) -> Ledger:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Ledger:
        return self

    def __reduce__(self) -> tuple[Callable[[str, str], Ledger], tuple[str, str]]:
        return _reopened, (str(self.path), self.identity)

    def __eq__(self, other: object) -> bool:
        return self.path == other.path if isinstance(other, Ledger) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.path)

    def __repr__(self) -> str:
        return (
            f"Ledger({str(self.path)!r}, epsilon={self.epsilon!r}, delta={self.delta!r}, "
            f"neighboring={self.neighboring.value!r}, adaptive={self.adaptive!r}, unit={self.unit!r})"
        )


def _resolved(path: str | os.PathLike[str]) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise LedgerError(
            f"the first argument of a ledger is the path of its file, got {path!r}; for instance "
            "Ledger('budget.ledger', epsilon=3.0, delta=1e-6)"
        )
    if os.fspath(path) == ":memory:":
        raise LedgerError(
            "a ledger must outlive its process, so ':memory:' cannot hold one; give the path of a file"
        )
    where = Path(path).expanduser().resolve()
    if not where.parent.is_dir():
        raise LedgerError(
            f"cannot keep a ledger at {where}: the directory {where.parent} does not exist; create it"
        )
    if where.is_dir():
        raise LedgerError(
            f"cannot keep a ledger at {where}: it is a directory; give the path of a file in it"
        )
    return where


def _new_terms(
    path: Path,
    epsilon: float | None,
    delta: float | None,
    neighboring: Neighboring | None,
    adaptive: bool | None,
    unit: str | None,
) -> Callable[[str, str], Terms]:
    """Return the terms of a new ledger."""
    if epsilon is None or delta is None:
        raise LedgerError(
            f"there is no ledger at {path}; to create one give its cap, both epsilon and delta "
            "(0 for pure privacy)"
        )
    cap = Guarantee(float(epsilon), float(delta), neighboring or Neighboring.REPLACE_ONE, unit or "record")
    if math.isinf(cap.epsilon):
        raise ValueError("a ledger needs a finite epsilon")
    order = Filter.for_cap(cap.epsilon, cap.delta, cap.neighboring).order
    return lambda identity, created: Terms(
        cap.epsilon, cap.delta, cap.neighboring, adaptive is not False, order, identity, created, cap.unit
    )


def _reopened(path: str, identity: str) -> Ledger:
    """Reopen the same ledger in another process; refuse a different file at the same path."""
    ledger = Ledger.__new__(Ledger)
    ledger._open(Path(path), identity)
    return ledger


def _user() -> str:
    """Return the user of the operating system; empty if there is none, as in some containers."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""


def _plain(value: object) -> str:
    return repr(value.value) if isinstance(value, Neighboring) else repr(value)
