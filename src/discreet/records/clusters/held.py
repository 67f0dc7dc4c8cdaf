"""What runs on the workers of a Dask cluster: partitions in the memory of one process, asked all at once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from discreet._checks import silently


@dataclass(frozen=True)
class Question:
    """What a worker is told.

    Attributes
    ----------
    recipes : functions and columns of what it is to keep, by numbers; columns are numbers or lists of values.
    forgotten : numbers that nobody will ask for again.
    function, columns : what is asked of its partitions.
    """

    recipes: dict[int, tuple[Callable[..., Any], Sequence[Any]]]
    forgotten: Sequence[int]
    function: Callable[..., Any]
    columns: Sequence[Any]


class Held:
    """Partitions in the memory of one process: what was opened, what was made of it, and threads to ask it."""

    def __init__(self, threads: int, numbers: Sequence[int], *entries: Any) -> None:
        self._height = len(entries) // len(numbers)
        self._threads = min(threads, self._height)
        self._recipes: dict[int, tuple[Callable[..., Any], Sequence[Any]]] = {}
        self._made: dict[int, dict[int, Any]] = {
            number: dict(enumerate(entries[column * self._height : (column + 1) * self._height]))
            for column, number in enumerate(numbers)
        }

    def ask(self, question: Question) -> list[Any]:
        """The answers of all partitions, in their order."""
        self._recipes |= question.recipes
        for number in question.forgotten:
            self._recipes.pop(number, None)
            self._made.pop(number, None)
        for number in self._recipes:
            self._made.setdefault(number, {})
        answer = partial(silently, self._answer, question.function, question.columns)
        if self._threads == 1:
            return [answer(place) for place in range(self._height)]
        with ThreadPoolExecutor(self._threads) as pool:
            return list(pool.map(answer, range(self._height)))

    def _answer(self, function: Callable[..., Any], columns: Sequence[Any], place: int) -> Any:
        return function(*(self._entry(column, place) for column in columns))

    def _entry(self, column: Any, place: int) -> Any:
        if isinstance(column, list):
            return column[place]
        made = self._made[column]
        if place not in made:
            made[place] = self._answer(*self._recipes[column], place)
        return made[place]


def rows_of(
    function: Callable[..., Any], given: Sequence[Sequence[Any] | None], height: int, *entries: Any
) -> list[Any]:
    """``function`` of each row of columns: values that are given, or the next ``height`` entries."""
    others = iter(entries)
    columns = [list(itertools.islice(others, height)) if values is None else values for values in given]
    return [function(*row) for row in zip(*columns, strict=True)]


def row_of(
    function: Callable[..., Any], given: Sequence[Sequence[Any] | None], height: int, *entries: Any
) -> Any:
    return rows_of(function, given, height, *entries)[0]


def in_order(shares: Sequence[Sequence[int]], answers: Sequence[Sequence[Any]]) -> list[Any]:
    """Answers of shares in the order of the places that these name."""
    found = {
        place: one
        for share, own in zip(shares, answers, strict=True)
        for place, one in zip(share, own, strict=True)
    }
    return [found[place] for place in range(len(found))]
