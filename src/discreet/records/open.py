"""Where data become records: read and check what users pass, and hand solvers what they sum over.

Everything that knows how data are stored is here. An estimator asks for checked rows and labels, and later hands them
back to get records; it never looks inside. Kinds of data are distinguished by type.

Errors name a place and quote nothing. With ``bad_rows="null"`` what becomes of a cell depends on that cell alone: a
word in one person's row neither raises an error nor changes how the rows of others are read.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NoReturn, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from discreet import _checks
from discreet._checks import ParameterError, ParameterTypeError, Setting
from discreet._typing import Array, Mask
from discreet.privacy.guarantee import PrivacyWarning
from discreet.records.arrays import ArrayRecords, RowGradients
from discreet.records.base import Records
from discreet.records.bounds import LARGEST_ENTRY, Bounds
from discreet.records.clusters.columns import Column
from discreet.records.partitioned import PartitionedRecords
from discreet.records.sources import is_source, source_of
from discreet.tables.domains import cell_text
from discreet.tables.reading import (
    as_cells,
    column_names,
    entries_to_numbers,
    is_frame,
    is_from,
    raw_column,
    to_numbers,
)
from discreet.tables.schema import NamedRows, RowsOfPeople, named


def as_numbers(values: Any) -> Any:
    """Return cells as numbers, NaN for other cells. Arrays and sparse matrices of numbers are returned unchanged."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiub":
        return values
    if is_from(values, "pandas", "DataFrame") and all(
        is_from(kind, "pandas", "SparseDtype") for kind in values.dtypes
    ):
        values = values.sparse.to_coo()
    if is_frame(values) and not is_from(values, "pandas", "DataFrame"):
        # By columns: together, polars and Arrow make numbers of dates where NumPy has a type for both.
        columns = [to_numbers(raw_column(values, name)) for name in column_names(values)]
        return np.column_stack(columns) if columns else np.empty((len(values), 0))
    sparse = bool(sp.issparse(values))
    if sparse and values.dtype.kind in "fiub":
        return values
    return entries_to_numbers(values) if sparse else to_numbers(values)


def missing(labels: NDArray[Any]) -> Mask:
    """Return which labels are missing: NaN, infinite, None, NA."""
    if labels.dtype.kind == "f":
        return np.asarray(~np.isfinite(labels))
    if labels.dtype.kind != "O":
        return np.zeros(labels.shape, dtype=bool)
    none = [not isinstance(label, str) and cell_text(label) is None for label in labels]
    return np.array(none, dtype=bool)


