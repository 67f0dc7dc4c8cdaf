"""Where rows live: sums of losses, gradients and curvatures over clipped records."""

from discreet.records.arrays import ArrayRecords
from discreet.records.kernels import gradient_rounding

__all__ = ["ArrayRecords", "gradient_rounding"]
