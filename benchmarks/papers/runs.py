"""What a table is to the runner: a stream of rows that are still to be made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from benchmarks.papers.results import Row


@dataclass(frozen=True)
class Effort:
    """How much of a table to run.

    Attributes
    ----------
    quick : a tiny version, to see that everything runs.
    repeats : at most so many repeats of everything; None for as many as the table wants.
    peers : whether other libraries are run too, each in an environment that the benchmark makes.
    datasets : only these data sets; empty for all.
    methods : only these methods of linear classifiers; empty for all. Time ratios need "non-private" among them.
    again : whether rows that are there already are made again; the newest of equal rows counts.
    """

    quick: bool = False
    repeats: int | None = None
    peers: bool = True
    datasets: Sequence[str] = ()
    methods: Sequence[str] = ()
    again: bool = False

    def wants(self, dataset: str) -> bool:
        """Whether a data set is to be run."""
        return not self.datasets or dataset in self.datasets

    def seeds(self, wanted: int) -> range:
        """The repeats of something that the table wants ``wanted`` times."""
        return range(1 if self.quick else min(wanted, self.repeats or wanted))


@dataclass(frozen=True)
class Run:
    """One row that is still to be made: its identity, and how to make it."""

    row: Row
    execute: Callable[[], Row]


class Table(Protocol):
    """A table or figure of a paper."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def axis(self) -> str:
        """What ``Row.x`` is; empty for a table, or a figure against epsilon."""

    @property
    def printed(self) -> Mapping[tuple[str, str], float]:
        """The paper's figures by (data set, column)."""

    def runs(self, effort: Effort) -> Iterator[Run]:
        """Everything to run, data set by data set."""


def without_data(row: Row, error: Exception) -> Run:
    """The row that says why there is nothing to run."""
    said = replace(row, method="all", status=f"no data: {error}")
    return Run(said, lambda: said)


def promise_of(model: Any) -> dict[str, Any]:
    """The guarantee of a fitted private model, its epsilon recomputed by the accountant."""
    statement = model.privacy_
    return {
        "epsilon": statement.epsilon_at(statement.delta),
        "delta": statement.delta,
        "neighboring": statement.neighboring.value,
    }
