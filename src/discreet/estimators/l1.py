"""Private models with few large coefficients: least squares and classifiers over an L1 ball.

Entries of the features are bounded instead of norms of rows, and coefficients stay in an L1 ball. Then the noise grows
with the logarithm of the number of columns (Talwar, Thakurta and Zhang, 2015).
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import ClassVar, Literal

from discreet import _checks
from discreet._checks import ParameterError, Setting
from discreet.estimators.classifiers import LogOddsClassifier, PrivateLinearClassifier
from discreet.estimators.linear import EntrywiseModel, NoiseWarning, Task
from discreet.estimators.parameters import entry_bound, estimator, intercept, parameter
from discreet.estimators.regressors import PrivateLinearRegressor
from discreet.losses import HuberHinge, Logistic, Loss, Softmax, Squared
from discreet.privacy.guarantee import Guarantee
from discreet.problem import Problem, choice_signal
from discreet.sets import L1Ball
from discreet.solvers import base
from discreet.solvers.class_sums.refocused import RefocusedSums
from discreet.solvers.vertices.frank_wolfe import CLEAR, FrankWolfe
from discreet.solvers.vertices.paced_walk import PacedWalkPlan

_UNSEEN = 0.05  # mean entry of a column relative to the entry bound; few columns of sparse rows have more
_SIZES = (1e-3, 1e4)  # of the L1 ball, in units of the label or of the log-odds
# Default sizes of the ball for labels, where noise counts and where a choice rises far above it (`choice_signal`).
_SHORT, _LONG, _FAR_ABOVE = 5.0, 40.0, 40.0
_SLOPE_SHARE = 0.1  # of the budget, for the slope along a long walk


@estimator
class _OverL1Ball(EntrywiseModel):
    """Shared by these estimators: an L1 ball and a certificate."""

    feature_bound: float = entry_bound()
    fit_intercept: bool = intercept()
    solver: str | base.Solver = parameter(
        "frank-wolfe",
        "str or solver object",
        '"frank-wolfe" or "mirror-descent"; ``FrankWolfe(n_iterations=...)`` chooses the number of steps.',
    )

    def _label_scale(self) -> float:
        """Return one unit of the solver's predictions, in units of ``l1_radius``."""
        return 1.0

    def _size(self) -> float:
        """Return the size of the L1 ball in the solver's units."""
        if self.l1_radius is None:
            return 1.0
        size = _checks.real("l1_radius", self.l1_radius, above=0) / self._label_scale()
        low, high = _SIZES
        if not low <= size <= high:
            raise ParameterError(
                "l1_radius",
                f"must lie between {low:g} and {high:g} times the scale of the labels, got {size:g} times",
                "a larger ball needs more noise, a smaller one holds hardly more than the constant model",
            )
        return size

    def _problem(self, task: Task, n_samples: int, n_columns: int) -> Problem:
        free = super()._problem(task, n_samples, n_columns)
        return dataclasses.replace(free, geometry=L1Ball(self._size(), free.n_features))

    def _warn(self, plan: base.Plan) -> None:
        super()._warn(plan)
        if plan.problem.sparse and isinstance(plan, PacedWalkPlan) and plan.least_seen > _UNSEEN:
            warnings.warn(
                f"the noise is made for entries up to feature_bound = {self.feature_bound:g}, and a column rises above "
                f"it only if its entries are about {plan.least_seen:.2g} times that on average over all "
                "records. Rows of norm 1 have smaller entries: declare the largest one as feature_bound, use 0 and 1 "
                "for absent and present, or choose max_columns of PrivateSparseLogisticRegression",
                NoiseWarning,
                stacklevel=4,
            )

    def _stated_bounds(self, problem: Problem) -> dict[str, float | str]:
        stated: dict[str, float | str] = {"largest absolute feature": float(self.feature_bound)}
        if isinstance(problem.geometry, L1Ball):
            stated["L1 ball (features scaled to [-1, 1])"] = problem.geometry.size
        return stated


