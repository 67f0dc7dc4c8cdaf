"""Private models with the scikit-learn interface: classifiers, regressors, a median, components, encoders."""

from discreet.estimators.classifiers import PrivateLinearSVC, PrivateLogisticRegression
from discreet.estimators.erm import PrivateERM
from discreet.estimators.l1 import PrivateLasso, PrivateSparseLinearSVC, PrivateSparseLogisticRegression
from discreet.estimators.linear import NoiseWarning, PrivateLinearModel
from discreet.estimators.mixtures import PrivateSimplexClassifier, PrivateSimplexRegressor
from discreet.estimators.pipelines import SchemaEncoder
from discreet.estimators.regressors import (
    PrivateHuberRegressor,
    PrivateLinearRegression,
    PrivatePoissonRegressor,
    PrivateQuantileRegressor,
    PrivateRidge,
)
from discreet.estimators.rehearsal import Forecast, simulate
from discreet.estimators.unlabeled import PrivateMedian, PrivatePCA

__all__ = [
    "Forecast",
    "NoiseWarning",
    "PrivateERM",
    "PrivateHuberRegressor",
    "PrivateLasso",
    "PrivateLinearModel",
    "PrivateLinearRegression",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateMedian",
    "PrivatePCA",
    "PrivatePoissonRegressor",
    "PrivateQuantileRegressor",
    "PrivateRidge",
    "PrivateSimplexClassifier",
    "PrivateSimplexRegressor",
    "PrivateSparseLinearSVC",
    "PrivateSparseLogisticRegression",
    "SchemaEncoder",
    "simulate",
]
