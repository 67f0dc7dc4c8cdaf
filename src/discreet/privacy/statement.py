"""The privacy statement of a released model, for people and for machines, and the receipt of its charge.

A `Receipt` identifies the charge that paid for a release.
"""

from __future__ import annotations

import functools
import json
import math
import os
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from discreet.display.console import printable
from discreet.privacy.events import Event, flatten
from discreet.privacy.guarantee import LABEL_UNITS, Guarantee, Neighboring
from discreet.privacy.proofs import PROVED_BY, digest

# Assumptions and exclusions shared by several kinds of release.
UNPREDICTABLE = "the operating system's random numbers and AES-256 are unpredictable"
PUBLIC_TYPES = (
    "the kind of table that holds the private rows, and the names and types of its columns, levels of categories "
    "included, are public (given by the user)"
)
TIME_AND_MEMORY = "how long the fit took and how much memory it used"
POPULATION = "facts about the population that would be learned without any one person's row"
OTHER_RELEASES = "other releases from the same data: their costs add up, which is what a ledger is for"

_WIDTH = 96
_MULTIPLES = (0.25, 0.5, 1.0, 1.5, 2.0)  # multiples of epsilon at which the printed curve is evaluated


class Stated(Protocol):
    """The facts about a plan that a statement and a ledger need.

    Attributes
    ----------
    guarantee : the promise.
    event : what is charged: every release of the run.
    mechanism, theorem : how noise is added, and the theorem behind the guarantee, in words.
    noise : the public numbers of the run.
    """

    @property
    def guarantee(self) -> Guarantee: ...
    @property
    def event(self) -> Event: ...
    @property
    def mechanism(self) -> str: ...
    @property
    def theorem(self) -> str: ...
    @property
    def noise(self) -> Mapping[str, float | str]: ...


