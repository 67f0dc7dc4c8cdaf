"""What people see: tables and progress, colourful on a terminal and plain everywhere else."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO


def say(text: object = "") -> None:
    """One or more lines of result."""
    try:
        print(text, flush=True)
    except OSError as error:  # the errno makes it a BrokenPipeError again, if it was one
        raise OSError(error.errno, f"standard output could not be written: {error.strerror}") from error


def paragraph(text: str) -> None:
    """A long line of result, folded."""
    say("\n".join(textwrap.wrap(text, 96, subsequent_indent="  ", break_long_words=False)))


def note(text: str) -> None:
    """A remark that is not part of the result."""
    print(f"note: {text}", file=sys.stderr, flush=True)


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table; columns whose cells are all numbers are aligned to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    rightward = [bool(cells) and all(_numeric(row[i]) for row in cells) for i in range(len(header))]
    if _is_terminal(sys.stdout):
        _rich_table(title, header, cells, rightward)
        return
    widths = [max(len(row[i]) for row in [list(header), *cells]) for i in range(len(header))]
    say(title)
    for row in [list(header), ["-" * width for width in widths], *cells]:
        texts = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, rightward, strict=True)
        ]
        say("  " + "  ".join(texts).rstrip())


@contextmanager
def progress(description: str, total: int) -> Iterator[Callable[[str], None]]:
    """A bar of ``total`` steps on a terminal; after each step, call the result with what comes next."""
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
    """A sign of life on a terminal during work whose length is unknown."""
    if not _is_terminal(sys.stderr):
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(description):
        yield


def _is_terminal(stream: TextIO | None) -> bool:
    """Whether a person watches; a stream that was closed before Python began is None."""
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
