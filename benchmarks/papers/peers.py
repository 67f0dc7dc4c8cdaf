"""Other libraries, each in an environment of its own that the benchmark makes once and keeps.

Their packages want other versions of ours, so they run in other processes: the split goes there as a file, labels
predicted for the test rows come back. What cannot be installed or crashes is said, not hidden.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers.datasets import Split

VARIABLE = "DISCREET_PEERS"
_WORKER = Path(__file__).parent / "peer_worker.py"
_INSTALL_SECONDS, _FIT_SECONDS = 600, 300
_DENSE_MEGABYTES = 4_000  # the peers need dense rows


@dataclass(frozen=True)
class Environment:
    """Packages of a peer, and the relation and delta of its promise (None: that of the split)."""

    packages: Sequence[str]
    neighboring: str
    delta: float | None = None


ENVIRONMENTS = {
    "diffprivlib": Environment(("diffprivlib==0.6.6", "scikit-learn==1.4.2"), "replace-one", 0.0),
    "opacus": Environment(("opacus==1.6.0", "torch==2.13.0"), "add-remove-one"),
    "interpret": Environment(("interpret-core==0.7.8",), "replace-one"),
}


class PeerFailed(RuntimeError):
    """A peer gave no answer; the message says why."""


@dataclass(frozen=True)
class Answer:
    """What a peer's process gave back; its promise is the peer's own claim."""

    predicted: NDArray[np.int64]
    seconds: float
    promise: Mapping[str, Any]


def fit(name: str, split: Split, epsilon: float) -> Answer:
    """Fit in the peer's environment and predict the test rows."""
    environment = ENVIRONMENTS[name]
    rows = split.X_train.shape[0] + split.X_test.shape[0]
    if 8e-6 * rows * split.X_train.shape[1] > _DENSE_MEGABYTES:
        raise PeerFailed(f"not run: {name} needs dense rows, which would not fit into memory")
    python = interpreter(name, environment)
    delta = split.delta if environment.delta is None else environment.delta
    with tempfile.TemporaryDirectory() as folder:
        given, answered = Path(folder) / "given.npz", Path(folder) / "answered.npz"
        np.savez(
            given,
            X_train=_clipped(split.X_train),
            y_train=split.y_train,
            X_test=_clipped(split.X_test),
            classes=np.array(split.classes),
            epsilon=epsilon,
            delta=delta,
        )
        _call([str(python), str(_WORKER), name, str(given), str(answered)], _FIT_SECONDS, "crashed")
        with np.load(answered, allow_pickle=False) as found:
            predicted, seconds = found["predicted"].astype(np.int64), float(found["seconds"])
            spent = float(found["epsilon"])
    promise = {
        "epsilon": spent,
        "delta": delta,
        "neighboring": environment.neighboring,
        "accounted by": name,
    }
    return Answer(predicted, seconds, promise)


def _clipped(X: Any) -> NDArray[np.float64]:
    """Dense rows of norm at most 1, which is what our own estimators declare."""
    dense = np.asarray(X if isinstance(X, np.ndarray) else X.toarray(), dtype=np.float64)
    norms = np.linalg.norm(dense, axis=1, keepdims=True)
    return np.asarray(dense / np.maximum(norms, 1.0), dtype=np.float64)


@lru_cache
def interpreter(name: str, environment: Environment) -> Path:
    """The interpreter of a peer's environment, which is made where it is missing."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get(VARIABLE) or Path(cache) / "discreet" / "peers") / name
    python, ready = folder / "bin" / "python", folder / "ready"
    packages = list(environment.packages)
    if not ready.exists() or ready.read_text() != "\n".join(packages):
        failed = "could not be installed"
        _call([sys.executable, "-m", "venv", str(folder)], _INSTALL_SECONDS, failed)
        _call([str(python), "-m", "pip", "install", "--quiet", *packages], _INSTALL_SECONDS, failed)
        ready.write_text("\n".join(packages))
    return python


def _call(command: Sequence[str], seconds: float, failed: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise PeerFailed(f"{failed}: no answer within {seconds:g} seconds") from None
    except OSError as error:
        raise PeerFailed(f"{failed}: {type(error).__name__}") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise PeerFailed(f"{failed}: {lines[-1][:200] if lines else f'exit code {done.returncode}'}")
