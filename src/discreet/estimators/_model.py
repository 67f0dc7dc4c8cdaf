"""The fit that all private linear models share; what differs between them is in small hooks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from discreet import _inputs
from discreet.bounds import Bounds
from discreet.box_bounds import SHRUNK_BY_ENTRIES, BoxBounds
from discreet.estimators import _data, _fit, _groups
from discreet.forecast import warn_if_noise
from discreet.geometries import Geometry
from discreet.losses import Loss
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.solvers import base

if TYPE_CHECKING:
    from discreet.privacy.statement import PrivacyStatement
    from discreet.solvers.certificates import Certificate

Array = NDArray[np.float64]


class PrivateLinearModel(BaseEstimator):  # type: ignore[misc]
    """Validate, bound, plan, charge, run, state: once, for classifiers and regressors.

    A subclass for a kind of label gives ``plan``, ``_checked``, ``_targets``, ``_planned``, ``_labels``, ``_null``,
    ``_publish`` and ``_facts``; one for a kind of feature bound overrides ``_bounds``, ``_clip``, ``_problem``,
    ``_split``, ``_raw`` and ``_state``.
    """

    privacy_: PrivacyStatement
    fitted_parameters_: dict[str, Any]

    def fit(
        self, X: Any, y: Any = None, groups: Any = None, *, target: str | None = None, **refused: Any
    ) -> Self:
        """Fit privately; charges the ledger, if there is one, before anything private runs.

        Parameters
        ----------
        X : array, data frame or SciPy sparse matrix of shape (n_samples, n_features); CSR is never made dense. Or the
            path of a Parquet file, which is read through a mapped copy and need not fit in memory, or a Dask array or
            data frame, which stays where it is: only sums travel.
        y : one label or target per row.
        groups : one id per row that says whose row it is; needs ``max_rows_per_group``, and then the promise is about
            all rows of one group together.
        target : name of the column of labels, if X is a path.
        refused : nothing else is taken. A ``sample_weight`` w would let a row change the model w times as much.
        """
        _inputs.refuse_arguments("fit", refused)
        fitted = _fit.unfitted(self)
        with _data.opened(X, y, target) as (rows, labels):
            fitted._fit(rows, labels, groups)
        self.__dict__ = fitted.__dict__
        return self

    def _fit(self, X: Any, y: Any, groups: Any) -> None:
        """The one path: validate, bound, plan, charge, run, state."""
        rows, y, strict = self._examined(X, y)
        slots = self._slots(groups, rows.shape[0], strict)
        if slots is not None:
            rows, y = _data.take(rows, slots.rows), y[slots.rows]
        targets = self._targets(y)
        n_rows, n_columns = rows.shape
        # The plan must not see the data: under a relation that hides the number of rows, neither may it see n_rows.
        size = _fit.guarantee_of(self.epsilon, self.delta, self.neighboring, n_rows, self.n_samples)[1]
        plan = self._planned(size, n_columns, targets, sparse=bool(sp.issparse(rows)))
        problem = plan.problem
        warn_if_noise(problem, _groups.record_promise(plan))
        _data.check_runs(plan, rows)
        records = self._records(rows, targets, problem, None if slots is None else slots.empty)
        receipt = _fit.charge(self.ledger, plan, label=type(self).__name__)
        release = _fit.run(plan, records)
        self._publish(release.theta, targets, problem)
        self._certify(release)
        relation, per_group = plan.guarantee.neighboring, self._rows_per_group()
        facts = (*self._facts(targets), *_fit.size_facts(relation, size, per_group, self.delta))
        self.fitted_parameters_ = _fit.parameters(self)
        self.privacy_ = self._state(plan, release, facts).paid_by(receipt)

    def _examined(self, X: Any, y: Any) -> tuple[Any, NDArray[Any], bool]:
        """Rows and labels in order, and whether bad ones were refused; some of them are in order if all are."""
        strict = _inputs.choice("bad_rows", self.bad_rows, ("error", "null")) == "error"
        _inputs.seed(self.random_state)
        return *self._checked(X, y, strict), strict

    # -- what a kind of label must say ----------------------------------------------------------------------

    def _checked(self, X: Any, y: Any, strict: bool) -> tuple[Any, NDArray[Any]]:
        """Rows and labels of the right shape and type."""
        raise NotImplementedError

    def _targets(self, y: NDArray[Any]) -> Any:
        """Labels in the form that the other hooks want."""
        raise NotImplementedError

    def _planned(self, n_samples: int, n_columns: int, targets: Any, *, sparse: bool) -> base.Plan:
        """``plan`` with what is public about the labels."""
        raise NotImplementedError

    def _labels(self, targets: Any, problem: Problem) -> list[NDArray[Any]]:
        """The labels of every model, as its loss wants them."""
        raise NotImplementedError

    def _null(self, targets: Any) -> _data.Mask:
        """Rows whose label is none."""
        raise NotImplementedError

    def _publish(self, theta: Array, targets: Any, problem: Problem) -> None:
        """Set the fitted attributes from released numbers and public facts only."""
        raise NotImplementedError

    def _facts(self, targets: Any) -> tuple[str, ...]:
        """What the promise assumes about the labels."""
        raise NotImplementedError

    # -- what a kind of feature bound may change ------------------------------------------------------------

    def _bounds(self, n_columns: int) -> Bounds:
        return Bounds(_inputs.real("feature_bound", self.feature_bound, above=0), bool(self.fit_intercept))

    def _clip(self, n_columns: int) -> Callable[[Any], Any]:
        """What makes rows such as ``ArrayRecords`` takes; rows that are too long are shrunk there.

        It travels to the workers of a cluster, so that it holds public numbers, and neither a model nor its ledger.
        """
        return _unchanged

    def _problem(
        self, loss: Loss, n_samples: int, n_columns: int, n_models: int, label_bound: float | None
    ) -> Problem:
        bounds = self._bounds(n_columns)
        l2 = getattr(self, "l2", None)
        l2 = None if l2 is None else _inputs.real("l2", l2, above=0)
        n_features = bounds.n_features(n_columns)
        inside = self._set_of(n_features * loss.n_outputs)
        return Problem(loss, bounds, n_samples, n_features, n_models, l2, inside, label_bound)

    def _set_of(self, n_coefficients: int) -> Geometry | None:
        """The set in which the coefficients of one model must lie, if the user asked for one."""
        inside = getattr(self, "constraint", None)
        if inside is None:
            return None
        if not isinstance(inside, Geometry):
            raise TypeError(
                "constraint must be a set of discreet.geometries, such as L2Ball(1.0, n), or None; got "
                f"{type(inside).__name__}"
            )
        if inside.n_features != n_coefficients:
            raise ValueError(
                f"the constraint is a set of vectors of {inside.n_features} numbers, a model here has {n_coefficients} "
                "coefficients: one per column, one for the intercept if there is one, times the classes of a softmax"
            )
        return inside

    def _split(self, weights: Array) -> tuple[Array, Array]:
        """Coefficients and intercepts in the units of the features."""
        if self.fit_intercept:
            return weights[..., :-1].copy(), weights[..., -1].copy()
        return weights.copy(), np.zeros(weights.shape[:-1])

    def _raw(self, rows: Any, coef: Array, intercept: Any) -> Array:
        """Linear predictions of rows shrunk onto the declared bound."""
        raw = np.asarray(rows @ coef.T) + intercept
        bounds = self._bounds(rows.shape[1])
        if SHRUNK_BY_ENTRIES in self.privacy_.bounds:  # by a solver that looks at single columns
            bounds = BoxBounds.of(rows.shape[1], intercept=bounds.intercept)
        scales = bounds.row_scales(rows)
        return np.asarray(raw * (scales if raw.ndim == 1 else scales[:, None]))

    def _state(
        self, plan: base.Plan, release: base.Release, assumptions: tuple[str, ...]
    ) -> PrivacyStatement:
        return _fit.state(plan, release, assumptions)

    def _certify(self, release: base.Release) -> None:
        """What the solver certifies about the excess risk, beside the model."""
        certificate = getattr(release, "certificate", None)
        if certificate is not None:
            self.certificate_: Certificate = certificate

    # -- shared pieces --------------------------------------------------------------------------------------

    def _records(
        self, rows: Any, targets: Any, problem: Problem, empty: _data.Mask | None
    ) -> list[ArrayRecords]:
        """Records of every model; ``empty`` places and, unless they are refused, bad rows and labels are null."""
        strict = self.bad_rows == "error"
        nulls = [mask for mask in (empty, None if strict else self._null(targets)) if mask is not None]
        return _data.as_records(
            rows,
            self._labels(targets, problem),
            problem.bounds,
            null_rows=np.logical_or.reduce(nulls) if nulls else None,
            strict=strict,
            clip=self._clip(rows.shape[1]),
        )

    def _calibrated(
        self,
        solver: base.Solver,
        loss: Loss,
        n_samples: int,
        n_columns: int,
        n_models: int = 1,
        label_bound: float | None = None,
        *,
        sparse: bool = False,
    ) -> base.Plan:
        """The solver's plan for this loss and these public sizes."""
        guarantee, size = _fit.guarantee_of(self.epsilon, self.delta, self.neighboring, None, n_samples)
        problem = replace(self._problem(loss, size, n_columns, n_models, label_bound), sparse=sparse)
        rows = self._rows_per_group()
        if rows is None:
            return solver.plan(problem, guarantee)
        return _groups.plan_for_groups(solver, problem, guarantee, rows)

    def _rows_per_group(self) -> int | None:
        rows = getattr(self, "max_rows_per_group", None)
        return None if rows is None else _inputs.count("max_rows_per_group", rows)

    def _slots(self, groups: Any, n_rows: int, strict: bool) -> _groups.Slots | None:
        padded = _fit.relation_of(self.neighboring).size_is_public
        return _groups.bounded_rows(groups, self._rows_per_group(), n_rows, strict=strict, padded=padded)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = True
        return tags


def _unchanged(rows: Any) -> Any:
    return rows
