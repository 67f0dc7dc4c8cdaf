"""Rules by which a ledger admits charges: privacy filters, and the two rules built on them.

Ordinary composition prices a list of mechanisms that was fixed in advance. If sizes are chosen along the way, only
some of its rules remain valid as stopping rules. Those used here are sums that may not exceed a threshold fixed at the
start. Three families watch the same charges, each with a third of delta:

* basic: the epsilons add up, the deltas add up (Rogers, Roth, Ullman and Vadhan, 2016);
* Gaussian: the squares of the Gaussian-DP parameters add up (Smith and Thakurta, 2022; Koskela, Tobaben and
  Honkela, 2022);
* Renyi: the divergences of one fixed order add up (Feldman and Zrnic, 2021).

A charge may run if any family still certifies everything. One rule is for sizes chosen along the way, one for sizes
fixed in advance. Both are pure functions of the charges so far and the requested one; the ledger calls them inside the
transaction that would record it. Proofs: docs/ledger.md and docs/proofs/composition.md.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import Protocol

from discreet.privacy.accounting import accountants
from discreet.privacy.accounting.accountants import Accountant, RenyiAccountant
from discreet.privacy.accounting.gaussian import gaussian_delta, gaussian_epsilon, gaussian_mu, ideal_target
from discreet.privacy.accounting.renyi import renyi_epsilon
from discreet.privacy.events import (
    DEEPEST,
    Approximate,
    BoundedRange,
    Composed,
    Event,
    Gaussian,
    Laplace,
    Pure,
    Repeated,
    leaves_of,
)
from discreet.privacy.guarantee import UP, Neighboring

FAMILIES = 3
# The part of a family's delta that is reserved for failures (inexact sampling, the delta of Approximate events). It
# must be fixed in advance: a split that follows the charges would be another adaptive choice.
RESERVE = Fraction(1, 16)
# Maximum number of variates that a ledger may draw on a grid; fixed for the same reason. Costs 3e-6 of epsilon.
MOST_VARIATES = 2**36


@dataclass(frozen=True)
class Cost:
    """The amount that events add to every family's sums; None if a family has no price.

    epsilon, mu_squared, divergence : the sums of the three families, for ideal mechanisms.
    mass : probability that some mechanism fails altogether (the deltas of ``Approximate`` events).
    variation : total variation between what runs and the ideal.
    variates : number of Gaussian variates drawn on a grid instead of the reals.

    Sums are exact rationals, so that neither the order nor the number of charges matters.
    """

    epsilon: Fraction | None = Fraction(0)
    mu_squared: Fraction | None = Fraction(0)
    divergence: Fraction | None = Fraction(0)
    mass: Fraction = Fraction(0)
    variation: Fraction = Fraction(0)
    variates: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            _plus(self.epsilon, other.epsilon),
            _plus(self.mu_squared, other.mu_squared),
            _plus(self.divergence, other.divergence),
            self.mass + other.mass,
            self.variation + other.variation,
            self.variates + other.variates,
        )

    def times(self, count: int) -> Cost:
        """Return the cost of ``count`` equal events."""
        return Cost(
            None if self.epsilon is None else self.epsilon * count,
            None if self.mu_squared is None else self.mu_squared * count,
            None if self.divergence is None else self.divergence * count,
            self.mass * count,
            self.variation * count,
            self.variates * count,
        )

    def failures(self, epsilon: float) -> Fraction:
        """Return the delta lost, at ``epsilon``, by replacing every mechanism with an ideal one; at most 1."""
        if epsilon > 500 and self.variation:
            return Fraction(1)
        lost = self.mass
        if self.variation:
            lost += (1 + Fraction(math.exp(epsilon) * UP)) * self.variation
        return min(Fraction(1), lost)


NOTHING = Cost()
UNPRICED = Cost(None, None, None, Fraction(1))


def _plus(a: Fraction | None, b: Fraction | None) -> Fraction | None:
    return None if a is None or b is None else a + b


def exactly(value: float) -> Fraction:
    """Return the decimal number that ``value`` is written as: three times 0.1 is 0.3.

    >>> 3 * exactly(0.1) == exactly(0.3), 3 * 0.1 == 0.3
    (True, False)
    """
    return Fraction(repr(float(value)))


def _float(value: Fraction) -> float:
    """Return the nearest float, infinite if Python would raise."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


