"""Pointwise losses of (label, raw prediction), with the constants that privacy proofs use.

A loss is a function f(y, t) of a label and a raw prediction t = <v, theta>. The record's gradient is f'(y, t) v and its
Hessian f''(y, t) v v^T, so a sensitivity needs only bounds on |f'| and f'' and the bound |v| <= R.
"""

from discreet.losses.base import EXP_ULPS, Loss, Theorem
from discreet.losses.classification import CappedLogistic, Hinge, HuberHinge, Logistic
from discreet.losses.multiclass import CappedSoftmax, Softmax
from discreet.losses.regression import Absolute, HuberRegression, Linear, Poisson, Quantile, Squared
from discreet.losses.row_gradients import GradientLoss
from discreet.losses.weighted import ClassWeighted

__all__ = [
    "EXP_ULPS",
    "Absolute",
    "CappedLogistic",
    "CappedSoftmax",
    "ClassWeighted",
    "GradientLoss",
    "Hinge",
    "HuberHinge",
    "HuberRegression",
    "Linear",
    "Logistic",
    "Loss",
    "Poisson",
    "Quantile",
    "Softmax",
    "Squared",
    "Theorem",
]
