"""The same rows for other libraries, on shapes they accept; each in an environment of its own.

    python -m benchmarks.speed_peers

Environments are made beside the project's own (``.venv-peer-...``) and kept. A peer that cannot be installed is a row
that says so.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_ROOT = Path(__file__).parent.parent
_PATIENCE = 600.0  # seconds to install, and to run
N_ROWS, N_COLUMNS = 50_000, 20

_DATA = f"""
import json, time, warnings
import numpy as np
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
X = rng.standard_normal(({N_ROWS}, {N_COLUMNS})) / {N_COLUMNS}**0.5
y = (X @ rng.standard_normal({N_COLUMNS}) + 0.3 * rng.standard_normal({N_ROWS}) > 0).astype(int)
"""
_TIMED = """
def best(task):
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        task()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)
print(json.dumps(best(fit)))
"""
_DIFFPRIVLIB = """
from diffprivlib.models import LogisticRegression
fit = lambda: LogisticRegression(epsilon=1.0, data_norm=2.0, max_iter=100).fit(X, y)
"""
_OPACUS = """
import torch
from opacus import PrivacyEngine
inputs, targets = torch.tensor(X, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)
def fit():
    model = torch.nn.Linear(X.shape[1], 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, targets), batch_size=500)
    model, optimizer, loader = PrivacyEngine().make_private(
        module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=1.0, max_grad_norm=1.0)
    loss = torch.nn.BCEWithLogitsLoss()
    for rows, labels in loader:
        optimizer.zero_grad()
        loss(model(rows).ravel(), labels).backward()
        optimizer.step()
"""


@dataclass(frozen=True)
class Peer:
    """A library, what to install, and the program that times one fit."""

    name: str
    work: str
    requirements: tuple[str, ...]
    program: str


PEERS = (
    # Later releases of scikit-learn lack a name that diffprivlib 0.6 imports.
    Peer(
        "diffprivlib", "logistic regression, pure epsilon", ("diffprivlib", "scikit-learn<1.6"), _DIFFPRIVLIB
    ),
    Peer("Opacus", "logistic regression, one epoch in batches of 500", ("opacus",), _OPACUS),
)


def measure(peer: Peer) -> float | str:
    """Seconds of one fit, or why there are none."""
    home = _ROOT / f".venv-peer-{peer.name.lower()}"
    python = home / "bin" / "python"
    try:
        if not (home / ".ready").exists():
            subprocess.run(
                [sys.executable, "-m", "venv", str(home)], check=True, capture_output=True, timeout=120
            )
            install = [str(python), "-m", "pip", "install", "--quiet", *peer.requirements]
            subprocess.run(install, check=True, capture_output=True, timeout=_PATIENCE)
            (home / ".ready").touch()
        program = _DATA + peer.program + _TIMED
        output = subprocess.run(
            [str(python), "-c", program], check=True, capture_output=True, text=True, timeout=_PATIENCE
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return f"not measured: {type(error).__name__} while installing or running"
    return float(json.loads(output.splitlines()[-1]))


def ours() -> float:
    """Seconds of a default fit on the same data, the best of three."""
    from discreet import PrivateLogisticRegression

    names: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float64]]] = {}
    exec(_DATA, names)
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        PrivateLogisticRegression(1.0, feature_bound=2.0, classes=[0, 1]).fit(names["X"], names["y"])
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def rows() -> list[str]:
    """Lines of a table: a peer's fit, ours, and their ratio."""
    own = ours()
    lines = [f"| discreet | logistic regression, defaults, epsilon 1 | {own:.3f} | 1 |"]
    for peer in PEERS:
        found = measure(peer)
        shown = (found, "") if isinstance(found, str) else (f"{found:.3f}", f"{found / own:.1f}")
        lines.append(f"| {peer.name} | {peer.work} | {shown[0]} | {shown[1]} |")
    return lines


if __name__ == "__main__":
    print(*rows(), sep="\n")
