"""Calibrations as papers print them, for `discreet audit --program`: two neighbors, what is claimed, what is released.

Written from the formulas of `docs/errata.md` and nothing of this package: ``python paper_programs.py CASE RUNS``. Each
case is an algorithm with its printed constant, or with one that is known to suffice: a control. Of the errata, these
are the ones that samples show. The others are found from inside by a replay, or by their exact curves: their excess is
small, or lies in answers that are not released, or at an epsilon of 24.
"""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

_DRAW = random.Random(0)  # a page that is written again says the same
_TALWAR = "Talwar, Thakurta and Zhang 2014, Algorithm 2"
_THAKKAR = "Thakkar 2019, Algorithm"


def objective(runs: int, times: float = 1.0) -> Iterator[Any]:
    """Objective perturbation of one Huber record (1, Y) or (1, -Y), so far away that its slope is 1 for sure.

    The slope changes by 2, and the printed noise is for 1; twice as much suffices here.
    """
    epsilon, delta, smoothness = 4.0, 1e-2, 1.0
    name = _TALWAR if times == 1 else f"{_TALWAR}, {times:g} times the noise"
    yield _claim(name, epsilon, delta, "replace-one")
    stddev = times * math.sqrt(2 * math.log(1 / delta)) / epsilon
    ridge = 2 * smoothness / epsilon
    for _ in range(runs):
        for side, slope in enumerate((-1.0, 1.0)):
            yield side, [-(slope + _DRAW.gauss(0.0, stddev)) / ridge]


def per_pass(runs: int, falls: str = "per pass") -> Iterator[Any]:
    """Permutation SGD in one pass, on one record with slope 1 or -1 among others with none, where only the ridge acts.

    The printed sensitivity is that of a rate that falls with every step. Constant in a pass, it lets the last records
    of the order weigh as much as if there were ten.
    """
    epsilon, size, ridge, smoothness = 1.0, 1000, 1.0, 9.0
    delta = 1 / size
    yield _claim(f"{_THAKKAR} 3, rate {falls}", epsilon, delta, "replace-one")
    stddev = 2 / (ridge * size) * (1 + math.sqrt(2 * math.log(1 / delta))) / epsilon
    for _ in range(runs):
        for side, slope in enumerate((-1.0, 1.0)):
            place = _DRAW.randrange(1, size + 1)
            rate = 1 / (ridge + smoothness)
            moved = rate * (1 - rate * ridge) ** (size - place)
            if falls == "per step":
                moved = 1 / (ridge * size)  # 1 / (ridge place) shrinks by place / size until the end
            yield side, [-slope * moved + _DRAW.gauss(0.0, stddev)]


def batches(runs: int, batch: int = 1) -> Iterator[Any]:
    """Noisy SGD on batches without replacement, of one record with slope 1 or -1 among others with none.

    The printed noise shrinks with the share of records in a batch, as if being left out hid a record that is in.
    """
    epsilon, size, steps = 1.0, 200, 5
    delta = 1e-3
    yield _claim(f"{_THAKKAR} 4, batches of {batch} in {size}", epsilon, delta, "replace-one")
    stddev = 4 * batch / size * math.sqrt(steps * math.log(1 / delta)) / epsilon
    for _ in range(runs):
        for side, slope in enumerate((-1.0, 1.0)):
            sums = [slope * (_DRAW.random() < batch / size) + _DRAW.gauss(0.0, stddev) for _ in range(steps)]
            yield side, [max(sums), min(sums)]


def chunks(runs: int, split: str = "by position") -> Iterator[Any]:
    """One label from 1000 models, each that of the first of its two records; a record is put in front of all others.

    By position every record moves to the next place, and all models say the opposite. By the names of records, one
    model changes.
    """
    epsilon, delta, models = 1.0, 1e-3, 1000
    yield _claim(f"{_THAKKAR} 9, split {split}", epsilon, delta, "add-remove-one")
    scale = math.sqrt(32 * math.log(2 / delta)) / epsilon
    threshold = 2 * scale * math.log(2 / delta)
    labels = [0, 1] * models
    for _ in range(runs):
        for side, rows in enumerate((labels, [1, *labels])):
            votes = rows[::2] if split == "by position" else [rows[0], *labels[2::2]]
            ones = sum(votes)
            gap = abs(len(votes) - 2 * ones)
            stable = gap - 1 + _laplace(2 * scale) > threshold + _laplace(scale)
            yield side, [float(2 * ones > len(votes)) if stable else 0.5]


def _laplace(scale: float) -> float:
    return scale * (_DRAW.expovariate(1.0) - _DRAW.expovariate(1.0))


def _claim(name: str, epsilon: float, delta: float, relation: str) -> dict[str, Any]:
    return {"name": name, "epsilon": epsilon, "delta": delta, "relation": relation}


#: Programs, and whether errata name them; the others are controls.
CASES: dict[str, tuple[Callable[[int], Iterator[Any]], bool]] = {
    "printed-objective": (objective, True),
    "printed-objective-control": (lambda runs: objective(runs, 2.0), False),
    "printed-passes": (per_pass, True),
    "printed-passes-control": (lambda runs: per_pass(runs, "per step"), False),
    "printed-batches": (batches, True),
    "printed-batches-control": (lambda runs: batches(runs, 200), False),
    "printed-chunks": (chunks, True),
    "printed-chunks-control": (lambda runs: chunks(runs, "by name"), False),
}


def main(arguments: list[str]) -> None:
    """Print the claim, then one line for every run."""
    for line in CASES[arguments[0]][0](int(arguments[1])):
        print(json.dumps(line))


if __name__ == "__main__":
    main(sys.argv[1:])
