"""Private model selection: the stated guarantee covers training and choosing."""

from discreet.search.selection import PrivateSearchCV, PrivateSelection

__all__ = ["PrivateSearchCV", "PrivateSelection"]
