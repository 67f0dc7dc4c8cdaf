"""Trace five walks through the code: how many functions and files a call enters, and how often it changes file.

    python -m benchmarks.walk

A walk is what a newcomer would follow with a debugger: every call of a function of ``discreet``, in the order of the
calls, without generated code and without worker threads. A test keeps them below ``LIMITS``.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import discreet

SOURCE = str(Path(discreet.__file__).parent)
LIMITS = {  # files, changes of file
    "PrivateLogisticRegression.fit": (25, 90),
    "PrivateMatrixCompletion.fit": (18, 50),
    "PrivateTransferClassifier.fit": (20, 60),
    "discreet fit": (45, 150),
    "Ledger.charge": (8, 15),
}


@dataclass
class Walk:
    """What a call entered."""

    functions: set[tuple[str, str]] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    changes: int = 0
    _last: str = ""

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        """Count a function of the package when it is first entered, and whether its file is another than before."""
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(SOURCE) or code.co_name.startswith("<"):
            return
        entered = (code.co_filename, code.co_qualname)
        if entered in self.functions:
            return
        self.functions.add(entered)
        self.files.add(code.co_filename)
        self.changes += code.co_filename != self._last
        self._last = code.co_filename


def walked(call: Callable[[], Any]) -> Walk:
    """Trace one call, after a rehearsal that loads modules and compiles."""
    found = Walk()
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        call()
        sys.setprofile(found.note)
        try:
            call()
        finally:
            sys.setprofile(None)
    return found


def walks(folder: Path) -> dict[str, Callable[[], Any]]:
    """The five calls, on small generated data."""
    import pyarrow.parquet as parquet
    import scipy.sparse as sp
    from sklearn.tree import DecisionTreeClassifier

    from discreet import Ledger, PrivateLogisticRegression, PrivateMatrixCompletion, PrivateTransferClassifier
    from discreet.cli import main
    from discreet.privacy.events import Gaussian
    from discreet.tables.cohort import COHORT_SCHEMA, make_cohort

    rng = np.random.default_rng(0)
    X = rng.normal(size=(2_000, 3))
    y = (X[:, 0] > 0).astype(int)
    ratings = sp.csr_array(np.where(rng.random((200, 20)) < 0.3, rng.integers(1, 6, size=(200, 20)), 0))
    teachers = PrivateTransferClassifier(DecisionTreeClassifier(), n_teachers=20, classes=[0, 1])
    parquet.write_table(make_cohort(2_000), folder / "cohort.parquet")
    COHORT_SCHEMA.to_file(folder / "cohort.toml")
    ledger, event = Ledger(folder / "budget.db", epsilon=1e6, delta=1e-5), Gaussian(1e3)
    shell = ["fit", str(folder / "cohort.parquet"), "--schema", str(folder / "cohort.toml"), "--epsilon", "1"]
    shell += ["--ledger", str(folder / "budget.db"), "--output", str(folder / "model.json"), "--overwrite"]
    return {
        "PrivateLogisticRegression.fit": lambda: PrivateLogisticRegression(classes=[0, 1]).fit(X, y),
        "PrivateMatrixCompletion.fit": lambda: PrivateMatrixCompletion().fit(ratings),
        "PrivateTransferClassifier.fit": lambda: teachers.fit(X, y, X_public=X[:100]),
        "discreet fit": lambda: main(shell),
        "Ledger.charge": lambda: ledger.charge(event, label="walk"),
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        for name, call in walks(Path(place)).items():
            walk = walked(call)
            files, changes = LIMITS[name]
            print(
                f"{name:<32} {len(walk.functions):4d} functions, {len(walk.files):3d} files (at most {files}), "
                f"{walk.changes:3d} changes of file (at most {changes})"
            )
