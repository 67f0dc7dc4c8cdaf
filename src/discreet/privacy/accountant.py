"""The frame of every accountant: checks, inexact sampling, and the search for an epsilon."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

from scipy.optimize import brentq

from discreet.privacy.events import Event
from discreet.privacy.grid import delta_on_grid, ideal_target
from discreet.privacy.guarantee import Neighboring
from discreet.privacy.leaves import Leaves, leaves_of

Counts = tuple[tuple[Event, int], ...]


class UnsupportedEvent(ValueError):
    """No accountant has a proof for this event under this relation."""


def priced_leaves(event: Event, neighboring: Neighboring) -> Leaves:
    """The leaves of ``event``, or ``UnsupportedEvent`` if a part was priced in advance under another relation."""
    leaves = leaves_of(event)
    if not leaves.hold_under(neighboring):
        asked = ", ".join(sorted(relation.value for relation in leaves.relations))
        raise UnsupportedEvent(
            f"{event!r} was priced under {asked}, and there is no proof for it under {neighboring.value}; plan it "
            f"for {neighboring.value}, or ask under {asked}"
        )
    return leaves


class Accountant(ABC):
    """Prices events it supports.

    Privacy
    -------
    ``delta`` and ``epsilon`` are upper bounds for adaptive composition with a fixed list of events. For
    sizes chosen along the way use a ledger. With a total variation t between the laws sampled and the ideal
    ones, ``(1 + e^epsilon) t`` is added to delta.
    """

    name: ClassVar[str]

    def supports(self, event: Event, neighboring: Neighboring) -> bool:
        """Whether this accountant has a proof for ``event`` under ``neighboring``."""
        leaves = leaves_of(event)
        return leaves.hold_under(neighboring) and self._supports(leaves.counts, neighboring)

    def delta(self, event: Event, epsilon: float, neighboring: Neighboring) -> float:
        """Upper bound on delta at ``epsilon`` >= 0."""
        if not epsilon >= 0:
            raise ValueError(f"epsilon must be a number of at least 0, got {epsilon!r}")
        leaves = self._checked(event, neighboring)
        if not leaves.private:
            return 1.0
        on_grid = delta_on_grid(
            lambda ideal: self._delta(leaves.counts, ideal, neighboring), leaves.variates, epsilon
        )
        return _with_slip(on_grid, leaves.total_variation, epsilon)

    def epsilon(self, event: Event, delta: float, neighboring: Neighboring) -> float:
        """Upper bound on the smallest epsilon at ``delta``; infinite if there is none."""
        if not 0 <= delta <= 1:
            raise ValueError(f"delta must lie between 0 and 1, got {delta!r}")
        leaves = self._checked(event, neighboring)
        if delta == 1:
            return 0.0
        if not leaves.private:
            return math.inf
        slip, found = leaves.total_variation, 0.0
        if slip == 0 and leaves.variates == 0:
            return self._epsilon(leaves.counts, delta, neighboring)
        for _ in range(100):  # climbs to the smallest epsilon whose own slip leaves enough of delta
            shift, room = ideal_target(delta - _with_slip(0.0, slip, found), leaves.variates, found)
            if room <= 0 or math.isinf(found):
                return math.inf
            needed = self._epsilon(leaves.counts, room, neighboring) + shift
            if needed <= found:
                return found
            found = needed * (1 + 1e-12)
        return math.inf

    def _checked(self, event: Event, neighboring: Neighboring) -> Leaves:
        leaves = priced_leaves(event, neighboring)
        if leaves.private and not self._supports(leaves.counts, neighboring):
            raise UnsupportedEvent(
                f"the {self.name} accountant has no proof for {event!r} under {neighboring.value}"
            )
        return leaves

    @abstractmethod
    def _supports(self, counts: Counts, neighboring: Neighboring) -> bool: ...

    @abstractmethod
    def _delta(self, counts: Counts, epsilon: float, neighboring: Neighboring) -> float: ...

    @abstractmethod
    def _epsilon(self, counts: Counts, delta: float, neighboring: Neighboring) -> float: ...


def _with_slip(ideal: float, total_variation: float, epsilon: float) -> float:
    if total_variation == 0:
        return min(1.0, ideal)
    growth = math.exp(epsilon) if epsilon < 700 else math.inf
    return min(1.0, math.nextafter(ideal + (1 + growth) * total_variation * (1 + 1e-15), 1.0))


def smallest_epsilon(delta_at: Callable[[float], float], delta: float) -> float:
    """Smallest epsilon >= 0 with ``delta_at(epsilon) <= delta``, rounded up; ``delta_at`` must not
    increase.
    """
    if delta_at(0.0) <= delta:
        return 0.0
    if delta <= 0:
        return math.inf
    high = 1.0
    while delta_at(high) > delta:
        high *= 2
        if high > 1e7:
            return math.inf

    def excess(epsilon: float) -> float:
        value = math.log(max(delta_at(epsilon), 1e-300) / delta)
        # Where the curve is flat, its first point is wanted.
        return value if value > 0 else min(value, -1e-12)

    root = float(brentq(excess, high / 2 if high > 1 else 0.0, high, xtol=1e-13, rtol=1e-11))
    step = 1e-12
    while delta_at(root) > delta:
        root, step = root * (1 + step) + 1e-15, 2 * step
    return root
