"""How fast a certified fit on dense rows is: ratios within one run, since machines and their load differ.

    python -m benchmarks.dense_fit [--rows 500000] [--columns 100]

Prints the time of one fused pass over one read of the matrix, the time of a certified fit over scikit-learn's
non-private fit at the same gradient norm, and the peak memory of a fit over the size of the matrix.
"""

from __future__ import annotations

import argparse
import functools
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from discreet.losses import Logistic
from discreet.mechanisms.samplers.numba_decorator import compiled
from discreet.records import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.solvers.minimizers.minimizer import Minimum, Objective, minimize

Array = NDArray[np.float64]
T = TypeVar("T")

_L2 = 10.0
_BOUNDS = Bounds(feature_norm=4.0, intercept=False)  # no row is longer, so both fits see the same data
_REPEATS = 5


def measure(n: int = 500_000, p: int = 100) -> dict[str, float]:
    """All ratios for an n x p matrix; each is the best of a few repeats."""
    X, y = make_data(n, p)
    records = ArrayRecords(X, y, _BOUNDS)
    theta = np.full(p, 0.1)
    readings, passes = [], []
    for _ in range(3 * _REPEATS):  # interleaved, so that both meet the same load
        readings.append(_seconds(lambda: read(X, records.n_threads)))
        passes.append(_seconds(lambda: records.value_and_gradient(Logistic(), theta)))
    ratios, norms, n_passes = [], [], []
    for _ in range(2):
        reference, reference_seconds = timed(lambda: _scikit_learn(X, y))
        objective = Objective(records, Logistic(), _L2)
        gradient = objective.value_and_gradient(reference.coef_.ravel())[1]
        norm = max(float(np.linalg.norm(gradient)), objective.smallest_tolerance())
        fits = [timed(functools.partial(_fit, X, y, norm)) for _ in range(_REPEATS)]
        found, seconds = min(fits, key=lambda fit: fit[1])
        ratios.append(seconds / reference_seconds)
        norms.append(norm)
        n_passes.append(found.n_passes)
    best = int(np.argmin(ratios))
    return {
        "rows": n,
        "columns": p,
        "threads": records.n_threads,
        "pass_over_read": min(passes) / min(readings),
        "fit_over_scikit_learn": ratios[best],
        "gradient_norm": norms[best],
        "passes": n_passes[best],
        "peak_memory_over_input": peak_memory_over_input(n, p),
    }


def make_data(n: int, p: int) -> tuple[Array, Array]:
    """Rows of norm about 1 with columns of different scales, labels from a logistic model; made in place."""
    rng = np.random.default_rng(0)
    X = np.empty((n, p))
    rng.standard_normal(out=X)
    X *= np.geomspace(0.3, 1.7, p) / np.sqrt(p)
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-3 * (X @ rng.standard_normal(p)))), 1.0, -1.0)
    return X, y


def _fit(X: Array, y: Array, tolerance: float) -> Minimum:
    return minimize(Objective(ArrayRecords(X, y, _BOUNDS), Logistic(), _L2), tolerance)


def _scikit_learn(X: Array, y: Array) -> LogisticRegression:
    return LogisticRegression(C=1 / _L2, fit_intercept=False, tol=1e-8, max_iter=10_000).fit(X, y)


@compiled("reassoc")
def _sum(values: Array) -> float:
    total = 0.0
    for k in range(values.shape[0]):
        total += values[k]
    return total


def read(X: Array, n_threads: int) -> float:
    """One pass that only adds all entries up."""
    with ThreadPoolExecutor(n_threads) as pool:
        return sum(pool.map(_sum, np.array_split(X.reshape(-1), 16)))


def timed(task: Callable[[], T]) -> tuple[T, float]:
    start = time.perf_counter()
    result = task()
    return result, time.perf_counter() - start


def _seconds(task: Callable[[], object]) -> float:
    return timed(task)[1]


def peak_memory_over_input(n: int, p: int) -> float:
    """In a process of its own, because the peak of a process never goes down."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.dense_fit",
        "--memory",
        "--rows",
        str(n),
        "--columns",
        str(p),
    ]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(json.loads(output))


def _memory_run(n: int, p: int) -> float:
    small = make_data(1000, p)
    _fit(*small, 1e-3)  # compile and load everything first
    before = memory("VmRSS")
    X, y = make_data(n, p)
    _fit(X, y, 1e-2)
    return (memory("VmHWM") - before) / X.nbytes


def memory(field: str) -> int:
    """Bytes held now (VmRSS) or at most (VmHWM); where the system does not tell, the peak so far.

    The peak that ``getrusage`` reports would be inherited from the process that started this one.
    """
    try:
        with open("/proc/self/status") as file:
            lines = dict(line.split(":", 1) for line in file)
        return int(lines[field].split()[0]) * 1024
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main() -> None:
    """Print the ratios beside what to reach."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--memory", action="store_true", help="only measure the peak memory of this process")
    options = parser.parse_args()
    if options.memory:
        print(json.dumps(_memory_run(options.rows, options.columns)))
        return
    result = measure(options.rows, options.columns)
    print(f"{options.rows} x {options.columns} float64, {result['threads']:.0f} threads")
    goals = {"pass_over_read": 2.0, "fit_over_scikit_learn": 1.0, "peak_memory_over_input": 1.3}
    for name, goal in goals.items():
        print(f"  {name:<24} {result[name]:6.3f}   (at most {goal})")
    print(f"  certified gradient norm {result['gradient_norm']:.3g} after {result['passes']:.0f} passes")


if __name__ == "__main__":
    main()
