"""The fit shared by all private linear models; differences are in small hooks.

A fit works on a copy of the model without fitted attributes, and the model takes these over at the end: a fit that is
refused or interrupted leaves the model unchanged.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from discreet import _checks
from discreet._checks import ParameterTypeError, calm
from discreet._typing import Array, Mask
from discreet.estimators.groups import Slots, bounded_rows, plan_for_groups
from discreet.estimators.parameters import LinearParameters
from discreet.losses import Loss
from discreet.privacy.accounting.gaussian import gaussian_mu
from discreet.privacy.guarantee import Guarantee, guarantee_of, relation_of
from discreet.problem import Problem
from discreet.records.base import Records
from discreet.records.bounds import Bounds, BoxBounds
from discreet.records.open import Rows, as_records, checked_rows, open_rows, take
from discreet.release import (
    NOT_COVERED,
    PLATFORM_ASSUMPTIONS,
    carry_out,
    check_parts,
    size_facts,
    unit_assumption,
)
from discreet.sets import Geometry
from discreet.solvers import base
from discreet.tables.reading import is_frame

if TYPE_CHECKING:
    from discreet.privacy.statement import PrivacyStatement
    from discreet.solvers.certificates import Certificate


class PrivateLinearModel(LinearParameters):
    """Validate, bound, plan, run, state: shared by classifiers and regressors.

    A subclass for a kind of label defines ``plan``, ``_checked``, ``_targets``, ``_planned``, ``_labels``, ``_null``,
    ``_numbers`` and ``_facts``; one for a kind of feature bound overrides ``_bounds``, ``_clip``, ``_problem``,
    ``_split``, ``_raw`` and ``_stated_bounds``.
    """

    _released: ClassVar[tuple[str, ...]] = ("coef_", "intercept_")
    released_: dict[str, Any]
    row_bounds_: Bounds
    privacy_: PrivacyStatement
    fitted_parameters_: dict[str, Any]
    certificate_: Certificate

    def fit(
        self,
        X: Any,
        y: Any = None,
        groups: Any = None,
        *,
        target: str | None = None,
        schema: Any = None,
        **refused: Any,
    ) -> Self:
        """Fit privately; charges the ledger, if any, before anything private runs.

        Parameters
        ----------
        X : array, data frame or SciPy sparse matrix of shape (n_samples, n_features); CSR is never made dense. Or a
            table that need not fit in memory: Parquet, CSV or Arrow files by path, folder, glob or address, a
            ``pyarrow.dataset``, a DuckDB relation, a polars LazyFrame. It is read through a mapped copy. Or a Dask
            array or data frame or a Spark frame, which stay where they are: only sums travel (docs/scale.md).
        y : one label or target per row.
        groups : one id per row that says whose row it is; needs ``max_rows_per_group``, and then the promise is about
            all rows of one group together.
        target : name of the column of labels, if they are a column of X.
        schema : a `discreet.Schema` that makes rows and labels of a raw table, batch by batch.
        refused : nothing else is taken. A ``sample_weight`` w would let a row change the model w times as much.
        """
        if refused:
            _checks.refuse_arguments("fit", refused)
        fitted = unfitted(self)
        told: dict[str, Any] = {
            "schema": schema,
            "classes": getattr(self, "classes", None),
            "bad_rows": self.bad_rows,
        }
        with calm(), open_rows(X, y, target, sums=True, **told) as (rows, labels):
            fitted._fit(rows, labels, groups)
        self.__dict__ = fitted.__dict__
        return self

    def _fit(self, X: Any, y: Any, groups: Any) -> None:
        """Validate, bound, plan, run, state."""
        rows, y, strict = self._examined(X, y)
        slots = self._slots(groups, rows.shape[0], strict)
        if slots is not None:
            rows, y = take(rows, slots.rows), y[slots.rows]
        targets = self._targets(y)
        n_rows, n_columns = rows.shape
        # The plan must not see the data; under a relation that hides the number of rows, not even n_rows.
        size = guarantee_of(self.epsilon, self.delta, self.neighboring, n_rows, self.n_samples)[1]
        plan = self._planned(size, n_columns, targets, sparse=bool(sp.issparse(rows)))
        problem = plan.problem
        warn_if_noise(problem, plan.record_guarantee)
        if plan.doubt:
            warnings.warn(plan.doubt, NoiseWarning, stacklevel=3)
        if isinstance(rows, Rows):
            check_parts(plan)  # before a long file is read
        empty = None if slots is None else slots.empty
        nulls = [mask for mask in (empty, None if strict else self._null(targets)) if mask is not None]
        about = self._about(targets, problem)
        null_rows = np.logical_or.reduce(nulls) if nulls else None
        records = self._records(rows, self._labels(targets, problem), problem, null_rows, strict)
        carried = carry_out(
            plan,
            records,
            self.ledger,
            type(self).__name__,
            published=lambda release: with_facts(
                self._numbers(release.theta, targets, problem), vars(self) | about
            ),
        )
        self.__dict__.update(self._numbers(carried.release.theta, targets, problem), **about)
        self.released_ = dict(carried.published)
        self.fitted_parameters_ = parameters_of(self)
        # A solver that centers rows bounds them after centering; predictions bound the rows themselves.
        boxed = isinstance(problem.bounds, BoxBounds)
        self.row_bounds_ = problem.bounds if boxed else self._bounds(n_columns)
        if (certificate := getattr(carried.release, "certificate", None)) is not None:
            self.certificate_ = certificate
        bounds = {
            **self._stated_bounds(problem.bounds),
            "records": float(problem.n_samples),
            "coefficients": float(problem.n_coefficients),
        }
        labels, storage = self._facts(targets), rows.assumptions if isinstance(rows, Rows) else ()
        promise, foreign = plan.guarantee, base.believed(self.solver, problem.geometry, problem.loss)
        sizes = size_facts(promise.neighboring, size, self._rows_per_group(), self.delta)
        self.privacy_ = carried.state(
            plan,
            bounds=bounds,
            assumptions=(
                *(*labels, *sizes, *foreign, *storage, unit_assumption(promise)),
                "columns were scaled and chosen without looking at the private data (given by the user)",
                *PLATFORM_ASSUMPTIONS,
            ),
            not_covered=NOT_COVERED,
        )

    def _examined(self, X: Any, y: Any) -> tuple[Any, NDArray[Any], bool]:
        """Validate X and y. Return the rows, the labels, and whether invalid rows raise an error."""
        strict = _checks.choice("bad_rows", self.bad_rows, ("error", "null")) == "error"
        _checks.seed(self.random_state)
        return *self._checked(X, y, strict), strict

    def _records(
        self, rows: Any, labels: list[NDArray[Any]], problem: Problem, null_rows: Mask | None, strict: bool
    ) -> list[Records]:
        """The bounded records of every model."""
        return as_records(
            rows, labels, problem.bounds, null_rows=null_rows, strict=strict, clip=self._clip(rows.shape[1])
        )

    # -- what a kind of label must say ----------------------------------------------------------------------

    def _checked(self, X: Any, y: Any, strict: bool) -> tuple[Any, NDArray[Any]]:
        """Return rows and labels of the right shape and type."""
        raise NotImplementedError

    def _targets(self, y: NDArray[Any]) -> Any:
        """Return labels in the form that the other hooks expect."""
        raise NotImplementedError

    def _planned(self, n_samples: int, n_columns: int, targets: Any, *, sparse: bool) -> base.Plan:
        """Call ``plan`` with the public facts about the labels."""
        raise NotImplementedError

    def _labels(self, targets: Any, problem: Problem) -> list[NDArray[Any]]:
        """Return the labels of every model, in the form of its loss."""
        raise NotImplementedError

    def _null(self, targets: Any) -> Mask:
        """Return which rows have no valid label."""
        raise NotImplementedError

    def _numbers(self, theta: Array, targets: Any, problem: Problem) -> dict[str, Any]:
        """Return fitted attributes that hold released numbers."""
        raise NotImplementedError

    def _about(self, targets: Any, problem: Problem) -> dict[str, Any]:
        """Return fitted attributes that hold public facts."""
        return {}

    def _facts(self, targets: Any) -> tuple[str, ...]:
        """Return what the guarantee assumes about the labels."""
        raise NotImplementedError

    # -- what a kind of feature bound may change ------------------------------------------------------------

    def _bounds(self, n_columns: int) -> Bounds:
        return Bounds(_checks.real("feature_bound", self.feature_bound, above=0), bool(self.fit_intercept))

    def _clip(self, n_columns: int) -> Callable[[Any], Any] | None:
        """Return a function that clips rows before `ArrayRecords` scales down those that are too long; None for none.

        It is sent to the workers of a cluster, so it holds public numbers only: no model and no ledger.
        """
        return None

    def _problem(
        self, loss: Loss, n_samples: int, n_columns: int, n_models: int, label_bound: float | None
    ) -> Problem:
        bounds = self._bounds(n_columns)
        l2 = getattr(self, "l2", None)
        l2 = None if l2 is None else _checks.real("l2", l2, above=0)
        n_features = bounds.n_features(n_columns)
        constraint = getattr(self, "constraint", None)
        inside = None if constraint is None else _checked_set(constraint, n_features * loss.n_outputs)
        return Problem(loss, bounds, n_samples, n_features, n_models, l2, inside, label_bound)

    def _split(self, weights: Array) -> tuple[Array, Array]:
        """Return coefficients and intercepts in the units of the features."""
        if self.fit_intercept:
            return weights[..., :-1].copy(), weights[..., -1].copy()
        return weights.copy(), np.zeros(weights.shape[:-1])

    def _raw(self, rows: Any, coef: Array, intercept: Any) -> Array:
        """Return linear predictions of rows clipped to the declared bound."""
        raw = np.asarray(rows @ coef.T) + intercept
        scales = self.row_bounds_.row_scales(rows)
        return np.asarray(raw * (scales if raw.ndim == 1 else scales[:, None]))

    def _rows(self, X: Any) -> Any:
        """Rows to predict for. A model that was loaded with its schema reads raw tables; arrays are rows already."""
        schema = getattr(self, "schema_", None)
        if schema is not None and not hasattr(self, "feature_names_in_"):
            X = schema.transform(X) if is_frame(X) or isinstance(X, Mapping) else X
        return checked_rows(self, X)

    def _stated_bounds(self, bounds: Bounds) -> dict[str, float | str]:
        """Return the bounds on rows and coefficients, as named in the statement."""
        if isinstance(bounds, BoxBounds):
            return {"row norm as largest entry (intercept included)": bounds.entry_bound}
        return {"row norm (intercept included)": bounds.feature_norm}

    # -- shared pieces --------------------------------------------------------------------------------------

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
        """Return the solver's plan for this loss and these public sizes."""
        guarantee, size = guarantee_of(self.epsilon, self.delta, self.neighboring, None, n_samples)
        problem = replace(self._problem(loss, size, n_columns, n_models, label_bound), sparse=sparse)
        rows = self._rows_per_group()
        if rows is None:
            return solver.plan(problem, guarantee)
        return plan_for_groups(solver, problem, guarantee, rows)

    def _rows_per_group(self) -> int | None:
        rows = getattr(self, "max_rows_per_group", None)
        return None if rows is None else _checks.count("max_rows_per_group", rows)

    def _slots(self, groups: Any, n_rows: int, strict: bool) -> Slots | None:
        most = self._rows_per_group()
        if groups is None and most is None:
            return None
        padded = relation_of(self.neighboring).size_is_public
        return bounded_rows(groups, most, n_rows, strict=strict, padded=padded)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = True
        return tags


