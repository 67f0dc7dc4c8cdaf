"""Believe a model file only as far as it can be recomputed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from discreet.card.errors import CardError
from discreet.card.files import unsealed
from discreet.card.signature import is_signed_by
from discreet.privacy import accountants
from discreet.privacy.guarantee import Guarantee
from discreet.privacy.receipt import Receipt
from discreet.privacy.statement import PrivacyStatement

# A calibrated price is computed twice, with the same formulas; only the last digits may differ.
_SLACK = 1e-9


@dataclass(frozen=True)
class Verification:
    """What was found true of a model file.

    Attributes
    ----------
    estimator, library : what the file holds, and which version of discreet wrote it.
    claimed : the promise in the file.
    epsilon : the epsilon that follows from the file's events at the claimed delta, at most the claimed one.
    signed : True if the given key signed the file, None if no key was given.
    receipt : the charge that the file says paid for the model; None if it names none.
    charge : number of that charge in the given ledger, which knows it; None if no ledger was given.
    """

    estimator: str
    library: str
    claimed: Guarantee
    epsilon: float
    signed: bool | None = None
    charge: int | None = None
    receipt: Receipt | None = None

    def __str__(self) -> str:
        promise = self.claimed
        signature = "not asked for" if self.signed is None else "by the given key"
        paid = "not asked for, and the file names no charge"
        if self.receipt is not None:
            paid = f"{self.receipt}, by the file alone: no ledger was asked"
        if self.charge is not None:
            paid = f"charge {self.charge} of the given ledger, which the file names and the ledger knows"
        return "\n".join(
            (
                f"Model       {self.estimator}, written by discreet {self.library}",
                "Content     whole and unchanged (checksum)",
                f"Claimed     epsilon {promise.epsilon:g}, delta {promise.delta:.3g}, {promise.neighboring.value}, "
                f"unit: {promise.unit}",
                f"Recomputed  epsilon {self.epsilon:.6g} at the claimed delta, from the events in the file",
                f"Signature   {signature}",
                f"Paid for    {paid}",
            )
        )


def verify(
    path: str | os.PathLike[str],
    *,
    key: str | os.PathLike[str] | None = None,
    ledger: Any = None,
) -> Verification:
    """Recompute what a model file claims, and refuse it if the claim does not follow.

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
        The file is damaged or changed, its noise was seeded, its events cost more than it claims, the signature is
        missing or another's, or the file does not name a charge of the given ledger that fits its events, its relation
        and its unit.

    Privacy
    -------
    Events are what the writer of the file says was run. That they were run is for the signature, the ledger and an
    audit to show; no file can prove it of itself. The same is true of the charge: a file names one, and the ledger
    confirms that it was made for such events, under that relation and for that unit. Two files that name one charge are
    each found paid for, since one of them does not know of the other; compare their charges, and ask for signatures.
    """
    name = repr(str(path))
    sealed = unsealed(path)
    statement = sealed.card.privacy
    if not statement.secure:
        raise CardError(f"{name} is not private: its noise was seeded for a test")
    recomputed = _recomputed(name, statement)
    if key is not None:
        if sealed.signature is None:
            raise CardError(f"{name} is not signed")
        if not is_signed_by(sealed.content, sealed.signature, key):
            raise CardError(f"{name} was changed, or signed with another key than {str(key)!r}")
    return Verification(
        sealed.card.estimator,
        sealed.card.library,
        statement.guarantee,
        recomputed,
        None if key is None else True,
        None if ledger is None else _charge(name, statement, ledger),
        statement.paid,
    )


def _recomputed(name: str, statement: PrivacyStatement) -> float:
    promise = statement.guarantee
    try:
        epsilon = accountants.epsilon(statement.event, promise.delta, promise.neighboring)
    except (ValueError, ArithmeticError, MemoryError) as error:
        raise CardError(f"{name}: no price can be computed for its events: {error}") from None
    if not epsilon <= promise.epsilon * (1 + _SLACK):
        raise CardError(
            f"{name} claims epsilon {promise.epsilon:g} at delta {promise.delta:.3g}, but its events cost "
            f"{epsilon:.6g}: the claim is false"
        )
    return min(epsilon, promise.epsilon)


def _charge(name: str, statement: PrivacyStatement, ledger: Any) -> int:
    """The number of the charge that the file names, if the ledger knows it and it was made for such a promise."""
    from discreet.privacy.ledger import Ledger

    account = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
    where, history, named = repr(str(account.path)), account.history(), statement.paid
    if named is None:
        equal = [str(charge.sequence) for charge in history if charge.event == statement.event]
        found = f"holds an equal charge ({', '.join(equal)})" if equal else "holds no charge"
        raise CardError(
            f"{name} does not say which charge paid for it: it was fitted without a ledger, or saved before files "
            f"named their charge. The ledger {where} {found} for such events, but that does not show that it paid. "
            "Verify it without a ledger to check all the rest"
        )
    charge = {account.receipt(charge): charge for charge in history}.get(named)
    if charge is None:
        raise CardError(
            f"{name} was not paid from the ledger {where}: it names {named}, and this is another ledger, or a copy "
            "from before that charge"
        )
    if charge.event != statement.event:
        raise CardError(
            f"{name} names charge {charge.sequence} of the ledger {where}, which was made for something else than the "
            "events in the file"
        )
    promise = statement.guarantee
    # A ledger of records may pay for a release per user; `_fit.charge` notes that on the charge.
    per_unit = promise.unit == account.unit or f", per {promise.unit}" in charge.label
    if charge.neighboring is not promise.neighboring or not per_unit:
        raise CardError(
            f"{name} claims {promise.neighboring.value} privacy per {promise.unit}, and charge {charge.sequence} of "
            f"the ledger {where} was made for another promise: {charge.neighboring.value}, ledger per {account.unit}"
        )
    return charge.sequence
