"""Explain why a charge does not fit: whether epsilon or delta is the limit, and what would be admitted instead.

All charges share epsilon, and more noise saves it. Delta is used in two ways (docs/ledger.md, section 2): all Gaussian
noise together shares the cap's delta, while a charge known only by its epsilon and delta, as of a search, spends its
delta outright, as a probability of failure. Such deltas add up, and no noise makes up for them.
"""

from __future__ import annotations

from collections.abc import Callable

from discreet.privacy.events import (
    Approximate,
    Approximated,
    BoundedRange,
    Composed,
    Discretized,
    Event,
    Gaussian,
    Laplace,
    Pure,
    Repeated,
    leaves_of,
)
from discreet.privacy.ledger.rules import Account, AdaptiveRule, Rule, largest

_CLOSE = 1e-3  # relative precision of the reported numbers
_MOST_NOISE = Gaussian(1e9)


def binding(rule: Rule, account: Account, event: Event) -> str:
    """Say whether epsilon or delta keeps ``event`` out, and how much of it could be requested."""
    if not leaves_of(event).private:
        return "It has no privacy guarantee, so it fits under no cap"
    cost = rule.cap.cost(event)
    sums = (cost.epsilon, cost.mu_squared, cost.divergence)
    if isinstance(rule, AdaptiveRule) and account.n_charges and sums == (None, None, None):
        return (
            "The cost of this kind of release does not compose with others while sizes may depend on results; it fits "
            "only as the first charge of a ledger"
        )
    faint = _changed(event, _faint)
    if rule.surely_admits(account, faint):
        return "Not enough epsilon remains: ask for less (more noise, fewer releases), or stop here"
    if rule.cap.cap_delta == 0:
        return (
            "Delta is the limit, not epsilon: the cap has delta = 0, and this charge needs more. Ask for a pure "
            "release (delta=0, where a solver offers it)"
        )
    if not rule.surely_admits(_without_deltas(rule, account), _changed(faint, _scaled(0.0))):
        return "Not enough epsilon remains for this kind of release, even with maximal noise"
    own = float(cost.mass)
    if own > 0:
        return f"Not enough delta remains: this charge spends {own:.3g} outright, {_less(rule, account, event, own)}"
    return (
        f"Delta is the limit, not epsilon: earlier charges spent {float(account.total.mass):.3g} of it outright, as "
        "searches do, and no amount of Gaussian noise fits beside them. A pure release fits (delta=0, where a solver "
        f"offers it), or one that spends up to {_room(rule, account)} of delta outright"
    )


def _less(rule: Rule, account: Account, event: Event, own: float) -> str:
    """Say how much delta the same charge could spend, with its epsilon or with almost none."""
    same = _rounded_down(own * _share(rule, account, event))
    if same != "0":
        return f"and with the same epsilon up to {same} is admitted. Ask for a delta of at most that"
    little = _rounded_down(own * _share(rule, account, _changed(event, _faint)))
    if little == "0":
        return "and none is left. Ask for a pure release (delta=0, where a solver offers it), or stop here"
    return (
        f"and even with an epsilon near 0 only up to {little} is admitted. Ask for less of both, or stop here"
    )


def _share(rule: Rule, account: Account, event: Event) -> float:
    """Return the largest fraction of the deltas in ``event`` with which it would be admitted."""
    return largest(lambda part: rule.surely_admits(account, _changed(event, _scaled(part))), 1.0, _CLOSE)


def _room(rule: Rule, account: Account) -> str:
    """Return the largest delta that a charge with almost no epsilon could spend outright."""
    cap = rule.cap.cap_delta
    return _rounded_down(
        largest(lambda delta: rule.surely_admits(account, Approximate(0.0, delta)), cap, _CLOSE)
    )


def _without_deltas(rule: Rule, account: Account) -> Account:
    """Return the account as if none of its charges had spent a delta outright."""
    found = Account()
    for event, times in account.counts.items():
        freed = Repeated(_changed(event, _scaled(0.0)), times)
        found = found.plus(freed, rule.cap.cost(freed), False)
    return found


def _rounded_down(delta: float) -> str:
    """Format with three digits, rounded down, so that the reported delta would be admitted."""
    return f"{delta * 0.995:.3g}"


def _changed(event: Event, change: Callable[[Event], Event]) -> Event:
    """Return the event with changed leaves and the same inexact sampling."""
    leaves = leaves_of(event)
    found: Event = Composed(tuple(Repeated(change(leaf), times) for leaf, times in leaves.counts))
    if leaves.variates:
        found = Discretized(found, leaves.variates)
    return Approximated(found, leaves.total_variation) if leaves.total_variation else found


def _scaled(part: float) -> Callable[[Event], Event]:
    return lambda leaf: (
        Approximate(leaf.epsilon, leaf.delta * part) if isinstance(leaf, Approximate) else leaf
    )


def _faint(leaf: Event) -> Event:
    """Return the same kind of mechanism with maximal noise; a delta that it spends outright stays."""
    if isinstance(leaf, Approximate):
        return Approximate(0.0, leaf.delta)
    return Approximate(0.0, 0.0) if isinstance(leaf, Pure | BoundedRange | Laplace) else _MOST_NOISE