def class_codes(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    """Return the index of every label among the classes, -1 for a label of any kind that is not one of them."""
    found = np.full(len(labels), -1, dtype=np.int64)
    huge = labels.dtype.kind in "iuf" and any(_is_huge(label) for label in classes.tolist())
    if labels.dtype.kind not in "OU" and not huge:
        for code, label in enumerate(classes):
            found[np.asarray(labels == label, dtype=bool)] = code
        return found
    places = {label: code for code, label in enumerate(classes)}
    try:
        return np.array([places.get(label, -1) for label in labels.tolist()], dtype=np.int64)
    except TypeError:  # among them is a list, say, which can be no class
        for row, label in enumerate(labels):
            with contextlib.suppress(TypeError):
                found[row] = places.get(label, -1)
        return found


def _is_huge(label: object) -> bool:
    """Whether the number is so large that NumPy, which compares in floating point, may confuse it with another."""
    return isinstance(label, int | float) and abs(label) >= 2.0**53


def described(labels: NDArray[Any], most: int = 5) -> str:
    """Describe labels with their kinds, each once: "0" as text and 0 as a number are different labels.

    >>> described(np.array(["0", 0, True, 0], dtype=object))
    "'0' (text), 0 (number), True (true/false)"
    """
    kinds = {str: "text", bool: "true/false", int: "number", float: "number"}
    shown = dict.fromkeys(
        f"{label!r} ({kinds.get(type(label), type(label).__name__)})" for label in labels.tolist()
    )
    return ", ".join(list(shown)[:most]) + (" and others" if len(shown) > most else "")


def refuse_words(X: Any, values: Any, *, fitting: bool) -> None:
    """Raise for the first cell of X that is not a number (NaN is allowed); ``values`` is `as_numbers` of X."""
    if np.iscomplexobj(X):
        raise ValueError("Complex data not supported: every cell of X must be a real number")
    if values is X or not len(places := _nan_places(values)):
        return
    row, column = (int(place) for place in places[0])
    kind: type[ParameterError | ParameterTypeError] = ParameterError
    if not sp.issparse(X):
        frame = is_from(X, "pandas", "DataFrame")
        cell = X.iloc[row, column] if frame else as_cells(X)[row, column]
        if isinstance(cell, float | np.floating):
            return
        kind = ParameterError if isinstance(cell, str) else ParameterTypeError
    problem = (
        f"{_place(X, row, column)}: not a number. Every cell of this argument must be a number, or a string that "
        "spells a number"
    )
    if fitting:
        problem += (
            "; for a column of words or dates, declare its public values in a discreet.Schema and put a SchemaEncoder "
            "before the model"
        )
    raise kind("X", problem, *_advice(fitting)) from None


def _nan_places(values: Any) -> NDArray[Any]:
    """Return row and column of every NaN in a matrix."""
    if not bool(sp.issparse(values)):
        return np.argwhere(np.isnan(values))
    entries = values.tocoo()
    return np.asarray(np.column_stack(entries.coords)[np.isnan(entries.data)])


def refuse_infinite(X: Any, rows: Any, largest: float, *, fitting: bool) -> None:
    """Raise for the first cell of the matrix ``rows``, made of X, that is NaN or beyond ``largest``."""
    sparse = sp.issparse(rows)
    entries = rows.data if sparse else rows
    with np.errstate(all="ignore"):
        if entries.dtype == np.float64 and entries.flags.c_contiguous:
            flat = entries.reshape(-1)
            if (
                flat @ flat <= largest
            ):  # the usual case in one pass: no entry is beyond the root of the sum of squares
                return
        if entries.size == 0 or max(-float(entries.min()), float(entries.max())) <= largest:
            return  # NaN would be both the smallest and the largest
    bad = np.argwhere(~(np.abs(np.asarray(entries, dtype=np.float64)) <= largest))[
        0
    ]  # beyond what float32 holds
    if sparse:
        row = int(np.searchsorted(rows.indptr, bad[0], side="right")) - 1
        bad = np.array([row, rows.indices[bad[0]]])
    raise ParameterError(
        "X",
        f"{_place(X, int(bad[0]), int(bad[1]))}: missing (NaN), infinite or beyond 2**300. Do not fill gaps with means "
        "or medians of private data: use a public default",
        *_advice(fitting),
    )


def refuse_row(row: int) -> NoReturn:
    """Raise for a row that is not finite."""
    raise ParameterError(
        "X",
        f"has rows that are not finite or beyond 2**300, the first is row {row} (counted from 0)",
        *_advice(fitting=True),
    )


def refuse_label(row: int) -> NoReturn:
    """Raise for a label that is missing."""
    raise ParameterError(
        "y",
        f"has no label (NaN, infinity or a missing value) in row {row} (counted from 0)",
        *_advice(fitting=True),
    )


def refuse_target(row: int) -> NoReturn:
    """Raise for a target that is NaN."""
    raise ParameterError(
        "y",
        f"has targets that are not finite numbers, the first in row {row} (counted from 0)",
        *_advice(fitting=True),
    )


def _advice(fitting: bool) -> tuple[str | Setting, ...]:
    ignore = Setting("bad_rows", "null", purpose="to ignore such rows") if fitting else "leave such rows out"
    return "correct it", ignore


def _place(X: Any, row: int, column: int) -> str:
    if is_frame(X):
        return f"[{column_names(X)[column]!r}], row {row} (counted from 0)"
    return f"[{row}, {column}]"


_FLOATS = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "order": "C"}


