"""Has the code become slower? Counts instructions on fixed small inputs and compares them with a committed baseline.

    python -m benchmarks.check_speed [--write]

Times differ between machines and with their load; the number of instructions hardly does. Kernels are compiled for a
generic processor and run inside valgrind's callgrind, which hides the special instructions of this one. More than 30%
above the baseline fails. Where there is no valgrind the command says so and checks nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

BASELINE = Path(__file__).parent / "results" / "instructions.json"
MOST = 1.3


def tasks() -> dict[str, Callable[[], Any]]:
    """What is counted, by name; every task is a function without arguments that can be repeated."""
    import numpy as np
    import scipy.sparse as sp

    from discreet.losses import Logistic, Softmax
    from discreet.mechanisms.additive import GaussianNoise
    from discreet.mechanisms.samplers.entropy import fresh_entropy, insecure_noise
    from discreet.mechanisms.selection import ExponentialMechanism
    from discreet.privacy.guarantee import Guarantee
    from discreet.problem import Problem
    from discreet.records import ArrayRecords
    from discreet.records.bounds import Bounds, BoxBounds
    from discreet.sets import L1Ball
    from discreet.solvers.minimizers.minimizer import Objective, minimize
    from discreet.solvers.vertices.frank_wolfe import FrankWolfe

    rng = np.random.default_rng(0)
    X, n, p = rng.normal(size=(5_000, 50)) / 7, 1_000, 5_000
    y, codes = rng.choice([-1.0, 1.0], size=5_000), rng.integers(0, 4, size=5_000).astype(np.float64)
    ball = Bounds(1.0, intercept=False)
    dense, classes = (ArrayRecords(X, labels, ball, n_threads=1) for labels in (y, codes))
    small = ArrayRecords(X[:2_000], y[:2_000], ball, n_threads=1)
    columns = np.sort(rng.integers(0, p, size=(n, 30)), axis=1).astype(np.int32)
    rows = sp.csr_array((np.ones(n * 30), columns.ravel(), np.arange(0, n * 30 + 1, 30)), shape=(n, p))
    box = BoxBounds.of(p, intercept=False)
    wide = ArrayRecords(box.clip(rows), y[:n], box, n_threads=1)
    problem = Problem(Logistic(), box, n, p, geometry=L1Ball(5.0, p))
    plan = FrankWolfe(100, "vertices").plan(problem, Guarantee(1.0, 1e-6))
    with insecure_noise(0):
        entropy = fresh_entropy()
    noise, choice, scores = (
        GaussianNoise(1.0),
        ExponentialMechanism(2.0, 0.1, 50_000),
        rng.normal(size=50_000),
    )
    theta = np.full(50, 0.1)
    return {
        "dense logistic pass": lambda: dense.value_and_gradient(Logistic(), theta),
        "dense softmax pass, 4 classes": lambda: classes.value_and_gradient(
            Softmax(4), np.full((50, 4), 0.1)
        ),
        "CSR logistic pass": lambda: wide.value_and_gradient(Logistic(), np.full(p, 0.1)),
        "certified minimum": lambda: minimize(Objective(small, Logistic(), 1.0), 1e-3),
        "sparse Frank-Wolfe, 100 steps": lambda: plan.run([wide], entropy),
        "50,000 Gaussian draws": lambda: noise.draw(50_000, entropy),
        "one of 50,000 candidates": lambda: choice.select(scores, entropy),
    }


def count() -> dict[str, int] | None:
    """Instructions of every task; None without valgrind."""
    if shutil.which("valgrind") is None:
        return None
    with tempfile.TemporaryDirectory() as directory:
        environment = os.environ | {
            "NUMBA_CPU_NAME": "generic",
            "NUMBA_CPU_FEATURES": "",
            "NUMBA_CACHE_DIR": directory,
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONHASHSEED": "0",
        }
        inner = [sys.executable, "-m", "benchmarks.check_speed", "--inside", directory]
        subprocess.run([*inner, "--warm"], check=True, env=environment)
        # A call of getppid, which nothing else makes, ends one count and begins the next.
        callgrind = ["valgrind", "--tool=callgrind", "--dump-before=getppid", "--quiet"]
        subprocess.run(
            [*callgrind, f"--callgrind-out-file={directory}/out", *inner], check=True, env=environment
        )
        counted: dict[str, int] = json.loads(Path(directory, "counts.json").read_text())
    return counted


def _inside(directory: str, warm: bool) -> None:
    """Run every task once to load it, and if it is to be counted once more between two marks."""
    found = {}
    for index, (name, task) in enumerate(tasks().items()):
        task()
        if warm:
            continue
        os.getppid()
        task()
        os.getppid()
        total = re.search(
            r"^(?:totals|summary): (\d+)", Path(directory, f"out.{2 * index + 2}").read_text(), re.MULTILINE
        )
        assert total is not None
        found[name] = int(total.group(1))
    if not warm:
        Path(directory, "counts.json").write_text(json.dumps(found))


def main() -> int:
    """Print the counts beside the baseline; 1 if one is more than 30% above."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="make these counts the baseline")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--warm", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        _inside(options.inside, options.warm)
        return 0
    counted = count()
    if counted is None:
        print("valgrind is not installed: instructions were NOT counted, nothing was checked")
        return 0
    if options.write:
        BASELINE.write_text(json.dumps(counted, indent=2) + "\n")
    if not BASELINE.exists():
        print("there is no baseline to compare with; make one with --write")
        return 1
    baseline: dict[str, int] = json.loads(BASELINE.read_text())
    slower = []
    print(f"{'task':<34}{'million instructions':>22}{'over baseline':>16}")
    for name, instructions in counted.items():
        ratio = instructions / baseline[name] if name in baseline else float("nan")
        print(f"{name:<34}{instructions / 1e6:>22.1f}{ratio:>16.3f}")
        if not ratio <= MOST:
            slower.append(name)
    if slower:
        print("more than 30% above the baseline, or not in it:", *slower, sep="\n  ")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
