"""The fit shared by all private linear models; differences are in small hooks.

A fit works on a copy of the model without fitted attributes, and the model takes these over at the end: a fit that is
refused or interrupted leaves the model unchanged.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np
import scipy.sparse as sp

from discreet import _checks
from discreet._checks import ParameterTypeError, calm
from discreet._typing import Array
from discreet.estimators.groups import Slots, bounded_rows, plan_for_groups
from discreet.estimators.parameters import LinearParameters, PrivacyParameters
from discreet.losses import Loss
from discreet.privacy.guarantee import USUAL_EPSILON, Guarantee, guarantee_of, relation_of
from discreet.problem import Problem, noise_over_signal
from discreet.records.bounds import Bounds, BoxBounds
from discreet.records.open import Rows, Targets, as_records, checked_rows, open_rows, split_groups, take
from discreet.release import (
    BY_SCHEMA,
    NOT_CHECKED,
    NOT_COVERED,
    PLATFORM_ASSUMPTIONS,
    carry_out,
    check_parts,
    foreign_parts,
    size_facts,
    unit_assumption,
)
from discreet.sets import Geometry
from discreet.solvers import base
from discreet.tables.reading import column_names, is_frame
from discreet.tables.schema import named

if TYPE_CHECKING:
    from discreet.privacy.statement import PrivacyStatement
    from discreet.solvers.certificates import Certificate


class PrivateModel(PrivacyParameters):
    """What every private model of rows does about people with several rows, and its tags."""

    def _rows_per_group(self) -> int | None:
        rows = self.max_rows_per_group
        return None if rows is None else _checks.count("max_rows_per_group", rows)

    def _slots(self, groups: Any, n_rows: int) -> Slots | None:
        """Return the places of the rows that are used; None if single rows are protected."""
        most = self._rows_per_group()
        if groups is None and most is None:
            return None
        strict, padded = self.bad_rows == "error", relation_of(self.neighboring).size_is_public
        return bounded_rows(groups, most, n_rows, strict=strict, padded=padded)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = True
        return tags


class Task(NamedTuple):
    """What a fit solves, and how: the solver, the loss, the number of models and a bound on targets."""

    solver: base.Solver
    loss: Loss
    n_models: int = 1
    label_bound: float | None = None


class PrivateLinearModel(LinearParameters, PrivateModel):
    """Read, bound, plan, run, state: shared by classifiers and regressors.

    A subclass for a kind of label defines ``_read``, ``_task`` and ``_attributes``; one for a kind of feature bound, or
    for a set of coefficients, overrides ``_bounds``, ``_problem``, ``_split``, ``_raw`` and ``_stated_bounds``.
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
        groups : one id per row that says whose row it is, or the name of the column of X with these ids; by default
            the group column of the schema. Needs ``max_rows_per_group``, and then the promise is about all rows of one
            group together.
        target : name of the column of labels, if they are a column of X.
        schema : a `discreet.Schema` that makes rows and labels of a raw table, batch by batch. It declares ``classes``
            or ``target_bounds`` where these are None. The model keeps it and predicts for raw tables; pass
            ``feature_bound=schema.feature_bound()``, which clips no row.
        refused : nothing else is taken. A ``sample_weight`` w would let a row change the model w times as much.
        """
        if refused:
            _checks.refuse_arguments("fit", refused)
        fitted = unfitted(self)
        if schema is not None:
            fitted._take_declared(schema)
        fitted._check_settings()
        with calm():
            rules: dict[str, Any] = {
                "schema": schema,
                "classes": getattr(fitted, "classes", None),
                "bad_rows": self.bad_rows,
            }
            X, groups, ids = split_groups(X, groups, schema)
            with open_rows(X, y, target, ids=ids, sums=True, **rules) as (rows, labels):
                whose = groups if ids is None or groups is not None else rows.ids
                fitted._fit(*fitted._read(rows, labels), whose, schema=schema is not None)
        self.__dict__ = fitted.__dict__ | {name: vars(self)[name] for name in vars(self) if name in _DECLARED}
        return self

    def _take_declared(self, schema: Any) -> None:
        """Take what the parameters leave open from a schema, and keep it to read raw tables in predictions."""
        self.schema_ = schema
        for name in _DECLARED if schema.target is not None else ():
            if hasattr(self, name):
                declared = getattr(schema, name)  # raises if the target is of the other kind
                if getattr(self, name) is None:
                    setattr(self, name, declared)

    def _fit(self, rows: Any, targets: Targets, groups: Any, *, schema: bool) -> None:
        """Bound, plan, run, state; ``schema`` says whether one made the rows."""
        null_rows = None if self.bad_rows == "error" else targets.null
        slots = self._slots(groups, rows.shape[0])
        if slots is not None:
            rows, targets = take(rows, slots.rows), targets.take(slots.rows)
            null_rows = slots.empty if null_rows is None else slots.empty | targets.null
        n_rows, n_columns = rows.shape
        # The plan must not see the data; under a relation that hides the number of rows, not even n_rows.
        n_classes = None if targets.classes is None else len(targets.classes)
        plan = self._plan(n_rows, self.n_samples, n_columns, n_classes, sparse=bool(sp.issparse(rows)))
        problem = plan.problem
        stated = {
            **self._stated_bounds(problem),
            "records": float(problem.n_samples),
            "coefficients": float(problem.n_coefficients),
        }
        self.fitted_parameters_ = parameters_of(self)
        clip, strict = self._clip(n_columns), self.bad_rows == "error"
        self._warn(plan)
        if isinstance(rows, Rows):
            check_parts(plan)  # before a long file is read
        labels = targets.of_models(problem.loss.n_outputs)
        records = as_records(
            rows,
            labels,
            problem.bounds,
            null_rows=null_rows,
            strict=strict,
            clip=clip,
            linear=problem.loss.linear,
        )
        carried = carry_out(
            plan,
            records,
            self.ledger,
            type(self).__name__,
            published=lambda release: released(self, self._attributes(release.theta, targets, problem)),
        )
        self.__dict__.update(self._attributes(carried.release.theta, targets, problem))
        self.released_ = dict(carried.published)
        # A solver that centers rows bounds them after centering; predictions bound the rows themselves.
        boxed = isinstance(problem.bounds, BoxBounds)
        self.row_bounds_ = problem.bounds if boxed else self._bounds(n_columns)
        if (certificate := getattr(carried.release, "certificate", None)) is not None:
            self.certificate_ = certificate
        assumptions = (
            *targets.assumptions,
            *size_facts(plan.guarantee.neighboring, problem.n_samples, self._rows_per_group(), self.delta),
            *foreign_parts(self.solver, problem.geometry, problem.loss),
            *(rows.assumptions if isinstance(rows, Rows) else ()),
            unit_assumption(carried.promise.guarantee),
            BY_SCHEMA if schema else NOT_CHECKED,
            *PLATFORM_ASSUMPTIONS,
        )
        self.privacy_ = carried.state(bounds=stated, assumptions=assumptions, not_covered=NOT_COVERED)

    def plan(self, n_samples: int, n_features: int, *, sparse: bool = False) -> base.Plan:
        """Return what a fit on data of this shape would run and cost; no data is needed.

        Parameters
        ----------
        n_samples, n_features : public shape of the training data; under "add-remove-one" ``n_samples`` is a public
            upper bound; with ``max_rows_per_group`` it counts places, the number of groups times that bound.
        sparse : whether the rows will be a SciPy sparse matrix, which ``solver="auto"`` takes into account.
        """
        return self._plan(None, n_samples, _checks.count("n_features", n_features), sparse=sparse)

    def _check_settings(self) -> None:
        """Raise for parameters that can be checked before any row is read."""
        _checks.real("epsilon", self.epsilon, above=0, hint=USUAL_EPSILON)
        _checks.choice("bad_rows", self.bad_rows, ("error", "null"))
        _checks.seed(self.random_state)

    def _plan(
        self,
        n_rows: int | None,
        n_samples: int | None,
        n_columns: int,
        n_classes: int | None = None,
        *,
        sparse: bool,
    ) -> base.Plan:
        """Return the plan of a fit to ``n_rows`` rows, or to the declared ``n_samples``."""
        guarantee, size = guarantee_of(self.epsilon, self.delta, self.neighboring, n_rows, n_samples)
        task = self._task(base.resolve(self.solver), n_columns, n_classes)
        problem = replace(self._problem(task, size, n_columns), sparse=sparse)
        rows = self._rows_per_group()
        if rows is None:
            return task.solver.plan(problem, guarantee)
        return plan_for_groups(task.solver, problem, guarantee, rows)

    def _warn(self, plan: base.Plan) -> None:
        """Warn, from public facts only, if the result will be mostly noise or the plan has a doubt."""
        warn_if_noise(plan.problem, plan.record_guarantee, stacklevel=5)
        if plan.doubt:
            warnings.warn(plan.doubt, NoiseWarning, stacklevel=4)

    # -- what a kind of label must say ----------------------------------------------------------------------

    def _read(self, X: Any, y: Any) -> tuple[Any, Targets]:
        """Return checked rows, and what the loss is fitted to."""
        raise NotImplementedError

    def _task(self, solver: base.Solver, n_columns: int, n_classes: int | None) -> Task:
        """Return what to solve with the solver that was asked for, or with another one."""
        raise NotImplementedError

    def _attributes(self, theta: Array, targets: Targets, problem: Problem) -> dict[str, Any]:
        """Return fitted attributes: released numbers, and public facts about the labels."""
        raise NotImplementedError

    # -- what a kind of feature bound may change ------------------------------------------------------------

    def _bounds(self, n_columns: int) -> Bounds:
        return Bounds(_checks.real("feature_bound", self.feature_bound, above=0), bool(self.fit_intercept))

    def _clip(self, n_columns: int) -> Callable[[Any], Any] | None:
        """Return a function that clips rows before `ArrayRecords` scales down those that are too long; None for none.

        It is sent to the workers of a cluster, so it holds public numbers only: no model and no ledger.
        """
        bounds = self._bounds(n_columns)
        return bounds.clip if isinstance(bounds, BoxBounds) else None

    def _problem(self, task: Task, n_samples: int, n_columns: int) -> Problem:
        loss, bounds = task.loss, self._bounds(n_columns)
        l2 = getattr(self, "l2", None)
        l2 = None if l2 is None else _checks.real("l2", l2, above=0)
        n_features = bounds.n_features(n_columns)
        constraint = getattr(self, "constraint", None)
        inside = None if constraint is None else _checked_set(constraint, n_features * loss.n_outputs)
        return Problem(loss, bounds, n_samples, n_features, task.n_models, l2, inside, task.label_bound)

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
        schema, names = getattr(self, "schema_", None), getattr(self, "feature_names_in_", ())
        encoded = is_frame(X) and list(column_names(X)) == list(names)
        if schema is not None and (is_frame(X) or isinstance(X, Mapping)) and not encoded:
            X = named(schema.transform(X), schema.feature_names)
        return checked_rows(self, X)

    def _stated_bounds(self, problem: Problem) -> dict[str, float | str]:
        """Return the bounds on rows and coefficients, as named in the statement."""
        bounds = problem.bounds
        if isinstance(bounds, BoxBounds):
            return {"row norm as largest entry (intercept included)": bounds.entry_bound}
        return {"row norm (intercept included)": bounds.feature_norm}


class EntrywiseModel(PrivateLinearModel):
    """A linear model whose entries are bounded one by one: the solver sees features scaled to [-1, 1]."""

    def _feature_scale(self) -> float:
        """Return the largest absolute entry."""
        return _checks.real("feature_bound", self.feature_bound, above=0)

    def _bounds(self, n_columns: int) -> BoxBounds:
        return BoxBounds.of(n_columns, self._feature_scale(), bool(self.fit_intercept))

    def _split(self, weights: Array) -> tuple[Array, Array]:
        coef, intercept = super()._split(weights)
        return coef / self._feature_scale(), intercept

    def _raw(self, rows: Any, coef: Array, intercept: Any) -> Array:
        clipped = self._bounds(rows.shape[1]).clip(rows)
        return np.asarray(clipped @ (coef * self._feature_scale()).T + intercept)


_DECLARED = ("classes", "target_bounds")  # parameters that a schema can declare
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


def released(model: Any, attributes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the numbers listed by a model's class in ``_released``, with their facts.

    They are read from the model and, before it has them, from ``attributes``.
    """
    known = {**vars(model), **(attributes or {})}
    return with_facts({name: known[name] for name in type(model)._released}, known)


HOPELESS = 0.3  # noise over the largest possible signal, above which a fit is hardly better than a guess
_FINE = 0.03  # below this ratio noise costs at most a few points of accuracy


class NoiseWarning(UserWarning):
    """Public facts show that the result will be mostly noise."""


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