@dataclass(frozen=True)
class PrivacyStatement:
    """The guarantee of one released model, why it holds, and what it does not cover.

    ``print`` it for a statement in words; use ``to_dict`` for a machine. ``delta_at`` prices the run at any other
    epsilon: a guarantee is a whole curve, and (epsilon, delta) is one point of it.

    Attributes
    ----------
    guarantee : epsilon, delta, relation, unit.
    event : what was run, from which the guarantee can be recomputed.
    mechanism, theorem : how noise was added, and the theorem that proves the guarantee.
    noise, bounds : the public numbers of the run.
    assumptions : what must be true for the promise to hold, each one that came from the user included.
    not_covered : what the promise does not say.
    secure : False if the noise was seeded for a test, in which case nothing is promised.
    paid : the charge that paid for the release, if a ledger did.
    proofs : the lemmas that the promise relies on (files of ``docs/proofs``, which the package holds as well), each
        with the SHA-256 of the file as it was; empty in statements that were written before.

    Notes
    -----
    Privacy: all of it is public. It is true of what was released if its assumptions are.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import PrivateLogisticRegression
    >>> X = np.random.default_rng(0).normal(size=(5_000, 2))
    >>> model = PrivateLogisticRegression(0.5, 1e-6, classes=[0, 1]).fit(X, (X[:, 0] > 0).astype(int))
    >>> print(str(model.privacy_).splitlines()[2])
    Guarantee:          (0.5, 1e-06)-differential privacy
    >>> model.privacy_.delta_at(1.0) < 1e-6
    True
    """

    guarantee: Guarantee
    event: Event = field(repr=False)  # this and the rest make pages: print the statement to read it
    mechanism: str
    theorem: str = field(repr=False)
    noise: Mapping[str, float | str] = field(default_factory=dict, repr=False)
    bounds: Mapping[str, float | str] = field(default_factory=dict, repr=False)
    assumptions: tuple[str, ...] = field(default=(), repr=False)
    not_covered: tuple[str, ...] = field(default=(), repr=False)
    secure: bool = True
    paid: Receipt | None = None
    proofs: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, plan: Stated) -> PrivacyStatement:
        """Return what a plan promises, and why; what it assumes and does not cover is for the caller to add."""
        problem, event = getattr(plan, "problem", None), plan.event
        parts = (plan, getattr(problem, "loss", None), getattr(problem, "geometry", None))
        return cls(
            guarantee=plan.guarantee,
            event=event,
            theorem=plan.theorem,
            noise=plan.noise,
            mechanism=plan.mechanism,
            proofs=_cited(parts, event),
        )

    def paid_by(self, receipt: Receipt | None) -> PrivacyStatement:
        """Return the same statement with the charge that paid for the release; None without a ledger."""
        return replace(self, paid=receipt)

    @property
    def epsilon(self) -> float:
        """The guaranteed epsilon; infinite if the noise was seeded."""
        return self.guarantee.epsilon if self.secure else math.inf

    @property
    def delta(self) -> float:
        """The guaranteed delta; one if the noise was seeded."""
        return self.guarantee.delta if self.secure else 1.0

    @property
    def neighboring(self) -> Neighboring:
        """The relation under which the guarantee holds."""
        return self.guarantee.neighboring

    def delta_at(self, epsilon: float) -> float:
        """Return the smallest proved delta of this run at another epsilon."""
        from discreet.privacy.accounting import accountants

        return accountants.delta(self.event, epsilon, self.neighboring) if self.secure else 1.0

    def epsilon_at(self, delta: float) -> float:
        """Return the smallest proved epsilon of this run at another delta."""
        from discreet.privacy.accounting import accountants

        return accountants.epsilon(self.event, delta, self.neighboring) if self.secure else math.inf

    def curve(self) -> list[tuple[float, float]]:
        """Return (epsilon, delta) pairs around the guaranteed point."""
        return [(k * self.guarantee.epsilon, self.delta_at(k * self.guarantee.epsilon)) for k in _MULTIPLES]

    def to_dict(self) -> dict[str, Any]:
        """Return the statement as plain JSON-ready values; infinite values are written as strings."""
        promise, paid = self.guarantee, None if self.paid is None else self.paid.to_dict()
        return {
            "private": self.secure,
            "guarantee": promise.to_dict(),
            "epsilon": promise.epsilon if self.secure else "infinity",
            "delta": promise.delta,
            "neighboring": promise.neighboring.value,
            "mechanism": self.mechanism,
            "theorem": self.theorem,
            "noise": dict(self.noise),
            "bounds": dict(self.bounds),
            "assumptions": list(self.assumptions),
            "not_covered": list(self.not_covered),
            "event": self.event.to_dict(),
            # without a ledger the format is that of versions before receipts existed
            **({} if paid is None else {"paid": paid}),
            **({"proofs": dict(self.proofs)} if self.proofs else {}),
        }

    @staticmethod
    def from_dict(fields: Mapping[str, Any]) -> PrivacyStatement:
        """Rebuild a statement; raise ``ValueError`` for malformed or contradictory input."""
        try:
            made = PrivacyStatement(
                guarantee=Guarantee(**fields["guarantee"]),
                event=Event.from_dict(fields["event"]),
                mechanism=str(fields["mechanism"]),
                theorem=str(fields["theorem"]),
                noise=_numbers_or_words(fields["noise"]),
                bounds=_numbers_or_words(fields["bounds"]),
                assumptions=tuple(map(str, fields["assumptions"])),
                not_covered=tuple(map(str, fields["not_covered"])),
                secure=fields["private"] is True,
                paid=Receipt.from_dict(fields["paid"]) if "paid" in fields else None,
                proofs={str(name): str(digest) for name, digest in dict(fields.get("proofs", {})).items()},
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a privacy statement: {error}") from error
        said = made.to_dict()
        for name in ("epsilon", "delta", "neighboring"):
            if fields.get(name, said[name]) != said[name]:
                raise ValueError(
                    f"the privacy statement contradicts itself: {name} is not that of its guarantee"
                )
        return made

    def to_json(self) -> str:
        """Return the statement as a JSON document."""
        return json.dumps(self.to_dict(), indent=2)

    @property
    def relation(self) -> str:
        """The neighboring relation of the protected unit, in words."""
        promise, unit = self.guarantee, self.guarantee.unit
        if unit in LABEL_UNITS:
            what, others, counted = ("the label of one record is", "other", "records")
            if unit == LABEL_UNITS[1]:
                what, others, counted = ("all labels of one person are", "others", "people")
            return f"{what} exchanged for any {others}; all columns and the number of {counted} are public"
        text = promise.neighboring.meaning
        if unit != "user":
            return text
        text = text.replace("one person's record is", "all rows of one person are")
        return text.replace("other;", "others;").replace("number of records", "number of people")

    def __str__(self) -> str:
        lines = ["Privacy statement", "=" * 17]
        if not self.secure:
            lines += [
                "NOT PRIVATE: the noise was seeded for a test, so anyone who knows the seed can subtract it.",
                "What follows is what would be promised with secret noise.",
                "",
            ]
        promise = self.guarantee
        lines += _entry("Guarantee", promise_of(promise))
        lines += _entry("Neighboring", f"{promise.neighboring.value}: {self.relation}")
        lines += _entry("Unit", promise.unit)
        lines += _entry("Meaning", _in_words(promise))
        lines += _entry("Mechanism", self.mechanism)
        lines += _entry("Theorem", self.theorem)
        if self.proofs:
            lines += _entry("Lemmas", ", ".join(self.proofs) + " (`discreet/privacy/texts` of the package)")
        lines += _entry("Noise", _pairs(self.noise))
        lines += _entry("Bounds", _pairs(self.bounds))
        if self.paid is not None:
            lines += _entry("Paid by", str(self.paid))
        lines += _items("Assumptions", self.assumptions)
        lines += _items("Not covered", self.not_covered)
        if self.secure:
            curve = ", ".join(f"{epsilon:.3g}: {delta:.2g}" for epsilon, delta in self.curve())
            lines += _entry("Delta at epsilon", curve)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from discreet.privacy.page import statement_page

        return statement_page(self, brief=True).fragment()

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write the statement as a page for people."""
        from discreet.privacy.page import statement_page

        statement_page(self).write(path)


def plan_text(plan: Stated, sizes: Mapping[str, str], more: Mapping[str, str] | None = None) -> str:
    """Format a plan: the guarantee, public ``sizes``, the noise, and ``more`` lines."""
    promise = plan.guarantee
    values = {
        "guarantee": f"({promise.epsilon:g}, {promise.delta:.3g}), {promise.neighboring.value}",
        **sizes,
        **{name: f"{value:.6g}" for name, value in plan.noise.items() if not isinstance(value, str)},
        **(more or {}),
        **({"doubt": promise.doubt} if promise.doubt else {}),
    }
    width = max(map(len, values)) + 2
    return "\n".join(
        [f"Plan: {plan.mechanism}", *(f"  {name:<{width}}{value}" for name, value in values.items())]
    )


def lemmas_of(part: object) -> tuple[str, ...]:
    """Return the lemmas behind a plan, mechanism, loss, set or event: those of its class or nearest parent class.

    >>> from discreet.privacy.events import Gaussian
    >>> lemmas_of(Gaussian(1.0))
    ('composition.md#lemma-1', 'composition.md#section-4')
    """
    return _lemmas_of_class(part if isinstance(part, type) else type(part))


@functools.cache
def _lemmas_of_class(kind: type) -> tuple[str, ...]:
    names = [f"{base.__module__.removeprefix('discreet.')}.{base.__qualname__}" for base in kind.__mro__]
    return next((PROVED_BY[name] for name in names if name in PROVED_BY), ())


def _cited(parts: tuple[object, ...], event: Event) -> dict[str, str]:
    """Return the lemmas behind ``parts`` and the event's leaves, each with the SHA-256 of the file that proves it."""
    found = dict.fromkeys(lemma for part in parts for lemma in lemmas_of(part))
    found |= dict.fromkeys(lemma for leaf, _ in flatten(event) for lemma in lemmas_of(leaf))
    return {lemma: digest(lemma) for lemma in found}


def promise_of(guarantee: Guarantee) -> str:
    """Return the promise without its relation and its unit: (1, 1e-06)-differential privacy."""
    kind = "joint differential privacy" if guarantee.kind == "joint-dp" else "differential privacy"
    return f"({guarantee.epsilon:g}, {guarantee.delta:.3g})-{kind}"


def _in_words(promise: Guarantee) -> str:
    odds = math.exp(min(promise.epsilon, 700.0))
    return (
        f"the odds of any conclusion drawn from this release change by a factor of at most {odds:.4g} "
        f"when one {promise.unit} changes, except with probability about {promise.delta:.2g}"
        + (f"; {promise.doubt}" if promise.doubt else "")
    )


def _numbers_or_words(values: Any) -> dict[str, float | str]:
    """Check the named values of a statement; raise ``TypeError`` for anything else."""
    named = dict(values)
    for name, value in named.items():
        whole = isinstance(value, int) and value.bit_length() < 1024  # a float can hold it
        if not isinstance(name, str) or not (whole or isinstance(value, float | str)):
            raise TypeError("noise and bounds must be numbers or words, by name")
    return named


def _pairs(values: Mapping[str, float | str]) -> str:
    texts = (
        f"{name} {value if isinstance(value, str) else format(value, '.6g')}"
        for name, value in values.items()
    )
    return "; ".join(texts) or "none"


def _entry(name: str, text: str) -> list[str]:
    label = f"{name}:".ljust(18)
    return textwrap.wrap(label + printable(text), _WIDTH, subsequent_indent=" " * 18, break_long_words=False)


def _items(name: str, texts: tuple[str, ...]) -> list[str]:
    lines = [f"{name}:"]
    for text in texts or ("none",):
        lines += textwrap.wrap(printable(text), _WIDTH, initial_indent="  - ", subsequent_indent="    ")
    return lines


@dataclass(frozen=True)
class Receipt:
    """One charge, identified so that only its own ledger recognizes it.

    Attributes
    ----------
    ledger : the ledger's random identifier; the path of its file is not included.
    charge : the number of the charge.
    digest : the ledger's digest at this charge, over its terms, this charge and all before it.
    released : digest of what was released under the charge, as the ledger recorded it; None if not recorded.
    head : the chain's head when ``released`` was recorded; None if it was not.

    Privacy
    -------
    Made from charge numbers and released numbers; contains nothing private. A receipt bound to a release (``bound``)
    fits only that release. An unbound one names a charge but does not prove that a release was run under it: it can be
    copied to another release, and only a signature shows who put it there.
    """

    ledger: str
    charge: int
    digest: str
    released: str | None = None
    head: str | None = None

    @property
    def bound(self) -> bool:
        """Whether the ledger recorded what was released under the charge."""
        return self.released is not None

    def __str__(self) -> str:
        release = "bound to this release" if self.bound else "not bound to a release"
        head = self.head or self.digest
        return f"charge {self.charge} of the ledger {self.ledger[:12]}, {release}; chain head {head}"

    def to_dict(self) -> dict[str, Any]:
        """Return the receipt as plain JSON-ready values."""
        named = {"ledger": self.ledger, "charge": self.charge, "digest": self.digest}
        # unbound receipts keep the format of older versions
        return named | ({"released": self.released, "head": self.head} if self.bound else {})

    @staticmethod
    def from_dict(fields: Mapping[str, Any]) -> Receipt:
        """Rebuild a receipt; raise ``TypeError`` or ``KeyError`` for malformed input."""
        charge, names = fields["charge"], ["ledger", "digest"]
        if "released" in fields or "head" in fields:
            names += ["released", "head"]
        texts = {name: fields[name] for name in names}
        if type(charge) is not int or not all(map(_is_hexadecimal, texts.values())):
            raise TypeError("a receipt names a ledger, the number of a charge and digests")
        return Receipt(charge=charge, **texts)


def _is_hexadecimal(text: Any) -> bool:
    return isinstance(text, str) and 0 < len(text) <= 64 and set(text) <= set("0123456789abcdef")
