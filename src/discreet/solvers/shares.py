"""Gaussian releases that share one budget.

Squared Gaussian-DP parameters add up. A release that gets the share s of the sum has 1 / sqrt(s) times the noise
multiplier that a single release with the whole budget would have, which is the unit here.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from discreet.privacy import events
from discreet.privacy.calibration import calibrate
from discreet.privacy.guarantee import Guarantee

_MARGIN = 1 + 2.0**-30  # so that an epsilon found by search, to a finite precision, is not above the promise


def calibrated_unit(event: Callable[[float], events.Event], guarantee: Guarantee) -> float:
    """The least unit with which the event of all releases meets the guarantee."""
    return calibrate(event, guarantee) * _MARGIN


def multiplier(unit: float, share: float) -> float:
    """The noise multiplier of a release that gets this share."""
    return unit / math.sqrt(share)


def share_event(unit: float, share: float, size: int) -> events.Event:
    """What a release of ``size`` numbers with this share costs."""
    return events.Discretized(events.Gaussian(multiplier(unit, share)), size)
