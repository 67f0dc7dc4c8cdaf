"""Pages for people: what a release promises, and how much of a budget is spent.

The promise says whom it protects, how much a guess can gain, and what must be true. A ledger's page says how much is
left, who spent the rest, when and on what.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from discreet.display.page import Bar, Page
from discreet.privacy.events import Composed, Event
from discreet.privacy.guarantee import Guarantee
from discreet.privacy.statement import plan_text, promise_of

if TYPE_CHECKING:
    from discreet.privacy.ledger.file import Charge
    from discreet.privacy.ledger.ledger import Ledger
    from discreet.privacy.statement import PrivacyStatement, Stated

_PRIORS = (0.5, 0.1, 0.01)  # how sure somebody was before the release
_SUBJECTS = {
    "record": "each row of the table. A person with several rows is protected row by row",
    "user": "each person, with all of their rows",
    "label of one record": "the label of each row. The rest of the row is not protected",
    "all labels of one user": "all labels of each person. The rest of their rows is not protected",
}

#: What may differ between two data sets, in words.
ONE = {
    "record": "one row",
    "user": "one person",
    "label of one record": "one label",
    "all labels of one user": "one person's labels",
}


def posterior(prior: float, epsilon: float) -> float:
    """Return how sure somebody can become who was sure with probability ``prior``.

    >>> round(posterior(0.5, 1.0), 3), posterior(0.5, 1e4)
    (0.731, 1.0)
    """
    return prior / (prior + (1 - prior) * math.exp(-min(epsilon, 700.0)))


def odds(epsilon: float) -> str:
    """Format the factor by which odds can change."""
    factor = math.exp(min(epsilon, 700.0))
    return f"{factor:.3g}" if factor < 1e6 else "more than a million"


def in_short(promise: Guarantee) -> str:
    """Return the promise on one line.

    >>> in_short(Guarantee(1.0, 1e-6))
    '(1, 1e-06)-differential privacy, replace-one, for each record'
    """
    return f"{promise_of(promise)}, {promise.neighboring.value}, for each {promise.unit}"


def add_verdict(page: Page, statement: PrivacyStatement, *, what: str = "release") -> None:
    """Say in one sentence whether the release is private."""
    if not statement.secure:
        page.verdict(
            "NOT PRIVATE: the noise was seeded for a test.",
            "Whoever knows the seed can subtract it. What follows would hold with secret noise.",
            "bad",
        )
        return
    page.verdict(
        f"Whatever anyone concludes from this {what}, {ONE[statement.guarantee.unit]} changes the odds by a factor "
        f"of at most {odds(statement.epsilon)}.",
        f"{in_short(statement.guarantee)}. {statement.guarantee.doubt}".strip(),
        "bad" if statement.guarantee.doubt else "good",
    )


def add_promise(page: Page, statement: PrivacyStatement) -> None:
    """Say whom a release protects and how much, with a picture of what a guess can gain."""
    promise = statement.guarantee
    protected = _SUBJECTS.get(promise.unit, promise.unit)
    joint = " Each person may see what was computed for them alone." if promise.kind == "joint-dp" else ""
    page.text(
        f"It protects {protected}. The guarantee compares any two tables that differ in this way: "
        f"{statement.relation}.{joint}"
    )
    lines = [
        Bar(
            name="a 50:50 guess" if prior == 0.5 else f"a suspicion of {prior:.0%}",
            value=posterior(prior, promise.epsilon),
            text=f"{prior:.0%} → {posterior(prior, promise.epsilon):.{0 if prior == 0.5 else 1}%}",
            before=prior,
        )
        for prior in _PRIORS
    ]
    page.bars(
        {"": lines},
        ("Suppose someone had", "it becomes at most", "bar: after, line: before"),
        ends=(0.0, 1.0),
    )
    if promise.delta > 0:
        page.text(
            f"These limits hold in the worst case, whatever else the observer knows, except with probability about "
            f"{promise.delta:.2g}. Facts about people in general are not hidden: they would be learned without this "
            "person, too."
        )


def add_details(page: Page, statement: PrivacyStatement) -> None:
    """Fold the printed statement away."""
    with page.folded("The whole privacy statement: mechanism, theorem, noise, bounds"):
        page.preformatted(str(statement))


def statement_page(statement: PrivacyStatement, brief: bool = False) -> Page:
    """Make the page of a statement; ``brief`` folds all but the promise."""
    page = Page("What this release guarantees", "Privacy statement")
    add_verdict(page, statement)
    add_promise(page, statement)
    with page.section("What must be true", folded=brief):
        page.items(statement.assumptions or ("nothing was assumed",))
    with page.section("What is not covered", folded=brief):
        page.items(statement.not_covered or ("nothing was named",))
    add_details(page, statement)
    return page


def plan_page(plan: Stated) -> Page:
    """Make the page of a plan: nothing has run, nothing is charged."""
    page = Page("Plan")
    page.verdict(f"Would guarantee {in_short(plan.guarantee)}.", f"{plan.mechanism}.")
    numbers = {
        name: value if isinstance(value, str) else f"{value:.4g}" for name, value in plan.noise.items()
    }
    page.facts({**numbers, "theorem": plan.theorem})
    with page.folded("The plan in words"):
        page.preformatted(str(plan))
    return page


class ShowsPromise:
    """A model's display in a notebook: scikit-learn's, and below it the promise once the model is fitted."""

    def _repr_html_inner(self) -> str:
        return str(super()._repr_html_inner()) + self._promise()  # type: ignore[misc]

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        shown: dict[str, str] = super()._repr_mimebundle_(**kwargs)  # type: ignore[misc]
        if "text/html" in shown:
            shown["text/html"] += self._promise()
        return shown

    def _promise(self) -> str:
        stated = getattr(self, "privacy_", None)
        return "" if stated is None else str(stated._repr_html_())


class ShowsPlan:
    """How a plan is printed, and displayed in a notebook: what it would guarantee and its public numbers."""

    def __str__(self) -> str:
        return plan_text(cast("Stated", self), {})

    def _repr_html_(self) -> str:
        return plan_page(cast("Stated", self)).fragment()


_UNKNOWN = "(unknown)"  # who
_SHOWN = 60  # charges of a long history that are listed, the latest
_MOST = 64  # further releases that are counted


def ledger_page(ledger: Ledger) -> Page:
    """Make the page of a ledger."""
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
    people = [
        Bar(who, spent, f"{spent:.3g}", note=f"{count} charge{'' if count == 1 else 's'}")
        for who, count, spent in shares(ledger, charges)
    ]
    page.bars(
        {"": people},
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
        f"delta {ledger.delta:g}, the ledger's own, so it may differ from the one that was requested. A release is "
        "named by the first letters of its digest."
    )
    with page.folded("What a further release can be, and how to check this page"):
        page.text(f"What would fit: {ledger.remaining().largest}.")
        page.text(f"Head of the chain when this page was written: {ledger.head}.")
        page.text(
            "discreet ledger show prints the same from the file, and checks every charge against the chain."
        )
    return page


def add_budget(page: Page, ledger: Ledger) -> None:
    """Show what all releases together have spent, and what is left."""
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
        page.text("Together, several releases cost less than the sum of their epsilons.")


def _further(ledger: Ledger, last: Sequence[Charge]) -> str:
    """Say how many releases like the last one still fit."""
    if not last:
        return "Nothing has been released yet."
    count = ledger.further(last[0].event, _MOST)
    name = repr(last[0].label) if last[0].label else "the last one"
    if count == 0:
        return f"Another release like {name} would be refused; a smaller one fits."
    many = f"At least {count}" if count == _MOST else f"{count}"
    return f"{many} more release{'' if count == 1 else 's'} like {name} would fit."


def price_by_person(ledger: Ledger) -> dict[str, float]:
    """Return the price of each person's charges alone."""
    events: dict[str, list[Event]] = {}
    for charge in ledger.history():
        events.setdefault(charge.who, []).append(charge.event)
    return {who: ledger.price(Composed(tuple(of_one))) for who, of_one in events.items()}


