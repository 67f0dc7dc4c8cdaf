"""Verify a model file: recompute its epsilon, and check its signature and its charge."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from discreet.card.card import Card, CardError, family
from discreet.card.files import is_signed_by, recomputed, unsealed
from discreet.display.console import printable
from discreet.privacy.guarantee import Guarantee
from discreet.privacy.statement import Receipt

# A calibrated epsilon is computed twice with the same formulas; only the last digits may differ.
_TOLERANCE = 1e-9
_NOT_RECORDED = "not recorded by the ledger"


@dataclass(frozen=True)
class Verification:
    """The checks of a model file that passed, and those that were not made.

    Attributes
    ----------
    estimator, library : the model in the file, and the version of discreet named in it.
    claimed : the guarantee in the file.
    epsilon : the epsilon of the file's events at the claimed delta, at most the claimed one.
    signed : True if the given key signed the file, None if no key was given.
    receipt : the charge named in the file; None if it names none.
    charge : number of that charge in the given ledger; None if no ledger was given.
    matches : True if the ledger recorded this release under that charge; None if it recorded no release, or no ledger
        was given.
    unit_recorded : whether that charge records the protected unit; charges made before version 0.2.0 do not.
    edited : names of released values that were replaced in the model after the release.
    has_signature : whether the file holds a signature, checked or not.
    made : whether the model predicts with something computed from the release, such as a student.
    """

    estimator: str
    library: str
    claimed: Guarantee
    epsilon: float
    signed: bool | None = None
    charge: int | None = None
    receipt: Receipt | None = None
    matches: bool | None = None
    unit_recorded: bool = False
    edited: tuple[str, ...] = ()
    has_signature: bool = False
    made: bool = False

    def __str__(self) -> str:
        promise = self.claimed
        signature = "by the given key" if self.signed else "not checked: no key was given"
        if not self.has_signature:
            signature = "none: the file does not show who made it"
        paid = "not checked, and the file names no charge"
        release = "not checked: no ledger was given"
        if self.receipt is not None:
            paid = f"not checked: no ledger was given. The file names {self.receipt}"
        if self.charge is not None:
            unit = "" if self.unit_recorded else f"; unit and kind are {_NOT_RECORDED}"
            paid = f"charge {self.charge} of the given ledger, for these events and this relation{unit}"
            release = f"matches charge {self.charge} of the ledger" if self.matches else _NOT_RECORDED
        lines = [
            ("Model", f"{self.estimator}; written by discreet {self.library}, according to the file"),
            ("Checksum", "matches: detects accidental damage; anyone can recompute it"),
            (
                "Claimed",
                f"epsilon {promise.epsilon:g}, delta {promise.delta:.3g}, {promise.neighboring.value}, "
                f"unit: {promise.unit}, kind: {promise.kind}",
            ),
            ("Recomputed", f"epsilon {self.epsilon:.6g} at the claimed delta, from the events in the file"),
            ("Signature", signature),
            ("Paid for", paid),
            ("Release", release),
        ]
        if self.matches:
            student = "the student, which was trained on the release, and " if self.made else ""
            lines.append(
                ("Not bound", f"{student}parameters, schema and declarations: only a signature covers them")
            )
        if self.edited:
            names = ", ".join(self.edited)
            text = f"{names}: predictions are not those of the release, which the file also holds"
            lines.append(("EDITED", text))
        return "\n".join(f"{name:<12}{printable(text)}" for name, text in lines)


def verify(
    path: str | os.PathLike[str], *, key: str | os.PathLike[str] | None = None, ledger: Any = None
) -> Verification:
    """Recompute the epsilon of a model file, and raise if its claim does not follow.

    Parameters
    ----------
    path : model file.
    key : file with the public key that must have signed the model.
    ledger : ``Ledger`` or path of the ledger that must have paid for the model.

    Returns
    -------
    Verification
        Print it.

    Raises
    ------
    CardError
        The file is damaged; its noise was seeded; its events cost more than it claims; the signature is missing or by
        another key; the file names no charge of the given ledger that matches its events, relation, unit and kind; or
        the ledger recorded another release under that charge.

    Privacy
    -------
    Events are what the file claims was run; a ledger, a signature and an audit can show that they were. The checksum
    cannot: anyone who edits a file can recompute it. A ledger that recorded the release shows that these numbers,
    labels and column names came out of the charged run. Only a signature covers parameters, schema, declarations, and
    the student of a transfer model. Charges made before version 0.2.0 record no release, unit or kind: they are taken
    from the file, and two files that name one charge are both accepted.
    """
    name = repr(str(path))
    sealed = unsealed(path)
    statement, paid = sealed.card.privacy, sealed.card.privacy.paid
    if not statement.secure:
        raise CardError(f"{name} is not private: its noise was seeded for a test")
    epsilon = _recomputed(name, sealed.card)
    if paid is not None and paid.bound and paid.released != sealed.card.release_digest:
        raise CardError(
            f"{name}: its numbers, labels or column names are not those that its receipt is bound to"
        )
    if key is not None:
        if sealed.signature is None:
            raise CardError(f"{name} is not signed")
        if not is_signed_by(sealed.content, sealed.signature, key):
            raise CardError(f"{name} was changed, or signed with another key than {str(key)!r}")
    charge = None if ledger is None else _charge(name, sealed.card, ledger)
    return Verification(
        estimator=sealed.card.estimator,
        library=sealed.card.library,
        claimed=statement.guarantee,
        epsilon=epsilon,
        signed=None if key is None else True,
        charge=None if charge is None else charge.sequence,
        receipt=paid,
        matches=None if charge is None or charge.released is None else True,
        unit_recorded=charge is not None and charge.unit is not None,
        edited=tuple(sealed.card.original),
        has_signature=sealed.signature is not None,
        made=family(sealed.card.estimator).released is not None,
    )


def _recomputed(name: str, card: Card) -> float:
    promise = card.privacy.guarantee
    try:
        epsilon = recomputed(card.privacy)
    except (ValueError, ArithmeticError, MemoryError) as error:
        raise CardError(f"{name}: no price can be computed for its events: {error}") from None
    if not epsilon <= promise.epsilon * (1 + _TOLERANCE):
        raise CardError(
            f"{name} claims epsilon {promise.epsilon:g} at delta {promise.delta:.3g}, but its events cost "
            f"{epsilon:.6g}: the claim is false"
        )
    return min(epsilon, promise.epsilon)


def _charge(name: str, card: Card, ledger: Any) -> Any:
    """Return the charge named in the file; raise unless the ledger has it, for this guarantee and this release."""
    from discreet.privacy.ledger.ledger import Ledger

    account = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
    where, history, named = repr(str(account.path)), account.history(), card.privacy.paid
    event, promise = card.privacy.event, card.privacy.guarantee
    if named is None:
        equal = [str(charge.sequence) for charge in history if charge.event == event]
        found = f"holds an equal charge ({', '.join(equal)})" if equal else "holds no charge"
        raise CardError(
            f"{name} names no charge: it was fitted without a ledger, or saved before files named their charge. The "
            f"ledger {where} {found} for such events, which does not show that it paid for this model. Verify it "
            "without a ledger to check the rest"
        )
    if named.ledger != account.identity:
        raise CardError(
            f"{name} was not paid from the ledger {where}: it names {named}, and this is another ledger"
        )
    older = (
        f"the ledger {where} is older than {name}: it ends before {{}}. It is a copy from before the fit, or was "
        "restored from one, and overstates the remaining budget"
    )
    if named.charge > len(history):
        raise CardError(older.format(f"charge {named.charge}, which the file names"))
    charge = history[named.charge - 1] if named.charge > 0 else None
    if charge is None or charge.digest != named.digest:
        raise CardError(
            f"{name} was not paid from the ledger {where}: charge {named.charge} of the ledger is another one than the "
            "file names, so one of the two was rewritten"
        )
    if named.bound and charge.released is None:
        raise CardError(
            older.format(f"the release of charge {named.charge}, which the file's receipt is bound to")
        )
    if charge.event != event:
        raise CardError(
            f"{name} names charge {charge.sequence} of the ledger {where}, which covers a different mechanism from the "
            "one in the file"
        )
    # None: charges made before version 0.2.0 do not say it. The ledger's own unit was checked when they were made.
    stated = {"relation": promise.neighboring, "unit": promise.unit, "kind": promise.kind}
    made = {"relation": charge.neighboring, "unit": charge.unit, "kind": charge.kind}
    wrong = [what for what, value in made.items() if value not in (None, stated[what])]
    if charge.unit is None and account.unit == "user" and promise.unit != "user":
        wrong.append("unit")
    if wrong:
        raise CardError(
            f"{name} claims {promise.neighboring.value} privacy per {promise.unit} ({promise.kind}), and charge "
            f"{charge.sequence} of the ledger {where} was made for a different {' and '.join(wrong)}"
        )
    if charge.released not in (None, card.release_digest):
        raise CardError(
            f"{name} holds other numbers, labels or column names than were released under charge {charge.sequence} of "
            f"the ledger {where}"
        )
    return charge
