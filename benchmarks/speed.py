"""How fast everything is on one machine: ratios within one run, beside the machine's own bandwidth.

    python -m benchmarks.speed [bandwidth] [dense] [csr] [frank-wolfe] [large] [curves] [start] [peers] [--quick]

Without names it measures everything. Each section replaces its part of the results file; ``--quick`` takes sizes a
tenth as large and prints only. Both sides of a ratio are timed in turns, so that they meet the same load, and the best
of several turns counts.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from benchmarks import dense_fit, peak, speed_peers
from benchmarks.foundation import Row
from discreet.losses import HuberHinge, Logistic, Loss, Softmax, Squared
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy.guarantee import Guarantee
from discreet.problem import Problem
from discreet.records import ArrayRecords
from discreet.records.bounds import Bounds, BoxBounds
from discreet.sets import L1Ball
from discreet.solvers.vertices.frank_wolfe import FrankWolfe

Array = NDArray[np.float64]

RESULTS = Path(__file__).parent / "results" / "speed.md"
_TURNS = 7
_ROW_ENTRIES = 100
_SIZE = 5.0
_HEAD = ["| what | measured | target | met |", "|---|---|---|---|"]


def in_turns(*tasks: Callable[[], object], turns: int = _TURNS, threads: int = 1) -> list[float]:
    """Seconds of every task, the best of several interleaved turns; the first, which compiles, does not count.

    Work on one thread is measured in processor time, which other programs disturb less; work on several by the clock.
    """
    clock = time.process_time if threads == 1 else time.perf_counter
    for task in tasks:
        task()
    best = [np.inf] * len(tasks)
    for _ in range(turns):
        for k, task in enumerate(tasks):
            begin = clock()
            task()
            best[k] = min(best[k], clock() - begin)
    return best


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """b of the power law a x^b that fits best on logarithmic scales."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def sparse_data(n: int, p: int, per_row: int, popular: bool = False) -> tuple[Any, Array]:
    """Rows of -1, 0, 1; columns drawn evenly, or by a power law in which a few columns are in most rows."""
    rng = np.random.default_rng(0)
    draws = rng.random((n, per_row))
    columns = np.minimum(p**draws - 1 if popular else p * draws, p - 1).astype(np.int32)
    columns.sort(axis=1)
    X = sp.csr_array(
        (np.ones(n * per_row), columns.ravel(), np.arange(0, n * per_row + 1, per_row)), shape=(n, p)
    )
    X.sum_duplicates()
    X.data[:] = rng.choice([-1.0, 1.0], size=len(X.data))
    weights = np.where(np.arange(p) < 50, 1.0, 0.0)
    return X, np.where(X @ weights + rng.normal(size=n) > 0, 1.0, -1.0)


def bandwidth(scale: float) -> list[str]:
    """What one read of a large matrix reaches, with one thread and with all, and how fast one processor calculates."""
    X = np.ones((int(500_000 * scale), 100))
    threads = ArrayRecords(X[:1], [1.0], Bounds()).n_threads
    rates = [X.nbytes / in_turns(partial(dense_fit.read, X, k), threads=k)[0] / 1e9 for k in (1, threads)]
    speed = peak.operations() / in_turns(peak.multiply_adds)[0] / 1e9
    return [
        f"One read of {X.nbytes / 1e6:.0f} MB: {rates[0]:.1f} GB/s with one thread, {rates[1]:.1f} GB/s with {threads}."
        f" One processor: {speed:.0f} billion operations a second (multiply-adds in registers, counted as two)."
    ]


