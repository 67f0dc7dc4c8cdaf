"""The ``ledger`` command: create a budget, see what is left of it, see who used it and when."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path
from typing import Any

from discreet.cli import options
from discreet.cli.options import Command, argument, command, epsilon, fraction, input_file
from discreet.cli.session import opened

_BARS, _WIDTH = 25, 40
_PARTS = 3  # of a composed event that are shown
_RECORDED = "not recorded"
_LEDGER = argument("path", type=input_file("ledger"), metavar="FILE")


@command(
    "create",
    "make a new ledger with a cap that can never be changed",
    None,
    argument("path", metavar="FILE", help="new file"),
    argument("--epsilon", type=epsilon, required=True, metavar="E", help="cap on epsilon"),
    argument(
        "--delta",
        type=fraction,
        required=True,
        metavar="D",
        help="cap on delta, far below 1 / people: 1e-6 is usual",
    ),
    argument("--neighboring", choices=options.NEIGHBORING, default="replace-one"),
    argument(
        "--unit",
        choices=("record", "user"),
        default="record",
        help="whom the cap protects: each row, or all rows of a person",
    ),
    argument(
        "--fixed-sizes",
        action="store_true",
        help="promise that no charge's size will depend on an earlier result; composition is then tighter",
    ),
    examples=(
        "discreet ledger create budget.ledger --epsilon 3 --delta 1e-6",
        "discreet ledger create people.ledger --epsilon 3 --delta 1e-6 --unit user",
    ),
)
def create(arguments: argparse.Namespace) -> None:
    """Create a ledger where there is nothing yet."""
    from discreet.display.console import say
    from discreet.privacy.ledger.ledger import Ledger

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
        unit=arguments.unit,
    )
    say(f"Ledger {arguments.path} created: {_cap(ledger)}")


@command("show", "what was spent, by whom, and what is left", None, _LEDGER)
def show(arguments: argparse.Namespace) -> None:
    """Print cap, spent and remaining."""
    from discreet.display.console import say, table

    ledger = opened(arguments.path)
    sizes = "may depend on earlier results" if ledger.adaptive else "were all fixed in advance"
    say(f"Ledger     {arguments.path}")
    say(f"Cap        {_cap(ledger)}")
    say(f"Sizes      {sizes}")
    say(f"Spent      {ledger.spent()}")
    say(f"Remaining  {ledger.remaining()}")
    charges = ledger.history()
    say(f"Head       {ledger.head}")
    if charges:
        say()
        table(
            "Who spent what: by how much their charges raised what is spent, in order; the numbers add up to it",
            ("who", "charges", "epsilon"),
            shares(ledger, charges),
        )


def shares(ledger: Any, charges: list[Any]) -> list[tuple[str, int, str]]:
    """Everybody in the ledger, with the number of their charges and by how much these raised what is spent."""
    from discreet.privacy.ledger.page import shares as raised

    return [(who or "(unknown)", count, f"{epsilon:.4g}") for who, count, epsilon in raised(ledger, charges)]


def by_person(ledger: Any) -> list[tuple[str, int, str]]:
    """Everybody in the ledger, with the number and the price of their charges, largest first."""
    from discreet.privacy.ledger.page import by_person as priced

    return [
        (who or "(unknown)", count, f"{price:.4g}") for who, count, price in priced(ledger, ledger.history())
    ]


@command("history", "every charge, in order", None, _LEDGER)
def history(arguments: argparse.Namespace) -> None:
    """Print every charge with its price alone."""
    from discreet.display.console import table

    ledger = opened(arguments.path)
    rows = [
        (
            charge.sequence,
            charge.time,
            charge.who,
            charge.label,
            _protected(charge),
            f"{ledger.price(charge.event):.4g}",
            _described(charge.event),
            _RECORDED if charge.released is None else charge.released[:12],
        )
        for charge in ledger.history()
    ]
    title = f"Charges to {arguments.path} ({_cap(ledger)})"
    table(
        title,
        (
            "no",
            "time (UTC)",
            "who",
            "label",
            "unit",
            f"epsilon alone at {ledger.delta:g}",
            "event",
            "release",
        ),
        rows,
    )


@command("plot", "what had been spent after each charge, as bars", None, _LEDGER)
def plot(arguments: argparse.Namespace) -> None:
    """One bar per charge, or per few charges of a long history, against the cap."""
    from discreet.display.console import say, table

    ledger = opened(arguments.path)
    charges = ledger.history()
    if not charges:
        say(f"Nothing has been charged to {arguments.path} ({_cap(ledger)})")
        return
    step = -(-len(charges) // _BARS)
    rows = []
    for charge in (*charges[step - 1 :: step], *([charges[-1]] if len(charges) % step else [])):
        spent = ledger.spent(first=charge.sequence).epsilon
        share = min(1.0, spent / ledger.epsilon)
        rows.append((charge.sequence, charge.time[:16], "#" * round(share * _WIDTH), f"{spent:.4g}"))
    table(
        f"Spent of {arguments.path} ({_cap(ledger)}; a full bar is the cap)",
        ("no", "time (UTC)", "spent".ljust(_WIDTH), "epsilon"),
        rows,
    )


@command(
    "export",
    "cap, balance and every charge, as JSON",
    None,
    _LEDGER,
    argument("--output", metavar="JSON", help="file to write; standard output by default"),
    argument("--overwrite", action="store_true", help="replace an existing file"),
)
def export(arguments: argparse.Namespace) -> None:
    """Everything in the ledger as one JSON document."""
    import json

    from discreet._files import write_atomically
    from discreet.display.console import say

    ledger = opened(arguments.path)
    content = {
        "epsilon": ledger.epsilon,
        "delta": ledger.delta,
        "neighboring": ledger.neighboring.value,
        "adaptive": ledger.adaptive,
        "unit": ledger.unit,
        "head": ledger.head,
        "spent": ledger.spent().epsilon,
        "charges": [
            {
                "sequence": charge.sequence,
                "time": charge.time,
                "who": charge.who,
                "label": charge.label,
                "unit": charge.unit,
                "kind": charge.kind,
                "released": charge.released,
                "digest": charge.digest,
                "epsilon_alone": ledger.price(charge.event),
                "event": charge.event.to_dict(),
            }
            for charge in ledger.history()
        ],
    }
    text = json.dumps(content, indent=1)
    if arguments.output is None:
        say(text)
        return
    with options.output(arguments, size=len(text) + 1):
        write_atomically(arguments.output, (text + "\n").encode())
    say(f"{len(content['charges'])} charges written to {arguments.output}")


@command(
    "policy",
    "who may spend, and has spent, what of several data sets",
    None,
    argument("path", metavar="TOML", help="policy file; see docs/ledger.md"),
)
def policy(arguments: argparse.Namespace) -> None:
    """Caps and spendings of every data set and person of a policy."""
    from discreet.display.console import table
    from discreet.privacy.ledger.policy import Policy

    shared = Policy.read(arguments.path)
    rows: list[tuple[str, str, str, str]] = []
    for name in shared.data:
        whole = shared.dataset(name)
        spent = {who: price for who, _, price in by_person(whole)}
        rows.append((name, "(everybody)", f"{whole.epsilon:g}", f"{whole.spent().epsilon:.4g}"))
        for who, shares in shared.people.items():
            if name in shares:
                rows.append((name, who, str(shares[name]), spent.get(who, "0")))
    table(f"Budgets of {arguments.path}", ("data set", "who", "cap", "spent"), rows)


ledger = Command(
    "ledger",
    "create, show, list, plot and export a privacy budget",
    "A ledger is one file per data set: a cap, and every charge ever made against it.",
    actions=(create, show, history, plot, export, policy),
    examples=(
        "discreet ledger create budget.ledger --epsilon 3 --delta 1e-6",
        "discreet ledger create people.ledger --epsilon 3 --delta 1e-6 --unit user",
        "discreet ledger show budget.ledger",
    ),
)


def _protected(charge: Any) -> str:
    """Whom a charge protects, and in which sense if it is not the usual one."""
    return f"{charge.unit or _RECORDED}{'' if charge.kind in (None, 'dp') else f' ({charge.kind})'}"


def _cap(ledger: Any) -> str:
    unit = "" if ledger.unit == "record" else f", per {ledger.unit}"
    return f"epsilon {ledger.epsilon:g}, delta {ledger.delta:g}, {ledger.neighboring.value}{unit}"


def _described(event: Any) -> str:
    """What was run, without the bookkeeping around it, in one short line."""
    from discreet.privacy.events import flatten

    parts = [_part(leaf, times) for leaf, times in flatten(event)]
    more = [f"{len(parts) - _PARTS} more"] if len(parts) > _PARTS else []
    return " + ".join([*parts[:_PARTS], *more]) or "nothing"


def _part(event: Any, times: int) -> str:
    """One mechanism with its numbers, and how often it ran; what it wraps is among its numbers."""
    from discreet.privacy.events import Approximated, Discretized

    if isinstance(event, Approximated | Discretized):  # how it was sampled
        text = _described(event.event)
    else:
        values = {field.name: getattr(event, field.name) for field in fields(event)}
        inner = [
            _described(part)
            for part in (*values.get("events", ()), *([event.event] if "event" in values else ()))
        ]
        numbers = [f"{name} {value:.4g}" for name, value in values.items() if isinstance(value, int | float)]
        text = f"{type(event).__name__}({', '.join([*inner, *numbers])})"
    if times == 1:
        return text
    return f"{times} x ({text})" if " + " in text else f"{times} x {text}"
