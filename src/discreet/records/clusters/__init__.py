"""Rows on clusters: parts stay with the processes that made them, and only sums travel."""
