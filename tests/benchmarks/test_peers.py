"""Other libraries: what cannot be installed or crashes is a row that says so."""

import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.papers import peer_worker, peers
from benchmarks.papers.datasets import Split
from benchmarks.papers.results import Row
from benchmarks.papers.tables import TABLES


@pytest.fixture
def split():
    rng = np.random.default_rng(0)
    X = 3 * rng.normal(size=(40, 2))
    y = (X[:, 0] > 0).astype(np.int64)
    return Split("made", 0, X[:30], y[:30], X[30:], y[30:])


@pytest.fixture
def environment(monkeypatch):
    """This interpreter in place of the peer's."""
    monkeypatch.setattr(peers, "interpreter", lambda name, environment: sys.executable)

    def worker(path):
        monkeypatch.setattr(peers, "_WORKER", path)

    return worker


def test_the_answer_of_a_peer_comes_back_with_its_claim(split, environment, tmp_path):
    path = tmp_path / "worker.py"
    path.write_text(
        "import sys, numpy as np\n"
        "given = np.load(sys.argv[2])\n"
        "assert np.linalg.norm(given['X_train'], axis=1).max() <= 1 + 1e-12\n"
        "np.savez(sys.argv[3], predicted=given['X_test'][:, 0] > 0, seconds=2.0, epsilon=0.9)\n"
    )
    environment(path)
    answer = peers.fit("opacus", split, 1.0)
    assert (answer.predicted == split.y_test).all()
    assert answer.promise == {
        "epsilon": 0.9,
        "delta": split.delta,
        "neighboring": "add-remove-one",
        "accounted by": "opacus",
    }
    assert peers.fit("diffprivlib", split, 1.0).promise["delta"] == 0


def test_a_crash_is_a_row_that_says_so(split, environment, tmp_path):
    path = tmp_path / "worker.py"
    path.write_text("raise SystemError('out of luck')\n")
    environment(path)
    row = Row("logistic-low", "made", "diffprivlib", 1.0, 0)
    found = TABLES["logistic-low"]._run(row, split, {})
    assert found.value is None
    assert found.status == "crashed: SystemError: out of luck"


@pytest.mark.nightly
def test_what_cannot_be_installed_is_a_row_that_says_so(split, monkeypatch, tmp_path):
    monkeypatch.setenv(peers.VARIABLE, str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    peers.interpreter.cache_clear()
    row = Row("logistic-low", "made", "opacus", 1.0, 0)
    found = TABLES["logistic-low"]._run(row, split, {})
    assert found.value is None
    assert found.status.startswith("could not be installed: ")


def test_the_worker_needs_nothing_of_this_package():
    text = Path(peer_worker.__file__).read_text()
    assert "import discreet" not in text
    assert "from discreet" not in text