@lru_cache(maxsize=65536)
def cost(event: Event, order: float | None, neighboring: Neighboring) -> Cost:
    """Return the price of ``event`` in every family, fixed before it runs and independent of all other charges.

    Two levels of nesting are reserved for the events that sum up all charges.
    """
    if event.depth > DEEPEST - 2:
        raise ValueError(
            f"a ledger is charged with events nested at most {DEEPEST - 2} deep, got {event.depth}"
        )
    leaves = leaves_of(event)
    if not leaves.private or not leaves.relations <= {neighboring}:
        return UNPRICED
    total = Cost(variation=exactly(leaves.total_variation), variates=leaves.variates)
    for leaf, times in leaves.counts:
        total += _leaf_cost(leaf, order, neighboring).times(times)
    return total


@lru_cache(maxsize=65536)
def _leaf_cost(leaf: Event, order: float | None, neighboring: Neighboring) -> Cost:
    if isinstance(leaf, Approximate):
        # An (epsilon, delta)-DP mechanism is an epsilon-DP one except with probability delta
        # (Kairouz, Oh and Viswanath, 2015; Murtagh and Vadhan, 2016).
        ideal = _leaf_cost(Pure(leaf.epsilon), order, neighboring) if leaf.epsilon > 0 else NOTHING
        return replace(ideal, mass=exactly(leaf.delta))
    return Cost(_pure_epsilon(leaf), _mu_squared(leaf), _divergence(leaf, order, neighboring))


def _pure_epsilon(leaf: Event) -> Fraction | None:
    """Return the epsilon of a mechanism that needs no delta."""
    if isinstance(leaf, Pure | BoundedRange):
        return exactly(leaf.epsilon)
    return 1 / exactly(leaf.noise_multiplier) if isinstance(leaf, Laplace) else None


def _mu_squared(leaf: Event) -> Fraction | None:
    """Return the squared Gaussian-DP parameter; only Gaussian noise has one here."""
    return 1 / exactly(leaf.noise_multiplier) ** 2 if isinstance(leaf, Gaussian) else None


def _divergence(event: Event, order: float | None, neighboring: Neighboring) -> Fraction | None:
    """Return the Renyi divergence of the ledger's order, in the worse direction."""
    if order is None:
        return None
    value = RenyiAccountant(order).divergence(event, neighboring)
    return Fraction(value) if math.isfinite(value) else None


@dataclass(frozen=True)
class Filter:
    """The stopping rule of one cap: admits any adaptive sequence of charges whose total it certifies.

    Privacy
    -------
    An analyst may make any charges, in any order, with sizes that depend on earlier results. As long as every total was
    admitted, the whole sequence of results is (epsilon, delta)-DP under ``neighboring``.

    Examples
    --------
    >>> rule = Filter.for_cap(1.0, 0.0, Neighboring.REPLACE_ONE)
    >>> rule.admits(rule.cost(Pure(0.1)).times(10)), rule.admits(rule.cost(Pure(0.1)).times(11))
    (True, False)
    """

    cap_epsilon: float
    cap_delta: float
    neighboring: Neighboring
    order: float | None

    @staticmethod
    def for_cap(epsilon: float, delta: float, neighboring: Neighboring) -> Filter:
        """Return the filter of a new cap, with the Renyi order that admits the largest Gaussian releases."""
        return Filter(epsilon, delta, neighboring, best_order(epsilon, delta) if delta > 0 else None)

    def cost(self, event: Event) -> Cost:
        """Return the price of one event in every family."""
        return cost(event, self.order, self.neighboring)

    def admits(self, total: Cost) -> bool:
        """Whether some family certifies the cap for everything in ``total``."""
        share = self._share(self.cap_delta)
        if self.basic_sums_fit(total, share):
            return True
        if self.order is None or not self._failures_fit(total, share, self.cap_epsilon):
            return False
        mu = None if total.mu_squared is None else _mu(total.mu_squared)
        shift, rest = _ideal(share, self.cap_epsilon)
        target = self.cap_epsilon - shift
        if rest <= 0 or target < 0:
            return False
        if mu is not None and float(gaussian_delta(target, mu)) <= rest:
            return True
        return (
            total.divergence is not None
            and renyi_epsilon(_float(total.divergence), self.order, rest) <= target
        )

    def basic_sums_fit(self, total: Cost, delta: Fraction) -> bool:
        """Whether the epsilons sum to at most the cap's, and the failures to at most ``delta``."""
        fits = total.epsilon is not None and total.epsilon <= exactly(self.cap_epsilon)
        return fits and total.variates == 0 and total.failures(self.cap_epsilon) <= delta

    def epsilon(self, total: Cost, delta: float) -> float:
        """Return the smallest cap epsilon whose filter, at ``delta`` and the same order, admits ``total``."""
        share = self._share(delta)
        found = [self.summed_epsilon(total, share)]
        if self.order is None or share == 0:
            return found[0]
        # The grid is priced for losses up to a limit: the cap or, if that is not enough, anything reasonable.
        for reach in (self.cap_epsilon, max(1000.0, self.cap_epsilon)):
            shift, rest = _ideal(share, reach)
            ideals = []
            if total.mu_squared is not None and rest > 0:
                ideals.append(gaussian_epsilon(_mu(total.mu_squared), rest))
            if total.divergence is not None and rest > 0:
                ideals.append(renyi_epsilon(_float(total.divergence), self.order, rest))
            # A larger epsilon only makes failures more expensive, so the smallest is the only candidate.
            found += [
                ideal + shift
                for ideal in ideals
                if ideal + shift <= reach and self._failures_fit(total, share, ideal + shift)
            ]
        return min(found)

    def summed_epsilon(self, total: Cost, delta: Fraction) -> float:
        """Return the sum of all epsilons if it exists and the failures are within ``delta``; otherwise infinite."""
        if total.epsilon is None or total.variates:
            return math.inf
        summed = _float(total.epsilon)
        return summed if total.failures(summed) <= delta else math.inf

    def _failures_fit(self, total: Cost, share: Fraction, epsilon: float) -> bool:
        return total.failures(epsilon) <= share * RESERVE and total.variates <= MOST_VARIATES

    def _share(self, delta: float) -> Fraction:
        return exactly(delta) / (FAMILIES if self.order is not None else 1)


