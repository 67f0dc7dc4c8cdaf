"""Which charge of which ledger paid for a release."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Receipt:
    """One charge, named so that its ledger recognizes it and no other ledger does.

    Attributes
    ----------
    ledger : the ledger's random identity; where its file lies is not said.
    charge : the number of the charge in it.
    digest : the ledger's digest at this charge, over its terms, this charge and all before it.

    Privacy
    -------
    Made of the numbers of charges and of nothing private. It says which charge was meant, not that what it lies beside
    was run under it: a receipt can be copied to another release, and a signature says who put it there.
    """

    ledger: str
    charge: int
    digest: str

    def __str__(self) -> str:
        return f"charge {self.charge} of the ledger {self.ledger[:12]}"

    def to_dict(self) -> dict[str, Any]:
        """The receipt as plain JSON-ready values."""
        return {"ledger": self.ledger, "charge": self.charge, "digest": self.digest}

    @staticmethod
    def from_dict(fields: Mapping[str, Any]) -> Receipt:
        """Rebuild a receipt; malformed input raises ``TypeError`` or ``KeyError``."""
        ledger, charge, digest = (fields[name] for name in ("ledger", "charge", "digest"))
        if not (isinstance(ledger, str) and type(charge) is int and isinstance(digest, str)):
            raise TypeError("a receipt names a ledger, the number of a charge and a digest")
        return Receipt(ledger, charge, digest)
