"""Private linear classifiers with the scikit-learn interface."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from discreet import _inputs
from discreet.estimators._classifier import LogOddsClassifier, PrivateLinearClassifier
from discreet.geometries import Geometry
from discreet.losses import HuberHinge, Logistic, Loss, Softmax
from discreet.solvers import base

if TYPE_CHECKING:
    from discreet.privacy.ledger import Ledger


class PrivateLogisticRegression(LogOddsClassifier):
    """Logistic regression under differential privacy, binary or multinomial.

    Rows are clipped to ``feature_bound`` in L2 norm, the intercept's constant column included. With the defaults
    there is nothing to tune: noise and regularization follow from public numbers.

    Parameters
    ----------
    epsilon : float, default 1.0
        Privacy budget of one fit, in nats. Smaller is more private.
    delta : float, default None
        Probability with which epsilon may be exceeded; None is 1 / n_samples**2.
    neighboring : {"replace-one", "add-remove-one", "zero-out"}
        Which data sets must be indistinguishable. Under "add-remove-one" the number of rows is private, and
        ``n_samples`` declares an upper bound.
    feature_bound : float, default 1.0
        Largest L2 norm of a row, the intercept's 1 included; longer rows are shrunk onto it. A public choice.
    l2 : float, default None
        Ridge coefficient relative to the mean loss; None chooses one from public numbers. Raised where the privacy
        proof needs more.
    classes : list, default None
        The public label set. If None it is read from the data, with a warning and a note in the statement.
    multi_class : {"auto", "softmax", "ovr"}
        One softmax with one noise matrix, or one model per class with the exact cost of all together.
    fit_intercept : bool, default True
        Whether to add a constant column (regularized and perturbed like every other).
    constraint : set of `discreet.geometries`, default None
        Where the coefficients must lie, the intercept last: for instance ``L2Ball(5.0, n_features + 1)``. Of a softmax
        all coefficients are one vector, column by column of X; one-vs-rest models have one each. The default solver is
        then "frank-wolfe"; "mirror-descent", "noisy-gd", "objective" and "output" know sets too.
    solver : str or solver object, default "auto"
        "auto" chooses by public facts; "objective" (tight objective perturbation), "noisy-gd", "noisy-sgd", "newton",
        "discriminant", "output", "psgd", and names ending in "-dissertation" for the printed calibrations.
    ledger : Ledger or path, default None
        Budget from which every fit is charged before it runs.
    bad_rows : {"error", "null"}
        What to do with rows that are not finite or whose label is unknown: raise before any charge (you hold the
        data and should know), or treat them as null records so that no error depends on a private value.
    n_samples : int, default None
        Public upper bound on the number of rows, needed only under "add-remove-one".
    max_rows_per_group : int, default None
        With ``fit(X, y, groups=...)``: how many rows of one group are used at most. The promise is then about all rows
        of a group, and the number of groups is public instead of the number of rows. A public choice.
    random_state : None, int or SeedSequence
        Repeatability of optimizers; never of the privacy noise.

    Attributes
    ----------
    coef_, intercept_ : released coefficients, of clipped rows.
    classes_ : labels, in the order of the rows of ``coef_``.
    privacy_ : the `PrivacyStatement`; print it.
    fitted_parameters_ : the parameters of the fit, which predictions and files go by; others wait for the next fit.

    Privacy
    -------
    (epsilon, delta)-DP of ``coef_`` and ``intercept_`` under the stated relation; unit: one row, or one group of
    rows. Not covered: the time a fit takes, and anything published from private rows other than through the
    released coefficients.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import PrivateLogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 3))
    >>> y = (X @ [1.0, -2.0, 0.5] > 0).astype(int)
    >>> model = PrivateLogisticRegression(epsilon=1.0, classes=[0, 1]).fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
    True
    >>> model.privacy_.epsilon
    1.0
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        neighboring: str = "replace-one",
        feature_bound: float = 1.0,
        l2: float | None = None,
        classes: Any = None,
        multi_class: str = "auto",
        fit_intercept: bool = True,
        constraint: Geometry | None = None,
        solver: str | base.Solver = "auto",
        ledger: Ledger | str | os.PathLike[str] | None = None,
        bad_rows: str = "error",
        n_samples: int | None = None,
        max_rows_per_group: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.neighboring = neighboring
        self.feature_bound = feature_bound
        self.l2 = l2
        self.classes = classes
        self.multi_class = multi_class
        self.fit_intercept = fit_intercept
        self.constraint = constraint
        self.solver = solver
        self.ledger = ledger
        self.bad_rows = bad_rows
        self.n_samples = n_samples
        self.max_rows_per_group = max_rows_per_group
        self.random_state = random_state

    def _loss(self, solver: base.Solver, n_classes: int) -> tuple[Loss, int]:
        choice = _inputs.choice("multi_class", self.multi_class, ("auto", "softmax", "ovr"))
        if n_classes == 2:
            return Logistic(), 1
        one_vs_rest = choice == "ovr" or (choice == "auto" and solver.multiclass == "one-vs-rest")
        return (Logistic(), n_classes) if one_vs_rest else (Softmax(n_classes), 1)


class PrivateLinearSVC(PrivateLinearClassifier):
    """Linear support vector classification (Huber-smoothed hinge loss) under differential privacy.

    Parameters
    ----------
    huber_width : float, default 0.5
        Half-width of the quadratic piece that replaces the hinge's corner: smaller is closer to the hinge and needs
        more regularization.
    epsilon, delta, neighboring, feature_bound, l2, classes, fit_intercept, constraint, solver, ledger, bad_rows, \
n_samples, max_rows_per_group, random_state
        As for `PrivateLogisticRegression`. More than two classes are fitted one-vs-rest, priced jointly.

    Privacy
    -------
    As for `PrivateLogisticRegression`.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import PrivateLinearSVC
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 3))
    >>> y = np.where(X @ [1.0, -2.0, 0.5] > 0, "yes", "no")
    >>> bool(PrivateLinearSVC(epsilon=1.0, classes=["no", "yes"]).fit(X, y).score(X, y) > 0.9)
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        huber_width: float = 0.5,
        neighboring: str = "replace-one",
        feature_bound: float = 1.0,
        l2: float | None = None,
        classes: Any = None,
        fit_intercept: bool = True,
        constraint: Geometry | None = None,
        solver: str | base.Solver = "auto",
        ledger: Ledger | str | os.PathLike[str] | None = None,
        bad_rows: str = "error",
        n_samples: int | None = None,
        max_rows_per_group: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.huber_width = huber_width
        self.neighboring = neighboring
        self.feature_bound = feature_bound
        self.l2 = l2
        self.classes = classes
        self.fit_intercept = fit_intercept
        self.constraint = constraint
        self.solver = solver
        self.ledger = ledger
        self.bad_rows = bad_rows
        self.n_samples = n_samples
        self.max_rows_per_group = max_rows_per_group
        self.random_state = random_state

    def _loss(self, solver: base.Solver, n_classes: int) -> tuple[Loss, int]:
        loss = HuberHinge(_inputs.real("huber_width", self.huber_width, above=0))
        return loss, 1 if n_classes == 2 else n_classes
