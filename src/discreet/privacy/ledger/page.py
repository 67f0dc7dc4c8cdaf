"""A budget for people: how much is spent and left, who spent it, when and on what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from discreet.display.page import Bar, Page
from discreet.privacy.events import Composed, Event

if TYPE_CHECKING:
    from discreet.privacy.ledger.file import Charge
    from discreet.privacy.ledger.ledger import Ledger

_SHOWN = 60  # charges of a long history that are listed, the latest
_MOST = 64  # further releases that are counted


def ledger_page(ledger: Ledger) -> Page:
    """The page of a ledger."""
    charges = ledger.history()
    page = Page(f"Privacy budget {ledger.path.name}", "Ledger")
    add_budget(page, ledger)
    page.facts(
        {
            "Cap": f"epsilon {ledger.epsilon:g} at delta {ledger.delta:g}",
            "Protects": f"each {ledger.unit} ({ledger.neighboring.value})",
            "Created": _moment(ledger.created),
            "Sizes of releases": "may depend on earlier results"
            if ledger.adaptive
            else "were fixed in advance",
            "Charges": str(len(charges)),
            "Ledger": ledger.identity[:12],
        }
    )
    page.heading("Who spent it")
    page.bars(
        {"": _people(ledger, charges)},
        ("person", "epsilon", f"of the cap of {ledger.epsilon:g}"),
        ends=(0, ledger.epsilon),
    )
    page.heading("When and what for")
    if len(charges) > _SHOWN:
        page.text(f"The latest {_SHOWN} of {len(charges)} charges.")
    page.table(
        ("what for", "epsilon alone", "spent by then", "who", "when (UTC)", "release"),
        _history(ledger, charges),
    )
    page.text(
        f"A charge is written before its release runs and stays if the run fails. Every epsilon on this page is at "
        f"delta {ledger.delta:g}, the ledger's own, so it may differ from the one that was asked for. A release is "
        "named by the first letters of its digest."
    )
    with page.folded("What a further release can be, and how to check this page"):
        page.text(f"{ledger.remaining().largest}.")
        page.text(f"Head of the chain when this page was written: {ledger.head}.")
        page.text(
            "discreet ledger show prints the same from the file, and checks every charge against the chain."
        )
    return page


def add_budget(page: Page, ledger: Ledger) -> None:
    """What all releases together have spent, and what is left."""
    spent, last = ledger.spent(), ledger.history()[-1:]
    share = min(1.0, spent.epsilon / ledger.epsilon)
    left = ledger.remaining()
    empty = left.closed or (left.epsilon == 0 and left.pure_epsilon == 0)
    page.verdict(
        f"{share:.0%} of the budget is spent: epsilon {spent.epsilon:.3g} of {ledger.epsilon:g} at delta "
        f"{ledger.delta:g}.",
        "Nothing more will be released." if empty else _further(ledger, last),
        "bad" if empty else "good",
    )
    page.shares(
        [
            ("spent", share, f"epsilon {spent.epsilon:.3g}"),
            ("one more release could cost up to", 0.0, "nothing" if empty else f"epsilon {left.epsilon:.3g}"),
        ]
    )
    if last and not empty:
        page.text("Together, releases cost less than the sum of their prices.")


def _further(ledger: Ledger, last: Sequence[Charge]) -> str:
    """How many releases like the last one still fit."""
    if not last:
        return "Nothing has been released yet."
    count = ledger.further(last[0].event, _MOST)
    name = repr(last[0].label) if last[0].label else "the last one"
    if count == 0:
        return f"Another release like {name} would be refused; a smaller one fits."
    many = f"At least {count}" if count == _MOST else f"{count}"
    return f"{many} more release{'' if count == 1 else 's'} like {name} would fit."


def by_person(ledger: Ledger, charges: Sequence[Charge]) -> list[tuple[str, int, float]]:
    """Everybody with the number of their charges and the price of these alone, largest first."""
    events: dict[str, list[Event]] = {}
    for charge in charges:
        events.setdefault(charge.who, []).append(charge.event)
    prices = {who: ledger.price(Composed(tuple(of_one))) for who, of_one in events.items()}
    return [(who, len(events[who]), prices[who]) for who in sorted(events, key=lambda who: -prices[who])]


def shares(ledger: Ledger, charges: Sequence[Charge]) -> list[tuple[str, int, float]]:
    """Everybody with the number of their charges and by how much these raised what is spent, largest first.

    Charges of one person that follow one another count together, so that a ledger of one person has one sum.
    """
    counts: dict[str, int] = {}
    raised: dict[str, float] = {}
    before = 0.0
    for place, charge in enumerate(charges, 1):
        counts[charge.who] = counts.get(charge.who, 0) + 1
        if place == len(charges) or charges[place].who != charge.who:
            spent = ledger.spent(first=charge.sequence).epsilon
            raised[charge.who] = raised.get(charge.who, 0.0) + spent - before
            before = spent
    return [(who, counts[who], raised[who]) for who in sorted(raised, key=lambda who: -raised[who])]


def _people(ledger: Ledger, charges: Sequence[Charge]) -> list[Bar]:
    return [
        Bar(who or "(unknown)", spent, f"{spent:.3g}", note=f"{count} charge{'' if count == 1 else 's'}")
        for who, count, spent in shares(ledger, charges)
    ]


def _history(ledger: Ledger, charges: Sequence[Charge]) -> list[tuple[str, ...]]:
    spent = ledger.spent_after()
    return [
        (
            f"{charge.sequence}. {charge.label or '(no label)'}",
            f"{ledger.price(charge.event):.3g}",
            f"{spent[charge.sequence - 1]:.3g}",
            charge.who or "(unknown)",
            _moment(charge.time),
            "not recorded" if charge.released is None else charge.released[:12],
        )
        for charge in charges[-_SHOWN:]
    ]


def _moment(time: str) -> str:
    return time[:16].replace("T", " ")
