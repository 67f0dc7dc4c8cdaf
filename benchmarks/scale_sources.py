"""Fits on data where it lives: a folder of partitions, raw cells of a CSV file, Spark against Dask."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from benchmarks.scale import COLUMNS, PeakMemory, best_time, invented
from benchmarks.scale_workers import processes
from discreet import Categorical, Numeric, PrivateLogisticRegression, Schema, Target
from discreet.display.console import note
from discreet.records.batches import Encoded, Numbers
from discreet.records.clusters.spark import SparkTable
from discreet.records.sources import source_of
from discreet.solvers import NoisyGradientDescent

_FILE_ROWS = 250_000
_KEYS = 4


def measure_folder(rows: int) -> list[tuple[str, ...]]:
    """A fit on invented rows in Parquet files, folders ``ward=0`` to ``ward=3``, by a process of its own."""
    names = [f"x{number}" for number in range(COLUMNS)]
    with tempfile.TemporaryDirectory() as folder:
        note(f"writing {rows} rows")
        for number, start in enumerate(range(0, rows, _FILE_ROWS)):
            X, y = invented(min(_FILE_ROWS, rows - start), start)
            place = Path(folder) / f"ward={number % _KEYS}"
            place.mkdir(exist_ok=True)
            pq.write_table(pa.table([*X.T, y], [*names, "y"]), place / f"{number:05}.parquet")
        del X, y
        size = sum(path.stat().st_size for path in Path(folder).rglob("*.parquet"))
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
            seconds, private, peak, accuracy = alone.submit(_fit_of_folder, folder).result()
    return [
        ("rows x columns, files, size", f"{rows} x {COLUMNS}, {number + 1}, {size / 2**30:.2f} GB"),
        ("a whole fit, rows read from the files once", f"{seconds:.0f} s"),
        ("largest private memory of the process", f"{private:.2f} GB"),
        ("largest resident memory of the process (mapped pages included)", f"{peak:.2f} GB"),
        ("accuracy on new rows", f"{100 * accuracy:.2f}%"),
    ]


def _fit_of_folder(folder: str) -> tuple[float, float, float, float]:
    """Seconds of the fit, its largest private memory, the largest memory this process ever had, and accuracy."""
    model = PrivateLogisticRegression(epsilon=1.0, classes=[0, 1], feature_bound=5.0)
    with PeakMemory() as watched:
        seconds = best_time(lambda: model.fit(folder, target="y"), repeats=1)
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) / 2**20 for line in status if line.startswith("VmHWM"))
    return seconds, watched.private, peak, float(model.score(*invented(_FILE_ROWS, 10**9)))


_WARDS = 10


def raw_schema() -> Schema:
    """Five numbers and thirty categories of ten values: 305 features."""
    values = tuple(f"value {number}" for number in range(_WARDS))
    numbers = {f"n{number}": Numeric(0, 1) for number in range(5)}
    return Schema(
        numbers | {f"c{number}": Categorical(values) for number in range(30)}, Target("y", ("no", "yes"))
    )


def write_raw(path: Path, rows: int) -> None:
    """A CSV file of such cells."""
    rng = np.random.default_rng(0)
    names = np.array([f"value {number}" for number in range(_WARDS)])
    columns: dict[str, Any] = {f"n{number}": rng.random(rows).round(4) for number in range(5)}
    columns |= {f"c{number}": names[rng.integers(0, _WARDS, rows)] for number in range(30)}
    columns["y"] = np.array(["no", "yes"])[rng.integers(0, 2, rows)]
    pa.csv.write_csv(pa.table(columns), path)


def raw_peak(rows: int) -> tuple[float, float, float]:
    """Megabytes of one encoded batch, of what the fit adds to the process, and of what it adds with one row."""
    schema = raw_schema()
    with tempfile.TemporaryDirectory() as folder:
        path, tiny = Path(folder) / "raw.csv", Path(folder) / "tiny.csv"
        write_raw(path, rows)
        write_raw(tiny, 2000)
        model = PrivateLogisticRegression(
            epsilon=1.0, delta=1e-6, feature_bound=3.0, solver=NoisyGradientDescent(n_iterations=5)
        )
        model.set_params(classes=["no", "yes"]).fit(tiny, schema=schema)  # code and libraries
        gc.collect()
        pa.default_memory_pool().release_unused()
        with PeakMemory() as before:
            time.sleep(0.2)
        with PeakMemory() as peak:
            model.fit(path, schema=schema)
        source = source_of(path)
        assert source is not None
        reading = Encoded.of(source, schema, "error")
        batch = min(rows, reading.height) * len(reading.names) * reading.dtype.itemsize
    return batch / 2**20, 1024 * (peak.private - before.private), rows * len(reading.names) * 8 / 2**20


def measure_raw(rows: int) -> list[tuple[str, ...]]:
    """Private memory that a fit adds, in batches: the file itself is mapped."""
    batch, added, whole = raw_peak(rows)
    return [
        ("rows, features, size when encoded", f"{rows}, {len(raw_schema().feature_names)}, {whole:.0f} MB"),
        ("one encoded batch", f"{batch:.0f} MB"),
        ("private memory that the fit adds", f"{added:.0f} MB, {added / batch:.1f} batches"),
    ]


def measure_clusters(
    sizes: tuple[tuple[int, int, int, int], ...] = ((1_000_000, 20, 4, 5), (3_000_000, 40, 8, 30)),
) -> list[tuple[str, ...]]:
    """The same fit on Spark in local mode and on Dask, two processes each, from files; best of three, taken in turn.

    Processor time is that of all processes, Spark's Java included. In the same turns Spark brings the rows to Python
    and does nothing with them: as vectors, as in a fit, and column by column.
    """
    import dask.dataframe as dd
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.log.level": "OFF",
    }
    found: list[tuple[str, ...]] = []
    with processes(2):
        session = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
        try:
            for rows, columns, parts, passes in sizes:
                with tempfile.TemporaryDirectory() as folder:
                    for number in range(parts):
                        X, y = invented(rows // parts, number)
                        names = [f"x{column}" for column in range(columns)]
                        pq.write_table(
                            pa.table([*X.T[:columns], y], [*names, "y"]), f"{folder}/{number}.parquet"
                        )
                    frames = {"Dask": dd.read_parquet(folder), "Spark": session.read.parquet(folder)}
                    table = SparkTable(frames["Spark"])
                    vectors, _ = table.packed(Numbers.of(table, "y", None, None, "error"))
                    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in frames}
                    brought = []
                    for _ in range(4):
                        for name, frame in frames.items():
                            taken[name].append(_fit_times(frame, passes))
                        brought.append(
                            [best_time(partial(_bring, chosen), 1) for chosen in (vectors, table.frame)]
                        )
                as_vectors, as_columns = np.min(brought[1:], axis=0)
                first = [taken[name][0][0] for name in frames]
                (dask, spark), (busy_dask, busy_spark) = (
                    [min(times[side] for times in taken[name][1:]) for name in frames] for side in (0, 1)
                )
                found.append(
                    (
                        f"{rows:,} x {columns}, {parts}, {passes}",
                        f"{dask:.1f} s",
                        f"{spark:.1f} s ({as_vectors:.1f} / {as_columns:.1f} s)",
                        f"{spark / dask:.1f}",
                        f"{busy_spark / busy_dask:.1f}",
                        f"{first[0]:.1f} / {first[1]:.1f} s",
                    )
                )
        finally:
            session.stop()
    return found


def _fit_times(frame: Any, passes: int) -> tuple[float, float]:
    """Seconds of a fit, and processor seconds of this process and all that it started."""
    import psutil

    model = PrivateLogisticRegression(
        epsilon=1.0,
        delta=1e-8,
        classes=[0, 1],
        feature_bound=4.0,
        solver=NoisyGradientDescent(n_iterations=passes),
    )

    def busy() -> dict[int, float]:
        """Processor seconds of every process that lives."""
        own, found = psutil.Process(), {}
        for one in [own, *own.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                found[one.pid] = sum(one.cpu_times()[:2])
        return found

    before = busy()
    seconds = best_time(lambda: model.fit(frame, target="y"), repeats=1)
    return seconds, sum(spent - before.get(process, 0.0) for process, spent in busy().items())


def _bring(frame: Any) -> None:
    """Let Spark hand all rows to Python."""

    def heights(batches: Any) -> Any:
        for batch in batches:
            yield pa.record_batch([pa.array([batch.num_rows])], names=["height"])

    frame.mapInArrow(heights, "height long").count()
