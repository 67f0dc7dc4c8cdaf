"""The one table of public names: which module each lives in. Read by the package, the pages and the tests."""

from __future__ import annotations

_MODULES = {
    "discreet.additive.estimators": ("PrivateAdditiveClassifier", "PrivateAdditiveRegressor"),
    "discreet.description.describe": ("describe",),
    "discreet.description.quantiles": (
        "private_domains",
        "private_norm_bound",
        "private_quantiles",
        "wide_grid",
    ),
    "discreet.estimators.classifiers": ("PrivateLinearSVC", "PrivateLogisticRegression"),
    "discreet.estimators.erm": ("PrivateERM",),
    "discreet.estimators.l1": ("PrivateLasso", "PrivateSparseLinearSVC", "PrivateSparseLogisticRegression"),
    "discreet.estimators.mixtures": ("PrivateSimplexClassifier", "PrivateSimplexRegressor"),
    "discreet.estimators.pipelines": ("SchemaEncoder", "check_pipeline"),
    "discreet.estimators.regressors": (
        "PrivateHuberRegressor",
        "PrivateLinearRegression",
        "PrivatePoissonRegressor",
        "PrivateQuantileRegressor",
        "PrivateRidge",
    ),
    "discreet.estimators.linear": ("NoiseWarning",),
    "discreet.estimators.unlabeled": ("PrivateMedian", "PrivatePCA"),
    "discreet.evaluation.evaluate": ("evaluate",),
    "discreet.intervals.intervals": ("coefficient_intervals",),
    "discreet.losses.row_gradients": ("GradientLoss",),
    "discreet.mechanisms.samplers.entropy": ("insecure_noise",),
    "discreet.online.ftrl": ("PrivateFTRL",),
    "discreet.online.linear": ("PrivateOnlineLinearModel",),
    "discreet.online.stream": ("HorizonReached",),
    "discreet.privacy.guarantee": ("Guarantee", "Neighboring", "NoLedgerWarning", "PrivacyWarning"),
    "discreet.privacy.ledger.ledger": ("BudgetExceeded", "Ledger", "LedgerError"),
    "discreet.privacy.ledger.policy": ("Policy",),
    "discreet.privacy.statement": ("PrivacyStatement",),
    "discreet.recommend.completion": ("PrivateMatrixCompletion",),
    "discreet.mechanisms.recording": ("on_progress",),
    "discreet.search.selection": ("PrivateSearchCV", "PrivateSelection"),
    "discreet.tables.domains": ("Binned", "Boolean", "Categorical", "Numeric", "Text"),
    "discreet.tables.schema": ("Schema", "SchemaError", "Target"),
    "discreet.transfer.classifier": ("PrivateTransferClassifier",),
    "discreet.transfer.error_rate": ("private_error_rate",),
    "discreet.transfer.labeler": ("BudgetSpent", "PrivateLabeler"),
    "discreet.transfer.regressor": ("PrivateTransferRegressor",),
}

HOMES = {name: module for module, names in _MODULES.items() for name in names}
