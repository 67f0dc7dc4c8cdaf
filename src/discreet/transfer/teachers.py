"""Teachers: one model per chunk of records, trained in parallel, asked once and forgotten.

After the charge nothing here may raise because of what a chunk contains: a chunk without records, a model that
fails or a prediction that is no label becomes a fixed public vote, and a chunk with one class votes for it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from discreet.transfer.rows import take

Votes = NDArray[np.unsignedinteger[Any]]
Codes = NDArray[np.int64]
Step = Callable[[str], None]

FALLBACK = 0  # the vote of a teacher that has nothing to say: the first class, fixed before any data is seen
_QUERY_BLOCK = 100_000
_TASKS_PER_WORKER = 16


@dataclass(frozen=True)
class Teacher:
    """What became of one chunk: a fitted model, or a constant vote."""

    model: Any | None
    constant: int

    def vote(self, X: Any, classes: NDArray[Any]) -> Codes:
        """Class codes for the rows of ``X``; never raises."""
        votes = np.full(X.shape[0], self.constant, dtype=np.int64)
        if self.model is None:
            return votes
        for begin in range(0, X.shape[0], _QUERY_BLOCK):
            part = slice(begin, min(begin + _QUERY_BLOCK, X.shape[0]))
            try:
                with quiet():
                    votes[part] = label_codes(self.model.predict(take(X, part)), classes)
            except Exception:  # the content of the chunk must not decide whether this program goes on
                votes[part] = FALLBACK
        return votes


def train(estimator: Any, X: Any, codes: Codes, classes: NDArray[Any], seed: int) -> Teacher:
    """Train one teacher on one chunk; whatever happens, a teacher comes back."""
    if len(codes) == 0:
        return Teacher(None, FALLBACK)
    if np.all(codes == codes[0]):
        return Teacher(None, int(codes[0]))
    try:
        with quiet():
            return Teacher(seeded(estimator, seed).fit(X, classes[codes]), FALLBACK)
    except Exception:
        return Teacher(None, FALLBACK)


def collect_votes(
    estimator: Any,
    X: Any,
    codes: Codes,
    chunks: Codes,
    queries: Any,
    classes: NDArray[Any],
    n_teachers: int,
    seed: np.random.SeedSequence,
    n_jobs: int | None = None,
    step: Step | None = None,
) -> Votes:
    """The votes of all teachers on all queries: counts of shape (n_queries, n_classes), nothing else.

    Memory is that of a few chunks and a few count matrices at a time, whatever the number of teachers.
    """
    kind = np.min_scalar_type(n_teachers)
    total = np.zeros((queries.shape[0], len(classes)), dtype=kind)
    tasks = (
        delayed(_count_votes)(
            estimator, _records(X, codes, chunks, batch), queries, classes, batch, seed, kind
        )
        for batch in batches(n_teachers, n_jobs)
    )
    for counts in run_tasks(tasks, n_jobs):
        total += counts
        if step is not None:
            step("teachers")
    return total


def train_all(
    estimator: Any,
    X: Any,
    codes: Codes,
    chunks: Codes,
    classes: NDArray[Any],
    n_teachers: int,
    seed: np.random.SeedSequence,
    n_jobs: int | None = None,
    step: Step | None = None,
) -> list[Teacher]:
    """All teachers, kept: for streams whose questions are not known yet. They are as private as the data."""
    tasks = (
        delayed(_train_batch)(estimator, _records(X, codes, chunks, batch), classes, batch, seed)
        for batch in batches(n_teachers, n_jobs)
    )
    found: dict[int, list[Teacher]] = {}
    for first, trained in run_tasks(tasks, n_jobs):
        found[first] = trained
        if step is not None:
            step("teachers")
    return [teacher for first in sorted(found) for teacher in found[first]]


def n_steps(n_teachers: int, n_jobs: int | None) -> int:
    """How often ``collect_votes`` reports progress."""
    return len(list(batches(n_teachers, n_jobs)))


def rehearse(estimator: Any, queries: Any, classes: NDArray[Any], n_rows: int) -> None:
    """Train once on public rows with made-up labels, so that a broken estimator is noticed free of charge."""
    rows = np.arange(min(queries.shape[0], max(n_rows, 2 * len(classes))))
    public = take(queries, rows)
    if len(rows) < 2:
        return
    try:
        with quiet():
            model = seeded(estimator, 0).fit(public, classes[rows % len(classes)])
            label_codes(model.predict(public), classes)
    except Exception as error:
        raise ValueError(
            f"the estimator {type(estimator).__name__} fails on {len(rows)} rows that hold nothing private "
            f"({type(error).__name__}: {error}); it would fail for the teachers as well. Nothing was charged."
        ) from error


def seeded(estimator: Any, seed: int) -> Any:
    """An unfitted copy whose own randomness is fixed, in pipelines and nested models as well."""
    copy = clone(estimator)
    names = [name for name in copy.get_params(deep=True) if name.rpartition("__")[2] == "random_state"]
    return copy.set_params(**dict.fromkeys(names, seed)) if names else copy


def label_codes(labels: Any, classes: NDArray[Any]) -> Codes:
    """Positions of labels among the sorted ``classes``; the fallback for anything else."""
    labels = np.asarray(labels).reshape(-1)
    codes = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
    return np.where(classes[codes] == labels, codes, FALLBACK).astype(np.int64)


def batches(n_teachers: int, n_jobs: int | None) -> Iterator[range]:
    """Teachers per task: few enough tasks that sending the queries to a worker does not dominate."""
    tasks = min(n_teachers, _TASKS_PER_WORKER * effective_n_jobs(n_jobs))
    edges = np.linspace(0, n_teachers, tasks + 1).astype(int)
    return (range(low, high) for low, high in pairwise(edges))


def chunk_rows(chunks: Codes, batch: range) -> list[Codes]:
    """The rows of some teachers, each in the order in which they came."""
    rows = np.flatnonzero((chunks >= batch.start) & (chunks < batch.stop))
    rows = rows[np.argsort(chunks[rows], kind="stable")]
    edges = np.searchsorted(chunks[rows], np.arange(batch.start, batch.stop + 1))
    return [rows[low:high] for low, high in pairwise(edges)]


def _records(X: Any, codes: Codes, chunks: Codes, batch: range) -> list[tuple[Any, Codes]]:
    return [(take(X, part), codes[part]) for part in chunk_rows(chunks, batch)]


def _count_votes(
    estimator: Any,
    records: Sequence[tuple[Any, Codes]],
    queries: Any,
    classes: NDArray[Any],
    batch: range,
    seed: np.random.SeedSequence,
    kind: np.dtype[Any],
) -> Votes:
    counts = np.zeros((queries.shape[0], len(classes)), dtype=kind)
    places = np.arange(queries.shape[0])
    for number, (X, codes) in zip(batch, records, strict=True):
        teacher = train(estimator, X, codes, classes, teacher_seed(seed, number))
        counts[places, teacher.vote(queries, classes)] += 1
    return counts


def _train_batch(
    estimator: Any,
    records: Sequence[tuple[Any, Codes]],
    classes: NDArray[Any],
    batch: range,
    seed: np.random.SeedSequence,
) -> tuple[int, list[Teacher]]:
    teachers = [
        train(estimator, X, codes, classes, teacher_seed(seed, number))
        for number, (X, codes) in zip(batch, records, strict=True)
    ]
    return batch.start, teachers


def teacher_seed(seed: np.random.SeedSequence, number: int) -> int:
    """A seed of the teacher's own, independent of every chunk's content."""
    child = np.random.SeedSequence(entropy=seed.entropy, spawn_key=(*seed.spawn_key, number))
    return int(child.generate_state(1)[0] >> np.uint32(1))


def run_tasks(tasks: Iterator[Any], n_jobs: int | None) -> Iterator[Any]:
    """Results of delayed calls as they come, with a few calls in flight at a time."""
    if effective_n_jobs(n_jobs) == 1:
        with threadpool_limits(limits=1):  # small chunks: more threads would only wait for each other
            yield from (function(*args, **kwargs) for function, args, kwargs in tasks)
        return
    yield from Parallel(
        n_jobs=n_jobs, return_as="generator_unordered", pre_dispatch="2*n_jobs", batch_size=1
    )(tasks)


def quiet() -> warnings.catch_warnings[None]:
    """Warnings of a teacher speak of its chunk; they are not for publication."""
    return warnings.catch_warnings(action="ignore")
