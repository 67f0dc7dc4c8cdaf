"""Ratings in a Parquet file, every user's far apart: bringing them together, passes, a fit, and their memory."""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.scale import PeakMemory, best_time
from discreet import PrivateMatrixCompletion
from discreet.display.console import note
from discreet.recommend import sources
from discreet.recommend.methods import profile
from discreet.recommend.ratings import Ratings, Scale

DELTA = 1e-6
_SCALE = Scale(-1.0, 1.0)


class Taste:
    """Rank-one ratings of one item out of each of ``per_user`` groups, so that a user's items are distinct."""

    def __init__(self, n_users: int, n_items: int, per_user: int) -> None:
        self.per_user, self.width = per_user, n_items // per_user
        rng = np.random.default_rng(0)
        self.users, self.items = rng.uniform(-1, 1, n_users), rng.uniform(-1, 1, self.width * per_user)

    def rating(self, slot: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """One item of every user, and its rating."""
        rng = np.random.default_rng(slot + 1)
        items = rng.integers(0, self.width, len(self.users), dtype=np.int32) + np.int32(slot * self.width)
        return items, (self.users * self.items[items]).astype(np.float32)

    def write(self, path: Path) -> None:
        """The first rating of all users, then the second of all: no user's ratings are neighbors."""
        schema = pa.schema([("user", pa.int32()), ("item", pa.int32()), ("rating", pa.float32())])
        with pq.ParquetWriter(path, schema, compression="NONE", use_dictionary=False) as writer:
            for slot in range(self.per_user):
                items, ratings = self.rating(slot)
                users = np.random.default_rng(slot).permutation(len(items)).astype(np.int32)
                columns: list[NDArray[Any]] = [users, items[users], ratings[users]]
                writer.write_table(pa.table([pa.array(column) for column in columns], schema=schema))


def measure_ratings(n_users: int, n_items: int = 10_000, per_user: int = 80) -> list[tuple[str, ...]]:
    """Open, pass and fit; a pass is compared with the same pass over the same ratings in memory."""
    taste = Taste(n_users, n_items, per_user)
    catalog = range(len(taste.items))
    model = PrivateMatrixCompletion("profile", 1.0, DELTA, rating_bounds=(-1, 1), items=catalog)
    facts = model.plan(n_users, len(taste.items)).facts
    flat, ones = np.zeros(facts.n_items), np.ones(facts.n_items)

    def one_pass(users: Ratings) -> NDArray[np.float64]:
        return profile.weighted_sums(facts, users, ones, flat)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ratings.parquet"
        note(f"writing {n_users * per_user} ratings")
        taste.write(path)
        size = os.path.getsize(path) / 2**30
        with ExitStack() as stack:
            begin = time.perf_counter()
            with PeakMemory() as opening:
                users, _ = stack.enter_context(sources.opened_source(path, _SCALE, catalog))
            seconds = time.perf_counter() - begin
            with PeakMemory() as passes:
                mapped = best_time(partial(one_pass, users))
            copied = users.starts, np.array(users.items), np.array(users.values)
            memory = Ratings(*copied, users.n_items, _SCALE)
            here = best_time(partial(one_pass, memory))
            same = bool(np.array_equal(one_pass(memory), one_pass(users)))
        del copied, memory
        with PeakMemory() as fitting:
            begin = time.perf_counter()
            model.fit(path)
            fit = time.perf_counter() - begin
    return [
        (
            "users x items, ratings, size of the file",
            f"{n_users:,} x {facts.n_items:,}, {n_users * per_user:,}, {size:.2f} GB",
        ),
        ("bringing users together, once, over a pass over all item sums", f"{seconds / mapped:.1f}"),
        ("a pass over the mapped ratings over a pass in memory", f"{mapped / here:.2f}"),
        ("sums equal to those in memory, bit by bit", "yes" if same else "NO"),
        ("a whole fit (`profile`), over a pass", f"{fit / mapped:.1f}"),
        (
            "largest private / resident memory of the opening",
            f"{opening.private:.2f} / {opening.resident:.2f} GB",
        ),
        ("largest private / resident memory of passes", f"{passes.private:.2f} / {passes.resident:.2f} GB"),
        (
            "largest private / resident memory of the fit",
            f"{fitting.private:.2f} / {fitting.resident:.2f} GB",
        ),
    ]
