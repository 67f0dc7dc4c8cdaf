"""Shared parts of all transfer estimators: parameters, the guarantee, input tables, and the statement."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import column_or_1d

from discreet._checks import ParameterError, Setting
from discreet.estimators.groups import read_people
from discreet.estimators.parameters import REQUIRED, Charged, estimator, parameter
from discreet.privacy.guarantee import LABEL_UNITS, Guarantee, Neighboring, guarantee_of
from discreet.privacy.statement import (
    OTHER_RELEASES,
    POPULATION,
    PUBLIC_TYPES,
    UNPREDICTABLE,
    PrivacyStatement,
)
from discreet.records.clusters.dask import labels_of
from discreet.records.open import Labels, Rows, check_people, is_dask, open_rows, refuse_source, split_target
from discreet.release import Carried
from discreet.tables.domains import cell_text
from discreet.tables.reading import as_cells, column_names, is_frame, is_from, to_numbers
from discreet.transfer.teachers import ClusterRows


def teachers_model(kind: str) -> Any:
    """Declare ``estimator``: the model of the teachers."""
    return parameter(
        REQUIRED,
        kind,
        "Model of the teachers: anything with the interface of scikit-learn, such as forests, boosting, neural "
        "networks, or pipelines with their own preprocessing. Must be unfitted, and must not contain anything learned "
        "from the private data.",
        positional=True,
    )


def teachers_count(automatic: str) -> Any:
    """Declare ``n_teachers``, and what "auto" means."""
    about = f'Number of disjoint chunks, and of teachers. "auto" {automatic}, with at least 50 records per teacher.'
    return parameter("auto", 'int or "auto"', about, positional=True)


@estimator
class TransferParameters(Charged):
    """Parameters of everything that trains teachers."""

    _: KW_ONLY
    n_samples: int | None = parameter(
        None,
        "int",
        "Public number of records, or a bound on it; with ``groups`` in ``fit``, the number of users, whose numbers of "
        "records are private. Then ``delta`` and the records per teacher count users, too.",
    )
    n_jobs: int | None = parameter(
        None,
        "int",
        "Number of processes that train teachers, as in joblib. Models inside a teacher run sequentially, ignoring "
        "their own n_jobs; threads take turns, because they share the global generators of random numbers.",
    )
    random_state: Any = parameter(
        None,
        "None, int or SeedSequence",
        "Seeds of the teachers and of a student; never of the privacy noise.",
    )


@estimator
class VoteParameters(TransferParameters):
    """Parameters of everything whose teachers vote."""

    _: KW_ONLY
    max_unstable: int | str = parameter(
        "auto",
        'int or "auto"',
        "Number of questions on which teachers disagree after which sparse vector stops.",
    )
    expected_unstable: float | None = parameter(
        None, "float", 'Public guess of the fraction of questions on which teachers disagree, used by "auto".'
    )


@dataclass(frozen=True)
class Settings:
    """The neighboring relation and its consequences, from an estimator's parameters.

    size : number of records, or of users if these are protected; public, or a public bound.
    """

    guarantee: Guarantee
    size: int
    changed: int


def counted(guarantee: Guarantee) -> str:
    """Return what the public size of a plan counts: users if they are protected as a whole, otherwise records."""
    return "users" if guarantee.unit in ("user", LABEL_UNITS[1]) else "records"


def changed_teachers(neighboring: Neighboring, *, by_group: bool, label_private: bool) -> int:
    """Return how many teachers may differ between neighbors, the factor of the relation in everything that follows.

    Two if a user is replaced by another one, because ids determine the chunk; otherwise one.

    >>> changed_teachers(Neighboring.REPLACE_ONE, by_group=True, label_private=False)
    2
    >>> changed_teachers(Neighboring.ADD_REMOVE_ONE, by_group=True, label_private=False)
    1
    """
    return 2 if by_group and not label_private and neighboring is Neighboring.REPLACE_ONE else 1


def settings(model: Any, n_units: int | None, n_samples: int | None, by_group: bool) -> Settings:
    """Return the requested guarantee, the public size and the votes that one unit can change."""
    label_private = bool(getattr(model, "label_private", False))
    counted = "users" if by_group else "records"
    promise, size = guarantee_of(model.epsilon, model.delta, model.neighboring, n_units, n_samples, counted)
    relation = promise.neighboring
    if label_private and relation is not Neighboring.REPLACE_ONE:
        raise ParameterError(
            "label_private",
            "protects one person's label against being replaced by another; the rows themselves are public",
            Setting("neighboring", "replace-one"),
        )
    unit = "user" if by_group else "record"
    if label_private:
        unit = LABEL_UNITS[by_group]
    promise = Guarantee(promise.epsilon, promise.delta, relation, unit)
    changed = changed_teachers(relation, by_group=by_group, label_private=label_private)
    return Settings(promise, size, changed)


@dataclass(frozen=True)
class Inputs:
    """Checked inputs: the private table with its labels, and the public table.

    n_units : number of protected units: rows, or users, whose numbers of rows are private and must not enter a plan.
    """

    X: Any
    y: NDArray[Any]
    queries: Any
    n_units: int


@contextmanager
def opened(
    X: Any, y: Any, target: str | None, *, schema: Any = None, classes: Any = None
) -> Iterator[tuple[Any, Any]]:
    """Private rows and labels: sources are mapped, Dask collections stay with their workers, all else is as it is."""
    if is_dask(X):
        if target is not None:
            X, y = split_target(X, target)
        yield ClusterRows(X), labels_of(y) if is_dask(y) else y
        return
    with open_rows(X, y, target, schema=schema, classes=classes) as (rows, labels):
        yield rows, labels


def read_inputs(
    X: Any, y: ArrayLike | None, queries: Any, groups: ArrayLike | None, *, own: bool = False
) -> Inputs:
    """Check shapes before anything is charged; with ``own`` and without queries, X itself is public."""
    if queries is None:
        if not own or isinstance(X, Rows):
            raise ValueError(
                "fit needs public rows to label: pass X_public, without labels and with the columns of X; or, if all "
                "columns are public and only labels are private, label_private=True"
            )
        queries = X
    if y is None:
        raise ValueError("this estimator requires y to be passed, but the target y is None")
    check_people(X, groups)
    X = as_table("X", X)
    labels, n_rows = as_cells(y), X.shape[0]
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = column_or_1d(labels, warn=True)
    if labels.shape != (n_rows,):
        raise ParameterError("y", f"must hold one label per row: {n_rows} rows, y of shape {labels.shape}")
    n_units = n_rows if groups is None else len(read_people(groups, n_rows, strict=True).names)
    queries = as_table("X_public", public_matrix(X, queries) if isinstance(X, Rows) else queries)
    check_same_columns(Columns.of(X), queries, "X_public")
    return Inputs(X, labels, queries, n_units)


def as_table(name: str, X: Any) -> Any:
    """Return ``X`` as a table with rows and a shape; the model checks its contents."""
    if bool(sp.issparse(X)):
        return X.tocsr()
    table = X if is_frame(X) or isinstance(X, Rows | np.ndarray) else _array(name, X)
    if len(table.shape) != 2:
        raise ParameterError(
            name,
            f"must have two dimensions (rows, columns), got shape {tuple(table.shape)}",
            "for a single column use X.reshape(-1, 1)",
        )
    if table.shape[0] == 0:
        raise ParameterError(name, "has no rows", "pass at least one")
    return table


def _array(name: str, X: Any) -> NDArray[Any]:
    """Convert to an array; lists become numbers, because otherwise one cell would decide the dtype of all others."""
    refuse_source(name, X)
    cells = as_cells(X)
    if cells is X or cells.dtype != object:
        return cells
    numbers = to_numbers(cells)
    if any(cell_text(cell) is not None for cell in cells[np.isnan(numbers)]):
        raise ParameterError(
            name,
            "is not an array, and cannot be read as rows of numbers of the same length",
            "for other contents pass a data frame, or an array with dtype=object. Nothing was charged.",
        )
    return numbers


def public_matrix(X: Any, queries: Any) -> Any:
    """Return public rows as a matrix, for private rows in parts; raise if column names differ."""
    if not is_from(queries, "pandas", "DataFrame"):
        return queries
    mine, theirs = X.feature_names, tuple(str(name) for name in queries.columns)
    if mine and mine != theirs:
        raise ValueError(
            f"the columns of X_public, {list(theirs)[:5]}, are not those of the private data, {list(mine)[:5]}, in the "
            "same order. Nothing was charged."
        )
    return queries.to_numpy()


def columns(X: Any) -> list[str] | None:
    """Return the names of the columns, if there are any."""
    return column_names(X) if is_frame(X) else None


def note_columns(model: Any, X: Any) -> None:
    """Store the number and names of the columns of ``X`` in scikit-learn's attributes."""
    model.n_features_in_ = int(X.shape[1])
    names = columns(X)
    if names is not None:
        model.feature_names_in_ = np.array(names, dtype=object)


