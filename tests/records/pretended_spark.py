"""What `discreet.records.clusters.spark` asks of PySpark, in one process and without Java.

Partitions are lists of Arrow batches. Functions and broadcasts travel as bytes, as they do to executors, and every
partition is computed by itself. A session can be told to run tasks twice, to let them fail at first, or to forget
what it keeps, so that everything is made again from the source.
"""

import contextlib
import functools
import re
import sys
import types
from dataclasses import dataclass
from types import SimpleNamespace

import cloudpickle
import pyarrow as pa

from discreet.records.clusters import spark


@dataclass
class Session:
    """How tasks go wrong.

    Attributes
    ----------
    twice : run every task a second time and take the second answer, as speculation may.
    failing : how many times each task fails before it succeeds; it is tried four times.
    forgetful : keep nothing of what was to be kept.
    doubled : give the answers of every task twice, which Spark never should.
    tasks : how many tasks were run.
    """

    twice: bool = False
    failing: int = 0
    forgetful: bool = False
    doubled: bool = False
    tasks: int = 0
    here: int = 0

    def frame(self, *parts):
        """A frame of Arrow tables, one per partition; a function stands for one that is made again each time."""
        return DataFrame(
            self, [part if callable(part) else lambda part=part: part.to_batches() for part in parts]
        )

    def getConf(self):
        """No address at which the driver could be called."""
        return {}

    def runJob(self, rdd, function, partitions):
        """The answers of some partitions, each in a task of its own."""
        asked = rdd.mapPartitions(function)
        return [row for place in partitions for row in asked._made(place)]

    def run(self, place, function, batches):
        """One task; if nothing is kept, it runs in a process of its own."""
        message, failed = cloudpickle.dumps(function), 0
        while True:
            self.tasks, self.here = self.tasks + 1, place
            rows = list(batches())
            if self.forgetful and isinstance(function, _Composed):
                spark._held.clear()
            if failed < self.failing:
                failed += 1
                if failed == 4:
                    raise RuntimeError("a task failed four times")
                continue
            made = list(cloudpickle.loads(message)(iter(rows)))
            if self.twice:
                made = list(cloudpickle.loads(message)(iter(rows)))
            return made * 2 if self.doubled else made


class DataFrame:
    """Partitions, each a function that makes its batches."""

    def __init__(self, session, parts):
        self.sparkSession, self._parts = session, parts

    @property
    def schema(self):
        return self._parts[0]()[0].schema

    def select(self, *names):
        chosen = [name[1:-1].replace("``", "`") for name in names]
        return self._each(lambda place, make: [batch.select(chosen) for batch in make()])

    def selectExpr(self, *expressions):
        return self._each(lambda place, make: [_columns(batch, expressions) for batch in make()])

    def mapInArrow(self, function, schema):
        return self._each(lambda place, make: self.sparkSession.run(place, function, make))

    def _each(self, change):
        return DataFrame(
            self.sparkSession,
            [lambda place=place, make=make: change(place, make) for place, make in enumerate(self._parts)],
        )

    @property
    def rdd(self):
        rows = [
            lambda make=make: [SimpleNamespace(**row) for batch in make() for row in batch.to_pylist()]
            for make in self._parts
        ]
        return RDD(self.sparkSession, rows)

    def toLocalIterator(self):
        return iter(
            [SimpleNamespace(**row) for make in self._parts for batch in make() for row in batch.to_pylist()]
        )

    def toArrow(self):
        return pa.Table.from_batches([batch for make in self._parts for batch in make()])


def _columns(batch, expressions):
    """Columns of a batch, and arrays of several that are cast: ``array(CAST(`a` AS float), ...) AS `name` ``."""
    made = {}
    for expression in expressions:
        *cells, name = (quoted.replace("``", "`") for quoted in re.findall("`((?:[^`]|``)*)`", expression))
        kind = pa.float32() if " AS float)" in expression else pa.float64()
        columns = [batch.column(cell) for cell in cells]
        if columns:
            rows = zip(*(column.cast(kind, safe=False).to_pylist() for column in columns), strict=True)
            made[name] = pa.array([list(row) for row in rows], pa.list_(kind))
        else:
            made[name] = batch.column(name)
    return pa.record_batch(made)


class RDD:
    """Partitions, each a function that makes its rows, and functions of one partition that run in one task."""

    def __init__(self, session, parts, functions=()):
        self.context, self._parts, self._functions = session, parts, functions

    def mapPartitions(self, function):
        return RDD(self.context, self._parts, (*self._functions, function))

    def persist(self, level):
        if not self.context.forgetful:
            made = RDD(self.context, self._parts, self._functions)
            kept = functools.cache(made._made)
            self._parts, self._functions = (
                [functools.partial(kept, place) for place in range(len(self._parts))],
                (),
            )
        return self

    def unpersist(self):
        return self

    def collect(self):
        return [row for place in range(len(self._parts)) for row in self._made(place)]

    def _made(self, place):
        return self.context.run(place, _Composed(self._functions), self._parts[place])


@dataclass(frozen=True)
class _Composed:
    functions: tuple

    def __call__(self, rows):
        for function in self.functions:
            rows = function(rows)
        return rows


@contextlib.contextmanager
def pretended(**faults):
    """A session, and modules in PySpark's place while it lasts."""
    session = Session(**faults)
    context = SimpleNamespace(partitionId=lambda: session.here)
    contents = {
        "pyspark": {
            "TaskContext": SimpleNamespace(get=lambda: context),
            "StorageLevel": SimpleNamespace(MEMORY_ONLY="memory"),
        },
        "pyspark.sql": {"DataFrame": DataFrame},
        "pyspark.sql.pandas": {},
        "pyspark.sql.pandas.types": {"to_arrow_schema": lambda schema: schema},
    }
    before = {name: sys.modules.get(name) for name in contents}
    for name, attributes in contents.items():
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(attributes)
    try:
        yield session
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
