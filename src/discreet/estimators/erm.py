"""Private empirical risk minimization with a loss of your own."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from discreet import _checks
from discreet._checks import ParameterError, ParameterTypeError, Setting
from discreet._typing import Array
from discreet.estimators.linear import PrivateLinearModel, Task, as_fitted
from discreet.estimators.parameters import estimator, intercept, norm_bound, parameter, ridge
from discreet.losses import GradientLoss, Loss
from discreet.problem import Problem
from discreet.records.bounds import Bounds
from discreet.records.open import Targets, checked_rows, checked_targets
from discreet.sets import Geometry
from discreet.solvers import base

#: Solvers that pay for every noisy gradient and use nothing else of a loss.
_BY_GRADIENTS = frozenset(
    {"auto", "mirror-descent", "mirror-descent-talwar", "noisy-gd", "noisy-gd-dissertation", "noisy-sgd"}
)
_STABLE = "uses that records are functions of one linear prediction"
_WHY = {  # by the name of the solver, without the suffix of a paper's calibration
    "objective": "needs a record to change the curvature of the objective along one direction only",
    "output": "verifies the minimizer of a smooth convex loss",
    "psgd": "needs smooth convex losses, whose steps move no two points apart",
    "exponential": "needs values of the loss, with proved ranges, not gradients",
    "localized": "needs values of the loss, with proved ranges, not gradients",
}


def _is_linear(model: PrivateERM) -> bool:
    return bool(getattr(model.loss, "linear", True))


def _predicts(model: PrivateERM) -> bool:
    """Whether there are linear predictions; a model from a file does not know its loss."""
    return np.size(model.intercept_) > 0 if hasattr(model, "intercept_") else _is_linear(model)


@estimator
class PrivateERM(PrivateLinearModel):
    """Minimize the mean of any loss, in any set, under differential privacy.

    For a `discreet.losses.Loss`, a function f(y, t) of a label and a linear prediction t with declared bounds, every
    solver that is proved for what the loss declares can be used: the real hinge, the absolute loss, the linear loss,
    or one of your own (CONTRIBUTING.md shows how to write it). For a `GradientLoss`, a function that gives the gradient
    of any loss for one record, noisy gradient descent and mirror descent are proved, and need a ``constraint``.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    coef_, intercept_ : released coefficients, of clipped rows; one row per output where the loss has several. For a
        `GradientLoss` ``coef_`` holds all parameters and ``intercept_`` nothing.
    certificate_ : bound on the excess empirical risk, where the solver has one and the loss is convex.
    {fitted}

    Notes
    -----
    {privacy} The bounds that a loss from outside this library declares are assumed to be right; the statement says so.

    Examples
    --------
    The support vector machine with the real hinge:

    >>> import numpy as np
    >>> from discreet import GradientLoss, PrivateERM
    >>> from discreet.losses import Hinge
    >>> from discreet.sets import L2Ball
    >>> X = np.random.default_rng(0).normal(size=(20_000, 3)) / 2
    >>> y = np.where(X @ [1.0, -2.0, 0.5] > 0, 1.0, -1.0)
    >>> machine = PrivateERM(Hinge(), epsilon=1.0).fit(X, y)
    >>> bool(np.mean(np.sign(machine.predict(X)) == y) > 0.9)
    True

    A loss that is no linear model: the center of the rows, in a ball.

    >>> distance = GradientLoss(lambda theta, x, y: theta - x, clip=4.0, convex=True)
    >>> center = PrivateERM(distance, L2Ball(2.0, 3), epsilon=1.0).fit(X[:2000] + [1.0, 0.0, 0.0])
    >>> bool(np.abs(center.coef_ - [1.0, 0.0, 0.0]).max() < 0.2)
    True
    """

    epsilon: float = parameter(1.0, "float", "Privacy budget of one fit, in nats. Smaller is more private.")
    delta: float | None = parameter(
        None, "float", "Probability with which epsilon may be exceeded; None is 1 / n_samples**2."
    )
    loss: Loss | None = parameter(
        None,
        "Loss",
        "What is minimized: a `discreet.losses.Loss` or a `GradientLoss`. Required.",
        positional=True,
    )
    constraint: Geometry | None = parameter(
        None,
        "set of `discreet.sets`",
        "Set to which the parameters are confined, the intercept last; None is all of space. Required for a "
        "`GradientLoss`, because it determines the number of parameters.",
        positional=True,
    )
    feature_bound: float = norm_bound()
    l2: float | None = ridge()
    fit_intercept: bool = intercept()
    label_bound: float | None = parameter(
        None,
        "float",
        "Labels beyond it are clipped; some solvers need it for losses that take any number. Choose it without looking "
        "at the data.",
    )

    # -- plan --------------------------------------------------------------------------------------------------

    def _task(self, solver: base.Solver, n_columns: int, n_classes: int | None) -> Task:
        loss = self._checked_loss()
        bound = None if self.label_bound is None else _checks.real("label_bound", self.label_bound, above=0)
        if not loss.linear:
            _refuse_solver(solver)
            self._try_out(n_columns)
        return Task(solver, loss, label_bound=bound)

    def _checked_loss(self) -> Loss:
        loss: Any = self.loss
        if loss is None:
            raise ParameterError(
                "loss", "must be given", "for example discreet.losses.Hinge(), or a GradientLoss of your own"
            )
        if not hasattr(loss, "lipschitz") or not hasattr(loss, "proved_for"):
            raise ParameterTypeError(
                "loss",
                f"must be a discreet.losses.Loss, which declares its bounds, got {loss!r}",
                "wrap the gradient of a record in GradientLoss(gradient, clip=...)",
            )
        return cast(Loss, loss)

    def _try_out(self, n_columns: int) -> None:
        """Ask the user's function about an invented record, before anything is charged."""
        if self.constraint is None:
            raise ParameterError(
                "constraint",
                "must be given with a GradientLoss: it tells how many parameters there are, and step sizes follow from "
                "its size",
                "for example L2Ball(5.0, n_parameters) of discreet.sets",
            )
        try:
            cast(GradientLoss, self.loss).try_out(self.constraint.n_features, n_columns)
        except ValueError as error:
            raise ParameterError("loss", f"cannot be used: {error}") from error

    def _bounds(self, n_columns: int) -> Bounds:
        return super()._bounds(n_columns) if _is_linear(self) else Bounds(1.0, intercept=False)

    def _problem(self, task: Task, n_samples: int, n_columns: int) -> Problem:
        if not task.loss.linear and isinstance(self.constraint, Geometry):
            n_columns = self.constraint.n_features  # of the parameters, which need not be one per column
        return super()._problem(task, n_samples, n_columns)

    # -- rows and labels ---------------------------------------------------------------------------------------

    def _read(self, X: Any, y: Any) -> tuple[Any, Targets]:
        loss, strict = self._checked_loss(), self.bad_rows == "error"
        if y is None and not loss.linear:
            rows = checked_rows(self, X, strict=strict, reset=True)
            values = np.zeros(rows.shape[0])
        else:
            rows, values = checked_targets(self, X, y, strict=strict)
        if self.label_bound is not None:
            values = np.clip(values, -self.label_bound, self.label_bound)
        null = ~loss.valid_labels(values)
        if strict and null.any():
            raise ParameterError(
                "y",
                f"holds {int(null.sum())} labels that {loss} does not take, the first in row {int(np.argmax(null))}",
                "encode the labels as the loss wants them",
                Setting("bad_rows", "null", purpose="to ignore such rows"),
            )
        return rows, Targets(np.where(null, 0.0, values), null, self._given_facts())

    def _given_facts(self) -> tuple[str, ...]:
        """Return what the guarantee takes from the user about a function of theirs."""
        if _is_linear(self):
            return ()
        alone = "the gradient of a row is computed from that row and the parameters alone (given by the user)"
        if not cast(GradientLoss, self.loss).batch:
            return (alone,)
        return (alone, "in a batch it has the same bits as by itself (given by the user)")

    # -- what is released --------------------------------------------------------------------------------------

    def _attributes(self, theta: Array, targets: Targets, problem: Problem) -> dict[str, Any]:
        if not problem.loss.linear:
            return {"coef_": theta[0], "intercept_": np.zeros(0)}
        coef, intercept = self._split(theta[0].T)
        return {"coef_": coef, "intercept_": float(intercept) if intercept.ndim == 0 else intercept}

    def _stated_bounds(self, problem: Problem) -> dict[str, float | str]:
        if _is_linear(self):
            return super()._stated_bounds(problem)
        return {"norm of a record's gradient": cast(GradientLoss, self.loss).clip}

    @available_if(_predicts)  # type: ignore[untyped-decorator]
    def predict(self, X: Any) -> Array:
        """Linear predictions of rows shrunk to ``feature_bound``; their signs are the labels of a margin loss."""
        check_is_fitted(self)
        return as_fitted(self)._raw(checked_rows(self, X), self.coef_, self.intercept_)


def _refuse_solver(solver: base.Solver) -> None:
    """Refuse a solver that needs more of a loss than clipped gradients."""
    name = getattr(solver, "name", type(solver).__name__)
    if name in _BY_GRADIENTS:
        return
    why = _WHY.get(name.partition("-")[0], _STABLE)
    raise ParameterError(
        "solver",
        f"{name!r} does not support a GradientLoss: it {why} (docs/proofs/own-losses.md)",
        Setting("solver", "mirror-descent", "noisy-gd", purpose="(these pay for every noisy gradient)"),
    )
