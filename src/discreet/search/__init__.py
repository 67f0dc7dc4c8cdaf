"""Choose among models with the cost of choosing inside the promise."""

from discreet.search.search import PrivateSearchCV, PrivateSelection

__all__ = ["PrivateSearchCV", "PrivateSelection"]
