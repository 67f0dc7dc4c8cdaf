"""How fast is safe noise? One run compares it with NumPy's unsafe normals on one thread.

Run ``python -m benchmarks.noise``; ``measure()`` returns the same numbers for other reports.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from discreet.mechanisms.additive import GaussianNoise, LaplaceNoise
from discreet.mechanisms.samplers.entropy import fresh_entropy

REFERENCE = "numpy standard_normal"
GAUSSIAN = "discrete Gaussian"


def measure(size: int = 1_000_000, rounds: int = 9) -> dict[str, float]:
    """Draws per second of every sampler, best of interleaved rounds; and ``"ratio"``: Gaussian over NumPy."""
    entropy = fresh_entropy()
    generator = np.random.default_rng()
    gaussian, laplace = GaussianNoise(1.0), LaplaceNoise(1.0)
    samplers: dict[str, Callable[[], object]] = {
        REFERENCE: lambda: generator.standard_normal(size),
        GAUSSIAN: lambda: gaussian.draw(size, entropy),
        "discrete Laplace": lambda: laplace.draw(size, entropy),
        "64-bit words": lambda: entropy.words(size),
    }
    for sampler in samplers.values():  # compile, build tables, touch memory
        sampler()
    best = dict.fromkeys(samplers, 0.0)
    for _ in range(rounds):
        for name, sampler in samplers.items():
            begin = time.perf_counter()
            sampler()
            best[name] = max(best[name], size / (time.perf_counter() - begin))
    return {**best, "ratio": best[GAUSSIAN] / best[REFERENCE]}


def main() -> None:
    """Print the table."""
    rates = measure()
    ratio = rates.pop("ratio")
    for name, rate in rates.items():
        print(f"{name:24s} {rate / 1e6:8.1f} million/s  {rate / rates[REFERENCE]:6.2f} x NumPy")
    print(f"safe Gaussian noise runs at {ratio:.2f} times the rate of NumPy's (target: at least 0.5)")


if __name__ == "__main__":
    main()
