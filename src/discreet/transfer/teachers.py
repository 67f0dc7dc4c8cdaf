"""Teachers: one model per disjoint chunk of records, trained in parallel, asked once and discarded.

Chunks. Equal consecutive parts would not work: one added row would move every later row to another part. Each record
is assigned to a chunk by its own row number, or its user's id, and a secret drawn for this run only.

Isolation. Code that runs on a chunk must leave nothing behind for the next one. NumPy and Python have one global
generator each; a model that draws from them would change their state for the next chunk, and one record would change
many teachers. A teacher is a function of its chunk, of public data and of its own seed.

Votes. A teacher votes for one class per question, or gives an opinion: its probabilities for all questions, as one
vector of fixed norm. After the charge nothing here may raise because of the contents of a chunk: a chunk without
records, a model that fails or a prediction that is not a label becomes a fixed public vote, and a chunk with one class
votes for it.

Clusters. Rows on a Dask cluster (extra ``dask``) move once, from their partition to the worker that trains the teachers
of their chunks, and only votes are sent back. Votes are gathered once, so a task that was lost with its worker and
computed again counts once. Noise is never drawn on a worker.
"""

from __future__ import annotations

import hashlib
import math
import os
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from itertools import count, pairwise
from types import FunctionType, MethodType, ModuleType
from typing import Any

import joblib
import numpy as np
import scipy.sparse as sp
from joblib import delayed
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from discreet._checks import contained, silence
from discreet.display import console
from discreet.estimators.groups import read_people
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.records.arrow import FileRows
from discreet.records.clusters.base import one_ending
from discreet.records.clusters.dask import DaskRows, declared_types
from discreet.records.clusters.kept_rows import Noted, unchanged
from discreet.records.open import class_codes
from discreet.tables.reading import as_cells, is_from

Codes = NDArray[np.int64]
Votes = NDArray[np.integer[Any]]

FALLBACK = 0  # the vote of a teacher without a prediction: the first class, fixed before any data is seen
STEPS = 1 << 10  # steps of a vote, in which opinions are counted
_QUERY_BLOCK = 100_000
_TASKS_PER_WORKER = 16
_ROWS_PER_TASK = 1 << 18
_WAVE = 8  # tasks of a cluster whose votes are in this process at a time
_turn = threading.RLock()  # only one chunk at a time may use the global generators
_LEAVES = (str, bytes, int, float, complex, np.ndarray, type, ModuleType, FunctionType, MethodType)


# -- chunks ----------------------------------------------------------------------------------------------------------


def assign(n_rows: int, groups: ArrayLike | None, n_chunks: int, entropy: Entropy) -> Codes:
    """Return the chunk of every row: by row, or by user if there are ``groups``."""
    return (
        assign_rows(n_rows, n_chunks, entropy) if groups is None else assign_groups(groups, n_chunks, entropy)
    )


def assign_rows(n_rows: int, n_chunks: int, entropy: Entropy) -> Codes:
    """Draw independent uniform chunks, one per row.

    Privacy
    -------
    Replacing or blanking a record changes the content of its own chunk only. For adding and removing, the words must be
    fresh, secret and never used for a second run: then the assignments of neighbors can be coupled so that all common
    records keep their chunk (docs/proofs/sparse-vector.md, section 8).
    """
    return np.asarray(entropy.words(n_rows) % np.uint64(n_chunks), dtype=np.int64)


def assign_groups(groups: ArrayLike, n_chunks: int, entropy: Entropy) -> Codes:
    """Return the chunk of every row's user: a keyed hash of the id, which keeps all records of a user together.

    Privacy
    -------
    Adding, removing or blanking a user changes one chunk, for any key. Replacing a user by one with another id changes
    two.
    """
    key = entropy.words(8).tobytes()
    people = read_people(groups, strict=True)
    hashes = [hashlib.blake2b(name.encode(), key=key, digest_size=8).digest() for name in people.names]
    chunks = np.array([int.from_bytes(digest) for digest in hashes], dtype=np.uint64)
    return np.asarray((chunks % np.uint64(n_chunks))[people.codes], dtype=np.int64)