class Rows(ABC):
    """Rows that are not a matrix in memory: a mapped file, or partitions on a cluster."""

    feature_names: tuple[str, ...]
    assumptions: tuple[str, ...] = ()  # what a promise assumes of where they come from

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""

    @abstractmethod
    def valid(self, bounds: Bounds) -> Mask:
        """Return which rows are finite and within 2**300."""

    @abstractmethod
    def records(
        self, labels: NDArray[Any], bounds: Bounds, null_rows: Mask | None, clip: Callable[[Any], Any]
    ) -> PartitionedRecords:
        """Return records of the rows with these labels; ``null_rows`` contribute nothing."""

    def regrouped(self, places: NDArray[np.int64]) -> Rows:
        """Return some of the rows, possibly more than once; raise if single rows cannot be reached."""
        raise ParameterError(
            "groups",
            "cannot be an array where rows are on a cluster: one person's rows may be in several partitions",
            "pass the name of the column of ids, groups='column', with a Dask or Spark data frame",
            "write the rows to Parquet files and fit on their folder",
        )


def is_dask(data: Any) -> bool:
    """Whether this is a Dask collection, without importing Dask."""
    base = sys.modules.get("dask.base")
    return base is not None and bool(base.is_dask_collection(data))


def refuse_source(name: str, data: Any) -> None:
    """Raise if rows are in a file, a query or a frame of Spark, where they have to be in memory."""
    if is_source(data) and not is_dask(data):
        raise ParameterTypeError(
            name,
            "must be in memory here, not a file, a query or a Spark frame",
            "read it first, for example by pyarrow.parquet.read_table(path)",
        )


@contextmanager
def open_rows(
    X: Any,
    y: Any = None,
    target: str | None = None,
    *,
    schema: Any = None,
    classes: Any = None,
    bad_rows: str = "error",
    ids: str | None = None,
    sums: bool = False,
    labeled: bool = True,
) -> Iterator[tuple[Any, Any]]:
    """Open rows and labels: sources are mapped, collections on a cluster stay there, anything else is unchanged.

    Parameters
    ----------
    X : array, frame or sparse matrix; a source (`discreet.records.sources`); a Dask collection; or `Rows`.
    y : labels, unless they are a column of X.
    target : the column of labels; that of the schema if there is one.
    schema : a `Schema` that makes rows of raw tables.
    classes : the public labels, as which cells of CSV files are read.
    bad_rows : {"error", "null"}, of the estimator.
    ids : the column that says whose row each is; only for sources, whose rows then have ``ids``.
    sums : whether nothing but sums over rows will be asked for: then those of a cluster stay where they are.
    labeled : whether rows of a source have labels; if not, all its columns are features and all labels 0.
    """
    if isinstance(X, Rows):
        yield X, X.labels if y is None else y  # type: ignore[attr-defined]  # files have labels
        return
    if isinstance(X, np.ndarray) and isinstance(y, np.ndarray) and target is schema is None:
        yield X, y
        return
    there = sums and ids is None  # where it may stay if it is a frame of a cluster
    cluster = there and schema is None and is_from(X, "dask.dataframe", "DataFrame")
    target = _target(X, None if cluster and target is None else y, target, schema, ids)
    table = None if cluster else source_of(X, bad_rows=bad_rows)
    if table is not None:
        from discreet.records import arrow

        rules: dict[str, Any] = {
            "schema": schema,
            "classes": classes,
            "bad_rows": bad_rows,
            "labeled": labeled,
        }
        if there and is_from(X, "pyspark.sql", "DataFrame"):
            from discreet.records.clusters.spark import SparkRows

            opened: Any = SparkRows(X, target, **rules)
        else:
            whole = X if isinstance(X, str | os.PathLike) else table
            opened = arrow.opened(whole, target=target, ids=ids, **rules)
        with opened as rows:
            yield rows, rows.labels
        return
    if schema is not None:
        encoded, values = schema.encode(X, bad_rows=bad_rows)
        yield named(encoded, schema.feature_names), values
        return
    if target is not None:
        X, y = split_target(X, target)
    if is_dask(X) or is_dask(y):
        from discreet.records.clusters.dask import DaskRows, labels_of

        beside = None  # labels that stay with the rows
        if is_dask(X):
            X = DaskRows(X, y if sums and is_dask(y) else None)
            beside = X.labels
        if is_dask(y):
            y = labels_of(y) if beside is None else beside
    yield X, y


