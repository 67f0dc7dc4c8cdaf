"""Train models on sensitive data under differential privacy, with promises that are tested to hold.

Names are loaded when first used, so that ``import discreet`` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from discreet import card
    from discreet.domains import Boolean, Categorical, Numeric
    from discreet.estimators._fit import PrivacyWarning
    from discreet.estimators.linear import PrivateLinearSVC, PrivateLogisticRegression
    from discreet.estimators.regression import (
        PrivateHuberRegressor,
        PrivateLinearRegression,
        PrivateQuantileRegressor,
        PrivateRidge,
    )
    from discreet.estimators.sparse import PrivateLasso, PrivateSparseLogisticRegression
    from discreet.mechanisms.entropy import insecure_noise
    from discreet.privacy.guarantee import Guarantee, Neighboring
    from discreet.privacy.ledger import BudgetExceeded, Ledger, LedgerError
    from discreet.privacy.statement import PrivacyStatement
    from discreet.recommend.completion import PrivateMatrixCompletion
    from discreet.schema import Schema, SchemaError, Target
    from discreet.transfer.error_rate import private_error_rate
    from discreet.transfer.labeler import BudgetSpent, PrivateLabeler
    from discreet.transfer.regression import PrivateTransferRegressor
    from discreet.transfer.student import PrivateTransferClassifier

__version__ = "0.1.0"

_HOMES = {
    "Boolean": "discreet.domains",
    "BudgetExceeded": "discreet.privacy.ledger",
    "BudgetSpent": "discreet.transfer.labeler",
    "Categorical": "discreet.domains",
    "Guarantee": "discreet.privacy.guarantee",
    "Ledger": "discreet.privacy.ledger",
    "LedgerError": "discreet.privacy.ledger",
    "Neighboring": "discreet.privacy.guarantee",
    "Numeric": "discreet.domains",
    "PrivacyStatement": "discreet.privacy.statement",
    "PrivacyWarning": "discreet.estimators._fit",
    "PrivateHuberRegressor": "discreet.estimators.regression",
    "PrivateLabeler": "discreet.transfer.labeler",
    "PrivateLinearRegression": "discreet.estimators.regression",
    "PrivateLasso": "discreet.estimators.sparse",
    "PrivateLinearSVC": "discreet.estimators.linear",
    "PrivateLogisticRegression": "discreet.estimators.linear",
    "PrivateQuantileRegressor": "discreet.estimators.regression",
    "PrivateRidge": "discreet.estimators.regression",
    "PrivateSparseLogisticRegression": "discreet.estimators.sparse",
    "PrivateMatrixCompletion": "discreet.recommend.completion",
    "PrivateTransferClassifier": "discreet.transfer.student",
    "PrivateTransferRegressor": "discreet.transfer.regression",
    "Schema": "discreet.schema",
    "SchemaError": "discreet.schema",
    "Target": "discreet.schema",
    "insecure_noise": "discreet.mechanisms.entropy",
    "private_error_rate": "discreet.transfer.error_rate",
}

__all__ = [
    "Boolean",
    "BudgetExceeded",
    "BudgetSpent",
    "Categorical",
    "Guarantee",
    "Ledger",
    "LedgerError",
    "Neighboring",
    "Numeric",
    "PrivacyStatement",
    "PrivacyWarning",
    "PrivateHuberRegressor",
    "PrivateLabeler",
    "PrivateLasso",
    "PrivateLinearRegression",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateMatrixCompletion",
    "PrivateQuantileRegressor",
    "PrivateRidge",
    "PrivateSparseLogisticRegression",
    "PrivateTransferClassifier",
    "PrivateTransferRegressor",
    "Schema",
    "SchemaError",
    "Target",
    "__version__",
    "card",
    "insecure_noise",
    "private_error_rate",
]


def __getattr__(name: str) -> Any:
    if name == "card":
        return import_module("discreet.card")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'discreet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
