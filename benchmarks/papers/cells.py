"""Rows gathered over their repeats: means and confidence intervals."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.papers.methods import METHODS
from benchmarks.papers.results import Row


@dataclass(frozen=True)
class Cell:
    """All repeats of one method on one data set at one epsilon."""

    dataset: str
    used: str
    method: str
    epsilon: float
    x: float
    metric: str
    values: tuple[float, ...]

    @property
    def label(self) -> str:
        """The method's name for people."""
        return METHODS[self.method].label if self.method in METHODS else self.method

    @property
    def mean(self) -> float:
        """Mean over repeats."""
        return sum(self.values) / len(self.values)

    @property
    def half_width(self) -> float:
        """Half of the 95% confidence interval of the mean; 0 for a single repeat, whose interval is unknown."""
        return half_width(self.values)

    @property
    def shown(self) -> str:
        """Mean and interval in a table."""
        return shown(self.mean, self.half_width if len(self.values) > 1 else None)


def half_width(values: Sequence[float]) -> float:
    """Half of the 95% confidence interval of the mean by Student's t; 0 for a single value."""
    count = len(values)
    if count < 2:
        return 0.0
    from scipy.stats import t

    mean = sum(values) / count
    variance = sum((value - mean) ** 2 for value in values) / (count - 1)
    return float(t.ppf(0.975, count - 1)) * math.sqrt(variance / count)


def shown(mean: float, half: float | None) -> str:
    """A mean with its interval, where there is one."""
    return f"{mean:.1f}" + ("" if half is None else f" ± {half:.1f}")


def cells(rows: Iterable[Row]) -> list[Cell]:
    """Rows of one table, gathered over their seeds."""
    found: dict[tuple[str, str, str, float, float, str], list[float]] = defaultdict(list)
    for row in rows:
        if row.value is not None:
            found[row.dataset, row.used, row.method, row.epsilon, row.x, row.metric].append(row.value)
    return [Cell(*key, tuple(values)) for key, values in found.items()]
