"""The command line: one module per command, listed in ``COMMANDS``.

Each command is one module with ``add_parser`` (which imports nothing heavy, so that help is instant) and
``run``. Exit codes: 0 for success, 1 for a failure, explained in one line on standard error, 2 for a wrong
command line.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from typing import TextIO

from discreet import __version__
from discreet.cli import (
    audit,
    bench,
    demo,
    evaluate,
    fit,
    ledger,
    plan,
    predict,
    schema,
    transfer,
    verify,
    wording,
)

COMMANDS = (demo, schema, plan, transfer, fit, predict, evaluate, verify, ledger, audit, bench)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    parser = _parser()
    arguments = parser.parse_args(transfer.joined(sys.argv[1:] if argv is None else argv))
    if not hasattr(arguments, "run"):
        parser.print_help(sys.stderr)
        return 2
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            with ledger.interruptible(getattr(arguments, "ledger", None)):
                return int(arguments.run(arguments) or 0)
        except KeyboardInterrupt as error:
            print(f"interrupted; {error}" if str(error) else "interrupted", file=sys.stderr)
            return 130
        except BrokenPipeError:
            # The reader of our output left, as `head` does; there is nobody to complain to.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        except Exception as error:
            if arguments.traceback:
                raise
            print(f"error: {wording.spoken(_one_line(error), arguments)}", file=sys.stderr)
            return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="discreet",
        description="Train models on sensitive data under differential privacy.",
        epilog="`discreet COMMAND --help` explains a command; `discreet demo` shows them on invented people.",
    )
    parser.add_argument("--version", action="version", version=f"discreet {__version__}")
    parser.add_argument(
        "--traceback", action="store_true", help="show where in the code an error arose (it may quote data)"
    )
    commands = parser.add_subparsers(metavar="COMMAND")
    for command in COMMANDS:
        command.add_parser(commands)
    return parser


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno is not None and error.strerror:
        text = error.strerror if error.filename is None else f"{error.strerror}: {error.filename!r}"
    else:
        text = str(error)
    return " ".join(text.split()) or type(error).__name__


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    print(f"warning: {' '.join(str(message).split())}", file=sys.stderr)