def dense(scale: float) -> list[str]:
    """Fused passes over one read of the same matrix in float64, on one thread and on all; the peak memory of a fit."""
    n, p = int(500_000 * scale), 100
    X, y = dense_fit.make_data(n, p)
    matrices = (X, X.astype(np.float32))
    losses: list[tuple[str, Loss]] = [
        ("logistic", Logistic()),
        ("hinge, rounded", HuberHinge(0.5)),
        ("squared", Squared(4.0, 1.0)),
        ("softmax, 3 classes", Softmax(3)),
        ("softmax, 10 classes", Softmax(10)),
    ]
    every = ArrayRecords(X[:1], [1.0], Bounds()).n_threads
    rates: dict[int, float] = {}
    table = []
    for name, loss in losses:
        labels = (np.arange(n) % loss.n_outputs).astype(np.float64) if isinstance(loss, Softmax) else y
        theta = np.full(p if loss.n_outputs == 1 else (p, loss.n_outputs), 0.1)
        ratios, arithmetic = [], 0.0
        for rows, threads in ((matrices[0], 1), (matrices[1], 1), (matrices[0], every)):
            records = ArrayRecords(rows, labels, Bounds(4.0, intercept=False), n_threads=threads)
            fused = partial(records.value_and_gradient, loss, theta)
            reading = partial(dense_fit.read, X, threads)
            tasks: list[Callable[[], object]] = [reading, fused, peak.multiply_adds]
            # On several threads other programs disturb more: more turns, and no need of the third.
            seconds = in_turns(*tasks[: 3 if threads == 1 else 2], turns=_TURNS * threads, threads=threads)
            ratios.append(seconds[1] / seconds[0])
            rates[threads] = max(rates.get(threads, 0.0), X.nbytes / seconds[0] / 1e9)
            if rows is X and threads == 1:
                work = 4 * loss.n_outputs * X.size / peak.operations()
                arithmetic = work * seconds[2] / seconds[0]
        shown = " | ".join(f"{ratio:.2f}" for ratio in ratios)
        met = "yes" if ratios[0] <= 2 else "NO"
        table.append(f"| {name} | {shown} | {arithmetic:.2f} | at most 2 | {met} |")
    memory = dense_fit.peak_memory_over_input(n, p)
    return [
        f"Loss + gradient + clip of {n} x {p} rows, in units of one read of the float64 matrix: on one thread "
        f"({rates[1]:.1f} GB/s while this was measured), and on {every} ({rates[every]:.1f} GB/s). Arithmetic: the 4 "
        "operations per entry and class, at the speed that one processor reaches on registers; no pass can be "
        "faster than this nor than one read.",
        "",
        "| loss | float64 | float32 | float64, all threads | arithmetic | target for float64 | met on one thread |",
        "|---|---|---|---|---|---|---|",
        *table,
        "",
        *_HEAD,
        str(Row("peak memory of a fit over its input", f"{memory:.2f}", "at most 1.3", memory <= 1.3)),
    ]


def csr(scale: float) -> list[str]:
    """A clipped pass over CSR rows beside the two bare products of SciPy."""
    n, p = int(50_000 * scale), 47_000
    lines = [*_HEAD]
    for popular in (False, True):
        X, y = sparse_data(n, p, _ROW_ENTRIES, popular)
        records, theta = ArrayRecords(X, y, Bounds(4.0, intercept=False), n_threads=1), np.full(p, 0.01)
        bare, ours = in_turns(_products(X, theta), partial(records.value_and_gradient, Logistic(), theta))
        what = f"CSR {n} x {p}, {'popular' if popular else 'even'} columns, pass over X.T @ (X @ theta)"
        lines.append(str(Row(what, f"{ours / bare:.2f}", "")))
    return lines


def _products(X: Any, theta: Array) -> Callable[[], object]:
    return lambda: X.T @ (X @ theta)


def frank_wolfe_seconds(X: Any, y: Array, n_iterations: int) -> tuple[float, float]:
    """Seconds of a step on one thread: full gradient and 2p Gumbels by NumPy, and the incremental run as a whole."""
    n, p = X.shape
    bounds = BoxBounds.of(p, intercept=False)
    problem = Problem(Logistic(), bounds, n, p, geometry=L1Ball(_SIZE, p))
    plan = FrankWolfe(n_iterations, "vertices").plan(problem, Guarantee(1.0, 1e-9))
    records, theta, generator = ArrayRecords(X, y, bounds, n_threads=1), np.zeros(p), np.random.default_rng()

    def full_step() -> None:
        gradient = _SIZE * records.value_and_gradient(Logistic(), theta)[1]
        noisy = np.concatenate([-gradient, gradient]) + generator.gumbel(scale=100.0, size=2 * p)
        problem.geometry.move_towards(theta, int(np.argmax(noisy)), 0.01)  # type: ignore[union-attr]

    full, whole_run = in_turns(full_step, lambda: plan.run([records], fresh_entropy()), turns=3)
    return full, whole_run / n_iterations


