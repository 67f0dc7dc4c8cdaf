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
    match event:
        case Repeated(event=inner, times=times):
            return _repeated(leaves_of(inner), times)
        case Composed(events=parts):
            return _together([leaves_of(part) for part in parts])
        case Approximated(event=inner, total_variation=slip):
            found = leaves_of(inner)
            return replace(found, total_variation=found.total_variation + slip)
        case Discretized(event=inner, variates=variates):
            found = leaves_of(inner)
            return replace(found, variates=found.variates + variates)
        case Subsampled(event=Approximated() | Discretized() as inner):
            # A mixture of laws, each within t or within a factor of its ideal, is as near to the mixture of the ideals.
            return leaves_of(replace(inner, event=replace(event, event=inner.event)))
        case Subsampled(rate=0):
            return Leaves()
        case Subsampled(event=inner, rate=1):
            return leaves_of(inner)
        case OneOf() | RandomTries():
            from discreet.privacy.tries import summarized  # asks accountants, which ask for leaves

            return replace(
                leaves_of(summarized(event)), relations=frozenset({Neighboring(event.neighboring)})
            )
        case NonPrivate() | Pure(epsilon=math.inf) | BoundedRange(epsilon=math.inf):
            return Leaves(private=False)
        case Approximate(epsilon=math.inf) | Approximate(delta=1):
            return Leaves(private=False)
        case Gaussian(noise_multiplier=math.inf) | Laplace(noise_multiplier=math.inf):
            return Leaves()
        case Approximate(epsilon=0, delta=0):
            return Leaves()
        case _:
            return Leaves(((event, 1),))


def _repeated(leaves: Leaves, times: int) -> Leaves:
    return replace(
        leaves,
        counts=tuple((leaf, runs * times) for leaf, runs in leaves.counts),
        total_variation=leaves.total_variation * times,
        variates=leaves.variates * times,
    )


def _together(parts: list[Leaves]) -> Leaves:
    counts: dict[Event, int] = {}
    for leaf, runs in (count for part in parts for count in part.counts):
        counts[leaf] = counts.get(leaf, 0) + runs
    return Leaves(
        tuple(counts.items()),
        math.fsum(part.total_variation for part in parts),
        sum(part.variates for part in parts),
        all(part.private for part in parts),
        frozenset().union(*(part.relations for part in parts)),
    )