def _target(X: Any, y: Any, target: str | None, schema: Any, ids: str | None) -> str | None:
    """Return the column of labels; raise if labels are given twice, or if rows of people would count as people."""
    if schema is not None:
        if schema.group is not None and schema.group != ids:
            raise ParameterError(
                "schema",
                "declares a group column, which fit does not read from a table",
                "encode the table in memory and pass groups=schema.groups(table)",
            )
        declared = None if schema.target is None else schema.target.column
        if declared is None or target not in (None, declared):
            raise ParameterError("target", f"must be the target of the schema, {declared!r}, got {target!r}")
        target = declared
    if y is not None and is_source(X):
        raise ValueError(
            "labels are read from the file or query that X is: pass target='column' instead of y"
        )
    if y is not None and target is not None:
        raise ParameterError("y", "must be None where a schema or target names the column of labels")
    return target


def split_groups(X: Any, groups: Any, schema: Any) -> tuple[Any, Any, str | None]:
    """Return rows, ids of people, and the name of the column of ids if it has yet to be read."""
    name = groups if groups is not None or schema is None else schema.group
    if not isinstance(name, str):
        return X, groups, None
    if is_source(X):
        return X, None, name
    if schema is not None:
        return X, raw_column(X, name), name
    return *split_target(X, name, "groups"), None


def split_target(table: Any, target: str, name: str = "target") -> tuple[Any, Any]:
    """Split a column off a frame."""
    dask_frame = is_from(table, "dask.dataframe", "DataFrame")
    if not (dask_frame or is_frame(table)):
        given = "y" if name == "target" else "one id per row"
        raise ParameterError(name, "names a column of a file or a frame", f"with an array pass {given}")
    names = [str(name) for name in table.columns] if dask_frame else column_names(table)
    if names.count(target) != 1:
        raise ParameterError(name, f"must name one column of X, got {target!r}")
    if is_from(table, "pyarrow", "Table", "RecordBatch"):
        return table.drop_columns([target]), table.column(target)
    if is_from(table, "polars", "DataFrame"):
        return table.drop(target), table[target]
    return table.drop(columns=target), table[target]


def check_people(X: Any, groups: Any) -> None:
    """Raise if rows of people are to be protected one by one: their schema says that a person can have several."""
    if groups is None and isinstance(X, RowsOfPeople):
        raise ParameterError(
            "groups",
            "must be given: the schema that made these rows has a group column, so a person can have several of them",
            "pass groups=schema.groups(table)",
            "use a schema without a group column if each person has one row",
        )


def _note_parts(model: Any, rows: Rows, *, reset: bool) -> Rows:
    """Return the rows; note number and names of their columns on the model, as scikit-learn does."""
    if not reset:
        raise ValueError("predict on rows in memory: pass one partition or batch at a time")
    model.n_features_in_ = rows.shape[1]
    if rows.feature_names:
        model.feature_names_in_ = np.array(rows.feature_names, dtype=object)
    return rows


