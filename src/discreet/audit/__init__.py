"""Attacks on this package's own promises: replays that check sensitivities, and lower bounds on epsilon.

``replay`` checks, step by step, that what a program did is what it charged for; ``attack`` and ``estimates``
try to tell two neighboring data sets apart from released numbers alone. See docs/audit.md.
"""
