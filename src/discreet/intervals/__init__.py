"""Standard errors and intervals that count the privacy noise as well as the sampling."""

from discreet.intervals.intervals import coefficient_intervals

__all__ = ["coefficient_intervals"]