def checked_rows(model: Any, X: Any, *, strict: bool = True, reset: bool = False) -> Any:
    """Return rows as a float or CSR matrix; ``strict`` refuses NaN and infinity, ``reset`` notes the columns."""
    if isinstance(X, Rows):
        return _note_parts(model, X, reset=reset)
    if reset and isinstance(X, RowsOfPeople) and getattr(model, "max_rows_per_group", None) is None:
        raise ParameterError(
            "max_rows_per_group",
            "must be given: the schema that made these rows has a group column, so a person can have several of them",
            Setting("max_rows_per_group", purpose="with groups=schema.groups(table) in fit"),
            "use a schema without a group column if each person has one row",
        )
    if not isinstance(X, np.ndarray):
        refuse_source("X", X)
    if X is None or isinstance(X, Mapping):
        raise ParameterTypeError(
            "X",
            f"must be an array or a data frame, got {type(X).__name__}",
            "make a frame of columns by pandas.DataFrame",
            "use a discreet.Schema, which reads raw tables",
        )
    values = as_numbers(X)
    rows = _two_dimensional(values, model)
    _note_columns(model, X, reset)
    if strict:
        refuse_words(X, values, fitting=reset)
        largest = LARGEST_ENTRY if reset else np.finfo(np.float64).max
        refuse_infinite(X, rows, float(largest), fitting=reset)
    return rows


def _note_columns(model: Any, X: Any, reset: bool) -> None:
    """Note the columns of a fit, and compare those of a prediction with them, as scikit-learn does for frames."""
    if reset and type(X) is np.ndarray:  # what scikit-learn does for arrays
        model.n_features_in_ = X.shape[1]
        vars(model).pop("feature_names_in_", None)
        return
    names = X.feature_names if isinstance(X, NamedRows) else ()
    known = getattr(model, "feature_names_in_", None)
    if not names:
        validate_data(model, X, reset=reset, skip_check_array=True)
    elif reset or known is None:
        validate_data(model, X, reset=reset, skip_check_array=True)
        if reset:
            model.feature_names_in_ = np.array(names, dtype=object)
    elif list(known) != list(names):
        raise ParameterError("X", "must have the columns that the model was fitted on, in the same order")


def checked_classes(model: Any, X: Any, y: Any, *, strict: bool) -> tuple[Any, NDArray[Any]]:
    """Check rows and labels of a classifier: one label per row, of any type that can be a class."""
    _check_given(model, y)
    rows = checked_rows(model, X, strict=strict, reset=True)
    there = isinstance(y, Column)  # with the rows, elsewhere
    labels: Any = y if there else _one_label_each(y) if strict else as_cells(y)
    _check_one_per_row("label", rows, labels)
    if strict:
        row = labels.first(_first_missing) if there else _first_missing(labels)
        if row is not None:
            refuse_label(row)
    return rows, labels


def _first_missing(labels: NDArray[Any]) -> int | None:
    """Return the row of the first missing label; raise if no label can be a class."""
    if (none := missing(labels)).any():
        return int(np.argmax(none))
    if labels.dtype.kind in "mM":
        raise ParameterError(
            "y",
            f"{_LABELS}, got {labels.dtype}",
            "write dates and lengths of time as text, here and in classes",
        )
    if labels.ndim != 1 or labels.dtype.kind not in "biuU":  # any of these can be a class
        check_classification_targets(labels)
    return None


def checked_targets(model: Any, X: Any, y: Any, *, strict: bool) -> tuple[Any, Array]:
    """Check rows and targets of a regressor: one real number per row."""
    _check_given(model, y)
    rows = checked_rows(model, X, strict=strict, reset=True)
    there = isinstance(y, Column)
    targets = y.of(_targets) if there else _targets(y)
    _check_one_per_row("target", rows, targets)
    if strict and not np.all(finite := np.isfinite(targets)):
        refuse_target(int(np.argmin(finite)))
    return rows, targets


def _targets(y: Any) -> Array:
    return np.asarray(as_numbers(y), dtype=np.float64)


def take(rows: Any, places: NDArray[np.int64]) -> Any:
    """Return some of the rows, possibly more than once, in the container that ``checked_rows`` returned."""
    if isinstance(rows, Rows):
        return rows.regrouped(places)
    return rows[places]


def blanked(rows: Any, nulls: Mask) -> Any:
    """Return the rows with some set to zero; a CSR matrix gets no new entries, and nothing is copied without need."""
    if not nulls.any():
        return rows
    if not bool(sp.issparse(rows)):
        return np.where(nulls[:, None], 0.0, rows)
    made = rows.copy()
    made.data[np.repeat(nulls, np.diff(made.indptr))] = 0.0
    return made


