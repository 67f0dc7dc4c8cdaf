"""Heads: private logistic regression on the features of a fixed public encoder.

Run ``python -m benchmarks.heads``, which writes ``results/heads.md``. The encoder here is a formula, histograms of
gradient directions of MNIST's images: nothing in it was learned from any data. ``--memory`` measures what a head with
many classes on a Parquet file of half-precision embeddings takes beside the file.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import VARIABLE, MissingData
from discreet import PrivateLogisticRegression
from discreet.solvers import NoisyGradientDescent

RESULTS = Path(__file__).parent / "results"
DELTA = 1e-6
EPSILONS = (0.3, 1.0, 4.0)
_CELL, _DIRECTIONS = 4, 8
_MEMORY = 8_000, 2_048, 1_000  # rows, columns, classes


def gradient_histograms(images: NDArray[Any]) -> NDArray[np.float32]:
    """Square roots of histograms of gradient directions in cells of 4 x 4 pixels, with norm 1."""
    pixels = images.reshape(-1, 28, 28).astype(np.float32)
    across, down = np.gradient(pixels, axis=2), np.gradient(pixels, axis=1)
    sizes = np.hypot(across, down)
    turns = (np.arctan2(down, across) / (2 * np.pi) * _DIRECTIONS) % _DIRECTIONS
    low = np.floor(turns).astype(int) % _DIRECTIONS
    upper = (turns - np.floor(turns)) * sizes
    found = np.zeros((len(pixels), 28 // _CELL, 28 // _CELL, _DIRECTIONS), dtype=np.float32)
    for direction in range(_DIRECTIONS):
        here = np.where(low == direction, sizes - upper, 0) + np.where(
            (low + 1) % _DIRECTIONS == direction, upper, 0
        )
        cells = here.reshape(-1, 28 // _CELL, _CELL, 28 // _CELL, _CELL).sum(axis=(2, 4))
        found[..., direction] = cells
    flat = np.sqrt(found.reshape(len(pixels), -1))
    return np.asarray(flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-12), dtype=np.float32)


def load() -> tuple[Any, Any, Any, Any]:
    """Features and labels of training and test images."""
    folder = os.environ.get(VARIABLE)
    if not folder or not (path := Path(folder) / "mnist.npz").exists():
        raise MissingData(f"set {VARIABLE} to the folder that holds mnist.npz")
    with np.load(path, allow_pickle=False) as file:
        X, y = gradient_histograms(file["X"]), file["y"]
    return X[:60_000], y[:60_000], X[60_000:], y[60_000:]


def accuracy(epsilons: tuple[float, ...], known: dict[str, Any]) -> None:
    """Test accuracy of default heads."""
    X, y, X_test, y_test = load()
    for epsilon in epsilons:
        start, used = time.perf_counter(), time.process_time()
        model = PrivateLogisticRegression(epsilon, DELTA, classes=list(range(10))).fit(X, y)
        known[f"{epsilon:g}"] = {
            "accuracy": round(float(model.score(X_test, y_test)), 4),
            "columns": X.shape[1],
            "processor": round(time.process_time() - used, 1),
            "wall": round(time.perf_counter() - start, 1),
        }
        print(epsilon, known[f"{epsilon:g}"], flush=True)


def memory() -> dict[str, Any]:
    """Megabytes that a head on a file of embeddings adds to the process, and those of the rows in double precision."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    rows, columns, classes = _MEMORY
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "embeddings.parquet"
        kind = pa.list_(pa.float16(), columns)
        schema = pa.schema([("embedding", kind), ("label", pa.int64())])
        with parquet.ParquetWriter(path, schema) as writer:
            for _ in range(rows // 1000):
                block = rng.normal(size=(1000, columns)).astype(np.float16)
                vectors = pa.FixedSizeListArray.from_arrays(pa.array(block.ravel()), columns)
                labels = pa.array(rng.integers(0, classes, 1000))
                writer.write_table(pa.table([vectors, labels], schema=schema), row_group_size=1000)
        model = PrivateLogisticRegression(
            1.0, DELTA, classes=list(range(classes)), solver=NoisyGradientDescent(n_iterations=2)
        )
        before = _peak()
        model.fit(path, target="label")
        after = _peak()
    sizes = {"double": 8e-6 * rows * columns, "model": 8e-6 * columns * classes}
    return {"added": round(after - before), **{name: round(size) for name, size in sizes.items()}}


def _peak() -> float:
    """Megabytes at most so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak / 1024


def report(known: dict[str, Any]) -> str:
    """The table."""
    lines = [
        "# Heads on fixed features",
        "",
        f"Test accuracy of `PrivateLogisticRegression` with defaults (replace-one, delta = {DELTA:g}) on histograms of "
        "gradient directions of MNIST, 60,000 rows, one fit each. The features are a fixed formula. Written by "
        "`python -m benchmarks.heads`.",
        "",
        "| epsilon | columns | accuracy | processor seconds | seconds by the clock, on a busy machine |",
        "|---|---|---|---|---|",
    ]
    for epsilon in EPSILONS:
        one = known.get(f"{epsilon:g}")
        if one:
            lines.append(
                f"| {epsilon:g} | {one['columns']} | {one['accuracy']:.4f} | {one['processor']:g} | {one['wall']:g} |"
            )
    if "memory" in known:
        rows, columns, classes = _MEMORY
        one = known["memory"]
        lines += [
            "",
            f"A head with {classes} classes on a Parquet file of {rows} half-precision vectors of length {columns} "
            f"added {one['added']} MB to the peak of the process. The rows alone are {one['double']} MB in double "
            f"precision, one copy of the coefficients {one['model']} MB.",
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--epsilons", nargs="*", type=float, default=list(EPSILONS))
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--kept", type=Path, default=RESULTS / "heads.json")
    parser.add_argument("--output", type=Path, default=RESULTS / "heads.md")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    known = json.loads(options.kept.read_text()) if options.kept.exists() else {}
    if options.memory:
        known["memory"] = memory()
    else:
        accuracy(tuple(options.epsilons), known)
    options.kept.write_text(json.dumps(known, indent=1) + "\n")
    text = report(known)
    options.output.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
