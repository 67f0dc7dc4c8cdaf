"""Private rows on a Dask cluster: teachers are trained on the workers, and only votes travel.

Needs the extra ``dask``. Rows move once, from their partition to the worker that trains the teachers of their chunks.
Every task is a function of its records and of seeds fixed beforehand; its votes are gathered once, so that a
task that was lost with its worker and computed again counts once. Noise is never drawn on a worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from discreet.records.dask import DaskMatrices, declared_types
from discreet.transfer.rows import stacked
from discreet.transfer.teachers import Codes, Poll, Step, Votes, batches, chunk_rows

_WAVE = 8  # tasks whose votes are in this process at a time


class ClusterRows(DaskMatrices):
    """Rows of a Dask array or data frame, on which teachers can be trained where they are."""

    def __init__(self, X: Any) -> None:
        if any(kind.kind not in "biuf" for kind in declared_types(X)):
            raise ValueError(
                "all columns of X must be declared as numbers; encode the others with a discreet.Schema"
            )
        super().__init__(X)

    def collect_votes(self, poll: Poll, codes: Codes, chunks: Codes, step: Step | None) -> Votes:
        """The votes of all teachers; see `teachers.collect_votes`."""
        asked, edges = self._workers, np.cumsum(self._sizes)[:-1]
        groups = list(batches(poll.n_teachers, None, self.shape[0]))
        count = len(self._blocks)
        parted = asked.kept(
            _parted, self._blocks, np.split(codes, edges), np.split(chunks, edges), [groups] * count
        )
        [question] = asked.kept(_itself, [poll])
        total = poll.none_yet()
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
                if step is not None:
                    step("teachers")
        return total


Piece = tuple[Any, Codes, Codes]


def _parted(X: Any, codes: Codes, chunks: Codes, groups: Sequence[range]) -> list[Piece]:
    """A partition's rows, codes and chunks, by the group of teachers they belong to."""
    edges = [groups[0].start, *(group.stop for group in groups)]
    places = [np.flatnonzero((chunks >= low) & (chunks < high)) for low, high in pairwise(edges)]
    return [(X[rows], codes[rows], chunks[rows]) for rows in places]


def _piece(parted: list[Piece], number: int) -> Piece:
    return parted[number]


def _votes(poll: Poll, group: range, *pieces: Piece) -> Votes:
    """The votes of a group of teachers, from the rows that all partitions have for them."""
    X = stacked([rows for rows, _, _ in pieces])
    codes, chunks = (np.concatenate([piece[place] for piece in pieces]) for place in (1, 2))
    return poll.votes(group, [(X[part], codes[part]) for part in chunk_rows(chunks, group)])


def _itself(value: Any) -> Any:
    return value