def _ideal(share: Fraction, epsilon: float) -> tuple[float, float]:
    """Return (shift, delta'): what meets delta' at epsilon - shift on the reals meets the share on a grid."""
    return ideal_target(_float(share * (1 - RESERVE)), MOST_VARIATES, epsilon)


def _mu(mu_squared: Fraction) -> float:
    return math.sqrt(_float(mu_squared)) * UP


def best_order(epsilon: float, delta: float) -> float:
    """Return the order at which a Renyi filter of the cap admits the largest Gaussian releases.

    Order a admits a sum of mu^2 up to 2 (epsilon - gain) / a, where gain is what the conversion adds at that order.

    >>> best_order(1.0, 1e-6)
    24.0
    """
    rest = float(exactly(delta) / FAMILIES * (1 - RESERVE))

    def room(order: float) -> float:
        gain = math.log1p(-1 / order) - (math.log(rest) + math.log(order)) / (order - 1)
        return (epsilon - gain) / order

    candidates = [1 + step / 8 for step in range(1, 8)] + [float(order) for order in range(2, 129)]
    candidates += [float(round(128 * 1.1**step)) for step in range(1, 60)]
    return max(candidates, key=room)


class Verdict(enum.Enum):
    """The decision about a charge."""

    ADMITTED = "admitted"
    CLOSING = "admitted, and nothing after it"
    REFUSED = "refused"


class Charged(Protocol):
    """What an account needs to know of a charge."""

    @property
    def event(self) -> Event: ...
    @property
    def closes(self) -> bool: ...


@dataclass(frozen=True)
class Account:
    """The sum of all charges so far."""

    n_charges: int = 0
    counts: dict[Event, int] = field(default_factory=dict)
    total: Cost = field(default_factory=Cost)
    closed: bool = False

    def plus(self, event: Event, cost: Cost, closes: bool) -> Account:
        """Return the account after one more charge."""
        counts = dict(self.counts)
        counts[event] = counts.get(event, 0) + 1
        return Account(self.n_charges + 1, counts, self.total + cost, self.closed or closes)

    def with_charges(self, charges: Iterable[Charged], cap: Filter) -> Account:
        """Return the account after further charges under this cap."""
        account = self
        for charge in charges:
            account = account.plus(charge.event, cap.cost(charge.event), charge.closes)
        return account

    @property
    def event(self) -> Event:
        """All charges as one event, equal ones grouped."""
        return Composed(tuple(Repeated(event, count) for event, count in self.counts.items()))


class Rule(Protocol):
    """Decides about charges under one cap."""

    @property
    def cap(self) -> Filter:
        """The cap and its filter."""

    def verdict(self, account: Account, event: Event) -> Verdict:
        """Whether ``event`` may follow what is in ``account``."""

    def surely_admits(self, account: Account, event: Event) -> bool:
        """Answer quickly: may be False for an event that would be admitted, but is never wrongly True."""

    def spent(self, account: Account, delta: float, quickly: bool = False) -> float:
        """Return the smallest epsilon whose cap would have admitted ``account``; if quickly, possibly a larger one."""


class Refused(Exception):
    """Carries the account out of the transaction, so that no other process waits for the message."""

    def __init__(self, account: Account) -> None:
        self.account = account


