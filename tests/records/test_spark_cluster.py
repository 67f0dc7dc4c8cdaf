"""Fits on executors that are killed whole, or so slow that Spark runs a task twice: every partition counts once.

Each case starts a cluster of its own, in a process of its own, so these tests run by night, where Java and PySpark are
installed.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from discreet import Ledger
from discreet.records.clusters.base import WorkersLost

pytest.importorskip("pyspark", reason="PySpark is not installed")
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java"),
]


@pytest.fixture
def case(tmp_path):
    """Run a case and give what it printed, and how often the ledger was charged."""
    ledger = Ledger(tmp_path / "budget", epsilon=3.0, delta=1e-3)

    def run(name):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "tests.records.spark_cluster", name, tmp_path],
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=900,
            check=True,
        )
        return json.loads(done.stdout.splitlines()[-1]), len(ledger.history())

    return run


def test_executors_that_are_killed_change_nothing_in_the_release(case):
    found, charges = case("killed")
    assert found["killed"] == 2
    assert found["found"] == found["undisturbed"]
    assert charges == 1


def test_executors_that_are_killed_again_and_again_end_the_fit_in_the_one_message(case):
    found, charges = case("killed-again")
    assert found["killed"] > 2
    assert found["message"] == str(WorkersLost())
    assert found["cause"] == "None"
    assert found["hidden"]
    assert charges == 1


def test_a_task_that_runs_twice_counts_once(case):
    found, charges = case("slow")
    assert found["attempts"] == {"opened": [0, 1], "asked": [0, 1]}
    assert found["found"] == found["undisturbed"]
    assert found["sums"][0] == found["sums"][1]
    assert charges == 1
