"""An event tree as accountants see it: ideal leaves with multiplicities, and the slip of inexact sampling."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from discreet.privacy.events import (
    Approximate,
    Approximated,
    BoundedRange,
    Composed,
    Discretized,
    Event,
    Gaussian,
    Laplace,
    NonPrivate,
    OneOf,
    Pure,
    RandomTries,
    Repeated,
    Subsampled,
)
from discreet.privacy.guarantee import Neighboring

MOST_RUNS = 10**30  # of one mechanism, or of Gaussian variates: far more than any price is meant for


@dataclass(frozen=True)
class Leaves:
    """The mechanisms of an event, each with its number of runs.

    counts : distinct ideal leaves (no ``Repeated``, ``Composed``, ``Approximated`` or ``NonPrivate`` among
    them).
    total_variation : how far the law of everything together may be from the ideal one, on every data set.
    variates : how many Gaussian variates were drawn on a grid instead of the reals.
    private : False as soon as one part has no guarantee at all.
    relations : the relations that parts were priced under in advance; under others they have no price.
    """

    counts: tuple[tuple[Event, int], ...] = ()
    total_variation: float = 0.0
    variates: int = 0
    private: bool = True
    relations: frozenset[Neighboring] = frozenset()

    def __post_init__(self) -> None:
        if max([self.variates, *(times for _, times in self.counts)]) > MOST_RUNS:
            raise ValueError("no more than 10**30 runs of one mechanism can be priced; repeat it less often")

    def hold_under(self, neighboring: Neighboring) -> bool:
        """Whether all parts that were priced in advance were priced under ``neighboring``."""
        return self.relations <= {neighboring}


@lru_cache(maxsize=4096)
def leaves_of(event: Event) -> Leaves:
    """Take an event tree apart; parts that reveal nothing are dropped.

    Slips add up over parts and repetitions: the laws of two runs, each within t of its ideal, are within 2t
    (``docs/proofs/composition.md``, section 7).

    >>> leaves_of(Repeated(Composed((Approximated(Gaussian(2.0), 1e-15), Pure(0.5))), 2))
    Leaves(counts=((Gaussian(noise_multiplier=2.0), 2), (Pure(epsilon=0.5), 2)), total_variation=2e-15,
           variates=0, private=True, relations=frozenset())
    """
    if isinstance(event, Repeated):
        inner = leaves_of(event.event)
        return replace(
            inner,
            counts=tuple((leaf, times * event.times) for leaf, times in inner.counts),
            total_variation=inner.total_variation * event.times,
            variates=inner.variates * event.times,
        )
    if isinstance(event, Composed):
        parts = [leaves_of(part) for part in event.events]
        merged: dict[Event, int] = {}
        for part in parts:
            for leaf, times in part.counts:
                merged[leaf] = merged.get(leaf, 0) + times
        slip = math.fsum(part.total_variation for part in parts)
        variates = sum(part.variates for part in parts)
        private, relations = all(part.private for part in parts), [part.relations for part in parts]
        return Leaves(tuple(merged.items()), slip, variates, private, frozenset().union(*relations))
    if isinstance(event, Approximated):
        inner = leaves_of(event.event)
        return replace(inner, total_variation=inner.total_variation + event.total_variation)
    if isinstance(event, Discretized):
        inner = leaves_of(event.event)
        return replace(inner, variates=inner.variates + event.variates)
    if isinstance(event, Subsampled):
        if isinstance(event.event, Approximated):  # a mixture of laws within t of their ideals is within t
            outer = Subsampled(event.event.event, event.rate, event.scheme)
            return leaves_of(Approximated(outer, event.event.total_variation))
        if isinstance(event.event, Discretized):  # a mixture of laws within a factor of their ideals likewise
            return leaves_of(
                Discretized(Subsampled(event.event.event, event.rate, event.scheme), event.event.variates)
            )
        if event.rate == 0 or event.rate == 1:
            return leaves_of(event.event) if event.rate else Leaves()
    if isinstance(event, OneOf | RandomTries):
        from discreet.privacy.tries import summarized  # asks accountants, which ask for leaves

        return replace(leaves_of(summarized(event)), relations=frozenset({Neighboring(event.neighboring)}))
    if isinstance(event, NonPrivate) or _says_nothing(event):
        return Leaves(private=False)
    if _reveals_nothing(event):
        return Leaves()
    return Leaves(((event, 1),))


def _says_nothing(event: Event) -> bool:
    if isinstance(event, Pure | BoundedRange | Approximate):
        return math.isinf(event.epsilon) or (isinstance(event, Approximate) and event.delta == 1)
    return False


def _reveals_nothing(event: Event) -> bool:
    if isinstance(event, Gaussian | Laplace):
        return math.isinf(event.noise_multiplier)
    return isinstance(event, Approximate) and event.epsilon == 0 and event.delta == 0
