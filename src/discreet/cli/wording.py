"""Errors of the library in the words of the command line: its own options, and none that the command does not have."""

from __future__ import annotations

import argparse
import re

# What messages call a parameter, what the command line calls it, and the option that a command must have for it.
_OPTIONS = (
    (r"bad_rows='null'", "--bad-rows null", "bad_rows"),
    (r"n_samples=\.\.\.", "--max-rows N", "max_rows"),
    (r"n_samples=(\d+)", r"--max-rows \1", "max_rows"),
    (r"neighboring='([a-z-]+)'", r"--neighboring \1", "neighboring"),
    (r"max_rows_per_group=\.\.\.", "--max-rows-per-group K", "max_rows_per_group"),
    (r"solver='([a-z-]+)'", r"--solver \1", "solver"),
    (r"\bdelta=([0-9.e-]+)", r"--delta \1", "delta"),
)
_UNKNOWN = r"(ask for|pass) bad_rows='null'[^;.,]*"  # still there: the command does not have the option
_WORDS = (
    (rf", (leave them empty), or {_UNKNOWN}", r" or \1"),
    (rf",? or {_UNKNOWN}", ""),
    (r"a ledger created with adaptive=False", "a ledger created with --fixed-sizes"),
    (r"\bn_samples\*\*2", "rows^2"),
    (r"\bn_samples\b", "rows"),
)


def spoken(message: str, arguments: argparse.Namespace) -> str:
    """The message for somebody who typed a command.

    >>> spoken("correct them, or pass bad_rows='null' to ignore such rows", argparse.Namespace(bad_rows="error"))
    'correct them, or pass --bad-rows null to ignore such rows'
    >>> spoken("correct them, or pass bad_rows='null' to ignore such rows", argparse.Namespace())
    'correct them'
    >>> spoken("correct them, leave them empty, or ask for bad_rows='null'", argparse.Namespace())
    'correct them or leave them empty'
    """
    for pattern, words, option in _OPTIONS:
        if hasattr(arguments, option):
            message = re.sub(pattern, words, message)
    for pattern, words in _WORDS:
        message = re.sub(pattern, words, message)
    return message
