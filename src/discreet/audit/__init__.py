"""Attacks on this package's own promises: replays that check sensitivities, and lower bounds on epsilon.

``replay`` checks, step by step, that a program did what it charged for; ``attack`` and ``estimates`` try to
distinguish two neighboring data sets by what is released. See docs/audit.md.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "AuditReport": "report",
    "LowerBound": "estimates",
    "MembershipView": "membership",
    "Weakener": "trace",
    "audit": "report",
    "audit_program": "report",
    "fitting": "trace",
    "running": "trace",
    "worst_pair": "worst_pairs",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
