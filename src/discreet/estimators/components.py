"""Private principal components with the scikit-learn interface."""

from __future__ import annotations

from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

from discreet import _checks
from discreet._checks import ParameterError, calm
from discreet._typing import Array
from discreet.estimators.groups import plan_for_groups
from discreet.estimators.linear import PrivateModel, parameters_of, unfitted, with_facts
from discreet.estimators.parameters import estimator, parameter
from discreet.privacy.guarantee import guarantee_of
from discreet.records.bounds import Bounds
from discreet.records.open import as_records, checked_rows, open_rows, take
from discreet.release import (
    NOT_CHECKED,
    NOT_COVERED,
    PLATFORM_ASSUMPTIONS,
    Carried,
    carry_out,
    size_facts,
    unit_assumption,
)
from discreet.solvers import base
from discreet.solvers.components import ComponentsProblem, ComponentsRelease, NoisyComponents


@estimator
class PrivatePCA(TransformerMixin, PrivateModel):  # type: ignore[misc]
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
        rows = self._rows_per_group()
        return (
            solver.plan(problem, guarantee)
            if rows is None
            else plan_for_groups(solver, problem, guarantee, rows)
        )

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
        strict = _checks.choice("bad_rows", self.bad_rows, ("error", "null")) == "error"
        rows = checked_rows(self, X, strict=strict, reset=True)
        slots = self._slots(groups, rows.shape[0])
        if slots is not None:
            rows = take(rows, slots.rows)
        n_rows, n_columns = rows.shape
        # The plan must not see the data: under a relation that hides the number of rows, neither may it see n_rows.
        size = guarantee_of(self.epsilon, self.delta, self.neighboring, n_rows, self.n_samples)[1]
        plan = self.plan(size, n_columns)
        bounds = Bounds(float(self.feature_bound), intercept=False)
        empty = None if slots is None else slots.empty
        records = as_records(rows, [np.ones(n_rows)], bounds, null_rows=empty, strict=strict)
        carried: Carried[ComponentsRelease] = carry_out(
            cast(Any, plan),
            records,
            self.ledger,
            type(self).__name__,
            published=lambda release: with_facts(self._numbers(release), vars(self)),
        )
        self.__dict__.update(self._numbers(carried.release))
        self.released_ = dict(carried.published)
        self.fitted_parameters_ = parameters_of(self)
        size = plan.problem.n_samples
        self.privacy_ = carried.state(
            bounds={"row norm": float(self.feature_bound), "records": float(size)},
            assumptions=(
                *size_facts(plan.guarantee.neighboring, size, self._rows_per_group(), self.delta),
                unit_assumption(plan.guarantee),
                NOT_CHECKED,
                *PLATFORM_ASSUMPTIONS,
            ),
            not_covered=NOT_COVERED,
        )

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
