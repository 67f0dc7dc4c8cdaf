"""Why a charge does not fit: which of epsilon and delta binds, and what would be admitted instead.

Epsilon is shared by everything and is bought back with noise. Delta is used in two ways (docs/ledger.md, section 2):
all Gaussian noise together shares the cap's, while a charge of which nothing is known but its epsilon and delta, as of
a search, spends its delta outright, as a chance of failure. Such deltas add up, and no noise makes up for them.
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

_CLOSE = 1e-3  # of the numbers that are told to people
_MOST_NOISE = Gaussian(1e9)


def binding(rule: Rule, account: Account, event: Event) -> str:
    """Which of epsilon and delta keeps a refused ``event`` out, and how much of it could be asked for."""
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
    """How much delta the same charge could spend, with its epsilon or with hardly any."""
    same = _told(own * _share(rule, account, event))
    if same != "0":
        return f"and with the same epsilon up to {same} is admitted. Ask for a delta of at most that"
    little = _told(own * _share(rule, account, _changed(event, _faint)))
    if little == "0":
        return "and none is left. Ask for a pure release (delta=0, where a solver offers it), or stop here"
    return (
        f"and even with an epsilon near 0 only up to {little} is admitted. Ask for less of both, or stop here"
    )


def _share(rule: Rule, account: Account, event: Event) -> float:
    """The largest part of the deltas in ``event`` with which it would be admitted."""
    return largest(lambda part: rule.surely_admits(account, _changed(event, _scaled(part))), 1.0, _CLOSE)


def _room(rule: Rule, account: Account) -> str:
    """The largest delta that a charge of hardly any epsilon could spend outright."""
    cap = rule.cap.cap_delta
    return _told(largest(lambda delta: rule.surely_admits(account, Approximate(0.0, delta)), cap, _CLOSE))


def _without_deltas(rule: Rule, account: Account) -> Account:
    """The account as if none of its charges had spent a delta outright."""
    found = Account()
    for event, times in account.counts.items():
        freed = Repeated(_changed(event, _scaled(0.0)), times)
        found = found.plus(freed, rule.cap.cost(freed), False)
    return found


def _told(delta: float) -> str:
    """Three digits, rounded down: what is told would be admitted."""
    return f"{delta * 0.995:.3g}"


def _changed(event: Event, change: Callable[[Event], Event]) -> Event:
    """The event with other leaves, sampled as inexactly."""
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
    """The same kind of mechanism with as much noise as one likes; a delta that it spends outright stays."""
    if isinstance(leaf, Approximate):
        return Approximate(0.0, leaf.delta)
    return Approximate(0.0, 0.0) if isinstance(leaf, Pure | BoundedRange | Laplace) else _MOST_NOISE
