"""Models of rows without labels: the geometric median, and principal components."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

from discreet import _checks
from discreet._checks import ParameterError, calm
from discreet._typing import Array
from discreet.estimators.groups import Slots, plan_for_groups
from discreet.estimators.linear import PrivateModel, parameters_of, unfitted, with_facts
from discreet.estimators.parameters import estimator, parameter
from discreet.privacy.guarantee import Guarantee, guarantee_of
from discreet.records.bounds import Bounds
from discreet.records.open import as_records, checked_rows, open_rows, take
from discreet.release import (
    NOT_CHECKED,
    NOT_COVERED,
    PLATFORM_ASSUMPTIONS,
    Carried,
    carry_out,
    foreign_parts,
    size_facts,
    unit_assumption,
)
from discreet.solvers import base
from discreet.solvers.components import ComponentsProblem, ComponentsRelease, NoisyComponents
from discreet.solvers.median import LocationProblem, MedianDescent, Points


class UnlabeledModel(PrivateModel):
    """What models of rows without labels share: the size that a plan may see, the one release, and its statement."""

    def plan(self, n_samples: int, n_features: int) -> base.Plan:
        """Return what a fit on data of this shape would run and cost; no data is needed."""
        raise NotImplementedError

    def _priced(self, solver: Any, problem: Any, guarantee: Guarantee) -> base.Plan:
        """Return the plan of a solver for single rows, or for all rows of a person."""
        rows = self._rows_per_group()
        if rows is None:
            return cast(base.Plan, solver.plan(problem, guarantee))
        return plan_for_groups(solver, problem, guarantee, rows)

    def _checked(self, X: Any, groups: Any) -> tuple[Any, bool, Slots | None]:
        """Return checked rows, whether bad ones are errors, and the places of people's rows if these are protected."""
        strict = _checks.choice("bad_rows", self.bad_rows, ("error", "null")) == "error"
        rows = checked_rows(self, X, strict=strict, reset=True)
        return rows, strict, self._slots(groups, rows.shape[0])

    def _plan_of(self, rows: Any) -> base.Plan:
        # The plan must not see the data; under a relation that hides the number of rows, not even how many there are.
        size = guarantee_of(self.epsilon, self.delta, self.neighboring, rows.shape[0], self.n_samples)[1]
        return self.plan(size, rows.shape[1])

    def _carry_out(
        self,
        plan: base.Plan,
        data: Any,
        numbers: Callable[[Any], dict[str, Any]],
        bounds: Mapping[str, float],
        *,
        given: tuple[str, ...] = (),
        checks: tuple[str, ...] = (),
    ) -> None:
        """Charge, run, keep the ``numbers`` of the release and state what was promised."""
        carried: Carried[Any] = carry_out(
            cast(Any, plan),
            data,
            self.ledger,
            type(self).__name__,
            published=lambda release: with_facts(numbers(release), vars(self)),
        )
        self.__dict__.update(numbers(carried.release))
        self.released_ = dict(carried.published)
        self.fitted_parameters_ = parameters_of(self)
        size = plan.problem.n_samples
        self.privacy_ = carried.state(
            bounds=bounds,
            assumptions=(
                *given,
                *size_facts(plan.guarantee.neighboring, size, self._rows_per_group(), self.delta),
                unit_assumption(plan.guarantee),
                *checks,
                *PLATFORM_ASSUMPTIONS,
            ),
            not_covered=NOT_COVERED,
        )


@estimator
class PrivateMedian(UnlabeledModel):
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
        return self._priced(solver, problem, guarantee)

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
        rows, _, slots = self._checked(X, groups)
        if slots is not None:
            rows = rows[slots.rows].toarray() if bool(sp.issparse(rows)) else rows[slots.rows]
            rows[slots.empty] = np.nan  # null rows
        plan, n_columns = self._plan_of(rows), rows.shape[1]
        center = self._center(n_columns)
        radius = float(self.radius)  # type: ignore[arg-type]  # the plan has checked it
        self._carry_out(
            plan,
            Points(rows, center, radius),
            lambda release: {"median_": center + radius * release.theta[0]},
            {
                "radius of the ball": radius,
                "records": float(plan.problem.n_samples),
                "coefficients": float(n_columns),
            },
            given=("center and radius were chosen without looking at the private data (given by the user)",),
            checks=foreign_parts(cast(Any, self.solver)),
        )

    def _center(self, n_columns: int) -> Array:
        if self.center is None:
            return np.zeros(n_columns)
        center = np.asarray(self.center, dtype=np.float64)
        if center.shape != (n_columns,) or not np.all(np.isfinite(center)):
            raise ParameterError("center", f"must hold {n_columns} finite numbers, got {self.center!r}")
        return center