@dataclass(frozen=True)
class Columns:
    """The number of columns of a table, and their names if there are any; no contents."""

    count: int
    names: list[str] | None

    @staticmethod
    def of(X: Any) -> Columns:
        """Return those of a table."""
        return Columns(int(X.shape[1]), columns(X))


def check_same_columns(private: Columns, other: Any, name: str) -> None:
    """Raise if ``other`` does not have the columns of the private data, in the same order."""
    if other.shape[1] != private.count:
        raise ParameterError(
            name,
            f"has {other.shape[1]} columns and the private data {private.count}",
            "give both the same columns in the same order. Nothing was charged.",
        )
    mine, theirs = private.names, columns(other)
    if (mine is None) != (theirs is None):
        raise ValueError(
            f"{name} and the private data must both be data frames, or neither: with names on one side only the "
            "columns cannot be compared. Nothing was charged."
        )
    if mine is not None and theirs is not None and mine != theirs:
        odd = sorted(set(mine) ^ set(theirs))[:5]
        why = f"differ in {odd}" if odd else "come in another order"
        raise ValueError(
            f"the columns of {name} and of the private data {why}; give both the same columns in the same order. "
            "Nothing was charged."
        )


def state(
    carried: Carried[Any], bounds: dict[str, float | str], assumptions: tuple[str, ...], rows: Any = None
) -> PrivacyStatement:
    """State the promise that travels with the answers and with whatever is trained on them."""
    where = rows.assumptions if isinstance(rows, Rows) else ()
    return carried.state(
        bounds=bounds, assumptions=(*assumptions, *_ASSUMPTIONS, *where), not_covered=_NOT_COVERED
    )


