"""Does the time that a draw takes tell its value? Correlations of time with value, with its size and with its tail.

Run ``python -m benchmarks.noise_timing [--draws N] [--write]``. A rejection sampler may need longer for a far value;
what an observer who times single draws would learn is the correlation shown. Under no correlation each has a standard
deviation of 1 / sqrt(draws); beyond four of them a line is marked. Slow outliers (refills, other processes) are cut at
the 99th percentile. Nothing here is a test: a busy machine only adds noise to the times.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from discreet._files import write_atomically
from discreet.mechanisms.additive import GaussianNoise, LaplaceNoise
from discreet.mechanisms.gamma_norm import GammaNormNoise
from discreet.mechanisms.samplers.discrete import GeometricNoise
from discreet.mechanisms.samplers.entropy import Entropy, fresh_entropy
from discreet.mechanisms.selection import ExponentialMechanism

RESULTS = Path(__file__).parent / "results" / "noise_timing.md"


@dataclass(frozen=True)
class Row:
    """Rank correlations of one sampler's times with what it drew."""

    sampler: str
    draws: int
    microseconds: float
    with_value: float
    with_size: float
    with_tail: float

    @property
    def quiet(self) -> bool:
        """Whether nothing stands out of what independent times would show."""
        correlations = (self.with_value, self.with_size, self.with_tail)
        return max(map(abs, correlations)) < 4 / math.sqrt(self.draws)


def samplers() -> Iterator[tuple[str, Callable[[Entropy], float]]]:
    """One number at a time, as an adaptive mechanism draws it."""
    gaussian, laplace = GaussianNoise(3.0), LaplaceNoise(3.0)
    gamma, geometric = GammaNormNoise(3.0), GeometricNoise(30.0)
    choice, scores = ExponentialMechanism(1.0, 1.0, 16), np.linspace(-2, 2, 16)
    yield "discrete Gaussian", lambda entropy: float(gaussian.draw(1, entropy)[0])
    yield "discrete Laplace", lambda entropy: float(laplace.draw(1, entropy)[0])
    yield "gamma norm, one number", lambda entropy: float(gamma.draw(1, entropy)[0])
    yield "geometric", lambda entropy: float(geometric.draw(1, entropy)[0])
    yield "exponential mechanism, 16 scores", lambda entropy: float(choice.select(scores, entropy))


def measure(draws: int = 20_000) -> list[Row]:
    """Time every sampler."""
    rows = []
    for name, draw in samplers():
        entropy = fresh_entropy()
        for _ in range(200):  # compiles, fills tables
            draw(entropy)
        values, times = np.empty(draws), np.empty(draws)
        for k in range(draws):
            begin = time.perf_counter_ns()
            values[k] = draw(entropy)
            times[k] = time.perf_counter_ns() - begin
        kept = times <= np.quantile(times, 0.99)
        values, times = values[kept], times[kept]
        size = np.abs(values - np.median(values))
        far = (size > np.quantile(size, 0.95)).astype(float)
        found = [float(spearmanr(times, part).statistic) for part in (values, size, far)]
        rows.append(Row(name, len(values), float(np.median(times)) / 1000, *found))
    return rows


def as_text(rows: list[Row]) -> str:
    """The table in Markdown."""
    lines = [
        "| sampler | draws | median microseconds | value | size | tail | stands out |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.sampler} | {row.draws} | {row.microseconds:.1f} | {row.with_value:+.4f} | {row.with_size:+.4f} | "
        f"{row.with_tail:+.4f} | {'no' if row.quiet else 'YES'} |"
        for row in rows
    ]
    return "\n".join(lines)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description="correlation of a draw's time with its value")
    parser.add_argument("--draws", type=int, default=20_000)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    text = as_text(measure(arguments.draws))
    print(text)
    if arguments.write:
        head = (
            "# Time of a draw against its value\n\nWritten by `python -m benchmarks.noise_timing --write`. "
        )
        write_atomically(RESULTS, (head + "Rank correlations.\n\n" + text + "\n").encode())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