def as_records(
    rows: Any,
    labels: Sequence[NDArray[Any]],
    bounds: Bounds,
    *,
    null_rows: Mask | None,
    strict: bool,
    clip: Callable[[Any], Any] | None = None,
    linear: bool = True,
) -> list[Records]:
    """Return the records of every model: the same rows, with each model's labels.

    Parameters
    ----------
    rows : what ``checked_rows`` gave.
    labels : the labels of each model, as its loss wants them.
    bounds : the public promise about rows.
    null_rows : rows that must contribute nothing, whatever they hold; None for none.
    strict : whether rows that are not finite were refused; otherwise they are null records.
    clip : cuts rows where ``bounds`` alone would shrink them; None for rows as they are.
    linear : whether the loss takes linear predictions; False for a `GradientLoss`, which takes rows one by one.
    """
    if isinstance(rows, Rows):
        if not linear:
            raise ParameterError("X", "must be in memory for a GradientLoss, which is asked row by row")
        if not strict:
            bad = ~rows.valid(bounds)
            null_rows = bad if null_rows is None else bad | null_rows
        own: Any = labels[0]
        given: Any = own if isinstance(own, Column) else np.asarray(own, dtype=np.float64)
        whole = rows.records(given, bounds, null_rows, clip or _unchanged)
        return cast(list[Records], [whole, *(whole.with_labels(other) for other in labels[1:])])
    if not strict:
        bad = ~bounds.valid_rows(rows)
        null_rows = bad if null_rows is None else bad | null_rows
    if not linear:
        null = np.zeros(rows.shape[0], dtype=bool) if null_rows is None else null_rows
        return cast(list[Records], [RowGradients(rows, labels[0], null)])
    first = ArrayRecords(rows if clip is None else clip(rows), labels[0], bounds, null_rows)
    return [first, *(first.with_labels(other) for other in labels[1:])]


def _unchanged(rows: Any) -> Any:
    return rows


def _one_label_each(y: Any) -> NDArray[Any]:
    """Return labels as scikit-learn reads them, unless it would rewrite one because of another."""
    labels = np.asarray(column_or_1d(y, warn=True))
    if isinstance(y, np.ndarray) and y.dtype != object:
        return labels
    given = as_cells(y).ravel()
    return labels if given.dtype != object or labels.tolist() == given.tolist() else given


def _two_dimensional(values: Any, model: Any) -> Any:
    """Check a matrix as scikit-learn does, infinities allowed; its own error would print a single column."""
    try:
        with np.errstate(all="ignore"):  # of numbers that float64 does not hold
            return check_array(values, ensure_all_finite=False, estimator=model, **_FLOATS)
    except ValueError as error:
        if "Reshape your data" not in str(error):
            raise
        raise ValueError(
            "Expected 2D array, got fewer dimensions: X must have rows and columns. Reshape your data: "
            "array.reshape(-1, 1) is one column, array.reshape(1, -1) is one row"
        ) from None


def _check_given(model: Any, y: Any) -> None:
    if y is None:
        raise ValueError(f"{type(model).__name__} requires y to be passed, but the target y is None")


def _check_one_per_row(what: str, rows: Any, values: NDArray[Any]) -> None:
    if values.ndim != 1 or len(values) != rows.shape[0]:
        raise ParameterError(
            "y", f"must hold one {what} per row: {rows.shape[0]} rows, y of shape {values.shape}"
        )


_READ_FROM_DATA = (
    "THE LABEL SET WAS READ FROM THE PRIVATE DATA and is treated as public: a label that only one person has would be "
    "revealed"
)


@dataclass(frozen=True)
class Labels:
    """Labels as codes into a public label set; -1 marks a null record."""

    classes: NDArray[Any]
    codes: NDArray[np.int64]
    assumption: str  # of a promise, about the label set


