"""Exact sums over users in threads, and covariances in the memory of one matrix.

Contributions are integers, so that sums do not depend on blocks, threads or the order of users. The compiled
kernels run without the interpreter lock; while several threads are at work BLAS uses one, and never are two levels of
threads open at once: small sums are split by users, large ones by lines of the matrix.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from discreet.mechanisms.symmetric import mirror_lower
from discreet.recommend import kernels
from discreet.records.storage import one_blas_thread

if TYPE_CHECKING:
    from discreet.recommend.ratings import Ratings

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Result = TypeVar("Result")

LANE_ENTRIES = 1 << 24  # largest sum of which every thread may hold a copy
_SPARSE = 6  # items per rating of a row up to which dense products are faster
_SMALL = 2000  # items whose covariance stays in a processor's cache
_NEAR_ENTRIES = 1 << 16  # ratings that do
_DENSE_ENTRIES = 1 << 20  # of dense rows at a time


def processors() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_threads(task: Callable[[int], Result], count: int) -> list[Result]:
    """``task(0)``, ..., ``task(count - 1)``, each in a thread of its own."""
    if count <= 1:
        return [task(number) for number in range(count)]
    with one_blas_thread, ThreadPoolExecutor(count) as pool:
        return list(pool.map(task, range(count)))


def lanes_of(n_blocks: int, shape: tuple[int, ...], n_threads: int) -> int:
    """Threads that may each hold a sum of this shape."""
    return min(n_threads, n_blocks) if math.prod(shape) <= LANE_ENTRIES else min(1, n_blocks)


def added(sums: Sequence[Integers], shape: tuple[int, ...]) -> Integers:
    """Integer sums of one shape, added up in the place of the first."""
    if not sums:
        return np.zeros(shape, dtype=np.int64)
    for other in sums[1:]:
        np.add(sums[0], other, out=sums[0])
    return sums[0]


def add_covariance(block: Ratings, q: Integers, sums: Integers) -> None:
    """Lower triangle of sums += q_i q_i^T; threads share one large matrix by lines, of about equal work."""
    n, size = len(sums), len(block.items)
    if n <= _SMALL and n * block.n_users <= _SPARSE * size:
        _add_dense(block, q, sums)
        return
    if n <= _SMALL and size > _NEAR_ENTRIES:  # the matrix is near, so that rows should be, too
        for first, last in block.blocks(_NEAR_ENTRIES):
            add_covariance(block.part(first, last), q[block.starts[first] : block.starts[last]], sums)
        return
    parts = 1 if sums.size <= LANE_ENTRIES else block.n_threads
    cuts = [round(n * math.sqrt(part / parts)) for part in range(parts + 1)]
    heads, order, begins = np.empty(n + 1, np.int64), np.empty(size, np.int32), np.empty(size, np.int32)
    kernels.by_item(block.starts, block.items, heads, order, begins)

    def one_part(part: int) -> None:
        kernels.add_covariance(block.items, q, heads, order, begins, cuts[part], cuts[part + 1], sums)

    in_threads(one_part, parts)


def _add_dense(block: Ratings, q: Integers, sums: Integers) -> None:
    """The whole matrix, by products of dense rows: integers that stay below 2^52 on the way, hence exact in float64."""
    n = len(sums)
    height = max(n, _DENSE_ENTRIES // n)
    for first in range(0, block.n_users, height):
        last = min(first + height, block.n_users)
        rows = np.zeros((last - first, n))
        kernels.spread(block.starts[first : last + 1], block.items, q, rows)
        sums += (rows.T @ rows).astype(np.int64)


def symmetric(lower: Integers, scale: float) -> Array:
    """scale times the mirrored lower triangles, in the place of the integers: a matrix may fill half the memory."""
    values = lower.view(np.float64)
    for i in range(len(lower)):
        values[i] = lower[i].astype(np.float64)  # exact: below 2^52
    values *= scale
    mirror_lower(values)
    return values
