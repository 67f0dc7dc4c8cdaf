"""Train models on sensitive data under differential privacy, with promises that are tested to hold.

Names are loaded when first used, so that ``import discreet`` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from discreet import card
    from discreet.domains import Binned, Boolean, Categorical, Numeric, Text
    from discreet.estimators._fit import PrivacyWarning
    from discreet.estimators.encoder import SchemaEncoder
    from discreet.estimators.linear import PrivateLinearSVC, PrivateLogisticRegression
    from discreet.estimators.median import PrivateMedian
    from discreet.estimators.poisson import PrivatePoissonRegressor
    from discreet.estimators.regression import (
        PrivateHuberRegressor,
        PrivateLinearRegression,
        PrivateQuantileRegressor,
        PrivateRidge,
    )
    from discreet.estimators.simplex import PrivateSimplexClassifier, PrivateSimplexRegressor
    from discreet.estimators.sparse import PrivateLasso, PrivateSparseLogisticRegression
    from discreet.evaluation.evaluate import evaluate
    from discreet.forecast import NoiseWarning
    from discreet.mechanisms.entropy import insecure_noise
    from discreet.online.ftrl import PrivateFTRL
    from discreet.online.linear import PrivateOnlineLinearModel
    from discreet.online.stream import HorizonReached
    from discreet.privacy.guarantee import Guarantee, Neighboring
    from discreet.privacy.ledger import BudgetExceeded, Ledger, LedgerError
    from discreet.privacy.policy import Policy
    from discreet.privacy.statement import PrivacyStatement
    from discreet.private_bounds import private_domains, private_norm_bound, private_quantiles
    from discreet.recommend.completion import PrivateMatrixCompletion
    from discreet.schema import Schema, SchemaError, Target
    from discreet.selection.search import PrivateSearchCV, PrivateSelection
    from discreet.transfer.error_rate import private_error_rate
    from discreet.transfer.labeler import BudgetSpent, PrivateLabeler
    from discreet.transfer.regression import PrivateTransferRegressor
    from discreet.transfer.student import PrivateTransferClassifier
    from discreet.uncertainty.coefficients import coefficient_intervals

__version__ = "0.1.0"

_HOMES = {
    "Binned": "discreet.domains",
    "Boolean": "discreet.domains",
    "BudgetExceeded": "discreet.privacy.ledger",
    "BudgetSpent": "discreet.transfer.labeler",
    "Categorical": "discreet.domains",
    "HorizonReached": "discreet.online.stream",
    "Guarantee": "discreet.privacy.guarantee",
    "Ledger": "discreet.privacy.ledger",
    "LedgerError": "discreet.privacy.ledger",
    "Neighboring": "discreet.privacy.guarantee",
    "NoiseWarning": "discreet.forecast",
    "Numeric": "discreet.domains",
    "Policy": "discreet.privacy.policy",
    "PrivacyStatement": "discreet.privacy.statement",
    "PrivacyWarning": "discreet.estimators._fit",
    "PrivateFTRL": "discreet.online.ftrl",
    "PrivateHuberRegressor": "discreet.estimators.regression",
    "PrivateLabeler": "discreet.transfer.labeler",
    "PrivateLinearRegression": "discreet.estimators.regression",
    "PrivateLasso": "discreet.estimators.sparse",
    "PrivateLinearSVC": "discreet.estimators.linear",
    "PrivateLogisticRegression": "discreet.estimators.linear",
    "PrivateOnlineLinearModel": "discreet.online.linear",
    "PrivateQuantileRegressor": "discreet.estimators.regression",
    "PrivateRidge": "discreet.estimators.regression",
    "PrivateSearchCV": "discreet.selection.search",
    "PrivateSelection": "discreet.selection.search",
    "PrivateSimplexClassifier": "discreet.estimators.simplex",
    "PrivateSimplexRegressor": "discreet.estimators.simplex",
    "PrivateSparseLogisticRegression": "discreet.estimators.sparse",
    "PrivateMatrixCompletion": "discreet.recommend.completion",
    "PrivateMedian": "discreet.estimators.median",
    "PrivatePoissonRegressor": "discreet.estimators.poisson",
    "PrivateTransferClassifier": "discreet.transfer.student",
    "PrivateTransferRegressor": "discreet.transfer.regression",
    "Schema": "discreet.schema",
    "SchemaEncoder": "discreet.estimators.encoder",
    "SchemaError": "discreet.schema",
    "Target": "discreet.schema",
    "Text": "discreet.domains",
    "coefficient_intervals": "discreet.uncertainty.coefficients",
    "evaluate": "discreet.evaluation.evaluate",
    "insecure_noise": "discreet.mechanisms.entropy",
    "private_domains": "discreet.private_bounds",
    "private_error_rate": "discreet.transfer.error_rate",
    "private_norm_bound": "discreet.private_bounds",
    "private_quantiles": "discreet.private_bounds",
}

__all__ = [
    "Binned",
    "Boolean",
    "BudgetExceeded",
    "BudgetSpent",
    "Categorical",
    "Guarantee",
    "HorizonReached",
    "Ledger",
    "LedgerError",
    "Neighboring",
    "NoiseWarning",
    "Numeric",
    "Policy",
    "PrivacyStatement",
    "PrivacyWarning",
    "PrivateFTRL",
    "PrivateHuberRegressor",
    "PrivateLabeler",
    "PrivateLasso",
    "PrivateLinearRegression",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateMatrixCompletion",
    "PrivateMedian",
    "PrivateOnlineLinearModel",
    "PrivatePoissonRegressor",
    "PrivateQuantileRegressor",
    "PrivateRidge",
    "PrivateSearchCV",
    "PrivateSelection",
    "PrivateSimplexClassifier",
    "PrivateSimplexRegressor",
    "PrivateSparseLogisticRegression",
    "PrivateTransferClassifier",
    "PrivateTransferRegressor",
    "Schema",
    "SchemaEncoder",
    "SchemaError",
    "Target",
    "Text",
    "__version__",
    "card",
    "coefficient_intervals",
    "evaluate",
    "insecure_noise",
    "private_domains",
    "private_error_rate",
    "private_norm_bound",
    "private_quantiles",
]


def __getattr__(name: str) -> Any:
    if name == "card":
        return import_module("discreet.card")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'discreet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
