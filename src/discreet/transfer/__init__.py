"""Model-agnostic private learning: teachers on disjoint data vote, which makes any model private."""

from discreet.transfer.classifier import PrivateTransferClassifier
from discreet.transfer.error_rate import private_error_rate
from discreet.transfer.labeler import BudgetSpent, PrivateLabeler, PrivateQueries
from discreet.transfer.plan import TransferPlan, plan_transfer
from discreet.transfer.regressor import PrivateTransferRegressor
from discreet.transfer.subsample import subsample_and_aggregate

__all__ = [
    "BudgetSpent",
    "PrivateLabeler",
    "PrivateQueries",
    "PrivateTransferClassifier",
    "PrivateTransferRegressor",
    "TransferPlan",
    "plan_transfer",
    "private_error_rate",
    "subsample_and_aggregate",
]
