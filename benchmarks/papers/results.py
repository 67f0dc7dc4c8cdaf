"""One append-only file of results: a line per run, never rewritten, so that a benchmark can stop and go on."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

Key = tuple[str, str, str, float, float, int, bool]


@lru_cache(maxsize=1)
def _versions() -> dict[str, str]:
    """Versions of Python and of the packages that the figures depend on."""
    names = ("discreet", "numpy", "scipy", "scikit-learn", "numba")
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in names}}


@dataclass(frozen=True)
class Row:
    """One run of one method.

    Attributes
    ----------
    table, dataset, method, epsilon, x, seed, quick : what was run; ``x`` is the other axis of a figure (rows, columns).
    used : the data set that was used, which is a stand-in where the paper's cannot be had.
    metric, value : what was measured; None if nothing could be.
    protocol : where the settings come from: "defaults" that do not look at the data, "tuned on the data",
        "non-private", "printed calibration", "fixed in advance" or "peer's defaults".
    promise : the guarantee that was accounted: epsilon, delta, relation.
    ratio : wall time over that of the non-private model on the same split in the same run, where there is one.
    memory : the same of the largest memory in use during the fit; measured for the first repeat only.
    seconds : processor time behind the row, all of it: loading, warming up, fitting, other libraries' processes.
    status : "ok", or why there is no value.
    extra : what else was measured.
    versions : of everything that could change the value.
    """

    table: str
    dataset: str
    method: str
    epsilon: float
    seed: int
    used: str = ""
    x: float = 0.0
    metric: str = "accuracy"
    value: float | None = None
    protocol: str = "defaults"
    promise: Mapping[str, Any] | None = None
    ratio: float | None = None
    memory: float | None = None
    seconds: float = 0.0
    status: str = "ok"
    quick: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=_versions)

    @property
    def key(self) -> Key:
        """What makes two rows the same run."""
        return self.table, self.dataset, self.method, self.epsilon, self.x, self.seed, self.quick


class Results:
    """The file ``results.jsonl`` in a folder."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.path = Path(folder) / "results.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def rows(self) -> list[Row]:
        """All rows; of a run that was repeated, the last. A last line cut short by a crash is left out."""
        return list({row.key: row for row in self._read()}.values())

    def append(self, row: Row) -> None:
        """Write one row, whole."""
        line = json.dumps(asdict(row), allow_nan=False) + "\n"
        with self.path.open("ab+") as stream:
            if stream.tell():
                stream.seek(-1, os.SEEK_END)
                if stream.read(1) != b"\n":  # a crash cut the last line short
                    line = "\n" + line
            stream.write(line.encode())
            stream.flush()
            os.fsync(stream.fileno())

    def _read(self) -> Iterator[Row]:
        if not self.path.exists():
            return
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                yield Row(**json.loads(line))
            except (ValueError, TypeError):
                continue
