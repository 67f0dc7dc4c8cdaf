"""The privacy core: guarantees, events, their price, and ledgers of what was spent."""

from discreet.privacy.guarantee import Guarantee, Neighboring, PrivacyWarning, Sensitivity
from discreet.privacy.ledger.ledger import BudgetExceeded, Ledger, LedgerError
from discreet.privacy.ledger.policy import Policy
from discreet.privacy.statement import PrivacyStatement, Receipt

__all__ = [
    "BudgetExceeded",
    "Guarantee",
    "Ledger",
    "LedgerError",
    "Neighboring",
    "Policy",
    "PrivacyStatement",
    "PrivacyWarning",
    "Receipt",
    "Sensitivity",
]