def assumptions(labels: Labels | None, size: int, promise: Guarantee, label_private: bool) -> tuple[str, ...]:
    """List what must be true, including what the user declared; without ``labels``, y is a number."""
    label_set = () if labels is None else (labels.assumption,)
    units = counted(promise)
    rows = (
        f"the number of {units}, {size}, is public{'; that of records is not' if units == 'users' else ''}"
        if promise.neighboring.size_is_public
        else f"{size} is a public upper bound on the number of {units} (given by the user)"
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
    "the estimator's code keeps nothing from one chunk to the next: NumPy's and Python's global generators and every "
    "random_state are set for each chunk; generators made at import, of C libraries, PyTorch, TensorFlow or a GPU, "
    "processes it starts, caches and files are out of reach and must not carry anything over (given by the user)",
    "each person is one row, or one id in groups (given by the user)",
    PUBLIC_TYPES,
    "training a teacher and asking it may fail, but ends on every chunk, and does not end the process (given by the "
    "user)",
    UNPREDICTABLE,
)
_NOT_COVERED = (
    "how long training and prediction took and how much memory they used",
    "scores computed on private rows and published afterwards",
    "exact votes, distances and teachers: they must not leave the trusted processes, workers of a cluster included",
    POPULATION,
    OTHER_RELEASES,
)