@dataclass(frozen=True)
class Targets:
    """What a loss is fitted to, one value per row.

    Attributes
    ----------
    values : codes of classes, or numbers in the units of the loss.
    null : rows without a valid value, which must contribute nothing.
    assumptions : what the guarantee assumes about the values.
    classes : the public label set; None for numbers.
    """

    values: NDArray[Any]
    null: Mask
    assumptions: tuple[str, ...] = ()
    classes: NDArray[Any] | None = None

    def take(self, rows: NDArray[np.int64]) -> Targets:
        """Return the targets of some rows, possibly more than once."""
        return replace(self, values=self.values[rows], null=self.null[rows])

    def of_models(self, n_outputs: int) -> list[NDArray[Any]]:
        """Return the labels of every model: the values, or -1 and +1 for one class against the rest."""
        if self.classes is None or n_outputs > 1:
            return [self.values]
        positives = [1] if len(self.classes) == 2 else range(len(self.classes))
        return [np.where(self.values == k, 1.0, -1.0) for k in positives]


def read_labels(y: Any, classes: Any, bad_rows: str, *, droppable: bool = True) -> Labels:
    """Return the codes of labels in the declared label set, or in one read from the data with a warning.

    ``droppable`` says whether the caller could leave bad rows out, which is advised then.
    """
    if classes is not None:
        known = declared_classes(classes)
    else:
        if bad_rows == "null":
            raise ParameterError(
                "classes", "must list the public labels where bad_rows='null'", Setting("classes")
            )
        known = np.unique(y)
        if len(known) < 2:
            raise ParameterError(
                "y",
                f"holds {len(known)} class; a classifier needs at least two",
                Setting(
                    "classes", purpose="to declare the public label set, if this data has one class only"
                ),
            )
        warnings.warn(
            "the label set was read from the private data and is treated as public; pass classes=[...] to declare it",
            PrivacyWarning,
            stacklevel=4,
        )
    codes: Any = y.of(class_codes, known).computed() if isinstance(y, Column) else class_codes(y, known)
    if bad_rows == "error" and np.any(codes < 0):
        raise ParameterError(
            "y",
            f"holds labels outside classes: {described(y[codes < 0])}; declared are "
            f"{described(known, most=20)}{'' if droppable else '. Nothing was charged'}",
            "correct the labels or classes",
            *([Setting("bad_rows", "null", purpose="to leave such rows out")] if droppable else []),
        )
    return Labels(
        known, codes, _READ_FROM_DATA if classes is None else "the label set was declared by the user"
    )


def class_count(n_classes: int | None, classes: Any) -> int:
    """Return the number of classes to plan for: the given one, that of the declared classes, or 2."""
    if n_classes is None:
        return 2 if classes is None else len(declared_classes(classes))
    return _checks.count("n_classes", n_classes, at_least=2)


_NO_LABELS = frozenset("mMcOV")  # a model file could not hold them
_LABELS = "must be text, whole numbers or true/false"


def declared_classes(classes: Any) -> NDArray[Any]:
    """Return the declared labels in order; raise for mixed kinds, which NumPy would make texts that match nothing."""
    if isinstance(classes, set | frozenset | Mapping | str):
        raise ParameterError("classes", f"must be a list, which has an order, got {classes!r}")
    plain = isinstance(classes, list | tuple)
    given = (np.asarray(classes, dtype=object) if plain else as_cells(classes)).ravel()
    kinds = {np.asarray(label).dtype.kind for label in given}
    if len({"number" if kind in "iuf" else kind for kind in kinds}) > 1:
        raise ParameterError(
            "classes",
            "must be all text, all numbers or all true/false, not a mixture, got "
            f"{described(given, most=20)}",
        )
    if kinds & _NO_LABELS:
        raise ParameterError(
            "classes",
            f"{_LABELS}, got {described(given)}",
            "write dates and lengths of time as text, here and in y",
        )
    known = np.unique(np.asarray(classes))
    if len(known) < 2 or len(known) != len(given):
        raise ParameterError("classes", f"must list at least two different labels, got {classes!r}")
    return known