def frank_wolfe(scale: float) -> list[str]:
    """The step of the incremental run against the full step, by the number of columns."""
    n, steps = int(20_000 * scale), int(1_000 * max(scale, 0.2))
    lines = [f"{n} rows of {_ROW_ENTRIES} entries, {steps} steps; setting up is part of the run.", "", *_HEAD]
    for popular in (False, True):
        sizes, times = (10_000, 100_000, 1_000_000), []
        for p, goal in zip(sizes, (8, 50, 100), strict=True):
            full, ours = frank_wolfe_seconds(*sparse_data(n, p, _ROW_ENTRIES, popular), steps)
            times.append(ours)
            what = f"p = {p}, {'popular columns' if popular else 'even columns'}"
            measured = f"{full / ours:.0f} times ({full * 1e3:.2f} ms, {ours * 1e3:.3f} ms)"
            lines.append(str(Row(what, measured, f"at least {goal} times", full >= goal * ours)))
        lines.append(
            str(
                Row(
                    "exponent in p", f"{exponent(sizes, times):.2f}", "at most 0", times[-1] <= 1.1 * times[0]
                )
            )
        )
    return lines


def large(scale: float) -> list[str]:
    """A fit with 20 million columns, in a process of its own because of its peak memory."""
    command = [sys.executable, "-m", "benchmarks.speed", "--large", str(int(200_000 * scale))]
    seconds, peak = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    fits = seconds < 600 and peak < 8e9
    what = f"20 million columns, {int(200_000 * scale)} rows, 1000 steps, with import and compilation"
    return [*_HEAD, str(Row(what, f"{seconds:.0f} s, {peak / 1e9:.1f} GB", "minutes, 8 GB", fits))]


def _large_run(n: int) -> None:
    X, y = sparse_data(n, 20_000_000, _ROW_ENTRIES)
    begin = time.perf_counter()
    from discreet import PrivateSparseLogisticRegression

    model = PrivateSparseLogisticRegression(1.0, 1e-9, classes=[-1, 1], solver=FrankWolfe(1_000))
    model.fit(X, y)
    print(json.dumps([time.perf_counter() - begin, dense_fit.memory("VmHWM")]))


