"""Price the events of a file that nobody vouches for: within a bound on the work, or not at all.

A few lines can ask for hours: many different mechanisms, each of which needs a loss distribution of its own. Plans of
this library stay far below the limits, because calibrating them means pricing them many times over.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from discreet.card.card import CardError
from discreet.privacy.accounting import accountants
from discreet.privacy.accounting.objective import ANGLE_CELLS, TANGENT_POINTS
from discreet.privacy.events import (
    Approximate,
    Approximated,
    BoundedRange,
    Composed,
    Discretized,
    Event,
    Gaussian,
    Grouped,
    Laplace,
    ObjectivePerturbation,
    OneOf,
    Pure,
    RandomTries,
    Repeated,
    Subsampled,
)
from discreet.privacy.statement import PrivacyStatement

MOST_WORK = 6.0  # seconds of one processor, or so
MOST_PARTS = 10_000
MOST_RECORDS = 1000  # of one person, and models that are perturbed at once
MOST_PROFILES = 500_000  # Gaussian ones, that bound the profile of models that are perturbed at once
MOST_RUNS = 2**20  # of mechanisms that are not Gaussian
_LIGHT = 2.0  # seconds up to which epsilon is searched for; beyond, the claim is checked at one point
_FAR = 8.0  # privacy loss of one mechanism, above which compositions take as long as those of perturbed objectives
_SEARCH = 35  # points at which a search asks for delta


def check_size(statement: PrivacyStatement) -> None:
    """Raise ``CardError`` if the events of a statement cannot be priced in reasonable time."""
    if work(statement.event) > MOST_WORK:
        raise CardError("its events are too many, or too different, to be priced")


def recomputed(statement: PrivacyStatement) -> float:
    """The epsilon that follows from a statement's events at the claimed delta, infinite if it is not the claimed one.

    Where the exact number would take long, the claimed epsilon stands for any that is smaller.
    """
    promise, event = statement.guarantee, statement.event
    try:
        if _SEARCH * work(event) <= _LIGHT:
            return accountants.epsilon(event, promise.delta, promise.neighboring)
        fits = accountants.delta(event, promise.epsilon, promise.neighboring) <= promise.delta
    except (OverflowError, ValueError) as error:
        raise CardError(f"its events have no price: {error}") from None
    return promise.epsilon if fits else math.inf


def work(event: Event) -> float:
    """How long it may take to ask for delta at one point, in seconds of one processor; infinite beyond all limits.

    Measured, with room to spare. Of alternatives (`OneOf`) one is searched for, and the others are compared with it.
    """
    if _count(event) > MOST_PARTS:
        return math.inf
    return sum(_work(parts) * times for parts, times in _compositions(event, 1))


def _work(counts: dict[Event, int]) -> float:
    """The work of one composition at one point."""
    if any(_size(leaf) > MOST_RECORDS or _profiles(leaf) > MOST_PROFILES for leaf in counts):
        return math.inf
    others = [leaf for leaf in counts if not isinstance(leaf, Gaussian)]
    slow = [
        leaf
        for leaf in others
        if isinstance(leaf, ObjectivePerturbation | Grouped | Subsampled) or _far(leaf)
    ]
    runs = sum(counts[leaf] for leaf in others)
    if runs > MOST_RUNS:
        return math.inf
    if len(counts) == 1 and runs <= 1:
        return 0.0025 + 1e-6 * _profiles(slow[0]) if slow and not _far(slow[0]) else 0.0002
    return 0.0002 + 0.9 * len(slow) + 0.02 * (len(others) - len(slow)) + 0.0001 * math.pow(runs, 0.7)


def _far(leaf: Event) -> bool:
    """Whether losses are so large that a distribution of them has many points."""
    match leaf:
        case Pure(epsilon=epsilon) | Approximate(epsilon=epsilon) | BoundedRange(epsilon=epsilon):
            return epsilon > _FAR
        case Laplace(noise_multiplier=multiplier):
            return multiplier * _FAR < 1
        case _:
            return False


def _compositions(event: Event, asked: int) -> Iterator[tuple[dict[Event, int], int]]:
    """All lists of mechanisms that are composed with each other, inner ones too, and how often each is asked."""
    counts: dict[Event, int] = {}
    stack = [(event, 1)]
    while stack:
        node, times = stack.pop()
        match node:
            case Repeated(event=inner, times=more):
                stack.append((inner, times * more))
            case Composed(events=parts):
                stack += [(part, times) for part in parts]
            case Approximated(event=inner) | Discretized(event=inner):
                stack.append((inner, times))
            case OneOf(events=parts):
                for place, part in enumerate(dict.fromkeys(parts)):
                    yield from _compositions(part, max(asked, 2 if place else _SEARCH))
                counts[node] = times
            case RandomTries(event=inner):
                parts = tuple(dict.fromkeys(inner.events)) if isinstance(inner, OneOf) else (inner,)
                for place, part in enumerate(parts):
                    yield from _compositions(part, max(asked, 4 if place else 2 * _SEARCH))
                counts[node] = times
            case _:
                counts[node] = counts.get(node, 0) + times
    yield counts, asked


def _count(event: Event) -> int:
    """How many events a tree consists of."""
    total, stack = 0, [event]
    while stack:
        node = stack.pop()
        total += 1
        stack += [*getattr(node, "events", ()), *([node.event] if hasattr(node, "event") else ())]
    return total


def _size(leaf: Event) -> int:
    match leaf:
        case Grouped(event=inner, size=size):
            return max(size, _size(inner))
        case ObjectivePerturbation(n_outputs=models):
            return models
        case Subsampled(event=inner):
            return _size(inner)
        case _:
            return 1


def _profiles(leaf: Event) -> int:
    """How many Gaussian profiles are added up to price perturbed objectives: see `accounting.objective`."""
    match leaf:
        case Grouped(event=inner) | Subsampled(event=inner):
            return _profiles(inner)
        case ObjectivePerturbation(family="logistic", n_outputs=models):
            return len(TANGENT_POINTS) * math.comb(models + 3, 3)
        case ObjectivePerturbation(family="monotone", n_outputs=models):
            return math.comb(models + 2, 2)
        case ObjectivePerturbation(family="general", n_outputs=models):
            return ANGLE_CELLS * (models + 1)
        case ObjectivePerturbation(family="softmax"):
            return 15_000  # integrals, which take as long
        case _:
            return 1