@estimator
class PrivatePCA(TransformerMixin, UnlabeledModel):  # type: ignore[misc]
    """Principal components under differential privacy: the directions in which rows vary most.

    Rows are scaled down to norm ``feature_bound``. With ``center=False`` the components are right singular vectors of
    the rows, and ``inverse_transform(transform(X))`` is a low-rank approximation of the rows it is given.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    components_ : released directions: orthonormal rows of shape (n_components, n_features), largest variance first.
    mean_ : released mean of the scaled rows; zeros with ``center=False``.
    explained_variance_ : variance along each of them, with the share of the noise removed; 0 for directions that noise
        alone could have made.
    explained_variance_ratio_ : the same over the variance in all directions, which only the method "svd" releases;
        empty for the others.
    {fitted}

    Notes
    -----
    {privacy}

    ``transform`` adds no noise: its result for private rows is private data.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import PrivatePCA
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 1)) @ [[0.2, -0.2, 0.1]] + 0.02 * rng.normal(size=(20_000, 3)) + [0.1, 0.2, 0.0]
    >>> pca = PrivatePCA(n_components=1, epsilon=1.0).fit(X)
    >>> bool(abs(pca.components_[0] @ [2 / 3, -2 / 3, 1 / 3]) > 0.99)
    True
    >>> pca.transform(X[:5]).shape
    (5, 1)
    """

    _released: ClassVar[tuple[str, ...]] = (
        "components_",
        "mean_",
        "explained_variance_",
        "explained_variance_ratio_",
    )

    n_components: int = parameter(2, "int", "Number of directions.")
    feature_bound: float = parameter(
        1.0,
        "float",
        "Largest L2 norm of a row; longer rows are scaled down. Choose it without looking at the data.",
    )
    center: bool = parameter(
        True,
        "bool",
        "Whether the mean of the rows is released, for a part of the budget, and subtracted. Not possible under "
        '"add-remove-one": take public constants off the columns there.',
    )
    method: str | NoisyComponents = parameter(
        "auto",
        '{"auto", "svd", "power", "oja"} or NoisyComponents',
        'Noise on the second moment ("svd"), or on products with a block of directions that converges to the largest '
        'ones ("power", "oja"): for more columns than a matrix has room for. "auto": svd for at most 4000 columns.',
    )

    def plan(self, n_samples: int, n_features: int) -> base.Plan:
        """Return what a fit on data of this shape would run and cost; no data is needed.

        Parameters
        ----------
        n_samples, n_features : public shape of the data; under "add-remove-one" ``n_samples`` is a public upper bound;
            with ``max_rows_per_group`` it counts places, the number of groups times that bound.
        """
        _checks.count("n_features", n_features)
        wanted = _checks.count("n_components", self.n_components)
        if wanted > n_features:
            raise ParameterError(
                "n_components", f"must be at most the number of columns {n_features}, got {wanted}"
            )
        bound = _checks.real("feature_bound", self.feature_bound, above=0)
        guarantee, size = guarantee_of(self.epsilon, self.delta, self.neighboring, None, n_samples)
        solver = self.method if isinstance(self.method, NoisyComponents) else NoisyComponents(self.method)
        problem = ComponentsProblem(size, n_features, bound, wanted, bool(self.center))
        return self._priced(solver, problem, guarantee)

    def fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:
        """Fit privately; charges the ledger, if there is one, before anything private runs.

        Parameters
        ----------
        X : array, data frame or SciPy sparse matrix of shape (n_samples, n_features); or files, a query or a frame of
            a cluster, of which all columns are features.
        y : ignored.
        groups : one id per row that says whose row it is; needs ``max_rows_per_group``.
        """
        fitted = unfitted(self)
        with calm(), open_rows(X, bad_rows=self.bad_rows, sums=True, labeled=False) as (rows, _):
            fitted._fit(rows, groups)
        self.__dict__ = fitted.__dict__
        return self

    def _fit(self, X: Any, groups: Any) -> None:
        """Validate, bound, plan, carry out, state."""
        rows, strict, slots = self._checked(X, groups)
        if slots is not None:
            rows = take(rows, slots.rows)
        plan = self._plan_of(rows)
        bounds = Bounds(float(self.feature_bound), intercept=False)
        empty = None if slots is None else slots.empty
        records = as_records(rows, [np.ones(rows.shape[0])], bounds, null_rows=empty, strict=strict)
        stated = {"row norm": float(self.feature_bound), "records": float(plan.problem.n_samples)}
        self._carry_out(plan, records, self._numbers, stated, checks=(NOT_CHECKED,))

    def _numbers(self, release: ComponentsRelease) -> dict[str, Any]:
        share = np.zeros(0)
        if release.total is not None:
            share = release.variances / max(release.total, float(release.variances.sum()), 1e-300)
        return {
            "components_": release.components,
            "mean_": release.mean,
            "explained_variance_": release.variances,
            "explained_variance_ratio_": share,
        }

    def transform(self, X: ArrayLike) -> Array:
        """Return coordinates of rows along the components, after subtracting ``mean_``."""
        check_is_fitted(self)
        rows = checked_rows(self, X)
        return np.asarray(rows @ self.components_.T - self.mean_ @ self.components_.T)

    def inverse_transform(self, X: ArrayLike) -> Array:
        """Return the rows that have these coordinates."""
        check_is_fitted(self)
        coordinates = np.asarray(X, dtype=np.float64)
        return np.asarray(coordinates @ self.components_ + self.mean_)

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """pca0, pca1, ..."""
        return np.array([f"pca{place}" for place in range(len(self.components_))], dtype=object)