def take(X: Any, rows: NDArray[np.int64] | slice) -> Any:
    """Return some rows in the same kind of container; from a mapped file, as a matrix and in ascending order only."""
    if isinstance(X, FileRows) or is_from(X, "pyarrow", "Table"):
        return X.take(np.arange(X.shape[0])[rows])
    return X.iloc[rows] if is_from(X, "pandas", "DataFrame") else X[rows]


def stacked(blocks: Sequence[Any]) -> Any:
    """Stack dense or sparse matrices vertically."""
    if sp.issparse(blocks[0]):
        return sp.vstack(blocks, format="csr")
    return np.concatenate(blocks)


def chunk_rows(chunks: Codes, batch: range) -> list[Codes]:
    """Return the rows of some chunks, each in original order."""
    rows = np.flatnonzero((chunks >= batch.start) & (chunks < batch.stop))
    rows = rows[np.argsort(chunks[rows], kind="stable")]
    edges = np.searchsorted(chunks[rows], np.arange(batch.start, batch.stop + 1))
    return [rows[low:high] for low, high in pairwise(edges)]


def batches(n_chunks: int, n_jobs: int | None, n_rows: int) -> Iterator[range]:
    """Yield chunks per task: few enough tasks to limit the cost of sending the queries, enough to fit into memory."""
    tasks = max(_TASKS_PER_WORKER * joblib.effective_n_jobs(n_jobs), -(-n_rows // _ROWS_PER_TASK))
    tasks = min(n_chunks, tasks)
    edges = np.linspace(0, n_chunks, tasks + 1).astype(int)
    return (range(low, high) for low, high in pairwise(edges))


@contextmanager
def _progress(n_tasks: int) -> Iterator[Callable[[], None]]:
    """Show a bar on a terminal; call the result after each task.

    The number of tasks depends on that of the rows, which may be private, so the bar moves at a few marks only: as many
    as there are tasks in any case.
    """
    marks, done = min(n_tasks, _TASKS_PER_WORKER), count(1)
    with console.progress("teachers", marks) as step:

        def finished() -> None:
            number = next(done)
            if number * marks // n_tasks > (number - 1) * marks // n_tasks:
                step("teachers")

        yield finished


def in_batches(task: Callable[[range], Any], n_chunks: int, n_jobs: int | None, n_rows: int) -> Iterator[Any]:
    """Yield results of the delayed calls ``task(batch)`` as they finish, with a progress bar on a terminal."""
    groups = list(batches(n_chunks, n_jobs, n_rows))
    tasks = (task(batch) for batch in groups)
    with _progress(len(groups)) as finished:
        if joblib.effective_n_jobs(n_jobs) == 1:
            with threadpool_limits(limits=1):  # chunks are small: more threads would only wait for each other
                for function, args, kwargs in tasks:
                    yield function(*args, **kwargs)
                    finished()
            return
        workers = joblib.Parallel(
            n_jobs=n_jobs, return_as="generator_unordered", pre_dispatch="2*n_jobs", batch_size=1
        )
        for found in workers(tasks):
            yield found
            finished()


def chunk_seed(seed: np.random.SeedSequence, number: int) -> int:
    """Return the chunk's own seed, independent of every chunk's content."""
    child = np.random.SeedSequence(entropy=seed.entropy, spawn_key=(*seed.spawn_key, number))
    return int(child.generate_state(1)[0] >> np.uint32(1))


# -- isolation -------------------------------------------------------------------------------------------------------


@contextmanager
def isolated(seed: int) -> Iterator[None]:
    """Set the global generators of NumPy and Python from ``seed`` and restore them at the end.

    Threads take turns. Models inside run sequentially, because generators of worker processes could not be reached.
    Warnings and floating-point errors depend on the chunk and are suppressed; whatever is raised is an ``Exception``.
    """
    with _turn, joblib.parallel_config(backend="sequential"):
        ours, pythons = np.random.get_state(legacy=False), random.getstate()  # noqa: NPY002
        bits = type(np.random.get_bit_generator())(seed)  # type: ignore[attr-defined]
        try:
            np.random.set_state({**bits.state, "has_gauss": 0, "gauss": 0.0})  # noqa: NPY002
            random.seed(seed)
            with silence(), contained():
                yield
        finally:
            np.random.set_state(ours)  # noqa: NPY002
            random.setstate(pythons)


def seeded(estimator: Any, seed: int) -> Any:
    """Return an unfitted copy that shares nothing with ``estimator``, with every ``random_state`` set.

    Reaches parameters of nested models and attributes of everything they hold: pipelines, splitters, distributions.
    """
    copy = deepcopy(clone(estimator))  # some classes clone to themselves
    names = [name for name in copy.get_params(deep=True) if name.rpartition("__")[2] == "random_state"]
    if names:
        copy.set_params(**dict.fromkeys(names, seed))
    for part in _parts(copy, set()):
        if "random_state" in vars(part) or hasattr(type(part), "random_state"):
            with suppress(AttributeError):  # read-only: computed from another part
                part.random_state = seed
    return copy


def _parts(thing: Any, seen: set[int]) -> Iterator[Any]:
    """Yield all objects with attributes that can be reached from ``thing``, each once."""
    if isinstance(thing, _LEAVES) or id(thing) in seen:
        return
    seen.add(id(thing))
    held: Iterable[Any] = ()
    if isinstance(thing, Mapping):
        held = thing.values()
    elif isinstance(thing, list | tuple | set | frozenset):
        held = thing
    elif hasattr(thing, "__dict__"):
        yield thing
        held = list(vars(thing).values())
    for part in held:
        yield from _parts(part, seen)


def _renew() -> None:
    """Release the lock in a forked child, where the thread that held it does not exist."""
    global _turn
    _turn = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


# -- teachers and their votes ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Teacher:
    """The model of one chunk: fitted, with the seed for training and voting, or a constant vote."""

    model: Any | None
    constant: int
    seed: int = 0

    def vote(self, X: Any, classes: NDArray[Any], apart: bool = False) -> Codes:
        """Return class codes for the rows of ``X``; never raises.

        Parameters
        ----------
        X, classes : the questions and the public label set.
        apart : whether the rows are private: then only the rows on which the model fails get the fallback. For public
            rows the whole block gets it, which is as private and much faster.
        """
        votes = np.full(X.shape[0], self.constant, dtype=np.int64)
        if self.model is None:
            return votes
        for part in _blocks(X.shape[0]):
            block = take(X, part)
            try:
                votes[part] = self._codes(block, classes)
            except Exception:  # the content of the chunk must not decide whether this program continues
                votes[part] = self._codes_apart(block, classes) if apart else FALLBACK
        return votes

    def _codes(self, X: Any, classes: NDArray[Any]) -> Codes:
        """Return one class code per row; raises if the model fails."""
        assert self.model is not None
        with isolated(self.seed):
            codes = label_codes(self.model.predict(X), classes)
        if len(codes) != X.shape[0]:
            raise ValueError("a model gives one label per row")
        return codes

    def _codes_apart(self, X: Any, classes: NDArray[Any]) -> Codes:
        """Return class codes of rows when the model fails on some: only these get the fallback.

        The others are predicted again in a block of the same shape, which rounding may depend on, so that they get the
        codes that they would have got without failing rows.
        """
        failing = self._failing(X, classes)
        votes, good = np.full(X.shape[0], FALLBACK, dtype=np.int64), np.flatnonzero(~failing)
        if len(good):
            filled = take(X, np.where(failing, good[0], np.arange(X.shape[0])))
            try:
                votes[good] = self._codes(filled, classes)[good]
            except Exception:  # a model that mixes rows, which the guarantee does not cover
                votes[:] = FALLBACK
        return votes

    def _failing(self, X: Any, classes: NDArray[Any]) -> NDArray[np.bool_]:
        """Find the rows on which the model fails, by bisection."""
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
        """Return probabilities minus 1 / K for the rows of ``X``, as one vector in integer steps; never raises.

        The vector is scaled to the norm of votes for one class, STEPS sqrt(n (1 - 1 / K)), and rounded towards zero, so
        that its norm is never larger (docs/proofs/vote-shares.md).
        """
        shares = np.zeros((X.shape[0], len(classes)), dtype=np.float32)
        for part in _blocks(X.shape[0]):
            try:
                with isolated(self.seed):
                    shares[part] = self.shares(take(X, part), classes)
            except Exception:  # as above
                shares[part] = 1 / len(classes)
        return stretched(shares - np.float32(1 / len(classes)))

    def shares(self, X: Any, classes: NDArray[Any]) -> NDArray[Any]:
        """Return probabilities of all classes, or a one-hot vote; raises if a model fails."""
        found = np.zeros((X.shape[0], len(classes)))
        if self.model is not None and hasattr(self.model, "predict_proba"):
            found[:, label_codes(self.model.classes_, classes)] = self.model.predict_proba(X)
        else:
            found[np.arange(len(found)), self.vote(X, classes)] = 1.0
        return np.asarray(np.clip(np.nan_to_num(found, nan=0.0), 0.0, 1.0))


def stretched(vector: NDArray[Any]) -> Codes:
    """Scale ``vector`` (n_queries, n_classes) to its full norm in integer steps; zero stays zero.

    Privacy
    -------
    The sum of the squares of the result is at most STEPS^2 n (1 - 1 / K): the factor below covers the error of float64
    sums of fewer than 2^30 squares, and rounding towards zero only decreases the norm.
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
    """Train one teacher on one chunk; always returns a teacher."""
    if len(codes) == 0:
        return Teacher(None, FALLBACK)
    if np.all(codes == codes[0]):
        return Teacher(None, int(codes[0]))
    try:
        with isolated(seed):
            return Teacher(seeded(estimator, seed).fit(X, classes[codes]), FALLBACK, seed)
    except Exception:
        return Teacher(None, FALLBACK)


def rehearse(estimator: Any, queries: Any, classes: NDArray[Any], n_rows: int) -> None:
    """Train once on public rows with synthetic labels, so that a broken estimator is noticed free of charge."""
    rows = np.arange(min(queries.shape[0], max(n_rows, 2 * len(classes))))
    public = take(queries, rows)
    if len(rows) < 2:
        return
    try:
        with isolated(0):
            model = seeded(estimator, 0).fit(public, classes[rows % len(classes)])
            label_codes(model.predict(public), classes)
            Teacher(model, FALLBACK).shares(public, classes)
    except Exception as error:
        # scikit-learn's error about a parameter is both, and is read as a ValueError.
        kind = TypeError if isinstance(error, TypeError) and not isinstance(error, ValueError) else ValueError
        raise kind(
            f"the estimator {type(estimator).__name__} fails on {len(rows)} rows that hold nothing private "
            f"({type(error).__name__}: {error}); it would fail for the teachers as well. Nothing was charged."
        ) from error


def label_codes(labels: Any, classes: NDArray[Any]) -> Codes:
    """Return positions of labels among the ``classes``; the fallback for anything else."""
    codes = class_codes(as_cells(labels).reshape(-1), classes)
    return np.where(codes < 0, FALLBACK, codes)


@dataclass(frozen=True)
class Poll:
    """The teachers and what they are asked: public, and the same for all of them.

    estimator, classes, seed : how a teacher is trained.
    queries : the questions; None for teachers that are kept.
    opinions : whether they give opinions instead of votes for one class.
    apart : whether the questions are private rows, each of which must get separate votes; see `Teacher.vote`.
    """

    estimator: Any
    queries: Any
    classes: NDArray[Any]
    n_teachers: int
    seed: np.random.SeedSequence
    opinions: bool = False
    apart: bool = False

    def none_yet(self) -> Votes:
        """Return the initial votes, all zero."""
        kind = np.dtype(np.int64) if self.opinions else np.min_scalar_type(self.n_teachers)
        return np.zeros((self.queries.shape[0], len(self.classes)), dtype=kind)

    def trained(self, batch: range, records: Iterable[tuple[Any, Codes]]) -> Iterator[Teacher]:
        """Yield some teachers, each trained on its own records."""
        for number, (X, codes) in zip(batch, records, strict=True):
            yield train(self.estimator, X, codes, self.classes, chunk_seed(self.seed, number))

    def kept(self, batch: range, records: Iterable[tuple[Any, Codes]]) -> tuple[int, list[Teacher]]:
        """Return some teachers, and the number of the first."""
        return batch.start, list(self.trained(batch, records))

    def votes(self, batch: range, records: Iterable[tuple[Any, Codes]]) -> Votes:
        """Return the votes of some teachers, which are discarded one by one."""
        counts, places = self.none_yet(), np.arange(self.queries.shape[0])
        for teacher in self.trained(batch, records):
            if self.opinions:
                counts += teacher.opinion(self.queries, self.classes)
            else:
                counts[places, teacher.vote(self.queries, self.classes, self.apart)] += 1
        return counts


def collect_votes(poll: Poll, X: Any, codes: Codes, chunks: Codes, n_jobs: int | None = None) -> Votes:
    """Return the votes of all teachers on all queries: counts of shape (n_queries, n_classes), nothing else.

    Memory is that of a few chunks and a few count matrices at a time, for any number of teachers. With
    ``poll.opinions``, return the sum of `Teacher.opinion` instead. Rows on a Dask cluster are collected there.
    """
    if isinstance(X, ClusterRows):
        return X.collect_votes(poll, codes, chunks)
    total = poll.none_yet()
    for counts in _in_batches_of(poll.votes, poll, X, codes, chunks, n_jobs):
        total += counts
    return total


def train_all(poll: Poll, X: Any, codes: Codes, chunks: Codes, n_jobs: int | None = None) -> list[Teacher]:
    """Return all teachers, for streams whose questions are not known yet. They are as private as the data."""
    found: dict[int, list[Teacher]] = dict(_in_batches_of(poll.kept, poll, X, codes, chunks, n_jobs))
    return [teacher for first in sorted(found) for teacher in found[first]]


def _in_batches_of(
    work: Callable[..., Any], poll: Poll, X: Any, codes: Codes, chunks: Codes, n_jobs: int | None
) -> Iterator[Any]:
    """Yield results of ``work(batch, records)``, where ``records`` are those of each teacher of the batch."""

    def task(batch: range) -> Any:
        return delayed(work)(batch, [(take(X, part), codes[part]) for part in chunk_rows(chunks, batch)])

    return in_batches(task, poll.n_teachers, n_jobs, X.shape[0])


# -- rows on a cluster -----------------------------------------------------------------------------------------------


class ClusterRows(DaskRows):
    """Rows of a Dask array or data frame, on whose workers teachers can be trained."""

    def __init__(self, X: Any) -> None:
        if any(kind.kind not in "biuf" for kind in declared_types(X)):
            raise ValueError(
                "all columns of X must be declared as numbers; encode the others with a discreet.Schema"
            )
        super().__init__(X)

    def collect_votes(self, poll: Poll, codes: Codes, chunks: Codes) -> Votes:
        """Return the votes of all teachers; see `collect_votes`."""
        asked, edges = self._workers, np.cumsum(self._sizes)[:-1]
        groups = list(batches(poll.n_teachers, None, self.shape[0]))
        count, total = len(self._blocks), poll.none_yet()
        by_row = np.split(codes, edges), np.split(chunks, edges)
        with one_ending(), _progress(len(groups)) as finished:
            parted = asked.kept(_parted, self._blocks, self._checksums, *by_row, [groups] * count)
            [question] = asked.kept(_itself, [poll])
            for first in range(0, len(groups), _WAVE):
                wave = range(first, min(first + _WAVE, len(groups)))
                tasks = [
                    asked.combined(
                        _votes, question, groups[number], *asked.kept(_piece, parted, [number] * count)
                    )
                    for number in wave
                ]
                for counts in asked.answers(_itself, tasks):
                    total += counts
                    finished()
        return total


Piece = tuple[Any, Codes, Codes]


def _parted(part: Noted, expected: int, codes: Codes, chunks: Codes, groups: Sequence[range]) -> list[Piece]:
    """Split a partition's rows, codes and chunks by group of teachers; raises if it has other rows than before."""
    values = unchanged(part, expected)
    edges = [groups[0].start, *(group.stop for group in groups)]
    places = [np.flatnonzero((chunks >= low) & (chunks < high)) for low, high in pairwise(edges)]
    return [(values[rows], codes[rows], chunks[rows]) for rows in places]


def _piece(parted: list[Piece], number: int) -> Piece:
    return parted[number]


def _votes(poll: Poll, group: range, *pieces: Piece) -> Votes:
    """Return the votes of a group of teachers, trained on their rows from all partitions."""
    X = stacked([rows for rows, _, _ in pieces])
    codes, chunks = (np.concatenate([piece[place] for piece in pieces]) for place in (1, 2))
    return poll.votes(group, [(X[part], codes[part]) for part in chunk_rows(chunks, group)])


def _itself(value: Any) -> Any:
    return value
