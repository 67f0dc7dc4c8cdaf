"""Which charge a ledger admits: one rule for sizes chosen along the way, one for sizes fixed in advance.

Both rules are pure functions of the charges already made and the one that is asked for; the ledger calls them
inside the transaction that would record it.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

from discreet.privacy import accountants
from discreet.privacy.accountant import Accountant
from discreet.privacy.events import Composed, Event, Gaussian, Pure, Repeated
from discreet.privacy.filters import Cost, Filter, exactly
from discreet.privacy.gaussian import gaussian_mu
from discreet.privacy.guarantee import Neighboring


class Verdict(enum.Enum):
    """What becomes of a charge."""

    ADMITTED = "admitted"
    CLOSING = "admitted, and nothing after it"
    REFUSED = "refused"


@dataclass(frozen=True)
class Account:
    """Everything charged so far, summed up."""

    n_charges: int = 0
    counts: dict[Event, int] = field(default_factory=dict)
    total: Cost = field(default_factory=Cost)
    closed: bool = False

    def plus(self, event: Event, cost: Cost, closes: bool) -> Account:
        """The account after one more charge."""
        counts = dict(self.counts)
        counts[event] = counts.get(event, 0) + 1
        return Account(self.n_charges + 1, counts, self.total + cost, self.closed or closes)

    @property
    def event(self) -> Event:
        """All charges as one event, equal ones grouped."""
        return Composed(tuple(Repeated(event, count) for event, count in self.counts.items()))


class Rule(Protocol):
    """Decides about charges under one cap."""

    @property
    def cap(self) -> Filter:
        """The cap, and the filter that belongs to it."""

    def verdict(self, account: Account, event: Event) -> Verdict:
        """Whether ``event`` may follow what is in ``account``."""

    def surely_admits(self, account: Account, event: Event) -> bool:
        """A quick answer that may be False for an event that would be admitted, and is never wrongly True."""

    def spent(self, account: Account, delta: float, quickly: bool = False) -> float:
        """The smallest epsilon whose cap would have admitted ``account``; quickly: or a larger one."""


@dataclass(frozen=True)
class AdaptiveRule:
    """Sizes may depend on earlier results: only filters count, except for the first charge.

    Before the first charge there is no result that anything could depend on, so it is priced exactly. If it
    fits only under the whole delta it takes the ledger for itself (docs/ledger.md).
    """

    cap: Filter

    def verdict(self, account: Account, event: Event) -> Verdict:
        """Filters first; then, for a first charge, its exact price."""
        if account.closed:
            return Verdict.REFUSED
        together = account.plus(event, self.cap.cost(event), False)
        if self.cap.admits(together.total):
            return Verdict.ADMITTED
        if account.n_charges == 0 and _meets_cap(self.cap, together):
            return Verdict.CLOSING
        return Verdict.REFUSED

    def surely_admits(self, account: Account, event: Event) -> bool:
        """Filters are quick, so this is the verdict itself."""
        return self.verdict(account, event) is not Verdict.REFUSED

    def spent(self, account: Account, delta: float, quickly: bool = False) -> float:
        """Exact for a single charge, the filter's price from the second charge on."""
        if account.n_charges <= 1:
            return price(account.event, delta, self.cap.neighboring, quickly)
        return self.cap.epsilon(account.total, delta)


@dataclass(frozen=True)
class FixedRule:
    """All sizes were fixed before the first result: the tightest accountant at the whole delta."""

    cap: Filter

    def verdict(self, account: Account, event: Event) -> Verdict:
        """Whether everything together is within the cap."""
        together = account.plus(event, self.cap.cost(event), False)
        return Verdict.ADMITTED if _meets_cap(self.cap, together) else Verdict.REFUSED

    def surely_admits(self, account: Account, event: Event) -> bool:
        """Without loss distributions."""
        return _meets_cap(self.cap, account.plus(event, self.cap.cost(event), False), quickly=True)

    def spent(self, account: Account, delta: float, quickly: bool = False) -> float:
        """The tightest price of everything."""
        return min(
            self.cap.summed_epsilon(account.total, exactly(delta)),
            self.cap.epsilon(account.total, delta),  # valid for fixed sizes too, and always quick
            price(account.event, delta, self.cap.neighboring, quickly),
        )


@lru_cache(maxsize=1024)
def price(event: Event, delta: float, neighboring: Neighboring, quickly: bool = False) -> float:
    """Smallest epsilon of ``event`` that any accountant certifies; infinite if none does."""
    if event == Composed(()):
        return 0.0
    asked = _asked(event, neighboring, quickly)
    return min((accountant.epsilon(event, delta, neighboring) for accountant in asked), default=math.inf)


def _asked(event: Event, neighboring: Neighboring, quickly: bool) -> list[Accountant]:
    """The accountants for ``event``, cheapest first; quickly: without loss distributions (seconds)."""
    return [
        accountant
        for accountant in accountants.accountants_for(event, neighboring)
        if not (quickly and isinstance(accountant, accountants.LossDistributionAccountant))
    ]


def _meets_cap(cap: Filter, account: Account, quickly: bool = False) -> bool:
    """Whether some accountant certifies the cap for everything in ``account``, sizes being fixed."""
    if cap.basic_sums_fit(account.total, exactly(cap.cap_delta)) or cap.admits(account.total):
        return True
    if cap.cap_delta == 0:
        return False  # beyond sums of pure epsilons a delta of 0 can only be a delta too small for a float
    together, relation = account.event, cap.neighboring
    asked = _asked(together, relation, quickly)
    return any(accountant.delta(together, cap.cap_epsilon, relation) <= cap.cap_delta for accountant in asked)


def largest_pure(rule: Rule, account: Account) -> float:
    """The largest epsilon of one further pure release that would be admitted, 0 if none."""
    # Alone at the cap, delta is (1 - e^(cap - epsilon)) / (1 + e^-epsilon), and at least half the numerator.
    most = rule.cap.cap_epsilon - math.log(max(1 - 2 * rule.cap.cap_delta, 1e-9))
    return largest(lambda size: rule.surely_admits(account, Pure(size)), most * (1 + 1e-6))


def least_noise(rule: Rule, account: Account) -> float:
    """The smallest noise multiplier of a further Gaussian release that would be admitted; maybe infinite."""
    most = gaussian_mu(rule.cap.cap_epsilon, rule.cap.cap_delta)
    mu = largest(lambda size: rule.surely_admits(account, Gaussian(1 / size)), most * (1 + 1e-6))
    return 1 / mu if mu else math.inf


def largest(admitted: Callable[[float], bool], most: float, close: float = 1e-9) -> float:
    """The largest admitted size below ``most``, by bisection on a logarithmic scale to ``close``; itself admitted."""
    low, high = most * 1e-9, most
    if not (most > 0 and admitted(low)):
        return 0.0
    while high / low > 1 + close:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if admitted(middle) else (low, middle)
    return low