def admit(rule: Rule, account: Account, event: Event, news: Sequence[Charged]) -> bool:
    """Whether ``event``, after the charges ``news``, closes the ledger; raises `Refused` if it does not fit."""
    now = account.with_charges(news, rule.cap)
    verdict = rule.verdict(now, event)
    if verdict is Verdict.REFUSED:
        raise Refused(now)
    return verdict is Verdict.CLOSING


@dataclass(frozen=True)
class AdaptiveRule:
    """Sizes may depend on earlier results: only filters count, except for the first charge.

    Before the first charge nothing can depend on a result, so it is priced exactly. If it fits only under the whole
    delta, it closes the ledger (docs/ledger.md).
    """

    cap: Filter

    def verdict(self, account: Account, event: Event) -> Verdict:
        """Try the filters; then, for a first charge, its exact price."""
        if account.closed:
            return Verdict.REFUSED
        together = account.plus(event, self.cap.cost(event), False)
        if self.cap.admits(together.total):
            return Verdict.ADMITTED
        if account.n_charges == 0 and _meets_cap(self.cap, together):
            return Verdict.CLOSING
        return Verdict.REFUSED

    def surely_admits(self, account: Account, event: Event) -> bool:
        """Return the verdict itself, because filters are quick."""
        return self.verdict(account, event) is not Verdict.REFUSED

    def spent(self, account: Account, delta: float, quickly: bool = False) -> float:
        """Return the exact price of a single charge, or the filter's price from the second charge on."""
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
        """Decide without loss distributions."""
        return _meets_cap(self.cap, account.plus(event, self.cap.cost(event), False), quickly=True)

    def spent(self, account: Account, delta: float, quickly: bool = False) -> float:
        """Return the tightest price of everything."""
        return min(
            self.cap.summed_epsilon(account.total, exactly(delta)),
            self.cap.epsilon(account.total, delta),  # valid for fixed sizes too, and always quick
            price(account.event, delta, self.cap.neighboring, quickly),
        )


@lru_cache(maxsize=1024)
def price(event: Event, delta: float, neighboring: Neighboring, quickly: bool = False) -> float:
    """Return the smallest epsilon of ``event`` that any accountant certifies; infinite if none does."""
    if event == Composed(()):
        return 0.0
    asked = _asked(event, neighboring, quickly)
    return min((accountant.epsilon(event, delta, neighboring) for accountant in asked), default=math.inf)


def _asked(event: Event, neighboring: Neighboring, quickly: bool) -> list[Accountant]:
    """Return the accountants for ``event``, cheapest first; if quickly, without loss distributions (seconds)."""
    return [
        accountant
        for accountant in accountants.accountants_for(event, neighboring)
        if not (quickly and isinstance(accountant, accountants.LossDistributionAccountant))
    ]


def _meets_cap(cap: Filter, account: Account, quickly: bool = False) -> bool:
    """Whether some accountant certifies the cap for everything in ``account``, with fixed sizes."""
    if cap.basic_sums_fit(account.total, exactly(cap.cap_delta)) or cap.admits(account.total):
        return True
    if cap.cap_delta == 0:
        return False  # apart from sums of pure epsilons, a delta of 0 can only be an underflow
    together, relation = account.event, cap.neighboring
    asked = _asked(together, relation, quickly)
    return any(accountant.delta(together, cap.cap_epsilon, relation) <= cap.cap_delta for accountant in asked)


def largest_pure(rule: Rule, account: Account) -> float:
    """Return the largest epsilon of one further pure release that would be admitted, 0 if none."""
    # Alone at the cap, delta is (1 - e^(cap - epsilon)) / (1 + e^-epsilon), and at least half the numerator.
    most = rule.cap.cap_epsilon - math.log(max(1 - 2 * rule.cap.cap_delta, 1e-9))
    return largest(lambda size: rule.surely_admits(account, Pure(size)), most * (1 + 1e-6))


def least_noise(rule: Rule, account: Account) -> float:
    """Return the smallest noise multiplier of a further Gaussian release that would be admitted; possibly infinite."""
    most = gaussian_mu(rule.cap.cap_epsilon, rule.cap.cap_delta)
    mu = largest(lambda size: rule.surely_admits(account, Gaussian(1 / size)), most * (1 + 1e-6))
    return 1 / mu if mu else math.inf


def largest(admitted: Callable[[float], bool], most: float, close: float = 1e-9) -> float:
    """Return the largest admitted size below ``most``, by bisection on a log scale to ``close``; itself admitted."""
    low, high = most * 1e-9, most
    if not (most > 0 and admitted(low)):
        return 0.0
    while high / low > 1 + close:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if admitted(middle) else (low, middle)
    return low
