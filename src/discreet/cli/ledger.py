"""``discreet ledger``: create a budget, see what is left of it, see who used it."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path
from typing import Any

from discreet.cli import options


def add_parser(commands: Any) -> None:
    """Declare the command and its three actions."""
    parser = commands.add_parser(
        "ledger",
        help="create, show and list a privacy budget",
        description="A ledger is one file per data set: a cap, and every charge ever made against it.",
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    create = actions.add_parser("create", help="make a new ledger with a cap that can never be changed")
    create.add_argument("path", metavar="FILE")
    create.add_argument("--epsilon", type=options.positive, required=True, metavar="E", help="cap on epsilon")
    create.add_argument("--delta", type=options.fraction, required=True, metavar="D", help="cap on delta")
    create.add_argument("--neighboring", choices=options.NEIGHBORING, default="replace-one")
    create.add_argument(
        "--fixed-sizes",
        action="store_true",
        help="promise that no charge's size will depend on an earlier result; composition is then tighter",
    )
    create.set_defaults(run=run_create)
    show = actions.add_parser("show", help="what was spent and what is left")
    show.add_argument("path", metavar="FILE")
    show.set_defaults(run=run_show)
    history = actions.add_parser("history", help="every charge, in order")
    history.add_argument("path", metavar="FILE")
    history.set_defaults(run=run_history)


def run_create(arguments: argparse.Namespace) -> None:
    """Create a ledger where there is nothing yet."""
    from discreet._console import say
    from discreet.privacy.ledger import Ledger

    if Path(arguments.path).exists():
        raise FileExistsError(
            f"{arguments.path!r} exists; the cap of a ledger is never changed, choose another path"
        )
    ledger = Ledger(
        arguments.path,
        epsilon=arguments.epsilon,
        delta=arguments.delta,
        neighboring=arguments.neighboring,
        adaptive=not arguments.fixed_sizes,
    )
    say(f"Ledger {arguments.path} created: {_cap(ledger)}")


def run_show(arguments: argparse.Namespace) -> None:
    """Print cap, spent and remaining."""
    from discreet._console import say

    ledger = opened(arguments.path)
    sizes = "may depend on earlier results" if ledger.adaptive else "were all fixed in advance"
    say(f"Ledger     {arguments.path}")
    say(f"Cap        {_cap(ledger)}")
    say(f"Sizes      {sizes}")
    say(f"Spent      {ledger.spent()}")
    say(f"Remaining  {ledger.remaining()}")


def run_history(arguments: argparse.Namespace) -> None:
    """Print every charge with its price alone."""
    from discreet._console import table

    ledger = opened(arguments.path)
    rows = [
        (
            charge.sequence,
            charge.time,
            charge.label,
            f"{ledger.price(charge.event):.4g}",
            _described(charge.event),
        )
        for charge in ledger.history()
    ]
    title = f"Charges to {arguments.path} ({_cap(ledger)})"
    table(title, ("no", "time (UTC)", "label", "epsilon alone", "event"), rows)


def opened(path: str) -> Any:
    """An existing ledger; a missing one is an error, not a new one."""
    from discreet.privacy.ledger import Ledger

    if not Path(path).exists():
        raise FileNotFoundError(f"there is no ledger {path!r}; `discreet ledger create` makes one")
    return Ledger(path)


def _cap(ledger: Any) -> str:
    return f"epsilon {ledger.epsilon:g}, delta {ledger.delta:g}, {ledger.neighboring.value}"


def _described(event: Any) -> str:
    """The event without the bookkeeping around it, in one short line."""
    inner = getattr(event, "event", event)
    values = {field.name: getattr(inner, field.name) for field in fields(inner)}
    numbers = ", ".join(
        f"{name} {value:.4g}" for name, value in values.items() if isinstance(value, int | float)
    )
    return f"{type(inner).__name__}({numbers})"