Model = TypeVar("Model")


def unfitted(model: Model) -> Model:
    """Return a copy of an estimator with its parameters and without fitted attributes.

    A fit works on the copy, and the model takes over its attributes at the end: a fit that is refused or interrupted
    leaves the model unchanged, and no attribute of an earlier fit remains next to a new one.
    """
    return _twin(model, {name: value for name, value in vars(model).items() if not name.endswith("_")})


def as_fitted(model: Model) -> Model:
    """Return a copy with the parameters of the last fit; later changes apply to the next fit."""
    return _twin(model, vars(model) | getattr(model, "fitted_parameters_", {}))


def parameters_of(model: Any) -> dict[str, Any]:
    """Return what a fitted model keeps as ``fitted_parameters_``: all parameters except the ledger."""
    return {name: value for name, value in model.get_params(deep=False).items() if name != "ledger"}


def _twin(model: Model, attributes: dict[str, Any]) -> Model:
    twin = object.__new__(type(model))
    vars(twin).update(attributes)
    return twin


# Public facts without which the numbers would mean something else.
FACTS = ("classes_", "multi_class_", "feature_names_in_")


def with_facts(numbers: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Copy released numbers and the public facts that belong to them; None for missing facts."""
    facts = {name: known.get(name) for name in FACTS}
    return {name: np.array(value, dtype=np.float64) for name, value in numbers.items()} | {
        name: None if value is None else np.array(value) for name, value in facts.items()
    }


def released(model: Any) -> dict[str, Any]:
    """Return the numbers of a fitted model, listed by its class in ``_released``, with their facts."""
    return with_facts({name: getattr(model, name) for name in type(model)._released}, vars(model))


HOPELESS = 0.3  # noise over the largest possible signal, above which a fit is hardly better than a guess
_FINE = 0.03  # below this ratio noise costs at most a few points of accuracy


class NoiseWarning(UserWarning):
    """Public facts show that the result will be mostly noise."""


def noise_over_signal(problem: Problem, guarantee: Guarantee) -> float:
    """Return the norm of the noise in one release of the mean gradient, over the largest possible mean gradient.

    For Gaussian noise c sqrt(d) / (mu n): d released numbers, c = 2 under replace-one and 1 otherwise, mu the
    Gaussian-DP parameter of (epsilon, delta). For delta = 0 the noise is longer: c d / (epsilon n).

    >>> from discreet.records.bounds import Bounds
    >>> from discreet.losses import Logistic
    >>> many = Problem(Logistic(), Bounds(), n_samples=100_000, n_features=20)
    >>> round(noise_over_signal(many, Guarantee(1.0, 1e-10)), 5)
    0.00052
    """
    moved = guarantee.neighboring.contributions / problem.n_samples
    if guarantee.delta == 0:
        return moved * problem.n_coefficients / guarantee.epsilon
    return moved * math.sqrt(problem.n_coefficients) / gaussian_mu(guarantee.epsilon, guarantee.delta)


def warn_if_noise(problem: Problem, guarantee: Guarantee, stacklevel: int = 3) -> None:
    """Warn, from public facts only, if the noise is about as large as the largest possible signal.

    Privacy
    -------
    Reads no data: the warning depends only on the shape of the data and the budget.
    """
    ratio = noise_over_signal(problem, guarantee)
    if ratio >= HOPELESS:
        enough = math.ceil(problem.n_samples * ratio / _FINE)
        warnings.warn(
            f"the result will be mostly noise: at epsilon = {guarantee.epsilon:g} with {problem.n_samples} records and "
            f"{problem.n_coefficients} coefficients the noise is {ratio:.2g} times the largest possible signal. "
            f"Use about {enough} records, fewer columns or a larger epsilon; `discreet plan --simulate` shows "
            "what to expect",
            NoiseWarning,
            stacklevel=stacklevel,
        )


def _checked_set(inside: Any, n_coefficients: int) -> Geometry:
    """Return the constraint set of one model after checking its dimension."""
    if not isinstance(inside, Geometry):
        raise ParameterTypeError(
            "constraint",
            f"must be a set of discreet.sets or None, got {type(inside).__name__}",
            "for example L2Ball(1.0, n)",
        )
    if inside.n_features != n_coefficients:
        raise ValueError(
            f"the constraint is a set of vectors of {inside.n_features} numbers, a model here has {n_coefficients} "
            "coefficients: one per column, one for the intercept if there is one, times the classes of a softmax"
        )
    return inside
