"""Where data become records: the one seam between what users pass and what solvers sum over.

Everything that knows how data are stored is here. An estimator asks for checked rows, and later hands them back with
its labels to get records; it never looks inside.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from discreet import _inputs
from discreet.bounds import LARGEST_ENTRY, Bounds
from discreet.estimators import _cells
from discreet.records.arrays import ArrayRecords
from discreet.records.dask import DaskRows, is_dask, labels_of

if TYPE_CHECKING:
    from discreet.records.arrow import FileRows
    from discreet.solvers.base import Plan

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

_FLOATS = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "order": "C"}


@contextmanager
def opened(X: Any, y: Any, target: str | None) -> Iterator[tuple[Any, Any]]:
    """Data as the rest of this module takes them: files are mapped, Dask collections persisted, all else as it is."""
    if isinstance(X, str | os.PathLike):
        from discreet.records import arrow

        if y is not None:
            raise ValueError("labels are read from the file: pass target='column' instead of y")
        with arrow.opened(X, target=target) as rows:
            yield rows, rows.labels
        return
    if in_parts(X):
        yield X, X.labels if y is None else y
        return
    if target is not None:
        raise ValueError("target names a column of a file; with data in memory pass y")
    if is_dask(y):
        y = labels_of(y)
    yield (DaskRows(X), y) if is_dask(X) else (X, y)


def in_parts(rows: Any) -> bool:
    """Whether the rows are not a matrix in memory."""
    return hasattr(rows, "records")


def _noted(model: Any, rows: FileRows | DaskRows, *, reset: bool) -> FileRows | DaskRows:
    """The rows, with their number and names of columns noted on the model as scikit-learn does."""
    if not reset:
        raise ValueError("predict on rows in memory: pass one partition or batch at a time")
    model.n_features_in_ = rows.shape[1]
    if rows.feature_names:
        model.feature_names_in_ = np.array(rows.feature_names, dtype=object)
    return rows


def checked_rows(model: Any, X: Any, *, strict: bool = True, reset: bool = False) -> Any:
    """Rows as a float matrix or CSR matrix; ``strict`` refuses what is not finite, ``reset`` notes the columns."""
    if in_parts(X):
        return _noted(model, X, reset=reset)
    if not strict:
        rows = _two_dimensional(check_array, _cells.as_numbers(X), estimator=model)
        validate_data(model, X, reset=reset, skip_check_array=True)  # notes the columns
        return rows
    try:
        rows = _two_dimensional(validate_data, model, X, reset=reset)
    except (TypeError, ValueError, OverflowError):
        _cells.refuse_words(X, fitting=reset)
        raise
    largest = LARGEST_ENTRY if reset else np.finfo(np.float64).max
    _cells.refuse_infinite(X, rows, float(largest), fitting=reset)
    return rows


def checked_classes(model: Any, X: Any, y: Any, *, strict: bool) -> tuple[Any, NDArray[Any]]:
    """Rows and one label per row, of any type that can be a class."""
    _check_given(model, y)
    rows = checked_rows(model, X, strict=strict, reset=True)
    labels = np.asarray(column_or_1d(y, warn=True)) if strict else _inputs.cells(y)
    _check_one_per_row("label", rows, labels)
    if strict:
        if (none := _cells.missing(labels)).any():
            _cells.refuse_label(int(np.argmax(none)))
        check_classification_targets(labels)
    return rows, labels


def checked_targets(model: Any, X: Any, y: Any, *, strict: bool) -> tuple[Any, Array]:
    """Rows and one real target per row."""
    _check_given(model, y)
    rows = checked_rows(model, X, strict=strict, reset=True)
    targets = np.asarray(_cells.as_numbers(y), dtype=np.float64)
    _check_one_per_row("target", rows, targets)
    if strict and not np.all(finite := np.isfinite(targets)):
        _cells.refuse_target(int(np.argmin(finite)))
    return rows, targets


def take(rows: Any, places: NDArray[np.int64]) -> Any:
    """Some of the rows, possibly more than once, in the container that ``checked_rows`` gave."""
    if in_parts(rows):
        raise ValueError("groups need rows in memory; fit on an array or a data frame")
    return rows[places]


def blanked(rows: Any, nulls: Mask) -> Any:
    """The rows with zeros in place of some; a CSR matrix stores no entry more, and nothing is copied without need."""
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
    clip: Callable[[Any], Any] = lambda rows: rows,
) -> list[ArrayRecords]:
    """Records of every model: the same rows, with each model's labels.

    Parameters
    ----------
    rows : what ``checked_rows`` gave.
    labels : the labels of each model, as its loss wants them.
    bounds : the public promise about rows.
    null_rows : rows that must contribute nothing, whatever they hold; None for none.
    strict : whether rows that are not finite were refused; otherwise they are null records.
    clip : cuts rows where ``bounds`` alone would shrink them.
    """
    if in_parts(rows):
        if not strict:
            bad = ~rows.valid(bounds)
            null_rows = bad if null_rows is None else bad | null_rows
        whole = rows.records(np.asarray(labels[0], dtype=np.float64), bounds, null_rows, clip)
        return cast(list[ArrayRecords], [whole, *(whole.with_labels(other) for other in labels[1:])])
    if not strict:
        bad = ~bounds.valid_rows(rows)
        null_rows = bad if null_rows is None else bad | null_rows
    first = ArrayRecords(clip(rows), labels[0], bounds, null_rows)
    return [first, *(first.with_labels(other) for other in labels[1:])]


def check_runs(plan: Plan, rows: Any) -> None:
    """Refuse, before anything is charged, a plan that needs single rows of data that are kept in parts."""
    if in_parts(rows) and not getattr(plan, "sums_only", False):
        raise ValueError(
            f"{plan.mechanism}: this needs rows in memory, and the data are a file or a Dask collection; use "
            "solver='objective', 'noisy-gd', 'newton', 'discriminant' or 'output', or load the rows"
        )


def _two_dimensional(check: Callable[..., Any], *data: Any, **options: Any) -> Any:
    """A check of scikit-learn that lets infinities pass; its answer to a single column would print the column."""
    try:
        with np.errstate(all="ignore"):  # of numbers that float64 does not hold
            return check(*data, ensure_all_finite=False, **options, **_FLOATS)
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
        raise ValueError(f"y must hold one {what} per row: {rows.shape[0]} rows, y of shape {values.shape}")
