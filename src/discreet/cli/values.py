"""What options may hold: numbers within limits, names, and files that must be there; for argparse's ``type``."""

from __future__ import annotations

import argparse
import difflib
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


def did_you_mean(text: str, known: Iterable[str]) -> str:
    """A question that names the nearest of the known words; nothing if none is near.

    >>> did_you_mean("fti", ["fit", "plan"])
    "; did you mean 'fit'?"
    """
    near = difflib.get_close_matches(text, list(known), 1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""


def unknown(what: str, text: str, known: Iterable[str]) -> str:
    """There is no such thing, and what there is.

    >>> unknown("model", "forest", ["logistic", "svm"])
    "there is no model 'forest'; there are logistic, svm"
    """
    words = list(known)
    advice = did_you_mean(text, words) or f"; there are {', '.join(words)}"
    return f"there is no {what} {text!r}{advice}"


def real(text: str) -> float:
    """A finite number."""
    return _number(text, lambda value: True, "a finite number")


def positive(text: str) -> float:
    """A finite number greater than 0."""
    return _number(text, lambda value: value > 0, "a finite number greater than 0")


def epsilon(text: str) -> float:
    """A budget; beyond the largest nothing is promised and no accountant has digits enough."""
    return _number(text, lambda value: 0 < value <= 1e6, "greater than 0 and at most 1000000")


def fraction(text: str) -> float:
    """A number in [0, 1)."""
    return _number(text, lambda value: 0 <= value < 1, "at least 0 and less than 1")


def count(text: str, most: int = 10**12) -> int:
    """A whole number from 1 to ``most``."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value <= most:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {most}, got {text!r}")
    return value


def columns(text: str) -> int:
    """A number of columns that can be planned for."""
    return count(text, 10**7)


def separator(text: str) -> str:
    r"""What stands between the fields of a CSV file: one character, ``tab`` or ``\t``."""
    mark = {"tab": "\t", r"\t": "\t"}.get(text, text)
    if len(mark) != 1 or mark in "\"'\r\n" or mark.isalnum():
        raise argparse.ArgumentTypeError(f"must be one character such as ';', or 'tab', got {text!r}")
    return mark


def _number(text: str, allowed: Callable[[float], bool], wanted: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and allowed(value)):
        raise argparse.ArgumentTypeError(f"must be {wanted}, got {text!r}")
    return value


class InputFile(str):
    """The name of a file that a command reads; `check` says what is wrong before anything heavy is imported."""

    what: str

    def check(self) -> None:
        """Raise unless there is such a file; what it holds is for its reader to say."""
        if "://" in self or any(mark in self for mark in "*?["):
            return
        if not Path(self).exists():
            raise FileNotFoundError(f"there is no {self.what} {str(self)!r}{_ADVICE.get(self.what, '')}")


_ADVICE = {"ledger": "; `discreet ledger create` makes one", "key file": "; `discreet key` makes a pair"}


def input_file(what: str) -> Callable[[str], InputFile]:
    """A type of argument: the name of a file to read, which errors call ``what``."""

    def read(text: str) -> InputFile:
        path = InputFile(text)
        path.what = what
        return path

    return read


def check_inputs(arguments: argparse.Namespace) -> None:
    """Raise if a file that the command reads is not there."""
    values: list[Any] = list(vars(arguments).values())
    for value in values:
        if isinstance(value, InputFile):
            value.check()
