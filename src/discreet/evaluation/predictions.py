"""A released model's predictions for every record, computed before anything is charged.

A model can refuse rows for many reasons: it is not fitted, columns are missing or in another order, cells are not
numbers. These errors must come up while an evaluation is still free, so the model predicts first.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing

from discreet._checks import ParameterError, Setting
from discreet._typing import Mask
from discreet.estimators.pipelines import SchemaEncoder
from discreet.records.arrow import FileRows
from discreet.records.bounds import Bounds
from discreet.records.open import Rows, blanked, class_codes, open_rows, refuse_source
from discreet.records.sources import is_source
from discreet.tables.reading import as_cells, column_names, entries_to_numbers, is_frame, to_numbers

Codes = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Blocks:
    """Rows of a mapped file, which a model predicts block by block."""

    file: FileRows
    strict: bool

    def __iter__(self) -> Iterator[NDArray[Any]]:
        """Yield matrices; without ``strict``, rows with invalid cells are replaced by zeros."""
        for block in self.file.blocks():
            yield block if self.strict else blanked(block, ~Bounds().valid_rows(block))


@contextmanager
def opened(
    model: Any, X: Any, y: Any, target: str | None, bad_rows: str, target_bounds: Any
) -> Iterator[tuple[Any, Any, Any, tuple[str, ...]]]:
    """Yield a model, its rows, their labels, and what a guarantee assumes about where they come from.

    Rows of a source are mapped as numbers. If a pipeline begins with a `SchemaEncoder`, it encodes the rows once, and
    the model is the rest of the pipeline.
    """
    schema = None
    if getattr(model, "reads_tables_", False):
        refuse_source("X", X)
    if is_source(X) and isinstance(model, Pipeline) and isinstance(model[0], SchemaEncoder):
        if target is None:
            raise ParameterError("target", "must name the column of labels")
        classes = tuple(np.asarray(getattr(model, "classes_", ())).tolist())
        bounds = None if classes else target_bounds
        schema, model = model[0].schema.with_target(target, classes, bounds=bounds), model[1:]
    known = getattr(model, "classes_", None)
    with open_rows(X, y, target, schema=schema, classes=known, bad_rows=bad_rows) as (rows, labels):
        if not isinstance(rows, Rows):
            yield model, rows, labels, ()
            return
        if not isinstance(rows, FileRows):
            raise ParameterError("X", "must be in memory or a source of rows", "compute the collection")
        names = getattr(model, "feature_names_in_", None)
        if schema is None and names is not None and list(names) != list(rows.feature_names):
            raise ParameterError("X", "must have the columns that the model was fitted on, in the same order")
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", "X does not have valid feature names"
            )  # they were compared above
            yield model, Blocks(rows, bad_rows == "error"), labels, rows.assumptions


@dataclass(frozen=True, eq=False)
class Answers:
    """A model's predictions for all rows; exists only while an evaluation runs.

    Attributes
    ----------
    model, rows : the model and its input.
    alone : whether each row was predicted separately.
    values : one prediction per row, of any type.
    usable : which rows could be predicted.
    """

    model: Any
    rows: Any
    alone: bool
    values: NDArray[Any]
    usable: Mask

    def codes(self, classes: NDArray[Any], *, strict: bool) -> Codes:
        """Return the predictions as indices into ``classes``; others are -1, or an error if ``strict``."""
        codes = class_codes(self.values, classes)
        if strict and np.any(codes < 0):
            raise ValueError(f"predict gave labels that are not among the model's classes {classes.tolist()}")
        return codes

    def numbers(self, *, strict: bool) -> NDArray[np.float64]:
        """Return the predictions as numbers; if ``strict``, raise for non-finite ones."""
        return _checked("predict", self.values, strict)

    def chances(self, classes: NDArray[Any], *, strict: bool) -> NDArray[np.float64] | None:
        """Return the probabilities of ``classes``, one column each; None if the model has no probabilities."""
        if not hasattr(self.model, "predict_proba"):
            return None
        with np.errstate(all="ignore"):
            found = np.asarray(_asked(self.model.predict_proba, self.rows, len(self.values), self.alone))
        wanted = (len(self.values), len(self.model.classes_))
        if found.shape != wanted:
            raise ValueError(f"predict_proba must give an array of shape {wanted}, got {found.shape}")
        known = np.asarray(self.model.classes_)
        places = [int(np.flatnonzero(known == label)[0]) for label in classes]
        return np.column_stack([_checked("predict_proba", found[:, place], strict) for place in places])


def answers(model: Any, X: Any, n_rows: int, *, strict: bool, alone: bool) -> Answers:
    """Predict every row of ``X``; if ``strict``, the model makes all checks of the rows.

    Otherwise rows with cells that are not numbers, or beyond 2**300, are replaced by zeros. If the number of rows is
    private, each row is predicted ``alone``: the last bit of a matrix product depends on the number of rows, so one
    more row could change the predictions of others.
    """
    if not hasattr(model, "predict"):
        raise TypeError(f"model must have a predict method; {type(model).__name__} has none")
    usable = np.ones(n_rows, dtype=bool)
    if not strict:
        model, X, usable = _meaningful(model, X)
    with np.errstate(all="ignore"):
        found = as_cells(_asked(model.predict, X, n_rows, alone))
    if found.shape != (n_rows,):
        raise ParameterError(
            "y",
            f"must hold one value per row, and predict give one: y has {n_rows}, predictions have "
            f"shape {found.shape}",
        )
    return Answers(model, X, alone, found, usable)


def _asked(method: Callable[[Any], Any], rows: Any, n_rows: int, alone: bool) -> Any:
    """Apply a method of the model to the rows: all at once, block by block, or one by one."""
    if isinstance(rows, Blocks):
        return np.concatenate([as_cells(_asked(method, block, len(block), alone)) for block in rows])
    if not alone or n_rows < 2:
        return method(rows)
    return np.concatenate([as_cells(method(taken(rows, [place]))) for place in range(n_rows)])


def taken(rows: Any, places: Any) -> Any:
    """Return some of the rows, in the same container."""
    if isinstance(rows, Blocks):
        raise ParameterError("groups", "need rows in memory", "read the table first")
    if isinstance(rows, Mapping):
        return {name: _safe_indexing(column, places) for name, column in rows.items()}
    return _safe_indexing(rows, places)


def _checked(method: str, cells: NDArray[Any], strict: bool) -> NDArray[np.float64]:
    found = to_numbers(cells)
    if strict and not np.all(np.isfinite(found)):
        raise ParameterError(
            "model",
            f"returned values of {method} that are not finite numbers",
            Setting("bad_rows", "null", purpose="to leave them out"),
        )
    return found


def _meaningful(model: Any, X: Any) -> tuple[Any, Any, Mask]:
    """Return a model, its rows with zeros in place of invalid ones (or beyond 2**300), and which rows are valid."""
    if isinstance(X, Blocks):
        return model, X, X.file.valid(Bounds())
    if isinstance(model, Pipeline) and isinstance(model[0], SchemaEncoder):
        # Only the encoder knows which cells are valid; here it must not raise.
        model, X = model[1:], SchemaEncoder(model[0].schema, bad_rows="null").transform(X)
    if sp.issparse(X):
        rows = entries_to_numbers(X)
        usable = Bounds().valid_rows(rows)
        return model, blanked(rows, ~usable), usable
    cells = to_numbers(X)
    if cells.ndim != 2:
        raise ParameterError(
            "X", "must be an array, a data frame or a sparse matrix of numbers where bad_rows='null'"
        )
    usable = Bounds().valid_rows(cells)
    return model, _framed(blanked(cells, ~usable), X), usable


def _framed(rows: NDArray[np.float64], table: Any) -> Any:
    """Return rows in a frame with the names of the original, if that was a frame."""
    if not is_frame(table):
        return rows
    made = getattr(type(table), "from_pydict", type(table))
    return made({name: rows[:, place] for place, name in enumerate(column_names(table))})
