"""Rows that do not fit: a pass over a mapped file, and over a Dask cluster, against a pass in memory.

``python -m benchmarks.scale file [--rows 10000000]`` writes a Parquet table of invented rows to a temporary folder,
fits a private logistic regression on it, and compares the time of a pass per row with one in memory. ``dask`` does
the same with a two-process local cluster on a gigabyte of rows, ``ratings`` with a file of ratings for the
recommender; ``workers`` fits power laws in rows and workers, ``tasks`` measures what a partition costs; ``folder``,
``raw``, ``fits``, ``clusters`` and ``model`` are described where they are defined. Every part is kept in
results/scale.json, from which results/scale.md is written; with ``--rows`` it is only printed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from discreet import PrivateLogisticRegression
from discreet.display.console import note, table
from discreet.losses import Logistic
from discreet.records import arrow
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.records.clusters.dask import DaskRows

STORE = Path(__file__).parent / "results" / "scale.json"
RESULTS = STORE.with_suffix(".md")
COLUMNS = 70
_BATCH = 250_000
_IN_MEMORY = 1_000_000


class PeakMemory:
    """The largest private (anonymous) and resident memory of this process while the block runs, in gigabytes."""

    def __enter__(self) -> PeakMemory:
        self.private = self.resident = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.05):
            fields = dict(
                line.split(":", 1)
                for line in Path("/proc/self/status").read_text().splitlines()
                if "kB" in line
            )
            self.private = max(self.private, int(fields["RssAnon"].split()[0]) / 2**20)
            self.resident = max(self.resident, int(fields["VmRSS"].split()[0]) / 2**20)


def invented(rows: int, seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Rows in [-1, 1] with the label of a noisy linear rule."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(rows, COLUMNS)).astype(np.float32)
    rule = np.linspace(-1, 1, COLUMNS)
    return X, (X @ rule + rng.normal(size=rows) > 0).astype(np.int8)


def write_parquet(path: Path, rows: int) -> None:
    """A table of invented rows, a batch at a time."""
    schema = pa.schema([*((f"x{j}", pa.float32()) for j in range(COLUMNS)), ("y", pa.int8())])
    with pq.ParquetWriter(path, schema, compression="NONE", use_dictionary=False) as writer:
        for start in range(0, rows, _BATCH):
            X, y = invented(min(_BATCH, rows - start), start)
            writer.write_table(pa.table([*(pa.array(column) for column in X.T), pa.array(y)], schema=schema))


def best_time(work: Callable[[], object], repeats: int = 3) -> float:
    """Seconds of the fastest of a few runs."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times)


def _in_memory(rows: int, theta: np.ndarray[Any, Any]) -> float:
    """Seconds per row of a pass in memory."""
    X, y = invented(rows, 0)
    records = ArrayRecords(X, np.where(y > 0, 1.0, -1.0), Bounds(5.0))
    return best_time(lambda: records.value_and_gradient(Logistic(), theta)) / rows


def measure_file(rows: int) -> list[tuple[str, ...]]:
    """Convert, pass and fit from a file; ratios are per row, against the first million rows in memory."""
    theta = np.linspace(-0.1, 0.1, COLUMNS + 1)
    per_row = _in_memory(min(rows, _IN_MEMORY), theta)
    with tempfile.TemporaryDirectory() as folder:
        source, mapped = Path(folder) / "data.parquet", Path(folder) / "data.arrow"
        note(f"writing {rows} rows")
        write_parquet(source, rows)
        with PeakMemory() as converting:
            seconds = best_time(lambda: arrow.convert(source, mapped, target="y"), repeats=1)
        size = os.path.getsize(mapped) / 2**30
        source.unlink()
        with PeakMemory() as peak, arrow.opened(mapped, target=None) as file:
            labels = np.where(file.labels > 0, 1.0, -1.0)
            records = file.records(labels, Bounds(5.0), None)
            passing = best_time(lambda: records.value_and_gradient(Logistic(), theta)) / rows
        model = PrivateLogisticRegression(epsilon=1.0, classes=[0, 1], feature_bound=5.0)
        with PeakMemory() as fitting:
            begin = time.perf_counter()
            model.fit(mapped)
            fit = time.perf_counter() - begin
        X, y = invented(_BATCH, 10**9)
        accuracy = model.score(X, y)
    return [
        ("rows x columns, size of the mapped file", f"{rows} x {COLUMNS}, {size:.2f} GB"),
        ("a pass over the file, per row, over a pass in memory", f"{passing / per_row:.2f}"),
        ("conversion, once, over a pass over the file", f"{seconds / (passing * rows):.1f}"),
        ("a whole fit, over a pass over the file", f"{fit / (passing * rows):.1f}"),
        (
            "largest private / resident memory of the conversion",
            f"{converting.private:.2f} / {converting.resident:.2f} GB",
        ),
        ("largest private / resident memory of passes", f"{peak.private:.2f} / {peak.resident:.2f} GB"),
        (
            "largest private / resident memory of the fit",
            f"{fitting.private:.2f} / {fitting.resident:.2f} GB",
        ),
        ("accuracy on new rows", f"{100 * accuracy:.2f}%"),
    ]


