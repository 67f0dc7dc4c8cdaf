"""The private geometric median: the point with the least total distance to all rows."""

from __future__ import annotations

from typing import Any, ClassVar, Self, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from discreet import _checks
from discreet._checks import ParameterError, calm
from discreet._typing import Array
from discreet.estimators.groups import plan_for_groups
from discreet.estimators.linear import PrivateModel, parameters_of, unfitted, with_facts
from discreet.estimators.parameters import estimator, parameter
from discreet.privacy.guarantee import guarantee_of
from discreet.records.open import checked_rows
from discreet.release import (
    NOT_COVERED,
    PLATFORM_ASSUMPTIONS,
    carry_out,
    foreign_parts,
    size_facts,
    unit_assumption,
)
from discreet.solvers import base
from discreet.solvers.median import LocationProblem, MedianDescent, Points


@estimator
class PrivateMedian(PrivateModel):
    """Geometric median (Euclidean 1-median) under differential privacy.

    The minimizer of sum_i |theta - x_i|. Every row has a gradient of the same length, so nearly half of the rows can
    lie anywhere without moving the median far, and outliers need no more noise. ``delta=0`` allows fewer steps.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    median_ : array of shape (n_features,)
    {fitted}

    Notes
    -----
    {privacy}

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

    _released: ClassVar[tuple[str, ...]] = ("median_",)

    radius: float | None = parameter(
        None,
        "float",
        "Radius of the ball around ``center`` in which rows are expected, declared from public knowledge; rows "
        "outside are moved onto it. Required. Accuracy is relative to it; privacy does not depend on it.",
    )
    center: ArrayLike | None = parameter(
        None, "array of shape (n_features,)", "Center of the ball; None is the origin."
    )
    solver: MedianDescent | None = parameter(
        None,
        "MedianDescent",
        "Number of noisy steps and width of the rounding at distance 0; None is ``MedianDescent()``.",
    )

    def plan(self, n_samples: int, n_features: int) -> base.Plan:
        """Return what a fit on data of this shape would run and cost; no data is needed.

        Parameters
        ----------
        n_samples, n_features : public shape of the data; under "add-remove-one" ``n_samples`` is a public upper bound;
            with ``max_rows_per_group`` it is the number of groups times that bound.
        """
        if self.radius is None:
            raise ParameterError(
                "radius",
                "must be declared: the rows are expected in the ball of this radius around "
                "center, known without looking at the private data",
                "rows outside are clipped onto it",
            )
        radius = _checks.real("radius", self.radius, above=0)
        _checks.count("n_features", n_features)
        guarantee, size = guarantee_of(self.epsilon, self.delta, self.neighboring, None, n_samples)
        solver = MedianDescent() if self.solver is None else self.solver
        problem = LocationProblem(size, n_features, radius)
        rows = self._rows_per_group()
        return (
            solver.plan(problem, guarantee)
            if rows is None
            else plan_for_groups(solver, problem, guarantee, rows)
        )

    def fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:
        """Fit privately; charges the ledger, if any, before anything private runs.

        Parameters
        ----------
        X : array, data frame or SciPy sparse matrix of shape (n_samples, n_features).
        y : ignored.
        groups : one person id per row; requires ``max_rows_per_group``.
        """
        fitted = unfitted(self)
        with calm():
            fitted._fit(X, groups)
        self.__dict__ = fitted.__dict__
        return self

    def _fit(self, X: Any, groups: Any) -> None:
        """Validate, bound, plan, run, state."""
        strict = _checks.choice("bad_rows", self.bad_rows, ("error", "null")) == "error"
        rows = checked_rows(self, X, strict=strict, reset=True)
        slots = self._slots(groups, rows.shape[0])
        if slots is not None:
            rows = rows[slots.rows].toarray() if bool(sp.issparse(rows)) else rows[slots.rows]
            rows[slots.empty] = np.nan  # null rows
        n_rows, n_columns = rows.shape
        # The plan must not see the data; under a relation that hides the number of rows, not even n_rows.
        size = guarantee_of(self.epsilon, self.delta, self.neighboring, n_rows, self.n_samples)[1]
        plan = self.plan(size, n_columns)
        center = self._center(n_columns)
        radius = float(self.radius)  # type: ignore[arg-type]  # the plan has checked it
        points = Points(rows, center, radius)
        carried = carry_out(
            cast(Any, plan),
            points,
            self.ledger,
            type(self).__name__,
            published=lambda release: with_facts({"median_": center + radius * release.theta[0]}, vars(self)),
        )
        self.released_ = dict(carried.published)
        self.median_ = self.released_["median_"].copy()
        self.fitted_parameters_ = parameters_of(self)
        size = plan.problem.n_samples
        self.privacy_ = carried.state(
            bounds={
                "radius of the ball": radius,
                "records": float(size),
                "coefficients": float(n_columns),
            },
            assumptions=(
                "center and radius were chosen without looking at the private data (given by the user)",
                *size_facts(plan.guarantee.neighboring, size, self._rows_per_group(), self.delta),
                unit_assumption(plan.guarantee),
                *foreign_parts(cast(Any, self.solver)),
                *PLATFORM_ASSUMPTIONS,
            ),
            not_covered=NOT_COVERED,
        )

    def _center(self, n_columns: int) -> Array:
        if self.center is None:
            return np.zeros(n_columns)
        center = np.asarray(self.center, dtype=np.float64)
        if center.shape != (n_columns,) or not np.all(np.isfinite(center)):
            raise ParameterError("center", f"must hold {n_columns} finite numbers, got {self.center!r}")
        return center
