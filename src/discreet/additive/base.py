"""The fit shared by both additive models; differences are in small hooks."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Self, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from discreet import _checks
from discreet._checks import ParameterError, ParameterTypeError, Setting, calm
from discreet._typing import Array, Mask
from discreet.additive.columns import Cells, Column, in_blocks, read_columns, stored_cells
from discreet.additive.plan import AdditiveFit, AdditivePlan, AdditiveProblem, AdditiveRelease
from discreet.additive.shapes import AdditiveModel, Shape
from discreet.additive.stages import Task
from discreet.estimators.groups import plan_for_groups
from discreet.estimators.linear import PrivateModel, parameters_of, unfitted, warn_if_noise
from discreet.estimators.parameters import estimator, parameter
from discreet.losses import Logistic
from discreet.privacy.guarantee import guarantee_of
from discreet.privacy.statement import PrivacyStatement
from discreet.problem import Problem
from discreet.records.bounds import LARGEST_ENTRY, Bounds
from discreet.records.open import checked_rows
from discreet.records.sources import Source, source_of
from discreet.release import (
    NOT_COVERED,
    PLATFORM_ASSUMPTIONS,
    Carried,
    carry_out,
    size_facts,
    unit_assumption,
)
from discreet.tables.domains import Numeric, Text
from discreet.tables.schema import Schema


@estimator
class AdditiveParameters(PrivateModel):
    """Parameters of additive models."""

    schema: Schema | None = parameter(
        None,
        "Schema",
        "Public domains of the columns of a table: ``Numeric`` (the fit chooses bins, on a logarithmic grid where "
        "declared), ``Binned``, ``Categorical`` or ``Boolean``. Missing cells add nothing, or have a bin of their own "
        "with ``missing_feature``.",
    )
    feature_bounds: Any = parameter(
        None,
        "(float, float) or list of them",
        "For arrays, instead of a schema: lowest and highest value of every column, or one pair for all, chosen "
        "without looking at the data; values outside are clipped.",
    )
    pairs: int | None = parameter(
        None,
        "int",
        "How many pairs of columns get a joint shape; the fit chooses the pairs, within its budget. None is three if "
        "there are enough records for the budget (docs/additive.md), otherwise, and with ``monotonic``, none.",
    )
    max_bins: int | None = parameter(
        None, "int", "About how many bins a numeric column is cut into; None chooses by public numbers."
    )
    monotonic: Any = parameter(
        None,
        "mapping",
        "Names of ordered columns whose shape must rise (1) or fall (-1). Enforced on the released shapes.",
    )
    n_iterations: int | None = parameter(
        None, "int", "Noisy gradients of a stage; None is 40 for classes and 30 for targets."
    )


class PrivateAdditiveModel(AdditiveParameters):
    """Base class of additive models: columns, bins, shapes, files."""

    _task: Task
    model_: AdditiveModel
    reads_tables_: bool
    classes_: NDArray[Any]
    target_range_: tuple[float, float]
    released_: dict[str, Any]
    fitted_parameters_: dict[str, Any]
    privacy_: PrivacyStatement

    def fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:
        """Fit privately; charges the ledger, if there is one, before anything private runs.

        Parameters
        ----------
        X : with a schema, a table: pandas or polars frame, Arrow table, dictionary of columns; or files, a query or a
            frame of a cluster, whose cells are read once into a mapped file. Otherwise an array or frame of numbers of
            shape (n_samples, n_features).
        y : one label or target per row; None to take the target of the schema from the table.
        groups : one id per row that says whose row it is, or the name of a file's column of them; needs
            ``max_rows_per_group``. None takes the group column of the schema, if it has one.
        """
        fitted = unfitted(self)
        strict = _checks.choice("bad_rows", self.bad_rows, ("error", "null")) == "error"
        table = source_of(X, bad_rows=self.bad_rows)
        with calm():
            if table is None:
                columns, cells, bad, labels = fitted._read(X, y, strict)
                if groups is None and fitted.schema is not None and fitted.schema.group is not None:
                    groups = fitted.schema.groups(X)  # refused below if no number of rows was declared
                slots = fitted._slots(groups, len(labels))
                if slots is not None:
                    cells, labels = [values[slots.rows] for values in cells], labels[slots.rows]
                    bad = bad[slots.rows] | slots.empty
                fitted._fit(columns, Cells(partial(in_blocks, cells), labels, bad))
            else:
                fitted._fit_source(table, y, groups, strict)
        self.__dict__ = fitted.__dict__
        return self

    def _fit_source(self, table: Source, y: Any, groups: Any, strict: bool) -> None:
        """Read cells, labels and people into a mapped file, and fit on them."""
        if self.schema is None:
            raise ParameterError(
                "schema",
                "must be given where X is a file, a query or a frame of a cluster",
                Setting("schema"),
            )
        if y is not None:
            raise ParameterError(
                "y", "must be None: labels are read from the file, as the target of the schema"
            )
        self.reads_tables_, columns = True, self._table_columns()
        ids = groups if isinstance(groups, str) else self.schema.group if groups is None else None
        with stored_cells(table, columns, self.schema, self.bad_rows, ids) as cells:
            labels, bad = self._noted(columns, cells.labels, len(cells.bad), strict), cells.bad
            slots = self._slots(groups if cells.ids is None else cells.ids, len(labels))
            if slots is not None:
                labels, bad = labels[slots.rows], bad[slots.rows] | slots.empty
                cells = cells.regrouped(slots.rows)
            self._fit(columns, Cells(cells.parts, labels, bad, stored=True), table.assumptions)

    def _fit(self, columns: tuple[Column, ...], given: Cells, storage: tuple[str, ...] = ()) -> None:
        """Bound, plan, carry out, state; labels are given as they were read."""
        y = given.labels
        targets, null, facts = self._targets(y)
        # The plan must not see the data: under a relation that hides the number of rows, neither may it see theirs.
        size = guarantee_of(self.epsilon, self.delta, self.neighboring, len(y), self.n_samples)[1]
        plan = self._planned(size, columns)
        record_problem = Problem(
            Logistic(), Bounds(1.0, intercept=False), size, plan.layout.main.most_features
        )
        warn_if_noise(record_problem, plan.record_guarantee)
        signs = self._signs(columns)
        carried = carry_out(
            cast(Any, plan),
            replace(given, labels=targets, null=given.null | null),
            self.ledger,
            type(self).__name__,
            published=lambda release: self._arrays(self._finished(release, signs)),
        )
        self.model_ = self._finished(carried.release, signs)
        self.released_ = dict(carried.published)
        self.fitted_parameters_ = parameters_of(self)
        self.privacy_ = self._state(plan, carried, (*facts, *storage))

    # -- what a kind of label says ----------------------------------------------------------------------------

    def _checked(self, rows: Any, y: Any, strict: bool) -> NDArray[Any]:
        """Check one label per row; note the columns of ``rows``."""
        raise NotImplementedError

    def _targets(self, y: NDArray[Any]) -> tuple[Array, Mask, tuple[str, ...]]:
        """Return labels in the plan's form, which of them are missing, and what the promise assumes about them."""
        raise NotImplementedError

    def _planned(self, n_samples: int, columns: tuple[Column, ...]) -> AdditivePlan:
        """The plan, with what is public about the labels."""
        raise NotImplementedError

    def _reach(self) -> float:
        """Largest absolute logarithm of a predicted mean, for counts."""
        return 1.0

    def _finished(self, release: AdditiveRelease, signs: Mapping[int, int]) -> AdditiveModel:
        """The model in the units of the labels, with monotone shapes where they were asked for."""
        model = release.model
        for place, sign in signs.items():
            shape, mean = model.shapes[place].monotone(sign).centered()
            model = model.with_shape(place, shape).scaled(1.0, mean)
        return model

    # -- rows -------------------------------------------------------------------------------------------------

    def _read(
        self, X: Any, y: Any, strict: bool
    ) -> tuple[tuple[Column, ...], list[NDArray[Any]], Mask, NDArray[Any]]:
        """Columns, cells, rows without a meaning, and labels."""
        self.reads_tables_ = self.schema is not None
        if self.schema is None:
            if y is None:
                raise ParameterError(
                    "schema",
                    "must be given where the labels are a column of X; without one a fit requires y to be passed, but "
                    "the target y is None",
                    Setting("schema"),
                    "pass y, one label per row",
                )
            y = self._checked(X, y, strict)
            rows = _dense(checked_rows(self, X, strict=strict, reset=True))
            columns = self._bounded_columns(rows.shape[1])
            return columns, *_cells(rows), y
        columns = self._table_columns()
        cells, bad = read_columns(columns, X, strict=strict)
        if y is None:
            y = self.schema.target_values(X, bad_rows=cast(Any, self.bad_rows))
        return columns, cells, bad, self._noted(columns, y, len(bad), strict)

    def _noted(self, columns: tuple[Column, ...], y: Any, n_rows: int, strict: bool) -> NDArray[Any]:
        """Check one label per row of a table; note its columns."""
        labels = self._checked(np.zeros((n_rows, 1)), y, strict)
        self.n_features_in_ = len(columns)
        self.feature_names_in_ = np.array([one.name for one in columns], dtype=object)
        return labels

    def _table_columns(self) -> tuple[Column, ...]:
        if not isinstance(self.schema, Schema):
            raise ParameterTypeError(
                "schema",
                f"must be a discreet.Schema, got {type(self.schema).__name__}",
                "read a file with Schema.from_file(...)",
            )
        texts = [name for name, domain in self.schema.columns.items() if isinstance(domain, Text)]
        if texts:
            raise ParameterError("schema", f"declares open text, which has no bins: {texts}")
        return tuple(Column(name, domain) for name, domain in self.schema.columns.items())

    def _bounded_columns(self, n_columns: int) -> tuple[Column, ...]:
        if self.feature_bounds is None:
            raise ParameterError(
                "feature_bounds",
                "must be declared: lowest and highest value of every column, known without looking at the private data",
                Setting("feature_bounds"),
                Setting("schema", purpose="for a table of mixed columns"),
                "pay for bounds with discreet.private_domains",
            )
        bounds = list(self.feature_bounds) if np.iterable(self.feature_bounds) else []
        if len(bounds) == 2 and not any(np.iterable(bound) for bound in bounds):
            bounds = [tuple(bounds)] * n_columns
        if len(bounds) != n_columns:
            raise ParameterError(
                "feature_bounds", f"must be one pair, or {n_columns} of them, got {len(bounds)}"
            )
        names = getattr(self, "feature_names_in_", [f"x{place}" for place in range(n_columns)])
        return tuple(
            Column(str(name), Numeric(*_checks.interval("feature_bounds", bound)))
            for name, bound in zip(names, bounds, strict=True)
        )

    def _raw(self, X: Any) -> Array:
        """Return the raw predictions of rows."""
        check_is_fitted(self)
        if self.reads_tables_:
            cells, _ = read_columns(self.model_.columns, X, strict=True)
        else:
            cells, _ = _cells(_dense(checked_rows(self, X)))
        return self.model_.raw(cells)

    # -- plans ------------------------------------------------------------------------------------------------

    def _calibrated(self, n_samples: int, columns: tuple[Column, ...], n_classes: int) -> AdditivePlan:
        guarantee, size = guarantee_of(self.epsilon, self.delta, self.neighboring, None, n_samples)
        n_pairs = 0 if self.pairs is None else _checks.count("pairs", self.pairs, at_least=0)
        most = math.comb(len(columns), 2)
        if n_pairs > most:
            raise ParameterError(
                "pairs", f"must be at most {most}, as many as {len(columns)} columns have, got {n_pairs}"
            )
        method = AdditiveFit(chooses_pairs=self.pairs is None and not self.monotonic)
        problem = AdditiveProblem(
            columns, self._task, size, n_classes, n_pairs, self.max_bins, self.n_iterations, self._reach()
        )
        self._signs(columns)
        rows = self._rows_per_group()
        if rows is None:
            return method.plan(problem, guarantee)
        return cast(AdditivePlan, plan_for_groups(method, problem, guarantee, rows))

    def _public_columns(self, n_features: int | None) -> tuple[Column, ...]:
        if self.schema is not None:
            return self._table_columns()
        if n_features is None:
            raise ParameterError("n_features", "must be given where there is no schema")
        return self._bounded_columns(_checks.count("n_features", n_features))

    def _signs(self, columns: tuple[Column, ...]) -> dict[int, int]:
        """Which shapes must rise or fall, by their place."""
        given = {} if self.monotonic is None else self.monotonic
        if not isinstance(given, Mapping):
            raise ParameterTypeError("monotonic", f"must map names of columns to 1 or -1, got {given!r}")
        ordered = {one.name: place for place, one in enumerate(columns) if one.ordered}
        for name, sign in given.items():
            if name not in ordered or sign not in (1, -1):
                raise ParameterError(
                    "monotonic",
                    f"must map ordered columns to 1 or -1, got {name!r}: {sign!r}",
                    str(list(ordered)),
                )
        return {ordered[name]: int(sign) for name, sign in given.items()}

    # -- what was released --------------------------------------------------------------------------------------

    @property
    def intercept_(self) -> Any:
        """What every prediction starts from."""
        check_is_fitted(self)
        intercept = self.model_.intercept
        return float(intercept[0]) if len(intercept) == 1 else intercept.copy()

    @property
    def shapes_(self) -> dict[str, dict[str, Any]]:
        """One table per column: bins, what each adds to a prediction, and how many records it holds, as released.

        ``low`` and ``high`` are the noise band: how far the noise in the sums of residuals may have moved a value.
        """
        check_is_fitted(self)
        return {shape.name: shape.to_dict(self._outputs()) for shape in self.model_.shapes}

    @property
    def pairs_(self) -> list[dict[str, Any]]:
        """One table per chosen pair of columns."""
        check_is_fitted(self)
        return [pair.to_dict(self.model_.shapes) for pair in self.model_.pairs]

    @property
    def importances_(self) -> dict[str, float]:
        """Mean absolute value of each shape over the released counts, the largest first."""
        check_is_fitted(self)
        found = {shape.name: shape.importance for shape in self.model_.shapes}
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def set_shape(self, name: str, values: Any) -> Self:
        """Replace the values of one shape, bin by bin: post-processing, which a saved card records beside the release.

        The shape loses its noise band.

        Parameters
        ----------
        name : of a column.
        values : one number per bin of ``shapes_[name]``; with more than two classes, one per bin and class.
        """
        check_is_fitted(self)
        places = {shape.name: place for place, shape in enumerate(self.model_.shapes)}
        if name not in places:
            raise ParameterError("name", f"must be one of {list(places)}, got {name!r}")
        shape = self.model_.shapes[places[name]]
        given = np.asarray(values, dtype=np.float64).reshape(len(np.asarray(values)), -1)
        if given.shape != shape.values.shape or not np.isfinite(given).all():
            raise ParameterError("values", f"must be finite numbers of shape {shape.values.shape}")
        edited = Shape(shape.column, shape.bins, given.copy(), shape.missing)
        self.model_ = self.model_.with_shape(places[name], edited)
        return self

    def plot(self, columns: Any = None, *, bands: bool = True) -> Any:
        """Draw shapes above their released counts; returns an Altair chart (``pip install 'discreet[report]'``).

        Parameters
        ----------
        columns : names of the columns to draw; None for all, the most important first.
        bands : shade the noise bands of shapes that have one. They count the noise of the fit and nothing else.
        """
        from discreet.additive.shapes import shape_chart

        check_is_fitted(self)
        chosen = list(self.importances_) if columns is None else [str(name) for name in columns]
        known = {shape.name: shape for shape in self.model_.shapes}
        if not set(chosen) <= set(known):
            raise ParameterError("columns", f"must be among {list(known)}, got {chosen}")
        return shape_chart([known[name] for name in chosen], self._outputs(), bands)

    def _outputs(self) -> list[str]:
        return []

    # -- files ------------------------------------------------------------------------------------------------

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The model as plain arrays, as a card keeps it."""
        check_is_fitted(self)
        return self._arrays(self.model_)

    def _arrays(self, model: AdditiveModel) -> dict[str, NDArray[Any]]:
        classes = getattr(self, "classes_", None)
        known = [] if classes is None else [json.dumps(np.asarray(classes).tolist())]
        return {
            **model.to_arrays(),
            "reads_tables": np.array(self.reads_tables_),
            "classes": np.array(known, dtype=np.str_),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], privacy: PrivacyStatement, **parameters: Any) -> Self:
        """A fitted model from ``to_arrays()``, its ``privacy_`` and its constructor parameters."""
        model = cls(**parameters)
        model.model_ = AdditiveModel.from_arrays(arrays)
        model.reads_tables_ = bool(arrays["reads_tables"])
        if len(arrays["classes"]):
            model.classes_ = np.array(json.loads(str(arrays["classes"][0])))
        model.n_features_in_ = len(model.model_.shapes)
        if model.reads_tables_:
            model.feature_names_in_ = np.array([one.name for one in model.model_.columns], dtype=object)
        model.fitted_parameters_ = dict(parameters)
        model.privacy_ = privacy
        return model

    def _state(
        self, plan: AdditivePlan, carried: Carried[AdditiveRelease], facts: tuple[str, ...]
    ) -> PrivacyStatement:
        """State the promise that travels with the released shapes."""
        size, columns = plan.problem.n_samples, plan.problem.columns
        return carried.state(
            bounds={
                "norm of a record's coordinates": 1.0,
                "records": float(size),
                "columns": float(len(columns)),
                "pairs": float(plan.problem.n_pairs),
            },
            assumptions=(
                *facts,
                *size_facts(plan.guarantee.neighboring, size, self._rows_per_group(), self.delta),
                unit_assumption(plan.guarantee),
                "names, bounds and categories of columns were declared without looking at the private data (given by "
                "the user)",
                *PLATFORM_ASSUMPTIONS,
                "functions of NumPy and SciPy give equal numbers for equal arguments, wherever these lie in an array",
            ),
            not_covered=NOT_COVERED,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags


def _dense(rows: Any) -> Any:
    """Rows in memory, as a matrix."""
    if sp.issparse(rows) or not isinstance(rows, np.ndarray):
        raise ParameterTypeError(
            "X", "must be a dense array or a table: sparse matrices, files and clusters have no bins here"
        )
    return rows


def _cells(rows: NDArray[Any]) -> tuple[list[NDArray[Any]], Mask]:
    """The cells of a matrix by column, and which rows have one that is no number."""
    numbers = np.asarray(rows, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        bad = np.asarray(~(np.abs(numbers) <= LARGEST_ENTRY).all(axis=1))
    return [numbers[:, place] for place in range(numbers.shape[1])], bad
