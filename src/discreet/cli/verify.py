"""``discreet verify``: recompute the promise of a model file, or refuse it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "verify",
        help="recompute the epsilon that a model file claims",
        description="Check that a model file is whole, that its claimed epsilon follows from its events, and, where "
        "a key or a ledger is given, who signed it and which charge paid for it. Exit code 1 if anything is wrong.",
    )
    parser.add_argument("model", metavar="MODEL", help="model file written by `discreet fit`")
    parser.add_argument("--key", metavar="FILE", help="public key (PEM) that must have signed the model")
    parser.add_argument(
        "--ledger", metavar="FILE", help="ledger that must hold the charge which the model names as its own"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Verify and print what was found."""
    from discreet import card
    from discreet._console import say
    from discreet.cli.outcome import opened

    if arguments.key is not None and not Path(arguments.key).is_file():
        raise FileNotFoundError(f"there is no key file {arguments.key!r}")
    ledger = None if arguments.ledger is None else opened(arguments.ledger)
    say(str(card.verify(arguments.model, key=arguments.key, ledger=ledger)))
