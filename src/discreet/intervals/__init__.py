"""Standard errors and confidence intervals that account for privacy noise and sampling."""

from discreet.intervals.intervals import coefficient_intervals

__all__ = ["coefficient_intervals"]
