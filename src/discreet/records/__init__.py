"""Where rows live: sums of losses, gradients and curvatures over clipped records."""

from discreet.records.arrays import ArrayRecords
from discreet.records.base import Records
from discreet.records.bounds import Bounds, BoxBounds, gradient_rounding

__all__ = ["ArrayRecords", "Bounds", "BoxBounds", "Records", "gradient_rounding"]