@dataclasses.dataclass(frozen=True)
class _Farther:
    """Frank-Wolfe, for dense rows with a cap on derivatives where choices among the columns are clear of the noise.

    Where they rise far above it, with a longer ball and a slope.
    """

    name: ClassVar[str] = FrankWolfe.name
    multiclass: ClassVar[Literal["softmax", "one-vs-rest"]] = FrankWolfe.multiclass
    solver: FrankWolfe

    def plan(self, problem: Problem, guarantee: Guarantee) -> base.Plan:
        """Return the plan of Frank-Wolfe in the ball that public facts choose."""
        n_columns = problem.n_features - int(problem.bounds.intercept)
        signal = 0.0 if problem.sparse else choice_signal(problem, guarantee, 2 * n_columns)
        solver = self.solver
        given = solver.choice != "auto" or solver.evidence_share is not None
        if signal >= CLEAR and not given:
            solver = dataclasses.replace(solver, capped=True)
        if signal >= _FAR_ABOVE:
            problem = dataclasses.replace(problem, geometry=L1Ball(_LONG, problem.n_features))
            if not given and problem.bounds.intercept and guarantee.delta > 0:
                solver = dataclasses.replace(solver, slope_share=_SLOPE_SHARE)
        return solver.plan(problem, guarantee)


class _MarginsOverL1Ball(_OverL1Ball):
    """Classifiers: a short walk where noise counts, a long one where rows are many."""

    def _size(self) -> float:
        return _SHORT if self.l1_radius is None else super()._size()

    def _task(self, solver: base.Solver, n_columns: int, n_classes: int | None) -> Task:
        task = super()._task(solver, n_columns, n_classes)
        if self.l1_radius is None and isinstance(task.solver, FrankWolfe):
            return task._replace(solver=_Farther(task.solver))
        return task


@estimator
class PrivateLasso(_OverL1Ball, PrivateLinearRegressor):
    """Least squares over an L1 ball under differential privacy: the private LASSO.

    minimize mean (prediction - y)^2 / 2 over sum_j feature_bound |coef_j| <= l1_radius; the intercept is free within
    target_bounds (inside the ball with "mirror-descent"). With the default solver, a fit of T steps has at most T
    nonzero coefficients, and none if noise would choose them.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    coef_, intercept_ : released coefficients, for clipped features.
    certificate_ : bound on the excess empirical risk over the ball for the released intercept, for targets scaled to
        [-1, 1]; ``plan(n, p).certificate``, available before fitting, is for a full walk and a fixed intercept.
    {fitted}

    Notes
    -----
    {privacy}

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import PrivateLasso
    >>> rng = np.random.default_rng(0)
    >>> X = rng.choice([-1.0, 1.0], size=(20_000, 500))
    >>> y = 3.0 * X[:, 0] - 1.0 * X[:, 1]
    >>> model = PrivateLasso(epsilon=1.0, target_bounds=(-4, 4)).fit(X, y)
    >>> int(np.abs(model.coef_).argmax()), bool(model.score(X, y) > 0.5)
    (0, True)
    """

    l1_radius: float | None = parameter(
        None,
        "float",
        "How far predictions may reach from the intercept; None is half the width of ``target_bounds``.",
    )

    def _label_scale(self) -> float:
        return self._target_range()[1]

    def _loss(self, half_width: float) -> Loss:
        # Slightly larger, because rounding may move iterates out of the ball; inside, the loss is exactly squared.
        return Squared(prediction_bound=self._size() * (1 + 1e-9), label_bound=1.0)