def curves(scale: float) -> list[str]:
    """How times grow: exponents of power laws fitted to doubling sizes."""
    lines = ["| time of | against | sizes | exponent |", "|---|---|---|---|"]

    def add(what: str, against: str, sizes: Sequence[int], tasks: list[Callable[[], object]]) -> None:
        shown = f"{sizes[0]} .. {sizes[-1]}"
        lines.append(f"| {what} | {against} | {shown} | {exponent(sizes, in_turns(*tasks, turns=3)):.2f} |")

    X, y = dense_fit.make_data(int(400_000 * scale), 50)
    heights = [len(X) // k for k in (8, 4, 2, 1)]
    parts = [ArrayRecords(X[:n], y[:n], Bounds(4.0), n_threads=1) for n in heights]
    add("dense pass", "rows n", heights, [_pass(part) for part in parts])
    widths = [25, 50, 100, 200]
    flat = X.reshape(-1)[: len(X) // 4 * 200]
    parts = [
        ArrayRecords(flat[: len(X) // 4 * p].reshape(-1, p), y[: len(X) // 4], Bounds(4.0), n_threads=1)
        for p in widths
    ]
    add("dense pass", "columns p", widths, [_pass(part) for part in parts])
    per_row = [25, 50, 100, 200]
    sparse = [sparse_data(int(20_000 * scale), 100_000, k) for k in per_row]
    entries = [X.nnz for X, _ in sparse]
    add(
        "CSR pass",
        "entries nnz",
        entries,
        [_pass(ArrayRecords(*rows, Bounds(4.0), n_threads=1)) for rows in sparse],
    )
    rows, labels = sparse[2]
    steps = [int(T * max(scale, 0.2)) for T in (1_000, 2_000, 4_000, 8_000)]
    bounds = BoxBounds.of(rows.shape[1], intercept=False)
    n, p = rows.shape
    problem = Problem(Logistic(), bounds, n, p, geometry=L1Ball(_SIZE, p))
    plans = [FrankWolfe(T, "vertices").plan(problem, Guarantee(1.0, 1e-9)) for T in (1, *steps)]
    records = ArrayRecords(rows, labels, bounds, n_threads=1)
    one, *others = in_turns(*(partial(plan.run, [records], fresh_entropy()) for plan in plans), turns=3)
    slope = exponent(steps, [seconds - one for seconds in others])
    what = f"sparse Frank-Wolfe after setting up ({1e3 * one:.0f} ms)"
    lines.append(f"| {what} | steps T | {steps[0]} .. {steps[-1]} | {slope:.2f} |")
    return lines


def _pass(records: ArrayRecords) -> Callable[[], object]:
    theta = np.full(records.n_features, 0.01)
    return partial(records.value_and_gradient, Logistic(), theta)


def start(scale: float) -> list[str]:
    """Processor time of imports, each in new processes."""
    base, ours = (
        min(_processor_seconds(f"import {names}") for _ in range(5))
        for names in ("numpy, scipy.sparse", "discreet")
    )
    ratio = ours / base
    return [
        *_HEAD,
        str(
            Row(
                "import discreet over import numpy, scipy.sparse", f"{ratio:.2f}", "at most 1.3", ratio <= 1.3
            )
        ),
    ]


def _processor_seconds(program: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", program], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def peers(scale: float) -> list[str]:
    """Other libraries on a shape they accept."""
    shape = f"{speed_peers.N_ROWS} x {speed_peers.N_COLUMNS} rows, seconds of one fit; guarantees and accuracy differ."
    return [
        shape,
        "",
        "| library | work | seconds | over discreet |",
        "|---|---|---|---|",
        *speed_peers.rows(),
    ]


SECTIONS: dict[str, tuple[str, Callable[[float], list[str]]]] = {
    "bandwidth": ("Bandwidth", bandwidth),
    "dense": ("Dense rows", dense),
    "csr": ("CSR rows", csr),
    "frank-wolfe": ("Sparse Frank-Wolfe", frank_wolfe),
    "large": ("Twenty million columns", large),
    "curves": ("Growth", curves),
    "start": ("Start-up", start),
    "peers": ("Other libraries", peers),
}


def merged(text: str, title: str, body: list[str]) -> str:
    """A results file with one section replaced, sections in the order of ``SECTIONS``."""
    parts = dict(part.split("\n", 1) for part in text.split("\n## ")[1:])
    parts[title] = "\n" + "\n".join(body) + "\n"
    ordered = [f"\n## {name}\n{parts[name]}" for name, _ in SECTIONS.values() if name in parts]
    return "# Speed\n" + "".join(ordered)


def main() -> None:
    """Measure and print; section after section goes to the results file, so that a run can be continued."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sections", nargs="*", metavar="section", help=f"some of {', '.join(SECTIONS)}")
    parser.add_argument("--quick", action="store_true", help="a tenth of the sizes, printed only")
    parser.add_argument("--output", type=Path, default=RESULTS, help="where to write")
    parser.add_argument("--large", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.large:
        _large_run(options.large)
        return
    if unknown := set(options.sections) - set(SECTIONS):
        parser.error(f"unknown sections {sorted(unknown)}; there are {list(SECTIONS)}")
    today = datetime.datetime.now(datetime.UTC).date()
    stamp = f"Measured on {platform.machine()}, Python {platform.python_version()}, {today}."
    for name in options.sections or SECTIONS:
        title, section = SECTIONS[name]
        body = [*section(0.1 if options.quick else 1.0), "", stamp]
        print(f"\n## {title}\n", *body, sep="\n", flush=True)
        if not options.quick:
            before = options.output.read_text() if options.output.exists() else ""
            options.output.write_text(merged(before, title, body))


if __name__ == "__main__":
    main()
