"""What the estimators of this package share: reading inputs, stating the promise, showing progress."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import column_or_1d

from discreet import _console
from discreet.estimators import _data, _fit
from discreet.mechanisms.entropy import Entropy
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.privacy.statement import OTHER_RELEASES, POPULATION, UNPREDICTABLE, PrivacyStatement, Stated
from discreet.records.dask import is_dask
from discreet.transfer import partition, teachers
from discreet.transfer.rows import Columns, as_table, check_same_columns, in_parts, public_matrix


@dataclass(frozen=True)
class Settings:
    """The relation and its consequences, from an estimator's parameters.

    size : number of records, or of users where these are protected; public, or a public bound.
    """

    guarantee: Guarantee
    size: int
    changed: int


def n_units(n_rows: int, groups: ArrayLike | None) -> int:
    """How many are protected: rows, or users, whose number of rows is private and must not be planned with."""
    return n_rows if groups is None else partition.n_users(groups)


def settings(model: Any, n_units: int | None, n_samples: int | None, by_group: bool) -> Settings:
    """The promise asked for, the public size and the votes that one unit can move."""
    label_private = bool(getattr(model, "label_private", False))
    relation = _fit.relation_of(model.neighboring)
    if label_private and relation is not Neighboring.REPLACE_ONE:
        raise ValueError(
            "label_private=True protects one person's label against being exchanged for another, the rows "
            "themselves being public: use neighboring='replace-one'"
        )
    counted = "users" if by_group else "records"
    promise, size = _fit.guarantee_of(model.epsilon, model.delta, relation, n_units, n_samples, counted)
    unit = "user" if by_group else "record"
    if label_private:
        unit = "all labels of one user" if by_group else "label of one record"
    promise = Guarantee(promise.epsilon, promise.delta, relation, unit)
    changed = partition.changed_teachers(relation, by_group=by_group, label_private=label_private)
    return Settings(promise, size, changed)


@dataclass(frozen=True)
class Inputs:
    """Checked inputs: the private table with its labels, and the public table."""

    X: Any
    y: NDArray[Any]
    queries: Any


@contextmanager
def opened(X: Any, y: Any, target: str | None) -> Iterator[tuple[Any, Any]]:
    """Private rows and labels: files are mapped, Dask collections stay with their workers, all else is as it is."""
    if is_dask(X):
        from discreet.transfer.cluster import ClusterRows

        if target is not None:
            raise ValueError("target names a column of a file; with a Dask collection pass y")
        yield ClusterRows(X), y.compute() if is_dask(y) else y
        return
    with _data.opened(X, y, target) as (rows, labels):
        yield rows, labels


def read_inputs(X: Any, y: ArrayLike | None, queries: Any, groups: ArrayLike | None) -> Inputs:
    """Raise, before anything is charged, where the shapes do not fit."""
    if y is None:
        raise ValueError("this estimator requires y to be passed, but the target y is None")
    X = as_table("X", X)
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = column_or_1d(labels, warn=True)
    if labels.shape != (X.shape[0],):
        raise ValueError(f"y must hold one label per row: {X.shape[0]} rows, y of shape {labels.shape}")
    partition.check_groups(groups, X.shape[0])
    queries = as_table("X_public", public_matrix(X, queries) if in_parts(X) else queries)
    check_same_columns(Columns.of(X), queries, "X_public")
    return Inputs(X, labels, queries)


def assign(n_rows: int, groups: ArrayLike | None, n_chunks: int, entropy: Entropy) -> NDArray[np.int64]:
    """The chunk of every row."""
    if groups is None:
        return partition.assign_rows(n_rows, n_chunks, entropy)
    return partition.assign_groups(groups, n_chunks, entropy)


@contextmanager
def training(n_teachers: int, n_jobs: int | None, n_rows: int) -> Iterator[teachers.Step]:
    """A progress bar for the teachers, on a terminal."""
    with _console.progress("teachers", teachers.n_steps(n_teachers, n_jobs, n_rows)) as step:
        yield step


def state(
    plan: Stated, bounds: dict[str, float | str], assumptions: tuple[str, ...], secure: bool
) -> PrivacyStatement:
    """The promise that travels with the answers and with whatever is trained on them."""
    return PrivacyStatement.of(
        plan,
        bounds=bounds,
        assumptions=assumptions + _ASSUMPTIONS,
        not_covered=_NOT_COVERED,
        secure=secure,
    )


def assumptions(
    labels: _fit.Labels | None, size: int, promise: Guarantee, label_private: bool
) -> tuple[str, ...]:
    """What must be true, each one that came from the user included; there are no ``labels`` where y is a number."""
    label_set = () if labels is None else (labels.assumption,)
    counted = partition.counted(promise)
    rows = (
        f"the number of {counted}, {size}, is public{'; that of records is not' if counted == 'users' else ''}"
        if promise.neighboring.size_is_public
        else f"{size} is a public upper bound on the number of {counted} (given by the user)"
    )
    queries = (
        "ALL COLUMNS ARE PUBLIC: only the labels are protected (given by the user)"
        if label_private
        else "the rows of X_public are public and were chosen without looking at the private data (given by the user)"
    )
    return (*label_set, rows, queries)


_ASSUMPTIONS = (
    "a record influences the teacher of its own chunk only: the estimator holds nothing that was fitted to the "
    "private data, no vocabulary, no scaling, no selected columns (given by the user)",
    "each person is one row, or one id in groups (given by the user)",
    "the kind of table that holds the private rows, and the names and types of its columns, levels of categories "
    "included, are public (given by the user)",
    "training a teacher may fail but does not end the process",
    UNPREDICTABLE,
)
_NOT_COVERED = (
    "how long training and prediction took and how much memory they used",
    "scores computed on private rows and published afterwards",
    "exact votes, distances and teachers: they must not leave the trusted processes, workers of a cluster included",
    POPULATION,
    OTHER_RELEASES,
)