@estimator
class PrivateSparseLogisticRegression(_MarginsOverL1Ball, LogOddsClassifier):
    """Logistic regression over an L1 ball under differential privacy.

    minimize the mean logistic loss over sum_j feature_bound |coef_j| <= l1_radius, with a free intercept (inside the
    ball with "mirror-descent"); more than two classes are fitted one-vs-rest, within one epsilon.

    With ``max_columns``, columns are selected and refitted instead: a first release of the class sums selects the
    columns, a second one fits them. There is then no ball and no certificate, and all classes are fitted together. On
    texts this was at least 7 points of accuracy better with as many columns (benchmarks/results/text.md).

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    coef_, intercept_, classes_, privacy_ : as for `PrivateLogisticRegression`.
    certificate_ : bound on the excess empirical risk over the ball (of the worst model if there are several).

    Notes
    -----
    {privacy}

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import PrivateSparseLogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.choice([-1.0, 1.0], size=(20_000, 500))
    >>> model = PrivateSparseLogisticRegression(epsilon=1.0, classes=[-1, 1]).fit(X, X[:, 3])
    >>> bool(model.score(X, X[:, 3]) > 0.9)
    True
    """

    l1_radius: float | None = parameter(
        None,
        "float",
        "Size of the ball: how far the log-odds of a prediction can be from the intercept. None is 5, or 40 with "
        "Frank-Wolfe for dense rows so many that choices of columns rise far above the noise.",
    )
    max_columns: int | None = parameter(
        None,
        "int",
        "How many columns the model may use: one release selects them and another refits them, by the solver "
        '"refocused-sums". None leaves the number to the steps in the ball.',
    )

    def _task(self, solver: base.Solver, n_columns: int, n_classes: int | None) -> Task:
        if self.max_columns is None:
            return super()._task(solver, n_columns, n_classes)
        if self.solver not in ("frank-wolfe", RefocusedSums.name):
            raise ParameterError(
                "max_columns",
                f"selects columns by the solver 'refocused-sums', got solver={self.solver!r}",
                Setting("max_columns", None),
            )
        known = n_classes or 2
        return Task(RefocusedSums(self.max_columns), Logistic() if known == 2 else Softmax(known))

    def _problem(self, task: Task, n_samples: int, n_columns: int) -> Problem:
        inside = super()._problem(task, n_samples, n_columns)
        return inside if self.max_columns is None else dataclasses.replace(inside, geometry=None)

    def _loss(self, solver: base.Solver, n_classes: int) -> tuple[Loss, int]:
        return Logistic(), 1 if n_classes == 2 else n_classes


@estimator
class PrivateSparseLinearSVC(_MarginsOverL1Ball, PrivateLinearClassifier):
    """Linear support vector classification (Huber-smoothed hinge loss) over an L1 ball under differential privacy.

    minimize the mean loss over sum_j feature_bound |coef_j| <= l1_radius, with a free intercept (inside the ball with
    "mirror-descent"); more than two classes are fitted one-vs-rest, within one epsilon. A fit of T steps has at most T
    coefficients that are not 0.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    coef_, intercept_, classes_, privacy_ : as for `PrivateLinearSVC`.
    certificate_ : bound on the excess empirical risk over the ball (of the worst model where there are several).

    Notes
    -----
    {privacy}

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import PrivateSparseLinearSVC
    >>> X = np.random.default_rng(0).choice([-1.0, 1.0], size=(20_000, 500))
    >>> model = PrivateSparseLinearSVC(epsilon=1.0, classes=[-1, 1]).fit(X, X[:, 3])
    >>> bool(model.score(X, X[:, 3]) > 0.9)
    True
    """

    l1_radius: float | None = parameter(
        None,
        "float",
        "Size of the ball: how far a prediction can be from the intercept, in margins. None is 5, or 40 with "
        "Frank-Wolfe for dense rows so many that choices of columns rise far above the noise.",
    )
    huber_width: float = parameter(
        0.5, "float", "Half-width of the quadratic piece that replaces the hinge's corner."
    )

    def _loss(self, solver: base.Solver, n_classes: int) -> tuple[Loss, int]:
        loss = HuberHinge(_checks.real("huber_width", self.huber_width, above=0))
        return loss, 1 if n_classes == 2 else n_classes
