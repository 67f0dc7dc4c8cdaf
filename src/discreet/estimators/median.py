"""The private geometric median: the point of least total distance to all rows."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from discreet import _inputs
from discreet.estimators import _data, _fit
from discreet.estimators._groups import GroupPlan, bounded_rows, plan_for_groups
from discreet.mechanisms.entropy import fresh_entropy
from discreet.privacy.statement import PrivacyStatement
from discreet.records.points import Points
from discreet.solvers.geometric_median import LocationProblem, MedianDescent, MedianPlan

if TYPE_CHECKING:
    from discreet.privacy.ledger import Ledger

Array = NDArray[np.float64]


class PrivateMedian(BaseEstimator):  # type: ignore[misc]
    """Geometric median (Euclidean 1-median) under differential privacy.

    The minimizer of sum_i |theta - x_i|. Nearly half of the rows may lie anywhere without moving it far, and each pulls
    with the same force, so that outliers cost neither accuracy nor noise.

    Parameters
    ----------
    epsilon : float, default 1.0
        Privacy budget of one fit, in nats. Smaller is more private.
    delta : float, default None
        Probability with which epsilon may be exceeded; None is 1 / n_samples**2. Must be greater than 0.
    radius : float
        The rows are expected in the ball of this radius around ``center``, declared from public knowledge; rows outside
        are pulled onto it. Required. Accuracy is relative to it; privacy does not depend on it.
    center : array of shape (n_features,), default None
        Center of the ball; None is the origin.
    neighboring : {"replace-one", "add-remove-one", "zero-out"}
        Which data sets must be indistinguishable.
    solver : MedianDescent, default None
        Number of noisy steps and width of the rounding at distance 0; None is ``MedianDescent()``.
    ledger : Ledger or path, default None
        Budget from which every fit is charged before it runs.
    bad_rows : {"error", "null"}
        What to do with rows that are not finite.
    n_samples : int, default None
        Public upper bound on the number of rows, needed only under "add-remove-one".
    max_rows_per_group : int, default None
        With ``fit(X, groups=ids)``: how many rows of one group are used at most; the promise is then about the group.

    Attributes
    ----------
    median_ : array of shape (n_features,)
    privacy_ : the `PrivacyStatement`; print it.
    fitted_parameters_ : the parameters of the fit, which predictions and files go by; others wait for the next fit.

    Privacy
    -------
    (epsilon, delta)-DP of ``median_`` under the stated relation; unit: one row. Not covered: the time a fit takes, and
    anything published from private rows other than through the released point.

    References
    ----------
    Bassily, Smith and Thakurta (2014), section II, for the problem; proof: docs/proofs/geometric-median.md.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import PrivateMedian
    >>> X = np.random.default_rng(0).normal([3.0, -1.0], 0.5, size=(20_000, 2))
    >>> X[:4000] = 1e6
    >>> median = PrivateMedian(epsilon=1.0, radius=10.0).fit(X).median_
    >>> bool(np.abs(median - [3.0, -1.0]).max() < 0.3)
    True
    """

    median_: Array
    privacy_: PrivacyStatement
    fitted_parameters_: dict[str, Any]

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        radius: float | None = None,
        center: ArrayLike | None = None,
        neighboring: str = "replace-one",
        solver: MedianDescent | None = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        bad_rows: str = "error",
        n_samples: int | None = None,
        max_rows_per_group: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.radius = radius
        self.center = center
        self.neighboring = neighboring
        self.solver = solver
        self.ledger = ledger
        self.bad_rows = bad_rows
        self.n_samples = n_samples
        self.max_rows_per_group = max_rows_per_group

    def plan(self, n_samples: int, n_features: int) -> MedianPlan | GroupPlan:
        """What a fit on data of this shape would run and cost; no data is needed.

        Parameters
        ----------
        n_samples, n_features : public shape of the data; under "add-remove-one" ``n_samples`` is a public upper bound;
            with ``max_rows_per_group`` it counts places, the number of groups times that bound.
        """
        if self.radius is None:
            raise ValueError(
                "radius must be declared: the rows are expected in the ball of this radius around center, known "
                "without looking at the private data; rows outside are pulled onto it"
            )
        radius = _inputs.real("radius", self.radius, above=0)
        _inputs.count("n_features", n_features)
        guarantee, size = _fit.guarantee_of(self.epsilon, self.delta, self.neighboring, None, n_samples)
        solver = MedianDescent() if self.solver is None else self.solver
        problem = LocationProblem(size, n_features, radius)
        rows = self._rows_per_group()
        if rows is None:
            return solver.plan(problem, guarantee)
        return plan_for_groups(cast(Any, solver), cast(Any, problem), guarantee, rows)

    def fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:
        """Fit privately; charges the ledger, if there is one, before anything private runs.

        Parameters
        ----------
        X : array, data frame or SciPy sparse matrix of shape (n_samples, n_features).
        y : ignored.
        groups : one id per row that says whose row it is; needs ``max_rows_per_group``.
        """
        fitted = _fit.unfitted(self)
        fitted._fit(X, groups)
        self.__dict__ = fitted.__dict__
        return self

    def _fit(self, X: Any, groups: Any) -> None:
        """The one path: validate, bound, plan, charge, run, state."""
        strict = _inputs.choice("bad_rows", self.bad_rows, ("error", "null")) == "error"
        rows = _data.checked_rows(self, X, strict=strict, reset=True)
        rows = self._bounded(rows, groups, strict)
        n_rows, n_columns = rows.shape
        # The plan must not see the data: under a relation that hides the number of rows, neither may it see n_rows.
        size = _fit.guarantee_of(self.epsilon, self.delta, self.neighboring, n_rows, self.n_samples)[1]
        plan = self.plan(size, n_columns)
        center = self._center(n_columns)
        radius = float(self.radius)  # type: ignore[arg-type]  # the plan has checked it
        points = Points(rows, center, radius)
        receipt = _fit.charge(self.ledger, plan, label=type(self).__name__)
        release = plan.run(cast(Any, points), fresh_entropy())
        self.median_ = center + radius * release.theta[0]
        self.fitted_parameters_ = _fit.parameters(self)
        self.privacy_ = self._state(plan, release.secure).paid_by(receipt)

    def _bounded(self, rows: Any, groups: Any, strict: bool) -> Any:
        """At most so many rows of every group; the places that a group leaves empty hold null rows."""
        padded = _fit.relation_of(self.neighboring).size_is_public
        slots = bounded_rows(groups, self._rows_per_group(), rows.shape[0], strict=strict, padded=padded)
        if slots is None:
            return rows
        chosen = rows[slots.rows].toarray() if hasattr(rows, "indptr") else rows[slots.rows]
        chosen[slots.empty] = np.nan
        return chosen

    def _rows_per_group(self) -> int | None:
        rows = self.max_rows_per_group
        return None if rows is None else _inputs.count("max_rows_per_group", rows)

    def _center(self, n_columns: int) -> Array:
        if self.center is None:
            return np.zeros(n_columns)
        center = np.asarray(self.center, dtype=np.float64)
        if center.shape != (n_columns,) or not np.all(np.isfinite(center)):
            raise ValueError(f"center must hold {n_columns} finite numbers, got {self.center!r}")
        return center

    def _state(self, plan: MedianPlan | GroupPlan, secure: bool) -> PrivacyStatement:
        """The promise that travels with the released point."""
        size = plan.problem.n_samples
        return PrivacyStatement.of(
            plan,
            bounds={
                "radius of the ball": float(self.radius),  # type: ignore[arg-type]
                "records": float(size),
                "coefficients": float(plan.problem.n_features),
            },
            assumptions=(
                "center and radius were chosen without looking at the private data (given by the user)",
                *_fit.size_facts(plan.guarantee.neighboring, size, self._rows_per_group(), self.delta),
                _fit.unit_assumption(plan.guarantee),
                *_fit.PLATFORM_ASSUMPTIONS,
            ),
            not_covered=_fit.NOT_COVERED,
            secure=secure,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = True
        return tags