def measure_dask(rows: int) -> list[tuple[str, ...]]:
    """A pass on a local cluster of two processes over a pass in memory on the same rows."""
    import dask.array as da
    from distributed import Client, LocalCluster

    X, y = invented(rows, 0)
    labels = np.where(y > 0, 1.0, -1.0)
    theta = np.linspace(-0.1, 0.1, COLUMNS + 1)
    memory = ArrayRecords(X, labels, Bounds(5.0))
    here = best_time(lambda: memory.value_and_gradient(Logistic(), theta), repeats=5)
    exact = memory.value_and_gradient(Logistic(), theta)[1]
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster,
        Client(cluster),
    ):
        records = DaskRows(da.from_array(X, chunks=(rows // 8, COLUMNS))).records(labels, Bounds(5.0), None)
        records.value_and_gradient(Logistic(), theta)  # compile on the workers
        there = best_time(lambda: records.value_and_gradient(Logistic(), theta), repeats=5)
        difference = np.linalg.norm(records.value_and_gradient(Logistic(), theta)[1] - exact)
    allowed = memory.gradient_rounding(Logistic(), float(np.linalg.norm(theta)))
    return [
        ("rows x columns, size", f"{rows} x {COLUMNS}, {X.nbytes / 2**30:.2f} GB"),
        ("a pass on two processes over a pass in memory", f"{there / here:.2f}"),
        ("distance of the gradients over the proved rounding bound", f"{difference / allowed:.1e}"),
    ]


def sections() -> dict[str, Section]:
    """What can be measured."""
    from benchmarks.scale_model import measure_model
    from benchmarks.scale_ratings import measure_ratings
    from benchmarks.scale_sources import measure_clusters, measure_folder, measure_raw
    from benchmarks.scale_workers import measure_fits, measure_growth, measure_tasks, measure_workers

    plain = ("what", "measured")
    return {
        "file": Section("Rows in a Parquet file", plain, lambda rows: measure_file(rows or 10_000_000)),
        "dask": Section(
            "Rows on a local cluster of two processes", plain, lambda rows: measure_dask(rows or 3_800_000)
        ),
        "ratings": Section(
            "Ratings in a Parquet file, no two of a user side by side",
            plain,
            lambda rows: measure_ratings(rows or 1_000_000),
        ),
        "workers": Section(
            "Growth with rows and workers (processes of one thread)",
            (
                "pass",
                "rows, users or records",
                "exponent, one worker",
                "exponent, two",
                "exponent in workers",
                "largest size, one / two workers",
            ),
            lambda rows: measure_workers((rows or 1000) / 1000),
        ),
        "folder": Section(
            "A fit on a folder of Hive partitions",
            plain,
            lambda rows: measure_folder(rows or 10_000_000),
        ),
        "raw": Section(
            "Memory of a fit on raw cells of a CSV file, in batches",
            plain,
            lambda rows: measure_raw(rows or 120_000),
        ),
        "fits": Section(
            "Fits on two processes over one of two threads",
            (
                "rows x columns, partitions",
                "solver, noisy steps",
                "in memory",
                "Dask",
                "ratio",
                "ratio of processor time",
                "first fit, beyond the others",
            ),
            lambda rows: measure_fits(((rows, 8),)) if rows else measure_fits(),
        ),
        "clusters": Section(
            "Spark and Dask from two processes",
            (
                "rows x columns, partitions, passes",
                "Dask",
                "Spark (rows only brought to Python, as vectors / columns)",
                "ratio",
                "ratio of processor time",
                "first fit, Dask / Spark",
            ),
            lambda rows: measure_clusters(((rows, 20, 4, 5),)) if rows else measure_clusters(),
        ),
        "model": Section(
            "Messages and seconds of a fit, by the model",
            (
                "rows x columns, partitions, workers x threads, passes",
                "messages",
                "bytes through the driver",
                "seconds",
            ),
            lambda rows: measure_model(),
        ),
        "growth": Section(
            "Growth of a pass in memory, one thread, in processor time",
            ("in", "from, to", "milliseconds", "exponent"),
            lambda rows: measure_growth(),
        ),
        "tasks": Section(
            "What a partition costs on two processes",
            ("pass", "ms with 8 / 32 / 128 tiny partitions", "fixed", "per partition"),
            lambda rows: measure_tasks(),
        ),
    }


@dataclass(frozen=True)
class Section:
    """A table and how to measure it, given a number of rows or None."""

    title: str
    header: tuple[str, ...]
    measure: Callable[[int | None], list[tuple[str, ...]]]


def kept(part: str, rows: list[tuple[str, ...]]) -> str:
    """All parts measured so far as text, this one renewed."""
    stored = json.loads(STORE.read_text()) if STORE.exists() else {}
    stored[part] = {"rows": rows, "date": str(datetime.datetime.now(datetime.UTC).date())}
    STORE.write_text(json.dumps(stored, indent=1) + "\n")
    lines = [
        "# Scale",
        "",
        "Written by `python -m benchmarks.scale PART` from `scale.json`, on a machine of two cores.",
    ]
    for name, section in sections().items():
        if name in stored:
            lines += ["", f"## {section.title}", "", f"`{name}`, {stored[name]['date']}.", ""]
            lines += [f"| {' | '.join(section.header)} |", "|---" * len(section.header) + "|"]
            lines += [f"| {' | '.join(row)} |" for row in stored[name]["rows"]]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure one part, print it and keep it."""
    known = sections()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=list(known))
    parser.add_argument("--rows", type=int, help="another size, printed only (workers: thousandths)")
    options = parser.parse_args()
    section = known[options.part]
    rows = section.measure(options.rows)
    table(section.title, section.header, rows)
    if options.rows is None:
        RESULTS.write_text(kept(options.part, rows))


if __name__ == "__main__":
    main()
