"""Tables, remarks and progress for people: colorful on a terminal, plain everywhere else."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO


def printable(text: object, keep: str = "") -> str:
    r"""Escape what a terminal would obey or hide: control characters, line breaks, marks of direction.

    Text from a file, a ledger or a table goes through here before people read it.

    >>> print(printable("0.1.0\nSignature   valid\x1b[8m"))
    0.1.0\nSignature   valid\x1b[8m
    """
    return "".join(
        letter if letter.isprintable() or letter in keep else letter.encode("unicode_escape").decode("ascii")
        for letter in str(text)
    )


def say(text: object = "", *, folded: bool = False) -> None:
    """Print one or more lines of a result; a long line can be folded."""
    lines = printable(text, keep="\n\t")
    if folded:
        lines = "\n".join(textwrap.wrap(lines, 96, subsequent_indent="  ", break_long_words=False))
    try:
        print(lines, flush=True)
    except OSError as error:  # the errno makes it a BrokenPipeError again, if it was one
        raise OSError(error.errno, f"standard output could not be written: {error.strerror}") from error


def note(text: str) -> None:
    """Print a remark that is not part of the result, to standard error."""
    print(printable(f"note: {text}", keep="\n\t"), file=sys.stderr, flush=True)


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table; columns whose cells are all numbers are aligned to the right."""
    title, cells = printable(title), [[printable(cell) for cell in row] for row in rows]
    if _is_terminal(sys.stdout):
        _rich_table(title, header, cells, _rightward(header, cells))
        return
    say(title)
    for line in table_lines(header, cells):
        say(line)


def table_lines(header: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    r"""Return the lines of a plain table, indented; columns whose cells are all numbers are aligned to the right.

    >>> print("\n".join(table_lines(("ward", "people"), [("north", 1234), ("south", 56)])))
      ward   people
      -----  ------
      north    1234
      south      56
    """
    header, cells = [printable(name) for name in header], [[printable(cell) for cell in row] for row in rows]
    rightward = _rightward(header, cells)
    widths = [max(len(row[i]) for row in [header, *cells]) for i in range(len(header))]
    return [
        "  "
        + "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, rightward, strict=True)
        ).rstrip()
        for row in [header, ["-" * width for width in widths], *cells]
    ]


def _rightward(header: Sequence[str], cells: Sequence[Sequence[str]]) -> list[bool]:
    return [bool(cells) and all(_numeric(row[i]) for row in cells) for i in range(len(header))]


@contextmanager
def progress(description: str, total: int) -> Iterator[Callable[[str], None]]:
    """Show a bar of ``total`` steps on a terminal; after each step, call the result with what comes next."""
    if not _is_terminal(sys.stderr):
        yield lambda following: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=total)
        yield lambda following: bar.update(task, advance=1, description=following)


@contextmanager
def working(description: str) -> Iterator[None]:
    """Show a sign of life on a terminal during work of unknown length."""
    if not _is_terminal(sys.stderr):
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(description):
        yield


def _is_terminal(stream: TextIO | None) -> bool:
    """Whether the stream is a terminal; one that was closed before Python began is None."""
    return stream is not None and stream.isatty()


def _numeric(text: str) -> bool:
    try:
        float(text.rstrip("%") or 0)
    except ValueError:
        return False
    return True


def _rich_table(
    title: str, header: Sequence[str], cells: Sequence[Sequence[str]], rightward: Sequence[bool]
) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(title=title, title_justify="left")
    for name, right in zip(header, rightward, strict=True):
        drawn.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in cells:
        drawn.add_row(*(Text(cell) for cell in row))  # Text: a bracket in a label is no markup
    Console().print(drawn)
