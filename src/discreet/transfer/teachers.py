"""Teachers: one model per chunk of records, trained in parallel, asked once and forgotten.

A teacher votes for one class per question, or gives an opinion: its probabilities for all questions, as one vector of
fixed length. After the charge nothing here may raise because of what a chunk contains: a chunk without records, a
model that fails or a prediction that is no label becomes a fixed public vote, and a chunk with one class votes for it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from discreet import _inputs
from discreet.estimators import _cells
from discreet.transfer.rows import take

Votes = NDArray[np.integer[Any]]
Codes = NDArray[np.int64]
Step = Callable[[str], None]

FALLBACK = 0  # the vote of a teacher that has nothing to say: the first class, fixed before any data is seen
STEPS = 1 << 10  # of a vote, in which opinions are counted
_QUERY_BLOCK = 100_000
_TASKS_PER_WORKER = 16
_ROWS_PER_TASK = 1 << 18


@dataclass(frozen=True)
class Teacher:
    """What became of one chunk: a fitted model, or a constant vote."""

    model: Any | None
    constant: int

    def vote(self, X: Any, classes: NDArray[Any], apart: bool = False) -> Codes:
        """Class codes for the rows of ``X``; never raises.

        Parameters
        ----------
        X, classes : the questions and the public label set.
        apart : whether the rows are private: then a row on which the model fails gets the fallback alone. Of public
            rows the whole block gets it, which is as private and much faster.
        """
        votes = np.full(X.shape[0], self.constant, dtype=np.int64)
        if self.model is None:
            return votes
        for part in _blocks(X.shape[0]):
            block = take(X, part)
            try:
                votes[part] = self._codes(block, classes)
            except Exception:  # the content of the chunk must not decide whether this program goes on
                votes[part] = self._codes_apart(block, classes) if apart else FALLBACK
        return votes

    def _codes(self, X: Any, classes: NDArray[Any]) -> Codes:
        """One class code per row; raises where the model fails."""
        assert self.model is not None
        with quiet():
            codes = label_codes(self.model.predict(X), classes)
        if len(codes) != X.shape[0]:
            raise ValueError("a model gives one label per row")
        return codes

    def _codes_apart(self, X: Any, classes: NDArray[Any]) -> Codes:
        """Class codes of rows among which the model fails on some: these alone get the fallback.

        The others are asked again in a block of the same shape, on which rounding may depend, so that they get the
        codes that they would have got beside rows without failure.
        """
        failing = self._failing(X, classes)
        votes, good = np.full(X.shape[0], FALLBACK, dtype=np.int64), np.flatnonzero(~failing)
        if len(good):
            filled = take(X, np.where(failing, good[0], np.arange(X.shape[0])))
            try:
                votes[good] = self._codes(filled, classes)[good]
            except Exception:  # a model that mixes rows, for which nothing is promised
                votes[:] = FALLBACK
        return votes

    def _failing(self, X: Any, classes: NDArray[Any]) -> NDArray[np.bool_]:
        """The rows on which the model fails, found by halving."""
        n_rows = X.shape[0]
        try:
            self._codes(X, classes)
        except Exception:
            if n_rows == 1:
                return np.ones(1, dtype=bool)
        else:
            return np.zeros(n_rows, dtype=bool)
        halves = slice(0, n_rows // 2), slice(n_rows // 2, n_rows)
        return np.concatenate([self._failing(take(X, half), classes) for half in halves])

    def opinion(self, X: Any, classes: NDArray[Any]) -> Codes:
        """Probabilities less 1 / K for the rows of ``X``, as one vector in whole steps; never raises.

        The vector is stretched to the length that votes for one class have, STEPS sqrt(n (1 - 1 / K)), and rounded
        towards zero, so that it is never longer (docs/proofs/vote-shares.md).
        """
        shares = np.zeros((X.shape[0], len(classes)), dtype=np.float32)
        for part in _blocks(X.shape[0]):
            try:
                with quiet():
                    shares[part] = self.shares(take(X, part), classes)
            except Exception:  # as above
                shares[part] = 1 / len(classes)
        return stretched(shares - np.float32(1 / len(classes)))

    def shares(self, X: Any, classes: NDArray[Any]) -> NDArray[Any]:
        """Probabilities of all classes, or the whole vote for one; raises where a model fails."""
        found = np.zeros((X.shape[0], len(classes)))
        if self.model is not None and hasattr(self.model, "predict_proba"):
            found[:, label_codes(self.model.classes_, classes)] = self.model.predict_proba(X)
        else:
            found[np.arange(len(found)), self.vote(X, classes)] = 1.0
        return np.asarray(np.clip(np.nan_to_num(found, nan=0.0), 0.0, 1.0))


def stretched(vector: NDArray[Any]) -> Codes:
    """``vector`` (n_queries, n_classes) at its full length in whole steps; zero stays zero.

    Privacy
    -------
    The sum of the squares of the result is at most STEPS^2 n (1 - 1 / K): float64 sums of fewer than 2^30 squares err
    by less than the factor below takes off, and rounding towards zero shortens.
    """
    n_rows, n_classes = vector.shape
    length = math.sqrt(float(np.einsum("ij,ij->", vector, vector, dtype=np.float64)))
    if not length > 0:
        return np.zeros(vector.shape, dtype=np.int64)
    full = STEPS * math.sqrt(n_rows * (1 - 1 / n_classes)) * (1 - 2.0**-20)
    return np.trunc(vector * np.float64(full / length)).astype(np.int64)


def _blocks(n_rows: int) -> Iterator[slice]:
    return (slice(begin, min(begin + _QUERY_BLOCK, n_rows)) for begin in range(0, n_rows, _QUERY_BLOCK))


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


@dataclass(frozen=True)
class Poll:
    """What is asked of the teachers, and of which kind they are: public, and the same for all of them.

    opinions : whether they give opinions instead of votes for one class.
    apart : whether the questions are private rows, each of which must get votes of its own; see `Teacher.vote`.
    """

    estimator: Any
    queries: Any
    classes: NDArray[Any]
    n_teachers: int
    seed: np.random.SeedSequence
    opinions: bool = False
    apart: bool = False

    def none_yet(self) -> Votes:
        """Votes before anybody has voted."""
        kind = np.dtype(np.int64) if self.opinions else np.min_scalar_type(self.n_teachers)
        return np.zeros((self.queries.shape[0], len(self.classes)), dtype=kind)

    def votes(self, batch: range, records: Iterable[tuple[Any, Codes]]) -> Votes:
        """The votes of some teachers, each trained on its own records, asked, and forgotten."""
        counts, places = self.none_yet(), np.arange(self.queries.shape[0])
        for number, (X, codes) in zip(batch, records, strict=True):
            teacher = train(self.estimator, X, codes, self.classes, teacher_seed(self.seed, number))
            if self.opinions:
                counts += teacher.opinion(self.queries, self.classes)
            else:
                counts[places, teacher.vote(self.queries, self.classes, self.apart)] += 1
        return counts


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
    opinions: bool = False,
    apart: bool = False,
) -> Votes:
    """The votes of all teachers on all queries: counts of shape (n_queries, n_classes), nothing else.

    Memory is that of a few chunks and a few count matrices at a time, whatever the number of teachers. With
    ``opinions`` the sum of `Teacher.opinion` instead; with ``apart`` the queries are private rows (`Teacher.vote`).
    Rows on a Dask cluster are collected there.
    """
    poll = Poll(estimator, queries, classes, n_teachers, seed, opinions, apart)
    if hasattr(X, "collect_votes"):
        return cast(Votes, X.collect_votes(poll, codes, chunks, step))
    total = poll.none_yet()
    tasks = (
        delayed(poll.votes)(batch, _records(X, codes, chunks, batch))
        for batch in batches(n_teachers, n_jobs, X.shape[0])
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
        for batch in batches(n_teachers, n_jobs, X.shape[0])
    )
    found: dict[int, list[Teacher]] = {}
    for first, trained in run_tasks(tasks, n_jobs):
        found[first] = trained
        if step is not None:
            step("teachers")
    return [teacher for first in sorted(found) for teacher in found[first]]


def n_steps(n_teachers: int, n_jobs: int | None, n_rows: int) -> int:
    """How often ``collect_votes`` reports progress."""
    return len(list(batches(n_teachers, n_jobs, n_rows)))


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
            Teacher(model, FALLBACK).shares(public, classes)
    except Exception as error:
        # scikit-learn's error about a parameter is both, and read as a ValueError.
        kind = TypeError if isinstance(error, TypeError) and not isinstance(error, ValueError) else ValueError
        raise kind(
            f"the estimator {type(estimator).__name__} fails on {len(rows)} rows that hold nothing private "
            f"({type(error).__name__}: {error}); it would fail for the teachers as well. Nothing was charged."
        ) from error


def seeded(estimator: Any, seed: int) -> Any:
    """An unfitted copy whose own randomness is fixed, in pipelines and nested models as well."""
    copy = clone(estimator)
    names = [name for name in copy.get_params(deep=True) if name.rpartition("__")[2] == "random_state"]
    return copy.set_params(**dict.fromkeys(names, seed)) if names else copy


def label_codes(labels: Any, classes: NDArray[Any]) -> Codes:
    """Positions of labels among the ``classes``; the fallback for anything else."""
    codes = _cells.codes(_inputs.cells(labels).reshape(-1), classes)
    return np.where(codes < 0, FALLBACK, codes)


def batches(n_teachers: int, n_jobs: int | None, n_rows: int) -> Iterator[range]:
    """Teachers per task: few enough tasks that sending the queries to a worker does not dominate, and enough that the
    records of one task fit into memory.
    """
    tasks = max(_TASKS_PER_WORKER * effective_n_jobs(n_jobs), -(-n_rows // _ROWS_PER_TASK))
    tasks = min(n_teachers, tasks)
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
