"""One message to each worker of a Dask cluster for every question, past the task queue, and what answers it there.

A `Crew` asks; on each worker `Held` has partitions in the memory of one process and answers for all of them at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from discreet._checks import silently
from discreet.records.clusters.base import WorkersLost

if TYPE_CHECKING:
    from discreet.records.clusters.workers import Workers

_numbers = itertools.count()


@dataclass(eq=False)
class Kept:
    """One entry for every partition, where the partitions are: opened, or made of others when they are first needed.

    Attributes
    ----------
    function : makes an entry of those of ``columns``; None if the only column is what was opened.
    columns : other columns of this kind, or lists of values that travel to the partitions.
    number : what workers call it.
    tasks : entries that were made by tasks, by their places.
    """

    function: Callable[..., Any] | None
    columns: Sequence[Any]
    number: int = field(default_factory=lambda: next(_numbers))
    tasks: dict[int, Any] = field(default_factory=dict)


@dataclass
class _Member:
    """One worker of a crew: the places that it has, what holds them there, if anything, and the numbers it was told."""

    worker: str
    places: list[int]
    holder: Any = None
    known: set[int] = field(default_factory=set)


class Crew:
    """Asks all partitions of a fit: those of each worker in one message, past the task queue.

    A holder dies with its worker, and may fail. Its partitions are then asked as tasks, which Dask makes again from
    their sources, so that every partition still answers once; before the next question a new crew is found.

    Attributes
    ----------
    opened : the columns of what was opened.
    """

    def __init__(self, asked: Workers, *opened: Sequence[Any]) -> None:
        self._workers = asked
        self.opened = [Kept(None, [list(entries)]) for entries in opened]
        self._alive = WeakValueDictionary({column.number: column for column in self.opened})
        self._members: list[_Member] = []

    def kept(self, function: Callable[..., Any], *columns: Any) -> Kept:
        """``function`` of each tuple of entries, made when it is first asked for and kept."""
        made = Kept(function, columns)
        self._alive[made.number] = made
        return made

    def answers(self, function: Callable[..., Any], *columns: Any) -> list[Any]:
        """``function`` of each tuple of entries, here and in order."""
        members = self._members or self._found()
        sent = [self._sent(member, function, columns) for member in members]
        answers = [self._result(member, message) for member, message in zip(members, sent, strict=True)]
        late = [number for number, found in enumerate(answers) if found is None]
        if late:
            tasks = [self._task(rows_of, function, columns, members[number].places) for number in late]
            for number, found in zip(late, self._workers.gathered(tasks), strict=True):
                answers[number] = found
        lost = any(members[number].holder is not None for number in late)
        self._members = [] if lost else members
        return in_order([member.places for member in members], answers)

    def _found(self) -> list[_Member]:
        """Who has which partitions now."""
        opened = [column.columns[0] for column in self.opened]
        members = [_Member(worker, own) for worker, own in self._workers.places(opened[0]).items()]
        theirs = {
            member.worker: [[column[place] for place in member.places] for column in opened]
            for member in members
        }
        numbers = [column.number for column in self.opened]
        started = self._workers.holders(theirs, numbers)
        for member in members:
            member.known.update(numbers)
            member.holder = self._result(member, started.get(member.worker))
        for column in self._alive.values():
            column.tasks.clear()
        return members

    def _sent(self, member: _Member, function: Callable[..., Any], columns: Sequence[Any]) -> Any:
        """The answers of a member, yet to come; None where nothing holds its partitions or its worker is lost."""
        if member.holder is None:
            return None
        recipes: dict[int, Any] = {}
        asked = [self._told(member, column, recipes) for column in columns]
        forgotten = [number for number in member.known if number not in self._alive]
        member.known.difference_update(forgotten)
        try:
            return member.holder.ask(Question(recipes, forgotten, function, asked))
        except Exception:  # RuntimeError of Dask's
            return None

    def _told(self, member: _Member, column: Any, recipes: dict[int, Any]) -> Any:
        """A column as this member knows it, with recipes of all that it was not told before."""
        if not isinstance(column, Kept):
            return [column[place] for place in member.places]
        if column.number not in member.known:
            told = [self._told(member, other, recipes) for other in column.columns]
            recipes[column.number] = column.function, told
            member.known.add(column.number)
        return column.number

    def _result(self, member: _Member, work: Any) -> Any:
        """What a holder gives, None if it does not."""
        try:
            return None if work is None else self._workers.finished(work, member.worker)
        except WorkersLost:
            raise
        except Exception:  # of the question, or because the worker is gone: tasks tell
            return None

    def _task(
        self,
        run: Callable[..., Any],
        function: Callable[..., Any],
        columns: Sequence[Any],
        places: Sequence[int],
    ) -> Any:
        """A task that answers for some places. Values travel inside of a function, where Dask looks for nothing."""
        entries = [
            self._entry(column, place) for column in columns if isinstance(column, Kept) for place in places
        ]
        given = [
            None if isinstance(column, Kept) else [column[place] for place in places] for column in columns
        ]
        return self._workers.combined(partial(run, function, given, len(places)), *entries)

    def _entry(self, column: Kept, place: int) -> Any:
        if column.function is None:
            return column.columns[0][place]
        if place not in column.tasks:
            column.tasks[place] = self._task(row_of, column.function, column.columns, [place])
        return column.tasks[place]


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
