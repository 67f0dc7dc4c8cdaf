"""The promise for people: whom it protects, how much a guess can gain, and what must be true."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

from discreet.display.page import Bar, Page
from discreet.privacy.guarantee import Guarantee

if TYPE_CHECKING:
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
    """How sure somebody can become who was sure with probability ``prior``.

    >>> round(posterior(0.5, 1.0), 3), posterior(0.5, 1e4)
    (0.731, 1.0)
    """
    return prior / (prior + (1 - prior) * math.exp(-min(epsilon, 700.0)))


def odds(epsilon: float) -> str:
    """The factor by which odds can change, in words."""
    factor = math.exp(min(epsilon, 700.0))
    return f"{factor:.3g}" if factor < 1e6 else "more than a million"


def in_short(promise: Guarantee) -> str:
    """The promise on one line.

    >>> in_short(Guarantee(1.0, 1e-6))
    '(1, 1e-06)-differential privacy, replace-one, for each record'
    """
    kind = "joint differential privacy" if promise.kind == "joint-dp" else "differential privacy"
    return f"({promise.epsilon:g}, {promise.delta:.3g})-{kind}, {promise.neighboring.value}, for each {promise.unit}"


def add_verdict(page: Page, statement: PrivacyStatement, *, what: str = "release") -> None:
    """Whether the release is private, in one sentence."""
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
        f"{in_short(statement.guarantee)}.",
        "good",
    )


def add_promise(page: Page, statement: PrivacyStatement) -> None:
    """Whom a release protects and how much, with a picture of what a guess can gain."""
    promise = statement.guarantee
    protected = _SUBJECTS.get(promise.unit, promise.unit)
    joint = " Each person may see what was computed for them alone." if promise.kind == "joint-dp" else ""
    page.text(
        f"It protects {protected}. The promise compares any two tables that differ in this way: "
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
    """The statement as it is printed, folded away."""
    with page.folded("The whole privacy statement: mechanism, theorem, noise, bounds"):
        page.preformatted(str(statement))


def statement_page(statement: PrivacyStatement, brief: bool = False) -> Page:
    """A statement alone; ``brief``: all but the promise is folded."""
    page = Page("What this release promises", "Privacy statement")
    add_verdict(page, statement)
    add_promise(page, statement)
    with page.section("What must be true", folded=brief):
        page.items(statement.assumptions or ("nothing was assumed",))
    with page.section("What is not covered", folded=brief):
        page.items(statement.not_covered or ("nothing was named",))
    add_details(page, statement)
    return page


def plan_page(plan: Stated) -> Page:
    """A plan alone: nothing has run, nothing is charged."""
    page = Page("Plan")
    page.verdict(f"Would promise {in_short(plan.guarantee)}.", f"{plan.mechanism}.")
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
    """A plan's display in a notebook: what it would promise and its public numbers."""

    def _repr_html_(self) -> str:
        return plan_page(cast("Stated", self)).fragment()
