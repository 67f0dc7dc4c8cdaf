"""Train models on sensitive data under differential privacy, with promises that are tested to hold.

Names are loaded when first used, so that ``import discreet`` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from discreet._api import HOMES

if TYPE_CHECKING:  # a test compares these with the table
    from discreet import card as card
    from discreet.additive.estimators import PrivateAdditiveClassifier as PrivateAdditiveClassifier
    from discreet.additive.estimators import PrivateAdditiveRegressor as PrivateAdditiveRegressor
    from discreet.description.describe import describe as describe
    from discreet.description.quantiles import private_domains as private_domains
    from discreet.description.quantiles import private_norm_bound as private_norm_bound
    from discreet.description.quantiles import private_quantiles as private_quantiles
    from discreet.description.quantiles import wide_grid as wide_grid
    from discreet.estimators.classifiers import PrivateLinearSVC as PrivateLinearSVC
    from discreet.estimators.classifiers import PrivateLogisticRegression as PrivateLogisticRegression
    from discreet.estimators.erm import PrivateERM as PrivateERM
    from discreet.estimators.l1 import PrivateLasso as PrivateLasso
    from discreet.estimators.l1 import PrivateSparseLinearSVC as PrivateSparseLinearSVC
    from discreet.estimators.l1 import PrivateSparseLogisticRegression as PrivateSparseLogisticRegression
    from discreet.estimators.linear import NoiseWarning as NoiseWarning
    from discreet.estimators.mixtures import PrivateSimplexClassifier as PrivateSimplexClassifier
    from discreet.estimators.mixtures import PrivateSimplexRegressor as PrivateSimplexRegressor
    from discreet.estimators.pipelines import SchemaEncoder as SchemaEncoder
    from discreet.estimators.pipelines import check_pipeline as check_pipeline
    from discreet.estimators.regressors import PrivateHuberRegressor as PrivateHuberRegressor
    from discreet.estimators.regressors import PrivateLinearRegression as PrivateLinearRegression
    from discreet.estimators.regressors import PrivatePoissonRegressor as PrivatePoissonRegressor
    from discreet.estimators.regressors import PrivateQuantileRegressor as PrivateQuantileRegressor
    from discreet.estimators.regressors import PrivateRidge as PrivateRidge
    from discreet.estimators.unlabeled import PrivateMedian as PrivateMedian
    from discreet.estimators.unlabeled import PrivatePCA as PrivatePCA
    from discreet.evaluation.evaluate import evaluate as evaluate
    from discreet.intervals.intervals import coefficient_intervals as coefficient_intervals
    from discreet.losses.row_gradients import GradientLoss as GradientLoss
    from discreet.mechanisms.recording import on_progress as on_progress
    from discreet.mechanisms.samplers.entropy import insecure_noise as insecure_noise
    from discreet.online.ftrl import PrivateFTRL as PrivateFTRL
    from discreet.online.linear import PrivateOnlineLinearModel as PrivateOnlineLinearModel
    from discreet.online.stream import HorizonReached as HorizonReached
    from discreet.privacy.guarantee import Guarantee as Guarantee
    from discreet.privacy.guarantee import Neighboring as Neighboring
    from discreet.privacy.guarantee import NoLedgerWarning as NoLedgerWarning
    from discreet.privacy.guarantee import PrivacyWarning as PrivacyWarning
    from discreet.privacy.ledger.ledger import BudgetExceeded as BudgetExceeded
    from discreet.privacy.ledger.ledger import Ledger as Ledger
    from discreet.privacy.ledger.ledger import LedgerError as LedgerError
    from discreet.privacy.ledger.policy import Policy as Policy
    from discreet.privacy.statement import PrivacyStatement as PrivacyStatement
    from discreet.recommend.completion import PrivateMatrixCompletion as PrivateMatrixCompletion
    from discreet.search.selection import PrivateSearchCV as PrivateSearchCV
    from discreet.search.selection import PrivateSelection as PrivateSelection
    from discreet.tables.domains import Binned as Binned
    from discreet.tables.domains import Boolean as Boolean
    from discreet.tables.domains import Categorical as Categorical
    from discreet.tables.domains import Numeric as Numeric
    from discreet.tables.domains import Text as Text
    from discreet.tables.schema import Schema as Schema
    from discreet.tables.schema import SchemaError as SchemaError
    from discreet.tables.schema import Target as Target
    from discreet.transfer.classifier import PrivateTransferClassifier as PrivateTransferClassifier
    from discreet.transfer.error_rate import private_error_rate as private_error_rate
    from discreet.transfer.labeler import BudgetSpent as BudgetSpent
    from discreet.transfer.labeler import PrivateLabeler as PrivateLabeler
    from discreet.transfer.regressor import PrivateTransferRegressor as PrivateTransferRegressor

__version__ = "0.2.0"
__all__ = sorted([*HOMES, "__version__", "card"])


def __getattr__(name: str) -> Any:
    if name == "card":
        return import_module("discreet.card")
    if name in HOMES:
        found = globals()[name] = getattr(import_module(HOMES[name]), name)
        return found
    from difflib import get_close_matches

    private = f"Private{name}"  # who comes from scikit-learn
    near = [private] if private in HOMES else get_close_matches(name, __all__, 1, cutoff=0.8)
    advice = f"; did you mean {near[0]!r}?" if near and not name.startswith("_") else ""
    raise AttributeError(f"module 'discreet' has no attribute {name!r}{advice}")


def __dir__() -> list[str]:
    return __all__