def shares(ledger: Ledger, charges: Sequence[Charge]) -> list[tuple[str, int, float]]:
    """Return everybody, the number of their charges and by how much these raised what is spent, largest first.

    Charges of one person that follow one another count together, so that a ledger of one person has one sum.
    """
    counts: dict[str, int] = {}
    raised: dict[str, float] = {}
    before = 0.0
    for place, charge in enumerate(charges, 1):
        who = charge.who or _UNKNOWN
        counts[who] = counts.get(who, 0) + 1
        if place == len(charges) or charges[place].who != charge.who:
            spent = ledger.spent(first=charge.sequence).epsilon
            raised[who] = raised.get(who, 0.0) + spent - before
            before = spent
    return [(who, counts[who], raised[who]) for who in sorted(raised, key=lambda who: -raised[who])]


def _history(ledger: Ledger, charges: Sequence[Charge]) -> list[tuple[str, ...]]:
    spent = ledger.spent_after()
    return [
        (
            f"{charge.sequence}. {charge.label or '(no label)'}",
            f"{ledger.price(charge.event):.3g}",
            f"{spent[charge.sequence - 1]:.3g}",
            charge.who or _UNKNOWN,
            _moment(charge.time),
            "not recorded" if charge.released is None else charge.released[:12],
        )
        for charge in charges[-_SHOWN:]
    ]


def _moment(time: str) -> str:
    return time[:16].replace("T", " ")
