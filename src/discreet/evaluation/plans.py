"""The two releases of an evaluation: tables of counts for labels, sums of bounded numbers for targets.

Both are sums of integers, so the declared sensitivities are exact. Proofs: docs/proofs/evaluation.md, section 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet._typing import Array
from discreet.mechanisms.noisy_vector import NoisyVectorPlan
from discreet.mechanisms.samplers.entropy import Entropy
from discreet.privacy.guarantee import SLACK, Neighboring, Sensitivity

Codes = NDArray[np.int64]

STEP = 2.0**-20  # record terms of sums are rounded down to multiples of this
#: Terms of one record in the sums for R^2, with y in [-1, 1] and q = (y - prediction)^2 / 4 in [0, 1]: name, smallest,
#: largest, weight. The last five only serve the width of the interval.
_SPREAD = 0.25  # a power of two: weighting does not round
TERMS = (
    ("1", 1.0, 1.0, 1.0),
    ("y", -1.0, 1.0, 1.0),
    ("y^2", 0.0, 1.0, 1.0),
    ("q", 0.0, 1.0, 1.0),
    ("y^3", -1.0, 1.0, _SPREAD),
    ("y^4", 0.0, 1.0, _SPREAD),
    ("q y", -1.0, 1.0, _SPREAD),
    ("q y^2", 0.0, 1.0, _SPREAD),
    ("q^2", 0.0, 1.0, _SPREAD),
)


# For every table, the flat cell of every record that counts; for each such record its group, and what it adds to the
# sum of that group.
Counted = tuple[tuple[Codes, ...], tuple[Codes, Array] | None]
# Targets in [-1, 1], errors in [-2, 2] and groups of all records that count.
Summed = tuple[Array, Array, Codes]


@dataclass(frozen=True)
class CountPlan(NoisyVectorPlan):
    """Tables of counts, where every record adds 1 to one cell of each table, and sums of remainders from binning.

    Replacing a record moves two cells of each of T tables by 1, and sums of remainders by 2 h in total, if none is
    larger than h: sqrt(2 T + 4 h^2) in L2 norm, 2 T + 2 h in L1. Adding, removing or blanking one moves one cell of
    each and one sum: sqrt(T + h^2) and T + h. A person with k rows moves k times as much. Subgroups are rows of the
    tables, so any number of them shares one price. A table of weight w is released as w times its counts: it counts
    w^2 and w, not 1, among the T, and its counts have 1 / w times the noise.

    Attributes
    ----------
    shapes : shapes of the tables.
    n_sums : number of sums of remainders, one for each of disjoint groups.
    half_bin : largest remainder.
    max_rows : maximum number of rows per person; 1 if records are protected.
    weights : one power of two, at most 1, for each table; empty for 1 everywhere.
    """

    shapes: tuple[tuple[int, ...], ...]
    n_sums: int = 0
    half_bin: float = 0.0
    max_rows: int = 1
    weights: tuple[float, ...] = ()

    theorem = "sensitivity of histograms: docs/proofs/evaluation.md, section 1"

    @property
    def size(self) -> int:
        """Number of cells and sums."""
        return sum(math.prod(shape) for shape in self.shapes) + self.n_sums

    @property
    def sensitivity(self) -> Sensitivity:
        """Sensitivity of all cells and sums together."""
        records = self.guarantee.neighboring.contributions
        pure = self.guarantee.delta == 0
        moved = float(records * sum(weight if pure else weight**2 for weight in self._weights))
        # Rounding down can increase a remainder by one step.
        remainders = records * (self.half_bin + STEP) if self.n_sums else 0.0
        if pure:
            return Sensitivity(self.max_rows * (moved + remainders) * SLACK, norm=1)
        return Sensitivity(self.max_rows * math.sqrt(moved + remainders**2) * SLACK)

    @property
    def _weights(self) -> tuple[float, ...]:
        return self.weights or (1.0,) * len(self.shapes)

    @property
    def mechanism(self) -> str:
        sums = " and on sums of what rounding to bins left over" if self.n_sums else ""
        return f"discrete {self.kind} noise on {len(self.shapes)} tables of counts{sums}{_bounded(self)}"

    @property
    def noise(self) -> Mapping[str, float | str]:
        return {"cells": float(self.size), "noise stddev of a count": self.stddev}

    def run(self, counted: Counted, entropy: Entropy) -> list[Array]:
        """Return the noisy tables and, if there are remainders, their noisy sums as the last element."""
        shapes, (cells, remainders) = self.shapes, counted
        sums = [
            np.bincount(codes, minlength=math.prod(shape)).astype(np.float64)
            for codes, shape in zip(cells, shapes, strict=True)
        ]
        if remainders is not None:
            groups, rest = remainders
            whole = np.floor(np.clip(rest, -self.half_bin, self.half_bin) / STEP)
            sums.append(np.bincount(groups, whole, minlength=self.n_sums).astype(np.float64) * STEP)
            shapes += ((self.n_sums,),)
        weights = (*self._weights, *([] if remainders is None else [1.0]))
        weighted = [weight * part for weight, part in zip(weights, sums, strict=True)]
        released = self.release.release(np.concatenate(weighted), entropy)
        parts = np.split(released, np.cumsum([len(part) for part in sums])[:-1])
        return [
            part.reshape(shape) / weight for part, shape, weight in zip(parts, shapes, weights, strict=True)
        ]


@dataclass(frozen=True)
class SumPlan(NoisyVectorPlan):
    """Sums of the terms of `TERMS` over the records of each of ``n_parts`` disjoint subgroups.

    max_rows : maximum number of rows per person; 1 if records are protected.
    """

    n_parts: int
    max_rows: int = 1

    theorem = "sensitivity of sums of bounded terms: docs/proofs/evaluation.md, section 1"

    @property
    def size(self) -> int:
        """Number of sums."""
        return self.n_parts * len(TERMS)

    @property
    def weights(self) -> Array:
        """Weight of each term relative to the others."""
        return np.array([weight for *_, weight in TERMS])

    @property
    def sensitivity(self) -> Sensitivity:
        """Sensitivity of all weighted sums together.

        Two records of one group are no farther apart than (y, q) = (1, 1) and (-1, 0). A null record adds nothing, so a
        replacement may also move the sums by one record's terms. A record replaced by one of another group moves two
        blocks, each by at most its largest vector (docs/proofs/evaluation.md, Lemma 1). Rows of a person add up.
        """
        norm = 1.0 if self.guarantee.delta == 0 else 2.0
        return Sensitivity(self.max_rows * self._of_one_row(norm) * SLACK, norm)

    def _of_one_row(self, norm: float) -> float:
        largest = float(
            np.linalg.norm([weight * max(abs(low), high) for _, low, high, weight in TERMS], norm)
        )
        if self.guarantee.neighboring is not Neighboring.REPLACE_ONE:
            return largest
        if self.n_parts > 1:
            return float(2 ** (1 / norm) * largest)
        exchanged = math.sqrt(5 + 7 * _SPREAD**2) + 2 * STEP if norm == 2 else largest
        return max(exchanged, largest)

    @property
    def mechanism(self) -> str:
        return f"discrete noise on sums of powers of targets and errors{_bounded(self)}"

    @property
    def noise(self) -> Mapping[str, float | str]:
        return {"sums": float(self.size), "noise stddev of a sum": self.stddev}

    def run(self, summed: Summed, entropy: Entropy) -> Array:
        """Return noisy sums, one row per subgroup."""
        y, errors, parts = summed
        q = np.square(errors) / 4
        terms = np.stack([np.ones_like(y), y, y**2, q, y**3, y**4, q * y, q * y**2, q * q])
        low, high = (np.array([term[i] for term in TERMS])[:, None] for i in (1, 2))
        whole = np.floor(np.clip(terms, low, high) / STEP).astype(np.int64)
        sums = np.stack([whole[:, parts == part].sum(axis=1) for part in range(self.n_parts)])
        values = sums.astype(np.float64) * STEP * self.weights
        return self.release.release(values, entropy) / self.weights


def _bounded(plan: CountPlan | SumPlan) -> str:
    return f"; at most {plan.max_rows} rows of every group" if plan.guarantee.unit == "user" else ""
